//! One limit shared by threads without a lock.
//!
//! A single word counts the bytes that were ever granted; what may have been granted by an instant follows from the rate.
//! Two threads that exchange that word for every packet are slower than one (the cache line travels each time), so each
//! [`Member`] takes a *lease* of several packets at once and passes packets from it without touching anything shared.
//!
//! **The bound.** In every window of time `t` all members together pass at most `rate * t + burst + members * lease`: the
//! burst, and what each may have leased before the window began. A lease is what the rate gives in [`LEASE_TIME`], at
//! least one packet, so at 10 Gbit/s it is 62 KB. What was taken before the window and [refunded](Member::refund) in it comes on
//! top, as it does with a bucket; of that no member keeps more than a lease, either, and all together no more than a burst beside.

use std::sync::Arc;

use weirgate_units::{BitRate, Bytes, Duration, Instant};

use crate::bucket::Short;
use crate::sync::{AtomicU64, Ordering};

/// What a lease is worth in time: some hundred times as long as a cache line takes from one processor to another (0.1 us), so that threads
/// hardly wait for each other. Longer leases gain little and loosen the bound.
pub const LEASE_TIME: Duration = Duration::from_micros(50);

/// The limit that members share.
#[derive(Debug)]
pub struct Aggregate {
    /// Bytes granted so far, idle time made up for: what nobody asked for within a burst is counted as granted.
    granted: Line,
    rate: Schedule,
    burst: AtomicU64,
    /// The largest packet, which every lease can hold.
    packet_max: Bytes,
}

/// A word with a cache line to itself (two, since they are fetched in pairs): who only reads what stands beside it does not
/// wait for those who change it.
#[derive(Debug)]
#[repr(align(128))]
struct Line(AtomicU64);

/// What was earned by an instant: `earned + rate * (now - since)`. Read by all, changed by one, consistent by its version,
/// which is odd while it is being changed (a sequence lock without its lock: writers are told to be one).
#[derive(Debug)]
struct Schedule {
    version: AtomicU64,
    bits_per_sec: AtomicU64,
    since: AtomicU64,
    earned: AtomicU64,
}

/// One thread's share of an [`Aggregate`]. Dropped or [released](Member::release), it gives back what it holds.
#[derive(Debug)]
pub struct Member {
    aggregate: Arc<Aggregate>,
    credit: u64,
    /// What the aggregate's word was when this one last changed it or saw it.
    seen: u64,
    /// The last refusal: it holds for as much or more until its instant, without asking again, while nobody gives anything
    /// back and the rate is the same.
    refused: Refusal,
}

#[derive(Clone, Copy, Debug)]
struct Refusal {
    amount: u64,
    /// `None`: never enough, as things are. Asked again each time.
    until: Option<Instant>,
    version: u64,
}

impl Aggregate {
    /// A full limit at `now`: `burst` may pass at once. `packet_max` is the largest packet, and the least lease.
    pub fn new(now: Instant, rate: BitRate, burst: Bytes, packet_max: Bytes) -> Self {
        let rate = Schedule::new(now, rate, burst);
        Self { granted: Line(AtomicU64::new(0)), rate, burst: AtomicU64::new(burst.as_u64()), packet_max }
    }

    /// Changes the rate from `now` on; what was earned stays. To be called by one thread at a time.
    pub fn set_rate(&self, now: Instant, rate: BitRate) {
        self.rate.set(now, rate);
    }

    /// Changes what may pass at once after idling. To be called by who calls [`set_rate`](Self::set_rate).
    pub fn set_burst(&self, burst: Bytes) {
        self.burst.store(burst.as_u64(), Ordering::Relaxed);
        self.rate.touch();
    }

    /// The rate in force.
    pub fn rate(&self) -> BitRate {
        self.rate.read().1
    }

    /// What a member takes at once.
    pub fn lease(&self) -> Bytes {
        self.lease_at(self.rate())
    }

    fn lease_at(&self, rate: BitRate) -> Bytes {
        rate.bytes_in(LEASE_TIME).max(self.packet_max)
    }

