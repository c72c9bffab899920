//! What a worker asks the kernel for while it answers: a library in zlib's place is to ask for nothing more.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::server::{Library, Server};
use super::{Body, fetch, pause};
use crate::report::{Table, number};

/// How often each body is asked for while it is looked at.
const TIMES: usize = 5;

/// System calls for a request, by their names.
pub(super) type Calls = BTreeMap<String, f64>;

/// Those of each library's server for `bodies`, after each was asked for once; and by library those that it makes more than zlib.
pub(super) fn run(
    dir: &Path,
    servers: &[Server],
    libraries: &[Library],
    bodies: &[&Body],
) -> Result<(Table, Vec<Calls>)> {
    let mut table = Table::new(
        "System calls of the server for a request by a new connection",
        &["library", "all", "more than with zlib"],
    );
    let (mut stock, mut all_more) = (Calls::new(), Vec::new());
    for (server, library) in servers.iter().zip(libraries) {
        for body in bodies {
            fetch::get(server.port, &body.name)?;
        }
        let calls = trace(dir, server, bodies)?;
        if library.is_stock() {
            stock = calls.clone();
        }
        let all: f64 = calls.values().sum();
        // Events come together now and then: a call in ten requests is no difference.
        let more = calls.into_iter().map(|(name, count)| {
            let more = count - stock.get(&name).copied().unwrap_or(0.0);
            (name, more)
        });
        let more: Calls = more.filter(|(_, more)| *more > 0.1).collect();
        let said: Vec<String> = more.iter().map(|(name, more)| format!("{name} {}", number(*more))).collect();
        let said = if said.is_empty() { "none".to_owned() } else { said.join(", ") };
        table.rows.push(vec![library.name.to_owned(), number(all), said]);
        all_more.push(more);
    }
    Ok((table, all_more))
}

/// Of those that a library's server makes more than zlib's, the kinds that are somebody's doing: those in one of two requests, where the
/// server's own events come together or not.
pub(super) fn often(more: &Calls) -> impl Iterator<Item = &str> {
    more.iter().filter(|(_, count)| **count > 0.5).map(|(name, _)| name.as_str())
}

fn trace(dir: &Path, server: &Server, bodies: &[&Body]) -> Result<Calls> {
    let file = dir.join("calls");
    let worker = server.worker();
    let mut strace = Command::new("strace")
        .args(["-qq", "-p", &worker.to_string(), "-o"])
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot run strace: run `make setup`")?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_traced(worker)? {
        ensure!(Instant::now() < deadline, "strace cannot look at nginx's worker");
        pause(10);
    }
    let asked =
        (0..TIMES).try_for_each(|_| bodies.iter().try_for_each(|body| fetch::get(server.port, &body.name).map(drop)));
    // What comes after the last byte.
    pause(100);
    kill_process(Pid::from_child(&strace), Signal::TERM)?;
    strace.wait()?;
    asked?;
    Ok(count(&fs::read_to_string(&file)?, TIMES * bodies.len()))
}

fn is_traced(pid: u32) -> Result<bool> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|by| by.trim() != "0")))
}

/// Calls by name, for one of so many requests.
fn count(trace: &str, requests: usize) -> Calls {
    let mut calls = Calls::new();
    let names = trace.lines().filter_map(|line| line.split_once('(').map(|(name, _)| name));
    for name in names.filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')) {
        *calls.entry(name.to_owned()).or_default() += 1.0 / requests as f64;
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_for_a_request() {
        let trace = "epoll_wait(7, [{x(y)}], 512, -1) = 1\nclose(9) = 0\nclose(5)   = 0\n--- SIGTERM {si=(1)} ---\n";
        let calls = count(trace, 2);
        assert_eq!(calls, Calls::from([("close".to_owned(), 1.0), ("epoll_wait".to_owned(), 0.5)]));
    }
}
