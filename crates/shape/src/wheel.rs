//! The timing wheel. Read first: Varghese and Lauck, "Hashed and hierarchical timing wheels" (SOSP 1987), schemes 4 and 7;
//! Saeed et al., "Carousel" (SIGCOMM 2017), section 4; and "Eiffel" (NSDI 2019) for the bitmaps above the slots.
//!
//! Time is cut into ticks, and ticks into blocks of [`FINE`]. Each later block has a list, in no order but that in which items
//! came. When time reaches a block, its list is sorted by tick, by counting; what comes for the block that time is in is linked into
//! rings, one for each tick. So nearly everything is written and read in order, and what is not stays in a processor's nearest
//! caches: slots for every tick of two seconds are eight megabytes, and nearly every touch of one misses. Of an item the wheel keeps
//! its tick and nothing more, for the same reason. Lists keep what room they had, so putting in and taking out allocate nothing once
//! they have grown, but where more than 8,192 are due in one block: its list is made anew each time. Bitmaps of the ticks and blocks that
//! hold something find the next one in a few instructions however far it is, so nobody has to tick.

mod bitmap;
mod rings;
mod spare;

use weirgate_units::{Duration, Instant};

pub use self::bitmap::Bitmap;
use self::rings::Rings;
use self::spare::Spare;

/// Ticks in a block. Of half as many and twice as many this is the fastest in the benchmark `bench-shape`, by 1 ns a packet.
const FINE: u64 = 512;

/// A list that had more room than this gives it back when it is empty: what one burst took is not kept for ever.
const ROOM_MAX: usize = 8_192;

/// So many items are sorted by comparing: counting walks all ticks of a block.
const FEW: usize = 32;

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
    /// What came before its block was the present one, that of the first tick that is not done. The last one is the next to come out.
    sorted: List<T>,
    /// What came for the present block since it began.
    late: Rings<T>,
    /// The first tick after it.
    end: u64,
    /// The first tick that may be past the horizon.
    far: u64,
    /// Later blocks; the present one's place is empty.
    blocks: Box<[Block<T>]>,
    blocks_occupied: Bitmap,
    spare: Spare<T>,
    /// Of the ticks of a block, where the next item of each goes while these are sorted.
    places: Box<[u32; FINE as usize]>,
    len: usize,
    /// The tick up to which everything was taken out. What waits is due in one of the ticks after it.
    done: u64,
    /// The first tick in which something is due; `u64::MAX` where nothing waits.
    due: u64,
}

/// Each item with its tick's place in the block.
type List<T> = Vec<(u32, T)>;

#[derive(Clone, Debug)]
struct Block<T> {
    /// In the order in which they came.
    items: List<T>,
    /// The first tick in which one of them is due; `u64::MAX`: there is none.
    first: u64,
}

impl<T: Copy> Wheel<T> {
    /// A wheel whose first tick begins at `now`.
    ///
    /// `tick` is the precision, rounded down to a power of two of nanoseconds, at least 1 ns. `slots` is how many ticks
    /// ahead an item can wait, rounded up to a power of two from 512 to 2^24.
    pub fn new(now: Instant, tick: Duration, slots: usize) -> Self {
        let shift = tick.as_nanos().max(1).ilog2();
        let blocks = (slots.clamp(1, 1 << 24) as u64).div_ceil(FINE).next_power_of_two();
        // Beside those ahead, the present one.
        let blocks = (blocks * 2) as usize;
        let done = now.as_nanos() >> shift;
        let mut wheel = Self {
            shift,
            sorted: Vec::new(),
            late: Rings::default(),
            end: 0,
            far: 0,
            blocks: (0..blocks).map(|_| Block::default()).collect(),
            blocks_occupied: Bitmap::new(blocks),
            spare: Spare::default(),
            places: Box::new([0; FINE as usize]),
            len: 0,
            done,
            due: u64::MAX,
        };
        wheel.begin_block();
        wheel
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
    /// Past 2^32 items due in one block of 512 ticks.
    #[expect(clippy::inline_always, reason = "a call's saved registers are a tenth of what it costs")]
    #[inline(always)]
    pub fn insert(&mut self, at: Instant, item: T) {
        // Rounded up to the first tick whose end is not before `at`: never early.
        let due = at.as_nanos().saturating_add((1 << self.shift) - 1) >> self.shift;
        if (self.end..self.far).contains(&due) {
            let place = self.place(due);
            let block = &mut self.blocks[place];
            if due >= block.first && block.items.len() < block.items.capacity() {
                block.items.push((fine(due) as u32, item));
                self.len += 1;
                return;
            }
        }
        self.insert_anywhere(due, item);
    }

    /// Where there is more to it than a list to be written on.
    #[inline(never)]
    fn insert_anywhere(&mut self, due: u64, item: T) {
        let due = due.max(self.done + 1).min(self.done + self.ahead());
        self.len += 1;
        self.due = self.due.min(due);
        if due < self.end {
            self.late.insert(fine(due), item);
            return;
        }
        let place = self.place(due);
        let block = &mut self.blocks[place];
        if block.items.is_empty() {
            self.blocks_occupied.set(place);
            block.items = self.spare.take();
        } else if block.items.len() == block.items.capacity() {
            self.spare.lengthen(&mut block.items);
        }
        block.first = block.first.min(due);
        block.items.push((fine(due) as u32, item));
    }

    /// Takes out one item that is due at `now`. Constant time, but that the items of a block are sorted when time comes to it;
    /// call until `None`.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<T> {
        let tick = now.as_nanos() >> self.shift;
        if self.due > tick {
            self.advance(tick);
            return None;
        }
        // Everything before this tick is out; the tick itself is not done until its items are.
        self.done = self.due - 1;
        if self.due >= self.end {
            self.begin_block();
        }
        self.len -= 1;
        // Of one tick, what was sorted came earlier.
        let item = match *self.sorted {
            [.., (tick, item)] if tick <= self.late.first => {
                self.sorted.pop();
                item
            }
            _ => self.late.pop(),
        };
        self.due = self.first();
        Some(item)
    }

