//! What came on a path, and what of it is still to be acknowledged.

use std::ops::Range;

use weirgate_units::{Duration, Instant};

use crate::ranges::Ranges;

/// For how long an acknowledgement is held back at most.
pub(crate) const ACK_DELAY: Duration = Duration::from_millis(5);
/// Another path repeats the last acknowledgement of one on which nothing has come for so long.
const REPEAT_AFTER: Duration = Duration::from_millis(10);
/// Packets that come before an acknowledgement goes.
const ACK_EVERY: u32 = 2;
/// Ranges of received packets that are remembered; what is below those that were forgotten counts as received.
const RANGES_MAX: usize = 128;

/// Numbers of packets.
#[derive(Debug)]
pub(crate) struct Received {
    ranges: Ranges,
    /// What is below counts as received: it is not remembered any more what of it was.
    floor: u64,
    /// When the highest one came.
    highest_at: Instant,
    due: Option<Instant>,
    unacked: u32,
    /// Whether another path has taken along what is to be acknowledged.
    is_repeated: bool,
}

impl Received {
    pub(super) fn new(now: Instant) -> Self {
        Self { ranges: Ranges::new(), floor: 0, highest_at: now, due: None, unacked: 0, is_repeated: true }
    }

    /// Whether a packet of this number came before, or is too old to tell.
    pub(crate) fn has(&self, number: u64) -> bool {
        number < self.floor || self.ranges.contains(number)
    }

    /// Whether a packet of this number is the last one so far that was sent.
    pub(crate) fn is_newest(&self, number: u64) -> bool {
        self.ranges.last().is_none_or(|last| number >= last.end)
    }

    /// A packet came that had not before; `is_asking`: for an acknowledgement.
    pub(super) fn insert(&mut self, now: Instant, number: u64, is_asking: bool) {
        let next = self.ranges.last().map_or(0, |last| last.end);
        self.ranges.insert(number..number + 1);
        if self.ranges.keep_highest(RANGES_MAX) {
            self.floor = self.ranges.first().map_or(self.floor, |first| first.start);
        }
        if number >= next {
            self.highest_at = now;
        }
        self.is_repeated = false;
        if is_asking {
            self.unacked += 1;
            let is_now = number != next || self.unacked >= ACK_EVERY;
            let due = if is_now { now } else { now + ACK_DELAY };
            self.due = Some(self.due.map_or(due, |before| before.min(due)));
        }
    }

    /// When an acknowledgement is due; `None`: none is.
    pub(crate) const fn ack_due(&self) -> Option<Instant> {
        self.due
    }

    /// What is to be acknowledged, from the highest range down, and since when.
    pub(crate) fn to_acknowledge(&self, now: Instant) -> (Duration, impl Iterator<Item = &Range<u64>> + Clone) {
        (now.saturating_since(self.highest_at), self.ranges.iter().rev())
    }

    /// Whether another path's packet is to take along what was acknowledged before: nothing has come for a while, and where this path is
    /// dead, its own acknowledgements were lost with it, and what they were of would be sent again.
    pub(crate) fn is_to_repeat(&self, now: Instant) -> bool {
        !self.is_repeated && now.saturating_since(self.highest_at) >= REPEAT_AFTER
    }

    /// An acknowledgement is on its way, by this path or another one.
    pub(crate) const fn acknowledged(&mut self, is_by_other: bool) {
        self.stop();
        self.unacked = 0;
        self.is_repeated |= is_by_other;
    }

    /// No acknowledgement is due any more.
    pub(super) const fn stop(&mut self) {
        self.due = None;
    }

    pub(super) fn is_valid(&self) -> bool {
        self.ranges.is_valid()
    }
}
