//! A path's round-trip time. Read first: RFC 9002, section 5 and 6.2.1.

use weirgate_units::{Duration, Instant};

/// Before anything is known of a path.
const INITIAL: Duration = Duration::from_millis(333);

/// For how long the least one counts: paths change (RFC 9002 has no bound, BBR 10 s).
const MIN_FOR: Duration = Duration::from_secs(10);

/// What timers are set by, at least: clocks and schedulers are no finer.
const GRANULARITY: Duration = Duration::from_millis(1);

/// What is known of a path's round-trip time.
#[derive(Clone, Copy, Debug)]
pub struct Rtt {
    latest: Duration,
    smoothed: Option<Duration>,
    variation: Duration,
    min: Duration,
    min_at: Instant,
}

impl Default for Rtt {
    fn default() -> Self {
        let variation = Duration::from_nanos(INITIAL.as_nanos() / 2);
        Self { latest: INITIAL, smoothed: None, variation, min: Duration::MAX, min_at: Instant::ZERO }
    }
}

impl Rtt {
    /// Takes a sample, and for how long the other side held the answer back.
    pub fn sample(&mut self, now: Instant, rtt: Duration, held: Duration) {
        self.latest = rtt;
        if rtt <= self.min || now.saturating_since(self.min_at) > MIN_FOR {
            (self.min, self.min_at) = (rtt, now);
        }
        // What would go below the least one was not held back, whatever is said.
        let adjusted = if rtt.saturating_sub(held) >= self.min { rtt.saturating_sub(held) } else { rtt };
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(adjusted);
            self.variation = Duration::from_nanos(adjusted.as_nanos() / 2);
            return;
        };
        let off = smoothed.as_nanos().abs_diff(adjusted.as_nanos());
        self.variation = Duration::from_nanos((3 * self.variation.as_nanos() + off) / 4);
        self.smoothed = Some(Duration::from_nanos((7 * smoothed.as_nanos() + adjusted.as_nanos()) / 8));
    }

    /// A moving mean.
    pub fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or(INITIAL)
    }

    /// The least one of the last 10 s; before the first one, [`smoothed`](Self::smoothed).
    pub fn min(&self) -> Duration {
        if self.is_known() { self.min } else { INITIAL }
    }

    /// The last one.
    pub const fn latest(&self) -> Duration {
        self.latest
    }

    /// How far samples are from the mean, in the mean.
    pub const fn variation(&self) -> Duration {
        self.variation
    }

    /// Whether there was a sample.
    pub const fn is_known(&self) -> bool {
        self.smoothed.is_some()
    }

    /// After how long without an answer one should have come, beside the time for which it may be held back.
    pub fn timeout(&self) -> Duration {
        self.smoothed().saturating_add(self.variation.saturating_mul(4).max(GRANULARITY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn samples_make_means_as_rfc_9002_has_them() {
        let mut rtt = Rtt::default();
        assert_eq!((rtt.is_known(), rtt.smoothed(), rtt.timeout()), (false, ms(333), ms(333 + 4 * 166 + 2)));
        rtt.sample(Instant::ZERO, ms(100), ms(0));
        assert_eq!((rtt.smoothed(), rtt.variation(), rtt.min()), (ms(100), ms(50), ms(100)));
        rtt.sample(Instant::ZERO, ms(180), ms(0));
        assert_eq!((rtt.smoothed(), rtt.variation(), rtt.latest()), (ms(110), Duration::from_micros(57_500), ms(180)));
        // The peer cannot have held back what came as fast as can be.
        rtt.sample(Instant::ZERO, ms(100), ms(90));
        assert_eq!(rtt.smoothed(), Duration::from_micros(108_750));
    }

    #[test]
    fn the_least_one_is_forgotten_after_a_while() {
        let mut rtt = Rtt::default();
        rtt.sample(Instant::ZERO, ms(10), ms(0));
        rtt.sample(Instant::ZERO + ms(9_999), ms(50), ms(0));
        assert_eq!(rtt.min(), ms(10));
        rtt.sample(Instant::ZERO + ms(10_001), ms(50), ms(0));
        assert_eq!(rtt.min(), ms(50));
    }
}
