//! What the connections of a point of presence came to in a round, as ClickHouse adds it up: from the tallies that hosts sent, or from their
//! records. What comes out is the same kind of thing, one row for each client network, arm and congestion control.
//!
//! From records a connection's part of a round is what its totals grew by since the last record before the round, or since its beginning. A
//! connection of which the first record is a poll was there before; what it did until then is counted in the round of that poll.

use std::io::{self, BufReader, Read};

use weirgate_sockets::sample::{Arm, CcName};
use weirgate_tune::sketch::{LN_FACTOR, Sketch};
use weirgate_tune::{ArmSum, Config, Did, Metric, Tally};
use weirgate_units::{Bytes, UnixTime};

use super::client::{Server, ServerError};
use super::tables::quoted;
use crate::columns::ARMS;

/// Which rows are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Those that hosts summed up: `[export.kafka] tallies`.
    Tallies,
    /// Those of single connections.
    Records,
}

/// Why a round cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum RoundError {
    /// The server did not answer as asked.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The answer broke off.
    #[error("the answer of ClickHouse broke off: {0}")]
    Broken(#[from] io::Error),
    /// A row says what no host would have sent.
    #[error("a row of ClickHouse's answer says `{0}`, which no host sends: who else writes into these tables?")]
    Strange(String),
}

/// The tallies of the round of point of presence `pop` that ends at `end`, in the database `database`, each handed to `each`. `config` says
/// how long a round is, and for records who votes and with what. Returns how many there were.
///
/// # Errors
/// [`RoundError`].
pub fn round(
    server: &Server,
    database: &str,
    source: Source,
    (pop, end): (&str, UnixTime),
    config: &Config,
    each: &mut dyn FnMut(Tally),
) -> Result<u64, RoundError> {
    let statement = match source {
        Source::Tallies => from_tallies(database, pop, end),
        Source::Records => from_records(database, pop, end, config),
    };
    server.ask_for_bytes(&statement, |bytes| read(bytes, each))?
}

fn from_tallies(database: &str, pop: &str, end: UnixTime) -> String {
    format!(
        "SELECT network, arm, cc, sum(connections), sum(acked), groupBitOr(clients), sum(small), sum(no_metric), sum(limited), \
         sum(votes), sum(log), sum(sent), sum(retransmitted), sum(rtts), sum(rtt_us), sumMap(bins, counts) AS fit \
         FROM {database}.tallies FINAL WHERE pop = {} AND round = toDateTime({}, 'UTC') GROUP BY network, arm, cc \
         FORMAT RowBinary",
        quoted(pop),
        end.as_secs()
    )
}

fn from_records(database: &str, pop: &str, end: UnixTime, config: &Config) -> String {
    let round = config.round.as_nanos();
    let [end, start, before] = [0, 1, 2].map(|rounds| {
        let nanos = end.as_nanos().saturating_sub(rounds * round);
        format!("fromUnixTimestamp64Nano(toInt64({nanos}), 'UTC')")
    });
    let ports: Vec<String> = config.server_ports.iter().map(u16::to_string).collect();
    let ports = if ports.is_empty() { String::new() } else { format!(" AND local_port IN ({})", ports.join(", ")) };
    let grown = |column: &str| {
        format!(
            "maxIf(ifNull({column}, 0), time > {start}) - maxIf(ifNull({column}, 0), time <= {start}) AS {column}_grown"
        )
    };
    let grown =
        ["bytes_acked", "bytes_sent", "bytes_retrans", "busy_us", "rwnd_limited_us", "sndbuf_limited_us"].map(grown);
    let rate = match config.metric {
        Metric::Goodput => "if(busy_us_grown = 0, NULL, intDiv(bytes_acked_grown * 8000000, busy_us_grown))",
        Metric::DeliveryRate => "rate * 8",
    };
    let (least, most) = (config.vote_bytes_min.as_u64(), config.limited_share_max);
    format!(
        "WITH {}, {rate} AS v, bytes_acked_grown < {least} AS is_small, NOT is_small AND isNull(v) AS has_none, \
         NOT is_small AND isNotNull(v) AS votes, \
         votes AND rwnd_limited_us_grown + sndbuf_limited_us_grown > {most} * busy_us_grown AS is_limited, \
         votes AND NOT is_limited AS fits, assumeNotNull(v) AS vote \
         SELECT network, arm, cc, sum(n), sum(n * bytes_acked_grown), groupBitOr(bit), sumIf(n, is_small), sumIf(n, has_none), \
         sumIf(n, is_limited), sumIf(n, votes), sumIf(n * log(greatest(vote, 1)), votes), sum(n * bytes_sent_grown), \
         sum(n * bytes_retrans_grown), sumIf(n, min_rtt > 0), sum(n * min_rtt), \
         sumMapIf([toUInt16(if(vote < 1, 0, 1 + ceil(log(vote) / {LN_FACTOR})))], [n], fits) AS fit \
         FROM (SELECT network, argMax(ifNull(s.arm, ''), time) AS arm, argMax(ifNull(s.cc, ''), time) AS cc, \
         reinterpretAsFixedString(any(remote_address)) AS client, \
         argMaxIf(delivery_rate, time, ifNull(app_limited, 0) = 0) AS rate, ifNull(min(min_rtt_us), 0) AS min_rtt, toUInt64(max(weight)) AS n, {} \
         FROM {database}.sockets AS s FINAL WHERE pop = {} AND time > {before} AND time <= {end} AND direction = 'accepted'{ports} \
         GROUP BY network, boot_id, netns, cookie HAVING countIf(time > {start}) > 0) \
         GROUP BY network, arm, cc FORMAT RowBinary",
        client_bit(),
        grown.join(", "),
        quoted(pop)
    )
}

