//! What a server does not get from Kafka, and why: messages that it cannot read, and tables that get none.

use core::time::Duration;

use super::client::{Server, ServerError};
use super::tables::quoted;

/// What could not be read of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Its name.
    pub topic: String,
    /// How many messages those were.
    pub messages: u64,
    /// What was wrong with the last of them.
    pub error: String,
}

/// Of an error, as much as is shown.
const ERROR_MAX: usize = 200;

/// What could not be read within the last time of that length, for each topic that has such.
pub fn unread(server: &Server, database: &str, within: Duration) -> Result<Vec<Unread>, ServerError> {
    let answer = server.ask(&format!(
        "SELECT topic, count(), replaceRegexpAll(argMax(error, time), '\\\\s+', ' ') FROM {database}.sockets_kafka_errors \
         WHERE time > now() - {} GROUP BY topic ORDER BY topic FORMAT TSVRaw",
        within.as_secs()
    ));
    match answer {
        Ok(rows) => Ok(rows.lines().filter_map(row).collect()),
        // Who reads nothing from Kafka has none.
        Err(ServerError::NoTables { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn row(line: &str) -> Option<Unread> {
    let mut fields = line.split('\t');
    let (topic, messages, error) = (fields.next()?, fields.next()?.parse().ok()?, fields.next()?);
    Some(Unread { topic: topic.to_owned(), messages, error: error.chars().take(ERROR_MAX).collect() })
}

/// A table that reads Kafka, and does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Its name.
    pub table: String,
    /// What went wrong last, if anything did.
    pub error: String,
}

/// The tables of `database` that read no partition by this server now; none where it does not tell. Where there are more consumers in all
/// than partitions, some have none.
pub fn idle(server: &Server, database: &str) -> Result<Vec<Idle>, ServerError> {
    let answer = server.ask(&format!(
        "SELECT table, splitByString(', Stack trace', splitByChar('\\n', argMax(exceptions.text[-1], exceptions.time[-1]))[1])[1] \
         FROM system.kafka_consumers WHERE database = {} GROUP BY table HAVING sum(length(assignments.partition_id)) = 0 \
         ORDER BY table FORMAT TSVRaw",
        quoted(database)
    ));
    match answer {
        Ok(rows) => Ok(rows.lines().filter_map(idle_row).collect()),
        Err(ServerError::NoTables { .. } | ServerError::Denied { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn idle_row(line: &str) -> Option<Idle> {
    let (table, error) = line.split_once('\t')?;
    Some(Idle { table: table.to_owned(), error: error.chars().take(ERROR_MAX).collect() })
}
