//! One limit divided among several who pace at their shares of it: each thread of a switch has its own queues and wheel, and all
//! together keep one rate.
//!
//! Every [`INTERVAL`] whoever comes first divides the rate anew, by weighted max-min fairness (Bertsekas and Gallager, "Data
//! Networks", 6.5.2): nobody gets more than he wants while another has less than his weight's part. A member's weight is what it says:
//! as many flows as wait there, so that flows are equal, wherever they are. What nobody wants is
//! divided by weight as well, so that who begins to send finds something. Carousel keeps a hundredth of the rate back for
//! those (SIGCOMM 2017, 3.4); here who has nothing and needs some has it divided at once, so that nothing is kept back.
//!
//! **The bound.** The shares are the rate, to the bit, at each division. A member that has not looked at its new share yet goes on at
//! its old one: all together pass at most `rate * t`, their bursts, and what the slowest to look passes in that time.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use weirgate_units::{BitRate, Bytes, Duration, Instant};

use crate::sync::{AtomicU64, Ordering};

/// Between two divisions.
pub const INTERVAL: Duration = Duration::from_millis(5);

/// A limit and its members, by number.
#[derive(Debug)]
pub struct Division {
    rate: AtomicU64,
    members: Box<[Member]>,
    last: Mutex<Last>,
}

/// One member's numbers, on cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct Member {
    /// Bytes that were charged to its share so far.
    charged: AtomicU64,
    /// What its share is by, while more waits for it; 0: nothing does.
    weight: AtomicU64,
    /// Bit/s.
    share: AtomicU64,
}

/// The last division.
#[derive(Debug)]
struct Last {
    at: Instant,
    charged: Box<[u64]>,
}

/// What one member of a division wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// At most this.
    pub rate: BitRate,
    /// And what it counts for beside others; at least 1.
    pub weight: u32,
}

impl Division {
    /// Divides `rate` among so many members, evenly at first.
    pub fn new(now: Instant, rate: BitRate, members: usize) -> Self {
        let shares = max_min(rate, &vec![Want { rate: BitRate::ZERO, weight: 1 }; members]);
        let member = |share: BitRate| Member {
            charged: AtomicU64::new(0),
            weight: AtomicU64::new(0),
            share: AtomicU64::new(share.as_bits_per_sec()),
        };
        Self {
            rate: AtomicU64::new(rate.as_bits_per_sec()),
            members: shares.into_iter().map(member).collect(),
            last: Mutex::new(Last { at: now, charged: vec![0; members].into() }),
        }
    }

    /// The whole.
    pub fn rate(&self) -> BitRate {
        BitRate::from_bits_per_sec(self.rate.load(Ordering::Relaxed))
    }

    /// Changes the whole, from `now` on.
    pub fn set_rate(&self, now: Instant, rate: BitRate) {
        self.rate.store(rate.as_bits_per_sec(), Ordering::Relaxed);
        // Seldom, so that a thread that is dividing by the old rate is waited for.
        self.divide_with(self.last.lock().unwrap_or_else(PoisonError::into_inner), now, true);
    }

    /// A member's part, as of the last division.
    pub fn share(&self, member: usize) -> BitRate {
        BitRate::from_bits_per_sec(self.members[member].share.load(Ordering::Relaxed))
    }

    /// Says what was charged to a member so far, and by what its share is to be, as more waits for it: how many flows do. 0: nothing
    /// does, and it needs what it uses.
    pub fn report(&self, member: usize, charged: Bytes, weight: u32) {
        let member = &self.members[member];
        member.charged.store(charged.as_u64(), Ordering::Relaxed);
        member.weight.store(u64::from(weight), Ordering::Relaxed);
    }