/// The bit of `client` in a set of 64, as hosts reckon it (`tune::Did::clients`): two rounds of splitmix64 over the address's halves.
fn client_bit() -> String {
    let half = |from: u8| format!("reinterpretAsUInt64(reverse(substring(client, {from}, 8)))");
    let mixed = |name: &str, what: &str| {
        format!(
            "{what} + 11400714819323198485 AS {name}1, bitXor({name}1, bitShiftRight({name}1, 30)) * 13787848793156543929 AS {name}2, \
             bitXor({name}2, bitShiftRight({name}2, 27)) * 10723151780598845931 AS {name}3, \
             bitXor({name}3, bitShiftRight({name}3, 31)) AS {name}"
        )
    };
    let (first, second) = (mixed("high", &half(1)), mixed("both", &format!("bitXor(high, {})", half(9))));
    format!("{first}, {second}, bitShiftLeft(toUInt64(1), bitShiftRight(both, 58)) AS bit")
}

/// Reads rows until there are no more.
fn read(bytes: &mut dyn Read, each: &mut dyn FnMut(Tally)) -> Result<u64, RoundError> {
    let mut row = Row(BufReader::with_capacity(1 << 16, bytes));
    let mut rows = 0;
    while let Some(tally) = row.next()? {
        each(tally);
        rows += 1;
    }
    Ok(rows)
}

/// ClickHouse's `RowBinary`: values one after the other, little-endian, lengths as base-128 numbers.
struct Row<R>(BufReader<R>);

impl<R: Read> Row<R> {
    fn next(&mut self) -> Result<Option<Tally>, RoundError> {
        let Some(network) = self.first()? else { return Ok(None) };
        let network = network.parse().map_err(|_| RoundError::Strange(network))?;
        let arm = match self.text()?.as_str() {
            "" => Arm::None,
            arm if arm == ARMS[0] => Arm::Treated,
            arm if arm == ARMS[1] => Arm::Holdout,
            other => return Err(RoundError::Strange(other.to_owned())),
        };
        let cc = self.text()?;
        let cc = CcName::new(&cc).ok_or(RoundError::Strange(cc))?;
        let mut did = Did {
            connections: self.number()?,
            acked: Bytes::new(self.number()?),
            clients: self.number()?,
            small: self.number()?,
            no_metric: self.number()?,
            limited: self.number()?,
            arm: ArmSum::default(),
        };
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        did.arm.votes = narrow(self.number()?);
        did.arm.log = f64::from_bits(self.number()?);
        (did.arm.sent, did.arm.retransmitted) = (self.number()?, self.number()?);
        did.arm.rtts = narrow(self.number()?);
        did.arm.rtt_us = self.number()?;
        if !did.arm.log.is_finite() {
            return Err(RoundError::Strange(did.arm.log.to_string()));
        }
        let bins = self.list(|row| Ok(u16::from_le_bytes(row.take()?)))?;
        let counts = self.list(|row| Ok(narrow(row.number()?)))?;
        let fit = Sketch::new(bins.into_iter().zip(counts).collect());
        let fit = fit.map_err(|error| RoundError::Strange(error.to_string()))?;
        did.arm.fit = narrow(fit.len());
        Ok(Some(Tally { network, arm, cc, did, fit }))
    }

    /// The text that a row begins with; `None`: there is no row.
    fn first(&mut self) -> Result<Option<String>, RoundError> {
        if io::BufRead::fill_buf(&mut self.0)?.is_empty() {
            return Ok(None);
        }
        self.text().map(Some)
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn number(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    /// A length, which is no more than any of these can be.
    fn length(&mut self) -> Result<usize, RoundError> {
        let mut length = 0;
        for shift in (0..21).step_by(7) {
            let [byte] = self.take()?;
            length |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(length);
            }
        }
        Err(RoundError::Strange("a text or a list of more than two million".to_owned()))
    }

    fn text(&mut self) -> Result<String, RoundError> {
        let mut text = vec![0; self.length()?];
        self.0.read_exact(&mut text)?;
        String::from_utf8(text).map_err(|error| RoundError::Strange(error.to_string()))
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> io::Result<T>) -> Result<Vec<T>, RoundError> {
        let length = self.length()?;
        (0..length).map(|_| Ok(item(self)?)).collect()
    }
}
