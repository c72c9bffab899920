//! What the exporter is told, from the configuration.

use std::path::Path;

use anyhow::Context;
use weirgate_store::Anonymise;
use weirgate_store::export::{Compression, Form, Options, Sasl, Security};

use crate::config::export::{self, Fields, Kafka, Login, Mechanism};

/// What `kafka` says of `topic`, with the password that is in a file. What waits for it is below `spool`.
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
        security: Security {
            tls: kafka.tls,
            ca: kafka.ca.clone(),
            certificate: kafka.certificate.clone(),
            sasl: kafka.login.as_ref().map(sasl).transpose()?,
        },
        spool: spool.to_owned(),
        spool_max: kafka.spool_max,
        interval: kafka.interval,
        anonymise: if kafka.anonymise { Anonymise::Client } else { Anonymise::Off },
    })
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
