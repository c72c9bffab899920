//! The side of a process that compresses.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::memory::{BODY_MAX, Memory};
use super::word::{Hold, State};
use crate::count::Reason;
use crate::engine::{Engine, Inflater};

/// How long a caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For an answer, in nanoseconds; then it compresses the body itself.
    pub wait_max: u64,
    /// Of these awake, at most; then it sleeps in between for as long, or for a sixteenth of what it has waited, if that is longer.
    pub spin: u64,
}

impl Default for Patience {
    /// Two milliseconds, of which 20 µs awake.
    fn default() -> Self {
        Self { wait_max: 2_000_000, spin: 20_000 }
    }
}

/// What a process's threads share of the accelerator.
#[derive(Debug)]
pub struct Client {
    patience: Patience,
    clock: fn() -> u64,
    /// Sleeps for so many nanoseconds.
    nap: fn(u64),
    device: Mutex<Option<Arc<Memory>>>,
    /// Grows with each device that is attached; 0: none was.
    devices: AtomicU32,
    /// The longest body that it takes, or may take; 0: there is none.
    body_max: AtomicUsize,
    has_levels: AtomicBool,
    /// Failures one after the other.
    failures: AtomicU32,
    /// It is not asked before this.
    paused_until: AtomicU64,
    process: Arc<Process>,
}

/// What is a process's own, and not its parent's.
#[derive(Debug, Default)]
struct Process {
    /// Forks that led to it.
    forks: AtomicU32,
    /// Instances that its threads hold.
    held: AtomicU64,
}

/// A thread's instance.
#[derive(Debug, Default)]
pub struct Holder {
    place: Option<Place>,
    inflater: Option<Inflater>,
    inflated: Vec<u8>,
}

#[derive(Debug)]
struct Place {
    device: Arc<Memory>,
    /// Which of the client's it is.
    number: u32,
    process: Arc<Process>,
    /// As the process's when this was made.
    forks: u32,
    instance: Option<(u32, Hold)>,
}

/// The accelerator as one thread's engine.
#[derive(Debug)]
pub struct Device<'a> {
    client: &'a Client,
    holder: &'a mut Holder,
    level: i32,
    asleep: u64,
}

/// Who waits for long looks less often: an answer is then later by this part of the wait at most.
const LATER: u64 = 16;

/// After so many failures in a row it is not asked for a while.
const FAILURES: u32 = 3;

/// The first such while, in nanoseconds; each next one is twice as long.
const PAUSE: u64 = 10_000_000;

/// The longest is 1.28 s.
const DOUBLINGS: u32 = 7;

impl Client {
    /// Of no device yet.
    pub fn new(patience: Patience, clock: fn() -> u64, nap: fn(u64)) -> Self {
        Self {
            patience,
            clock,
            nap,
            device: Mutex::new(None),
            devices: AtomicU32::new(0),
            body_max: AtomicUsize::new(0),
            has_levels: AtomicBool::new(true),
            failures: AtomicU32::new(0),
            paused_until: AtomicU64::new(0),
            process: Arc::default(),
        }
    }

    /// In a child that was forked: its parent's instances are not its own. Does what may be done between fork and exec.
    pub fn forked(&self) {
        self.process.forks.fetch_add(1, Ordering::Relaxed);
        self.process.held.store(0, Ordering::Relaxed);
    }

