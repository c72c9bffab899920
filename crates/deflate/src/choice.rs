//! Which engine compresses a body: by what its caller asked zlib for, by its size, and by how large the engines' output has been beside
//! zlib's.
//!
//! "Same ratio" promises that responses are not larger than zlib's at the level that was asked for, by more than a share. Whether
//! libdeflate holds that depends on the data, so it is looked at: of the bodies of each level and size class every so many is compressed
//! by stock zlib as well, and a class whose output has been too large goes one level up, and from the last level to stock zlib.

use std::sync::atomic::{AtomicI8, AtomicU32, AtomicU64, Ordering};

use crate::engine::Libdeflate;

/// What an operator wants of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// As long as zlib's, at less processor time.
    #[default]
    Same,
    /// At the least processor time, and not longer than zlib's at level 1.
    Fast,
}

/// Who compresses a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Stock zlib at the level that was asked for.
    Stock,
    /// libdeflate at this level of its own.
    Libdeflate(i32),
    /// ISA-L, and where it is not there libdeflate at level 1.
    Igzip,
}

/// Shares are of so many.
const PER: u64 = 100_000;

/// Of the bodies of a class, every one of so many is compressed by zlib as well: a hundredth of the work.
const LOOK_EVERY: u32 = 128;

/// The first ones all are, so that a class is not wrong for long.
const LOOK_FIRST: u32 = 4;

/// Bytes of output after which older ones count half: those of a few hundred responses.
const HALF_AT: u64 = 4 << 20;

/// The choice of one process, which its threads share.
#[derive(Debug)]
pub struct Choice {
    mode: Mode,
    /// In parts of [`PER`].
    larger_max: u64,
    /// By level (1 to 9) and size class.
    classes: [[Class; CLASSES]; 9],
}

/// A class's state. Threads may mix their counts up: they are only a mean.
#[derive(Debug)]
struct Class {
    /// Above the level that it began with.
    up: AtomicI8,
    seen: AtomicU32,
    ours: AtomicU64,
    stock: AtomicU64,
}

/// Below 2 KB, 8 KB, 32 KB, 128 KB, and all others.
const CLASSES: usize = 5;

impl Choice {
    /// A choice that lets output be larger than zlib's by at most `larger_max`, a share: 0.005 is half of one per cent.
    pub const fn new(mode: Mode, larger_max: f64) -> Self {
        let classes = [const { [const { Class::new() }; CLASSES] }; 9];
        Self { mode, larger_max: (larger_max * PER as f64) as u64, classes }
    }

    /// Who compresses a body of `len` bytes for which zlib's `level` was asked for, and whether its output is to be compared: see
    /// [`compare`](Self::compare).
    pub fn pick(&self, level: i32, len: usize) -> (Pick, bool) {
        if !(1..=9).contains(&level) {
            return (Pick::Stock, false);
        }
        if self.mode == Mode::Fast {
            return (Pick::Igzip, false);
        }
        let class = self.class(level, len);
        let seen = class.seen.fetch_add(1, Ordering::Relaxed);
        let engine = level + i32::from(class.up.load(Ordering::Relaxed));
        if engine > Libdeflate::LEVEL_MAX.min(9) {
            return (Pick::Stock, false);
        }
        (Pick::Libdeflate(engine), seen < LOOK_FIRST || seen.is_multiple_of(LOOK_EVERY))
    }

    /// The level at which stock zlib streams where `level` was asked for.
    pub fn streaming(&self, level: i32) -> i32 {
        if self.mode == Mode::Fast { level.min(1) } else { level }
    }

    /// Takes note that a body of `len` bytes became `ours` long, and `stock` by stock zlib at `level`.
    pub fn compare(&self, level: i32, len: usize, ours: usize, stock: usize) {
        let class = self.class(level, len);
        let add = |sum: &AtomicU64, more: usize| sum.fetch_add(more as u64, Ordering::Relaxed) + more as u64;
        let (ours, stock) = (add(&class.ours, ours), add(&class.stock, stock));
        if ours > stock.saturating_add(stock * self.larger_max / PER) {
            class.up.fetch_add(1, Ordering::Relaxed);
            class.ours.store(0, Ordering::Relaxed);
            class.stock.store(0, Ordering::Relaxed);
        } else if stock > HALF_AT {
            class.ours.store(ours / 2, Ordering::Relaxed);
            class.stock.store(stock / 2, Ordering::Relaxed);
        }
    }

    fn class(&self, level: i32, len: usize) -> &Class {
        let class = match len >> 10 {
            ..2 => 0,
            2..8 => 1,
            8..32 => 2,
            32..128 => 3,
            _ => 4,
        };
        &self.classes[(level.clamp(1, 9) - 1) as usize][class]
    }
}

impl Class {
    const fn new() -> Self {
        Self { up: AtomicI8::new(0), seen: AtomicU32::new(0), ours: AtomicU64::new(0), stock: AtomicU64::new(0) }
    }
}

impl Default for Choice {
    fn default() -> Self {
        Self::new(Mode::Same, 0.005)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_whose_output_is_too_large_goes_up_and_then_to_zlib() {
        let choice = Choice::default();
        for level in 6..=9 {
            assert_eq!(choice.pick(6, 5_000).0, Pick::Libdeflate(level));
            choice.compare(6, 5_000, 1_005, 1_000);
            assert_eq!(choice.pick(6, 5_000).0, Pick::Libdeflate(level), "half of a per cent is allowed");
            choice.compare(6, 5_000, 1_010, 1_000);
        }
        assert_eq!(choice.pick(6, 5_000), (Pick::Stock, false));
        assert_eq!(choice.pick(6, 50_000).0, Pick::Libdeflate(6), "other sizes are other classes");
        assert_eq!(choice.pick(7, 5_000).0, Pick::Libdeflate(7), "and so are other levels");
    }

    #[test]
    fn few_are_compared_and_the_first_ones_all() {
        let choice = Choice::default();
        let compared: Vec<u32> = (0..1_000).filter(|_| choice.pick(6, 100).1).collect();
        assert_eq!((compared.len(), &compared[..5]), (11, &[0, 1, 2, 3, 128][..]));
    }

    #[test]
    fn what_was_seen_long_ago_counts_less() {
        let choice = Choice::default();
        choice.compare(6, 1 << 20, 5 << 20, 5 << 20);
        assert_eq!(choice.class(6, 1 << 20).stock.load(Ordering::Relaxed), 5 << 19);
    }

    #[test]
    fn no_engine_stands_in_for_no_compression() {
        for mode in [Mode::Same, Mode::Fast] {
            let choice = Choice::new(mode, 0.005);
            assert_eq!((choice.pick(0, 5_000), choice.streaming(0)), ((Pick::Stock, false), 0));
        }
    }
}
