//! Which sizes of datagrams pass a path, found out by datagrams that carry nothing else (RFC 8899).

use weirgate_units::{Duration, Instant};

/// Datagrams of this size pass everywhere (RFC 9000, 14).
pub(crate) const MTU_MIN: u16 = 1_200;
/// How often datagrams above [`MTU_MIN`] are lost, each time of those that were sent since the last time, and none of them acknowledged
/// in between, before smaller ones are sent. Where all that was under way is lost and a small one passes, each of them counts.
const BLACK_HOLE: u32 = 4;
/// How often a size is tried before it counts as too large.
const TRIES: u32 = 3;
/// What a path takes is known to so many bytes, and is found out anew after this.
const STEP: u16 = 12;
const AGAIN: Duration = Duration::from_secs(120);

/// Which sizes pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mtu {
    now: u16,
    /// The largest one that is tried.
    most: u16,
    /// Larger ones did not pass when they were tried; the largest one: nothing was tried that did not.
    ceiling: u16,
    /// When that is tried next.
    probe_at: Option<Instant>,
    tries: u32,
    /// Times that datagrams above [`MTU_MIN`] were lost since one of them was acknowledged.
    lost: u32,
    /// When they were the last time: what was sent before that is lost for the same reason.
    counted: Instant,
}

impl Mtu {
    /// Nothing is tried yet.
    pub(super) fn new(most: u16) -> Self {
        let most = most.max(MTU_MIN);
        Self { now: MTU_MIN, most, ceiling: most, probe_at: None, tries: 0, lost: 0, counted: Instant::ZERO }
    }

    /// The size that passes.
    pub(super) const fn now(&self) -> u16 {
        self.now
    }

    /// Larger ones are tried from `now` on, if there are any.
    pub(super) fn begin(&mut self, now: Instant) {
        if self.now < self.most {
            self.probe_at = Some(now);
        }
    }

    /// When a larger one is tried next.
    pub(super) fn probe_at(&self) -> Option<Instant> {
        self.probe_at.filter(|_| self.now < self.most)
    }

    /// The size that is to be tried `now`: the largest one first, since most paths take it, then halves of what is left (RFC 8899, 5.3).
    pub(super) fn wants_probe(&mut self, now: Instant) -> Option<u16> {
        self.probe_at().filter(|at| *at <= now)?;
        if self.tries >= TRIES {
            // It does not pass; a smaller one may.
            self.ceiling = self.next().map_or(self.now, |size| size - 1);
            self.tries = 0;
        }
        let size = self.next();
        if size.is_none() {
            // That is what it takes; all is tried again later.
            self.ceiling = self.most;
            self.probe_at = Some(now + AGAIN);
        }
        size
    }

    fn next(&self) -> Option<u16> {
        let Self { now, most, ceiling, .. } = *self;
        if ceiling == most {
            return (now < most).then_some(most);
        }
        (ceiling >= now + STEP).then(|| now + (ceiling - now).div_ceil(2))
    }

    /// It was tried, and is `again` if nothing is heard of it until then.
    pub(super) const fn probed(&mut self, again: Instant) {
        self.tries += 1;
        self.probe_at = Some(again);
    }

    /// A datagram that tried `size` has arrived; whether that is more than passed before.
    pub(super) fn handle_probe_acked(&mut self, size: u16) -> bool {
        let is_more = size > self.now;
        if is_more {
            (self.now, self.tries, self.lost) = (size, 0, 0);
            self.ceiling = self.ceiling.max(size);
            // The next size at once, if there is one.
            self.probe_at = (size < self.most).then_some(Instant::ZERO);
        }
        is_more
    }

    /// Another datagram of `size` has arrived.
    pub(super) const fn handle_acked(&mut self, size: u16) {
        if size > MTU_MIN {
            self.lost = 0;
        }
    }

    /// Another datagram of `size`, which was `sent` then, is lost.
    pub(super) fn handle_lost(&mut self, now: Instant, sent: Instant, size: u16) {
        if size > MTU_MIN && sent >= self.counted {
            self.lost += 1;
            self.counted = now;
        }
    }

    /// Another datagram of `size` is not waited for any more, because nothing comes.
    pub(super) const fn handle_given_up(&mut self, size: u16) {
        if size > MTU_MIN {
            self.lost += 1;
        }
    }

    /// Whether large datagrams do not pass, as it seems.
    pub(super) const fn is_black_hole(&self) -> bool {
        self.lost >= BLACK_HOLE
    }

    /// Begins anew with the least.
    pub(super) const fn shrink(&mut self, now: Instant) {
        let most = self.most;
        *self = Self { now: MTU_MIN, most, ceiling: most, probe_at: Some(now), tries: 0, lost: 0, counted: now };
    }
}
