//! The real controller, run to its end or left to go on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Pid;

use super::ground::Ground;
use crate::daemon;
use crate::process::{Killed, free_port, memory_mb, scheduled};

/// A controller's round, where nobody says otherwise. What a round costs does not depend on it; so long a one does not end while its
/// history is decided.
pub(super) const ROUND_S: u64 = 1_800;

/// A controller that writes files, and how it is run.
pub(super) struct Controller {
    dir: PathBuf,
    program: PathBuf,
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
        Ok(Self { dir, program: ground.weirgate.clone(), head, public_key })
    }

    /// The same with another round and other settings.
    pub(super) fn with(mut self, round: &str, settings: &str) -> Self {
        self.head = self.head.replace(&format!("round = \"{ROUND_S} s\""), round) + settings;
        self
    }

    /// The same, run by `program` in place of `weirgate`.
    pub(super) fn by(self, program: PathBuf) -> Self {
        Self { program, ..self }
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

    /// The command of one that decides the rounds that ended so many seconds ago.
    fn command(&self, settle_s: u64, more: &str) -> Result<Command> {
        let config = self.dir.join("controller.toml");
        fs::write(&config, format!("{}settle = \"{settle_s} s\"\n{more}", self.head))?;
        Ok(command(&self.program, &config))
    }

    /// Starts one that decides rounds as they end, and goes on.
    pub(super) fn start(&self) -> Result<Running> {
        let metrics = free_port()?;
        let command = self.command(0, &format!("metrics = \"127.0.0.1:{metrics}\"\n"))?;
        Running::start(command, self.dir.join("log"), metrics)
    }

    /// Runs one to its end.
    pub(super) fn run(&self, settle_s: u64) -> Result<Run> {
        let (start, log) = (Instant::now(), self.dir.join("log"));
        let mut child = self.command(settle_s, "")?.arg("--once").stderr(fs::File::create(&log)?).spawn()?;
        let (mut peak_mb, mut cpu_s) = (0.0, 0.0);
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            // What is read of it is its high-water mark: of its end no more than a moment is missed.
            peak_mb = memory_mb(child.id(), "VmHWM").unwrap_or(peak_mb);
            cpu_s = scheduled(child.id()).map_or(cpu_s, |(cpu, _)| cpu.as_secs_f64());
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
    pub(super) fn sum(&self, key: &str) -> u64 {
        let words = self.log.lines().filter(|line| line.contains(" decided ")).flat_map(str::split_whitespace);
        words.filter_map(|word| word.strip_prefix(key)?.parse::<u64>().ok()).sum()
    }
}

/// A controller that goes on until it is dropped, which kills it.
pub(super) struct Running {
    process: Killed,
    log: PathBuf,
    metrics: u16,
}

impl Running {
    /// Runs `command`, whose metrics are on that port.
    pub(super) fn start(mut command: Command, log: PathBuf, metrics: u16) -> Result<Self> {
        let child = command.stderr(fs::File::create(&log)?).spawn()?;
        Ok(Self { process: Killed(child), log, metrics })
    }

    pub(super) fn id(&self) -> Pid {
        Pid::from_child(&self.process.0)
    }

    /// What it has said.
    pub(super) fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }

    /// A series of its metrics; an error where nobody answers.
    pub(super) fn number(&self, series: &str) -> Result<f64> {
        let metrics = daemon::get(([127, 0, 0, 1], self.metrics).into(), "/metrics")?;
        number(&metrics, series).with_context(|| format!("there is no {series}"))
    }

    /// Kills it; whether its metrics' end is seen.
    pub(super) fn kill(self) -> bool {
        let metrics = self.metrics;
        drop(self.process);
        daemon::get(([127, 0, 0, 1], metrics).into(), "/metrics").is_err()
    }
}

/// `weirgate controller run` with the configuration in a file.
pub(super) fn command(program: &Path, config: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["controller", "run", "-c"]).arg(config).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// The value of a series of ours.
pub(super) fn number(metrics: &str, series: &str) -> Option<f64> {
    let value =
        |line: &str| line.strip_prefix("weirgate_")?.strip_prefix(series)?.strip_prefix(' ')?.trim().parse().ok();
    metrics.lines().find_map(value)
}

/// The second of the day that a line of the log begins with, as 2026-11-25T17:49:22.132231Z.
fn seconds(line: &str) -> Option<f64> {
    let (_, time) = line.split_whitespace().next()?.trim_end_matches('Z').split_once('T')?;
    time.split(':').map(|part| part.parse::<f64>().ok()).try_fold(0.0, |sum, part| Some(sum * 60.0 + part?))
}
