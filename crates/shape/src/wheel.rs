//! The timing wheel. Read first: Varghese and Lauck, "Hashed and hierarchical timing wheels" (SOSP 1987), schemes 4 and 7;
//! Saeed et al., "Carousel" (SIGCOMM 2017), section 4; and "Eiffel" (NSDI 2019) for the bitmaps above the slots.
//!
//! Time is cut into ticks, and ticks into blocks of [`FINE`]. Every tick of the block that time is in has a list, and so has
//! every later block, whose items are dealt out to the ticks when time reaches it. That costs every item that waits long a
//! second move, and keeps what is touched all the time in a processor's nearest caches: a slot for every tick of two seconds
//! are eight megabytes, and nearly every touch of one misses; and lists are written and read in order, where chained entries
//! lie anywhere. They keep what room they had, so putting in and taking out allocate nothing once they have grown. Bitmaps
//! of the lists that hold something find the next tick in a few instructions however far it is, so nobody has to tick.

use weirgate_units::{Duration, Instant};

/// Ticks in a block. Of half as many, twice and four times as many this is the fastest in the benchmark `bench-shape`, by up
/// to 1 ns a packet.
const FINE: u64 = 1_024;

/// A list that had more room than this gives it back when it is empty: what one burst took is not kept for ever.
const ROOM_MAX: usize = 4_096;

/// Empty lists of blocks that are kept for the next ones.
const SPARE_MAX: usize = 8;

/// Things that wait for their instant.
///
/// An item never comes out before its instant, and at most one tick after it if it is asked for in time. Items of one
/// tick come out in the order in which they were put in. An item past the [`horizon`](Self::horizon) comes out at the
/// horizon, together with its own instant: its owner puts it in again.
#[derive(Clone, Debug)]
pub struct Wheel<T> {
    /// A tick is 2 to the power of this nanoseconds: a division less each time.
    shift: u32,
    /// What is being taken out, the last one first: all of tick `due`.
    current: List<T>,
    /// Of the ticks of the present block.
    ticks: Box<[List<T>]>,
    occupied: Ticks,
    /// Later blocks; the present one's place is empty.
    blocks: Box<[Block<T>]>,
    blocks_occupied: Bitmap,
    spare: Vec<List<T>>,
    len: usize,
    /// The tick up to which everything was taken out. What waits is due in one of the ticks after it.
    done: u64,
    /// The first tick in which something is due; `u64::MAX` where nothing waits.
    due: u64,
}

/// In the order in which they came, but for `current`.
type List<T> = Vec<(Instant, T)>;

#[derive(Clone, Debug)]
struct Block<T> {
    items: List<T>,
    /// The first tick in which one of them is due.
    first: u64,
}

impl<T> Wheel<T> {
    /// A wheel whose first tick begins at `now`.
    ///
    /// `tick` is the precision, rounded down to a power of two of nanoseconds, at least 1 ns. `slots` is how many ticks
    /// ahead an item can wait, rounded up to a power of two from 1,024 to 2^24.
    pub fn new(now: Instant, tick: Duration, slots: usize) -> Self {
        let shift = tick.as_nanos().max(1).ilog2();
        let blocks = (slots.clamp(1, 1 << 24) as u64).div_ceil(FINE).next_power_of_two();
        // Beside those ahead, the present one.
        let blocks = (blocks * 2) as usize;
        Self {
            shift,
            current: Vec::new(),
            ticks: (0..FINE).map(|_| Vec::new()).collect(),
            occupied: Ticks::default(),
            blocks: (0..blocks).map(|_| Block { items: Vec::new(), first: 0 }).collect(),
            blocks_occupied: Bitmap::new(blocks),
            spare: Vec::new(),
            len: 0,
            done: now.as_nanos() >> shift,
            due: u64::MAX,
        }
    }

    /// The precision.
    pub const fn tick(&self) -> Duration {
        Duration::from_nanos(1 << self.shift)
    }