    /// There is a device, of which nothing else is known yet: bodies that it does not get meanwhile are missed, as those of one that is
    /// gone are.
    pub fn expect(&self) {
        let _others_may_know_more = self.body_max.compare_exchange(0, BODY_MAX, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// From now on bodies go to this device, if it lives at `now`, and unless another thread is just looking which one it is. What was
    /// mapped before goes when its last thread has noticed.
    pub fn attach(&self, memory: Memory, now: u64) {
        if !memory.is_alive(now) {
            return;
        }
        let Ok(mut device) = self.device.try_lock() else { return };
        self.body_max.store(memory.body_max(), Ordering::Relaxed);
        self.has_levels.store(memory.has_levels(), Ordering::Relaxed);
        *device = Some(Arc::new(memory));
        self.failures.store(0, Ordering::Relaxed);
        self.paused_until.store(0, Ordering::Relaxed);
        self.devices.fetch_add(1, Ordering::Release);
    }

    /// Whether bodies of `len` bytes are for the device. Where none was ever there nothing is missed.
    pub fn takes(&self, len: usize) -> bool {
        len <= self.body_max.load(Ordering::Relaxed)
    }

    /// Whether the device that was attached last makes less output where a higher level is asked for.
    pub fn has_levels(&self) -> bool {
        self.has_levels.load(Ordering::Relaxed)
    }

    /// Whether the device that was attached last lives at `now`.
    pub fn is_alive(&self, now: u64) -> bool {
        let device = self.device.try_lock();
        device.is_ok_and(|device| device.as_ref().is_some_and(|device| device.is_alive(now)))
    }

    /// Instances that this process's threads hold.
    pub fn held(&self) -> u64 {
        self.process.held.load(Ordering::Relaxed)
    }

    /// As the engine of a thread, which keeps what it holds of the device.
    pub const fn device<'a>(&'a self, holder: &'a mut Holder, level: i32) -> Device<'a> {
        Device { client: self, holder, level, asleep: 0 }
    }

    /// Has the device compress a body: how long it became, and for how long the caller slept.
    fn compress(
        &self,
        holder: &mut Holder,
        level: i32,
        body: &[u8],
        out: &mut [MaybeUninit<u8>],
    ) -> Result<(usize, u64), Reason> {
        if !self.takes(body.len()) {
            return Err(Reason::Long);
        }
        let began = (self.clock)();
        if began < self.paused_until.load(Ordering::Relaxed) {
            return Err(Reason::Paused);
        }
        let place = self.place(&mut holder.place).ok_or(Reason::Gone)?;
        if !place.device.is_alive(began) {
            return Err(Reason::Gone);
        }
        let result = place.run(self, level, body, out, began);
        let result =
            result.and_then(|made| if holder.is_right(body, &out[..made.0]) { Ok(made) } else { Err(Reason::Wrong) });
        match result {
            Ok(_) => self.failures.store(0, Ordering::Relaxed),
            // There was nothing wrong with it.
            Err(Reason::Exhausted) => {}
            Err(_) => self.failed(),
        }
        result
    }

    /// The thread's place at the device that was attached last.
    fn place<'a>(&self, place: &'a mut Option<Place>) -> Option<&'a mut Place> {
        let (number, forks) = (self.devices.load(Ordering::Acquire), self.process.forks.load(Ordering::Relaxed));
        let is_other = |place: &Place| {
            // A child has a client of its own, whose devices are numbered anew.
            !Arc::ptr_eq(&place.process, &self.process) || (place.number, place.forks) != (number, forks)
        };
        if place.as_ref().is_some_and(is_other) {
            *place = None;
        }
        if place.is_none() {
            // Who has it now attaches another one.
            let device = self.device.try_lock().ok()?.clone()?;
            *place = Some(Place { device, number, process: self.process.clone(), forks, instance: None });
        }
        place.as_mut()
    }

    fn failed(&self) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures >= FAILURES {
            let pause = PAUSE << (failures - FAILURES).min(DOUBLINGS);
            self.paused_until.store((self.clock)() + pause, Ordering::Relaxed);
        }
    }
}

impl Engine for Device<'_> {
    /// [`Reason::Long`]: it is longer than what the device takes.
    fn compress(&mut self, input: &[u8], out: &mut [MaybeUninit<u8>]) -> Result<usize, Reason> {
        let (len, asleep) = self.client.compress(self.holder, self.level, input, out)?;
        self.asleep = asleep;
        Ok(len)
    }

    fn asleep(&self) -> u64 {
        self.asleep
    }
}

