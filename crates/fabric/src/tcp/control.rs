//! Congestion control: how the window grows, and what it comes down to.

use crate::{Span, Time};

/// Which congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlKind {
    /// RFC 5681 and 6582.
    NewReno,
    /// RFC 9438.
    Cubic,
    /// RFC 8257.
    Dctcp,
}

/// CUBIC's `C`, segments per second cubed, and what a window comes down to (RFC 9438, section 5).
const C: f64 = 0.4;
const BETA: f64 = 0.7;

/// The weight of a new fraction in DCTCP's estimate (RFC 8257, section 4.2).
const G: f64 = 1.0 / 16.0;

/// A window, in segments.
#[derive(Clone, Debug)]
pub(super) struct Control {
    pub(super) window: f64,
    threshold: f64,
    law: Law,
}

#[derive(Clone, Debug)]
enum Law {
    NewReno,
    Cubic {
        /// Where the window was, and when, before it came down; less than that, where it had come down before it was where it was then.
        highest: f64,
        /// Where it was.
        prior: f64,
        epoch: Option<Time>,
        /// How long it takes to come back to `highest`.
        k: f64,
        /// What Reno would have.
        reno: f64,
    },
    Dctcp {
        /// The share of segments that is marked, smoothed.
        alpha: f64,
        acked: u32,
        marked: u32,
        /// The round trip ends with this segment.
        round: u32,
        /// The window came down in this one already.
        is_down: bool,
    },
}

/// Segments were acknowledged.
pub(super) struct Acked {
    pub(super) segments: u32,
    /// Of these, those whose marks were echoed.
    pub(super) marked: u32,
    pub(super) una: u32,
    pub(super) next: u32,
    pub(super) rtt: Span,
    /// The window was what kept the sender from sending more, and nothing is being mended.
    pub(super) may_grow: bool,
}

impl Control {
    pub(super) const fn new(kind: ControlKind, initial: u16) -> Self {
        let law = match kind {
            ControlKind::NewReno => Law::NewReno,
            ControlKind::Cubic => Law::Cubic { highest: 0.0, prior: 0.0, epoch: None, k: 0.0, reno: 0.0 },
            // At first all is taken to be marked, so that the first marks are answered in full.
            ControlKind::Dctcp => Law::Dctcp { alpha: 1.0, acked: 0, marked: 0, round: 0, is_down: false },
        };
        Self { window: initial as f64, threshold: f64::INFINITY, law }
    }

    /// Segments that may be under way.
    pub(super) const fn segments(&self) -> u32 {
        self.window as u32
    }

