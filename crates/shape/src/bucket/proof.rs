//! The bucket's arithmetic, by exhaustion: every step from every state of a scaled-down bucket, against whole-number arithmetic
//! written down independently, and every step from the extremes of the real one.
//!
//! Why one step is enough: a bucket's state is its level (and the instant for which that holds), so what holds for every step
//! from every state holds for every sequence. With [`every_step_of_a_small_bucket`] each step conserves
//! `level + rate * time - taken`, but for what a full bucket loses, and leaves `level <= depth`; a conforming `take` leaves
//! `level >= 0`. Summed over the steps of any window of time `t`: what was taken is at most
//! `level at its start - level at its end + rate * t`, and so at most `depth + rate * t`.
//!
//! Why exhaustion: Kani would prove the same of all 128 bits, but its installation fetches a compiler of its own from elsewhere, which a
//! test of this repository is not to depend on. So the arithmetic is one text for several widths (`level`), and every case of the
//! narrow ones is tried, those beyond their width included, against sums that have room. What then rests on the width alone, that the
//! real one is as wide as it is said to be, is tried at its corners.

use super::level::{eight_bits, sixteen_bits};
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

/// Every level, depth, rate, time and amount of a bucket whose level has eight bits and whose counts have four, of which one costs two:
/// as in the real one a product of two counts takes all bits but the sign's, and an amount leaves a few.
#[test]
fn every_step_of_a_bucket_of_eight_bits() {
    const COST: i8 = 2;
    let exact = |n: i32| n.clamp(i8::MIN.into(), i8::MAX.into()) as i8;
    let (mut beyond, mut lost_some) = (0_u32, 0_u32);
    for (rate, elapsed) in (0..16_u8).flat_map(|rate| (0..16_u8).map(move |elapsed| (rate, elapsed))) {
        let product = i32::from(rate) * i32::from(elapsed);
        let earned = eight_bits::earned(elapsed, rate);
        assert_eq!(earned, exact(product));
        for depth in (0..16_i8).map(|n| n * COST) {
            for level in i8::MIN..=depth {
                let sum = i32::from(level) + i32::from(earned);
                let (after, lost) = eight_bits::put(level, depth, earned);
                // Nothing is cut but what is above the depth, and what no level could hold.
                let whole = exact(sum.min(depth.into()));
                assert_eq!(after, whole, "{level} + {earned} of {depth}");
                assert_eq!(i32::from(after) + i32::from(lost), sum, "{level} + {earned} of {depth}");
                lost_some += u32::from(lost > 0);
                for cost in (0..16_i8).map(|n| n * COST) {
                    let left = i32::from(after) - i32::from(cost);
                    assert_eq!(eight_bits::charged(after, cost), exact(left), "{after} - {cost}");
                    beyond += u32::from(left < i8::MIN.into());
                    if rate > 0 {
                        let missing = i32::from(exact(-left));
                        let wait = (missing + i32::from(rate) - 1).div_euclid(rate.into());
                        let found = eight_bits::wait(after, cost, rate);
                        assert_eq!(i32::from(found), wait.max(0), "{after} to {cost} at {rate}");
                    }
                }
            }
        }
    }
    assert!(beyond > 10_000 && lost_some > 10_000, "{beyond} {lost_some}");
}

/// Where counts have all of their bits, and what is missing may have more than they: both ways to divide.
#[test]
fn every_product_and_every_wait_of_a_bucket_of_sixteen_bits() {
    let mut waits = [0_u32; 2];
    for rate in 0..=u8::MAX {
        for elapsed in 0..=u8::MAX {
            let product = i32::from(rate) * i32::from(elapsed);
            assert_eq!(i32::from(sixteen_bits::earned(elapsed, rate)), product.min(i16::MAX.into()));
        }
        for missing in (1..=i16::MAX).filter(|_| rate > 0) {
            let exact = (f64::from(missing) / f64::from(rate)).ceil().min(255.0);
            // From debt to nothing, and from nothing to what it costs.
            for (level, cost) in [(-missing, 0), (0, missing)] {
                assert_eq!(f64::from(sixteen_bits::wait(level, cost, rate)), exact, "{missing} at {rate}");
            }
            waits[usize::from(missing > u8::MAX.into())] += 1;
        }
    }
    assert_eq!(waits, [255 * 255, 255 * (32_767 - 255)]);
    const AMOUNTS: [i16; 6] = [0, 1, 255, 16_384, i16::MAX - 1, i16::MAX];
    for (level, amount) in (i16::MIN..=i16::MAX).flat_map(|level| AMOUNTS.map(|amount| (level, amount))) {
        let exact = |n: i32| n.clamp(i16::MIN.into(), i16::MAX.into()) as i16;
        assert_eq!(sixteen_bits::charged(level, amount), exact(i32::from(level) - i32::from(amount)));
        for depth in AMOUNTS.into_iter().filter(|depth| *depth >= level) {
            let (after, lost) = sixteen_bits::put(level, depth, amount);
            assert_eq!(i32::from(after) + i32::from(lost), i32::from(level) + i32::from(amount));
            // No more is lost than must be: what is above the depth, or would be above any.
            assert!(after <= depth && (lost == 0 || after == depth || depth.checked_sub(level).is_none()));
        }
    }
}
