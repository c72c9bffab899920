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
type Calls = BTreeMap<String, f64>;

/// A kind of call that a library's server makes more often than zlib's.
pub(super) struct More {
    name: String,
    /// So many for a request.
    count: f64,
    /// zlib's server makes none.
    is_new: bool,
}

/// Of a kind that zlib's server has, events of its own that come together, or not, make no difference below this; of any other kind there
/// may be those of once a second.
const OWN_MIN: f64 = 0.1;
const NEW_MIN: f64 = 0.05;

/// Those of each library's server for `bodies`, after each was asked for once; and by library those that it makes more than zlib.
pub(super) fn run(
    dir: &Path,
    servers: &[Server],
    libraries: &[Library],
    bodies: &[&Body],
) -> Result<(Table, Vec<Vec<More>>)> {
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
        let more = calls.into_iter().map(|(name, count)| {
            let of_stock = stock.get(&name);
            More { count: count - of_stock.unwrap_or(&0.0), is_new: of_stock.is_none(), name }
        });
        let more: Vec<More> = more.filter(|more| more.count > if more.is_new { NEW_MIN } else { OWN_MIN }).collect();
        let said: Vec<String> = more.iter().map(|more| format!("{} {}", more.name, number(more.count))).collect();
        let said = if said.is_empty() { "none".to_owned() } else { said.join(", ") };
        table.rows.push(vec![library.name.to_owned(), number(all), said]);
        all_more.push(more);
    }
    Ok((table, all_more))
}

/// Of those that a library's server makes more than zlib's, the kinds that are somebody's doing: any that zlib's makes none of, and of the
/// server's own, whose events come together or not, those in one of two requests.
pub(super) fn often(more: &[More]) -> impl Iterator<Item = &str> {
    more.iter().filter(|more| more.is_new || more.count > 0.5).map(|more| more.name.as_str())
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
