//! A decision round over a million client networks: history and the round itself in the current engine, the real controller with its memory
//! of the rounds before.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weirgate_linux::clock;
use weirgate_tune::sketch::LN_FACTOR;

use super::ground::{Engine, Ground};
use crate::process::memory_mb;
use crate::stats::median;

/// A round's length. What a round costs does not depend on it; so long a one does not end while its history is decided.
const ROUND_S: u64 = 1_800;
/// Untreated votes of a network in a round.
pub(super) const VOTES: u32 = 12;

/// How much of it.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) pops: u32,
    pub(super) networks: u32,
    /// Rounds before the one that is measured.
    pub(super) history: u32,
}

/// What was found.
pub(super) struct Found {
    /// Seconds of each measured round, and their median.
    pub(super) rounds_s: Vec<f64>,
    pub(super) round_s: f64,
    pub(super) controller_mb: f64,
    pub(super) controller_cpu_s: f64,
    pub(super) engine_mb: f64,
    pub(super) engine_before_mb: f64,
    pub(super) rows: u64,
    pub(super) votes: u64,
    pub(super) stored_bytes: u64,
    pub(super) stored_rows: u64,
    pub(super) selected: u64,
    pub(super) fill_s: f64,
    pub(super) history_s: f64,
    pub(super) state_bytes: u64,
    pub(super) snapshot_bytes: u64,
}

/// Fills the engine and has the controller decide: the history once, and then the last round three times from the same memory.
pub(super) fn run(ground: &Ground, size: Size, say: &dyn Fn(String)) -> Result<Found> {
    let engine = Engine::start(ground, "round")?;
    ground.weirgate(&["store", "init", "--url", &engine.url])?;
    let now = clock::unix().as_secs();
    let last = now / ROUND_S * ROUND_S;
    // So that the measured round has just ended by the controller's reckoning, and the next one does not while it is decided.
    let settle = (now - last).saturating_sub(60);
    let start = std::time::Instant::now();
    for round in 0..=size.history {
        let end = last - u64::from(size.history - round) * ROUND_S;
        let pop = format!("concat('pop-', leftPad(toString(intDiv(n, {})), 3, '0'))", size.networks);
        engine.ask(&fill(&pop, size, round, (end, ROUND_S)))?;
    }
    let fill_s = start.elapsed().as_secs_f64();
    say(format!("filled in {fill_s:.0} s; deciding {} rounds of history", size.history));
    let controller = Controller::new(ground, "decider", &engine.url, &names(size.pops))?;
    let history_s = controller.run(settle + ROUND_S)?.took.as_secs_f64();
    let pristine = ground.path("decider-before");
    fs::rename(controller.state(), &pristine).context("the controller has no memory")?;
    let _ = fs::remove_dir_all(controller.published());

    let engine_before_mb = memory_mb(engine.pid(), "VmRSS")?;
    // The high-water mark begins anew: proc(5), clear_refs.
    fs::write(format!("/proc/{}/clear_refs", engine.pid()), "5")?;
    let mut runs = Vec::new();
    for n in 1..=3 {
        let _ = fs::remove_dir_all(controller.state());
        let copied = Command::new("cp").arg("-a").arg(&pristine).arg(controller.state()).status()?;
        ensure!(copied.success(), "the controller's memory cannot be copied");
        let run = controller.run(settle)?;
        let published = fs::read_dir(controller.published())?.count();
        ensure!(published == size.pops as usize, "{published} of {} points of presence published", size.pops);
        ensure!(run.decided == size.pops as usize, "{} rounds decided, not one of each", run.decided);
        say(format!("round {n} of 3: {:.1} s", run.wall_s));
        runs.push(run);
    }
    let engine_mb = memory_mb(engine.pid(), "VmHWM")?;
    let number = |sql: &str| super::ground::count(&engine.url, sql);
    let first = runs.first().context("a round ran")?;
    Ok(Found {
        rounds_s: runs.iter().map(|run| run.wall_s).collect(),
        round_s: median(runs.iter().map(|run| run.wall_s)),
        controller_mb: runs.iter().map(|run| run.peak_mb).fold(0.0, f64::max),
        controller_cpu_s: median(runs.iter().map(|run| run.cpu_s)),
        engine_mb,
        engine_before_mb,
        rows: first.sum("rows="),
        votes: first.sum("votes="),
        stored_bytes: number("SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND table = 'tallies'")?,
        stored_rows: number("SELECT count() FROM weirgate.tallies")?,
        selected: first.sum("selected="),
        fill_s,
        history_s,
        state_bytes: bytes_below(&controller.state().join("controller"))?,
        snapshot_bytes: bytes_below(&controller.published())?,
    })
}