    /// How far ahead an item can wait.
    pub const fn horizon(&self) -> Duration {
        Duration::from_nanos((self.ahead()) << self.shift)
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
    #[inline]
    pub fn insert(&mut self, at: Instant, item: T) {
        let due = self.due_tick(at).clamp(self.done + 1, self.done + self.ahead());
        self.len += 1;
        self.due = self.due.min(due);
        let number = due / FINE;
        if number == self.present() {
            self.put(due, at, item);
            return;
        }
        let place = self.place(number);
        let block = &mut self.blocks[place];
        if block.items.is_empty() {
            self.blocks_occupied.set(place);
            block.first = due;
            if block.items.capacity() == 0 {
                block.items = self.spare.pop().unwrap_or_default();
            }
        }
        block.first = block.first.min(due);
        block.items.push((at, item));
    }

    /// Takes out one item that is due at `now`, with its own instant. Constant time, but that the items of a block are dealt
    /// out when its first one comes due; call until `None`.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<(Instant, T)> {
        if self.current.is_empty() {
            if !self.turn(now.as_nanos() >> self.shift) {
                return None;
            }
            let at = fine(self.due);
            let list = &mut self.ticks[at];
            self.occupied.clear(at);
            // Mostly there is one, where few wait.
            if list.len() == 1 {
                self.len -= 1;
                self.due = self.first();
                return self.ticks[at].pop();
            }
            if self.current.capacity() > ROOM_MAX {
                self.current = Vec::new();
            }
            core::mem::swap(&mut self.current, list);
            self.current.reverse();
        }
        let out = self.current.pop()?;
        self.len -= 1;
        if self.current.is_empty() && !self.occupied.has(fine(self.due)) {
            self.due = self.first();
        }
        Some(out)
    }

    /// When [`poll`](Self::poll) will have something: the end of the first occupied tick. `None`: nothing waits.
    pub const fn poll_at(&self) -> Option<Instant> {
        if self.due == u64::MAX { None } else { Some(Instant::from_nanos(self.due.saturating_mul(1 << self.shift))) }
    }

    /// What always holds: the lists, the bitmaps and the counts agree. Walks everything; for tests.
    pub fn is_valid(&self) -> bool {
        let (mut ticks, mut blocks) = (self.ticks.iter().enumerate(), self.blocks.iter().enumerate());
        let held = self.current.len()
            + self.ticks.iter().map(Vec::len).sum::<usize>()
            + self.blocks.iter().map(|b| b.items.len()).sum::<usize>();
        held == self.len
            && ticks.all(|(at, list)| self.occupied.has(at) != list.is_empty())
            && blocks.all(|(at, block)| self.blocks_occupied.has(at) != block.items.is_empty())
            && self.occupied.is_valid()
            && self.blocks_occupied.is_valid()
            && (!self.current.is_empty() || self.due == self.first())
            && (self.len == 0 || self.due > self.done)
    }

    /// Ticks ahead of `done` that an item can be due in.
    const fn ahead(&self) -> u64 {
        (self.blocks.len() as u64 / 2) * FINE
    }

    /// The first tick whose end is not before `at`: rounded up, never early.
    const fn due_tick(&self, at: Instant) -> u64 {
        at.as_nanos().saturating_add((1 << self.shift) - 1) >> self.shift
    }

    /// Where the block of this number is.
    const fn place(&self, number: u64) -> usize {
        (number & (self.blocks.len() as u64 - 1)) as usize
    }

    /// The number of the block whose ticks have lists: that of the first tick that is not done.
    const fn present(&self) -> u64 {
        (self.done + 1) / FINE
    }

    /// Puts an item of the present block into its tick's list.
    #[inline]
    fn put(&mut self, due: u64, at: Instant, item: T) {
        self.ticks[fine(due)].push((at, item));
        self.occupied.set(fine(due));
    }

    /// Turns to `tick`: whether something is due by then, in the list of tick `due`.
    #[inline]
    fn turn(&mut self, tick: u64) -> bool {
        if self.due > tick {
            self.advance(tick);
            return false;
        }
        // Everything before this tick is out; the tick itself is not done until its list is empty.
        self.advance(self.due - 1);
        // Dealt out, an item from past the horizon can turn out to be due later.
        self.due <= tick
    }

    /// Time is at the end of `tick`, before which nothing waits any more. Where that is the end of a block, the next one's
    /// items are dealt out.
    #[inline]
    fn advance(&mut self, tick: u64) {
        let before = self.present();
        self.done = self.done.max(tick);
        if self.present() != before {
            self.deal();
        }
    }

    /// Gives the items of the present block, in the order in which they came, to the lists of their ticks.
    #[cold]
    fn deal(&mut self) {
        let place = self.place(self.present());
        if !self.blocks_occupied.has(place) {
            return;
        }
        self.blocks_occupied.clear(place);
        let mut items = core::mem::take(&mut self.blocks[place].items);
        let last = (self.present() + 1) * FINE - 1;
        for (at, item) in items.drain(..) {
            // What was past the horizon comes out at the end of the block.
            let due = self.due_tick(at).clamp(self.done + 1, last);
            self.put(due, at, item);
        }
        if self.spare.len() < SPARE_MAX {
            self.spare.push(items);
        }
        self.due = self.first();
    }

