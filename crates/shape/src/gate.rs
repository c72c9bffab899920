//! Back-pressure: not reading a queue until what was read from it before is paid for.
//!
//! A virtual machine's queue is a buffer, and its owner slows down when it is full. The article that this is after keeps
//! an instant before which the queue is not read, then reads *all* that is in it and borrows from the future. That
//! overshoots by a queue, at low rates visibly (the queue is on, then off), and with several queues whoever has most gets
//! most. Here a look reads at most what is earned and one packet beyond it (a virtual queue cannot be peeked into), and
//! queues take turns by deficit (Shreedhar and Varghese, "Efficient fair queuing using deficit round robin", 1995), so
//! that the next turn pays for a packet that was larger than its share.
//!
//! **The bound.** In every window of time `t`, at most `rate * t + burst + one packet`, over all queues.

use std::collections::VecDeque;

use weirgate_units::{BitRate, Bytes, Duration, Instant};

use crate::bucket::{Bucket, Short};

/// One of a gate's queues, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(u32);

impl QueueId {
    /// Queues are numbered from 0 in the order in which they were added.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One limit over queues that can be left unread.
#[derive(Clone, Debug)]
pub struct Gate {
    bucket: Bucket,
    /// What a turn is worth.
    quantum: i64,
    queues: Vec<Queue>,
    /// Those that have something, in the order of their turns.
    turns: VecDeque<QueueId>,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    /// What it may still read in this turn; negative is owed from turns before.
    deficit: i64,
    waiting: bool,
}

impl Gate {
    /// An open gate without queues. `burst` may pass at once after idling; at least one packet, or the rate is not met
    /// between two looks (see [`Bucket`]). `quantum` is a queue's turn: a packet's size, or a multiple.
    pub fn new(now: Instant, rate: BitRate, burst: Bytes, quantum: Bytes) -> Self {
        Self {
            bucket: Bucket::new(now, rate, burst),
            quantum: i64::try_from(quantum.as_u64().max(1)).unwrap_or(i64::MAX),
            queues: Vec::new(),
            turns: VecDeque::new(),
        }
    }

    /// Adds a queue with nothing in it.
    ///
    /// # Panics
    /// Past 2^32 queues.
    pub fn add_queue(&mut self) -> QueueId {
        let id = QueueId(u32::try_from(self.queues.len()).expect("fewer than 2^32 queues"));
        self.queues.push(Queue { deficit: 0, waiting: false });
        id
    }

    /// Says that `queue` has something to be read. Constant time.
    pub fn handle_ready(&mut self, queue: QueueId) {
        let known = &mut self.queues[queue.index()];
        if !known.waiting {
            known.waiting = true;
            // Idling earns nothing, and forgives nothing.
            known.deficit = known.deficit.min(0);
            self.turns.push_back(queue);
        }
    }

    /// The queue to read now, and how many bytes from it: stop at the first packet with which so many were read. `None`:
    /// the gate is closed, or nothing waits. Steps: one per queue, and once more for each quantum that the poorest owes.
    pub fn poll_queue(&mut self, now: Instant) -> Option<(QueueId, Bytes)> {
        self.bucket.check(now, self.least()).ok()?;
        let earned = self.bucket.level();
        loop {
            let queue = *self.turns.front()?;
            let state = &mut self.queues[queue.index()];
            if state.deficit > 0 {
                let turn = Bytes::new(u64::try_from(state.deficit).unwrap_or(1));
                return Some((queue, turn.min(earned).max(Bytes::new(1))));
            }
            state.deficit = state.deficit.saturating_add(self.quantum);
            if state.deficit <= 0 {
                self.turns.rotate_left(1);
            }
        }
    }

    /// Gives the turn to the next queue, where it is `queue`'s and that one is left unread for another reason. Constant time.
    pub fn skip(&mut self, queue: QueueId) {
        if self.turns.front() == Some(&queue) {
            self.turns.rotate_left(1);
        }
    }

    /// Says what was read from the queue that [`poll_queue`](Self::poll_queue) named, and whether it has more.
    pub fn handle_read(&mut self, now: Instant, queue: QueueId, read: Bytes, more: bool) {
        self.bucket.charge(now, read);
        let state = &mut self.queues[queue.index()];
        state.deficit = state.deficit.saturating_sub(i64::try_from(read.as_u64()).unwrap_or(i64::MAX));
        let over = state.deficit <= 0;
        if !more {
            state.waiting = false;
        }
        if self.turns.front() == Some(&queue) && (over || !more) {
            self.turns.pop_front();
            if more {
                self.turns.push_back(queue);
            }
        }
        debug_assert!(self.is_valid());
    }

    /// When the gate opens, if it is closed and something waits. `None`: nothing waits, or the rate is zero.
    pub fn poll_at(&self) -> Option<Instant> {
        if self.turns.is_empty() {
            return None;
        }
        self.bucket.ready_at(self.least())
    }

    /// Takes `size` of something that comes past the gate's queues and cannot be held back.
    ///
    /// # Errors
    /// [`Short`]: nothing was taken.
    pub fn take(&mut self, now: Instant, size: Bytes) -> Result<(), Short> {
        self.bucket.take(now, size)
    }

    /// Puts back what [`take`](Self::take) took.
    pub fn refund(&mut self, size: Bytes) {
        self.bucket.refund(size);
    }

