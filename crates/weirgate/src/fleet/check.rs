//! What `weirgate doctor` asks: whether a fleet's two ends have what they need, and are heard.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use weirgate_linux::clock;
use weirgate_store::clickhouse::standby::memories;
use weirgate_store::clickhouse::{Server, ServerError, idle, unread};
use weirgate_tune::snapshot::{Refused, SIGNATURE};
use weirgate_units::UnixTime;

use super::controller::edges_have;
use super::fetch::{News, ask_each};
use super::follow::held;
use super::keys::{Signer, is_signed};
use super::memory::{self, Memory};
use super::rounds::Rounds;
use super::{secret, tls, topic};
use crate::config::controller::{Controller, Database, Serve};
use crate::config::fleet::{Fleet, Origin};
use crate::config::{Config, Host, Kafka};
use crate::folder::writable;

/// How far back it is looked for messages that could not be read.
pub(super) const UNREAD_WITHIN: core::time::Duration = core::time::Duration::from_secs(3_600);

/// What was found.
pub(crate) enum Found {
    Works(String),
    /// It may come yet.
    Note(String),
    Fails(String),
}

impl Found {
    fn of(result: anyhow::Result<String>) -> Self {
        result.map_or_else(|error| Self::Fails(format!("{error:#}")), Self::Works)
    }
}

/// Files of secrets that anybody on this host may read.
pub(crate) fn exposed(config: &Config) -> Vec<String> {
    let kafka = config.kafka.as_ref().map(|kafka| {
        let password = kafka.login.as_ref().map(|login| &login.password_file);
        [("[export.kafka] certificate_key", key_of(&kafka.certificate)), ("[export.kafka] password_file", password)]
    });
    let edge = config.fleet.as_ref().and_then(|fleet| match &fleet.origin {
        Origin::Controllers(of) => {
            Some([("[fleet] token_file", of.token_file.as_ref()), ("[fleet] certificate_key", key_of(&of.certificate))])
        }
        Origin::File(_) | Origin::Topic(_) => None,
    });
    let database = config.decides.as_ref().and_then(|controller| match &controller.database {
        Database::ClickHouse { login: (_, Some(password)), .. } => Some(("[controller] password_file", Some(password))),
        Database::ClickHouse { .. } | Database::Store(_) => None,
    });
    let serve = config.decides.as_ref().and_then(|controller| controller.serve.as_ref()).map(|serve| {
        [
            ("[controller] token_file", serve.token_file.as_ref()),
            ("[controller] certificate_key", Some(&serve.certificate.1)),
        ]
    });
    let all = [kafka, edge, serve].into_iter().flatten().flatten().chain(database);
    let said = all.filter_map(|(key, path)| {
        let path = path?;
        let is_open = std::fs::metadata(path).is_ok_and(|file| file.mode() & 0o004 != 0);
        is_open.then(|| format!("{key}: {}: anybody on this host may read it: chmod o-r", path.display()))
    });
    said.collect()
}

fn key_of(pair: &Option<(PathBuf, PathBuf)>) -> Option<&PathBuf> {
    pair.as_ref().map(|(_, key)| key)
}

/// At an edge.
pub(crate) fn edge(fleet: &Fleet, kafka: Option<&Kafka>, host: &Host) -> Vec<Found> {
    match &fleet.origin {
        Origin::Topic(name) => kafka.map(|kafka| in_topic(fleet, kafka, name, host)).into_iter().collect(),
        Origin::File(path) => vec![match std::fs::read(path) {
            Ok(bytes) => judged(fleet, host, &path.display().to_string(), &bytes),
            Err(error) => Found::Note(format!("{}: {error}: no policy has come yet", path.display())),
        }],
        Origin::Controllers(controllers) => {
            let found = |(url, answer): (String, anyhow::Result<News>)| match answer {
                Ok(News::Snapshot(bytes)) => judged(fleet, host, &url, &bytes),
                Ok(_) => Found::Works(format!("{url} answers")),
                Err(error) => Found::Fails(format!("{url}: {error:#}")),
            };
            ask_each(controllers, &host.pop).into_iter().map(found).collect()
        }
    }
}

/// What an edge would find in the topic `name`.
fn in_topic(fleet: &Fleet, kafka: &Kafka, name: &str, host: &Host) -> Found {
    match topic::is_there(kafka, name) {
        Ok(true) => {}
        Ok(false) => {
            return Found::Note(format!("there is no topic `{name}`: the controller makes it when it publishes"));
        }
        Err(error) => return Found::Fails(format!("topic `{name}`: {error:#}")),
    }
    match topic::ask(kafka, name, &host.pop) {
        Ok(Some(bytes)) => judged(fleet, host, &format!("topic `{name}`"), &bytes),
        Ok(None) => Found::Note(format!("topic `{name}`: no policy has come yet")),
        Err(why) => Found::Fails(why.to_string()),
    }
}

/// Whether this edge would obey what came from `place`.
fn judged(fleet: &Fleet, host: &Host, place: &str, bytes: &[u8]) -> Found {
    let trust = |signed: &[u8], signature: &[u8; SIGNATURE]| is_signed(&fleet.trust, signed, signature);
    let held = match held(host) {
        Ok(held) => held,
        Err(problem) => {
            return Found::Fails(format!(
                "{problem:#}: which policy was obeyed is not known; the next one makes it anew"
            ));
        }
    };
    match held.check(bytes, &host.pop, clock::unix(), trust) {
        Ok(snapshot) => Found::Works(format!(
            "{place}: policy {}, {} networks, {} bytes",
            snapshot.version,
            snapshot.policy.networks.len(),
            bytes.len()
        )),
        Err(Refused::Older { held, offered }) if held == offered => {
            Found::Works(format!("{place}: policy {offered}, which is obeyed, or was until it expired"))
        }
        Err(why) => Found::Fails(format!("{place}: {why}")),
    }
}