/// The names of so many points of presence.
pub(super) fn names(pops: u32) -> Vec<String> {
    (0..pops).map(|n| format!("pop-{n:03}")).collect()
}

/// The tallies of one round. One network in ten is slow; from round 26 on, by when the controller will have selected it, its
/// connections come in two arms, as an edge reports them. `pop` is the name of network `n`'s point of presence, in SQL. Votes scatter as goodputs do, over some twenty bins of 2 %.
pub(super) fn fill(pop: &str, size: Size, round: u32, (end, length_s): (u64, u64)) -> String {
    let Size { pops, networks, .. } = size;
    let rows = u64::from(pops) * u64::from(networks);
    let arms = if round >= 26 { "if(slow, ['treated', 'holdout'], [''])" } else { "['']" };
    format!(
        "INSERT INTO weirgate.tallies WITH number AS n, sipHash64(n) AS h, sipHash64(n, {round}, arm) AS g, n % 10 = 0 AS slow, \
         toUInt16(if(slow, if(arm = 'treated', 730, 700), 780) + h % 40 + g % 20) AS base, \
         arrayCumSum(arrayMap(i -> toUInt16(1 + bitAnd(bitShiftRight(g, i * 3), 7)), range({VOTES}))) AS steps, \
         {VOTES} * 1000000 + g % 5000000 AS bytes \
         SELECT toDateTime({end}, 'UTC'), fromUnixTimestamp64Nano(toInt64({end} - 30) * 1000000000, 'UTC'), 'edge-1', \
         {pop}, 'b1', \
         concat('10.', toString(intDiv(n % {networks}, 256)), '.', toString(n % {networks} % 256), '.0/24'), arm, \
         if(arm = 'treated', 'bbr', 'cubic'), {VOTES}, bytes, bitOr(h, g), 0, 0, 0, {VOTES}, \
         arraySum(arrayMap(s -> (base + s - 1) * {LN_FACTOR}, steps)), bytes + bytes % 9973, bytes % 9973, {VOTES}, \
         {VOTES} * (20000 + h % 80000), arrayMap(s -> toUInt16(base + s), steps), arrayMap(s -> toUInt32(1), steps), \
         {length_s}, 'goodput' FROM numbers({rows}) ARRAY JOIN {arms} AS arm"
    )
}

/// The real controller, one run at a time.
pub(super) struct Controller {
    dir: PathBuf,
    weirgate: PathBuf,
    head: String,
    pub(super) public_key: String,
}

/// A run of it.
pub(super) struct Run {
    /// From the first query to the last snapshot, by its own log.
    pub(super) wall_s: f64,
    pub(super) took: Duration,
    pub(super) peak_mb: f64,
    pub(super) cpu_s: f64,
    pub(super) decided: usize,
    pub(super) log: String,
}

impl Controller {
    pub(super) fn new(ground: &Ground, name: &str, clickhouse: &str, pops: &[String]) -> Result<Self> {
        let dir = ground.path(name);
        fs::create_dir_all(&dir)?;
        let key = dir.join("key").display().to_string();
        let public_key = ground.weirgate(&["controller", "key", "--key", &key])?.0.trim().to_owned();
        let pops: Vec<String> = pops.iter().map(|pop| format!("\"{pop}\"")).collect();
        let shown = dir.display();
        let head = format!(
            "[host]\nstate = \"{shown}/state\"\n[tune]\nround = \"{ROUND_S} s\"\n[controller]\nclickhouse = \"{clickhouse}\"\n\
             pops = [{}]\nkey = \"{key}\"\npublish = \"{shown}/published\"\n",
            pops.join(", ")
        );
        Ok(Self { dir, weirgate: ground.weirgate.clone(), head, public_key })
    }

