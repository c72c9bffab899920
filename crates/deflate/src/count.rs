//! What a process's streams did, counted where others can read it while it runs: in a page of shared memory, or of its own.

use std::sync::atomic::{AtomicU64, Ordering};

/// Who made output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// Stock zlib, a whole body at once.
    Stock,
    /// libdeflate.
    Libdeflate,
    /// ISA-L.
    Igzip,
    /// zlib-rs.
    ZlibRs,
    /// A card of Intel's, by QATzip.
    Qatzip,
    /// A device behind shared memory.
    Accelerator,
    /// Stock zlib, piece by piece.
    Stream,
}

/// Why a body was not compressed at once by the engine that was chosen for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Output was asked for before the end.
    Flush,
    /// Its pieces came slowly.
    Slow,
    /// It is longer than what is collected, and is not compressed part by part.
    Long,
    /// Only zlib does what was asked for: a level, a strategy, a dictionary, a header; or there is nothing to compress.
    Asked,
    /// The engine failed, or said that it could not.
    Failed,
    /// The accelerator is not there.
    Gone,
    /// All of its instances are others'.
    Exhausted,
    /// It did not answer in time.
    Late,
    /// What it answered was not this body.
    Wrong,
    /// It has failed, and is not asked for a while.
    Paused,
    /// It was looked at, and the chosen engine's output was too large: zlib's was there.
    Larger,
}

impl Maker {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Stock, Self::Libdeflate, Self::Igzip, Self::ZlibRs, Self::Qatzip, Self::Accelerator, Self::Stream];

    /// Its name in tables and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stock => "zlib",
            Self::Libdeflate => "libdeflate",
            Self::Igzip => "igzip",
            Self::ZlibRs => "zlib_rs",
            Self::Qatzip => "qatzip",
            Self::Accelerator => "accelerator",
            Self::Stream => "zlib_stream",
        }
    }
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Flush,
        Self::Slow,
        Self::Long,
        Self::Asked,
        Self::Failed,
        Self::Gone,
        Self::Exhausted,
        Self::Late,
        Self::Wrong,
        Self::Paused,
        Self::Larger,
    ];

    /// Its name in tables and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Slow => "slow",
            Self::Long => "long",
            Self::Asked => "asked",
            Self::Failed => "failed",
            Self::Gone => "gone",
            Self::Exhausted => "exhausted",
            Self::Late => "late",
            Self::Wrong => "wrong",
            Self::Paused => "paused",
            Self::Larger => "larger",
        }
    }
}

/// "wgdeflt" and the number of this layout.
const MAGIC: u64 = 0x7767_6465_666c_7404;

/// After this long without a sign of life, in nanoseconds, a process compresses no more.
const AWAKE: u64 = 60_000_000_000;

/// And after this long it has ended: it may have one stream all the while, which it will count.
const OVER: u64 = 3_600_000_000_000;

/// Counters of one maker: bodies, or for streams those begun; bytes in; bytes out; nanoseconds.
type Row = [AtomicU64; 4];

/// One process's counters. Others may read their bytes at any time.
#[derive(Debug)]
#[repr(C)]
pub struct Counters {
    magic: AtomicU64,
    made: [Row; Maker::ALL.len()],
    reasons: [AtomicU64; Reason::ALL.len()],
    /// Instances of an accelerator that are its now.
    instances: AtomicU64,
    /// When its process last said that it lives, in nanoseconds of the monotonic clock; 1: it has ended.
    alive: AtomicU64,
}

/// What they said at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// By [`Maker`], in the order of its `ALL`.
    pub made: [Made; Maker::ALL.len()],
    /// By [`Reason`].
    pub reasons: [u64; Reason::ALL.len()],
    /// Instances of an accelerator that are its now: nothing for a process that has ended.
    pub instances: u64,
    /// When its process last said that it lives; of several ones the latest.
    pub alive: u64,
}

/// What one maker did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Bodies, or streams that began.
    pub bodies: u64,
    /// Bytes that it took.
    pub bytes_in: u64,
    /// Bytes that it made of them, without the frame around them.
    pub bytes_out: u64,
    /// How long that took by the clock.
    pub nanos: u64,
}

impl Counters {
    /// Of a process that has done nothing.
    pub const fn new() -> Self {
        Self {
            magic: AtomicU64::new(MAGIC),
            made: [const { [const { AtomicU64::new(0) }; 4] }; Maker::ALL.len()],
            reasons: [const { AtomicU64::new(0) }; Reason::ALL.len()],
            instances: AtomicU64::new(0),
            alive: AtomicU64::new(0),
        }
    }

