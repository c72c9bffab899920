//! Clients that look at every answer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::Result;

use super::{Body, fetch};

const CLIENTS: usize = 4;

/// What they saw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) requests: u64,
    /// Of these, without an answer, or with one that is not the body.
    pub(super) failed: u64,
    pub(super) seconds: f64,
}

/// Has clients ask for `bodies` in turn, each request by a connection of its own, while `what` goes on.
pub(super) fn beside<T>(port: u16, bodies: &[&Body], what: impl FnOnce() -> Result<T>) -> Result<(T, Seen)> {
    let (ended, requests, failed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    let client = |first: usize| {
        for body in bodies.iter().cycle().skip(first) {
            if ended.load(Ordering::Relaxed) {
                return;
            }
            let answer = fetch::get(port, &body.name);
            let plain = answer.ok().and_then(|answer| weirgate_deflate::gunzip(&answer.body, body.bytes.len()));
            requests.fetch_add(1, Ordering::Relaxed);
            failed.fetch_add(u64::from(plain.as_deref() != Some(&body.bytes[..])), Ordering::Relaxed);
        }
    };
    let done = thread::scope(|scope| {
        for first in 0..CLIENTS {
            scope.spawn(move || client(first));
        }
        let done = what();
        ended.store(true, Ordering::Relaxed);
        done
    })?;
    let seconds = began.elapsed().as_secs_f64();
    Ok((done, Seen { requests: requests.into_inner(), failed: failed.into_inner(), seconds }))
}
