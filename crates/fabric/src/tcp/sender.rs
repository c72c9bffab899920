//! A flow's sender: which segment is sent next, and when one is sent again.

use super::TcpSettings;
use super::board::Board;
use super::control::{Acked, Control};
use crate::{Span, Time};

/// What an ACK says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    /// All below have arrived.
    pub(crate) expected: u32,
    /// And so have these: how far beyond, and how many; none is `(0, 0)`.
    pub(crate) blocks: [(u16, u16); 3],
    /// The mark of a segment is echoed.
    pub(crate) is_marked: bool,
    /// How long ago the segment was sent that it answers.
    pub(crate) rtt: Span,
}

/// The sender of a flow.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    total: u32,
    /// The first segment that is not acknowledged.
    una: u32,
    /// The first one that was never sent.
    next: u32,
    board: Board,
    control: Control,
    /// What is lost is being sent again, until this one is acknowledged.
    mending: Option<Mending>,
    /// The last segment that was not sent was held back by the window.
    is_limited: bool,
    rtt: Rtt,
    backoff: u32,
    /// A segment is lost when so many beyond it have arrived.
    reordering: u32,
    /// When the timer runs out.
    expires_at: Time,
    /// Segments sent again.
    pub(crate) sent_again: u32,
    /// How often the timer ran out.
    pub(crate) timeouts: u32,
}

#[derive(Clone, Copy, Debug)]
struct Mending {
    until: u32,
    /// The timer ran out: the window grows meanwhile.
    is_timeout: bool,
    /// Since when: what was sent before was not sent again.
    began: Time,
    /// What the window and the threshold were.
    before: (f64, f64),
}

/// The round-trip time, smoothed (RFC 6298), in picoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Rtt {
    smoothed: u64,
    variation: u64,
}

impl Rtt {
    fn handle_sample(&mut self, rtt: Span) {
        let rtt = rtt.as_picos();
        if self.smoothed == 0 {
            (self.smoothed, self.variation) = (rtt.max(1), rtt / 2);
        } else {
            self.variation = (3 * self.variation + self.smoothed.abs_diff(rtt)) / 4;
            self.smoothed = (7 * self.smoothed + rtt) / 8;
        }
    }

    fn timeout(&self, settings: &TcpSettings, backoff: u32) -> Span {
        // A flow is of a connection that is there: its handshake has measured a round trip, which is shorter than the least timeout.
        let picos = self.smoothed + 4 * self.variation;
        let longest = settings.max_rto.as_picos();
        let least = settings.min_rto.as_picos().min(longest);
        Span::from_picos((picos.clamp(least, longest) << backoff.min(16)).clamp(least, longest))
    }
}

impl Sender {
    /// A flow of so many segments, 1 at least.
    pub(crate) const fn new(settings: &TcpSettings, total: u32) -> Self {
        Self {
            total,
            una: 0,
            next: 0,
            board: Board::new(),
            control: Control::new(settings.control, settings.initial_window),
            mending: None,
            is_limited: false,
            rtt: Rtt { smoothed: 0, variation: 0 },
            backoff: 0,
            reordering: settings.dup_ack_threshold,
            expires_at: Time::MAX,
            sent_again: 0,
            timeouts: 0,
        }
    }

    /// Whether all is acknowledged.
    pub(crate) const fn is_done(&self) -> bool {
        self.una >= self.total
    }

    /// The first segment that is not acknowledged, and the first that was never sent.
    pub(crate) const fn window(&self) -> (u32, u32) {
        (self.una, self.next)
    }

    /// Whether something was never sent, or is to be sent again.
    pub(crate) fn has_more(&self) -> bool {
        self.next < self.total || self.board.lost(self.una).is_some()
    }

