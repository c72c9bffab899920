//! Where an experiment runs, and how much that place disturbs it.

use std::fs;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::commit::commit;

/// The machine under an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The sources that the program was built from, where that is known.
    pub commit: Option<String>,
    /// `uname -r`.
    pub kernel: String,
    /// The processor's name.
    pub cpu: String,
    /// Processors that may be used.
    pub cores: usize,
    /// The spread of a fixed piece of work: (slowest - fastest) / fastest of nine runs of 20 ms, in percent.
    pub noise_pct: f64,
    /// Share of processor time that others took from this machine while the noise was measured, in percent.
    pub steal_pct: f64,
}

impl Machine {
    /// Looks around for about a quarter of a second.
    pub(crate) fn look() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo")
            .lines()
            .find_map(|l| l.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name.to_owned()))
            .unwrap_or_else(|| "unknown".into());
        let before = CpuTimes::now();
        let noise_pct = noise_pct();
        Self {
            commit: commit(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            noise_pct,
            steal_pct: CpuTimes::now().since(&before).steal_pct(),
        }
    }

    /// In one line, with how noisy it was where that matters.
    pub(crate) fn line(&self, is_timed: bool) -> String {
        let Self { commit, kernel, cpu, cores, noise_pct, steal_pct } = self;
        let commit = commit.as_ref().map_or(String::new(), |commit| format!("; commit {commit}"));
        let noise = if is_timed { format!("; noise {noise_pct:.1} %, steal {steal_pct:.1} %") } else { String::new() };
        format!("Linux {kernel}, {cores} cores of {cpu}{noise}{commit}")
    }
}

fn noise_pct() -> f64 {
    let piece = || {
        let start = Instant::now();
        let mut x = 1u64;
        for _ in 0..8_000_000 {
            x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        start.elapsed()
    };
    let times: Vec<Duration> = (0..9).map(|_| piece()).collect();
    let (fastest, slowest) = (times.iter().min(), times.iter().max());
    fastest.zip(slowest).map_or(0.0, |(f, s)| (s.as_secs_f64() / f.as_secs_f64() - 1.0) * 100.0)
}

/// Processor time of the whole machine, in ticks of 1/100 s, from `/proc/stat` and `/proc/uptime`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuTimes {
    total: u64,
    idle: u64,
    steal: u64,
}

impl CpuTimes {
    /// Since boot.
    pub(crate) fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        // cpu user nice system idle iowait irq softirq steal ...: proc_stat(5).
        let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|t| t.parse().ok()).collect();
        let at = |i: usize| ticks.get(i).copied().unwrap_or(0);
        // Idle time is measured. Busy time is sampled at each tick, which misses whoever sleeps from one tick to the next.
        let cores = text.lines().skip(1).take_while(|line| line.starts_with("cpu")).count() as u64;
        let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let uptime: f64 = uptime.split_whitespace().next().and_then(|up| up.parse().ok()).unwrap_or(0.0);
        Self { total: (uptime * 100.0).round() as u64 * cores, idle: at(3) + at(4), steal: at(7) }
    }

    /// What passed since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            total: self.total.saturating_sub(earlier.total),
            idle: self.idle.saturating_sub(earlier.idle),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }

    /// What was not idle and not taken by others, of all processors together. In steps of 10 ms.
    pub(crate) fn busy(&self) -> weirgate_units::Duration {
        weirgate_units::Duration::from_millis(self.total.saturating_sub(self.idle + self.steal) * 10)
    }

    /// Share of all processors that was idle, in percent: the headroom.
    pub(crate) fn idle_pct(&self) -> f64 {
        100.0 * self.idle as f64 / self.total.max(1) as f64
    }

    /// Share of all processors that others took, in percent.
    pub(crate) fn steal_pct(&self) -> f64 {
        100.0 * self.steal as f64 / self.total.max(1) as f64
    }
}
