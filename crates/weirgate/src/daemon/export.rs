//! What the exporter is told, from the configuration.

use std::path::Path;

use anyhow::Context;
use weirgate_store::Anonymise;
use weirgate_store::export::{Compression, Form, Options, Sasl, Security};
use weirgate_units::Bytes;

use crate::config::export::{self, Fields, Kafka, Login, Mechanism};

/// What `kafka` says of `topic`, with the password that is in a file. What waits for it is below `spool`, and no more than its share of
/// `spool_max`, which is for all topics together.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn options(kafka: &Kafka, topic: &str, spool: &Path) -> anyhow::Result<Options> {
    Ok(Options {
        brokers: kafka.brokers.clone(),
        topic: topic.to_owned(),
        form: match kafka.form {
            export::Form::Delimited => Form::Delimited,
            export::Form::Single => Form::Single,
        },
        all_fields: kafka.fields == Fields::All,
        compression: match kafka.compression {
            export::Compression::Zstd => Compression::Zstd,
            export::Compression::Lz4 => Compression::Lz4,
            export::Compression::Gzip => Compression::Gzip,
            export::Compression::Snappy => Compression::Snappy,
            export::Compression::Off => Compression::Off,
        },
        security: security(kafka)?,
        spool: spool.to_owned(),
        spool_max: share(kafka),
        interval: kafka.interval,
        anonymise: if kafka.anonymise { Anonymise::Client } else { Anonymise::Off },
    })
}

/// How `kafka`'s brokers and their clients here know each other, with the password that is in a file.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn security(kafka: &Kafka) -> anyhow::Result<Security> {
    Ok(Security {
        tls: kafka.tls,
        ca: kafka.ca.clone(),
        certificate: kafka.certificate.clone(),
        sasl: kafka.login.as_ref().map(sasl).transpose()?,
    })
}

/// What may wait for one topic: where there are two, half of it all.
fn share(kafka: &Kafka) -> Bytes {
    let topics = [&kafka.topic, &kafka.tallies].into_iter().flatten().count() as u64;
    Bytes::new(kafka.spool_max.as_u64() / topics.max(1))
}

fn sasl(login: &Login) -> anyhow::Result<Sasl> {
    let file = &login.password_file;
    let text = std::fs::read_to_string(file);
    let text = text.with_context(|| format!("[export.kafka] password_file: {}", file.display()))?;
    let mechanism = match login.mechanism {
        Mechanism::Plain => "PLAIN",
        Mechanism::ScramSha256 => "SCRAM-SHA-256",
        Mechanism::ScramSha512 => "SCRAM-SHA-512",
    };
    let password = text.lines().next().unwrap_or_default().to_owned();
    Ok(Sasl { mechanism, user: login.user.clone(), password })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Surroundings};

    #[test]
    fn what_waits_for_all_topics_together_is_bounded() {
        let around = Surroundings { host: "h".into(), state: "/state".into(), run: "/run".into() };
        for (more, topics) in [("", 1), ("tallies = \"t\"\n", 2), ("tallies = \"t\"\nrecords = false\n", 1)] {
            let text = format!("[export.kafka]\nbrokers = [\"k:9092\"]\nspool_max = \"10 MB\"\n{more}");
            let kafka = Config::from_text(&text, &around).unwrap().kafka.unwrap();
            let max = options(&kafka, "t", &kafka.spool).unwrap().spool_max;
            assert_eq!(max.as_u64() * topics, 10_000_000, "{more}");
        }
    }
}
