//! The memory of accounts that were closed lately, sixteen bytes each.

use core::mem;

use hashbrown::HashTable;
use weirgate_units::{Duration, Instant};

use super::table::hash;

/// An account that was closed. The cookie is unique within the namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed {
    cookie: u64,
    netns: u32,
    /// The sequence of the last record, for one that vanished and may be seen again; [`REPORTED`] for the others.
    sequence: u32,
}

/// No account has that many records: one a second for 136 years.
const REPORTED: u32 = u32::MAX;

impl Closed {
    /// One whose close was reported.
    pub(super) const fn reported(cookie: u64, netns: u32) -> Self {
        Self { cookie, netns, sequence: REPORTED }
    }

    /// One that vanished, with the sequence of its last record.
    pub(super) const fn vanished(cookie: u64, netns: u32, sequence: u32) -> Self {
        let sequence = if sequence == REPORTED { 0 } else { sequence };
        Self { cookie, netns, sequence }
    }

    /// Whether it was given up without a close record.
    pub(super) const fn is_vanished(self) -> bool {
        self.sequence != REPORTED
    }

    /// The sequence of the last record of one that vanished.
    pub(super) const fn sequence(self) -> u32 {
        self.sequence
    }

    const fn is(&self, cookie: u64, netns: u32) -> bool {
        self.cookie == cookie && self.netns == netns
    }
}

/// Two generations: the young one takes what comes, the old one is dropped whole. So an entry lives for one to two
/// generations, nothing is walked, and the size is bounded.
#[derive(Debug)]
pub(super) struct ClosedSet {
    young: HashTable<Closed>,
    old: HashTable<Closed>,
    generation: Duration,
    generation_len_max: usize,
    turned: Instant,
}

impl ClosedSet {
    /// An empty set that remembers for at least `generation`, unless more than `len_max` come in that time.
    pub(super) fn new(generation: Duration, len_max: u32) -> Self {
        Self {
            young: HashTable::new(),
            old: HashTable::new(),
            generation,
            generation_len_max: len_max.max(1) as usize,
            turned: Instant::ZERO,
        }
    }

    /// Drops what is old enough.
    pub(super) fn handle_time(&mut self, now: Instant) {
        let age = now.saturating_since(self.turned);
        if age >= self.generation {
            // Where nothing came for two generations, the young one is old as well.
            if age >= self.generation.saturating_mul(2) {
                self.young.clear();
            }
            self.turn();
            self.turned = now;
        }
    }

    pub(super) fn find(&self, cookie: u64, netns: u32) -> Option<Closed> {
        let (hash, is) = (hash(cookie), |c: &Closed| c.is(cookie, netns));
        self.young.find(hash, is).or_else(|| self.old.find(hash, is)).copied()
    }

    /// Notes `closed`, in place of what was noted of it before.
    pub(super) fn insert(&mut self, closed: Closed) {
        self.remove(closed.cookie, closed.netns);
        if self.young.len() >= self.generation_len_max {
            self.turn();
        }
        self.young.insert_unique(hash(closed.cookie), closed, |c| hash(c.cookie));
    }

    pub(super) fn remove(&mut self, cookie: u64, netns: u32) {
        for generation in [&mut self.young, &mut self.old] {
            if let Ok(found) = generation.find_entry(hash(cookie), |c| c.is(cookie, netns)) {
                found.remove();
            }
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.young.allocation_size() + self.old.allocation_size()
    }

    pub(super) fn is_valid(&self) -> bool {
        self.young.len() <= self.generation_len_max
            && self.old.len() <= self.generation_len_max
            && !self.old.iter().any(|c| self.young.find(hash(c.cookie), |y| y.is(c.cookie, c.netns)).is_some())
    }

    fn turn(&mut self) {
        mem::swap(&mut self.young, &mut self.old);
        // A burst of closes must not hold its memory for ever, a steady rate must not allocate anew each time.
        if self.young.capacity() > 4 * self.old.len().max(1024) {
            self.young = HashTable::new();
        } else {
            self.young.clear();
        }
    }
}
