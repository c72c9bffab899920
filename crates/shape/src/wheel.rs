//! The timing wheel. Read first: Varghese and Lauck, "Hashed and hierarchical timing wheels" (SOSP 1987), schemes 4 and 7;
//! Saeed et al., "Carousel" (SIGCOMM 2017), section 4; and "Eiffel" (NSDI 2019) for the bitmaps above the slots.
//!
//! Time is cut into ticks, and ticks into blocks of [`FINE`]. Each later block has a list, in no order but that in which items
//! came. When time reaches a block, its list is linked into rings, one for each tick, without moving anything; what comes for the
//! block that time is in is linked in at once. So what is touched all the time stays in a processor's nearest caches: slots for
//! every tick of two seconds are eight megabytes, and nearly every touch of one misses; and lists are written and read in order,
//! where chained entries lie anywhere. Of an item the wheel keeps its tick and nothing more, for the same reason. Lists keep what
//! room they had, so putting in and taking out allocate nothing once they have grown, but for bursts. Bitmaps of the ticks and blocks that hold
//! something find the next one in a few instructions however far it is, so nobody has to tick.

use weirgate_units::{Duration, Instant};

/// Ticks in a block. Of half as many and twice as many this is the fastest in the benchmark `bench-shape`, by up to 3 ns a packet.
const FINE: u64 = 1_024;

/// A list that had more room than this gives it back when it is empty: what one burst took is not kept for ever.
const ROOM_MAX: usize = 4_096;

/// Empty lists of blocks that are kept for the next ones.
const SPARE_MAX: usize = 8;

/// No item.
const NONE: u32 = u32::MAX;

/// Things that wait for their instant: numbers of them, which are copied.
///
/// An item never comes out before its instant, and at most one tick after it if it is asked for in time. Items of one
/// tick come out in the order in which they were put in. An item past the [`horizon`](Self::horizon) comes out at the
/// horizon: its owner, who knows its instant, puts it in again.
#[derive(Clone, Debug)]
pub struct Wheel<T> {
    /// A tick is 2 to the power of this nanoseconds: a division less each time.
    shift: u32,
    /// The block that time is in: that of the first tick that is not done.
    present: Present<T>,
    /// The first tick after it.
    end: u64,
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

/// Each item with its tick's place in the block, in whose stead the next one's number comes once it is linked.
type List<T> = Vec<(u32, T)>;

#[derive(Clone, Debug)]
struct Block<T> {
    /// In the order in which they came.
    items: List<T>,
    /// The first tick in which one of them is due.
    first: u64,
}

/// A block's items in rings, one for each tick, in the order in which they came; those that are out in a list.
#[derive(Clone, Debug)]
struct Present<T> {
    items: List<T>,
    /// The last item of each tick, whose next one is the first; [`NONE`]: it has none.
    last: Box<[u32; FINE as usize]>,
    occupied: Ticks,
    /// The first of the places whose items are out, and are free.
    free: u32,
}

impl<T: Copy> Wheel<T> {
    /// A wheel whose first tick begins at `now`.
    ///
    /// `tick` is the precision, rounded down to a power of two of nanoseconds, at least 1 ns. `slots` is how many ticks
    /// ahead an item can wait, rounded up to a power of two from 1,024 to 2^24.
    pub fn new(now: Instant, tick: Duration, slots: usize) -> Self {
        let shift = tick.as_nanos().max(1).ilog2();
        let blocks = (slots.clamp(1, 1 << 24) as u64).div_ceil(FINE).next_power_of_two();
        // Beside those ahead, the present one.
        let blocks = (blocks * 2) as usize;
        let done = now.as_nanos() >> shift;
        Self {
            shift,
            present: Present::default(),
            end: end_of(done + 1),
            blocks: (0..blocks).map(|_| Block { items: Vec::new(), first: 0 }).collect(),
            blocks_occupied: Bitmap::new(blocks),
            spare: Vec::new(),
            len: 0,
            done,
            due: u64::MAX,
        }
    }

    /// The precision.
    pub const fn tick(&self) -> Duration {
        Duration::from_nanos(1 << self.shift)
    }

