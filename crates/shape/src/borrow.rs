//! The article's limiter, kept to be compared with: send first, and say from when on one may send again.
//!
//! One instant is all its state. Once it has passed, everything that waits is sent, whatever there is of it, and the instant moves
//! on by the time that takes at the rate. It is cheap, and it has no bound: a look takes a whole queue, at low rates
//! visibly (the queue is on, then off), and whoever has most in his queue gets most. [`Gate`](crate::Gate) is the one to use.

use weirgate_units::{BitRate, Bytes, Duration, Instant};

/// A rate, and the instant from which on sending is permitted.
#[derive(Clone, Copy, Debug)]
pub struct Borrow {
    rate: BitRate,
    permitted_at: Instant,
}

impl Borrow {
    /// Permits from `now` on.
    pub const fn new(now: Instant, rate: BitRate) -> Self {
        Self { rate, permitted_at: now }
    }

    /// Whether a queue may be read, or, for traffic that cannot be held back, whether it passes; otherwise it is dropped.
    pub fn is_open(&self, now: Instant) -> bool {
        self.rate != BitRate::ZERO && now >= self.permitted_at
    }

    /// Says what was sent.
    pub fn handle_sent(&mut self, now: Instant, size: Bytes) {
        self.permitted_at = self.permitted_at.max(now) + self.rate.time_for(size);
    }

    /// When it opens. `None`: the rate is zero.
    pub fn poll_at(&self) -> Option<Instant> {
        (self.rate != BitRate::ZERO).then_some(self.permitted_at)
    }

    /// The rate.
    pub const fn rate(&self) -> BitRate {
        self.rate
    }

    /// Changes the rate from `now` on; what is owed is owed at the new one.
    pub fn set_rate(&mut self, now: Instant, rate: BitRate) {
        let owed = self.rate.bytes_in(self.permitted_at.saturating_since(now));
        self.rate = rate;
        self.permitted_at =
            self.permitted_at.min(now) + if rate == BitRate::ZERO { Duration::ZERO } else { rate.time_for(owed) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MBIT: BitRate = BitRate::from_bits_per_sec(1_000_000);

    #[test]
    fn it_sends_all_and_is_closed_until_that_is_repaid() {
        let start = Instant::from_nanos(1_000);
        let mut limit = Borrow::new(start, MBIT);
        assert!(limit.is_open(start));
        // A queue of 125,000 B is a second at 1 Mbit/s.
        limit.handle_sent(start, Bytes::new(125_000));
        let second = Duration::from_secs(1);
        assert!(!limit.is_open(start + Duration::from_millis(999)) && limit.is_open(start + second));
        // Idling earns nothing.
        let later = start + second + second;
        limit.handle_sent(later, Bytes::new(1_250));
        assert_eq!(limit.poll_at(), Some(later + Duration::from_millis(10)));
    }

    #[test]
    fn a_new_rate_holds_for_what_is_owed() {
        let start = Instant::from_nanos(0);
        let mut limit = Borrow::new(start, MBIT);
        limit.handle_sent(start, Bytes::new(125_000));
        limit.set_rate(start, BitRate::from_bits_per_sec(10_000_000));
        assert_eq!(limit.poll_at(), Some(start + Duration::from_millis(100)));
        limit.set_rate(start, BitRate::ZERO);
        assert!(!limit.is_open(Instant::from_nanos(u64::MAX)) && limit.poll_at().is_none());
    }
}