impl Place {
    /// Has the device compress a body: how long it became, and for how long the caller slept.
    fn run(
        &mut self,
        client: &Client,
        level: i32,
        body: &[u8],
        out: &mut [MaybeUninit<u8>],
        began: u64,
    ) -> Result<(usize, u64), Reason> {
        let (index, hold) = self.begin(began)?;
        let instance = self.device.instance(index);
        self.device.put_body(index, body);
        instance.level.store(level.unsigned_abs(), Ordering::Relaxed);
        instance.body_len.store(body.len() as u32, Ordering::Relaxed);
        if !instance.word.change(hold, State::Filling, State::Posted) {
            return Err(self.lose());
        }
        let mut asleep = 0;
        loop {
            let now = (client.clock)();
            match instance.word.look() {
                (of, Some(State::Done)) if of == hold => break,
                (of, Some(State::Posted | State::Running)) if of == hold => {}
                _ => return Err(self.lose()),
            }
            if now.saturating_sub(began) > client.patience.wait_max {
                let is_left = instance.word.change(hold, State::Posted, State::Held)
                    || instance.word.change(hold, State::Running, State::Dropped);
                if is_left {
                    return Err(Reason::Late);
                }
            } else if now.saturating_sub(began) > client.patience.spin {
                (client.nap)(client.patience.spin.max((now - began) / LATER));
                asleep += (client.clock)().saturating_sub(now);
            } else {
                std::hint::spin_loop();
            }
        }
        let len = instance.answer_len.load(Ordering::Relaxed) as usize;
        let is_there = out.get_mut(..len).is_some_and(|out| self.device.answer(index, out));
        if !instance.word.change(hold, State::Done, State::Held) {
            return Err(self.lose());
        }
        match len {
            0 => Err(Reason::Failed),
            _ if is_there => Ok((len, asleep)),
            _ => Err(Reason::Wrong),
        }
    }

    /// An instance that is this thread's, for a body that begins at `now`.
    fn begin(&mut self, now: u64) -> Result<(u32, Hold), Reason> {
        if let Some((index, hold)) = self.instance {
            let instance = self.device.instance(index);
            instance.used.store(now, Ordering::Relaxed);
            if instance.word.change(hold, State::Held, State::Filling) {
                return Ok((index, hold));
            }
            if instance.word.look() == (hold, Some(State::Dropped)) {
                // The device is still at a body for which this thread waited long enough.
                return Err(Reason::Late);
            }
            self.lose();
        }
        for index in 0..self.device.instances() {
            let instance = self.device.instance(index);
            if let Some(hold) = instance.word.take() {
                instance.used.store(now, Ordering::Relaxed);
                self.instance = Some((index, hold));
                self.process.held.fetch_add(1, Ordering::Relaxed);
                if instance.word.change(hold, State::Held, State::Filling) {
                    return Ok((index, hold));
                }
                self.lose();
            }
        }
        Err(Reason::Exhausted)
    }

    /// The instance has been taken away.
    fn lose(&mut self) -> Reason {
        if self.instance.take().is_some() {
            self.process.held.fetch_sub(1, Ordering::Relaxed);
        }
        Reason::Late
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A parent's is not its child's to give back.
        if self.forks != self.process.forks.load(Ordering::Relaxed) {
            return;
        }
        if let Some((index, hold)) = self.instance {
            self.device.instance(index).word.free(hold, State::Held);
            self.lose();
        }
    }
}

impl Holder {
    /// Whether `answer` is `body`.
    fn is_right(&mut self, body: &[u8], answer: &[MaybeUninit<u8>]) -> bool {
        if self.inflater.is_none() {
            self.inflater = Inflater::new();
        }
        // SAFETY: the device's answer was copied there, which initialised it.
        let answer = unsafe { answer.assume_init_ref() };
        let Some(inflater) = &mut self.inflater else { return false };
        inflater.inflate(answer, body.len(), &mut self.inflated) && self.inflated == body
    }
}
