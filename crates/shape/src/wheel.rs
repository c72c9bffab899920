//! The timing wheel. Read first: Varghese and Lauck, "Hashed and hierarchical timing wheels" (SOSP 1987), scheme 4;
//! Saeed et al., "Carousel" (SIGCOMM 2017), section 4; and "Eiffel" (NSDI 2019) for the bitmaps above the slots.
//!
//! Time is cut into ticks; slot `n % slots` holds what is due in tick `n`, first in first out. Entries live in one pool
//! and are chained by index, so putting in and taking out allocate nothing once the pool has grown. Bitmaps of occupied
//! slots, each word of 64 summed up in a bit of the next level, find the next occupied slot in a few instructions however
//! far it is, so nobody has to tick.

use weirgate_units::{Duration, Instant};

/// "No entry": the end of a chain.
const NIL: u32 = u32::MAX;

/// Things that wait for their instant.
///
/// An item never comes out before its instant, and at most one tick after it if it is asked for in time. Items of one
/// tick come out in the order in which they were put in. An item past the [`horizon`](Self::horizon) comes out at the
/// horizon, together with its own instant: its owner puts it in again.
#[derive(Clone, Debug)]
pub struct Wheel<T> {
    tick: u64,
    slots: Box<[Slot]>,
    occupied: Bitmap,
    pool: Vec<Entry<T>>,
    free: u32,
    len: usize,
    /// The tick up to which everything was taken out: the slots hold ticks `done + 1 ..= done + slots`.
    done: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    head: u32,
    tail: u32,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    next: u32,
    at: Instant,
    /// `None` where the entry is free.
    item: Option<T>,
}

impl<T> Wheel<T> {
    /// A wheel whose first tick begins at `now`.
    ///
    /// `tick` is the precision, at least 1 ns; `slots` is rounded up to a power of two, at least 64 and at most 2^24.
    pub fn new(now: Instant, tick: Duration, slots: usize) -> Self {
        let slots = slots.clamp(64, 1 << 24).next_power_of_two();
        let tick = tick.as_nanos().max(1);
        Self {
            tick,
            slots: vec![Slot { head: NIL, tail: NIL }; slots].into_boxed_slice(),
            occupied: Bitmap::new(slots),
            pool: Vec::new(),
            free: NIL,
            len: 0,
            done: now.as_nanos() / tick,
        }
    }

    /// How far ahead an item can wait: slots times tick.
    pub fn horizon(&self) -> Duration {
        Duration::from_nanos(self.tick.saturating_mul(self.slots.len() as u64))
    }

    /// The number of items that wait.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts `item` in until `at`. An instant that has passed is the next tick. Constant time.
    ///
    /// # Panics
    /// Past 2^32 - 1 items.
    pub fn insert(&mut self, at: Instant, item: T) {
        // Rounded up: never early.
        let due = at.as_nanos().div_ceil(self.tick);
        let due = due.clamp(self.done + 1, self.done + self.slots.len() as u64);
        let entry = Entry { next: NIL, at, item: Some(item) };
        let index = if self.free == NIL {
            let index = u32::try_from(self.pool.len()).ok().filter(|i| *i != NIL).expect("fewer than 2^32 - 1 items");
            self.pool.push(entry);
            index
        } else {
            let index = self.free;
            self.free = self.pool[index as usize].next;
            self.pool[index as usize] = entry;
            index
        };
        let at_slot = self.slot(due);
        let slot = &mut self.slots[at_slot];
        if slot.head == NIL {
            slot.head = index;
            self.occupied.set(at_slot);
        } else {
            self.pool[slot.tail as usize].next = index;
        }
        slot.tail = index;
        self.len += 1;
        debug_assert!(self.len <= self.pool.len());
    }

    /// Takes out one item that is due at `now`, with its own instant. Constant time; call until `None`.
    pub fn poll(&mut self, now: Instant) -> Option<(Instant, T)> {
        let tick = now.as_nanos() / self.tick;
        let Some(due) = self.due().filter(|due| *due <= tick) else {
            self.done = self.done.max(tick);
            return None;
        };
        // Everything before this tick is out; the tick itself is not done until its slot is empty.
        self.done = due - 1;
        let at_slot = self.slot(due);
        let slot = &mut self.slots[at_slot];
        let index = slot.head;
        let entry = &mut self.pool[index as usize];
        let (at, item) = (entry.at, entry.item.take().expect("a chained entry holds an item"));
        slot.head = entry.next;
        entry.next = self.free;
        self.free = index;
        self.len -= 1;
        if slot.head == NIL {
            slot.tail = NIL;
            self.occupied.clear(at_slot);
        }
        Some((at, item))
    }

    /// When [`poll`](Self::poll) will have something: the end of the first occupied tick. `None`: nothing waits.
    pub fn poll_at(&self) -> Option<Instant> {
        self.due().map(|due| Instant::from_nanos(due.saturating_mul(self.tick)))
    }

    /// What always holds: the chains, the bitmaps and the counts agree. Walks everything; for tests.
    pub fn is_valid(&self) -> bool {
        let mut held = 0;
        for (at, slot) in self.slots.iter().enumerate() {
            let (mut index, mut last) = (slot.head, NIL);
            while index != NIL {
                let entry = &self.pool[index as usize];
                if entry.item.is_none() || held > self.len {
                    return false;
                }
                held += 1;
                (last, index) = (index, entry.next);
            }
            if last != slot.tail || self.occupied.has(at) != (slot.head != NIL) {
                return false;
            }
        }
        let (mut free, mut index) = (0, self.free);
        while index != NIL && free <= self.pool.len() {
            free += 1;
            index = self.pool[index as usize].next;
        }
        held == self.len && held + free == self.pool.len() && self.occupied.is_valid()
    }

