//! What is measured.

use weirgate_balance::topology::Kind;
use weirgate_units::BitRate;

use crate::{Span, Time};

/// A flow that has arrived as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its payload.
    pub bytes: u64,
    /// From its start until its last byte was there: the flow completion time.
    pub time: Span,
    /// When it began.
    pub began: Time,
    /// The host that sent it, by number.
    pub source: u32,
    /// The host that it went to.
    pub destination: u32,
    /// What its workload calls it.
    pub class: u8,
    /// Segments that were dropped or lost.
    pub lost: u32,
    /// ACKs that its receiver sent for segments out of order.
    pub dup_acks: u32,
    /// Of these, those for a last segment that was shorter than the others.
    pub dup_acks_of_short_last: u32,
    /// The most of them in a row: what a sender's threshold meets.
    pub dup_ack_row: u32,
    /// Segments that were sent again.
    pub sent_again: u32,
    /// How often its timer ran out.
    pub timeouts: u32,
    /// Batches that its host would have handed up (GRO).
    pub batches: u32,
}

/// What a flow's duplicate ACKs come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It lost a segment.
    Loss,
    /// It lost nothing, and all are of a last segment that was shorter than the others, and overtook.
    ShortLast,
    /// It lost nothing, and others overtook as well.
    Reordering,
}

impl Finished {
    /// What its duplicate ACKs come from; none, where there are none.
    pub const fn cause(&self) -> Option<Cause> {
        if self.dup_acks == 0 {
            None
        } else if self.lost > 0 {
            Some(Cause::Loss)
        } else if self.dup_acks == self.dup_acks_of_short_last {
            Some(Cause::ShortLast)
        } else {
            Some(Cause::Reordering)
        }
    }
}

/// Where a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hop {
    /// In a host.
    Host,
    /// In a switch of this stage, towards a higher one.
    Up(u8),
    /// In a switch of this stage, towards a lower one, or its own.
    Down(u8),
    /// In a leaf, towards a host.
    Edge,
}

impl Hop {
    pub(crate) const fn of(from: Kind, to: Kind) -> Self {
        match (from, to) {
            (Kind::Host, _) => Self::Host,
            (_, Kind::Host) => Self::Edge,
            (Kind::Switch { stage: from }, Kind::Switch { stage: to }) if from < to => Self::Up(from),
            (Kind::Switch { stage }, _) => Self::Down(stage),
        }
    }
}

/// Queues that should be alike, measured again and again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queues {
    /// Times that two or more were measured.
    pub samples: u64,
    /// The sum of the standard deviations of their lengths, in bytes.
    pub deviation_sum: f64,
    /// How often a queue had so many bytes: by hundreds, what is longer in the last place.
    pub lengths: Vec<u64>,
}

/// Places of [`Queues::lengths`]: 3 MB.
const LENGTHS: usize = 30_000;

impl Queues {
    /// The mean standard deviation of queues that should be alike, in bytes; none, where there were never two at once.
    pub fn deviation(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.deviation_sum / self.samples as f64)
    }

    /// The share of samples of a queue that was no longer than so many bytes, rounded down to hundreds; 0, if there is none.
    pub fn share_up_to(&self, bytes: u64) -> f64 {
        let all: u64 = self.lengths.iter().sum();
        let short: u64 = self.lengths.iter().take((bytes / 100) as usize + 1).sum();
        short as f64 / all.max(1) as f64
    }

    fn sample(&mut self, depths: impl Iterator<Item = u64>) {
        let (mut queues, mut sum, mut squares) = (0_u32, 0_u64, 0_u128);
        if self.lengths.is_empty() {
            self.lengths = vec![0; LENGTHS];
        }
        for depth in depths {
            queues += 1;
            sum += depth;
            squares += u128::from(depth) * u128::from(depth);
            self.lengths[(depth as usize).div_ceil(100).min(LENGTHS - 1)] += 1;
        }
        // One queue, or none, is neither even nor uneven.
        if queues < 2 {
            return;
        }
        let queues = f64::from(queues);
        let mean = sum as f64 / queues;
        self.samples += 1;
        self.deviation_sum += (squares as f64 / queues - mean * mean).max(0.0).sqrt();
    }
}