/// At a controller.
pub(crate) fn controller(config: &Config, settings: &Controller) -> Vec<Found> {
    let mut all = Vec::new();
    all.push(Found::of(Signer::load(&settings.key).map(|signer| format!("edges have to trust {}", signer.public()))));
    if let Err(error) = edges_have(&config.tune.controller, settings) {
        all.push(Found::Fails(error.to_string()));
    }
    if let Some(serve) = &settings.serve {
        all.push(Found::of(answers(serve)));
    }
    if let (Some(name), Some(kafka)) = (&settings.topic, &config.kafka) {
        all.push(match topic::is_there(kafka, name) {
            Ok(true) => Found::Works(format!("topic `{name}` keeps policies")),
            Ok(false) => Found::Note(format!("there is no topic `{name}`: it is made with the first policy")),
            Err(error) => Found::Fails(format!("topic `{name}`: {error:#}")),
        });
    }
    let memory = memory::folder(&config.host.state);
    all.extend([("[host] state", &memory), ("[controller] publish", &settings.publish)].into_iter().filter_map(
        |(key, folder)| {
            let error = writable(folder).err()?;
            Some(Found::Fails(format!("{key}: {}: {error}: it has to be written", folder.display())))
        },
    ));
    all.extend(addresses(&memory, settings));
    for pop in &settings.pops {
        if let Err(error) = Memory::load(&memory, pop) {
            all.push(Found::Fails(format!("{error:#}")));
        }
    }
    match Rounds::open(&settings.database, settings.lease) {
        Ok(rounds) => all.extend(data(&rounds, config, settings)),
        Err(error) => all.push(Found::Fails(format!("{error:#}"))),
    }
    all
}

/// Whether its addresses are free, where it does not run.
fn addresses(memory: &Path, settings: &Controller) -> Vec<Found> {
    let is_ours = |lock: File| rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    if !File::open(memory::lock(memory)).map_or(true, is_ours) {
        return vec![Found::Works("it runs: its addresses are not tried".to_owned())];
    }
    let listen = settings.serve.as_ref().map(|serve| ("listen", serve.listen));
    let metrics = settings.metrics.map(|metrics| ("metrics", metrics));
    let taken = |(key, address): (&str, SocketAddr)| {
        let error = TcpListener::bind(address).err()?;
        Some(Found::Fails(format!(
            "[controller] {key}: {address}: {error}: stop what listens there (`ss -tlnp`), or choose another"
        )))
    };
    listen.into_iter().chain(metrics).filter_map(taken).collect()
}

fn answers(serve: &Serve) -> anyhow::Result<String> {
    tls::server(serve)?;
    serve.token_file.as_deref().map(|path| secret("[controller] token_file", path)).transpose()?;
    Ok(format!("certificates and token for {} can be read", serve.listen))
}

/// What does not come from Kafka.
fn intake(server: &Server, database: &str) -> Result<Vec<Found>, ServerError> {
    let mut all = Vec::new();
    for found in idle(server, database)? {
        // Another server may read all there is, and what went wrong may be over.
        let error = if found.error.is_empty() { String::new() } else { format!(" ({})", found.error) };
        all.push(Found::Note(format!(
            "{database}.{} reads no partition of its topic by this server{error}: are the brokers that `weirgate store init --kafka` was told \
             there, the topic, and the schema's file (docs/clickhouse.md)?",
            found.table
        )));
    }
    for found in unread(server, database, UNREAD_WITHIN)? {
        all.push(Found::Fails(format!(
            "topic `{}`: {} messages of the last hour could not be read, and lie in {database}.sockets_kafka_errors: {}: does \
             `weirgate store init --form` say what [export.kafka] form does, and is its schema this version's? Once that is so, TRUNCATE \
             TABLE {database}.sockets_kafka_errors",
            found.topic, found.messages, found.error
        )));
    }
    Ok(all)
}

/// Whether there is anything to decide from: the last round of each point of presence.
fn data(rounds: &Rounds, config: &Config, settings: &Controller) -> Vec<Found> {
    if let Err(error) = rounds.check() {
        return vec![Found::Fails(error.to_string())];
    }
    if let (Some(_), Some((server, database))) = (settings.lease, rounds.server())
        && let Err(error) = memories(server, database)
    {
        return vec![Found::Fails(error.to_string())];
    }
    let mut all = Vec::new();
    if let Some((server, database)) = rounds.server() {
        match intake(server, database) {
            Ok(found) => all.extend(found),
            Err(error) => return vec![Found::Fails(error.to_string())],
        }
    }
    let tune = &config.tune.controller;
    let round = tune.round.as_nanos();
    let settled = clock::unix().as_nanos().saturating_sub(settings.settle.as_nanos());
    let end = UnixTime::from_nanos(settled / round * round);
    for pop in &settings.pops {
        match rounds.read(pop, end, tune) {
            Ok((_, read)) if read.rows == 0 => {
                all.push(Found::Note(format!(
                    "{pop}: no data of the last round: do edges of this [host] pop send what `source` reads?"
                )));
            }
            Ok((_, read)) => {
                all.push(Found::Works(format!(
                    "{pop}: {} hosts, {} rows in the last round",
                    read.hosts.len(),
                    read.rows
                )));
            }
            Err(error) => {
                all.push(Found::Fails(format!("{pop}: {error:#}")));
                break;
            }
        }
    }
    all
}