    fn slot(&self, tick: u64) -> usize {
        (tick & (self.slots.len() as u64 - 1)) as usize
    }

    /// The first occupied tick.
    fn due(&self) -> Option<u64> {
        let from = self.slot(self.done + 1);
        let slots = self.slots.len();
        let at = self.occupied.next(from).or_else(|| self.occupied.next(0))?;
        Some(self.done + 1 + ((at + slots - from) & (slots - 1)) as u64)
    }
}

/// Occupied slots: level 0 has a bit per slot, each higher level a bit per word of the one below; the top is one word.
#[derive(Clone, Debug)]
struct Bitmap {
    levels: Vec<Box<[u64]>>,
}

impl Bitmap {
    fn new(bits: usize) -> Self {
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

    fn has(&self, bit: usize) -> bool {
        self.levels[0][bit / 64] >> (bit % 64) & 1 == 1
    }

    fn set(&mut self, mut bit: usize) {
        for level in &mut self.levels {
            level[bit / 64] |= 1 << (bit % 64);
            bit /= 64;
        }
    }

    fn clear(&mut self, mut bit: usize) {
        for level in &mut self.levels {
            level[bit / 64] &= !(1 << (bit % 64));
            if level[bit / 64] != 0 {
                return;
            }
            bit /= 64;
        }
    }

    /// The first set bit at or after `from`: up until a word has one, then down along the lowest bits.
    fn next(&self, from: usize) -> Option<usize> {
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

    fn is_valid(&self) -> bool {
        self.levels.windows(2).all(|pair| {
            pair[0].iter().enumerate().all(|(i, word)| (*word != 0) == (pair[1][i / 64] >> (i % 64) & 1 == 1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn items_come_out_at_the_end_of_their_tick() {
        let mut wheel = Wheel::new(at(0), Duration::from_nanos(100), 64);
        wheel.insert(at(150), "second");
        wheel.insert(at(199), "third");
        wheel.insert(at(100), "first");
        assert_eq!(wheel.poll_at(), Some(at(100)));
        assert_eq!(wheel.poll(at(99)), None);
        assert_eq!(wheel.poll(at(100)), Some((at(100), "first")));
        assert_eq!(wheel.poll(at(199)), None, "never early");
        assert_eq!(wheel.poll_at(), Some(at(200)));
        assert_eq!(wheel.poll(at(200)), Some((at(150), "second")));
        wheel.insert(at(120), "late");
        assert_eq!(wheel.poll(at(200)), Some((at(199), "third")));
        assert_eq!(wheel.poll(at(200)), Some((at(120), "late")));
        assert_eq!((wheel.poll(at(200)), wheel.poll_at()), (None, None));
    }

    #[test]
    fn an_item_past_the_horizon_comes_out_there_with_its_own_instant() {
        let mut wheel = Wheel::new(at(0), Duration::from_nanos(10), 64);
        assert_eq!(wheel.horizon(), Duration::from_nanos(640));
        wheel.insert(at(1_000_000), ());
        assert_eq!(wheel.poll_at(), Some(at(640)));
        assert_eq!(wheel.poll(at(640)), Some((at(1_000_000), ())));
    }

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Insert(u64),
        Advance(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0_u64..20_000).prop_map(Op::Insert),
            (0_u64..300).prop_map(Op::Insert),
            (0_u64..3_000).prop_map(Op::Advance),
        ]
    }

    proptest! {
        /// Against a sorted list: each item exactly once, never early, less than a tick late, in the order of the ticks.
        #[test]
        fn behaves_as_a_sorted_list(tick in 1_u64..50, slots in 1_usize..9_000, ops in prop::collection::vec(op(), 1..300)) {
            let start = 12_345;
            let mut wheel = Wheel::new(at(start), Duration::from_nanos(tick), slots);
            let horizon = wheel.horizon().as_nanos();
            let (mut now, mut waiting, mut serial) = (start, vec![], 0_u64);
            for op in ops {
                match op {
                    Op::Insert(ahead) => {
                        let ahead = ahead.min(horizon - tick);
                        let due = (now + ahead).div_ceil(tick).max(now / tick + 1);
                        wheel.insert(at(now + ahead), serial);
                        waiting.push((due, serial, now + ahead));
                        serial += 1;
                    }
                    Op::Advance(by) => {
                        now += by;
                        waiting.sort_unstable();
                        while let Some((instant, item)) = wheel.poll(at(now)) {
                            let (due, expected, expected_at) = waiting.remove(0);
                            prop_assert_eq!((item, instant), (expected, at(expected_at)));
                            prop_assert!(due * tick <= now, "early");
                        }
                        prop_assert!(waiting.first().is_none_or(|(due, ..)| due * tick > now), "late");
                    }
                }
                prop_assert_eq!(wheel.len(), waiting.len());
                prop_assert_eq!(wheel.poll_at(), waiting.iter().min().map(|(due, ..)| at(due * tick)));
                prop_assert!(wheel.is_valid());
            }
        }
    }
}