/// What was carried while the flows that are measured began: then the workload is what it is meant to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// How long that was: until the last of them began; until now, where it has not.
    pub time: Span,
    /// Payload that receivers had in order, of all flows, those that began before included, in bytes.
    pub payload: u64,
    /// The rate of each line from a leaf to another switch, and the bytes that left by it, to a packet; those that routing takes for down
    /// are left out.
    pub uplinks: Vec<(BitRate, u64)>,
    /// The same of all lines, each with its place among the hops.
    pub lines: Vec<(Hop, BitRate, u64)>,
}

/// What was measured of a run since it was last begun.
#[derive(Clone, Debug)]
pub struct Measures {
    /// Since when.
    pub began: Time,
    /// How many flows.
    pub(crate) limit: u64,
    /// Nothing begins any more from then on: as long after the last of them began as they took to begin.
    pub(crate) ends_at: Time,
    /// The places of hops, as lines name them.
    pub(crate) hops: Vec<Hop>,
    /// Those that have arrived as a whole.
    pub finished: Vec<Finished>,
    /// Measured flows that began.
    pub started: u64,
    /// Payload that receivers had in order, of all flows, those that began before included, in bytes.
    pub(crate) delivered: u64,
    /// What was carried until the last of those that are measured began.
    pub(crate) carried: Option<Carried>,
    /// Packets for which a switch had no way.
    pub no_route: u64,
    /// The uplinks of each leaf.
    pub up: Queues,
    /// The downlinks to each leaf.
    pub down: Queues,
}

impl Default for Measures {
    fn default() -> Self {
        Self {
            began: Time::ZERO,
            limit: u64::MAX,
            ends_at: Time::MAX,
            hops: Vec::new(),
            finished: Vec::new(),
            started: 0,
            delivered: 0,
            carried: None,
            no_route: 0,
            up: Queues::default(),
            down: Queues::default(),
        }
    }
}

impl Measures {
    /// A flow begins: whether it is measured.
    pub(crate) fn begin(&mut self, now: Time) -> bool {
        let is_measured = self.started < self.limit;
        self.started += u64::from(is_measured);
        if is_measured && self.started == self.limit {
            self.ends_at = now + now.saturating_since(self.began);
        }
        is_measured
    }

    /// Whether nothing begins any more: all that is to be measured has begun and 99 % of it has arrived, or the time for that is over.
    pub(crate) fn is_enough(&self, now: Time) -> bool {
        now >= self.ends_at
            || (self.started >= self.limit && self.finished.len() as u64 * 100 >= self.limit.saturating_mul(99))
    }

    pub(crate) fn place(&mut self, hop: Hop) -> u8 {
        let at = self.hops.iter().position(|other| *other == hop).unwrap_or_else(|| {
            self.hops.push(hop);
            self.hops.len() - 1
        });
        at as u8
    }

    pub(crate) fn sample(&mut self, is_up: bool, depths: impl Iterator<Item = u64>) {
        if is_up { &mut self.up } else { &mut self.down }.sample(depths);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_counted_by_hundreds_of_bytes() {
        let mut queues = Queues::default();
        assert_eq!(queues.share_up_to(1_538), 0.0);
        queues.sample([0, 1_500, 1_501, 5_000_000].into_iter());
        assert_eq!(
            [0, 1_499, 1_538, 1_600, 10_000].map(|bytes| queues.share_up_to(bytes)),
            [0.25, 0.25, 0.5, 0.75, 0.75]
        );
        assert_eq!(queues.samples, 1);
    }

    #[test]
    fn one_queue_has_a_length_and_is_neither_even_nor_uneven() {
        let mut queues = Queues::default();
        queues.sample([1_538].into_iter());
        assert_eq!((queues.deviation(), queues.share_up_to(1_500), queues.share_up_to(1_600)), (None, 0.0, 1.0));
        queues.sample([0, 1_000].into_iter());
        queues.sample([].into_iter());
        assert_eq!(queues.deviation(), Some(500.0));
    }
}
