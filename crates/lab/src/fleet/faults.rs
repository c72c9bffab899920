//! The matrix of faults: what is killed, away, offline or forged, between real connections and an edge's policy; and what came of it.
//!
//! Records are counted at both ends by boot, namespace and cookie. What the broker has acknowledged is what its log holds, which a group
//! of its own reads when all is over; a connection that a living edge saw close is looked for as well.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weirgate_linux::clock;
use weirgate_tune::snapshot::{Held, SIGNATURE, Snapshot};
use weirgate_units::UnixTime;

use super::delay::Delay;
use super::ground::{Engine, Ground, ask, count, until};
use super::round::{self, Controller};
use super::traffic::Closes;
use crate::daemon::Daemon;
use crate::net::Namespace;
use crate::report::{Table, number};
use crate::stats::median;

const TOPIC: &str = "weirgate.sockets";
/// As [`Daemon::start`] names it.
const POP: &str = "lab";
/// A controller's round.
const ROUND_S: u64 = 10;
/// The fault whose end is noted apart.
const CLICKHOUSE_AWAY: &str = "both ClickHouses away";
/// Identifies a record.
const ID: &str = "boot_id, netns, cookie, sequence";

/// How much of it.
pub(super) struct Size {
    /// Short connections a second.
    pub(super) per_s: u64,
    /// How long ClickHouse is away.
    pub(super) away_s: u64,
    /// How long anything else lasts, and what lies between.
    pub(super) spread_s: u64,
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
    engine: Option<Engine>,
    /// The other ClickHouse's address, which is the same after it was killed.
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
    let feeder = feed(ground.path("engine-url"), fleet.debian.clone(), Arc::clone(&feeds));
    let delay = fleet.delay()?;
    say(format!("socket to decision: {:.1} s", delay.sum()));
    fleet.broker_is_killed()?;
    fleet.edge_is_killed()?;
    fleet.both_are_killed()?;
    say("faults: ClickHouse is away".into());
    fleet.clickhouse_is_away()?;
    let is_short = size.away_s < 30;
    if !is_short {
        fleet.clickhouse_has_caught_up()?;
    }
    say("faults: policies".into());
    fleet.controller_is_killed()?;
    fleet.policies_are_forged()?;
    fleet.policy_expires()?;
    if is_short {
        fleet.clickhouse_has_caught_up()?;
    }
    // Two controllers at once, and a distribution by HTTPS that fails, have their rows here.
    say("faults: counting".into());
    let counted = fleet.count();
    feeds.store(false, Ordering::Relaxed);
    let _ = feeder.join();
    Ok((counted?, delay))
}