    /// Grants a lease to who has `credit`, or as much of it as there is if that is at least `least`. Tries again only where
    /// another thread was granted something in between. Refused, there will be a lease at the instant that it says: asking for
    /// each packet as it is earned would be an exchange per packet again.
    ///
    /// `seen` is what the word was when the member last saw it. That is tried first, without a look: where it is wrong, the exchange has
    /// brought the word's cache line here to be written, and the next one finds it; a look would have it brought twice.
    fn grant(&self, now: Instant, least: u64, credit: u64, seen: &mut u64) -> Result<u64, Refusal> {
        let (version, rate, since, earned) = self.rate.read();
        let wanted = least.max(self.lease_at(rate).as_u64().saturating_sub(credit));
        let earned = earned.saturating_add(rate.bytes_in(now.saturating_since(since)).as_u64());
        let burst = self.burst.load(Ordering::Relaxed);
        let mut is_guess = true;
        loop {
            // Beyond a burst, what was not asked for is lost.
            let base = (*seen).max(earned.saturating_sub(burst));
            let there = earned.saturating_sub(base);
            if there < least && is_guess {
                *seen = self.granted.0.load(Ordering::Relaxed);
                is_guess = false;
                continue;
            }
            if there < least {
                let never = rate == BitRate::ZERO || least > burst;
                let missing = Bytes::new(base.saturating_add(wanted.min(burst)) - earned);
                let until = (!never).then(|| now + rate.time_for(missing));
                return Err(Refusal { amount: least, until, version });
            }
            let got = wanted.min(there);
            let swap = self.granted.0.compare_exchange_weak(*seen, base + got, Ordering::Relaxed, Ordering::Relaxed);
            *seen = swap.map_or_else(|other| other, |_| base + got);
            if swap.is_ok() {
                return Ok(got);
            }
            is_guess = false;
        }
    }

    fn give_back(&self, amount: u64) {
        if amount > 0 {
            // Never below zero: what is given back was granted, and `granted` only grows otherwise.
            self.granted.0.fetch_sub(amount, Ordering::Relaxed);
            self.rate.touch();
        }
    }

    /// Changes whenever a refusal may not hold any more.
    fn version(&self) -> u64 {
        self.rate.version.load(Ordering::Acquire)
    }
}

impl Schedule {
    fn new(now: Instant, rate: BitRate, earned: Bytes) -> Self {
        Self {
            version: AtomicU64::new(0),
            bits_per_sec: AtomicU64::new(rate.as_bits_per_sec()),
            since: AtomicU64::new(now.as_nanos()),
            earned: AtomicU64::new(earned.as_u64()),
        }
    }

    /// The version, and what is consistent in it.
    fn read(&self) -> (u64, BitRate, Instant, u64) {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let read = (
                version,
                BitRate::from_bits_per_sec(self.bits_per_sec.load(Ordering::Acquire)),
                Instant::from_nanos(self.since.load(Ordering::Acquire)),
                self.earned.load(Ordering::Acquire),
            );
            if version.is_multiple_of(2) && self.version.load(Ordering::Acquire) == version {
                return read;
            }
            crate::sync::pause();
        }
    }

    /// Whoever was refused may ask again. Even stays even.
    fn touch(&self) {
        self.version.fetch_add(2, Ordering::Release);
    }

    fn set(&self, now: Instant, rate: BitRate) {
        let (_, before, since, earned) = self.read();
        let now = now.max(since);
        let earned = earned.saturating_add(before.bytes_in(now.saturating_since(since)).as_u64());
        self.version.fetch_add(1, Ordering::AcqRel);
        self.bits_per_sec.store(rate.as_bits_per_sec(), Ordering::Release);
        self.since.store(now.as_nanos(), Ordering::Release);
        self.earned.store(earned, Ordering::Release);
        self.version.fetch_add(1, Ordering::AcqRel);
    }
}

impl Member {
    /// A member of `aggregate`, holding nothing.
    pub const fn new(aggregate: Arc<Aggregate>) -> Self {
        Self { aggregate, credit: 0, seen: 0, refused: Refusal { amount: 0, until: None, version: 0 } }
    }

    /// Takes `amount`: from what this member has leased, else from a new lease.
    ///
    /// # Errors
    /// [`Short`] where the limit has no more now; nothing was taken.
    pub fn take(&mut self, now: Instant, amount: Bytes) -> Result<(), Short> {
        let amount = amount.as_u64();
        if amount > self.credit {
            let missing = amount - self.credit;
            let Refusal { amount: refused, until, version } = self.refused;
            if until.is_some_and(|until| now < until) && missing >= refused && self.aggregate.version() == version {
                return Err(Short { ready_at: until });
            }
            match self.aggregate.grant(now, missing, self.credit, &mut self.seen) {
                Ok(granted) => self.credit += granted,
                Err(refusal) => {
                    self.refused = refusal;
                    return Err(Short { ready_at: refusal.until });
                }
            }
        }
        self.credit -= amount;
        Ok(())
    }

    /// Puts back what was taken for something that did not pass after all. What is more than a lease then is for all members.
    pub fn refund(&mut self, amount: Bytes) {
        let credit = self.credit.saturating_add(amount.as_u64());
        self.credit = credit.min(self.aggregate.lease().as_u64());
        self.aggregate.give_back(credit - self.credit);
    }

    /// Gives back what is leased and not used: to be called when there is nothing to send.
    pub fn release(&mut self) {
        self.aggregate.give_back(core::mem::take(&mut self.credit));
    }

