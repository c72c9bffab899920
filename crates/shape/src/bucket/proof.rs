//! The bucket's arithmetic, by exhaustion: every step from every state of a scaled-down bucket, against whole-number arithmetic
//! written down independently, and every step from the extremes of the real one.
//!
//! Why one step is enough: a bucket's state is its level (and the instant for which that holds), so what holds for every step
//! from every state holds for every sequence. With [`every_step_of_a_small_bucket`] each step conserves
//! `level + rate * time - taken`, but for what a full bucket loses, and leaves `level <= depth`; a conforming `take` leaves
//! `level >= 0`. Summed over the steps of any window of time `t`: what was taken is at most
//! `level at its start - level at its end + rate * t`, and so at most `depth + rate * t`.

use super::*;

/// An amount of which one costs three units, so that a step can earn less than one of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Small(u64);

const NANO: i128 = 3;

impl Amount for Small {
    type Rate = u64;

    const NANO: i128 = NANO;

    fn count(self) -> u64 {
        self.0
    }

    fn of(count: u64) -> Self {
        Self(count)
    }

    fn per_sec(rate: u64) -> u64 {
        rate
    }
}

/// After `wait` at `rate`, in the bucket's units.
fn earned(level: i128, rate: u64, wait: u64, depth: u64) -> i128 {
    (level + i128::from(rate) * i128::from(wait)).min(i128::from(depth) * NANO)
}

#[test]
fn every_step_of_a_small_bucket() {
    let began = Instant::from_nanos(1_000);
    let mut steps = 0_u64;
    for depth in 0..=6_u64 {
        for rate in 0..=8_u64 {
            for level in -40..=i128::from(depth) * NANO {
                let bucket = Bucket { rate, depth: Small(depth), level, at: began };
                for wait in 0..=12 {
                    let now = began + Duration::from_nanos(wait);
                    let after = earned(level, rate, wait, depth);
                    for amount in 0..=8 {
                        step(&bucket, now, amount, after);
                        steps += 1;
                    }
                }
            }
        }
    }
    let levels: u64 = (0..=6).map(|depth| 41 + depth * 3).sum();
    assert_eq!(steps, levels * 9 * 13 * 9, "every one");
}

/// All that can be asked of `bucket` at `now`, when its level is to be `after`.
fn step(bucket: &Bucket<Small>, now: Instant, amount: u64, after: i128) {
    let (small, cost) = (Small(amount), i128::from(amount) * NANO);
    // Taking: all or nothing.
    let mut taker = bucket.clone();
    let taken = taker.take(now, small);
    assert_eq!(taken.is_ok(), after >= cost, "{bucket:?} {amount}");
    assert_eq!(taker.level, if taken.is_ok() { after - cost } else { after });
    // Refused: the instant is the first at which it would not be, found by trying them all.
    if let Err(Short { ready_at }) = taken {
        let first = (0..=100).find(|wait| earned(after, bucket.rate, *wait, bucket.depth.0) >= cost);
        assert_eq!(ready_at, first.map(|wait| now + Duration::from_nanos(wait)), "{bucket:?} {amount}");
    }
    // Charging: into debt, where need be.
    let mut debtor = bucket.clone();
    debtor.charge(now, small);
    assert_eq!(debtor.level, after - cost);
    // Putting back: never above the depth.
    debtor.refund(small);
    assert_eq!(debtor.level, after);
    debtor.refund(small);
    assert_eq!(debtor.level, (after + cost).min(i128::from(bucket.depth.0) * NANO));
    // Another rate: from now on only.
    let mut faster = bucket.clone();
    faster.set_rate(now, bucket.rate + 1);
    assert_eq!((faster.level, faster.rate), (after, bucket.rate + 1));
    // The clock does not run backwards.
    let mut early = taker.clone();
    early.charge(Instant::ZERO, Small(0));
    assert_eq!((early.level, early.at), (taker.level, taker.at));
}

/// Tests are built with overflow checks: a step that does not fit panics.
#[test]
fn every_step_from_the_extremes_of_the_real_one() {
    const ENDS: [u64; 7] = [0, 1, 2, 999_999_999, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    let count = ENDS.len();
    for which in 0..count.pow(4) {
        let [depth, rate, wait, amount] = [1, 7, 49, 343].map(|place| ENDS[which / place % count]);
        let (depth, amount) = (Bytes::new(depth), Bytes::new(amount));
        let full = Bucket::new(Instant::ZERO, BitRate::from_bits_per_sec(rate), depth);
        for level in [full.level, 0, -1, -nano(Bytes::new(u64::MAX)), i128::MIN] {
            let mut bucket = full.clone();
            bucket.level = level.min(full.level);
            let now = Instant::from_nanos(wait);
            let taken = bucket.take(now, amount);
            assert!(bucket.is_valid() && (taken.is_err() || bucket.level >= 0), "{bucket:?}");
            bucket.charge(now, amount);
            let _ready = bucket.ready_at(amount);
            bucket.refund(amount);
            bucket.set_depth(now, Bytes::ZERO);
            assert!(bucket.is_valid(), "{bucket:?}");
        }
    }
}
