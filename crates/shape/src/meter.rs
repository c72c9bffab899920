//! Meters: which colour a packet is, by two token buckets. Read first: RFC 2697 (single rate, three colours), RFC 2698 (two
//! rates) and RFC 4115 (two rates, efficient handling of in-profile traffic).
//!
//! A meter delays nothing and drops nothing: it says green (within what is committed), yellow (within what is tolerated)
//! or red. Each is exact, as [`Bucket`] is: the RFCs describe buckets that gain a token at a time, and these gain what a
//! token at a time would come to, at any rate and polled in any pattern.

use weirgate_units::{BitRate, Bytes, Instant};

use crate::bucket::Bucket;

/// How a packet stands to its profile. In the order in which precedence falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Color {
    /// Within the committed rate. What a meter that is colour-blind takes every packet for.
    #[default]
    Green,
    /// Beyond it, within what is tolerated.
    Yellow,
    /// Beyond that too.
    Red,
}

/// srTCM, RFC 2697: one rate, a committed burst and an excess burst that fills with what the committed one has no room for.
#[derive(Clone, Debug)]
pub struct SrTcm {
    committed: Bucket,
    excess: Bucket,
}

impl SrTcm {
    /// Both buckets full. CIR, CBS, EBS in the RFC's terms; sizes count from the IP header on there, here as the caller
    /// counts.
    pub fn new(now: Instant, rate: BitRate, committed_burst: Bytes, excess_burst: Bytes) -> Self {
        Self {
            committed: Bucket::new(now, rate, committed_burst),
            // It earns nothing of its own.
            excess: Bucket::new(now, BitRate::ZERO, excess_burst),
        }
    }

    /// The packet's colour, and its tokens taken. `before` is what an earlier meter said; [`Color::Green`] is colour-blind.
    pub fn mark(&mut self, now: Instant, size: Bytes, before: Color) -> Color {
        let overflow = self.committed.earn(now);
        self.excess.put(overflow);
        take_first(&mut self.committed, &mut self.excess, now, size, before)
    }
}

/// trTCM, RFC 2698: a peak rate that every packet counts against and a committed rate.
#[derive(Clone, Debug)]
pub struct TrTcm {
    peak: Bucket,
    committed: Bucket,
}

impl TrTcm {
    /// Both buckets full: PIR and PBS, CIR and CBS. The RFC wants the peak rate at or above the committed one.
    pub fn new(now: Instant, peak: (BitRate, Bytes), committed: (BitRate, Bytes)) -> Self {
        Self { peak: Bucket::new(now, peak.0, peak.1), committed: Bucket::new(now, committed.0, committed.1) }
    }

    /// The packet's colour, and its tokens taken. `before` is what an earlier meter said; [`Color::Green`] is colour-blind.
    pub fn mark(&mut self, now: Instant, size: Bytes, before: Color) -> Color {
        if before == Color::Red || self.peak.take(now, size).is_err() {
            Color::Red
        } else if before == Color::Yellow || self.committed.take(now, size).is_err() {
            Color::Yellow
        } else {
            Color::Green
        }
    }
}

/// RFC 4115's two-rate meter: a committed and an excess rate, each with its own bucket, so that yellow packets never take
/// from what is committed.
#[derive(Clone, Debug)]
pub struct EfTcm {
    committed: Bucket,
    excess: Bucket,
}

impl EfTcm {
    /// Both buckets full: CIR and CBS, EIR and EBS.
    pub fn new(now: Instant, committed: (BitRate, Bytes), excess: (BitRate, Bytes)) -> Self {
        Self { committed: Bucket::new(now, committed.0, committed.1), excess: Bucket::new(now, excess.0, excess.1) }
    }

    /// The packet's colour, and its tokens taken. `before` is what an earlier meter said; [`Color::Green`] is colour-blind.
    pub fn mark(&mut self, now: Instant, size: Bytes, before: Color) -> Color {
        take_first(&mut self.committed, &mut self.excess, now, size, before)
    }
}

