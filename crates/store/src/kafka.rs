//! What every client of Kafka's is told, where brokers are and how both ends know each other, and what it tells of them.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientContext, Statistics};

/// How long brokers may take to say what they know of a topic.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long is listened for why nobody has answered.
const LISTEN: Duration = Duration::from_millis(200);

/// Why a topic cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The options cannot be used, as a file that holds no certificate.
    #[error("{0}: see `ca`, `certificate`, `certificate_key` and `user` in [export.kafka]")]
    Options(KafkaError),
    /// A file of certificates, or of their key, cannot be read.
    #[error("[export.kafka] {key} {}: {error}", path.display())]
    File {
        /// What it is called in the configuration.
        key: &'static str,
        /// Which one.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// No broker answered in time, or none let us in.
    #[error("{0}: are the brokers there, and do `tls` and `sasl` fit theirs?")]
    Away(String),
    /// The topic is not there.
    #[error("there is no topic `{0}`: make it, or let brokers do so")]
    NoTopic(String),
    /// The topic is not shown to this user.
    #[error("topic `{0}` is not shown to this user: give it the right to (Describe)")]
    Denied(String),
    /// The topic would not hold snapshots of policies for those who come later.
    #[error(transparent)]
    NotCompacted(#[from] NotCompacted),
}

/// A topic would not hold snapshots for those who come later.
#[derive(Debug, thiserror::Error)]
#[error(
    "topic `{topic}` has cleanup.policy={policy}, and would forget a snapshot after a time: set it to compact (kafka-configs.sh \
     --alter --topic {topic} --add-config cleanup.policy=compact), or name another topic, which is made then"
)]
pub struct NotCompacted {
    /// Its name.
    pub topic: String,
    /// What it does instead.
    pub policy: String,
}

/// Asks brokers for the topic; returns how many partitions it has. Takes five seconds where nobody answers.
pub(crate) fn check(brokers: &[String], security: &Security, topic: &str) -> Result<usize, CheckError> {
    security.check()?;
    // Brokers make a topic that a producer asks for.
    let mut config = config(brokers, security);
    config.set("allow.auto.create.topics", "false");
    let consumer: BaseConsumer<Context> =
        config.create_with_context(Context::default()).map_err(CheckError::Options)?;
    let found = consumer.fetch_metadata(Some(topic), PATIENCE).map_err(|error| {
        // Who waited in vain is told no more than that; the reason comes beside.
        let _ = consumer.poll(LISTEN);
        CheckError::Away(consumer.context().brokers().unwrap_or_else(|| error.to_string()))
    })?;
    let found = found.topics().iter().find(|found| found.name() == topic);
    match found.map(|found| (found.error().map(RDKafkaErrorCode::from), found.partitions().len())) {
        Some((None, partitions)) => Ok(partitions),
        Some((Some(RDKafkaErrorCode::TopicAuthorizationFailed), _)) => Err(CheckError::Denied(topic.to_owned())),
        _ => Err(CheckError::NoTopic(topic.to_owned())),
    }
}

/// How brokers and their clients here know each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// Whether connections are encrypted.
    pub tls: bool,
    /// PEM file of the authorities that sign brokers' certificates; without it those of the system.
    pub ca: Option<PathBuf>,
    /// PEM files of this client's certificate and its key, for brokers that ask for one.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// A name and a password.
    pub sasl: Option<Sasl>,
}

impl Security {
    /// Whether its files can be read: librdkafka names none that cannot.
    ///
    /// # Errors
    /// [`CheckError::File`].
    pub(crate) fn check(&self) -> Result<(), CheckError> {
        let pair = self.certificate.iter();
        let pair = pair.flat_map(|(certificate, key)| [("certificate", certificate), ("certificate_key", key)]);
        self.ca.iter().map(|ca| ("ca", ca)).chain(pair).try_for_each(|(key, path)| match std::fs::read(path) {
            Ok(_) => Ok(()),
            Err(error) => Err(CheckError::File { key, path: path.clone(), error }),
        })
    }
}

/// A name and a password (RFC 4616, RFC 5802).
#[derive(Clone, PartialEq, Eq)]
pub struct Sasl {
    /// Kafka's name of the mechanism: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`.
    pub mechanism: &'static str,
    /// The name.
    pub user: String,
    /// The password, which is never shown.
    pub password: String,
}

impl core::fmt::Debug for Sasl {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sasl").field("mechanism", &self.mechanism).field("user", &self.user).finish_non_exhaustive()
    }
}

/// What a client of `brokers`, of which each is `HOST:PORT`, is told in any case.
pub(crate) fn config(brokers: &[String], security: &Security) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers.join(",")).set("client.id", "weirgate").set(
        "security.protocol",
        match (security.tls, security.sasl.is_some()) {
            (false, false) => "plaintext",
            (true, false) => "ssl",
            (false, true) => "sasl_plaintext",
            (true, true) => "sasl_ssl",
        },
    );
    if let Some(ca) = &security.ca {
        config.set("ssl.ca.location", ca.to_string_lossy());
    }
    if let Some((certificate, key)) = &security.certificate {
        config.set("ssl.certificate.location", certificate.to_string_lossy());
        config.set("ssl.key.location", key.to_string_lossy());
    }
    if let Some(sasl) = &security.sasl {
        config
            .set("sasl.mechanism", sasl.mechanism)
            .set("sasl.username", &sasl.user)
            .set("sasl.password", &sasl.password);
    }
    config
}

/// What librdkafka tells of brokers, until one answers.
#[derive(Default)]
pub(crate) struct Context(Mutex<Option<String>>);

impl Context {
    pub(crate) fn brokers(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn answered(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        let what = match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AllBrokersDown) => "no broker answers",
            _ => reason,
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Of each broker, and then of all; what is said first says why.
        if known.as_deref() != Some(what) && (known.is_none() || what == reason) {
            tracing::debug!("kafka: {what}");
            *known = Some(what.to_owned());
        }
    }

    fn log(&self, _: RDKafkaLogLevel, facility: &str, text: &str) {
        tracing::debug!("librdkafka: {facility}: {text}");
    }

    fn stats(&self, statistics: Statistics) {
        // Those with a number are known from another broker: one that answered.
        if statistics.brokers.values().any(|broker| broker.nodeid >= 0 && broker.state == "UP") {
            self.answered();
        }
    }
}

impl ConsumerContext for Context {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let pair = ("/nowhere/client.pem".into(), "/nowhere/client.key".into());
        let security = Security { tls: true, certificate: Some(pair), ..Security::default() };
        let said = check(&["127.0.0.1:1".to_owned()], &security, "topic").unwrap_err().to_string();
        assert_eq!(said, "[export.kafka] certificate /nowhere/client.pem: No such file or directory (os error 2)");
    }
}
