//! What comes after the broker: how fast the engine takes records in and what it keeps of them, and tallies on the same way.

use std::time::Instant;

use anyhow::Result;
use weirgate_linux::clock;
use weirgate_tune::replay::Telemetry as _;
use weirgate_tune::synthetic::{Scenario, Synthetic};
use weirgate_tune::{Config, Policy, Tallies};

use super::exporter::{self, NETWORKS, PARTITIONS, SOCKETS};
use super::ground::{Current, Ground, count, until};

const TALLIES: &str = "weirgate.cost.tallies";

/// What was found.
pub(super) struct Intake {
    /// By the one table that reads them.
    pub(super) records_per_s: f64,
    pub(super) stored_bytes_per_record: f64,
    /// Of a tally in the broker's log, keys included.
    pub(super) wire_bytes_per_tally: f64,
    pub(super) stored_bytes_per_tally: f64,
    pub(super) tallies: u64,
    /// Votes in a tally, on average.
    pub(super) votes: f64,
}

/// Takes in the `records` that are in the exporter's topic, and a minute's tallies of an edge.
pub(super) fn intake(ground: &Ground, records: u64, seed: u64) -> Result<Intake> {
    let brokers = exporter::address(ground, "KAFKA")?;
    ground.topic(&brokers, TALLIES, PARTITIONS)?;
    let (tallies, votes) = tallies(ground, seed)?;
    let wire = ground.log_bytes(TALLIES)?;

    let engine = Current::start(ground, "intake")?;
    let url = &engine.url;
    let topics = ["--kafka", &brokers, "--topic", exporter::TOPIC, "--tallies", TALLIES];
    ground.weirgate(&[&["store", "init", "--url", url], &topics[..]].concat())?;
    let rows = |table: &str| count(url, &format!("SELECT count() FROM weirgate.{table}"));
    // A server writes what it has read in large blocks: few records may be there all at once.
    let start = Instant::now();
    until("all records are taken in", || Ok(rows("sockets")? >= records))?;
    let took = start.elapsed();
    until("all tallies are taken in", || Ok(rows("tallies")? >= tallies))?;
    // Of one look at all connections: the next ones differ less from it than in reality.
    engine.ask("CREATE TABLE weirgate.one_look AS weirgate.sockets")?;
    engine.ask("INSERT INTO weirgate.one_look SELECT * FROM weirgate.sockets ORDER BY sequence LIMIT 1 BY boot_id, netns, cookie")?;
    let stored = |table: &str| -> Result<f64> {
        engine.ask(&format!("OPTIMIZE TABLE weirgate.{table} FINAL"))?;
        let of = |what: &str| {
            count(
                url,
                &format!(
                    "SELECT sum({what}) FROM system.parts WHERE active AND database = 'weirgate' AND table = '{table}'"
                ),
            )
        };
        Ok(of("bytes_on_disk")? as f64 / of("rows")? as f64)
    };
    Ok(Intake {
        records_per_s: records as f64 / took.as_secs_f64(),
        stored_bytes_per_record: stored("one_look")?,
        wire_bytes_per_tally: wire as f64 / tallies as f64,
        stored_bytes_per_tally: stored("tallies")?,
        tallies,
        votes,
    })
}

/// Exports what an edge would of all its sockets in a minute; how many tallies that were, and their mean votes.
fn tallies(ground: &Ground, seed: u64) -> Result<(u64, f64)> {
    let config = Config::default();
    let connections = SOCKETS / NETWORKS;
    let scenario =
        Scenario { connections, round: config.round, start: clock::unix(), ..Scenario::mixed(NETWORKS, 1, seed) };
    let end = scenario.start + scenario.round;
    let mut tallies = Tallies::new(config);
    Synthetic::new(scenario).next_round(&Policy::default(), &mut |progress| tallies.handle_progress(progress));
    let all = tallies.take();
    let votes: u64 = all.iter().map(|tally| u64::from(tally.did.arm.votes)).sum();
    exporter::send_tallies(&exporter::origin(), exporter::options(ground, TALLIES)?, &all, end)?;
    Ok((all.len() as u64, votes as f64 / all.len() as f64))
}