    /// The rate.
    pub const fn rate(&self) -> BitRate {
        self.bucket.rate()
    }

    /// Changes the rate from `now` on; what is owed stays.
    pub fn set_rate(&mut self, now: Instant, rate: BitRate) {
        self.bucket.set_rate(now, rate);
    }

    /// Changes what may pass at once after idling, from `now` on.
    pub fn set_burst(&mut self, now: Instant, burst: Bytes) {
        self.bucket.set_depth(now, burst);
    }

    /// Changes what a turn is worth, from the next one on.
    pub fn set_quantum(&mut self, quantum: Bytes) {
        self.quantum = i64::try_from(quantum.as_u64().max(1)).unwrap_or(i64::MAX);
    }

    /// What must be earned for a look: a byte, or no debt where nothing can be saved up.
    fn least(&self) -> Bytes {
        Bytes::new(1).min(self.bucket.depth())
    }

    /// What always holds: exactly the waiting queues have turns.
    pub fn is_valid(&self) -> bool {
        self.bucket.is_valid()
            && self.turns.len() == self.queues.iter().filter(|q| q.waiting).count()
            && self.turns.iter().all(|id| self.queues[id.index()].waiting)
    }
}

/// A quantum for `rate`: what it earns in a millisecond, at least a packet of `packet_max` and at most 64 KB, so that a turn
/// is short and a look is worth its cost.
pub fn quantum(rate: BitRate, packet_max: Bytes) -> Bytes {
    rate.bytes_in(Duration::from_millis(1)).min(Bytes::new(65_536)).max(packet_max)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MTU: u64 = 1_500;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// Reads packets of `sizes[queue]` from queues that never run dry, looking whenever the gate says; (instant, queue, size).
    fn run(gate: &mut Gate, sizes: &[u64], end: u64) -> Vec<(u64, usize, u64)> {
        let queues: Vec<QueueId> = sizes.iter().map(|_| gate.add_queue()).collect();
        queues.iter().for_each(|q| gate.handle_ready(*q));
        let (mut now, mut read) = (at(0), vec![]);
        while now < at(end) {
            while let Some((queue, budget)) = gate.poll_queue(now) {
                let mut sum = 0;
                while sum < budget.as_u64() {
                    sum += sizes[queue.index()];
                    read.push((now.as_nanos(), queue.index(), sizes[queue.index()]));
                }
                gate.handle_read(now, queue, Bytes::new(sum), true);
                assert!(gate.is_valid());
            }
            now = gate.poll_at().expect("it opens again");
        }
        read
    }

    #[test]
    fn at_five_megabit_per_second_nothing_comes_in_bursts() {
        let rate = BitRate::from_bits_per_sec(5_000_000);
        let mut gate = Gate::new(at(0), rate, Bytes::new(2 * MTU), quantum(rate, Bytes::new(MTU)));
        let read = run(&mut gate, &[MTU], 10_000_000_000);
        // Every window of 10 ms: 6,250 B, the burst, and a packet.
        for (i, (from, ..)) in read.iter().enumerate() {
            let sum: u64 = read[i..].iter().take_while(|(t, ..)| t - from < 10_000_000).map(|(.., size)| size).sum();
            assert!(sum <= 6_250 + 2 * MTU + MTU, "{sum} B in 10 ms at {from}");
        }
        let sum: u64 = read.iter().map(|(.., size)| size).sum();
        assert!(sum.abs_diff(6_250_000) < 3 * MTU + MTU, "{sum}");
    }

    #[test]
    fn an_elephant_starves_no_mouse() {
        let rate = BitRate::from_bits_per_sec(100_000_000);
        let mut gate = Gate::new(at(0), rate, Bytes::new(2 * MTU), quantum(rate, Bytes::new(MTU)));
        let read = run(&mut gate, &[64_000, 100, 1_500], 10_000_000_000);
        let of = |queue: usize| read.iter().filter(|(_, q, _)| *q == queue).map(|(.., size)| *size as f64).sum::<f64>();
        let third = 125e6 / 3.0;
        for queue in 0..3 {
            assert!((of(queue) / third - 1.0).abs() < 0.01, "queue {queue}: {} of {third}", of(queue));
        }
    }

    proptest! {
        #[test]
        fn no_window_passes_more_than_the_bound(
            rate in 100_000_u64..10_000_000_000, burst in 0_u64..20_000, sizes in prop::collection::vec(64_u64..9_000, 1..5),
        ) {
            let rate = BitRate::from_bits_per_sec(rate);
            let turn = quantum(rate, Bytes::new(MTU));
            let mut gate = Gate::new(at(0), rate, Bytes::new(burst), turn);
            let read = run(&mut gate, &sizes, rate.time_for(Bytes::new(200_000)).as_nanos());
            let slack = burst + sizes.iter().max().unwrap();
            for (i, (from, ..)) in read.iter().enumerate().step_by(7) {
                let mut sum = 0_u128;
                for (t, _, size) in &read[i..] {
                    sum += u128::from(*size) * 8_000_000_000;
                    let bound = u128::from(rate.as_bits_per_sec()) * u128::from(t - from);
                    prop_assert!(sum <= bound + u128::from(slack) * 8_000_000_000);
                }
            }
        }
    }
}