    pub(super) fn handle_ack(&mut self, now: Time, acked: &Acked) {
        self.handle_marks(acked);
        if !acked.may_grow {
            return;
        }
        let mut left = f64::from(acked.segments);
        if self.window < self.threshold {
            // Slow start, up to the threshold.
            let grown = (self.threshold - self.window).min(left);
            self.window += grown;
            left -= grown;
        }
        if left <= 0.0 {
            return;
        }
        let window = self.window;
        match &mut self.law {
            Law::NewReno | Law::Dctcp { .. } => self.window += left / window,
            Law::Cubic { highest, prior, epoch, k, reno } => {
                let epoch = *epoch.get_or_insert_with(|| {
                    *highest = highest.max(window);
                    *k = libm::cbrt((*highest - window) / C);
                    *reno = window;
                    now
                });
                let ahead = (now.saturating_since(epoch) + acked.rtt).as_secs_f64() - *k;
                let target = (C * ahead * ahead * ahead + *highest).clamp(window, 1.5 * window);
                // Slower than Reno, which comes down further, until it is where it was (section 4.3).
                let alpha = if *reno < *prior { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
                *reno += alpha * left / window;
                self.window += left * (target - window) / window;
                self.window = self.window.max(*reno);
            }
        }
    }

    /// DCTCP: once in a round trip, the window comes down by half of the share that was marked.
    fn handle_marks(&mut self, ack: &Acked) {
        let Law::Dctcp { alpha, acked, marked, round, is_down } = &mut self.law else { return };
        *acked += ack.segments;
        *marked += ack.marked;
        if ack.marked > 0 && !*is_down {
            *is_down = true;
            self.window = (self.window * (1.0 - *alpha / 2.0)).max(2.0);
            self.threshold = self.window;
        }
        if ack.una >= *round {
            if *acked > 0 {
                *alpha += G * (f64::from(*marked) / f64::from(*acked) - *alpha);
            }
            (*acked, *marked, *round, *is_down) = (0, 0, ack.next, false);
        }
    }

    /// The window, and where slow start ends.
    pub(super) const fn limits(&self) -> (f64, f64) {
        (self.window, self.threshold)
    }

    /// Nothing was lost after all: the window is what it was, or what it has become.
    pub(super) const fn restore(&mut self, (window, threshold): (f64, f64)) {
        self.window = self.window.max(window);
        self.threshold = self.threshold.max(threshold);
    }

    /// Segments were lost while so many were under way: the window for mending them, and after.
    pub(super) fn handle_loss(&mut self, under_way: u32) {
        self.threshold = self.come_down(under_way);
        self.window = self.threshold;
    }

    /// The timer has run out.
    pub(super) fn handle_timeout(&mut self, under_way: u32) {
        self.threshold = self.come_down(under_way);
        self.window = 1.0;
    }

    fn come_down(&mut self, under_way: u32) -> f64 {
        let window = self.window;
        match &mut self.law {
            Law::NewReno | Law::Dctcp { .. } => (f64::from(under_way) / 2.0).max(2.0),
            Law::Cubic { highest, prior, epoch, .. } => {
                // Fast convergence: who comes down again before where he was leaves room for others.
                *highest = if window < *highest { window * (1.0 + BETA) / 2.0 } else { window };
                (*prior, *epoch) = (window, None);
                (window * BETA).max(2.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acked(segments: u32, marked: u32, una: u32, next: u32) -> Acked {
        Acked { segments, marked, una, next, rtt: Span::from_micros(100_000), may_grow: true }
    }

    #[test]
    fn new_reno_doubles_then_adds_one_in_a_round_trip() {
        let mut control = Control::new(ControlKind::NewReno, 10);
        control.handle_ack(Time::ZERO, &acked(10, 0, 10, 20));
        assert_eq!(control.segments(), 20);
        control.handle_loss(20);
        assert_eq!(control.segments(), 10);
        (0..10).for_each(|_| control.handle_ack(Time::ZERO, &acked(1, 0, 11, 21)));
        assert!((10.9..=11.0).contains(&control.window), "{}", control.window);
        control.handle_timeout(11);
        assert_eq!(control.segments(), 1);
    }

    /// RFC 9438, section 4.2: the window is where it was after K seconds.
    #[test]
    fn cubic_comes_back_after_k() {
        let mut control = Control::new(ControlKind::Cubic, 1_000);
        control.handle_loss(1_000);
        assert!((699.0..=700.0).contains(&control.window));
        // K is the third root of 1,000 * (1 - 0.7) / 0.4: 9.09 s; one segment less is there the third root of 1 / 0.4 s earlier.
        let mut at = 0.0;
        while control.window < 999.0 {
            at += 0.1;
            control.handle_ack(Time::ZERO + Span::from_secs_f64(at), &acked(control.segments(), 0, 0, 0));
        }
        assert!((7.6..7.9).contains(&at), "{at}");
    }

    /// RFC 9438, section 4.3: by a round trip that is too short for the cubic law, half a segment in each until the window is where it
    /// was, and a whole one from then on.
    #[test]
    fn cubic_is_no_slower_than_reno() {
        let mut control = Control::new(ControlKind::Cubic, 20);
        control.handle_loss(20);
        let round = |control: &mut Control| {
            let before = control.window;
            (0..control.segments()).for_each(|_| {
                control.handle_ack(Time::ZERO, &Acked { rtt: Span::from_micros(10), ..acked(1, 0, 0, 0) });
            });
            control.window - before
        };
        let slow = round(&mut control);
        assert!((0.45..0.54).contains(&slow), "{slow}");
        while control.window < 20.0 {
            round(&mut control);
        }
        let fast = round(&mut control);
        assert!((0.9..=1.0).contains(&fast), "{fast}");
    }

    /// RFC 8257: half of the share that is marked, once in a round trip.
    #[test]
    fn dctcp_comes_down_by_what_is_marked() {
        let mut control = Control::new(ControlKind::Dctcp, 100);
        control.threshold = 0.0;
        let mut una = 0;
        for _ in 0..200 {
            una += 100;
            control.window = 100.0;
            control.handle_ack(Time::ZERO, &acked(80, 0, una - 20, una + 100));
            control.handle_ack(Time::ZERO, &acked(20, 20, una, una + 100));
        }
        // A fifth was marked each time: a tenth is taken off.
        control.window = 100.0;
        control.handle_ack(Time::ZERO, &Acked { may_grow: false, ..acked(10, 10, una + 10, una + 110) });
        assert!((89.0..91.0).contains(&control.window), "{}", control.window);
    }
}
