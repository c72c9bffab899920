//! What happens next: a wheel of buckets for the near future, a heap for the far one, and a slab for what is to happen.
//!
//! Ground rules:
//!
//! - Order: by time, and of what happens at the same time, what was scheduled first. It follows from how things are kept, and costs no
//!   number per event in the wheel: a bucket is a list with the last one first, sorted stably when time comes to it.
//! - What is to happen lies in one slab, with its time and its list's link, in a cache line of its own: a packet *is* its next event.
//! - The heap is asked whenever time comes to another bucket, before anything can be scheduled in the bucket that has come into reach.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weirgate_shape::Bitmap;

use crate::Time;

/// No node.
const NONE: u32 = u32::MAX;

/// The buckets of the wheel: with those of 1,024 ps, 268 us.
const BUCKETS: u64 = 1 << 18;

/// 1,024 ps: at 320 hosts and 80 % load one or two events.
const SHIFT: u32 = 10;

/// Something that happens, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId(u32);

/// What is to happen, and when.
#[derive(Debug)]
pub struct Events<T> {
    nodes: Vec<Node<T>>,
    /// The first of the free nodes.
    free: u32,
    /// The last one that was scheduled in each bucket.
    heads: Box<[u32]>,
    occupied: Bitmap,
    /// The bucket that time is in, counted from the start.
    bucket: u64,
    /// What is left of it, the next one last.
    active: Vec<(Time, u32)>,
    /// Beyond the wheel: time, number, node.
    later: BinaryHeap<Reverse<(Time, u64, u32)>>,
    scheduled_later: u64,
    pending: usize,
}

#[derive(Debug)]
#[repr(align(64))]
struct Node<T> {
    at: Time,
    next: u32,
    item: T,
}

impl<T> Default for Events<T> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free: NONE,
            heads: vec![NONE; BUCKETS as usize].into_boxed_slice(),
            occupied: Bitmap::new(BUCKETS as usize),
            bucket: 0,
            active: Vec::new(),
            later: BinaryHeap::new(),
            scheduled_later: 0,
            pending: 0,
        }
    }
}

const fn bucket_of(at: Time) -> u64 {
    at.as_picos() >> SHIFT
}

const fn place(bucket: u64) -> usize {
    (bucket & (BUCKETS - 1)) as usize
}

impl<T> Events<T> {
    /// Nothing, at time zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Something is to happen. `at` is not before what was [popped](Self::pop) last.
    pub fn schedule(&mut self, at: Time, item: T) -> EventId {
        let id = self.keep(item);
        self.reschedule(EventId(id), at);
        EventId(id)
    }

    /// What was popped is to happen, or happens again. It must not be scheduled.
    #[inline]
    pub fn reschedule(&mut self, id: EventId, at: Time) {
        let EventId(id) = id;
        self.pending += 1;
        let node = &mut self.nodes[id as usize];
        node.at = at;
        let bucket = bucket_of(at);
        if bucket.wrapping_sub(self.bucket + 1) < BUCKETS - 1 {
            let head = &mut self.heads[place(bucket)];
            if *head == NONE {
                self.occupied.set(place(bucket));
            }
            node.next = std::mem::replace(head, id);
        } else if bucket <= self.bucket {
            // Last of its time, so before all of it here.
            let before = self.active.partition_point(|(other, _)| *other > at);
            self.active.insert(before, (at, id));
        } else {
            self.later.push(Reverse((at, self.scheduled_later, id)));
            self.scheduled_later += 1;
        }
    }

    /// What happens next, and when. It stays in the slab until it is [taken](Self::take).
    #[inline]
    pub fn pop(&mut self) -> Option<(Time, EventId)> {
        loop {
            if let Some((at, id)) = self.active.pop() {
                self.pending -= 1;
                return Some((at, EventId(id)));
            }
            if self.pending == 0 {
                return None;
            }
            self.advance();
        }
    }

    /// When something happens next, at the earliest.
    pub fn pop_at(&mut self) -> Option<Time> {
        while self.active.is_empty() && self.pending > 0 {
            self.advance();
        }
        self.active.last().map(|(at, _)| *at)
    }