    /// How far ahead an item can wait, from the instant of the last [`poll`](Self::poll).
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
    ///
    /// # Panics
    /// Past 2^32 items due in one block of 1,024 ticks.
    #[expect(clippy::inline_always, reason = "a call's saved registers are a tenth of what it costs")]
    #[inline(always)]
    pub fn insert(&mut self, at: Instant, item: T) {
        // Rounded up to the first tick whose end is not before `at`: never early.
        let due = at.as_nanos().saturating_add((1 << self.shift) - 1) >> self.shift;
        let due = due.max(self.done + 1).min(self.done + self.ahead());
        self.len += 1;
        self.due = self.due.min(due);
        if due < self.end {
            self.present.insert(fine(due), item);
            return;
        }
        let place = self.place(due);
        let block = &mut self.blocks[place];
        if block.items.is_empty() {
            self.open_block(place, due, item);
            return;
        }
        block.first = block.first.min(due);
        block.items.push((fine(due) as u32, item));
    }

    /// Puts the first item into a block, whose list was taken when it was the present one.
    #[cold]
    fn open_block(&mut self, place: usize, due: u64, item: T) {
        self.blocks_occupied.set(place);
        let mut items = self.spare.pop().unwrap_or_default();
        items.push((fine(due) as u32, item));
        self.blocks[place] = Block { items, first: due };
    }

    /// Takes out one item that is due at `now`. Constant time, but that the items of a block are linked when time comes to it;
    /// call until `None`.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<T> {
        let tick = now.as_nanos() >> self.shift;
        if self.due > tick {
            self.advance(tick);
            return None;
        }
        // Everything before this tick is out; the tick itself is not done until its items are.
        self.advance(self.due - 1);
        let (item, more) = self.present.pop(fine(self.due));
        self.len -= 1;
        if !more {
            self.due = self.first(fine(self.due));
        }
        Some(item)
    }

    /// When [`poll`](Self::poll) will have something: the end of the first occupied tick. `None`: nothing waits.
    pub const fn poll_at(&self) -> Option<Instant> {
        if self.due == u64::MAX { None } else { Some(Instant::from_nanos(self.due.saturating_mul(1 << self.shift))) }
    }

    /// What always holds: the lists, the bitmaps and the counts agree. Walks everything; for tests.
    pub fn is_valid(&self) -> bool {
        let mut blocks = self.blocks.iter().enumerate();
        self.present.is_valid()
            && self.present.len() + self.blocks.iter().map(|b| b.items.len()).sum::<usize>() == self.len
            && blocks.all(|(at, block)| self.blocks_occupied.has(at) != block.items.is_empty())
            && self.blocks_occupied.is_valid()
            && self.due == self.first(0)
            && self.due > self.done
            && self.end == end_of(self.done + 1)
    }

    /// Ticks ahead of `done` that an item can be due in.
    const fn ahead(&self) -> u64 {
        (self.blocks.len() as u64 / 2) * FINE
    }

    /// Where the block of this tick is.
    const fn place(&self, tick: u64) -> usize {
        (tick / FINE) as usize & (self.blocks.len() - 1)
    }

    /// Time is at the end of `tick`, before which nothing waits any more.
    #[inline]
    fn advance(&mut self, tick: u64) {
        self.done = self.done.max(tick);
        if self.done + 1 >= self.end {
            self.begin_block();
        }
    }

    /// The first tick that is not done is in a later block than before: of the blocks in between, none has anything.
    #[cold]
    fn begin_block(&mut self) {
        self.end = end_of(self.done + 1);
        let place = self.place(self.done + 1);
        let items = if self.blocks_occupied.has(place) {
            self.blocks_occupied.clear(place);
            core::mem::take(&mut self.blocks[place].items)
        } else {
            self.spare.pop().unwrap_or_default()
        };
        let mut items = self.present.begin(items);
        if (1..=ROOM_MAX).contains(&items.capacity()) && self.spare.len() < SPARE_MAX {
            items.clear();
            self.spare.push(items);
        }
    }

    /// The first tick in which something is due, of the present block from place `from` on; `u64::MAX`: nothing waits.
    #[inline]
    fn first(&self, from: usize) -> u64 {
        if let Some(tick) = self.present.occupied.next(from) {
            return self.end - FINE + tick as u64;
        }
        let place = self.blocks_occupied.next(self.place(self.end)).or_else(|| self.blocks_occupied.next(0));
        place.map_or(u64::MAX, |place| self.blocks[place].first)
    }
}