    /// Makes counters, in memory that is all zero, those of a process that has done as much as `other` says.
    pub fn begin_with(&self, other: &Self) {
        let pairs = self.made.iter().flatten().zip(other.made.iter().flatten());
        let pairs = pairs.chain(self.reasons.iter().zip(&other.reasons)).chain([(&self.instances, &other.instances)]);
        for (to, from) in pairs {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Counters of nothing, in memory that is all zero.
    pub fn begin(&self) {
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Their process lives at `now`.
    pub fn beat(&self, now: u64) {
        self.alive.store(now.max(2), Ordering::Relaxed);
    }

    /// Their process ends.
    pub fn end(&self) {
        self.alive.store(1, Ordering::Relaxed);
    }

    /// Sets them back to nothing.
    pub fn clear(&self) {
        let all = self.made.iter().flatten().chain(&self.reasons).chain([&self.instances]);
        all.for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    pub(crate) fn made(&self, maker: Maker, made: Made) {
        let Made { bodies, bytes_in, bytes_out, nanos } = made;
        for (counter, more) in self.made[maker as usize].iter().zip([bodies, bytes_in, bytes_out, nanos]) {
            if more > 0 {
                counter.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn because(&self, reason: Reason) {
        self.reasons[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Instances of an accelerator are its now.
    pub(crate) fn set_instances(&self, count: u64) {
        self.instances.store(count, Ordering::Relaxed);
    }

    /// What they say now.
    pub fn totals(&self) -> Totals {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let row = |row: &Row| {
            let [bodies, bytes_in, bytes_out, nanos] = row.each_ref().map(load);
            Made { bodies, bytes_in, bytes_out, nanos }
        };
        Totals {
            made: self.made.each_ref().map(row),
            reasons: self.reasons.each_ref().map(load),
            instances: load(&self.instances),
            alive: load(&self.alive),
        }
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

impl Totals {
    /// Of the bytes of a process's counters. `None`: they are none, or of another release.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        if bytes.len() != size_of::<Counters>() || !rest.is_empty() || words.first() != Some(&MAGIC) {
            return None;
        }
        let mut words = words.into_iter().skip(1);
        let mut next = || words.next().unwrap_or(0);
        let mut totals = Self::default();
        for made in &mut totals.made {
            *made = Made { bodies: next(), bytes_in: next(), bytes_out: next(), nanos: next() };
        }
        totals.reasons = totals.reasons.map(|_| next());
        totals.instances = next();
        totals.alive = next();
        Some(totals)
    }

    /// Whether their process compresses at `now`: it has said so within a minute.
    pub const fn is_awake(&self, now: u64) -> bool {
        now.abs_diff(self.alive) < AWAKE
    }

    /// Whether their process has ended at `now`: it has said so, or nothing for an hour.
    pub const fn is_over(&self, now: u64) -> bool {
        self.alive == 1 || now.abs_diff(self.alive) > OVER
    }

    /// Both together.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        for (made, more) in self.made.iter_mut().zip(&other.made) {
            made.bodies = made.bodies.wrapping_add(more.bodies);
            made.bytes_in = made.bytes_in.wrapping_add(more.bytes_in);
            made.bytes_out = made.bytes_out.wrapping_add(more.bytes_out);
            made.nanos = made.nanos.wrapping_add(more.nanos);
        }
        for (count, more) in self.reasons.iter_mut().zip(other.reasons) {
            *count = count.wrapping_add(more);
        }
        self.instances = self.instances.wrapping_add(other.instances);
        self.alive = self.alive.max(other.alive);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that another process would see.
    fn bytes(counters: &Counters) -> Vec<u8> {
        let rows = counters.made.iter().flatten();
        let words = [&counters.magic].into_iter().chain(rows).chain(&counters.reasons);
        let words = words.chain([&counters.instances, &counters.alive]);
        words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
    }

    #[test]
    fn what_is_counted_is_read_and_added_up() {
        let counters = Counters::new();
        counters.made(Maker::Igzip, Made { bodies: 1, bytes_in: 1_000, bytes_out: 300, nanos: 5_000 });
        counters.because(Reason::Slow);
        let totals = counters.totals();
        assert_eq!(totals.made[2], Made { bodies: 1, bytes_in: 1_000, bytes_out: 300, nanos: 5_000 });
        assert_eq!(totals.reasons[..3], [0, 1, 0]);
        let seen = bytes(&counters);
        assert_eq!((seen.len(), Totals::read(&seen)), (size_of::<Counters>(), Some(totals)));
        assert_eq!(totals.and(&totals).made[2].bytes_in, 2_000);
        let other = Counters::new();
        other.begin_with(&counters);
        assert_eq!(other.totals(), totals);
    }

    #[test]
    fn what_is_not_counters_is_not_read() {
        let seen = bytes(&Counters::new());
        assert_eq!(Totals::read(&seen[..seen.len() - 1]), None);
        assert_eq!(Totals::read(&vec![0; seen.len()]), None, "of a process that has just made them");
        assert_eq!(Totals::read(&[]), None);
    }
}