impl<'a> Fleet<'a> {
    fn start(ground: &'a Ground, size: &'a Size) -> Result<Self> {
        let brokers = ground.start("kafka", "KAFKA")?;
        ground.topic(&brokers, TOPIC, 4)?;
        let engine = Engine::start(ground, "engine", true)?;
        fs::write(ground.path("engine-url"), &engine.url)?;
        ground.weirgate(&["store", "init", "--url", &engine.url, "--kafka", &brokers, "--topic", TOPIC])?;
        for statement in second_group(&brokers) {
            engine.ask(&statement)?;
        }
        let debian = ground.start("clickhouse", "CLICKHOUSE")?;
        ground.weirgate(&["store", "init", "--url", &debian])?;
        let ns = Namespace::create("faults")?;
        let decider = Controller::new(ground, "faults-controller", &engine.url, &[POP.to_owned()])?.with(
            &format!("round = \"{ROUND_S} s\"\nwindow_rounds = 16\nknown_enter_min = 4\nknown_leave_min = 2"),
            "canary_share = \"100 %\"\n",
        );
        let by_records = Controller::new(ground, "delay-controller", &engine.url, &[POP.to_owned()])?
            .with(&format!("round = \"{ROUND_S} s\"\nvote_bytes_min = \"1 B\""), "source = \"records\"\n");
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

    fn engine(&self) -> Result<&Engine> {
        self.engine.as_ref().context("the engine runs")
    }

    /// A number of the edge's metrics; `None` where there is no such line.
    fn metric(&self, name: &str) -> Result<Option<f64>> {
        let metrics = self.edge()?.fetch("/metrics")?;
        let line =
            metrics.lines().find_map(|line| line.strip_prefix("weirgate_")?.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.and_then(|value| value.trim().parse().ok()))
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

    /// The parts of the way while nothing is wrong.
    fn delay(&self) -> Result<Delay> {
        // The first insert of an engine takes longer than the others.
        let engine = self.engine()?;
        until("the first records are there", || Ok(count(&engine.url, "SELECT count() FROM weirgate.queue")? > 0))?;
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

        // From records, of the connections themselves.
        let by_records = &self.by_records;
        let run = by_records.run(0)?;
        ensure!(run.log.contains("connections="), "the controller decided nothing: {}", run.log);
        let start = Instant::now();
        self.deliver(&fs::read(by_records.published().join("lab.snapshot"))?)?;
        until("the edge obeys the snapshot", || Ok(self.metric("fleet_policy_version")?.is_some()))?;
        let edge = start.elapsed().as_secs_f64();
        Ok(Delay { record: record.max(0.0), kafka, clickhouse, round: run.took.as_secs_f64(), edge, connections })
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

    fn broker_is_killed(&mut self) -> Result<()> {
        let from = clock::unix();
        self.ground.services("kill", "kafka")?;
        let noticed = until("the edge notices that the broker is away", || Ok(self.problems()? > 0)).is_ok();
        self.pause();
        self.ground.start("kafka", "KAFKA")?;
        self.is_as_before()?;
        self.note("broker killed and restarted", from, "weirgate_problems, weirgate_export_waiting_records", noticed);
        Ok(())
    }

    fn edge_is_killed(&mut self) -> Result<()> {
        let from = clock::unix();
        let started = self.metric("start_time_seconds")?;
        self.kill_edge()?;
        std::thread::sleep(Duration::from_secs(2));
        // Before it was killed it had the last seconds' records in memory.
        self.start_edge(from, 6)?;
        let noticed = self.metric("start_time_seconds")? > started;
        self.pause();
        self.is_as_before()?;
        self.note("edge killed and restarted", from, "weirgate_start_time_seconds", noticed);
        Ok(())
    }

    fn both_are_killed(&mut self) -> Result<()> {
        let from = clock::unix();
        self.ground.services("kill", "kafka")?;
        self.pause();
        until("the spool has something", || {
            Ok(self.metric(&format!("export_spool_files{{topic=\"{TOPIC}\"}}"))?.unwrap_or(0.0) > 0.0)
        })?;
        let killed = clock::unix();
        self.kill_edge()?;
        self.start_edge(killed, 6)?;
        let noticed = self.export("found")? > 0;
        self.ground.start("kafka", "KAFKA")?;
        self.is_as_before()?;
        self.note(
            "edge killed while the broker is away",
            from,
            "weirgate_export_records_total{state=\"found\"}",
            noticed,
        );
        Ok(())
    }

    fn clickhouse_is_away(&mut self) -> Result<()> {
        // What an edge obeys goes on while nobody decides, until it expires.
        self.rounds()?;
        self.decide()?;
        let from = clock::unix();
        let expiry = self.metric("fleet_policy_expiry_timestamp_seconds")?;
        drop(self.engine.take());
        self.ground.services("kill", "clickhouse")?;
        std::thread::sleep(Duration::from_secs(self.size.away_s));
        let refused = self.decider.run(0).err().map(|error| format!("{error:#}")).unwrap_or_default();
        let unchanged = expiry.is_some() && self.metric("fleet_policy_expiry_timestamp_seconds")? == expiry;
        let engine = Engine::start(self.ground, "engine", true)?;
        fs::write(self.ground.path("engine-url"), &engine.url)?;
        self.engine = Some(engine);
        self.ground.start("clickhouse", "CLICKHOUSE")?;
        let noticed = unchanged && refused.contains("no ClickHouse answers");
        self.note(CLICKHOUSE_AWAY, from, "weirgate_fleet_policy_expiry_timestamp_seconds stands still", noticed);
        let url = self.engine()?.url.clone();
        self.decider.ask(&url);
        Ok(())
    }

    /// Waits until both ClickHouses have what they missed. Kafka hands a killed reader's partitions on after 45 s, its session's timeout.
    fn clickhouse_has_caught_up(&mut self) -> Result<()> {
        let last = self.closes.made().last().context("connections were made")?.1;
        let sql = format!("SELECT count() FROM weirgate.sockets WHERE cookie = {last}");
        let url = self.engine()?.url.clone();
        until("the engine has caught up", || Ok(count(&url, &sql)? > 0))?;
        until("Debian's has caught up", || Ok(count(&self.debian, &sql)? > 0))?;
        if let Some(row) = self.rows.iter_mut().find(|row| row.fault == CLICKHOUSE_AWAY) {
            row.to = clock::unix();
        }
        Ok(())
    }

    /// Puts some rounds of 200 networks into the engine, the last of which has just ended.
    fn rounds(&self) -> Result<()> {
        let now = clock::unix().as_secs() / ROUND_S * ROUND_S;
        let size = round::Size { pops: 1, networks: 200, history: 12 };
        for n in 0..=size.history {
            let end = now - u64::from(size.history - n) * ROUND_S;
            self.engine()?.ask(&round::fill(&format!("'{POP}'"), size, n, end))?;
        }
        Ok(())
    }

    /// Has the controller decide and the edge obey; the snapshot.
    fn decide(&mut self) -> Result<(Snapshot, Vec<u8>)> {
        self.decider.run(0)?;
        let bytes = fs::read(self.decider.published().join("lab.snapshot"))?;
        let snapshot = Held::default().check(&bytes, POP, clock::unix(), |_, _| true)?;
        self.obeys(&snapshot, &bytes)?;
        Ok((snapshot, bytes))
    }

    /// Delivers a snapshot and waits until the edge obeys it.
    fn obeys(&self, snapshot: &Snapshot, bytes: &[u8]) -> Result<()> {
        self.deliver(bytes)?;
        until("the edge obeys a good snapshot", || {
            Ok(self.metric("fleet_policy_version")? == Some(snapshot.version as f64))
        })
        .map(drop)
    }

    /// As whatever distributes files does it.
    fn deliver(&self, bytes: &[u8]) -> Result<()> {
        let beside = self.policy.with_extension("coming");
        fs::write(&beside, bytes)?;
        Ok(fs::rename(beside, &self.policy)?)
    }

    fn controller_is_killed(&mut self) -> Result<()> {
        self.rounds()?;
        let (snapshot, bytes) = self.decide()?;
        let selected = snapshot.policy.networks.len() + snapshot.first.1.len();
        ensure!(selected > 5, "few networks are selected: {selected}");
        let from = clock::unix();
        // The next round's end.
        std::thread::sleep(Duration::from_secs(ROUND_S - clock::unix().as_secs() % ROUND_S + 1));
        self.rounds()?;
        // Who opens a pipe that nobody reads waits: the round is decided and validated, and not published.
        let pipe = self.decider.published().join("lab.new");
        ensure!(Command::new("mkfifo").arg(&pipe).status()?.success(), "mkfifo failed");
        let (mut child, log) = self.decider.start(0)?;
        until("the controller has decided", || Ok(fs::read_to_string(&log)?.contains(" decided ")))?;
        std::thread::sleep(Duration::from_millis(500));
        let had_ended = child.try_wait()?.is_some();
        child.kill()?;
        child.wait()?;
        fs::remove_file(&pipe)?;
        let decided = |log: &str| -> Vec<String> {
            let lines = log.lines().filter(|line| line.contains(" decided "));
            lines.filter_map(|line| Some(line.split_once(" decided ")?.1.to_owned())).collect()
        };
        let killed = decided(&fs::read_to_string(&log)?);
        let is_old = fs::read(self.decider.published().join("lab.snapshot"))? == bytes;
        let version = self.metric("fleet_policy_version")?;
        let again = decided(&self.decider.run(0)?.log);
        let same = !had_ended && !killed.is_empty() && killed.iter().all(|line| again.contains(line));
        let new = fs::read(self.decider.published().join("lab.snapshot"))?;
        let next = Held::default().check(&new, POP, clock::unix(), |_, _| true)?;
        self.obeys(&next, &new)?;
        let noticed = version == Some(snapshot.version as f64);
        self.note(
            "controller killed between validation and publication",
            from,
            "weirgate_fleet_policy_version",
            noticed,
        );
        self.policy("the last one, then the same decisions", is_old && same);
        Ok(())
    }

    fn policy(&mut self, what: &'static str, is_right: bool) {
        if let Some(row) = self.rows.last_mut() {
            row.policy = Some((what, is_right));
        }
    }

    fn policies_are_forged(&mut self) -> Result<()> {
        self.rounds()?;
        let (good, sealed) = self.decide()?;
        let now = clock::unix();
        let one = |version: u64| Snapshot { version: good.version + version, ..good.clone() };
        let newer = one(1);
        self.obeys(&newer, &self.sign(&newer, &self.decider.key())?)?;
        let stranger = self.ground.path("stranger.key");
        self.ground.weirgate(&["controller", "key", "--key", &stranger.display().to_string()])?;
        let mut corrupted = self.sign(&one(2), &self.decider.key())?;
        let at = corrupted.len() - 9;
        corrupted[at] ^= 0x10;
        let made = now + weirgate_units::Duration::from_secs(900);
        let future = Snapshot { made, until: made + weirgate_units::Duration::from_secs(900), ..one(4) };
        let forged = [
            ("snapshot corrupted", "not signed", corrupted),
            ("snapshot replayed", "is older than", sealed),
            ("snapshot signed by another key", "not signed", self.sign(&one(3), &stranger)?),
            ("snapshot from the future (a clock 15 min ahead)", "from now", self.sign(&future, &self.decider.key())?),
        ];
        let networks = self.metric("policy_networks")?;
        for (fault, says, bytes) in forged {
            let from = clock::unix();
            self.deliver(&bytes)?;
            let said =
                until("the edge says what is wrong", || Ok(self.edge()?.fetch("/api/v1/status")?.contains(says)));
            let noticed = said.is_ok() && self.problems()? > 0;
            let obeyed = self.metric("fleet_policy_version")? == Some(newer.version as f64)
                && self.metric("policy_networks")? == networks;
            self.note(fault, from, "weirgate_problems, weirgate_fleet_policy_version", noticed);
            self.policy("the last good one", obeyed);
        }
        let last = one(5);
        self.obeys(&last, &self.sign(&last, &self.decider.key())?)?;
        until("nothing is wrong any more", || Ok(self.problems()? == 0))?;
        Ok(())
    }

    fn policy_expires(&mut self) -> Result<()> {
        let from = clock::unix();
        let bytes = fs::read(&self.policy)?;
        let good = Held::default().check(&bytes, POP, from, |_, _| true)?;
        let life = weirgate_units::Duration::from_secs(10);
        let brief = Snapshot { version: good.version + 1, made: from, until: from + life, ..good };
        self.obeys(&brief, &self.sign(&brief, &self.decider.key())?)?;
        let networks = self.metric("policy_networks")?;
        let expired = until("the policy expires", || Ok(self.metric("fleet_policy_version")?.is_none()));
        let late = clock::unix().saturating_since(brief.until);
        let noticed = expired.is_ok() && self.problems()? > 0;
        let is_none = self.metric("policy_networks")? == Some(0.0)
            && networks > Some(5.0)
            && late < weirgate_units::Duration::from_secs(3);
        self.note(
            "edge offline past its policy's time",
            from,
            "weirgate_fleet_policy_version is gone, weirgate_problems",
            noticed,
        );
        self.policy("none, within 3 s", is_none);
        Ok(())
    }

    /// The snapshot as the key in a file of 64 hexadecimal digits signs it.
    fn sign(&self, snapshot: &Snapshot, key: &std::path::Path) -> Result<Vec<u8>> {
        let seed = fs::read_to_string(key)?;
        let seed = seed.trim();
        let byte = |at: usize| seed.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
        let seed = (0..64).step_by(2).map(byte).collect::<Option<Vec<u8>>>().context("a key of 64 digits")?;
        // RFC 8410: a private key of Ed25519.
        let head = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
        let (der, message) = (self.ground.path("signing.der"), self.ground.path("signing.bytes"));
        fs::write(&der, [&head[..], &seed].concat())?;
        fs::write(&message, snapshot.to_bytes())?;
        let mut openssl = Command::new("openssl");
        openssl.args(["pkeyutl", "-sign", "-rawin", "-keyform", "DER", "-inkey"]).arg(&der).arg("-in").arg(&message);
        let signed = openssl.output().context("cannot run openssl")?;
        let signature: [u8; SIGNATURE] = signed.stdout.try_into().ok().context("openssl made no signature")?;
        Ok(snapshot.seal(|_| signature))
    }

    /// Ends the load, lets everything arrive, and holds both ends against each other.
    fn count(mut self) -> Result<Faults> {
        self.pause();
        self.closes.pause(true);
        until("all records are acknowledged", || Ok(self.waiting()? == 0))?;
        self.acknowledged += self.export("acknowledged")?;
        let lost_by_edge = self.metric("export_lost_records_total")?.unwrap_or(0.0) as u64;
        if let Some(mut edge) = self.edge.take() {
            edge.stop()?;
        }
        let engine = self.engine()?;
        for statement in witness(&self.brokers) {
            engine.ask(&statement)?;
        }
        let all = || count(&engine.url, "SELECT count() FROM weirgate.witness");
        until("Kafka's log is read", || {
            let before = all()?;
            std::thread::sleep(Duration::from_secs(8));
            Ok(before > 0 && before == all()?)
        })?;
        let ids = |url: &str, table: &str| -> Result<HashSet<String>> {
            Ok(ask(url, &format!("SELECT DISTINCT {ID} FROM weirgate.{table}"))?.lines().map(str::to_owned).collect())
        };
        let in_log = ids(&engine.url, "witness")?;
        let missing = |url: &str| -> Result<u64> {
            let mut missing = u64::MAX;
            // What is late is not lost.
            let _ = until("ClickHouse has all of it", || {
                missing = in_log.difference(&ids(url, "sockets")?).count() as u64;
                Ok(missing == 0)
            });
            Ok(missing)
        };
        let not_in_engine = missing(&engine.url)?;
        let not_in_debian = missing(&self.debian)?;
        let not_in_log = self.acknowledged.saturating_sub(all()?);
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let closed = engine.ask(&format!(
            "SELECT DISTINCT cookie FROM weirgate.sockets WHERE boot_id = '{}' AND netns = {} AND kind = 'close'",
            boot.trim(),
            self.ns.netns().inode()
        ))?;
        let closed: HashSet<u64> = closed.lines().filter_map(|line| line.parse().ok()).collect();
        let made = self.closes.made();
        let is_down = |at: UnixTime| self.down.iter().any(|(from, to)| at >= *from && at <= *to);
        let unseen = |(at, cookie): &&(UnixTime, u64)| !closed.contains(cookie) && !is_down(*at);
        let unrecorded = made.iter().filter(unseen).count() as u64;
        let mut table = Table::new(
            "Faults",
            &[
                "fault",
                "s",
                "connections meanwhile",
                "in ClickHouse",
                "edge was down",
                "unaccounted",
                "shown by",
                "policy obeyed",
            ],
        );
        for row in &self.rows {
            let within: Vec<_> = made.iter().filter(|(at, _)| *at >= row.from && *at < row.to).collect();
            let found = within.iter().filter(|(_, cookie)| closed.contains(cookie)).count();
            let lost = within.iter().copied().filter(unseen).count();
            let policy = row
                .policy
                .map_or("-".into(), |(what, right)| if right { what.to_owned() } else { format!("NOT {what}") });
            table.rows.push(vec![
                row.fault.into(),
                number(row.to.saturating_since(row.from).as_secs_f64()),
                within.len().to_string(),
                found.to_string(),
                (within.len() - found - lost).to_string(),
                lost.to_string(),
                if row.noticed { row.metric.into() } else { "NOTHING".into() },
                policy,
            ]);
        }
        table.rows.push(
            [
                "all, and what lay between".to_owned(),
                "-".into(),
                made.len().to_string(),
                made.iter().filter(|(_, cookie)| closed.contains(cookie)).count().to_string(),
                made.iter().filter(|(at, cookie)| !closed.contains(cookie) && is_down(*at)).count().to_string(),
                unrecorded.to_string(),
                format!(
                    "{} records acknowledged, {} in Kafka's log, {not_in_log} missing there, {not_in_engine} in the engine, {not_in_debian} in 18.16",
                    self.acknowledged,
                    in_log.len()
                ),
                "-".into(),
            ]
            .to_vec(),
        );
        Ok(Faults {
            table,
            acknowledged_lost: not_in_log + not_in_engine + not_in_debian + unrecorded + lost_by_edge,
            unnoticed: self.rows.iter().filter(|row| !row.noticed).count() as u64,
            misapplied: self.rows.iter().filter(|row| row.policy.is_some_and(|(_, right)| !right)).count() as u64,
        })
    }
}

/// A second group in the engine, whose rows are kept in the order in which they came: what Debian's ClickHouse is fed with.
fn second_group(brokers: &str) -> [String; 3] {
    [
        kafka_table("queue_kafka", brokers, "queue"),
        "CREATE TABLE weirgate.queue (arrived DateTime64(6) DEFAULT now64(6), time UInt64, sent_ms Int64, host String, pop String, \
         boot_id String, kind String, sequence UInt32, cookie UInt64, netns UInt32, local_address String, remote_address String, \
         network String, bytes_acked Nullable(UInt64)) ENGINE = MergeTree ORDER BY arrived"
            .to_owned(),
        "CREATE MATERIALIZED VIEW weirgate.queue_mv TO weirgate.queue AS SELECT k.time AS time, \
         toInt64(toUnixTimestamp64Milli(assumeNotNull(_timestamp_ms))) AS sent_ms, host, pop, boot_id, kind, sequence, cookie, netns, \
         toString(CAST(k.local_address, 'IPv6')) AS local_address, toString(CAST(k.remote_address, 'IPv6')) AS remote_address, \
         concat(toString(CAST(k.remote_address, 'IPv6')), '/', toString(network_len)) AS network, bytes_acked \
         FROM weirgate.queue_kafka AS k WHERE length(_error) = 0"
            .to_owned(),
    ]
}

/// A third group, which reads all that Kafka's log holds.
fn witness(brokers: &str) -> [String; 3] {
    [
        kafka_table("witness_kafka", brokers, "witness"),
        format!(
            "CREATE TABLE weirgate.witness ENGINE = MergeTree ORDER BY ({ID}) AS SELECT {ID} FROM weirgate.sockets LIMIT 0"
        ),
        format!(
            "CREATE MATERIALIZED VIEW weirgate.witness_mv TO weirgate.witness AS SELECT {ID} FROM weirgate.witness_kafka \
             WHERE length(_error) = 0"
        ),
    ]
}

fn kafka_table(name: &str, brokers: &str, group: &str) -> String {
    format!(
        "CREATE TABLE weirgate.{name} AS weirgate.sockets_kafka ENGINE = Kafka SETTINGS kafka_broker_list = '{brokers}', \
         kafka_topic_list = '{TOPIC}', kafka_group_name = '{group}', kafka_format = 'Protobuf', \
         kafka_schema = 'weirgate/v1/sockets.proto:Socket', kafka_handle_error_mode = 'stream'"
    )
}

/// Hands rows on to Debian's ClickHouse every second, by HTTP: those that came since ten seconds before the last that it took. What it has
/// twice it drops.
fn feed(engine: PathBuf, debian: String, goes_on: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut taken = 0.0f64;
        while goes_on.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_secs(1));
            let Ok(url) = fs::read_to_string(&engine) else { continue };
            let newest = ask(&url, "SELECT toFloat64(max(arrived)) FROM weirgate.queue");
            let Some(newest) = newest.ok().and_then(|text| text.trim().parse::<f64>().ok()) else { continue };
            let rows = ask(
                &url,
                &format!(
                    "SELECT intDiv(time, 1000000000) AS time, * EXCEPT (arrived, time, sent_ms) FROM weirgate.queue \
                     WHERE arrived > toDateTime64({:.6}, 6) FORMAT JSONEachRow SETTINGS output_format_json_quote_64bit_integers = 0",
                    (taken - 10.0).max(0.0)
                ),
            );
            let Ok(rows) = rows else { continue };
            if !rows.is_empty()
                && ask(&debian, &format!("INSERT INTO weirgate.sockets FORMAT JSONEachRow\n{rows}")).is_ok()
            {
                taken = newest;
            }
        }
    })
}