/// From the committed bucket what is green, from the excess one what that has no tokens for and what is yellow: the step that
/// RFC 2697 and RFC 4115 share.
fn take_first(committed: &mut Bucket, excess: &mut Bucket, now: Instant, size: Bytes, before: Color) -> Color {
    if before == Color::Green && committed.take(now, size).is_ok() {
        Color::Green
    } else if before <= Color::Yellow && excess.take(now, size).is_ok() {
        Color::Yellow
    } else {
        Color::Red
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use Color::{Green, Red, Yellow};

    /// 1,000 B/s: a byte each millisecond.
    const RATE: BitRate = BitRate::from_bytes_per_sec(1_000);

    fn ms(at: u64) -> Instant {
        Instant::from_nanos(at * 1_000_000)
    }

    fn bytes(n: u64) -> Bytes {
        Bytes::new(n)
    }

    // The vectors are worked by hand from the algorithms in section 3 of each RFC.

    #[test]
    fn srtcm_fills_the_excess_bucket_with_what_the_committed_one_has_no_room_for() {
        let mut meter = SrTcm::new(ms(0), RATE, bytes(300), bytes(200));
        let seen: Vec<Color> = [
            (0, 200),   // Tc 300 -> 100
            (0, 150),   // Tc too small; Te 200 -> 50
            (0, 100),   // Tc 100 -> 0
            (0, 60),    // Te 50 is too small: red takes nothing
            (100, 100), // Tc 100 -> 0
            (600, 300), // 500 earned: Tc 300, Te 50 + 200 cut to 200; Tc -> 0
            (600, 200), // Te 200 -> 0
            (600, 1),
        ]
        .map(|(at, size)| meter.mark(ms(at), bytes(size), Green))
        .to_vec();
        assert_eq!(seen, [Green, Yellow, Green, Red, Green, Green, Yellow, Red]);
    }

    #[test]
    fn srtcm_is_aware_of_colours() {
        let mut meter = SrTcm::new(ms(0), RATE, bytes(300), bytes(200));
        assert_eq!(meter.mark(ms(0), bytes(100), Yellow), Yellow, "a yellow one takes from Te, though Tc is full");
        assert_eq!(meter.mark(ms(0), bytes(100), Red), Red, "a red one takes nothing");
        assert_eq!(meter.mark(ms(0), bytes(101), Yellow), Red);
        assert_eq!(meter.mark(ms(0), bytes(300), Green), Green);
        assert_eq!(meter.mark(ms(0), bytes(100), Green), Yellow);
    }

    #[test]
    fn trtcm_counts_every_packet_against_the_peak_rate() {
        // CIR 1,000 B/s with 300 B; PIR 2,000 B/s with 500 B.
        let peak = BitRate::from_bytes_per_sec(2_000);
        let mut meter = TrTcm::new(ms(0), (peak, bytes(500)), (RATE, bytes(300)));
        let seen: Vec<Color> = [
            (0, 300),   // Tp 500 -> 200, Tc 300 -> 0
            (0, 150),   // Tp 200 -> 50; Tc too small
            (0, 60),    // Tp 50 is too small: nothing is taken
            (0, 50),    // Tp 50 -> 0; yellow
            (100, 200), // Tp 200 -> 0; Tc 100 is too small, and is kept
            (150, 100), // Tp 100 -> 0; Tc 150 -> 50
        ]
        .map(|(at, size)| meter.mark(ms(at), bytes(size), Green))
        .to_vec();
        assert_eq!(seen, [Green, Yellow, Red, Yellow, Yellow, Green]);
        // Aware: a yellow one leaves Tc alone (50 B, and 250 more after 400 ms are cut to 300).
        assert_eq!(meter.mark(ms(400), bytes(100), Yellow), Yellow);
        assert_eq!(meter.mark(ms(400), bytes(100), Red), Red);
        assert_eq!(meter.mark(ms(400), bytes(300), Green), Green);
    }

    #[test]
    fn rfc_4115_never_takes_yellow_from_what_is_committed() {
        let mut meter = EfTcm::new(ms(0), (RATE, bytes(300)), (RATE, bytes(200)));
        let seen: Vec<Color> = [
            (0, 200, Green),   // Tc 300 -> 100
            (0, 150, Green),   // Te 200 -> 50
            (0, 100, Yellow),  // Te 50 is too small
            (0, 100, Green),   // Tc 100 -> 0
            (50, 100, Yellow), // Te 100 -> 0
            (50, 50, Green),   // Tc 50 -> 0
            (50, 1, Red),
        ]
        .map(|(at, size, before)| meter.mark(ms(at), bytes(size), before))
        .to_vec();
        assert_eq!(seen, [Green, Yellow, Red, Green, Yellow, Green, Red]);
    }
}
