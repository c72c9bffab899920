//! What the connections of a point of presence came to in a round, as ClickHouse adds it up: from the tallies that hosts sent, from their
//! records, or from responses of an access log. What comes out is the same kind of thing, one row for each client network, arm and
//! congestion control.

mod rows;
mod sql;

use std::io;

use weirgate_tune::{Config, Tally};
use weirgate_units::UnixTime;

use super::client::{Server, ServerError};
use super::dialect::Dialect;

/// Which rows are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Those that hosts summed up: `[export.kafka] tallies`.
    Tallies,
    /// Those of single connections. A connection's part of a round is what its totals grew by since its last record before the round, or
    /// since its beginning where its first record is of the round. What happened before the first record that is known of an older
    /// connection is left out.
    ///
    /// That is what hosts sum up themselves, but for three things that records do not tell: what connections did before a host's daemon
    /// was started is counted in that round; the smallest round-trip time is that of the last twelve rounds; and where clients' addresses
    /// were cut to their networks, each connection counts as a client of its own.
    Records,
    /// Responses of access logs, of which each is a vote; what connections sent again and their round-trip times are from
    /// [`Records`](Self::Records).
    ///
    /// A log does not say which arm its client had, and nobody can reckon it afterwards: that takes the host's part in a canary, the policy
    /// that it obeyed at that moment, and the whole address. The record of the response's connection says it, and what it ran on: the two
    /// are brought together by host, client address and client port (a hash of these is in `responses_of_connections`). So it needs records
    /// of whole addresses, and the port in the log; responses that no record is of are counted in [`Round::unmatched`], and do not vote.
    Responses,
}

/// What came of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Tallies that were handed over.
    pub rows: u64,
    /// Rows that say what no host sends, and were left out.
    pub skipped: u64,
    /// The names of the hosts of which anything was there: fewer than in the round before it, and some of it may not have arrived yet.
    pub hosts: Vec<String>,
    /// Responses that no connection's record is of, and were left out.
    pub unmatched: u64,
}

/// Why a round cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum RoundError {
    /// The server did not answer as asked.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// Its SQL is not enough for what is asked.
    #[error("ClickHouse {0} is too old to decide from, which takes 23.10 or later: upgrade it")]
    TooOld(String),
    /// The answer broke off.
    #[error("the answer of ClickHouse broke off: {0}")]
    Broken(#[from] io::Error),
    /// Not a number where one was asked for.
    #[error("ClickHouse answered `{0}` where a number was asked for: is what answers a proxy of another kind?")]
    NoNumber(String),
}

/// Whether `server` can be asked for rounds, and keep controllers' lease.
///
/// # Errors
/// [`RoundError::TooOld`], or it does not answer.
pub fn can_add_up(server: &Server) -> Result<(), RoundError> {
    let version = server.version()?;
    match Dialect::of(&version) {
        Ok(Dialect::Current) => Ok(()),
        Ok(Dialect::V18) | Err(_) => Err(RoundError::TooOld(version)),
    }
}

/// The tallies of the round of point of presence `pop` that ends at `end`, in the database `database`, each handed to `each`. `config` says
/// how long a round is, and but for tallies who votes and with what.
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
) -> Result<Round, RoundError> {
    let asked = sql::Asked { database, pop, end, config };
    // Before the rows, so that what arrives between the two is not counted here.
    let hosts = server.ask(&asked.hosts(source))?.lines().map(str::to_owned).collect();
    let (rows, skipped) = server.ask_for_bytes(&asked.rows(source), |bytes| rows::read(bytes, each))??;
    let unmatched = match source {
        Source::Responses => number(server, &asked.unmatched())?,
        Source::Tallies | Source::Records => 0,
    };
    if skipped > 0 {
        tracing::warn!(
            pop,
            rows,
            skipped,
            "rows of ClickHouse's say what no host sends and are left out: who else writes there?"
        );
    }
    if rows == 0 && unmatched > 0 {
        tracing::warn!(
            pop,
            unmatched,
            "no response is of a connection with a record: is `hostname` in the log the name in [host], are records exported, and with their clients' whole addresses?"
        );
    }
    Ok(Round { rows, skipped, hosts, unmatched })
}

fn number(server: &Server, statement: &str) -> Result<u64, RoundError> {
    let answer = server.ask(statement)?;
    answer.trim().parse().map_err(|_| RoundError::NoNumber(answer.chars().take(100).collect()))
}
