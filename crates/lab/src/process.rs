//! Processes that an experiment starts.

use std::fs;
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
