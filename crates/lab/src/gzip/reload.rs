//! The configuration read again and again, under load: workers begin and end with the library in them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::Result;

use super::server::{Library, Server};
use super::{Body, fetch};
use crate::report::{Table, number};

const CLIENTS: usize = 4;

/// What came of it.
pub(super) struct Reloads {
    times: usize,
    seconds: f64,
    requests: u64,
    pub(super) failed: u64,
    library: &'static str,
}

/// Has `server` read its configuration so many times, while clients ask for `bodies`, each request by a connection of its own.
pub(super) fn run(server: &Server, library: &Library, bodies: &[&Body], times: usize) -> Result<Reloads> {
    let (ended, requests, failed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    let client = |first: usize| {
        for body in bodies.iter().cycle().skip(first) {
            if ended.load(Ordering::Relaxed) {
                return;
            }
            let answer = fetch::get(server.port, &body.name);
            let plain = answer.ok().and_then(|answer| weirgate_deflate::gunzip(&answer.body, body.bytes.len()));
            requests.fetch_add(1, Ordering::Relaxed);
            failed.fetch_add(u64::from(plain.as_deref() != Some(&body.bytes[..])), Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        for first in 0..CLIENTS {
            scope.spawn(move || client(first));
        }
        let done = (0..times).try_for_each(|_| server.reload());
        ended.store(true, Ordering::Relaxed);
        done
    })?;
    let seconds = began.elapsed().as_secs_f64();
    Ok(Reloads { times, seconds, requests: requests.into_inner(), failed: failed.into_inner(), library: library.name })
}

impl Reloads {
    /// In a table.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new(
            "The configuration read again, under load",
            &["library", "times", "in, s", "requests meanwhile", "failed"],
        );
        let Self { times, seconds, requests, failed, library } = self;
        let counts = [times.to_string(), number(*seconds), requests.to_string(), failed.to_string()];
        table.rows.push([vec![(*library).to_owned()], counts.to_vec()].concat());
        table
    }
}