    /// Divides the rate anew where the last division is [`INTERVAL`] ago, or `at_once`. Nothing where another thread is at it.
    /// Steps: the square of the members, at most.
    pub fn divide(&self, now: Instant, at_once: bool) {
        match self.last.try_lock() {
            Ok(last) => self.divide_with(last, now, at_once),
            Err(TryLockError::Poisoned(last)) => self.divide_with(PoisonError::into_inner(last), now, at_once),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn divide_with(&self, mut last: MutexGuard<'_, Last>, now: Instant, at_once: bool) {
        let elapsed = now.saturating_since(last.at);
        if elapsed < INTERVAL && !at_once {
            return;
        }
        let since = elapsed.max(INTERVAL);
        let wants: Vec<Want> = self
            .members
            .iter()
            .zip(&mut last.charged)
            .map(|(member, before)| {
                let charged = member.charged.load(Ordering::Relaxed);
                let used = per_second(charged.saturating_sub(*before), since);
                // What is charged between two divisions that follow each other at once is not forgotten.
                if elapsed >= INTERVAL {
                    *before = charged;
                }
                let weight = member.weight.load(Ordering::Relaxed);
                let rate = BitRate::from_bits_per_sec(if weight > 0 { u64::MAX } else { used });
                Want { rate, weight: u32::try_from(weight.max(1)).unwrap_or(u32::MAX) }
            })
            .collect();
        for (member, share) in self.members.iter().zip(max_min(self.rate(), &wants)) {
            member.share.store(share.as_bits_per_sec(), Ordering::Relaxed);
        }
        if elapsed >= INTERVAL {
            last.at = now;
        }
    }
}

/// Bit/s.
fn per_second(bytes: u64, time: Duration) -> u64 {
    let bits = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(time.as_nanos().max(1));
    u64::try_from(bits).unwrap_or(u64::MAX)
}

/// Divides `total` by weighted max-min fairness. What is left when all have what they want is divided by weight. The parts are
/// the whole, to the bit.
pub fn max_min(total: BitRate, wants: &[Want]) -> Vec<BitRate> {
    let mut shares = vec![0_u64; wants.len()];
    let mut left = total.as_bits_per_sec();
    let mut hungry: Vec<usize> = (0..wants.len()).collect();
    let weight = |of: &[usize]| of.iter().map(|at| u128::from(wants[*at].weight.max(1))).sum::<u128>();
    loop {
        let (all, had) = (weight(&hungry), left);
        let part = |at: usize| u128::from(had) * u128::from(wants[at].weight.max(1)) / all.max(1);
        let (full, rest): (Vec<usize>, Vec<usize>) =
            hungry.iter().partition(|at| u128::from(wants[**at].rate.as_bits_per_sec()) <= part(**at));
        for at in &full {
            shares[*at] = wants[*at].rate.as_bits_per_sec();
            left -= shares[*at];
        }
        if full.is_empty() || rest.is_empty() {
            // Those who want more than there is, or, where nobody does, everybody.
            let takers = if rest.is_empty() { (0..wants.len()).collect() } else { rest };
            spread(left, &takers, &|at| u128::from(wants[at].weight.max(1)), &mut shares);
            return shares.into_iter().map(BitRate::from_bits_per_sec).collect();
        }
        hungry = rest;
    }
}

/// Adds `left` by weight, the bits that do not divide to the first.
fn spread(left: u64, takers: &[usize], weight: &dyn Fn(usize) -> u128, shares: &mut [u64]) {
    let all: u128 = takers.iter().map(|at| weight(*at)).sum();
    let mut rest = left;
    for at in takers {
        let part = u64::try_from(u128::from(left) * weight(*at) / all.max(1)).unwrap_or(left);
        shares[*at] += part;
        rest -= part;
    }
    if let Some(first) = takers.first() {
        shares[*first] += rest;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    const fn mbit(n: u64) -> BitRate {
        BitRate::from_bits_per_sec(n * 1_000_000)
    }

    fn shares(division: &Division, count: usize) -> Vec<u64> {
        (0..count).map(|member| division.share(member).as_bits_per_sec() / 1_000_000).collect()
    }

    #[test]
    fn who_wants_little_has_it_and_the_rest_is_divided_by_weight() {
        let want = |rate, weight| Want { rate: mbit(rate), weight };
        let of = |wants: &[Want]| {
            max_min(mbit(100), wants).into_iter().map(|r| r.as_bits_per_sec() / 1_000_000).collect::<Vec<_>>()
        };
        assert_eq!(of(&[want(10, 1), want(500, 1), want(500, 2)]), [10, 30, 60]);
        assert_eq!(of(&[want(10, 1), want(20, 1)]), [45, 55], "and what nobody wants, equally");
        assert_eq!(of(&[want(0, 1), want(300, 1)]), [0, 100]);
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn a_member_that_begins_has_its_part_at_once() {
        let division = Division::new(at(0), mbit(100), 2);
        assert_eq!(shares(&division, 2), [50, 50]);
        // The first one sends all that there is, 62,500 B in 5 ms, and more waits.
        division.report(0, Bytes::new(62_500), 1);
        division.divide(at(5), false);
        assert_eq!(shares(&division, 2), [100, 0]);
        division.report(1, Bytes::new(1_500), 1);
        division.divide(at(6), false);
        assert_eq!(shares(&division, 2), [100, 0], "not yet due");
        division.divide(at(6), true);
        assert_eq!(shares(&division, 2), [50, 50]);
        // It was that packet only: 2.4 Mbit/s in 5 ms.
        division.report(1, Bytes::new(1_500), 0);
        division.divide(at(10), false);
        assert_eq!(shares(&division, 2), [97, 2]);
        division.set_rate(at(11), mbit(10));
        assert_eq!(shares(&division, 2), [10, 0]);
    }

    #[test]
    fn members_have_by_what_waits_there_and_who_needs_less_has_that() {
        let division = Division::new(at(0), mbit(100), 3);
        // 6.25 KB in 5 ms are 10 Mbit/s.
        for (member, (bytes, flows)) in [(6_250, 0), (9_000, 8), (9_000, 1)].into_iter().enumerate() {
            division.report(member, Bytes::new(bytes), flows);
        }
        division.divide(at(5), false);
        assert_eq!(shares(&division, 3), [10, 80, 10]);
    }

    proptest! {
        #[test]
        fn whatever_is_said_the_shares_are_the_rate(
            rate in any::<u64>(),
            said in prop::collection::vec((0_usize..4, any::<u32>(), prop_oneof![Just(0), 1_u32..40, any::<u32>()], 0_u64..20, any::<bool>()), 1..100),
        ) {
            let division = Division::new(at(0), BitRate::from_bits_per_sec(rate), 4);
            let (mut now, mut charged) = (0, [0_u64; 4]);
            for (member, more, weight, wait, at_once) in said {
                now += wait;
                charged[member] += u64::from(more);
                division.report(member, Bytes::new(charged[member]), weight);
                division.divide(at(now), at_once);
                let sum: u128 = (0..4).map(|member| u128::from(division.share(member).as_bits_per_sec())).sum();
                prop_assert_eq!(sum, u128::from(rate));
            }
        }

        #[test]
        fn the_parts_are_the_whole_and_nobody_is_worse_off_than_another_is_over(
            total in any::<u64>(), wants in prop::collection::vec((any::<u64>(), 1_u32..1_000, 0_u32..40), 1..20),
        ) {
            let wants: Vec<Want> = wants
                .into_iter()
                .map(|(rate, weight, shift)| Want { rate: BitRate::from_bits_per_sec(rate >> shift), weight })
                .collect();
            let shares = max_min(BitRate::from_bits_per_sec(total), &wants);
            let bits = |rate: BitRate| u128::from(rate.as_bits_per_sec());
            prop_assert_eq!(shares.iter().map(|share| bits(*share)).sum::<u128>(), u128::from(total));
            let everybody = wants.iter().map(|want| bits(want.rate)).sum::<u128>() <= u128::from(total);
            for (want, share) in wants.iter().zip(&shares) {
                if everybody {
                    prop_assert!(share >= &want.rate);
                    continue;
                }
                prop_assert!(bits(*share) <= bits(want.rate) + wants.len() as u128, "more than it wants");
                if share < &want.rate {
                    // Nobody has more by weight than who has too little, but for the bits that do not divide.
                    for (other, has) in wants.iter().zip(&shares) {
                        let (mine, theirs) = (u128::from(want.weight), u128::from(other.weight));
                        prop_assert!(bits(*has) * mine <= (bits(*share) + 1) * theirs + 20 * mine, "{other:?} {has:?}");
                    }
                }
            }
        }
    }
}
