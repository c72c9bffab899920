//! Requests by h2load, from another core than the server's.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::server::Server;
use crate::stats::{quantile, sorted};

/// As many connections as clients of a small site have open at a time.
const CLIENTS: u32 = 16;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Connections.
    pub(super) clients: u32,
    /// By TLS.
    pub(super) secure: bool,
    /// With `Accept-Encoding: gzip`.
    pub(super) gzip: bool,
    /// Requests a second; `None`: as many as are answered.
    pub(super) rate: Option<f64>,
    pub(super) seconds: f64,
}

impl Default for Load {
    /// As many as are answered, compressed.
    fn default() -> Self {
        Self { clients: CLIENTS, secure: false, gzip: true, rate: None, seconds: 1.0 }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) seconds: f64,
    /// Of the server's worker.
    pub(super) cpu: Duration,
    /// For how long it could have run and had no processor.
    waited: Duration,
    pub(super) faults: u64,
    /// Milliseconds that a request took, in order.
    times: Vec<f64>,
}

impl Load {
    /// Asks `server` for `paths` in turn; writes below `dir`.
    pub(super) fn run(&self, server: &Server, paths: &[&str], dir: &Path) -> Result<Loaded> {
        let port = if self.secure { server.secure_port } else { server.port };
        let scheme = if self.secure { "https" } else { "http" };
        let list: String = paths.iter().map(|path| format!("{scheme}://127.0.0.1:{port}/{path}\n")).collect();
        let (uris, log) = (dir.join("uris"), dir.join("times"));
        fs::write(&uris, list)?;
        // It appends.
        let _ = fs::remove_file(&log);
        let mut command = Command::new("taskset");
        command.args(["-c", "1", "h2load", "--h1", "-t", "1", "-c", &self.clients.to_string()]);
        command.arg("-i").arg(&uris).arg(format!("--log-file={}", log.display()));
        if self.gzip {
            command.args(["-H", "accept-encoding: gzip"]);
        }
        match self.rate {
            // Of each client; the number of requests ends it, since one that is paced sends none after its time.
            Some(rate) => {
                let each = (rate / f64::from(self.clients)).max(1.0).round();
                let all = (each * f64::from(self.clients) * self.seconds).round().max(f64::from(self.clients));
                command.args(["-n", &all.to_string(), &format!("--rps={each}")]);
            }
            None => {
                command.args(["-D", &format!("{}", self.seconds.max(1.0).round()), "--warm-up-time=0"]);
            }
        }
        let (before, faults) = (server.cpu()?, server.faults()?);
        let output = command.output().context("cannot run h2load: run `make setup`")?;
        let (after, faults) = (server.cpu()?, server.faults()? - faults);
        let cpu = (after.0 - before.0, after.1 - before.1);
        let text = String::from_utf8_lossy(&output.stdout);
        let loaded = parse(&text, &fs::read_to_string(&log)?, cpu, faults);
        loaded.with_context(|| format!("h2load: {text}{}", String::from_utf8_lossy(&output.stderr)))
    }
}

impl Loaded {
    /// So many requests by so much time of the server.
    #[cfg(test)]
    pub(super) fn of(done: u64, cpu: Duration) -> Self {
        Self { done, failed: 0, seconds: 1.0, cpu, waited: Duration::ZERO, faults: 0, times: Vec::new() }
    }

    /// Processor time of the server.
    pub(super) fn us_per_request(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.done as f64
    }

    /// Of a core.
    pub(super) fn cpu_pct(&self) -> f64 {
        self.cpu.as_secs_f64() / self.seconds * 100.0
    }

    /// As the kernel's load, of the server alone: how many of its processes ran or could have, in the mean.
    pub(super) fn load(&self) -> f64 {
        (self.cpu + self.waited).as_secs_f64() / self.seconds
    }

    /// Requests a second.
    pub(super) fn rate(&self) -> f64 {
        self.done as f64 / self.seconds
    }

    /// How long that share of the requests took at most.
    pub(super) fn ms(&self, q: f64) -> f64 {
        quantile(&self.times, q)
    }
}

/// What h2load prints, and its log: start, status and duration of each request, times in microseconds.
fn parse(text: &str, log: &str, (cpu, waited): (Duration, Duration), faults: u64) -> Result<Loaded> {
    let line =
        |head: &str| text.lines().find_map(|line| line.strip_prefix(head)).with_context(|| format!("no `{head}`"));
    let counts = line("requests: ")?;
    let count = |what: &str| -> Result<u64> {
        let part =
            counts.split(", ").find_map(|part| part.strip_suffix(what)).with_context(|| format!("no `{what}`"))?;
        Ok(part.trim().parse()?)
    };
    let finished = line("finished in ")?.split(',').next().unwrap_or_default();
    let seconds = match finished.strip_suffix("ms") {
        Some(ms) => ms.parse::<f64>()? / 1e3,
        None => finished.strip_suffix('s').context("a time without a unit")?.parse()?,
    };
    let done = count(" succeeded")?;
    ensure!(done > 0, "no request was answered");
    let times = log.lines().filter_map(|line| line.split('\t').nth(2)?.parse::<f64>().ok());
    Ok(Loaded {
        done,
        failed: count(" failed")? + count(" errored")? + count(" timeout")?,
        seconds,
        cpu,
        waited,
        faults,
        times: sorted(times.map(|us| us / 1e3)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_h2load_says_is_read() {
        let text = "finished in 502.10ms, 470.33 req/s, 10.43MB/s
requests: 1411 total, 1427 started, 1411 done, 1410 succeeded, 1 failed, 0 errored, 0 timeout
";
        let log = "1795442018588023\t200\t8122\n1795442018588019\t200\t2000\n1795442018588019\t-1\tx\n";
        let loaded = parse(text, log, (Duration::from_millis(141), Duration::from_millis(110)), 5).unwrap();
        assert_eq!((loaded.done, loaded.failed, loaded.seconds, loaded.ms(0.0)), (1_410, 1, 0.5021, 2.0));
        assert_eq!((loaded.us_per_request(), loaded.cpu_pct().round()), (100.0, 28.0));
        assert!((loaded.load() - 0.5).abs() < 0.001, "{}", loaded.load());
        assert!(parse("requests: nothing", log, (Duration::ZERO, Duration::ZERO), 0).is_err());
    }
}
