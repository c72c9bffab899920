//! `[export.kafka]`: records to Kafka, typed and meant.

use std::path::{Path, PathBuf};

use weirgate_units::{Bytes, Duration};

use super::read::{Problem, Section, Typed};
use super::typed::{Maybe, Word, words};
use super::{between, directory, or};

/// `[export.kafka]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kafka {
    /// `HOST:PORT` of some brokers.
    pub brokers: Vec<String>,
    /// The topic of records; `None`: they are not sent.
    pub topic: Option<String>,
    /// The topic of tallies; `None`: none are made.
    pub tallies: Option<String>,
    /// How a message holds its records.
    pub form: Form,
    /// Whether every field is sent.
    pub fields: Fields,
    /// How batches are compressed.
    pub compression: Compression,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// Of the authorities that sign brokers' certificates; `None`: the system's.
    pub ca: Option<PathBuf>,
    /// This client's certificate, and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// How the exporter says who it is.
    pub login: Option<Login>,
    /// The folder of what waits to be acknowledged.
    pub spool: PathBuf,
    /// What may wait there.
    pub spool_max: Bytes,
    /// A batch is handed over when it is so old.
    pub interval: Duration,
    /// Whether clients' addresses are cut to their networks before they leave this host.
    pub anonymise: bool,
}

/// A name and the file of its password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// By which mechanism.
    pub mechanism: Mechanism,
    /// The name.
    pub user: String,
    /// The first line of this file is the password.
    pub password_file: PathBuf,
}

/// SASL mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// RFC 4616: the password itself, for connections that are encrypted.
    Plain,
    /// RFC 7677.
    ScramSha256,
    /// The same with SHA-512.
    ScramSha512,
}

/// Which fields are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fields {
    /// Those that do not follow from others and are asked for.
    #[default]
    Lean,
    /// Every one.
    All,
}

/// How a message holds its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Those of one client network, each behind its length.
    #[default]
    Delimited,
    /// One.
    Single,
}

/// How batches are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is what it is called")]
pub enum Compression {
    #[default]
    Zstd,
    Lz4,
    Gzip,
    Snappy,
    Off,
}

/// As typed.
#[derive(Debug)]
pub(super) struct TypedKafka {
    first: Maybe<()>,
    brokers: Maybe<Vec<String>>,
    topic: Maybe<String>,
    records: Maybe<bool>,
    tallies: Maybe<String>,
    form: Maybe<Word<Form>>,
    fields: Maybe<Word<Fields>>,
    compression: Maybe<Word<Compression>>,
    tls: Maybe<bool>,
    ca: Maybe<String>,
    certificate: Maybe<String>,
    certificate_key: Maybe<String>,
    sasl: Maybe<Word<Mechanism>>,
    user: Maybe<String>,
    password_file: Maybe<String>,
    spool: Maybe<String>,
    spool_max: Maybe<Bytes>,
    interval: Maybe<Duration>,
    anonymise: Maybe<bool>,
}

pub(super) fn read(root: &mut Section<'_>) -> TypedKafka {
    root.table("export", |export| {
        export.table("kafka", |s| TypedKafka {
            first: s.first(),
            brokers: s.list("brokers"),
            topic: s.parsed("topic"),
            records: s.boolean("records"),
            tallies: s.parsed("tallies"),
            form: s.parsed("form"),
            fields: s.parsed("fields"),
            compression: s.parsed("compression"),
            tls: s.boolean("tls"),
            ca: s.parsed("ca"),
            certificate: s.parsed("certificate"),
            certificate_key: s.parsed("certificate_key"),
            sasl: s.parsed("sasl"),
            user: s.parsed("user"),
            password_file: s.parsed("password_file"),
            spool: s.parsed("spool"),
            spool_max: s.parsed("spool_max"),
            interval: s.parsed("interval"),
            anonymise: s.boolean("anonymise"),
        })
    })
}

const OF_RECORDS: &str = "says how records are sent, and `records = false` that they are not";

