//! `weirgate store`: a fleet's tables in ClickHouse.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use weirgate_store::clickhouse::{Dialect, Done, Kafka, Server, Tables, init, script};
use weirgate_store::export::{self, Form};
use weirgate_units::Duration;

use super::Failure;
use super::output::Output;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make the tables in a ClickHouse server, or what they lack; safe to run again
    Init(Box<Init>),
    /// Print the schema of the messages that Kafka carries, for ClickHouse's folder `format_schemas`
    Proto {
        /// That of tallies, instead of that of records
        #[arg(long)]
        tallies: bool,
    },
}

#[derive(Debug, Args)]
pub(super) struct Init {
    /// The server's HTTP address
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8123")]
    url: String,
    /// The database to make the tables in
    #[arg(long, value_name = "NAME", default_value = "weirgate")]
    database: String,
    /// Who may make tables there [default: default]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// A file with the user's password
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// The authority that signs the server's certificate, in PEM, in place of those of the system
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Make replicated tables on every server of this cluster
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Read records from these Kafka brokers, as "kafka1:9092,kafka2:9092"; another list than before replaces that one
    #[arg(long, value_name = "BROKERS")]
    kafka: Option<String>,
    /// The topic that records are in
    #[arg(long, value_name = "TOPIC", default_value = "weirgate.sockets", requires = "kafka")]
    topic: String,
    /// Read tallies too, from this topic
    #[arg(long, value_name = "TOPIC", requires = "kafka")]
    tallies: Option<String>,
    /// How many consumers each server has for each topic: as many as it has cores to spare, and no more than there are partitions
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "kafka", value_parser = clap::value_parser!(u16).range(1..=256))]
    consumers: u16,
    /// How messages hold records: `form` of [export.kafka]
    #[arg(long, value_name = "FORM", default_value = "delimited", requires = "kafka")]
    form: WordOfForm,
    /// How long rows stay, in whole days [default: "30 d" in tables that are made, as before in others]
    #[arg(long, value_name = "DAYS")]
    ttl: Option<Duration>,
    /// Print the SQL and connect to nothing
    #[arg(long)]
    print: bool,
    /// Which server the SQL is for
    #[arg(long, value_name = "DIALECT", default_value = "current", requires = "print")]
    dialect: WordOfDialect,
    /// Print JSON
    #[arg(long, conflicts_with = "print")]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WordOfForm {
    /// One or more records, each behind its length
    Delimited,
    /// Exactly one record
    Single,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WordOfDialect {
    /// ClickHouse 23.10 or later
    Current,
    /// ClickHouse 18.16, which is Debian's, to 23.9
    #[value(name = "18.16")]
    V18,
}

impl Command {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        match self {
            Self::Init(init) => init.run(out),
            Self::Proto { tallies: false } => Ok(out.bytes(export::proto().as_bytes())?),
            Self::Proto { tallies: true } => Ok(out.bytes(export::TALLIES_PROTO.as_bytes())?),
        }
    }
}

impl Init {
    fn run(self, out: &mut Output) -> Result<(), Failure> {
        let form = match self.form {
            WordOfForm::Delimited => Form::Delimited,
            WordOfForm::Single => Form::Single,
        };
        let kafka = self.kafka.map(|brokers| Kafka {
            brokers,
            topic: self.topic,
            tallies: self.tallies,
            consumers: self.consumers,
            form,
        });
        let tables = Tables { database: self.database, cluster: self.cluster, kafka, ttl: self.ttl };
        if self.print {
            let dialect = match self.dialect {
                WordOfDialect::Current => Dialect::Current,
                WordOfDialect::V18 => Dialect::V18,
            };
            let sql = script(&tables, dialect).map_err(|error| Failure::Usage(error.into()))?;
            return Ok(out.bytes(sql.as_bytes())?);
        }
        let password = self.password_file.as_deref().map(password).transpose().map_err(Failure::Usage)?;
        let server = Server::new(&self.url, self.user, password);
        let server = match &self.ca {
            Some(ca) => server.and_then(|server| server.with_authorities(ca)),
            None => server,
        };
        let server = server.map_err(|error| Failure::Usage(error.into()))?;
        let done = init(&server, &tables).map_err(|error| {
            if error.is_asked_wrongly() { Failure::Usage(error.into()) } else { Failure::Work(error.into()) }
        })?;
        if self.json { json_of(&server, &tables, &done, out) } else { text_of(&server, &tables, &done, out) }
    }
}

/// The first line of `file`.
fn password(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("the password cannot be read from {}", file.display()))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(anyhow!("{} is empty: write the password into its first line", file.display())),
    }
}

fn json_of(server: &Server, tables: &Tables, done: &Done, out: &mut Output) -> Result<(), Failure> {
    Ok(out.json(&json!({
        "url": server.url(),
        "version": done.version,
        "dialect": done.dialect.to_string(),
        "database": tables.database,
        "applied": done.applied,
        "kept": done.kept,
        "retimed": done.retimed,
        "joined": done.joined,
        "remade": done.remade,
        "left": done.left,
        "missing_schemas": done.missing_schemas,
    }))?)
}

fn text_of(server: &Server, tables: &Tables, done: &Done, out: &mut Output) -> Result<(), Failure> {
    let database = &tables.database;
    out.line(&format!("ClickHouse {} at {}, database {database}", done.version, server.url()))?;
    if !done.joined.is_empty() {
        out.line(&format!("joined   {}, as the cluster's other servers have them", done.joined.join(", ")))?;
    }
    if !done.remade.is_empty() {
        out.line(&format!("remade   {}: somebody had dropped what was there", done.remade.join(", ")))?;
    }
    for name in &done.applied {
        out.line(&format!("applied  {name}"))?;
    }
    for name in &done.left {
        let option = if *name == "tallies_kafka" { "--tallies" } else { "--kafka" };
        out.line(&format!("left     {name} as it is: it follows this release, and another form or broker, where {option} is there, too"))?;
    }
    if let (false, Some(ttl)) = (done.retimed.is_empty(), tables.ttl) {
        out.line(&format!("rows stay for {ttl} in {} from now on", done.retimed.join(", ")))?;
    }
    if done.applied.is_empty() && done.retimed.is_empty() && done.joined.is_empty() && done.remade.is_empty() {
        out.line(&format!("nothing to do: all {} files were applied before", done.kept))?;
    }
    if !done.missing_schemas.is_empty() {
        out.line(&format!(
            "nothing is read from Kafka yet: the server does not find {} in its folder `format_schemas` (format_schema_path): see \
             `weirgate store proto --help`",
            done.missing_schemas.join(" and ")
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_a_first_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        std::fs::write(&file, "secret word\nmore\n").unwrap();
        assert_eq!(password(&file).unwrap(), "secret word");
        std::fs::write(&file, "\n").unwrap();
        assert!(password(&file).unwrap_err().to_string().contains("write the password into its first line"));
        assert!(password(&dir.path().join("none")).unwrap_err().to_string().contains("none"));
    }
}
