//! Which segments have arrived beyond the expected one, and which of the others are taken for lost (RFC 6675).

/// Segments `start..end`.
pub(super) type Range = (u32, u32);

/// Adds `range` to sorted ranges that neither overlap nor touch; how many segments are new.
pub(super) fn add(ranges: &mut Vec<Range>, range: Range) -> u32 {
    let (mut start, mut end) = range;
    // Nearly always it goes on from the last one.
    let from = ranges.partition_point(|(_, other)| *other < start);
    let to = from + ranges[from..].partition_point(|(other, _)| *other <= end);
    let mut had = 0;
    if from < to {
        start = start.min(ranges[from].0);
        end = end.max(ranges[to - 1].1);
        had = ranges[from..to].iter().map(|(start, end)| end - start).sum();
    }
    if to == from + 1 {
        ranges[from] = (start, end);
    } else {
        ranges.splice(from..to, [(start, end)]);
    }
    end - start - had
}

/// Takes what is below `to` out of sorted ranges; how many segments that are.
pub(super) fn remove_below(ranges: &mut Vec<Range>, to: u32) -> u32 {
    let gone = ranges.partition_point(|(_, end)| *end <= to);
    let mut removed = ranges[..gone].iter().map(|(start, end)| end - start).sum();
    ranges.drain(..gone);
    if let Some((start, _)) = ranges.first_mut()
        && *start < to
    {
        removed += to - *start;
        *start = to;
    }
    removed
}

/// The sender's scoreboard.
#[derive(Clone, Debug)]
pub(super) struct Board {
    /// What has arrived, in order.
    ranges: Vec<Range>,
    /// Segments of these.
    sacked: u32,
    /// Segments below that have not arrived are lost.
    lost_below: u32,
    /// Of these, those below are sent again.
    sent_again_below: u32,
}

impl Board {
    pub(super) const fn new() -> Self {
        Self { ranges: Vec::new(), sacked: 0, lost_below: 0, sent_again_below: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.sacked == 0 && self.lost_below == 0
    }

    /// All below `una` have arrived.
    pub(super) fn advance(&mut self, una: u32) {
        self.sacked -= remove_below(&mut self.ranges, una);
        if una >= self.lost_below {
            (self.lost_below, self.sent_again_below) = (0, 0);
        }
    }

    /// These have arrived.
    pub(super) fn add(&mut self, range: Range) {
        self.sacked += add(&mut self.ranges, range);
    }

    /// How far the last segment that has arrived is from the first of `range` of which that was not known: a threshold of so many would have
    /// waited for it. 0, where it is not beyond. What was sent again is not told from what was sent first, and does not count.
    pub(super) fn overtaken(&self, (start, end): Range) -> u32 {
        let first = self.first_hole(start);
        if first < end && first >= self.sent_again_below { self.highest().saturating_sub(first) } else { 0 }
    }

    /// The end of what has arrived, out of order.
    pub(super) fn highest(&self) -> u32 {
        self.ranges.last().map_or(0, |(_, end)| *end)
    }

    /// What was taken for lost and not sent again is not.
    pub(super) const fn take_back(&mut self) {
        self.lost_below = self.sent_again_below;
    }

    /// Takes for lost what has not arrived while `threshold` segments beyond it have. Whether there is more of that.
    pub(super) fn judge(&mut self, una: u32, threshold: u32) -> bool {
        let mut beyond = 0;
        let mut below = 0;
        for (start, end) in self.ranges.iter().rev() {
            beyond += end - start;
            if beyond >= threshold {
                below = end.saturating_sub(threshold - (beyond - (end - start)));
                break;
            }
        }
        // Below it is something that has not arrived.
        let is_more = below > self.lost_below.max(una) && self.first_hole(self.lost_below.max(una)) < below;
        self.lost_below = self.lost_below.max(if is_more { below } else { 0 });
        is_more
    }

    /// Takes all that has not arrived for lost, up to `next`, and all that was sent again.
    pub(super) const fn lose_all(&mut self, next: u32) {
        (self.lost_below, self.sent_again_below) = (next, 0);
    }

    /// Segments that are under way, of those from `una` to `next`.
    pub(super) fn pipe(&self, una: u32, next: u32) -> u32 {
        let from = self.sent_again_below.max(una);
        let mut lost = self.lost_below.saturating_sub(from);
        for (start, end) in &self.ranges {
            if *start >= self.lost_below {
                break;
            }
            lost -= (*end).min(self.lost_below).saturating_sub((*start).max(from));
        }
        next - una - self.sacked - lost
    }

    /// The next segment to send again.
    pub(super) fn lost(&self, una: u32) -> Option<u32> {
        let hole = self.first_hole(self.sent_again_below.max(una));
        (hole < self.lost_below).then_some(hole)
    }

    /// That one was sent again.
    pub(super) const fn handle_sent_again(&mut self, segment: u32) {
        self.sent_again_below = segment + 1;
    }

    /// The first segment at or after `from` that has not arrived.
    fn first_hole(&self, from: u32) -> u32 {
        let at = self.ranges.partition_point(|(_, end)| *end <= from);
        self.ranges.get(at).filter(|(start, _)| *start <= from).map_or(from, |(_, end)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_three_have_overtaken_is_lost() {
        let mut board = Board::new();
        board.add((1, 3));
        assert!(!board.judge(0, 3));
        board.add((2, 4));
        assert!(board.judge(0, 3));
        assert_eq!((board.lost(0), board.pipe(0, 4)), (Some(0), 0));
        board.handle_sent_again(0);
        assert_eq!((board.lost(0), board.pipe(0, 4)), (None, 1));
        // 4 is a hole too, but only 2 are beyond it.
        board.add((5, 7));
        assert!(!board.judge(0, 3));
        board.advance(4);
        assert_eq!((board.pipe(4, 7), board.lost(4)), (1, None));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Ranges are what a set of segments would be.
        #[test]
        fn ranges_are_a_set(parts in prop::collection::vec((0_u32..60, 1_u32..6), 1..30), below in 0_u32..70) {
            let (mut ranges, mut set) = (Vec::new(), std::collections::BTreeSet::new());
            for (start, len) in parts {
                let had = set.len();
                set.extend(start..start + len);
                prop_assert_eq!(add(&mut ranges, (start, start + len)) as usize, set.len() - had);
            }
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
            let gone = remove_below(&mut ranges, below);
            prop_assert_eq!(gone as usize, set.range(..below).count());
            let left: Vec<u32> = ranges.iter().flat_map(|(start, end)| *start..*end).collect();
            prop_assert!(left.iter().eq(set.range(below..)));
        }
    }
}
