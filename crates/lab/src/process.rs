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

/// Of a process's first thread since it began: processor time, and time in which it waited for a processor.
pub(crate) fn scheduled(pid: u32) -> Result<(Duration, Duration)> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    let mut fields = text.split_whitespace().map(|field| field.parse().map(Duration::from_nanos));
    let mut next = || fields.next().context("a short schedstat");
    Ok((next()??, next()??))
}
