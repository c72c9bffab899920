//! A bucket of whole tokens by a clock of microseconds, to compare with: what a token's fractions are worth that it forgets.

use weirgate_shape::Bucket;
use weirgate_units::{Duration, Instant, PacketRate, Packets};

use crate::report::{Table, number};

/// What either may hold, packets.
const DEPTH: u64 = 4;

/// Counts whole tokens; when it has earned some, it forgets the fraction.
#[derive(Debug)]
struct Naive {
    per_sec: u64,
    tokens: u64,
    at_us: u64,
}

impl Naive {
    fn take(&mut self, now_us: u64) -> bool {
        let earned = self.per_sec * (now_us - self.at_us) / 1_000_000;
        if earned > 0 {
            self.tokens = (self.tokens + earned).min(DEPTH);
            self.at_us = now_us;
        }
        let passes = self.tokens > 0;
        self.tokens -= u64::from(passes);
        passes
    }
}

/// What passes it and what passes [`Bucket`] in a second, where a packet comes every microsecond.
pub(super) fn table() -> Table {
    let mut table = Table::new(
        "A packet each microsecond: packets that pass in a second",
        &["limit, packets/s", "whole tokens", "bucket", "whole tokens, %", "bucket, %"],
    );
    for per_sec in [40_000, 100_000, 300_000, 600_000, 900_000] {
        let [naive, bucket] = passes(per_sec);
        let pct = |passed: u64| number(passed as f64 / per_sec as f64 * 100.0);
        table.rows.push(vec![per_sec.to_string(), naive.to_string(), bucket.to_string(), pct(naive), pct(bucket)]);
    }
    table
}

fn passes(per_sec: u64) -> [u64; 2] {
    let mut naive = Naive { per_sec, tokens: 0, at_us: 0 };
    let start = Instant::from_nanos(0);
    let mut bucket = Bucket::new(start, PacketRate::from_packets_per_sec(per_sec), Packets::new(DEPTH));
    let mut passed = [0; 2];
    for us in 1..=1_000_000 {
        let now = start + Duration::from_micros(us);
        passed[0] += u64::from(naive.take(us));
        passed[1] += u64::from(bucket.take(now, Packets::new(1)).is_ok());
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_hundred_thousand_packets_become_two_hundred_and_fifty() {
        // The depth, and what a microsecond more would earn.
        assert_eq!(passes(300_000), [250_000, 300_000 + DEPTH - 1]);
    }
}