    /// The first occupied tick, or `u64::MAX`.
    #[inline]
    fn first(&self) -> u64 {
        let next = self.done + 1;
        if let Some(at) = self.occupied.next(fine(next)) {
            return next + (at - fine(next)) as u64;
        }
        let from = self.place(self.present());
        let place = self.blocks_occupied.next(from).or_else(|| self.blocks_occupied.next(0));
        place.map_or(u64::MAX, |place| self.blocks[place].first)
    }
}

/// A tick's place in its block.
const fn fine(tick: u64) -> usize {
    (tick % FINE) as usize
}

/// The present block's ticks that have something: a bit for each, and one for each word that has any.
#[derive(Clone, Debug, Default)]
struct Ticks {
    words: [u64; FINE as usize / 64],
    top: u64,
}

impl Ticks {
    const fn has(&self, bit: usize) -> bool {
        self.words[bit / 64] >> (bit % 64) & 1 == 1
    }

    #[inline]
    const fn set(&mut self, bit: usize) {
        self.words[bit / 64] |= 1 << (bit % 64);
        self.top |= 1 << (bit / 64);
    }

    #[inline]
    const fn clear(&mut self, bit: usize) {
        self.words[bit / 64] &= !(1 << (bit % 64));
        if self.words[bit / 64] == 0 {
            self.top &= !(1 << (bit / 64));
        }
    }

    /// The first set bit at or after `from`.
    #[inline]
    const fn next(&self, from: usize) -> Option<usize> {
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

    fn is_valid(&self) -> bool {
        self.words.iter().enumerate().all(|(at, word)| (*word != 0) == (self.top >> at & 1 == 1))
    }
}

/// Blocks that have something: level 0 has a bit per block, each higher level a bit per word of the one below; the top is one word.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn items_come_out_at_the_end_of_their_tick() {
        let mut wheel = Wheel::new(at(0), Duration::from_nanos(150), 64);
        assert_eq!(wheel.tick(), Duration::from_nanos(128), "a power of two");
        wheel.insert(at(150), "second");
        wheel.insert(at(199), "third");
        wheel.insert(at(128), "first");
        assert_eq!(wheel.poll_at(), Some(at(128)));
        assert_eq!(wheel.poll(at(127)), None);
        assert_eq!(wheel.poll(at(128)), Some((at(128), "first")));
        assert_eq!(wheel.poll(at(199)), None, "never early");
        assert_eq!(wheel.poll_at(), Some(at(256)));
        assert_eq!(wheel.poll(at(256)), Some((at(150), "second")));
        wheel.insert(at(120), "late");
        assert_eq!(wheel.poll(at(256)), Some((at(199), "third")));
        assert_eq!(wheel.poll(at(256)), Some((at(120), "late")));
        assert_eq!((wheel.poll(at(256)), wheel.poll_at()), (None, None));
    }

    #[test]
    fn an_item_past_the_horizon_comes_out_there_with_its_own_instant() {
        let mut wheel = Wheel::new(at(0), Duration::from_nanos(16), 64);
        assert_eq!(wheel.horizon(), Duration::from_nanos(16 * FINE));
        wheel.insert(at(10_000_000), ());
        let first = wheel.poll_at().unwrap();
        assert_eq!(first, at(16 * FINE));
        // It is in the block of the horizon, and comes out at its end at the latest.
        let out = (0..=FINE).find_map(|tick| wheel.poll(first + Duration::from_nanos(16 * tick)));
        assert_eq!(out, Some((at(10_000_000), ())));
        assert!(wheel.is_valid());
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
            (0_u64..3_000_000).prop_map(Op::Insert),
            (0_u64..3_000).prop_map(Op::Advance),
            (0_u64..500_000).prop_map(Op::Advance),
        ]
    }

    proptest! {
        /// Against a sorted list: each item exactly once, never early, less than a tick late, in the order of the ticks.
        #[test]
        fn behaves_as_a_sorted_list(tick in 1_u64..50, slots in 1_usize..9_000, ops in prop::collection::vec(op(), 1..300)) {
            let start = 12_345;
            let mut wheel = Wheel::new(at(start), Duration::from_nanos(tick), slots);
            let (horizon, tick) = (wheel.horizon().as_nanos(), wheel.tick().as_nanos());
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
