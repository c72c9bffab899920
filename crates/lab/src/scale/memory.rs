//! The daemon's memory while it works and its page is looked at.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::daemon::Daemon;
use crate::report::{Table, number};

/// What was seen.
pub(super) struct Memory {
    /// The largest RssAnon + RssShmem, in MB of 1,000,000 bytes.
    pub(super) peak_mb: f64,
    /// Every second's.
    samples_mb: Vec<f64>,
    /// Who looked at the page.
    pub(super) viewer: &'static str,
}

/// Samples the daemon once a second for `seconds`, its page open in a browser, or fetched as the page does where there is none.
pub(super) fn watch(daemon: &Daemon, dir: &Path, seconds: u64) -> Result<Memory> {
    let mut browser = Browser::open(&format!("http://{}/", daemon.address()?), &dir.join("browser"));
    let mut samples_mb = Vec::new();
    let start = Instant::now();
    for second in 0..seconds {
        if browser.is_none() {
            for path in ["/", "/api/v1/status", "/api/v1/networks", "/api/v1/history"] {
                daemon.fetch(path)?;
            }
        }
        samples_mb.push(resident_mb(daemon.pid())?);
        std::thread::sleep(Duration::from_secs(second + 1).saturating_sub(start.elapsed()));
    }
    let viewer = if browser.is_some() { "its page open in Chromium" } else { "its page's requests made once a second" };
    drop(browser.take());
    Ok(Memory { peak_mb: samples_mb.iter().copied().fold(0.0, f64::max), samples_mb, viewer })
}

/// RssAnon + RssShmem of a process: memory that is its own, not the binary's pages, which the kernel can drop.
fn resident_mb(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the daemon is gone")?;
    let kb = |name: &str| -> f64 {
        let line = status.lines().find_map(|l| l.strip_prefix(name));
        line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
    };
    Ok((kb("RssAnon:") + kb("RssShmem:")) * 1024.0 / 1e6)
}

impl Memory {
    pub(super) fn table(&self) -> Table {
        let mut out = Table::new("The daemon's memory, MB", &["", "MB"]);
        let first = self.samples_mb.first().copied().unwrap_or(f64::NAN);
        let last = self.samples_mb.last().copied().unwrap_or(f64::NAN);
        for (name, value) in [("first second", first), ("largest", self.peak_mb), ("last second", last)] {
            out.rows.push(vec![name.into(), number(value)]);
        }
        out
    }
}

/// A headless Chromium with one page open.
struct Browser(Child);

impl Browser {
    fn open(url: &str, profile: &Path) -> Option<Self> {
        let _ = fs::remove_dir_all(profile);
        let mut command = Command::new("chromium");
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.args(["--remote-debugging-port=0", &format!("--user-data-dir={}", profile.display()), url]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok().map(Self)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
