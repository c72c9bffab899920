//! What every client of Kafka's is told: where brokers are, and how both ends know each other.

use std::path::PathBuf;

use rdkafka::config::ClientConfig;

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
