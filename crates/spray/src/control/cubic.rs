//! CUBIC. Read first: RFC 9438; RFC 9406 (HyStart++) for the end of slow start.

use weirgate_units::{BitRate, Duration, Instant};

use super::{Acked, INITIAL_WINDOW, LEAST_WINDOW, per, times};

/// RFC 9438: C, in packets for the third power of a second, and what is left of a window after a loss.
const C: f64 = 0.4;
const BETA: f64 = 0.7;

/// RFC 9406: what the round-trip time grows by, in parts of itself, where a queue fills up; and between which bounds.
const ETA_PARTS: u64 = 8;
const ETA_MIN: Duration = Duration::from_millis(4);
const ETA_MAX: Duration = Duration::from_millis(16);

/// Samples of a round before its least round-trip time counts.
const SAMPLES: u32 = 8;

/// The state of one path.
#[derive(Debug)]
pub struct Cubic {
    mtu: u64,
    window: f64,
    threshold: f64,
    /// Before the last loss, in bytes.
    window_max: f64,
    /// When the growth since the last loss began.
    epoch: Option<Instant>,
    /// What Reno would have by now.
    reno: f64,
    /// Losses of what was sent before this are one.
    recovery: Option<Instant>,
    /// Before the last loss, for when that was none.
    before: Option<(f64, f64, f64)>,
    round: Round,
}

/// A round of slow start.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// It ends when what was delivered then is this.
    ends_at: u64,
    samples: u32,
    rtt_min: Duration,
    last_rtt_min: Duration,
}

impl Cubic {
    pub(super) fn new(mtu: u64) -> Self {
        let window = (INITIAL_WINDOW * mtu) as f64;
        let round = Round { ends_at: 0, samples: 0, rtt_min: Duration::MAX, last_rtt_min: Duration::MAX };
        Self {
            mtu,
            window,
            threshold: f64::INFINITY,
            window_max: 0.0,
            epoch: None,
            reno: 0.0,
            recovery: None,
            before: None,
            round,
        }
    }

    pub(super) fn handle_ack(&mut self, acked: &Acked) {
        if self.recovery.is_some_and(|began| acked.sent <= began) {
            return;
        }
        self.recovery = None;
        // One that is not used does not grow (RFC 9002, 7.8).
        if acked.in_flight + acked.bytes < self.window as u64 / 2 {
            return;
        }
        if self.window < self.threshold {
            self.window += acked.bytes as f64;
            self.look_for_a_queue(acked);
            return;
        }
        let mtu = self.mtu as f64;
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.reno = self.window;
            acked.now
        });
        let k = ((self.window_max - self.window_at_epoch()).max(0.0) / mtu / C).cbrt();
        let t = acked.now.saturating_since(epoch).saturating_add(acked.rtt).as_secs_f64();
        let cubic = (C * (t - k).powi(3)).mul_add(mtu, self.window_max.max(self.window_at_epoch()));
        let alpha = if self.reno < self.window_max { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        self.reno += alpha * mtu * acked.bytes as f64 / self.window;
        let target = cubic.clamp(self.window, self.window * 1.5);
        let grown = self.window + (target - self.window) * acked.bytes as f64 / self.window;
        self.window = grown.max(self.reno);
    }

    /// The window with which the growth began.
    fn window_at_epoch(&self) -> f64 {
        if self.window_max > 0.0 { self.window_max * BETA } else { self.threshold.min(self.window) }
    }

    fn look_for_a_queue(&mut self, acked: &Acked) {
        let round = &mut self.round;
        if acked.delivered_then >= round.ends_at {
            *round =
                Round { ends_at: acked.delivered, samples: 0, rtt_min: Duration::MAX, last_rtt_min: round.rtt_min };
        }
        round.samples += 1;
        round.rtt_min = round.rtt_min.min(acked.rtt);
        if round.samples < SAMPLES || round.last_rtt_min == Duration::MAX {
            return;
        }
        let eta = Duration::from_nanos(round.last_rtt_min.as_nanos() / ETA_PARTS).clamp(ETA_MIN, ETA_MAX);
        if round.rtt_min >= round.last_rtt_min.saturating_add(eta) {
            self.threshold = self.window;
        }
    }

    pub(super) fn handle_loss(&mut self, now: Instant, sent: Instant) {
        if self.recovery.is_some_and(|began| sent <= began) {
            return;
        }
        self.before = Some((self.window, self.threshold, self.window_max));
        self.recovery = Some(now);
        self.epoch = None;
        // Fast convergence: another flow wants room.
        let shrinks = self.window < self.window_max;
        self.window_max = if shrinks { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * BETA).max((LEAST_WINDOW * self.mtu) as f64);
        self.threshold = self.window;
    }

    pub(super) fn handle_spurious_loss(&mut self) {
        if let Some((window, threshold, window_max)) = self.before.take() {
            (self.window, self.threshold, self.window_max) = (self.window.max(window), threshold, window_max);
            (self.recovery, self.epoch) = (None, None);
        }
    }

    pub(super) const fn window(&self) -> u64 {
        self.window as u64
    }

    /// Somewhat faster than the window's, so that pacing is not what limits (RFC 9002, 7.7).
    pub(super) fn pacing_rate(&self, rtt: Duration) -> BitRate {
        times(per(self.window(), rtt), if self.window < self.threshold { 2.0 } else { 1.25 })
    }

    pub(super) fn is_starting(&self) -> bool {
        self.window < self.threshold
    }

    pub(super) const fn set_mtu(&mut self, mtu: u64) {
        self.mtu = mtu;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u64 = 1_000;

    fn ack(now_ms: u64, bytes: u64, in_flight: u64) -> Acked {
        let now = Instant::ZERO + Duration::from_millis(now_ms);
        Acked {
            now,
            bytes,
            sent: now - Duration::from_millis(100),
            in_flight,
            rtt: Duration::from_millis(100),
            rtt_min: Duration::from_millis(100),
            delivered: 0,
            delivered_then: 0,
            rate: None,
            is_app_limited: false,
        }
    }

    #[test]
    fn it_grows_as_the_rfc_has_it_after_a_loss() {
        let mut cubic = Cubic::new(MTU);
        (cubic.window, cubic.threshold) = (1_000_000.0, 0.0);
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        cubic.handle_loss(at(0), at(0));
        assert_eq!(cubic.window(), 700_000);
        cubic.handle_loss(at(50), at(0));
        assert_eq!(cubic.window(), 700_000, "one loss for all of a window");
        // K is the cube root of 300 / 0.4: 9.1 s until the window is what it was.
        for ms in (200..9_000).step_by(100) {
            cubic.handle_ack(&ack(ms, cubic.window(), 0));
        }
        let near = cubic.window as i64;
        assert!((990_000..=1_000_000).contains(&near), "{near}");
        for ms in (9_000..14_000).step_by(100) {
            cubic.handle_ack(&ack(ms, cubic.window(), 0));
        }
        assert!(cubic.window() > 1_030_000, "{}", cubic.window());
    }

    #[test]
    fn a_loss_that_was_none_is_taken_back_and_an_unused_window_does_not_grow() {
        let mut cubic = Cubic::new(MTU);
        let at = Instant::ZERO + Duration::from_secs(1);
        cubic.handle_ack(&ack(500, 32_000, 0));
        assert_eq!(cubic.window(), 64_000);
        cubic.handle_loss(at, at);
        cubic.handle_spurious_loss();
        assert_eq!(cubic.window(), 64_000);
        cubic.handle_ack(&ack(600, 1_000, 1_000));
        assert_eq!(cubic.window(), 64_000);
    }
}
