//! Processes that an experiment starts.

use std::fs;
use std::net::TcpListener;
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result};

/// A process that is killed with this value.
#[derive(Debug)]
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _it_may_have_ended = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port of loopback that nobody has.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Of a process's threads that are there: processor time, and time in which they waited for a processor.
pub(crate) fn scheduled(pid: u32) -> Result<(Duration, Duration)> {
    let mut all = (Duration::ZERO, Duration::ZERO);
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // It may have ended meanwhile.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let mut fields = text.split_whitespace().map(|field| field.parse().map(Duration::from_nanos));
        let mut next = || fields.next().context("a short schedstat");
        (all.0, all.1) = (all.0 + next()??, all.1 + next()??);
    }
    Ok(all)
}

/// A field of /proc/PID/status, in MB of 1,000,000 bytes.
pub(crate) fn memory_mb(pid: u32, field: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kb.with_context(|| format!("its status has no {field}"))? * 1024.0 / 1e6)
}