impl<T> Default for Present<T> {
    fn default() -> Self {
        Self { items: Vec::new(), last: Box::new([NONE; FINE as usize]), occupied: Ticks::default(), free: NONE }
    }
}

impl<T: Copy> Present<T> {
    /// Takes the next block's items, where its own are all out; its empty list.
    fn begin(&mut self, items: List<T>) -> List<T> {
        let empty = core::mem::replace(&mut self.items, items);
        self.free = NONE;
        for number in 0..self.items.len() {
            self.link(self.items[number].0 as usize, number as u32);
        }
        empty
    }

    #[inline]
    fn insert(&mut self, tick: usize, item: T) {
        let mut number = self.free;
        if let Some(place) = self.items.get_mut(number as usize) {
            self.free = place.0;
            place.1 = item;
        } else {
            number = u32::try_from(self.items.len()).unwrap_or(NONE);
            assert!(number != NONE, "fewer than 2^32 items in a block");
            self.items.push((NONE, item));
        }
        self.link(tick, number);
    }

    /// Makes `number` the last of the tick's ring.
    #[inline]
    fn link(&mut self, tick: usize, number: u32) {
        let before = core::mem::replace(&mut self.last[tick], number);
        // Alone, it is its own next one.
        let before = if before == NONE { number } else { before };
        self.items[number as usize].0 = number;
        self.items[number as usize].0 = core::mem::replace(&mut self.items[before as usize].0, number);
        self.occupied.set(tick);
    }

    /// Takes out the first item of a tick that has one; whether there are more.
    #[inline]
    fn pop(&mut self, tick: usize) -> (T, bool) {
        let last = self.last[tick];
        let first = self.items[last as usize].0;
        let more = first != last;
        if more {
            self.items[last as usize].0 = self.items[first as usize].0;
        } else {
            self.last[tick] = NONE;
            self.occupied.clear(tick);
        }
        let (next, item) = &mut self.items[first as usize];
        *next = core::mem::replace(&mut self.free, first);
        (*item, more)
    }

    /// The number of items that wait.
    fn len(&self) -> usize {
        let free = core::iter::successors(Some(self.free), |at| self.items.get(*at as usize).map(|item| item.0));
        self.items.len() - free.take_while(|at| *at != NONE).count()
    }

    fn is_valid(&self) -> bool {
        let mut last = self.last.iter().enumerate();
        let ring = |last: u32| {
            let after = core::iter::successors(Some(last), |at| Some(self.items[*at as usize].0));
            1 + after.skip(1).take_while(|at| *at != last).count()
        };
        let linked: usize = self.last.iter().filter(|last| **last != NONE).map(|last| ring(*last)).sum();
        self.occupied.is_valid()
            && last.all(|(tick, last)| self.occupied.has(tick) == (*last != NONE))
            && linked == self.len()
    }
}

/// The first tick after the block of `tick`.
const fn end_of(tick: u64) -> u64 {
    (tick / FINE + 1) * FINE
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
        assert_eq!(wheel.poll(at(128)), Some("first"));
        assert_eq!(wheel.poll(at(199)), None, "never early");
        assert_eq!(wheel.poll_at(), Some(at(256)));
        assert_eq!(wheel.poll(at(256)), Some("second"));
        wheel.insert(at(120), "late");
        assert_eq!(wheel.poll(at(256)), Some("third"));
        assert_eq!(wheel.poll(at(256)), Some("late"));
        assert_eq!((wheel.poll(at(256)), wheel.poll_at()), (None, None));
    }

    #[test]
    fn an_item_past_the_horizon_comes_out_there() {
        let mut wheel = Wheel::new(at(0), Duration::from_nanos(16), 64);
        assert_eq!(wheel.horizon(), Duration::from_nanos(16 * FINE));
        wheel.insert(at(10_000_000), ());
        assert_eq!(wheel.poll_at(), Some(at(16 * FINE)));
        assert_eq!(wheel.poll(at(16 * FINE - 1)), None);
        assert_eq!(wheel.poll(at(16 * FINE)), Some(()));
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
                        waiting.push((due, serial));
                        serial += 1;
                    }
                    Op::Advance(by) => {
                        now += by;
                        waiting.sort_unstable();
                        while let Some(item) = wheel.poll(at(now)) {
                            let (due, expected) = waiting.remove(0);
                            prop_assert_eq!(item, expected);
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
