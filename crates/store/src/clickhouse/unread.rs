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

/// A table of a server that reads Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    /// Its name.
    pub table: String,
    /// How many partitions it reads now.
    pub partitions: u64,
    /// What went wrong in the last minutes, if anything did.
    pub error: Option<String>,
}

/// The tables of `database` that read Kafka by this server; none where it does not tell.
pub fn readers(server: &Server, database: &str) -> Result<Vec<Reader>, ServerError> {
    let answer = server.ask(&format!(
        "SELECT table, sum(length(assignments.partition_id)), replaceRegexpAll(argMax(if(exceptions.time[-1] > now() - 300, \
         exceptions.text[-1], ''), exceptions.time[-1]), '\\\\s+', ' ') FROM system.kafka_consumers WHERE database = {} \
         GROUP BY table ORDER BY table FORMAT TSVRaw",
        quoted(database)
    ));
    match answer {
        Ok(rows) => Ok(rows.lines().filter_map(reader).collect()),
        Err(ServerError::NoTables { .. } | ServerError::Denied { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn reader(line: &str) -> Option<Reader> {
    let mut fields = line.split('\t');
    let (table, partitions, error) = (fields.next()?, fields.next()?.parse().ok()?, fields.next()?);
    let error = Some(error.chars().take(ERROR_MAX).collect::<String>()).filter(|error| !error.is_empty());
    Some(Reader { table: table.to_owned(), partitions, error })
}
