//! Where items wait that came for the block that time is in: they cannot be sorted with the others any more.

use super::bitmap::Ticks;
use super::{FINE, NONE, ROOM_MAX};

/// Items of one block in rings, one for each tick, in the order in which they came; the room of those that are out in a list.
#[derive(Clone, Debug)]
pub(super) struct Rings<T> {
    /// Each with the number of the next one of its ring, or of its list.
    items: Vec<(u32, T)>,
    /// The last item of each tick, whose next one is the first; [`NONE`]: it has none.
    last: Box<[u32; FINE as usize]>,
    occupied: Ticks,
    /// The first tick that has one; [`NONE`]: none has.
    pub(super) first: u32,
    /// The first of the places whose items are out, and are free.
    free: u32,
}

impl<T> Default for Rings<T> {
    fn default() -> Self {
        let last = Box::new([NONE; FINE as usize]);
        Self { items: Vec::new(), last, occupied: Ticks::default(), first: NONE, free: NONE }
    }
}

impl<T: Copy> Rings<T> {
    /// Forgets the room of items, which are all out.
    pub(super) fn clear(&mut self) {
        self.free = NONE;
        self.items.clear();
        if self.items.capacity() > ROOM_MAX {
            self.items = Vec::new();
        }
    }

    #[inline]
    pub(super) fn insert(&mut self, tick: usize, item: T) {
        let mut number = self.free;
        if let Some(place) = self.items.get_mut(number as usize) {
            self.free = place.0;
            place.1 = item;
        } else {
            number = u32::try_from(self.items.len()).unwrap_or(NONE);
            assert!(number != NONE, "fewer than 2^32 items in a block");
            self.items.push((NONE, item));
        }
        let before = core::mem::replace(&mut self.last[tick], number);
        // Alone, it is its own next one.
        let before = if before == NONE { number } else { before };
        self.items[number as usize].0 = number;
        self.items[number as usize].0 = core::mem::replace(&mut self.items[before as usize].0, number);
        self.occupied.set(tick);
        self.first = self.first.min(tick as u32);
    }

    /// Takes out the first item of the first tick, where there is one.
    #[inline]
    pub(super) fn pop(&mut self) -> T {
        let tick = self.first as usize;
        let last = self.last[tick];
        let first = self.items[last as usize].0;
        if first == last {
            self.last[tick] = NONE;
            self.occupied.clear(tick);
            self.first = self.occupied.next(tick).map_or(NONE, |tick| tick as u32);
        } else {
            self.items[last as usize].0 = self.items[first as usize].0;
        }
        let (next, item) = &mut self.items[first as usize];
        *next = core::mem::replace(&mut self.free, first);
        *item
    }

    /// The number of items that wait.
    pub(super) fn len(&self) -> usize {
        let free = core::iter::successors(Some(self.free), |at| self.items.get(*at as usize).map(|item| item.0));
        self.items.len() - free.take_while(|at| *at != NONE).count()
    }

    pub(super) fn is_valid(&self) -> bool {
        let mut last = self.last.iter().enumerate();
        let ring = |last: u32| {
            let after = core::iter::successors(Some(last), |at| Some(self.items[*at as usize].0));
            1 + after.skip(1).take_while(|at| *at != last).count()
        };
        let linked: usize = self.last.iter().filter(|last| **last != NONE).map(|last| ring(*last)).sum();
        self.occupied.is_valid()
            && self.first == self.occupied.next(0).map_or(NONE, |tick| tick as u32)
            && last.all(|(tick, last)| self.occupied.has(tick) == (*last != NONE))
            && linked == self.len()
    }
}
