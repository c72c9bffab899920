//! What a limit did, counted.

use weirgate_units::{Bytes, Duration, Instant};

/// What a limit did since it was made. Of several above a class, each counts what passed; what waits, is marked or is dropped counts
/// at the one that holds it up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitCounters {
    /// Packets that passed.
    pub passed_packets: u64,
    /// And what they hold, as the limit counts it.
    pub passed_bytes: u64,
    /// Packets of these that had waited for it, however short. Nothing where it lets nobody wait (`Mode::Drop`, `Mode::Borrow`).
    pub delayed: u64,
    /// Time during which something waited for it, or was held back by it.
    pub throttled: Duration,
    /// What could have passed beside that, while something waited, had the switch come in time: its thread was away for longer than
    /// the burst lasts. In bytes, as the limit counts them; of limits that pace what waits.
    pub missed_bytes: u64,
    /// Packets marked with congestion (ECN CE) as they passed.
    pub marked: u64,
    /// Packets dropped because they came too early.
    pub dropped_rate: u64,
    /// Packets dropped because there was no room to wait in.
    pub dropped_room: u64,
    /// Packets dropped because their flow's queue was too long for too long (CoDel); of a super-packet of TCP one packet of those that it
    /// would have become.
    pub dropped_codel: u64,
    /// How long those that passed had waited, where that was for it: in the queue of their class, until they had passed all limits.
    /// Nothing where it lets nobody wait (`Mode::Drop`, `Mode::Borrow`).
    pub delays: Delays,
    /// Packets that wait for it.
    pub waiting: u64,
    /// Since when a source is held back.
    since: Option<Instant>,
}

impl LimitCounters {
    pub(super) fn passed(&mut self, size: Bytes) {
        self.passed_packets += 1;
        self.passed_bytes += size.as_u64();
    }

    pub(super) fn throttle(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    pub(super) fn unthrottle(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.throttled = self.throttled.saturating_add(now.saturating_since(since));
        }
    }

    pub(super) const fn is_throttled(&self) -> bool {
        self.since.is_some()
    }

    /// With the time that is under way.
    pub(super) fn until(mut self, now: Instant) -> Self {
        if let Some(since) = self.since.replace(now) {
            self.throttled = self.throttled.saturating_add(now.saturating_since(since));
        } else {
            self.since = None;
        }
        self
    }

    /// These and another thread's of the same limit. Both throttled at the same time counts twice.
    pub fn and(mut self, other: &Self) -> Self {
        self.passed_packets += other.passed_packets;
        self.passed_bytes += other.passed_bytes;
        self.delayed += other.delayed;
        self.throttled = self.throttled.saturating_add(other.throttled);
        self.missed_bytes += other.missed_bytes;
        self.marked += other.marked;
        self.dropped_rate += other.dropped_rate;
        self.dropped_room += other.dropped_room;
        self.dropped_codel += other.dropped_codel;
        self.waiting += other.waiting;
        for (count, more) in self.delays.0.iter_mut().zip(other.delays.0) {
            *count += more;
        }
        self
    }
}

/// A histogram of delays: slot 0 is less than a microsecond, slot `n` less than 2^n, the last everything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays([u64; Self::SLOTS]);

impl Delays {
    /// Up to 2^25 us, 34 s.
    pub const SLOTS: usize = 27;

    pub(super) fn add(&mut self, delay: Duration) {
        let us = delay.as_nanos() / 1_000;
        let slot = (u64::BITS - us.leading_zeros()) as usize;
        self.0[slot.min(Self::SLOTS - 1)] += 1;
    }

    /// The counts, and the bound below which each of them lies; the last has none.
    pub fn slots(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        let bound = |slot: usize| (slot + 1 < Self::SLOTS).then(|| Duration::from_micros(1 << slot));
        self.0.iter().enumerate().map(move |(slot, count)| (bound(slot), *count))
    }

    /// A bound that the share `q` of the delays lie below, `None` where there are none or it is past the last bound.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let total: u64 = self.0.iter().sum();
        let wanted = (q * total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.slots()
            .find(|(_, count)| {
                seen += count;
                seen >= wanted
            })?
            .0
    }
}