    /// How much is scheduled.
    pub const fn len(&self) -> usize {
        self.pending
    }

    /// Whether nothing will happen.
    pub const fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// Puts something away without scheduling it.
    pub fn hold(&mut self, item: T) -> EventId {
        EventId(self.keep(item))
    }

    fn keep(&mut self, item: T) -> u32 {
        if self.free == NONE {
            self.nodes.push(Node { at: Time::ZERO, next: NONE, item });
            return (self.nodes.len() - 1) as u32;
        }
        let id = self.free;
        let node = &mut self.nodes[id as usize];
        self.free = node.next;
        node.item = item;
        id
    }

    /// Time comes to the next bucket that has something; something is pending.
    fn advance(&mut self) {
        let from = place(self.bucket + 1);
        let found = self.occupied.next(from).or_else(|| self.occupied.next(0));
        self.bucket = match (found, self.later.peek()) {
            (Some(found), _) => {
                let ahead = (found as u64).wrapping_sub(from as u64) & (BUCKETS - 1);
                self.bucket + 1 + ahead
            }
            (None, Some(Reverse((at, ..)))) => bucket_of(*at),
            (None, None) => unreachable!("something is pending"),
        };
        while let Some(Reverse((at, _, id))) = self.later.peek().copied() {
            if bucket_of(at) >= self.bucket + BUCKETS {
                break;
            }
            self.later.pop();
            let bucket = place(bucket_of(at));
            if self.heads[bucket] == NONE {
                self.occupied.set(bucket);
            }
            self.nodes[id as usize].next = std::mem::replace(&mut self.heads[bucket], id);
        }
        let bucket = place(self.bucket);
        let mut id = std::mem::replace(&mut self.heads[bucket], NONE);
        self.occupied.clear(bucket);
        while id != NONE {
            let node = &self.nodes[id as usize];
            self.active.push((node.at, id));
            id = node.next;
        }
        // Stable: of one time, what was scheduled last stays first, and comes out last.
        self.active.sort_by_key(|(at, _)| Reverse(*at));
    }
}

impl<T: Copy> Events<T> {
    /// What happens, out of the slab.
    pub fn take(&mut self, id: EventId) -> T {
        let node = &mut self.nodes[id.0 as usize];
        node.next = std::mem::replace(&mut self.free, id.0);
        node.item
    }
}

impl<T> std::ops::Index<EventId> for Events<T> {
    type Output = T;

    fn index(&self, id: EventId) -> &T {
        &self.nodes[id.0 as usize].item
    }
}

impl<T> std::ops::IndexMut<EventId> for Events<T> {
    fn index_mut(&mut self, id: EventId) -> &mut T {
        &mut self.nodes[id.0 as usize].item
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// As a heap of (time, number) would have it, whatever is scheduled in between.
        #[test]
        fn in_order_of_time_and_then_of_scheduling(
            steps in prop::collection::vec((prop_oneof![0_u64..3_000, 0_u64..400_000_000, 0_u64..2_000_000_000_000], 0_usize..4), 1..300)
        ) {
            let mut events = Events::new();
            let mut heap = BinaryHeap::new();
            let mut now = Time::ZERO;
            for (number, (ahead, pops)) in steps.into_iter().enumerate() {
                let at = Time::from_picos(now.as_picos() + ahead);
                events.schedule(at, number);
                heap.push(Reverse((at, number)));
                for _ in 0..pops {
                    let popped = events.pop().map(|(at, id)| (at, events.take(id)));
                    prop_assert_eq!(popped, heap.pop().map(|Reverse(next)| next));
                    now = popped.map_or(now, |(at, _)| at);
                }
                prop_assert_eq!(events.len(), heap.len());
            }
            while let Some(Reverse(next)) = heap.pop() {
                prop_assert_eq!(events.pop_at(), Some(next.0));
                let (at, id) = events.pop().unwrap();
                prop_assert_eq!((at, events.take(id)), next);
            }
            prop_assert!(events.pop().is_none() && events.is_empty());
        }
    }
}
