//! The statements that add up a round.

use weirgate_tune::sketch::{LAST, LN_FACTOR};
use weirgate_tune::{Config, Metric};
use weirgate_units::UnixTime;

use super::Source;
use crate::clickhouse::tables::quoted;

/// How far back a connection's last record before the round is looked for, in rounds: an hour of five minutes each. The table's key begins
/// with the network, so that little more is read than for two.
const LOOK_BACK: u64 = 12;
/// A log's time for a response ends when the kernel has its last byte: smaller ones say nothing (`packaging/clickhouse/003_responses.sql`).
const RESPONSE_MIN: u64 = 100_000;

/// What is asked for.
pub(super) struct Asked<'a> {
    pub(super) database: &'a str,
    pub(super) pop: &'a str,
    /// The end of the round.
    pub(super) end: UnixTime,
    pub(super) config: &'a Config,
}

impl Asked<'_> {
    /// The tallies.
    pub(super) fn rows(&self, source: Source) -> String {
        match source {
            Source::Tallies => self.of_tallies(),
            Source::Records => self.of_records(),
            Source::Responses => self.of_responses(),
        }
    }

    /// The hosts whose rows are there.
    pub(super) fn hosts(&self, source: Source) -> String {
        let (database, pop) = (self.database, quoted(self.pop));
        let of = match source {
            Source::Tallies => format!("tallies WHERE pop = {pop} AND round = {}", self.round()),
            Source::Records => format!("sockets WHERE pop = {pop} AND {}", self.within()),
            Source::Responses => format!("responses_of_connections WHERE pop = {pop} AND {}", self.within()),
        };
        format!("SELECT DISTINCT host FROM {database}.{of} FORMAT TabSeparatedRaw")
    }

    /// How many responses there are that no connection's record is of.
    pub(super) fn unmatched(&self) -> String {
        format!(
            "SELECT count() FROM {}.responses_of_connections WHERE pop = {} AND {} AND status < 400 AND (host, connection) NOT IN \
             (SELECT host, connection FROM ({}))",
            self.database,
            quoted(self.pop),
            self.within(),
            self.connections()
        )
    }

    fn of_tallies(&self) -> String {
        format!(
            "SELECT network, arm, cc, sum(connections), sum(acked), groupBitOr(clients), sum(small), sum(no_metric), sum(limited), \
             sum(votes), sum(log), sum(sent), sum(retransmitted), sum(rtts), sum(rtt_us), sumMap(bins, counts) AS fit, \
             toUInt64(round_length), metric \
             FROM {}.tallies FINAL WHERE pop = {} AND round = {} GROUP BY network, arm, cc, round_length, metric FORMAT RowBinary",
            self.database,
            quoted(self.pop),
            self.round()
        )
    }

    fn of_records(&self) -> String {
        let rate = match self.config.metric {
            Metric::Goodput => {
                "if(busy_us_grown = 0, NULL, intDiv(toUInt128(bytes_acked_grown) * 8000000, toUInt128(busy_us_grown)))"
            }
            Metric::DeliveryRate => "rate * 8",
        };
        let (least, most) = (self.config.vote_bytes_min.as_u64(), self.config.limited_share_max);
        // A vote is a 32-bit float where hosts sum up, too.
        format!(
            "WITH {rate} AS v, bytes_acked_grown < {least} AS is_small, NOT is_small AND isNull(v) AS has_none, \
             NOT is_small AND isNotNull(v) AS votes, votes AND limited_share > {most} AS is_limited, \
             votes AND NOT is_limited AS fits, toFloat64(toFloat32(assumeNotNull(v))) AS vote \
             SELECT network, arm, cc, sum(n), sum(n * bytes_acked_grown), groupBitOr(bit), sumIf(n, is_small), sumIf(n, has_none), \
             sumIf(n, is_limited), sumIf(n, votes), sumIf(n * log(greatest(vote, 1)), votes), sum(n * bytes_sent_grown), \
             sum(n * bytes_retrans_grown), sumIf(n, min_rtt > 0), sum(n * min_rtt), sumMapIf([{}], [n], fits) AS fit, {} \
             FROM ({}) GROUP BY network, arm, cc FORMAT RowBinary",
            bin(),
            self.terms(),
            self.connections()
        )
    }

    fn of_responses(&self) -> String {
        let (least, most) = (self.config.vote_bytes_min.as_u64().max(RESPONSE_MIN), self.config.limited_share_max);
        // A connection's responses first, so that what it sent again is counted once however many they are.
        let responses = format!(
            "SELECT host, connection, count() AS responses, sum(bytes) AS bytes, countIf(is_small) AS small, countIf(has_none) AS no_metric, \
             countIf(has_vote) AS votes, sumIf(log(greatest(vote, 1)), has_vote) AS log, sumMapIf([{}], [toUInt64(1)], has_vote) AS fit \
             FROM (SELECT host, connection, bytes, bytes < {least} AS is_small, NOT is_small AND duration_us = 0 AS has_none, \
             NOT is_small AND duration_us > 0 AS has_vote, \
             toFloat64(toFloat32(intDiv(toUInt128(bytes) * 8000000, toUInt128(greatest(duration_us, 1))))) AS vote \
             FROM {}.responses_of_connections WHERE pop = {} AND {} AND status < 400) GROUP BY host, connection",
            bin(),
            self.database,
            quoted(self.pop),
            self.within()
        );
        format!(
            "WITH limited_share > {most} AS is_limited \
             SELECT network, arm, cc, sum(n * r.responses), sum(n * r.bytes), groupBitOr(bit), sum(n * r.small), sum(n * r.no_metric), \
             sumIf(n * r.votes, is_limited), sum(n * r.votes), sum(n * r.log), sum(n * bytes_sent_grown), sum(n * bytes_retrans_grown), \
             sumIf(n, min_rtt > 0), sum(n * min_rtt), \
             sumMapIf(r.fit.1, arrayMap(count -> count * n, r.fit.2), NOT is_limited) AS fit, {} \
             FROM ({} ORDER BY bytes_acked_grown DESC LIMIT 1 BY host, connection) AS c \
             INNER JOIN ({responses}) AS r ON c.host = r.host AND c.connection = r.connection \
             GROUP BY network, arm, cc FORMAT RowBinary",
            self.terms(),
            self.connections()
        )
    }

    /// What is added up here is added up under the settings of who asks.
    fn terms(&self) -> String {
        format!("toUInt64({}), '{}'", self.config.round.as_secs(), self.config.metric.name())
    }

    /// One row for each connection that did anything in the round, as the ledger of a host counts it (`sockets::ledger`): its totals never
    /// fall, what a record does not know is 0, and what it says of itself last is what it is.
    fn connections(&self) -> String {
        let (before, start) = (self.time(LOOK_BACK), self.time(1));
        let ports: Vec<String> = self.config.server_ports.iter().map(u16::to_string).collect();
        let (some, one) = match ports.is_empty() {
            true => (String::new(), String::new()),
            false => (
                format!(" AND ifNull(local_port, 0) IN (0, {})", ports.join(", ")),
                format!(" AND max(ifNull(local_port, 0)) IN ({})", ports.join(", ")),
            ),
        };
        let columns = ["bytes_acked", "bytes_sent", "bytes_retrans", "busy_us", "rwnd_limited_us", "sndbuf_limited_us"];
        let grown = columns.map(|column| {
            format!(
                "toUInt64(greatest(max(ifNull({column}, 0)) - if(is_known, maxIf(ifNull({column}, 0), time <= {start}), \
                 argMin(ifNull({column}, 0), time)), 0)) AS {column}_grown"
            )
        });
        let has_grown = columns.map(|column| format!("{column}_grown > 0")).join(" OR ");
        format!(
            "SELECT *, {}, (rwnd_limited_us_grown + sndbuf_limited_us_grown) * 1000 / greatest(busy_us_grown * 1000, 1) AS limited_share, \
             if(port = 0, 0, sipHash64(concat(toString(address), ' ', toString(port)))) AS connection FROM (\
             SELECT network, cookie, any(s.host) AS host, \
             argMaxIf(ifNull(s.arm, ''), time, isNotNull(s.arm) OR kind = 'poll') AS arm, \
             argMaxIf(ifNull(s.cc, ''), time, ifNull(s.cc, '') != '') AS cc, \
             if(countIf(ifNull(remote_port, 0) > 0) > 0, argMaxIf(remote_address, time, ifNull(remote_port, 0) > 0), any(remote_address)) \
             AS address, reinterpretAsFixedString(address) AS client, max(ifNull(remote_port, 0)) AS port, \
             argMaxIf(delivery_rate, time, time > {start} AND ifNull(delivery_rate, 0) > 0 AND NOT ifNull(app_limited, 0)) AS rate, \
             toUInt64(ifNull(minIf(min_rtt_us, ifNull(min_rtt_us, 0) > 0), 0)) AS min_rtt, toUInt64(max(weight)) AS n, \
             countIf(time <= {start}) > 0 OR argMin(sequence, time) = 0 AS is_known, {} \
             FROM {}.sockets AS s FINAL WHERE pop = {} AND time > {before} AND time <= {} \
             AND ifNull(direction, 'accepted') = 'accepted'{some} \
             GROUP BY network, boot_id, netns, cookie \
             HAVING countIf(time > {start}) > 0 AND countIf(ifNull(direction, '') = 'accepted') > 0{one} AND ({has_grown}))",
            client_bit(self.config),
            grown.join(", "),
            self.database,
            quoted(self.pop),
            self.time(0)
        )
    }

    /// The instant so many rounds before the end.
    fn time(&self, rounds: u64) -> String {
        let nanos = self.end.as_nanos().saturating_sub(rounds * self.config.round.as_nanos());
        format!("fromUnixTimestamp64Nano(toInt64({nanos}), 'UTC')")
    }

    fn within(&self) -> String {
        format!("time > {} AND time <= {}", self.time(1), self.time(0))
    }

    fn round(&self) -> String {
        format!("toDateTime({}, 'UTC')", self.end.as_secs())
    }
}