    /// What is leased and not used.
    pub const fn credit(&self) -> Bytes {
        Bytes::new(self.credit)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn bytes(n: u64) -> Bytes {
        Bytes::new(n)
    }

    #[test]
    fn a_lease_is_fifty_microseconds_or_a_packet() {
        let of = |rate| Aggregate::new(at(0), BitRate::from_bits_per_sec(rate), bytes(1), bytes(1_514)).lease();
        assert_eq!((of(10_000_000_000), of(1_000_000)), (bytes(62_500), bytes(1_514)));
    }

    #[test]
    fn what_is_given_back_is_there_for_others() {
        let shared = Arc::new(Aggregate::new(at(0), BitRate::from_bytes_per_sec(1_000), bytes(3_000), bytes(1_500)));
        let (mut one, mut other) = (Member::new(shared.clone()), Member::new(shared));
        one.take(at(0), bytes(100)).unwrap();
        assert_eq!(one.credit(), bytes(1_400));
        other.take(at(0), bytes(1_500)).unwrap();
        let short = other.take(at(0), bytes(1_000)).unwrap_err();
        assert_eq!(short.ready_at, Some(at(1_500_000_000)), "a lease at 1,000 B/s");
        drop(one);
        other.take(at(0), bytes(1_400)).unwrap();
        assert!(other.take(at(0), bytes(1)).is_err());
    }

    #[test]
    fn a_new_rate_holds_from_then_on() {
        let shared = Arc::new(Aggregate::new(at(0), BitRate::from_bytes_per_sec(1_000), bytes(1_000), bytes(1)));
        let mut member = Member::new(shared.clone());
        member.take(at(0), bytes(1_000)).unwrap();
        shared.set_rate(at(500_000_000), BitRate::from_bytes_per_sec(2_000));
        assert_eq!(member.take(at(700_000_000), bytes(901)).unwrap_err().ready_at, Some(at(700_500_000)));
        member.take(at(700_000_000), bytes(900)).unwrap();
        shared.set_rate(at(700_000_000), BitRate::ZERO);
        assert_eq!(member.take(at(u64::MAX), bytes(1)).unwrap_err().ready_at, None);
    }

    #[test]
    fn a_new_burst_holds_from_then_on() {
        let shared = Arc::new(Aggregate::new(at(0), BitRate::from_bytes_per_sec(1_000), bytes(1_000), bytes(1)));
        let mut member = Member::new(shared.clone());
        assert_eq!(member.take(at(0), bytes(1_001)).unwrap_err().ready_at, None, "never");
        shared.set_burst(bytes(3_000));
        assert!(member.take(at(2_000_000_000), bytes(3_001)).is_err());
        member.take(at(2_000_000_000), bytes(3_000)).unwrap();
        shared.set_burst(bytes(500));
        assert_eq!(member.take(at(9_000_000_000), bytes(501)).unwrap_err().ready_at, None, "what was saved is gone");
        member.take(at(9_000_000_000), bytes(500)).unwrap();
    }

    proptest! {
        /// The stated bound, in every window that begins with a packet.
        #[test]
        fn members_overshoot_by_their_leases_at_most(
            rate in 1_000_u64..10_000_000_000, burst in 1_500_u64..100_000, members in 1_usize..5,
            steps in prop::collection::vec((0_u64..200_000, 0_usize..5, 1_u64..1_500, 0_u8..4), 1..300),
        ) {
            let shared = Arc::new(Aggregate::new(at(0), BitRate::from_bits_per_sec(rate), bytes(burst), bytes(1_500)));
            let lease = shared.lease().as_u64();
            let mut threads: Vec<Member> = (0..members).map(|_| Member::new(shared.clone())).collect();
            // When, after how many had passed, and how much; of what was taken and did not pass, before how many it was put back, too.
            let (mut now, mut passed, mut held, mut refunded) = (0, vec![], vec![], vec![]);
            for (wait, who, size, then) in steps {
                now += wait;
                let member = &mut threads[who % members];
                if member.take(at(now), bytes(size)).is_ok() {
                    if then == 1 {
                        held.push((who % members, passed.len(), size));
                    } else {
                        passed.push((now, size));
                    }
                }
                if then == 2 {
                    member.release();
                }
                // Some soon, and some when others have passed meanwhile.
                if then == 3 {
                    for (who, taken, size) in held.drain(..) {
                        threads[who].refund(bytes(size));
                        refunded.push((taken, passed.len(), size));
                    }
                }
                prop_assert!(threads.iter().all(|member| member.credit().as_u64() <= lease));
            }
            for from in 0..passed.len() {
                let mut sum = 0_u128;
                for (n, &(t, size)) in passed.iter().enumerate().skip(from) {
                    sum += u128::from(size) * 8_000_000_000;
                    let late = refunded.iter().filter(|(taken, put_back, _)| *taken <= from && (from..=n).contains(put_back));
                    let late: u64 = late.map(|(.., size)| size).sum();
                    let slack = u128::from(burst + lease * members as u64 + late + 1) * 8_000_000_000;
                    prop_assert!(sum <= u128::from(rate) * u128::from(t - passed[from].0) + slack);
                }
            }
        }
    }
}
