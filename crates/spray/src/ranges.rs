//! Sets of numbers, as the ranges that they come in: packet numbers, and the bytes of an object.

use std::ops::Range;

/// A set of numbers. Steps of each call: the ranges that it touches, and a search among all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// In order, with gaps between them.
    ranges: Vec<Range<u64>>,
}

impl Ranges {
    /// Nothing.
    pub const fn new() -> Self {
        Self { ranges: Vec::new() }
    }

    /// Adds a range; how many of its numbers were not there.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        // Those that it touches become one.
        let first = self.ranges.partition_point(|have| have.end < range.start);
        let last = first + self.ranges[first..].partition_point(|have| have.start <= range.end);
        let touched = &self.ranges[first..last];
        let had: u64 = touched.iter().map(|have| overlap(have, &range)).sum();
        let start = touched.first().map_or(range.start, |have| have.start.min(range.start));
        let end = touched.last().map_or(range.end, |have| have.end.max(range.end));
        self.ranges.splice(first..last, std::iter::once(start..end));
        range.end - range.start - had
    }

    /// Takes a range out; how many of its numbers were there.
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let first = self.ranges.partition_point(|have| have.end <= range.start);
        let last = first + self.ranges[first..].partition_point(|have| have.start < range.end);
        let cut = &self.ranges[first..last];
        let had = cut.iter().map(|have| overlap(have, &range)).sum();
        let before = cut.first().map(|have| have.start..range.start.max(have.start)).filter(|left| !left.is_empty());
        let after = cut.last().map(|have| range.end.min(have.end)..have.end).filter(|left| !left.is_empty());
        self.ranges.splice(first..last, before.into_iter().chain(after));
        had
    }

    /// Whether a number is there.
    pub fn contains(&self, number: u64) -> bool {
        let at = self.ranges.partition_point(|have| have.end <= number);
        self.ranges.get(at).is_some_and(|have| have.start <= number)
    }

    /// Whether all of a range is there; so is all of an empty one.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        let at = self.ranges.partition_point(|have| have.end <= range.start);
        range.is_empty() || self.ranges.get(at).is_some_and(|have| have.start <= range.start && have.end >= range.end)
    }

    /// What of `within` is not there, in order.
    pub fn missing(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.ranges.partition_point(|have| have.end <= within.start);
        let mut at = within.start;
        let ends = self.ranges[first..].iter().cloned().take_while({
            let end = within.end;
            move |have| have.start < end
        });
        let last = within.end..within.end;
        ends.chain([last]).filter_map(move |have| {
            let gap = at..have.start;
            at = at.max(have.end);
            (!gap.is_empty()).then_some(gap)
        })
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Range<u64>> + Clone {
        self.ranges.iter()
    }

    /// The first range.
    pub fn first(&self) -> Option<&Range<u64>> {
        self.ranges.first()
    }

    /// The last range.
    pub fn last(&self) -> Option<&Range<u64>> {
        self.ranges.last()
    }

    /// How many ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there is no number.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many numbers.
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(|have| have.end - have.start).sum()
    }

    /// Forgets the lowest ranges until there are no more than `most`; whether there were more.
    pub fn keep_highest(&mut self, most: usize) -> bool {
        let surplus = self.ranges.len().saturating_sub(most);
        self.ranges.drain(..surplus);
        surplus > 0
    }

    /// Ranges are in order, not empty, and do not touch.
    pub fn is_valid(&self) -> bool {
        self.ranges.iter().all(|have| !have.is_empty()) && self.ranges.windows(2).all(|two| two[0].end < two[1].start)
    }
}

const fn overlap(one: &Range<u64>, other: &Range<u64>) -> u64 {
    let start = if one.start > other.start { one.start } else { other.start };
    let end = if one.end < other.end { one.end } else { other.end };
    end.saturating_sub(start)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_the_set(steps in prop::collection::vec((any::<bool>(), 0_u64..60, 0_u64..20), 0..40), from in 0_u64..70, len in 0_u64..30) {
            let (mut ranges, mut set) = (Ranges::new(), BTreeSet::new());
            for (adds, start, len) in steps {
                let range = start..start + len;
                let (changed, before) = (if adds { ranges.insert(range.clone()) } else { ranges.remove(range.clone()) }, set.len());
                for number in range {
                    if adds { set.insert(number); } else { set.remove(&number); }
                }
                prop_assert!(ranges.is_valid());
                prop_assert_eq!(changed as usize, before.abs_diff(set.len()));
                prop_assert!(ranges.iter().cloned().flatten().eq(set.iter().copied()));
            }
            let within = from..from + len;
            prop_assert!(ranges.missing(within.clone()).flatten().eq(within.clone().filter(|number| !set.contains(number))));
            prop_assert!(ranges.missing(within.clone()).all(|gap| !gap.is_empty()));
            prop_assert_eq!(ranges.covers(&within), within.clone().all(|number| set.contains(&number)));
            prop_assert_eq!(ranges.contains(from), set.contains(&from));
            prop_assert_eq!(ranges.count() as usize, set.len());
        }
    }
}
