//! How long it takes from a socket to a decision that an edge obeys, in parts.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use weirgate_linux::clock;
use weirgate_tune::snapshot::Held;
use weirgate_units::UnixTime;

use super::{Fleet, POP, ROUND_S};
use crate::fleet::ground::{count, until};
use crate::fleet::numbers;
use crate::report::Table;
use crate::stats::median;

/// How often an edge looks at a file.
const LOOK_MS: u32 = 5_000;

/// Seconds of each part, without waiting for a round to end.
pub(in crate::fleet) struct Delay {
    /// From the end of a connection to its record.
    pub(super) record: f64,
    /// From the record to the producer: the exporter's interval and the spool.
    pub(super) kafka: f64,
    /// From the producer to a row in ClickHouse: linger, broker, and the pace at which the engine reads and writes.
    pub(super) clickhouse: f64,
    /// From the start of the controller to its snapshot.
    pub(super) round: f64,
    /// From the snapshot's file to the edge that obeys it.
    pub(super) edge: f64,
    /// Connections of which the first three are medians, and rounds and policies of which the others are.
    pub(super) of: (usize, u32),
}

impl Delay {
    pub(in crate::fleet) fn sum(&self) -> f64 {
        self.record + self.kafka + self.clickhouse + self.round + self.edge
    }

    pub(in crate::fleet) fn table(&self) -> Table {
        let caption = format!(
            "From a connection's end to a decision that its edge obeys, s: medians of {} connections, and of {} rounds and policies; not \
             among them is the wait for the round's end and for what comes late (settle)",
            self.of.0, self.of.1
        );
        numbers(
            &caption,
            ["part", "s"],
            &[
                ("end of the connection to its record", self.record),
                ("record to Kafka's producer (interval 3.5 s)", self.kafka),
                ("producer to a row in ClickHouse", self.clickhouse),
                ("controller: start to signed snapshot", self.round),
                ("snapshot to the edge that obeys it (looked at every 5 s)", self.edge),
                ("sum", self.sum()),
            ],
        )
    }
}

impl Fleet<'_> {
    /// The parts of the way while nothing is wrong.
    pub(super) fn delay(&self) -> Result<Delay> {
        // The first insert of an engine takes longer than the others.
        let engine = self.engine()?;
        until("the first records are there", || Ok(count(&engine.url, "SELECT count() FROM weirgate.queue")? > 0))?;
        // A controller's first start looks for rounds of hours ago.
        let by_records = &self.by_records;
        by_records.run(0)?;
        let start = clock::unix();
        std::thread::sleep(Duration::from_secs(self.size.spread_s.max(5)));
        let end = clock::unix();
        let made = self.closes.made();
        let made: Vec<_> = made.into_iter().filter(|(at, _)| *at >= start && *at < end).collect();
        let last = made.last().context("connections were made")?.1;
        let arrived = format!("SELECT count() FROM weirgate.queue WHERE cookie = {last}");
        until("the last of them is there", || Ok(count(&engine.url, &arrived)? > 0))?;
        let times = engine.ask(&format!(
            "SELECT cookie, min(time) / 1e9, min(sent_ms) / 1e3, toFloat64(min(arrived)) FROM weirgate.queue \
             WHERE kind = 'close' AND netns = {} GROUP BY cookie",
            self.ns.netns().inode()
        ))?;
        let known: std::collections::HashMap<u64, UnixTime> = made.iter().map(|(at, cookie)| (*cookie, *at)).collect();
        let mut parts: [Vec<f64>; 3] = Default::default();
        for line in times.lines() {
            let mut cells = line.split('\t');
            let mut cell = || cells.next().and_then(|cell| cell.parse::<f64>().ok()).context("a short row");
            let (cookie, record, sent, arrived) = (cell()?, cell()?, cell()?, cell()?);
            let Some(at) = known.get(&(cookie as u64)) else { continue };
            let at = at.as_nanos() as f64 / 1e9;
            for (part, value) in parts.iter_mut().zip([record - at, sent - record, arrived - sent]) {
                part.push(value);
            }
        }
        ensure!(parts[0].len() * 2 > made.len(), "of {} connections {} are in ClickHouse", made.len(), parts[0].len());
        let connections = parts[0].len();
        let [record, kafka, clickhouse] = parts.map(median);

        // From records, of the connections themselves. One round at a time is left to decide.
        by_records.run(0)?;
        let (mut rounds, mut edges) = (Vec::new(), Vec::new());
        let all = self.size.delays;
        for n in 0..all {
            std::thread::sleep(Duration::from_secs(ROUND_S - clock::unix().as_secs() % ROUND_S));
            let run = by_records.run(0)?;
            ensure!(run.log.contains("connections="), "the controller decided nothing: {}", run.log);
            rounds.push(run.took.as_secs_f64());
            let bytes = fs::read(by_records.published().join("lab.snapshot"))?;
            let version = Held::default().check(&bytes, POP, clock::unix(), |_, _| true)?.version;
            // Looks and rounds go in step: what is waited for a look is to be another time each time.
            std::thread::sleep(Duration::from_millis(u64::from(LOOK_MS * n / all)));
            let start = Instant::now();
            self.deliver(&bytes)?;
            until("the edge obeys the snapshot", || Ok(self.metric("fleet_policy_version")? == Some(version as f64)))?;
            edges.push(start.elapsed().as_secs_f64());
        }
        let [round, edge] = [rounds, edges].map(median);
        Ok(Delay { record: record.max(0.0), kafka, clickhouse, round, edge, of: (connections, all) })
    }
}
