//! CoDel: which packets of a queue are too many. Read first: RFC 8289 (its pseudo-code is followed name by name) and
//! section 5 of RFC 8290 for what a flow queue adds.
//!
//! The queue is its owner's: it says of each packet that it takes out how long that one has waited, and is told whether to
//! drop it, or to mark it, where it can be marked (RFC 8290, 4.2). Packets that are neither dropped nor marked are not its
//! concern.

use weirgate_units::{Bytes, Duration, Instant};

/// The queueing delay that is aimed at, and the time in which a well-behaved sender answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A standing queue longer than this is too long. RFC 8289: 5 ms, or 5 to 10 % of the interval.
    pub target: Duration,
    /// In which the slowest sender that is cared for answers. RFC 8289: 100 ms.
    pub interval: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

impl Settings {
    /// For a flow whose round trip is known: a target of max(5 ms, RTT / 4), so that a window's worth of packets that arrive
    /// together is no standing queue, and an interval of max(100 ms, 4 RTT), so that a sender that was told has done what it can
    /// before it is told again. (At 1 Gbit/s and 50 ms, with an interval of 100 ms, a connection that had overshot at its
    /// start was told twice, and had a tenth to a third less than the rate for ten seconds and more.)
    pub fn for_rtt(rtt: Duration) -> Self {
        Self::default().and_for_rtt(rtt)
    }

    /// These, or those for a flow whose round trip is known, whichever are more patient.
    pub(crate) fn and_for_rtt(self, rtt: Duration) -> Self {
        Self {
            target: self.target.max(Duration::from_nanos(rtt.as_nanos() / 4)),
            interval: self.interval.max(Duration::from_nanos(rtt.as_nanos().saturating_mul(4))),
        }
    }
}

/// The state of one queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Codel {
    /// When the delay will have been above target for an interval; `None`: it is below.
    first_above: Option<Instant>,
    drop_next: Instant,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl Codel {
    /// Whether the packet that was taken out at `now`, after waiting for `sojourn`, is to be dropped or marked; `left` is
    /// what the queue holds behind it, and less than a packet of `mtu` there is never too much. Constant time.
    pub fn handle_dequeue(
        &mut self,
        now: Instant,
        sojourn: Duration,
        left: Bytes,
        mtu: Bytes,
        settings: &Settings,
    ) -> bool {
        let ok_to_drop = self.is_above(now, sojourn, left, mtu, settings);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            } else if now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                self.drop_next = self.control_law(self.drop_next, settings);
                return true;
            }
            return false;
        }
        if !ok_to_drop {
            return false;
        }
        self.dropping = true;
        // A dropping phase soon after another goes on where that one stopped.
        let delta = self.count - self.last_count;
        let recently =
            now.saturating_since(self.drop_next).as_nanos() < settings.interval.as_nanos().saturating_mul(16);
        self.count = if delta > 1 && recently { delta } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.control_law(now, settings);
        true
    }

    /// The queue is empty: no standing queue.
    pub const fn handle_empty(&mut self) {
        self.first_above = None;
        self.dropping = false;
    }

    fn is_above(&mut self, now: Instant, sojourn: Duration, left: Bytes, mtu: Bytes, settings: &Settings) -> bool {
        if sojourn < settings.target || left <= mtu {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            Some(first_above) => now >= first_above,
            None => {
                self.first_above = Some(now + settings.interval);
                false
            }
        }
    }

    /// Drops come closer with the square root of their number, which is what a TCP's rate falls with.
    fn control_law(&self, from: Instant, settings: &Settings) -> Instant {
        let root = f64::from(self.count.max(1)).sqrt();
        from + Duration::from_nanos((settings.interval.as_nanos() as f64 / root) as u64)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MTU: Bytes = Bytes::new(1_500);
    const MANY: Bytes = Bytes::new(100_000);

    fn ms(at: u64) -> Instant {
        Instant::from_nanos(at * 1_000_000)
    }

    /// The milliseconds in 0..`end` at which a queue is told to drop, asked each one, with the delay that `sojourn` says.
    fn drops(end: u64, sojourn: impl Fn(u64) -> u64) -> Vec<u64> {
        let (mut codel, settings) = (Codel::default(), Settings::default());
        (0..end)
            .filter(|at| codel.handle_dequeue(ms(*at), Duration::from_millis(sojourn(*at)), MANY, MTU, &settings))
            .collect()
    }

    #[test]
    fn a_standing_queue_is_dropped_from_ever_more_often() {
        // After an interval, then 100, 70.7, 57.7, 50 ms ... apart.
        assert_eq!(drops(520, |_| 20), [100, 200, 271, 329, 379, 424, 464, 502]);
    }

    #[test]
    fn a_burst_that_drains_within_an_interval_is_no_standing_queue() {
        assert_eq!(drops(1_000, |at| if at % 100 == 99 { 4 } else { 50 }), [0; 0]);
    }

    #[test]
    fn a_last_packet_is_kept() {
        let (mut codel, settings) = (Codel::default(), Settings::default());
        let dropped = (0..1_000).any(|at| codel.handle_dequeue(ms(at), Duration::from_millis(50), MTU, MTU, &settings));
        assert!(!dropped);
    }

    #[test]
    fn a_target_follows_the_round_trip() {
        assert_eq!(Settings::for_rtt(Duration::from_millis(4)), Settings::default());
        let slow = Settings::for_rtt(Duration::from_millis(200));
        assert_eq!((slow.target, slow.interval), (Duration::from_millis(50), Duration::from_millis(800)));
    }
}
