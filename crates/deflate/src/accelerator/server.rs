//! The device's side of the memory.

use std::sync::atomic::Ordering;

use super::LEASE;
use super::memory::{BODY_MAX, Memory};
use super::word::{Hold, State};

/// Looks after the instances, and takes bodies from them in turn.
#[derive(Debug)]
pub struct Server {
    memory: Memory,
    /// The instance that is looked at next.
    next: u32,
    /// When instances were taken back.
    looked: u64,
}

/// That is done this often, in nanoseconds.
const LOOK_EVERY: u64 = 1_000_000_000;

/// A body that the device has taken.
#[derive(Debug)]
pub struct Job {
    instance: u32,
    hold: Hold,
    /// 1 to 9: what zlib's is to be as long as.
    pub level: i32,
}

impl Server {
    /// Of memory that was [made](Memory::make).
    pub const fn new(memory: Memory) -> Self {
        Self { memory, next: 0, looked: 0 }
    }

    /// Says that the device lives, and takes instances back now and then. To be called more often than every [`ALIVE`](super::ALIVE).
    pub fn beat(&mut self, now: u64) {
        self.memory.beat(now);
        if now.saturating_sub(self.looked) > LOOK_EVERY {
            self.looked = now;
            self.reclaim(now);
        }
    }

    /// Takes a body, which is copied to `body`, if there is one.
    pub fn take(&mut self, body: &mut Vec<u8>) -> Option<Job> {
        let count = self.memory.instances();
        for _ in 0..count {
            let index = self.next;
            self.next = (index + 1) % count;
            let instance = self.memory.instance(index);
            let (hold, state) = instance.word.look();
            if state == Some(State::Posted) && instance.word.change(hold, State::Posted, State::Running) {
                let len = instance.body_len.load(Ordering::Relaxed) as usize;
                let level = i32::try_from(instance.level.load(Ordering::Relaxed)).unwrap_or(0).clamp(1, 9);
                self.memory.body(index, len.min(BODY_MAX), body);
                return Some(Job { instance: index, hold, level });
            }
        }
        None
    }

    /// Answers a body. `None`, and one that there is no room for: the device could not.
    pub fn answer(&self, job: &Job, answer: Option<&[u8]>) {
        let answer = answer.filter(|answer| self.memory.put_answer(job.instance, answer));
        let len = answer.map_or(0, |answer| answer.len() as u32);
        self.answer_with(job, len);
    }

    /// Writes half of an answer, and leaves it at that.
    pub(super) fn write_half(&self, job: &Job, answer: &[u8]) {
        self.memory.put_answer(job.instance, &answer[..answer.len() / 2]);
    }

    /// Answers with what is in the instance's memory, of which it says that it is so long.
    pub(super) fn answer_with(&self, job: &Job, len: u32) {
        let instance = self.memory.instance(job.instance);
        instance.answer_len.store(len, Ordering::Relaxed);
        if !instance.word.change(job.hold, State::Running, State::Done) {
            // Nobody waits for it.
            instance.word.change(job.hold, State::Dropped, State::Held);
        }
    }

    /// Takes instances from those that have not used theirs for [`LEASE`].
    pub(super) fn reclaim(&self, now: u64) {
        for index in 0..self.memory.instances() {
            let instance = self.memory.instance(index);
            let is_old = now.saturating_sub(instance.used.load(Ordering::Relaxed)) > LEASE;
            match instance.word.look() {
                (_, None) => instance.word.mend(),
                // The device has it: it is answered first.
                (_, Some(State::Free | State::Posted | State::Running)) => {}
                (hold, Some(state)) if is_old => {
                    instance.word.free(hold, state);
                }
                _ => {}
            }
        }
    }

    /// Instances that are somebody's.
    pub fn in_use(&self) -> u32 {
        let is_used = |index: &u32| self.memory.instance(*index).word.look().1 != Some(State::Free);
        (0..self.memory.instances()).filter(is_used).count() as u32
    }
}
