//! What was, over time: two rings of points, the last hour finely and the last day coarsely, and one of rounds.

use std::collections::VecDeque;

use weirgate_units::{Duration, UnixTime};

use super::api::{Percentiles, Point, RoundPoint};
use super::collector::Sums;
use super::histogram::Histogram;

/// The percentiles that the article's figures show, and the upper one.
pub(super) const PERCENTS: [u64; 4] = [5, 10, 50, 90];

/// Points of the fine ring: one hour of slots of at least 10 s.
const FINE_POINTS: usize = 360;
const FINE_NS: u64 = 10_000_000_000;
/// Points of the coarse ring: one day of slots of at least a minute.
const COARSE_POINTS: usize = 1_440;
const COARSE_NS: u64 = 60_000_000_000;
/// Rounds kept: one day of rounds of a minute, five days at the usual five.
const ROUND_POINTS: usize = 1_440;

/// What the polls of one slot saw.
pub(super) struct Slot {
    start: Option<UnixTime>,
    /// Delivery rates, bit/s: of connections with data in flight that the application did not limit.
    pub(super) delivery_rate: Histogram,
    /// Smoothed round-trip times, microseconds, one per connection and poll.
    pub(super) rtt: Histogram,
    /// Smallest round-trip times, microseconds, one per connection and poll.
    pub(super) min_rtt: Histogram,
    pub(super) sums: SlotSums,
}

/// The parts of a slot that are sums.
#[derive(Clone, Copy, Default)]
pub(super) struct SlotSums {
    /// The largest number of connections that one poll saw.
    pub(super) connections: u64,
    pub(super) closes: u64,
    pub(super) acked: u64,
    pub(super) sent: u64,
    pub(super) retransmitted: u64,
    /// Nanoseconds that the byte counts above cover; zero where no two polls could be compared.
    pub(super) covered_ns: u64,
}

/// The rings. About 500 KB when full.
pub(super) struct History {
    fine: VecDeque<Point>,
    coarse: VecDeque<Point>,
    coarse_slot: Slot,
    rounds: VecDeque<RoundPoint>,
}

impl SlotSums {
    /// Counts what passed in `interval`.
    pub(super) fn add(&mut self, change: Sums, interval: Duration) {
        self.acked += change.acked;
        self.sent += change.sent;
        self.retransmitted += change.retransmitted;
        self.covered_ns += interval.as_nanos();
    }
}

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            start: None,
            delivery_rate: Histogram::new(),
            rtt: Histogram::new(),
            min_rtt: Histogram::new(),
            sums: SlotSums::default(),
        }
    }

    /// Whether the slot has lasted `ns` at `now`. A civil clock that was set back ends a slot as well.
    fn is_full(&self, now: UnixTime, ns: u64) -> bool {
        self.start.is_some_and(|start| now < start || now.saturating_since(start).as_nanos() >= ns)
    }

    fn add_all(&mut self, other: &Self) {
        self.delivery_rate.add_all(&other.delivery_rate);
        self.rtt.add_all(&other.rtt);
        self.min_rtt.add_all(&other.min_rtt);
        let (to, from) = (&mut self.sums, &other.sums);
        to.connections = to.connections.max(from.connections);
        to.closes += from.closes;
        to.acked += from.acked;
        to.sent += from.sent;
        to.retransmitted += from.retransmitted;
        to.covered_ns += from.covered_ns;
    }

    /// The slot's numbers; the slot begins again at `now`.
    fn take(&mut self, now: UnixTime) -> Point {
        let sums = std::mem::take(&mut self.sums);
        let point = Point {
            time_ms: now.as_nanos() / 1_000_000,
            connections: sums.connections,
            closes: sums.closes,
            goodput_bits_per_s: rate(sums.acked, sums.covered_ns),
            retransmit_share: share(sums.retransmitted, sums.sent),
            delivery_rate_bits_per_s: percentiles(&self.delivery_rate),
            rtt_us: percentiles(&self.rtt),
            min_rtt_us: percentiles(&self.min_rtt),
        };
        self.delivery_rate.clear();
        self.rtt.clear();
        self.min_rtt.clear();
        self.start = Some(now);
        point
    }
}

