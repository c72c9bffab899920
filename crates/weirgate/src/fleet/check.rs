//! What `weirgate doctor` asks: whether a fleet's two ends have what they need, and are heard.

use weirgate_linux::clock;
use weirgate_store::clickhouse::standby::memories;
use weirgate_tune::snapshot::{Held, SIGNATURE};
use weirgate_units::UnixTime;

use super::controller::edges_have;
use super::fetch::{News, ask_each};
use super::keys::{Signer, is_signed};
use super::memory::Memory;
use super::rounds::Rounds;
use super::{secret, tls};
use crate::config::controller::{Controller, Serve};
use crate::config::fleet::{Fleet, Origin};
use crate::config::{Config, Host};

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

/// At an edge.
pub(crate) fn edge(fleet: &Fleet, host: &Host) -> Vec<Found> {
    match &fleet.origin {
        Origin::Topic(_) => vec![],
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

/// Whether an edge that has obeyed nothing yet would obey what came from `place`.
fn judged(fleet: &Fleet, host: &Host, place: &str, bytes: &[u8]) -> Found {
    let trust = |signed: &[u8], signature: &[u8; SIGNATURE]| is_signed(&fleet.trust, signed, signature);
    match Held::default().check(bytes, &host.pop, clock::unix(), trust) {
        Ok(snapshot) => Found::Works(format!(
            "{place}: policy {}, {} networks, {} bytes",
            snapshot.version,
            snapshot.policy.networks.len(),
            bytes.len()
        )),
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
    for pop in &settings.pops {
        if let Err(error) = Memory::load(&config.host.state.join("controller"), pop) {
            all.push(Found::Fails(format!("{error:#}")));
        }
    }
    match Rounds::open(&settings.database, settings.lease) {
        Ok(rounds) => all.extend(data(&rounds, config, settings)),
        Err(error) => all.push(Found::Fails(format!("{error:#}"))),
    }
    all
}

fn answers(serve: &Serve) -> anyhow::Result<String> {
    tls::server(serve)?;
    serve.token_file.as_deref().map(|path| secret("[controller] token_file", path)).transpose()?;
    Ok(format!("certificates and token for {} can be read", serve.listen))
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
    let tune = &config.tune.controller;
    let round = tune.round.as_nanos();
    let settled = clock::unix().as_nanos().saturating_sub(settings.settle.as_nanos());
    let end = UnixTime::from_nanos(settled / round * round);
    let mut all = Vec::new();
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
