//! The token bucket. Read first: RFC 2697 section 3 (the bucket of one rate and one burst).
//!
//! Buckets fail in practice by rounding: a clock in microseconds and a poll every microsecond earn 0.3 token each time
//! at 300,000 packets/s, an integer drops them, and the limit is missed by a sixth. Here the level is kept in *nanobits*
//! (10^-9 bit): a rate in bit/s times a time in nanoseconds is a whole number of them, so every poll earns exactly its
//! share, nothing is carried by hand, and the pattern of polling cannot change the result. Packets are kept likewise, in nanopackets.
//! Levels are 128 bits wide: no rate, depth or idle time of the `units` types overflows them.

mod level;

use weirgate_units::{BitRate, Bytes, Duration, Instant, PacketRate, Packets};

use self::level::real;

/// What a bucket's tokens stand for.
pub trait Amount: Copy + Ord {
    /// How much of it comes in a second.
    type Rate: Copy + Default + Eq;

    /// Rate units in one of the amount, times 10^9: what one of it costs in the bucket's own units.
    const NANO: i128;

    /// How many.
    fn count(self) -> u64;

    /// `count` of it.
    fn of(count: u64) -> Self;

    /// Rate units per second.
    fn per_sec(rate: Self::Rate) -> u64;
}

impl Amount for Bytes {
    type Rate = BitRate;

    const NANO: i128 = 8_000_000_000;

    fn count(self) -> u64 {
        self.as_u64()
    }

    fn of(count: u64) -> Self {
        Self::new(count)
    }

    fn per_sec(rate: BitRate) -> u64 {
        rate.as_bits_per_sec()
    }
}

impl Amount for Packets {
    type Rate = PacketRate;

    const NANO: i128 = 1_000_000_000;

    fn count(self) -> u64 {
        self.as_u64()
    }

    fn of(count: u64) -> Self {
        Self::new(count)
    }

    fn per_sec(rate: PacketRate) -> u64 {
        rate.as_packets_per_sec()
    }
}

/// A token bucket of bytes or packets: fills at a rate up to a depth; what passes takes its size out.
///
/// In every window of time `t`, what [`take`](Self::take) lets pass is at most `rate * t + depth`. What
/// [`charge`](Self::charge) lets pass may put the bucket in debt, which is repaid at the rate before anything conforms
/// again.
///
/// A full bucket earns nothing. So a limit is met in full only where the depth covers the largest packet and, beside it,
/// what the rate earns between two looks at the bucket: with a depth of one packet, a bucket asked every microsecond waits
/// 4 us for what is earned in 3.3 us, and gives 250,000 packets/s for 300,000. Ask at [`ready_at`](Self::ready_at).
#[derive(Clone, Debug)]
pub struct Bucket<A: Amount = Bytes> {
    rate: A::Rate,
    depth: A,
    /// In nanobits or nanopackets; at most `depth`. Negative is debt.
    level: i128,
    /// The instant for which `level` holds. Never moves back.
    at: Instant,
}

/// The bucket holds too little: nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// From this instant on the amount conforms; `None`: never (the rate is zero, or the amount exceeds the depth).
    pub ready_at: Option<Instant>,
}

impl<A: Amount> Bucket<A> {
    /// A full bucket at `now`.
    pub fn new(now: Instant, rate: A::Rate, depth: A) -> Self {
        Self { rate, depth, level: nano(depth), at: now }
    }

    /// The rate at which it fills.
    pub const fn rate(&self) -> A::Rate {
        self.rate
    }

    /// The most it holds.
    pub const fn depth(&self) -> A {
        self.depth
    }

    /// Takes `amount` out if that much is there.
    ///
    /// # Errors
    /// [`Short`] with the instant from which on it will be there, if nobody else takes.
    pub fn take(&mut self, now: Instant, amount: A) -> Result<(), Short> {
        self.check(now, amount)?;
        self.level -= nano(amount);
        Ok(())
    }

