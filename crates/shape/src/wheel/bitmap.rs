//! Which ticks and blocks hold something: the next one in a few instructions, however far it is.

use super::FINE;

/// A block's ticks that have something: a bit for each, and one for each word that has any.
#[derive(Clone, Debug, Default)]
pub(super) struct Ticks {
    words: [u64; FINE as usize / 64],
    top: u64,
}

impl Ticks {
    pub(super) const fn has(&self, bit: usize) -> bool {
        self.words[bit / 64] >> (bit % 64) & 1 == 1
    }

    #[inline]
    pub(super) const fn set(&mut self, bit: usize) {
        self.words[bit / 64] |= 1 << (bit % 64);
        self.top |= 1 << (bit / 64);
    }

    #[inline]
    pub(super) const fn clear(&mut self, bit: usize) {
        self.words[bit / 64] &= !(1 << (bit % 64));
        if self.words[bit / 64] == 0 {
            self.top &= !(1 << (bit / 64));
        }
    }

    /// The first set bit at or after `from`.
    #[inline]
    pub(super) const fn next(&self, from: usize) -> Option<usize> {
        let word = self.words[from / 64] >> (from % 64);
        if word != 0 {
            return Some(from + word.trailing_zeros() as usize);
        }
        // Two shifts: one by 64 would be none.
        let later = self.top >> (from / 64) >> 1;
        if later == 0 {
            return None;
        }
        let at = from / 64 + 1 + later.trailing_zeros() as usize;
        Some(at * 64 + self.words[at].trailing_zeros() as usize)
    }

    pub(super) fn is_valid(&self) -> bool {
        self.words.iter().enumerate().all(|(at, word)| (*word != 0) == (self.top >> at & 1 == 1))
    }
}

/// Which of many places hold something: the next one in a few instructions.
#[derive(Clone, Debug)]
pub struct Bitmap {
    /// Level 0 has a bit for each place, each higher level one for each word of the one below; the top is one word.
    levels: Vec<Box<[u64]>>,
}

impl Bitmap {
    /// Of `bits` places, none of which holds anything.
    pub fn new(bits: usize) -> Self {
        let mut levels = Vec::new();
        let mut bits = bits;
        loop {
            let words = bits.div_ceil(64);
            levels.push(vec![0; words].into_boxed_slice());
            if words == 1 {
                return Self { levels };
            }
            bits = words;
        }
    }

    /// Whether a place holds something.
    ///
    /// # Panics
    /// Where there is no such place.
    pub fn has(&self, bit: usize) -> bool {
        self.levels[0][bit / 64] >> (bit % 64) & 1 == 1
    }

    /// A place holds something now. Steps: the levels, one for every factor of 64.
    ///
    /// # Panics
    /// Where there is no such place.
    #[inline]
    pub fn set(&mut self, mut bit: usize) {
        for level in &mut self.levels {
            level[bit / 64] |= 1 << (bit % 64);
            bit /= 64;
        }
    }

    /// A place holds nothing any more. Steps: the levels at most.
    ///
    /// # Panics
    /// Where there is no such place.
    #[inline]
    pub fn clear(&mut self, mut bit: usize) {
        for level in &mut self.levels {
            level[bit / 64] &= !(1 << (bit % 64));
            if level[bit / 64] != 0 {
                return;
            }
            bit /= 64;
        }
    }

    /// The first place at or after `from` that holds something. Steps: twice the levels at most.
    #[inline]
    pub fn next(&self, from: usize) -> Option<usize> {
        // Up until a word has one, then down along the lowest bits.
        let mut bit = from;
        for height in 0..self.levels.len() {
            let word = self.levels[height].get(bit / 64)? & (u64::MAX << (bit % 64));
            if word != 0 {
                let mut at = bit / 64 * 64 + word.trailing_zeros() as usize;
                for level in self.levels[..height].iter().rev() {
                    at = at * 64 + level[at].trailing_zeros() as usize;
                }
                return Some(at);
            }
            // Nothing here: look from the next word on, one level up.
            bit = bit / 64 + 1;
        }
        None
    }

    pub(super) fn is_valid(&self) -> bool {
        self.levels.windows(2).all(|pair| {
            pair[0].iter().enumerate().all(|(i, word)| (*word != 0) == (pair[1][i / 64] >> (i % 64) & 1 == 1))
        })
    }
}