    pub(crate) const fn total(&self) -> u32 {
        self.total
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called, unless an ACK comes before.
    pub(crate) const fn poll_at(&self) -> Time {
        self.expires_at
    }

    /// The next segment to be sent now, if there is one.
    #[inline]
    pub(crate) fn poll_segment(&mut self, settings: &TcpSettings, now: Time) -> Option<u32> {
        let segment =
            if self.board.is_empty() { self.fresh(settings, self.next - self.una) } else { self.any(settings) };
        if segment.is_some() && self.expires_at == Time::MAX {
            self.expires_at = now + self.rtt.timeout(settings, self.backoff);
        }
        segment
    }

    /// One that was never sent, while so many are under way.
    #[inline]
    fn fresh(&mut self, settings: &TcpSettings, pipe: u32) -> Option<u32> {
        let is_there = self.next < self.total && self.next - self.una < settings.receive_window;
        self.is_limited = is_there && pipe >= self.control.segments();
        if !is_there || self.is_limited {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }

    /// A lost one, or one that was never sent.
    fn any(&mut self, settings: &TcpSettings) -> Option<u32> {
        let pipe = self.board.pipe(self.una, self.next);
        let Some(lost) = self.board.lost(self.una) else { return self.fresh(settings, pipe) };
        self.is_limited = pipe >= self.control.segments();
        if self.is_limited {
            return None;
        }
        self.board.handle_sent_again(lost);
        self.sent_again += 1;
        Some(lost)
    }

    /// An ACK has come.
    pub(crate) fn handle_ack(&mut self, settings: &TcpSettings, now: Time, ack: &Ack) {
        let new = ack.expected.saturating_sub(self.una);
        // The ACK that ends the mending of a loss is for what was sent before it.
        let may_grow = self.is_limited && self.mending.is_none_or(|mending| mending.is_timeout);
        let had_sacked = !self.board.is_empty();
        let under_way = if had_sacked { self.board.pipe(self.una, self.next) } else { self.next - self.una };
        let adapts = had_sacked && settings.reordering_max > settings.dup_ack_threshold;
        if adapts {
            self.learn(settings, now, ack);
        }
        if new > 0 {
            self.una = ack.expected;
            self.backoff = 0;
            self.rtt.handle_sample(ack.rtt);
            if had_sacked {
                self.board.advance(self.una);
            }
            if self.mending.is_some_and(|mending| self.una >= mending.until) {
                self.mending = None;
            }
            self.expires_at =
                if self.una < self.next { now + self.rtt.timeout(settings, self.backoff) } else { Time::MAX };
        }
        for (beyond, count) in ack.blocks.iter().filter(|(_, count)| *count > 0) {
            let start = ack.expected + u32::from(*beyond);
            let end = start + u32::from(*count);
            if end > self.una {
                let range = (start.max(self.una), end);
                if adapts {
                    self.raise(settings, self.board.overtaken(range));
                }
                self.board.add(range);
            }
        }
        if !self.board.is_empty() && self.board.judge(self.una, self.reordering) && self.mending.is_none() {
            let before = self.control.limits();
            self.mending = Some(Mending { until: self.next, is_timeout: false, began: now, before });
            self.control.handle_loss(under_way);
        }
        if new > 0 {
            self.control.handle_ack(
                now,
                &Acked {
                    segments: new,
                    marked: if ack.is_marked { new } else { 0 },
                    una: self.una,
                    next: self.next,
                    rtt: ack.rtt,
                    may_grow,
                },
            );
        }
    }

    /// What an ACK tells of re-ordering, before it counts.
    fn learn(&mut self, settings: &TcpSettings, now: Time, ack: &Ack) {
        if ack.expected <= self.una {
            return;
        }
        // When the segment was sent that it answers, which the clock of segments knows to a nanosecond.
        let since = |began: Time| now.saturating_since(began) + Span::from_nanos(1);
        match self.mending.filter(|mending| ack.rtt > since(mending.began)) {
            // It was under way already when it was taken for lost, and was not.
            Some(mending) => {
                self.raise(settings, self.board.highest().saturating_sub(self.una));
                self.control.restore(mending.before);
                self.mending = None;
                self.board.take_back();
            }
            None => self.raise(settings, self.board.overtaken((self.una, self.una + 1))),
        }
    }

    /// The threshold is to be so many at least.
    fn raise(&mut self, settings: &TcpSettings, to: u32) {
        self.reordering = self.reordering.max(to.min(settings.reordering_max));
    }

    /// The timer has run out: all that is under way is taken for lost.
    pub(crate) fn handle_timeout(&mut self, settings: &TcpSettings, now: Time) {
        let under_way = self.board.pipe(self.una, self.next).max(1);
        let before = self.mending.map_or_else(|| self.control.limits(), |mending| mending.before);
        // Of one loss the window comes down once, however often the timer runs out.
        if self.backoff == 0 {
            self.control.handle_timeout(under_way);
        }
        self.board.lose_all(self.next);
        self.mending = Some(Mending { until: self.next, is_timeout: true, began: now, before });
        self.backoff += 1;
        self.timeouts += 1;
        self.expires_at = now + self.rtt.timeout(settings, self.backoff);
    }

    /// Segments that are under way, and the window: for invariants.
    #[cfg(test)]
    pub(crate) fn pipe_and_window(&self) -> (u32, u32) {
        (self.board.pipe(self.una, self.next), self.control.segments())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(expected: u32, blocks: &[(u16, u16)]) -> Ack {
        let mut all = [(0, 0); 3];
        all[..blocks.len()].copy_from_slice(blocks);
        Ack { expected, blocks: all, is_marked: false, rtt: Span::from_micros(100) }
    }

    fn poll_all(sender: &mut Sender, settings: &TcpSettings, now: Time) -> Vec<u32> {
        std::iter::from_fn(|| sender.poll_segment(settings, now)).collect()
    }

    #[test]
    fn three_beyond_a_hole_send_it_again_and_halve_the_window() {
        let settings = TcpSettings::default();
        let mut sender = Sender::new(&settings, 100);
        assert_eq!(poll_all(&mut sender, &settings, Time::ZERO), (0..10).collect::<Vec<_>>());
        let now = Time::from_picos(100_000_000);
        for beyond in 1..=2 {
            sender.handle_ack(&settings, now, &ack(0, &[(1, beyond)]));
        }
        // Two have left the network, so two more may go in (RFC 3042).
        assert_eq!(poll_all(&mut sender, &settings, now), [10, 11]);
        sender.handle_ack(&settings, now, &ack(0, &[(1, 3)]));
        assert_eq!(sender.pipe_and_window(), (8, 5));
        for beyond in 4..=6 {
            sender.handle_ack(&settings, now, &ack(0, &[(1, beyond)]));
        }
        assert_eq!(poll_all(&mut sender, &settings, now), []);
        sender.handle_ack(&settings, now, &ack(0, &[(1, 7)]));
        assert_eq!(poll_all(&mut sender, &settings, now), [0]);
        sender.handle_ack(&settings, now, &ack(12, &[]));
        assert_eq!(poll_all(&mut sender, &settings, now), (12..17).collect::<Vec<_>>());
        assert_eq!((sender.sent_again, sender.timeouts), (1, 0));
    }

    #[test]
    fn what_was_only_late_raises_the_threshold_and_gives_the_window_back() {
        let settings = TcpSettings { reordering_max: 127, ..TcpSettings::default() };
        let mut sender = Sender::new(&settings, 100);
        poll_all(&mut sender, &settings, Time::ZERO);
        let at = |micros: u64| Time::from_picos(micros * 1_000_000);
        sender.handle_ack(&settings, at(100), &ack(0, &[(1, 3)]));
        assert_eq!(sender.pipe_and_window(), (6, 5));
        for beyond in 4..=6 {
            sender.handle_ack(&settings, at(101), &ack(0, &[(1, beyond)]));
        }
        assert_eq!(poll_all(&mut sender, &settings, at(101)), [0, 10]);
        // What arrives was sent before that.
        sender.handle_ack(&settings, at(102), &Ack { rtt: Span::from_micros(102), ..ack(7, &[]) });
        assert_eq!(sender.pipe_and_window(), (4, 10));
        assert_eq!(poll_all(&mut sender, &settings, at(102)), (11..17).collect::<Vec<_>>());
        // Six came before it: so many are not enough now, and one more is.
        sender.handle_ack(&settings, at(203), &ack(7, &[(1, 6)]));
        assert_eq!(sender.pipe_and_window(), (4, 10));
        poll_all(&mut sender, &settings, at(203));
        sender.handle_ack(&settings, at(203), &ack(7, &[(1, 7)]));
        assert_eq!(sender.pipe_and_window(), (8, 5));
        sender.handle_ack(&settings, at(204), &ack(7, &[(1, 11)]));
        assert_eq!(poll_all(&mut sender, &settings, at(204)), [7]);
        // What was sent again, and arrives then, was lost.
        sender.handle_ack(&settings, at(304), &ack(19, &[]));
        assert_eq!((sender.pipe_and_window().1, sender.sent_again), (5, 2));
    }

    #[test]
    fn a_timeout_sends_again_what_is_missing_and_doubles() {
        let settings = TcpSettings::default();
        let mut sender = Sender::new(&settings, 4);
        assert_eq!(poll_all(&mut sender, &settings, Time::ZERO).len(), 4);
        assert_eq!(sender.poll_at(), Time::ZERO + settings.min_rto, "no sample yet");
        sender.handle_ack(&settings, Time::ZERO, &ack(1, &[(1, 1)]));
        assert_eq!(sender.poll_at(), Time::ZERO + settings.min_rto);
        let now = sender.poll_at();
        sender.handle_timeout(&settings, now);
        assert_eq!(sender.poll_at(), now + settings.min_rto.saturating_mul(2));
        assert_eq!(poll_all(&mut sender, &settings, now), [1]);
        sender.handle_ack(&settings, now, &ack(3, &[]));
        assert_eq!(poll_all(&mut sender, &settings, now), [3], "2 had arrived");
        sender.handle_ack(&settings, now, &ack(4, &[]));
        assert!(sender.is_done() && sender.poll_at() == Time::MAX);
        assert_eq!((sender.sent_again, sender.timeouts), (2, 1));
    }
}