    /// Whether [`take`](Self::take) would succeed; takes nothing.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn check(&mut self, now: Instant, amount: A) -> Result<(), Short> {
        self.earn(now);
        if self.level < nano(amount) { Err(Short { ready_at: self.ready_at(amount) }) } else { Ok(()) }
    }

    /// Takes `amount` out whether or not it is there: the bucket may go into debt. A `now` before the last one earns
    /// nothing and is not an error.
    pub fn charge(&mut self, now: Instant, amount: A) {
        self.earn(now);
        self.level = real::charged(self.level, nano(amount));
        debug_assert!(self.is_valid());
    }

    /// Puts back what was taken for something that did not pass after all; above the depth it is lost.
    pub fn refund(&mut self, amount: A) {
        let _overflow = self.put(nano(amount));
    }

    /// The first whole nanosecond at which the bucket holds `amount` (zero: at which its debt is repaid), if nothing else is
    /// taken until then. Not before the last instant it was handed. `None`: never.
    pub fn ready_at(&self, amount: A) -> Option<Instant> {
        if amount > self.depth { None } else { self.earns_at(amount) }
    }

    /// The same where what it earns is taken as it comes: `amount` may be more than it can hold at once.
    pub(crate) fn earns_at(&self, amount: A) -> Option<Instant> {
        let rate = A::per_sec(self.rate);
        if rate == 0 {
            return (self.level >= nano(amount)).then_some(self.at);
        }
        Some(self.at + Duration::from_nanos(real::wait(self.level, nano(amount), rate)))
    }

    /// What it holds, rounded down, at the last instant it was handed; zero in debt.
    pub fn level(&self) -> A {
        A::of(u64::try_from(self.level / A::NANO).unwrap_or(0))
    }

    /// Changes the rate from `now` on; what was earned or owed stays.
    pub fn set_rate(&mut self, now: Instant, rate: A::Rate) {
        self.earn(now);
        self.rate = rate;
    }

    /// Changes the depth from `now` on; what is above the new depth is lost.
    pub fn set_depth(&mut self, now: Instant, depth: A) {
        self.earn(now);
        self.depth = depth;
        self.level = self.level.min(nano(depth));
    }

    /// What always holds: the level is not above the depth.
    pub fn is_valid(&self) -> bool {
        self.level <= nano(self.depth)
    }

    /// Earns what the time since the last call is worth; what the bucket had no room for.
    pub(crate) fn earn(&mut self, now: Instant) -> i128 {
        if now <= self.at {
            return 0;
        }
        let elapsed = now.saturating_since(self.at).as_nanos();
        self.at = now;
        self.put(real::earned(elapsed, A::per_sec(self.rate)))
    }

    /// Adds `nano`, in the bucket's own unit; what it had no room for.
    pub(crate) fn put(&mut self, nano_amount: i128) -> i128 {
        let (level, lost) = real::put(self.level, nano(self.depth), nano_amount);
        self.level = level;
        debug_assert!(self.is_valid());
        lost
    }
}

/// At most 2^64 * 8e9, which leaves 30 bits of an i128.
fn nano<A: Amount>(amount: A) -> i128 {
    i128::from(amount.count()) * A::NANO
}