/// `None` where no broker is named.
pub(super) fn meaning(typed: TypedKafka, state: &Path, problems: &mut Vec<Problem>) -> Option<Kafka> {
    let Some(brokers) = typed.brokers else {
        // Silence would be taken for success.
        if let Some(first) = typed.first {
            problems.push(first.problem("nothing is sent without `brokers`: name some, as [\"kafka1.example:9092\"]"));
        }
        return None;
    };
    if brokers.value.is_empty() {
        problems.push(brokers.problem("names no broker: list some, or leave the section out"));
    }
    let is_address = |broker: &&String| {
        broker
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
    };
    if let Some(broker) = brokers.value.iter().find(|broker| !is_address(broker)) {
        problems.push(brokers.problem(format!("`{broker}` is not HOST:PORT, as kafka1.example:9092")));
    }
    for topic in [&typed.topic, &typed.tallies].into_iter().flatten().filter(|topic| !is_topic(&topic.value)) {
        problems.push(no_topic(topic));
    }
    let records = typed.records.as_ref().is_none_or(|records| records.value);
    let topic = records.then(|| typed.topic.as_ref().map_or("weirgate.sockets", |topic| &topic.value).to_owned());
    let tallies = typed.tallies.as_ref().map(|topic| topic.value.clone());
    if !records {
        let of_no_use = [
            typed.topic.as_ref().map(|topic| topic.problem(OF_RECORDS)),
            typed.form.as_ref().map(|form| form.problem(OF_RECORDS)),
            typed.fields.as_ref().map(|fields| fields.problem(OF_RECORDS)),
        ];
        problems.extend(of_no_use.into_iter().flatten());
    }
    if let Some(records) = typed.records.filter(|records| !records.value && tallies.is_none()) {
        problems
            .push(records.problem("leaves nothing to be sent: name a topic for `tallies`, or leave the section out"));
    }
    if let Some(typed) = typed.tallies.filter(|_| topic.is_some() && topic == tallies) {
        problems.push(typed.problem("is the topic of records: name another, the messages are not of one kind"));
    }
    let tls = typed.tls.as_ref().is_some_and(|tls| tls.value);
    for file in [&typed.ca, &typed.certificate, &typed.certificate_key].into_iter().flatten().filter(|_| !tls) {
        problems.push(file.problem("is of no use without `tls = true`"));
    }
    let certificate = pair((typed.certificate, typed.certificate_key), problems);
    let login = match (typed.sasl, typed.user, typed.password_file) {
        (None, None, None) => None,
        (Some(mechanism), Some(user), Some(file)) => {
            if mechanism.value.0 == Mechanism::Plain && !tls {
                problems.push(
                    mechanism.problem("`plain` sends the password as it is: set `tls = true`, or take scram-sha-512"),
                );
            }
            directory(Some(file), problems).map(|password_file| Login {
                mechanism: mechanism.value.0,
                user: user.value,
                password_file,
            })
        }
        (Some(one), ..) => wanting(&one, "both `user` and `password_file`", problems),
        (None, Some(one), _) | (None, None, Some(one)) => wanting(&one, "`sasl`, as \"scram-sha-512\"", problems),
    };
    Some(Kafka {
        brokers: brokers.value,
        topic,
        tallies,
        form: or(typed.form, Word(Form::default())).0,
        fields: or(typed.fields, Word(Fields::default())).0,
        compression: or(typed.compression, Word(Compression::default())).0,
        tls,
        ca: directory(typed.ca, problems),
        certificate,
        login,
        spool: directory(typed.spool, problems).unwrap_or_else(|| state.join("spool")),
        spool_max: between(typed.spool_max, "10 MB", "1000 TB", "1 GB", problems),
        interval: between(typed.interval, "100 ms", "1 min", "3.5 s", problems),
        anonymise: or(typed.anonymise, false),
    })
}

/// A certificate and its key: both or none.
pub(super) fn pair(typed: (Maybe<String>, Maybe<String>), problems: &mut Vec<Problem>) -> Option<(PathBuf, PathBuf)> {
    match typed {
        (None, None) => None,
        (Some(certificate), Some(key)) => directory(Some(certificate), problems).zip(directory(Some(key), problems)),
        (Some(one), None) => wanting(&one, "`certificate_key`, the file of its key,", problems),
        (None, Some(one)) => wanting(&one, "`certificate`", problems),
    }
}

pub(super) fn no_topic(typed: &Typed<String>) -> Problem {
    typed.problem(format!("`{}` is no topic: up to 249 letters, digits, `.`, `_` and `-`", typed.value))
}

pub(super) fn is_topic(name: &str) -> bool {
    (1..=249).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        && !matches!(name, "." | "..")
}

fn wanting<T, U>(typed: &Typed<T>, what: &str, problems: &mut Vec<Problem>) -> Option<U> {
    problems.push(typed.problem(format!("needs {what} beside it")));
    None
}

words! {
    Form: "delimited" = Form::Delimited, "single" = Form::Single;
    Fields: "lean" = Fields::Lean, "all" = Fields::All;
    Compression: "zstd" = Compression::Zstd, "lz4" = Compression::Lz4, "gzip" = Compression::Gzip, "snappy" = Compression::Snappy,
        "none" = Compression::Off;
    Mechanism: "plain" = Mechanism::Plain, "scram-sha-256" = Mechanism::ScramSha256, "scram-sha-512" = Mechanism::ScramSha512;
}
