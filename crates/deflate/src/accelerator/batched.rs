//! A device of an engine that compresses many bodies at once: a GPU.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Step;
use super::memory::Memory;
use super::server::{Job, Server};
use crate::engine::bound;
use crate::nvcomp::{Batch, Body};

/// The device: [`step`](Self::step) is to be called again and again.
#[derive(Debug)]
pub struct Batched<B> {
    server: Server,
    engine: B,
    slots: Vec<Slot>,
    /// When the batch began that it is at, in nanoseconds of the monotonic clock; 0: it is at none.
    pub(super) began: Arc<AtomicU64>,
}

/// Speaks for a device that is at a batch, which can take longer than what is said [lasts](super::ALIVE): for another thread.
#[derive(Debug)]
pub struct Pulse {
    memory: Memory,
    began: Arc<AtomicU64>,
}

/// A batch that takes longer than this, in nanoseconds, does not end: nobody speaks for its device any more.
const STUCK: u64 = 5_000_000_000;

/// Room for one of a batch's bodies.
#[derive(Debug, Default)]
struct Slot {
    body: Vec<u8>,
    out: Vec<MaybeUninit<u8>>,
}

impl<B: Batch> Batched<B> {
    /// A device that takes up to `batch` bodies at a time.
    pub fn new(server: Server, engine: B, batch: usize) -> Self {
        Self { server, engine, slots: (0..batch).map(|_| Slot::default()).collect(), began: Arc::default() }
    }

    /// What speaks for it, by another mapping of its memory.
    pub fn pulse(&self, memory: Memory) -> Pulse {
        Pulse { memory, began: Arc::clone(&self.began) }
    }

    /// Takes the bodies that are there, and answers them.
    pub fn step(&mut self, now: u64) -> Step {
        self.server.beat(now);
        let mut jobs: Vec<Job> = Vec::new();
        for slot in &mut self.slots {
            let Some(job) = self.server.take(&mut slot.body) else { break };
            slot.out.resize(bound(slot.body.len()), MaybeUninit::uninit());
            jobs.push(job);
        }
        if jobs.is_empty() {
            return Step::Idle;
        }
        let slots = self.slots.iter_mut().take(jobs.len());
        let mut bodies: Vec<Body<'_>> = slots.map(|Slot { body, out }| Body::new(body, out)).collect();
        self.began.store(now.max(1), Ordering::Relaxed);
        self.engine.compress(&mut bodies);
        self.began.store(0, Ordering::Relaxed);
        for (job, body) in jobs.iter().zip(&bodies) {
            self.server.answer(job, body.output());
        }
        Step::Busy
    }

    /// The engine.
    pub const fn engine(&self) -> &B {
        &self.engine
    }
}

impl Pulse {
    /// Says that the device lives at `now`, if it is at a batch. To be called more often than every [`ALIVE`](super::ALIVE). False: it is
    /// at one that does not end, and does not live.
    pub fn beat(&self, now: u64) -> bool {
        let began = self.began.load(Ordering::Relaxed);
        let is_stuck = began != 0 && now.saturating_sub(began) >= STUCK;
        if began != 0 && !is_stuck {
            self.memory.beat(now);
        }
        !is_stuck
    }
}