#[cfg(all(test, not(loom)))]
mod proof;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn three_tenths_of_a_token_per_poll_are_not_lost() {
        // The case of the file's head: 300,000 packets/s of 1,000 B, polled every microsecond for a second.
        let mut bucket = Bucket::new(at(0), BitRate::from_bytes_per_sec(300_000_000), Bytes::new(2_000));
        let passed = (0..=1_000_000).filter(|us| bucket.take(at(us * 1_000), Bytes::new(1_000)).is_ok()).count();
        assert_eq!(passed, 300_002, "the depth, and then the rate to the packet");
    }

    #[test]
    fn a_debt_is_repaid_at_the_rate() {
        let mut bucket = Bucket::new(at(0), BitRate::from_bits_per_sec(8_000_000), Bytes::ZERO);
        bucket.charge(at(0), Bytes::new(1_500));
        assert_eq!(bucket.ready_at(Bytes::ZERO), Some(at(1_500_000)));
        bucket.set_rate(at(500_000), BitRate::from_bits_per_sec(16_000_000));
        assert_eq!(bucket.ready_at(Bytes::ZERO), Some(at(1_000_000)), "the last 1,000 B at twice the rate");
    }

    #[test]
    fn never_is_said() {
        let mut bucket = Bucket::new(at(0), BitRate::ZERO, Bytes::new(10));
        assert_eq!(bucket.take(at(0), Bytes::new(10)), Ok(()));
        assert_eq!(bucket.take(at(u64::MAX), Bytes::new(1)), Err(Short { ready_at: None }));
        let mut bucket = Bucket::new(at(0), BitRate::from_bits_per_sec(u64::MAX), Bytes::new(10));
        assert_eq!(bucket.take(at(u64::MAX), Bytes::new(11)), Err(Short { ready_at: None }));
        bucket.charge(at(u64::MAX), Bytes::new(u64::MAX));
        assert!(bucket.is_valid());
    }

    #[test]
    fn packets_are_counted_as_bytes_are() {
        let mut bucket = Bucket::new(at(0), PacketRate::from_packets_per_sec(300_000), Packets::new(2));
        let passed = (0..=1_000_000).filter(|us| bucket.take(at(us * 1_000), Packets::new(1)).is_ok()).count();
        assert_eq!(passed, 300_002);
        assert_eq!(bucket.ready_at(Packets::new(3)), None, "more than it can hold");
    }

    #[test]
    fn a_refund_is_as_if_nothing_had_been_taken() {
        let mut bucket = Bucket::new(at(0), BitRate::from_bits_per_sec(8_000), Bytes::new(1_000));
        bucket.take(at(0), Bytes::new(800)).unwrap();
        bucket.refund(Bytes::new(800));
        assert_eq!(bucket.check(at(0), Bytes::new(1_000)), Ok(()));
        bucket.refund(Bytes::new(1));
        assert!(bucket.is_valid());
    }

    /// Evenly over the orders of magnitude of `from` to `to`, both among them.
    fn spread(from: u64, to: u64) -> impl Strategy<Value = u64> {
        let (low, high) = ((from as f64).ln(), (to as f64).ln());
        prop_oneof![1 => Just(from), 1 => Just(to), 8 => (low..high).prop_map(|power| power.exp() as u64)]
            .prop_map(move |n: u64| n.clamp(from, to))
    }

    /// 1 kbit/s to 1 Tbit/s.
    fn bits_per_sec() -> impl Strategy<Value = u64> {
        spread(1_000, 1_000_000_000_000)
    }

    /// 1 packet/s to a billion.
    fn packets_per_sec() -> impl Strategy<Value = u64> {
        spread(1, 1_000_000_000)
    }

    /// Between two looks at a bucket: 1 ns to 10 s.
    fn gap() -> impl Strategy<Value = u64> {
        spread(1, 10_000_000_000)
    }

    /// Every window: between any two instants at most the depth plus what the rate earns, whatever the polls.
    fn check_windows<A: Amount>(rate: A::Rate, depth: u64, steps: &[(u64, u64)]) -> Result<(), TestCaseError> {
        let mut bucket = Bucket::new(at(0), rate, A::of(depth));
        let (mut now, mut passed) = (0, vec![]);
        for (wait, size) in steps {
            now += wait;
            if bucket.take(at(now), A::of(*size)).is_ok() {
                passed.push((now, *size));
            }
            prop_assert!(bucket.is_valid());
        }
        for from in 0..passed.len() {
            let mut sum = 0;
            for &(t, size) in &passed[from..] {
                sum += i128::from(size) * A::NANO;
                let earned = i128::from(A::per_sec(rate)) * i128::from(t - passed[from].0);
                let bound = earned + i128::from(depth) * A::NANO;
                prop_assert!(sum <= bound, "{sum} > {bound} in [{}, {t}]", passed[from].0);
            }
        }
        Ok(())
    }

    /// Takes what there is after each gap, until the rate is worth 100,000 of it: 0.001 % is one.
    fn check_long_run<A: Amount>(rate: A::Rate, gaps: &[u64]) -> Result<(), TestCaseError> {
        // What the longest gap earns finds room.
        let depth = A::of(A::per_sec(rate).saturating_mul(10) + 1);
        let mut bucket = Bucket::new(at(0), rate, depth);
        bucket.take(at(0), depth).unwrap();
        let (mut now, mut taken) = (0_u64, 0_i128);
        let wanted = 100_000 * A::NANO;
        let mut gaps = gaps.iter().copied().chain(std::iter::repeat(10_000_000_000));
        while i128::from(A::per_sec(rate)) * i128::from(now) < wanted {
            now += gaps.next().unwrap_or(1);
            bucket.charge(at(now), A::of(0));
            let there = bucket.level();
            prop_assert!(bucket.take(at(now), there).is_ok());
            taken += i128::from(there.count()) * A::NANO;
        }
        let earned = i128::from(A::per_sec(rate)) * i128::from(now);
        prop_assert!(taken <= earned && (earned - taken) * 100_000 <= earned, "{taken} of {earned}");
        Ok(())
    }

    proptest! {
        #[test]
        fn no_window_passes_more_than_rate_times_time_plus_depth(
            rate in bits_per_sec(), depth in spread(1, 100_000_000), steps in prop::collection::vec((gap(), 1_u64..3_000), 1..200),
        ) {
            check_windows::<Bytes>(BitRate::from_bits_per_sec(rate), depth, &steps)?;
        }

        #[test]
        fn no_window_passes_more_packets_than_that(
            rate in packets_per_sec(), depth in spread(1, 1_000_000), steps in prop::collection::vec((gap(), 1_u64..45), 1..200),
        ) {
            check_windows::<Packets>(PacketRate::from_packets_per_sec(rate), depth, &steps)?;
        }

        #[test]
        fn in_the_long_run_the_rate_is_met_to_a_thousandth_of_a_percent(
            bits in bits_per_sec(), packets in packets_per_sec(), gaps in prop::collection::vec(gap(), 1..1_000),
        ) {
            check_long_run::<Bytes>(BitRate::from_bits_per_sec(bits), &gaps)?;
            check_long_run::<Packets>(PacketRate::from_packets_per_sec(packets), &gaps)?;
        }

        /// However often it is asked in between, the same level.
        #[test]
        fn the_pattern_of_polls_changes_nothing(
            rate in prop_oneof![1 => Just(0), 9 => bits_per_sec()], depth in 0_u64..100_000, debt in spread(1, 1_000_000_000),
            polls in prop::collection::vec(gap(), 0..300),
        ) {
            let new = || {
                let mut b = Bucket::new(at(0), BitRate::from_bits_per_sec(rate), Bytes::new(depth));
                b.charge(at(0), Bytes::new(debt));
                b
            };
            let (mut often, mut once, mut now) = (new(), new(), 0);
            for wait in polls {
                now += wait;
                let _ = often.take(at(now), Bytes::new(u64::MAX));
            }
            once.charge(at(now), Bytes::ZERO);
            prop_assert_eq!(often.level, once.level);
        }

        /// `ready_at` is the first nanosecond at which the taking succeeds.
        #[test]
        fn ready_at_is_sharp(
            rate in bits_per_sec(), depth in spread(1, 100_000_000), size in spread(1, 100_000_000),
            // Beyond 2.3 GB it takes more than 64 bits.
            debt in prop_oneof![1 => Just(0), 9 => spread(1, 1_000_000_000_000)],
        ) {
            let mut bucket = Bucket::new(at(0), BitRate::from_bits_per_sec(rate), Bytes::new(depth));
            bucket.charge(at(0), Bytes::new(debt));
            match bucket.ready_at(Bytes::new(size)) {
                None => prop_assert!(size > depth),
                Some(ready) => {
                    if ready > at(0) {
                        let early = at(ready.as_nanos() - 1);
                        let short = bucket.clone().take(early, Bytes::new(size));
                        prop_assert_eq!(short, Err(Short { ready_at: Some(ready) }));
                    }
                    prop_assert_eq!(bucket.take(ready, Bytes::new(size)), Ok(()));
                }
            }
        }
    }
}
