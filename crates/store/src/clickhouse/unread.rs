//! Messages of Kafka's that a server could not read.

use core::time::Duration;

use super::client::{Server, ServerError};

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
        "SELECT topic, count(), argMax(error, time) FROM {database}.sockets_kafka_errors WHERE time > now() - {} \
         GROUP BY topic ORDER BY topic",
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
