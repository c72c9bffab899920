//! A device without a card: libdeflate in its place, the time that a card would take, and everything that can go wrong with one.

use std::collections::VecDeque;
use std::mem::MaybeUninit;

use super::Step;
use super::server::{Job, Server};
use crate::engine::{Engine, Libdeflate, bound};

/// What the device does wrong. Each is for one of so many bodies, 0: for none; where two fall on one body, it is the first that is named
/// here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// It dies, with half of the answer written.
    pub crash_every: u64,
    /// It answers only after [`slow`](Self::slow).
    pub slow_every: u64,
    /// In nanoseconds.
    pub slow: u64,
    /// Its answer is wrong: in turn a bit of it, all of it (another body's), and its length.
    pub wrong_every: u64,
    /// It says that it could not.
    pub fail_every: u64,
}

/// The device: [`step`](Self::step) is to be called again and again.
#[derive(Debug)]
pub struct Simulated {
    server: Server,
    /// How long a body takes, in nanoseconds, beside the time of compressing it.
    latency: u64,
    faults: Faults,
    engines: [Option<Libdeflate>; 10],
    body: Vec<u8>,
    /// Taken, and not answered yet, in the order in which they were.
    taken: VecDeque<Taken>,
    /// Bodies so far.
    bodies: u64,
    wrong: u64,
    last_answer: Vec<u8>,
}

#[derive(Debug)]
struct Taken {
    job: Job,
    due: u64,
    answer: Answer,
}

#[derive(Debug)]
enum Answer {
    Of(Vec<u8>),
    /// It says that it is longer than there is room for.
    Endless,
    Failure,
}

impl Simulated {
    /// A device that takes `latency` nanoseconds for each body, but all at once.
    pub fn new(server: Server, latency: u64, faults: Faults) -> Self {
        Self {
            server,
            latency,
            faults,
            engines: Default::default(),
            body: Vec::new(),
            taken: VecDeque::new(),
            bodies: 0,
            wrong: 0,
            last_answer: Vec::new(),
        }
    }

    /// Takes bodies and answers those whose time has come.
    pub fn step(&mut self, now: u64) -> Step {
        self.server.beat(now);
        let mut step = Step::Idle;
        let mut body = std::mem::take(&mut self.body);
        if let Some(job) = self.server.take(&mut body) {
            step = if self.begin(job, &body, now) { Step::Busy } else { Step::Crashed };
        }
        self.body = body;
        let mut at = 0;
        while let Some(taken) = self.taken.get(at) {
            if taken.due > now {
                at += 1;
            } else if let Some(taken) = self.taken.remove(at) {
                self.answer(taken);
                step = if step == Step::Idle { Step::Busy } else { step };
            }
        }
        step
    }

    /// Instances that are somebody's.
    pub fn in_use(&self) -> u32 {
        self.server.in_use()
    }

    /// False: it dies.
    fn begin(&mut self, job: Job, body: &[u8], now: u64) -> bool {
        self.bodies += 1;
        let Faults { crash_every, slow_every, slow, wrong_every, fail_every } = self.faults;
        let bodies = self.bodies;
        let falls = |every: u64| every > 0 && bodies.is_multiple_of(every);
        let Some(mut answer) = self.compress(job.level, body) else {
            self.taken.push_back(Taken { job, due: now, answer: Answer::Failure });
            return true;
        };
        if falls(crash_every) {
            self.server.write_half(&job, &answer);
            return false;
        }
        let is_slow = falls(slow_every);
        let right = answer.clone();
        let answer = if is_slow {
            Answer::Of(answer)
        } else if falls(wrong_every) {
            self.wrong += 1;
            match self.wrong % 3 {
                0 => Answer::Endless,
                1 => {
                    let middle = answer.len() / 2;
                    answer[middle] ^= 0x10;
                    Answer::Of(answer)
                }
                _ => Answer::Of(self.last_answer.clone()),
            }
        } else if falls(fail_every) {
            Answer::Failure
        } else {
            Answer::Of(answer)
        };
        self.last_answer = right;
        self.taken.push_back(Taken { job, due: now + if is_slow { slow } else { self.latency }, answer });
        true
    }

    fn answer(&self, taken: Taken) {
        match &taken.answer {
            Answer::Of(answer) => self.server.answer(&taken.job, Some(answer)),
            Answer::Failure => self.server.answer(&taken.job, None),
            Answer::Endless => self.server.answer_with(&taken.job, u32::MAX),
        }
    }

    fn compress(&mut self, level: i32, body: &[u8]) -> Option<Vec<u8>> {
        let engine = &mut self.engines[level.clamp(1, 9) as usize];
        if engine.is_none() {
            *engine = Libdeflate::new(level);
        }
        let mut out = vec![MaybeUninit::uninit(); bound(body.len())];
        let len = engine.as_mut()?.compress(body, &mut out).ok()?;
        // SAFETY: an engine's output is initialised.
        Some(unsafe { out[..len].assume_init_ref() }.to_vec())
    }
}