    /// When [`poll`](Self::poll) will have something: the end of the first occupied tick. `None`: nothing waits.
    pub const fn poll_at(&self) -> Option<Instant> {
        if self.due == u64::MAX { None } else { Some(Instant::from_nanos(self.due.saturating_mul(1 << self.shift))) }
    }

    /// What always holds: the lists, the bitmaps and the counts agree. Walks everything; for tests.
    pub fn is_valid(&self) -> bool {
        let mut blocks = self.blocks.iter().enumerate();
        let later: usize = self.blocks.iter().map(|b| b.items.len()).sum();
        self.late.is_valid()
            && self.sorted.iter().rev().is_sorted_by_key(|item| item.0)
            && self.sorted.len() + self.late.len() + later == self.len
            && blocks.all(|(at, block)| self.blocks_occupied.has(at) != block.items.is_empty())
            && self.blocks.iter().all(|block| block.items.is_empty() == (block.first == u64::MAX))
            && self.blocks_occupied.is_valid()
            && self.due == self.first()
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
        self.far = self.end - FINE + self.ahead();
        let place = self.place(self.done + 1);
        self.late.clear();
        if !self.blocks_occupied.has(place) {
            return;
        }
        self.blocks_occupied.clear(place);
        let Block { mut items, .. } = core::mem::take(&mut self.blocks[place]);
        self.sort(&items);
        items.clear();
        self.spare.keep(items);
    }

    /// Sorts a block's items by tick, backwards.
    fn sort(&mut self, items: &[(u32, T)]) {
        if self.sorted.capacity() > ROOM_MAX {
            self.sorted = Vec::with_capacity(items.len());
        }
        self.sorted.extend_from_slice(items);
        if items.len() <= FEW {
            self.sorted.reverse();
            self.sorted.sort_by_key(|item| core::cmp::Reverse(item.0));
            return;
        }
        self.places.fill(0);
        for (tick, _) in items {
            self.places[fine(u64::from(*tick))] += 1;
        }
        // One past the place of each tick's first item.
        let mut after = items.len() as u32;
        for place in &mut *self.places {
            after -= core::mem::replace(place, after);
        }
        for item in items {
            let place = &mut self.places[fine(u64::from(item.0))];
            *place -= 1;
            self.sorted[*place as usize] = *item;
        }
    }

    /// The first tick in which something is due; `u64::MAX`: nothing waits.
    #[inline]
    fn first(&self) -> u64 {
        let sorted = if let [.., (tick, _)] = *self.sorted { tick } else { NONE };
        let tick = sorted.min(self.late.first);
        if tick != NONE {
            return self.end - FINE + u64::from(tick);
        }
        self.first_later()
    }

    /// The same of the blocks after the present one.
    #[cold]
    fn first_later(&self) -> u64 {
        let place = self.blocks_occupied.next(self.place(self.end)).or_else(|| self.blocks_occupied.next(0));
        place.map_or(u64::MAX, |place| self.blocks[place].first)
    }
}

impl<T> Default for Block<T> {
    fn default() -> Self {
        Self { items: Vec::new(), first: u64::MAX }
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