impl History {
    pub(super) fn new() -> Self {
        Self { fine: VecDeque::new(), coarse: VecDeque::new(), coarse_slot: Slot::new(), rounds: VecDeque::new() }
    }

    /// A poll has ended: closes the fine slot, and the coarse one, where their time has come. Called once per poll; takes
    /// the slot's content when it does.
    pub(super) fn handle_poll_end(&mut self, fine: &mut Slot, now: UnixTime) {
        if fine.start.is_none() {
            // The first poll has nothing before it to be compared with; what it counted belongs to the next slot.
            fine.start = Some(now);
            self.coarse_slot.start = Some(now);
            return;
        }
        if !fine.is_full(now, FINE_NS) {
            return;
        }
        self.coarse_slot.add_all(fine);
        push(&mut self.fine, fine.take(now), FINE_POINTS);
        if self.coarse_slot.is_full(now, COARSE_NS) {
            push(&mut self.coarse, self.coarse_slot.take(now), COARSE_POINTS);
        }
    }

    pub(super) fn handle_round(&mut self, point: RoundPoint) {
        push(&mut self.rounds, point, ROUND_POINTS);
    }

    /// Slots of 10 s (or one poll, where that is longer), oldest first, about an hour of them.
    pub(super) fn fine(&self) -> Vec<Point> {
        self.fine.iter().copied().collect()
    }

    /// The newest of the fine slots.
    pub(super) fn latest(&self) -> Option<Point> {
        self.fine.back().copied()
    }

    /// Slots of a minute, oldest first, about a day of them.
    pub(super) fn coarse(&self) -> Vec<Point> {
        self.coarse.iter().copied().collect()
    }

    /// Rounds, oldest first.
    pub(super) fn rounds(&self) -> Vec<RoundPoint> {
        self.rounds.iter().copied().collect()
    }
}

fn push<T>(ring: &mut VecDeque<T>, item: T, limit: usize) {
    if ring.len() >= limit {
        ring.pop_front();
    }
    ring.push_back(item);
}

/// The four percentiles, where anything was counted.
pub(super) fn percentiles(of: &Histogram) -> Option<Percentiles> {
    let [p5, p10, p50, p90] = of.percentiles(PERCENTS)?;
    Some(Percentiles { count: of.total(), p5, p10, p50, p90 })
}

/// `bytes` in `ns` nanoseconds, in bit/s; `None` where no time passed.
pub(super) fn rate(bytes: u64, ns: u64) -> Option<u64> {
    let bits_per_s = (u128::from(bytes) * 8_000_000_000).checked_div(u128::from(ns))?;
    Some(u64::try_from(bits_per_s).unwrap_or(u64::MAX))
}

/// `part` of `whole`, 0 to 1; `None` of nothing.
pub(super) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn slots_close_after_10_s_and_rings_keep_their_size() {
        let mut history = History::new();
        let mut slot = Slot::new();
        for second in 0..=100_000 {
            slot.rtt.add(second);
            history.handle_poll_end(&mut slot, at(second));
        }
        let (fine, coarse) = (history.fine(), history.coarse());
        assert_eq!((fine.len(), coarse.len()), (FINE_POINTS, COARSE_POINTS));
        assert_eq!(fine.last().unwrap().time_ms, 100_000_000);
        assert_eq!(fine.last().unwrap().rtt_us.unwrap().count, 10);
        assert_eq!(coarse.last().unwrap().rtt_us.unwrap().count, 60);
    }

    #[test]
    fn a_clock_set_back_does_not_stop_the_history() {
        let mut history = History::new();
        let mut slot = Slot::new();
        history.handle_poll_end(&mut slot, at(1_000));
        history.handle_poll_end(&mut slot, at(500));
        history.handle_poll_end(&mut slot, at(510));
        assert_eq!(history.fine().len(), 2);
    }

    #[test]
    fn rates_and_shares_of_nothing_are_unknown() {
        assert_eq!(rate(10, 0), None);
        assert_eq!(rate(u64::MAX, 1), Some(u64::MAX));
        assert_eq!(rate(125_000_000, 1_000_000_000), Some(1_000_000_000));
        assert_eq!(share(1, 0), None);
        assert_eq!(share(1, 4), Some(0.25));
    }
}
