//! The matrix of faults: what is killed, away, offline or forged, between real connections and an edge's policy; and what came of it.
//!
//! Records are counted at both ends by boot, namespace and cookie. What the broker has acknowledged is what its log holds, which a group
//! of its own reads when all is over; a connection that a living edge saw close is looked for as well.

mod carriers;
mod clocks;
mod controllers;
mod count;
mod delay;
mod policies;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use weirgate_linux::clock;
use weirgate_units::UnixTime;

use self::count::{feed, second_group};
pub(super) use self::delay::Delay;
use super::controller::{Controller, number};
use super::ground::{Current, Ground, until};
use super::traffic::Closes;
use crate::daemon::Daemon;
use crate::net::Namespace;
use crate::report::Table;

const TOPIC: &str = "weirgate.sockets";
/// As [`Daemon::start`] names it.
const POP: &str = "lab";
/// A controller's round, and how many it remembers.
const ROUND_S: u64 = 10;
const WINDOW_ROUNDS: u32 = 16;
/// What a controller could not do.
const FAILURES: &str = "controller_failures_total{pop=\"lab\"}";
/// The fault whose end is noted apart.
const CLICKHOUSE_AWAY: &str = "both ClickHouses away";
/// Where ClickHouse is away for less than that, what takes long is left out.
const SHORT_S: u64 = 30;
/// Identifies a record, with its time: `sequence` begins anew with each daemon.
const ID: &str = "boot_id, netns, cookie, sequence";

/// How much of it.
pub(super) struct Size {
    /// Short connections a second.
    pub(super) per_s: u64,
    /// How long ClickHouse is away.
    pub(super) away_s: u64,
    /// How long anything else lasts, and what lies between.
    pub(super) spread_s: u64,
    /// Rounds and policies whose delay is measured.
    pub(super) delays: u32,
}

/// What came of all of them.
pub(super) struct Faults {
    pub(super) table: Table,
    /// Records that the broker has acknowledged and one of the two ClickHouses does not have.
    pub(super) acknowledged_lost: u64,
    /// Faults that no metric showed.
    pub(super) unnoticed: u64,
    /// Policies that an edge obeyed and should not have.
    pub(super) misapplied: u64,
}

/// One fault.
struct Row {
    fault: &'static str,
    /// When it began, and when all was as before.
    from: UnixTime,
    to: UnixTime,
    /// What shows it.
    metric: &'static str,
    noticed: bool,
    /// What the edge obeyed meanwhile; `None`: no matter of policies.
    policy: Option<(&'static str, bool)>,
}

/// Everything that runs.
struct Fleet<'a> {
    ground: &'a Ground,
    size: &'a Size,
    brokers: String,
    engine: Option<Current>,
    /// The other ClickHouse's address. Both have the same after they were killed.
    debian: String,
    edge: Option<Daemon>,
    sections: String,
    closes: Closes,
    ns: Namespace,
    policy: PathBuf,
    /// Decides from what SQL has put there, which is more than the edge's own connections.
    decider: Controller,
    /// Decides from the connections' records.
    by_records: Controller,
    /// What edges that were killed had heard acknowledged, at least.
    acknowledged: u64,
    /// When the edge did not live, with some seconds before.
    down: Vec<(UnixTime, UnixTime)>,
    rows: Vec<Row>,
}

/// Runs all of it.
pub(super) fn run(ground: &Ground, size: &Size, say: &dyn Fn(String)) -> Result<(Faults, Delay)> {
    say("faults: starting Kafka, two ClickHouses, an edge".into());
    let mut fleet = Fleet::start(ground, size)?;
    let feeds = Arc::new(AtomicBool::new(true));
    let feeder = feed(fleet.engine()?.url.clone(), fleet.debian.clone(), Arc::clone(&feeds));
    let delay = fleet.delay()?;
    say(format!("socket to decision: {:.1} s", delay.sum()));
    fleet.broker_is_killed()?;
    fleet.edge_is_killed()?;
    fleet.both_are_killed()?;
    say("faults: ClickHouse is away".into());
    fleet.clickhouse_is_away()?;
    let is_short = size.away_s < SHORT_S;
    if !is_short {
        fleet.clickhouse_has_caught_up()?;
    }
    say("faults: policies".into());
    fleet.controller_is_killed()?;
    fleet.controller_is_ahead()?;
    fleet.policies_are_forged()?;
    fleet.edge_is_ahead()?;
    fleet.policy_expires()?;
    if is_short {
        fleet.clickhouse_has_caught_up()?;
    }
    say("faults: two controllers".into());
    fleet.two_controllers()?;
    say("faults: counting".into());
    let counted = fleet.count();
    feeds.store(false, Ordering::Relaxed);
    let _ = feeder.join();
    Ok((counted?, delay))
}

/// How the matrix's controllers decide: after a few of its short rounds, of which they remember so many.
fn tune(window_rounds: u32) -> String {
    format!("round = \"{ROUND_S} s\"\nwindow_rounds = {window_rounds}\nknown_enter_min = 4\nknown_leave_min = 2")
}

