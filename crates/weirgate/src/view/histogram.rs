//! A histogram of fixed size whose buckets grow with the value: quantiles of anything positive, to 1.6 %.
//!
//! hdrhistogram is the library for this; what is needed here is one fixed shape that can be cleared and added up without
//! allocating, 8 KB each, so that the daemon's memory has a bound that can be read off the type.

/// Sub-buckets per power of two: 32 makes a bucket 1/32 of its value wide, its middle at most 1/64 (1.6 %) off.
const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
/// Values of 2^40 and more share the last bucket: 1 TB as bytes, 12 days as microseconds, 1.1 Tbit/s as a rate.
const VALUE_BITS: u32 = 40;
const BUCKETS: usize = ((VALUE_BITS - SUB_BITS + 1) as usize) << SUB_BITS;

/// Counts of values by size; 4.6 KB, never grows.
#[derive(Clone)]
pub(super) struct Histogram {
    counts: Box<[u32; BUCKETS]>,
    total: u64,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self { counts: Box::new([0; BUCKETS]), total: 0 }
    }

    /// Counts one `value`. O(1).
    pub(super) fn add(&mut self, value: u64) {
        let count = &mut self.counts[bucket(value)];
        *count = count.saturating_add(1);
        self.total += 1;
    }

    /// Counts all that `other` counted.
    pub(super) fn add_all(&mut self, other: &Self) {
        for (to, from) in self.counts.iter_mut().zip(other.counts.iter()) {
            *to = to.saturating_add(*from);
        }
        self.total += other.total;
    }

    pub(super) fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
    }

    /// How many values were counted.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// For each of `percents` (ascending) the smallest value that at least so many per cent of the values do not exceed
    /// (nearest rank), to 1.6 %; `None` where nothing was counted.
    pub(super) fn percentiles<const N: usize>(&self, percents: [u64; N]) -> Option<[u64; N]> {
        if self.total == 0 {
            return None;
        }
        let mut found = [0; N];
        let mut next = 0;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            while next < N && seen >= (self.total * percents[next]).div_ceil(100).max(1) {
                found[next] = middle(index);
                next += 1;
            }
        }
        Some(found)
    }
}

/// Values below [`SUB`] have a bucket each; above, the power of two and the next [`SUB_BITS`] bits choose.
fn bucket(value: u64) -> usize {
    let value = value.min((1 << VALUE_BITS) - 1);
    if value < SUB as u64 {
        return value as usize;
    }
    let power = value.ilog2();
    let sub = (value >> (power - SUB_BITS)) as usize - SUB;
    (((power - SUB_BITS + 1) as usize) << SUB_BITS) + sub
}

/// The value in the middle of a bucket.
fn middle(bucket: usize) -> u64 {
    if bucket < SUB {
        return bucket as u64;
    }
    let shift = (bucket >> SUB_BITS) as u32 - 1;
    let low = ((bucket & (SUB - 1)) + SUB) as u64;
    (low << shift) + ((1 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_value_is_found_again_to_1_6_per_cent(value in 0u64..1 << VALUE_BITS) {
            let error = middle(bucket(value)).abs_diff(value);
            prop_assert!(error * 64 <= value, "{value} came back {error} off");
        }

        #[test]
        fn percentiles_are_those_of_the_sorted_values(mut values in prop::collection::vec(0u64..1 << 30, 1..300)) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|v| histogram.add(*v));
            values.sort_unstable();
            let found = histogram.percentiles([5, 10, 50, 90]).unwrap();
            for (found, percent) in found.into_iter().zip([5, 10, 50, 90]) {
                let rank = (values.len() * percent).div_ceil(100).max(1);
                let true_value = values[rank - 1];
                prop_assert!(found.abs_diff(true_value) * 64 <= true_value, "p{percent}: {found}, not {true_value}");
            }
        }
    }

    #[test]
    fn the_largest_values_share_the_last_bucket() {
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket((1 << VALUE_BITS) - 1), BUCKETS - 1);
    }

    #[test]
    fn nothing_has_no_percentiles() {
        assert_eq!(Histogram::new().percentiles([50]), None);
    }
}
