//! A device of an engine that compresses many bodies at once: a GPU.

use std::mem::MaybeUninit;

use super::Step;
use super::server::{Job, Server};
use crate::engine::bound;
use crate::nvcomp::{Batch, Body};

/// The device: [`step`](Self::step) is to be called again and again.
#[derive(Debug)]
pub struct Batched<B> {
    server: Server,
    engine: B,
    slots: Vec<Slot>,
}

/// Room for one of a batch's bodies.
#[derive(Debug, Default)]
struct Slot {
    body: Vec<u8>,
    out: Vec<MaybeUninit<u8>>,
}

impl<B: Batch> Batched<B> {
    /// A device that takes up to `batch` bodies at a time.
    pub fn new(server: Server, engine: B, batch: usize) -> Self {
        Self { server, engine, slots: (0..batch).map(|_| Slot::default()).collect() }
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
        let mut bodies: Vec<Body<'_>> = slots.map(|Slot { body, out }| Body { input: body, out, len: None }).collect();
        self.engine.compress(&mut bodies);
        for (job, body) in jobs.iter().zip(&bodies) {
            // SAFETY: an engine's output is initialised.
            let answer = body.len.map(|len| unsafe { body.out[..len].assume_init_ref() });
            self.server.answer(job, answer);
        }
        Step::Busy
    }

    /// The engine.
    pub const fn engine(&self) -> &B {
        &self.engine
    }
}