impl<'a> Fleet<'a> {
    fn start(ground: &'a Ground, size: &'a Size) -> Result<Self> {
        let brokers = ground.start("kafka", "KAFKA")?;
        ground.topic(&brokers, TOPIC, 4)?;
        let engine = Current::start(ground, "engine")?;
        ground.weirgate(&["store", "init", "--url", &engine.url, "--kafka", &brokers, "--topic", TOPIC])?;
        for statement in second_group(&brokers) {
            engine.ask(&statement)?;
        }
        let debian = ground.start("clickhouse", "CLICKHOUSE")?;
        ground.weirgate(&["store", "init", "--url", &debian])?;
        let ns = Namespace::create("faults")?;
        let decider = Controller::new(ground, "faults-controller", &engine.url, &[POP.to_owned()])?
            .with(&tune(WINDOW_ROUNDS), "canary_share = \"100 %\"\n");
        let by_records = Controller::new(ground, "delay-controller", &engine.url, &[POP.to_owned()])?
            .with(&format!("{}\nvote_bytes_min = \"1 B\"", tune(WINDOW_ROUNDS)), "source = \"records\"\n");
        let policy = ground.path("policy/lab.snapshot");
        fs::create_dir_all(ground.path("policy"))?;
        let sections = format!(
            "[sockets]\ninterval = \"2 s\"\nnamespaces = [\"{}\"]\nclose = \"sockops\"\n[export.kafka]\nbrokers = [\"{brokers}\"]\n\
             topic = \"{TOPIC}\"\n[fleet]\npolicy = \"{}\"\ntrust = [\"{}\", \"{}\"]\n[tune]\nmode = \"apply\"\nserver_ports = [443]\n\
             pins = \"/sys/fs/bpf/weirgate-fleet-{}\"\n",
            ns.name(),
            policy.display(),
            decider.public_key,
            by_records.public_key,
            std::process::id(),
        );
        let edge = Daemon::start(&ground.weirgate, &ground.path("edge"), &sections)?;
        let closes = Closes::start(ns.netns(), size.per_s)?;
        let (engine, edge) = (Some(engine), Some(edge));
        let (acknowledged, down, rows) = (0, Vec::new(), Vec::new());
        Ok(Self {
            ground,
            size,
            brokers,
            engine,
            debian,
            edge,
            sections,
            closes,
            ns,
            policy,
            decider,
            by_records,
            acknowledged,
            down,
            rows,
        })
    }

    fn edge(&self) -> Result<&Daemon> {
        self.edge.as_ref().context("the edge runs")
    }

    fn engine(&self) -> Result<&Current> {
        self.engine.as_ref().context("the engine runs")
    }

    /// A number of the edge's metrics; `None` where there is no such line.
    fn metric(&self, name: &str) -> Result<Option<f64>> {
        Ok(number(&self.edge()?.fetch("/metrics")?, name))
    }

    fn export(&self, state: &str) -> Result<u64> {
        let of = self.metric(&format!("export_records_total{{topic=\"{TOPIC}\",state=\"{state}\"}}"))?;
        Ok(of.unwrap_or(0.0) as u64)
    }

    fn waiting(&self) -> Result<u64> {
        Ok(self.metric(&format!("export_waiting_records{{topic=\"{TOPIC}\"}}"))?.unwrap_or(0.0) as u64)
    }

    fn problems(&self) -> Result<u64> {
        Ok(self.metric("problems")?.unwrap_or(0.0) as u64)
    }

    fn pause(&self) {
        std::thread::sleep(Duration::from_secs(self.size.spread_s));
    }

    /// Waits until nothing is wrong and what waits is of the last seconds.
    fn is_as_before(&self) -> Result<()> {
        until("the edge's spool is empty again", || {
            Ok(self.problems()? == 0 && self.waiting()? <= self.size.per_s * 2 * 6)
        })
        .map(drop)
    }

    fn note(&mut self, fault: &'static str, from: UnixTime, metric: &'static str, noticed: bool) {
        self.rows.push(Row { fault, from, to: clock::unix(), metric, noticed, policy: None });
    }

    /// What the edge obeyed in the fault noted last.
    fn policy(&mut self, what: &'static str, is_right: bool) {
        if let Some(row) = self.rows.last_mut() {
            row.policy = Some((what, is_right));
        }
    }

    fn start_edge(&mut self, from: UnixTime, before_s: u64) -> Result<()> {
        self.edge = Some(Daemon::start(&self.ground.weirgate, &self.ground.path("edge"), &self.sections)?);
        let from = UnixTime::from_nanos(from.as_nanos() - before_s * 1_000_000_000);
        // A daemon takes its first look after its start, and knows of connections from then on.
        self.down.push((from, clock::unix() + weirgate_units::Duration::from_secs(3)));
        Ok(())
    }

    fn kill_edge(&mut self) -> Result<()> {
        self.acknowledged += self.export("acknowledged")?;
        self.edge.take().context("the edge runs")?.kill()
    }
}