    /// The same with another round and other settings.
    pub(super) fn with(mut self, round: &str, settings: &str) -> Self {
        self.head = self.head.replace(&format!("round = \"{ROUND_S} s\""), round) + settings;
        self
    }

    /// Asks another server from now on.
    pub(super) fn ask(&mut self, clickhouse: &str) {
        let lines = self.head.lines().map(|line| match line.starts_with("clickhouse = ") {
            true => format!("clickhouse = \"{clickhouse}\"\n"),
            false => format!("{line}\n"),
        });
        self.head = lines.collect();
    }

    pub(super) fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    pub(super) fn published(&self) -> PathBuf {
        self.dir.join("published")
    }

    /// The file of the secret key.
    pub(super) fn key(&self) -> PathBuf {
        self.dir.join("key")
    }

    /// Starts one that decides the rounds that ended so many seconds ago, and goes on, or ends.
    pub(super) fn start(&self, settle_s: u64, goes_on: bool) -> Result<(std::process::Child, PathBuf)> {
        let (config, log) = (self.dir.join("controller.toml"), self.dir.join("log"));
        fs::write(&config, format!("{}settle = \"{settle_s} s\"\n", self.head))?;
        let mut command = Command::new(&self.weirgate);
        command.args(["controller", "run", "-c"]).arg(&config).args((!goes_on).then_some("--once"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log)?);
        Ok((command.spawn()?, log))
    }

    /// Runs one to its end.
    pub(super) fn run(&self, settle_s: u64) -> Result<Run> {
        let start = std::time::Instant::now();
        let (mut child, log) = self.start(settle_s, false)?;
        let (mut peak_mb, mut cpu_s) = (0.0, 0.0);
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            // What is read of it is its high-water mark: of its end no more than a moment is missed.
            peak_mb = memory_mb(child.id(), "VmHWM").unwrap_or(peak_mb);
            cpu_s = crate::process::scheduled(child.id()).map_or(cpu_s, |(cpu, _)| cpu.as_secs_f64());
            std::thread::sleep(Duration::from_millis(5));
        };
        let log = fs::read_to_string(log)?;
        let ended: String = log.lines().rev().take(3).collect::<Vec<_>>().join("\n");
        ensure!(status.success(), "the controller ended with {status}: {ended}");
        let of = |what: &str| log.lines().filter(|line| line.contains(what)).count();
        let first = log.lines().find(|line| line.contains("edges have to trust")).and_then(seconds);
        let last = log.lines().rev().find(|line| line.contains(" published ")).and_then(seconds);
        // Where nothing was to be decided nothing took time.
        let wall_s = first.zip(last).map_or(0.0, |(first, last)| (last - first).rem_euclid(86_400.0));
        Ok(Run { wall_s, took: start.elapsed(), peak_mb, cpu_s, decided: of(" decided "), log })
    }
}

impl Run {
    /// The sum of a number over all rounds that were decided.
    fn sum(&self, key: &str) -> u64 {
        let words = self.log.lines().filter(|line| line.contains(" decided ")).flat_map(str::split_whitespace);
        words.filter_map(|word| word.strip_prefix(key)?.parse::<u64>().ok()).sum()
    }
}

/// The second of the day that a line of the log begins with, as 2026-11-25T17:49:22.132231Z.
fn seconds(line: &str) -> Option<f64> {
    let (_, time) = line.split_whitespace().next()?.trim_end_matches('Z').split_once('T')?;
    time.split(':').map(|part| part.parse::<f64>().ok()).try_fold(0.0, |sum, part| Some(sum * 60.0 + part?))
}

fn bytes_below(dir: &Path) -> Result<u64> {
    let sizes = fs::read_dir(dir)?.map(|entry| Ok(entry?.metadata()?.len()));
    sizes.sum()
}