/// The bin of `vote` (`tune::sketch::bin`).
fn bin() -> String {
    format!("toUInt16(if(vote < 1, 0, least({LAST}, 1 + ceil(log(vote) / {LN_FACTOR}))))")
}

/// The bit of `client` in a set of 64, as hosts reckon it (`tune::Did::clients`): two rounds of splitmix64 over the address's halves. Where
/// the address was cut to its network, the connection's cookie stands in for what is missing.
fn client_bit(config: &Config) -> String {
    let half = |from: u8| format!("reinterpretAsUInt64(reverse(substring(client, {from}, 8)))");
    let ones = |bits: &str| format!("toUInt64(bitShiftLeft(toUInt64(1), {bits}) - 1)");
    let missing = format!(
        "toUInt8(splitByChar('/', network)[2]) AS len, if(startsWith(client, unhex('00000000000000000000FFFF')), {}, \
         if(greatest(len, {v6}) <= 64, {}, {})) AS missing",
        ones(&format!("32 - least(32, greatest(len, {}))", config.network_len_v4)),
        u64::MAX,
        ones(&format!("128 - least(128, greatest(len, {v6}))", v6 = config.network_len_v6)),
        v6 = config.network_len_v6,
    );
    let low = format!("bitOr({}, if(port = 0, bitAnd(cookie, missing), 0))", half(9));
    let mixed = |name: &str, what: &str| {
        format!(
            "{what} + 11400714819323198485 AS {name}1, bitXor({name}1, bitShiftRight({name}1, 30)) * 13787848793156543929 AS {name}2, \
             bitXor({name}2, bitShiftRight({name}2, 27)) * 10723151780598845931 AS {name}3, \
             bitXor({name}3, bitShiftRight({name}3, 31)) AS {name}"
        )
    };
    let (first, second) = (mixed("high", &half(1)), mixed("both", &format!("bitXor(high, {low})")));
    format!("{missing}, {first}, {second}, bitShiftLeft(toUInt64(1), bitShiftRight(both, 58)) AS bit")
}
