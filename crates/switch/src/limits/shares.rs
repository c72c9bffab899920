//! This member's shares of the limits that it keeps together with other threads.

use std::sync::Arc;

use weirgate_shape::INTERVAL;
use weirgate_units::{BitRate, Bytes, Instant};

use super::{LimitId, Limits, Means, SharedLimit, State};

/// A limit that is kept together with others, and this member of it.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) limit: LimitId,
    pub(super) shared: Arc<SharedLimit>,
    pub(super) member: usize,
    /// The whole rate, and this member's share, when it looked last.
    pub(super) seen: (BitRate, BitRate),
    /// What it has said: that something waits for its share.
    pub(super) is_behind: bool,
}

impl<T> Limits<T> {
    /// Says what this member of each shared limit needs, and takes what it is given: to be called before each turn. Steps: the shared
    /// limits; where they are divided anew, each with the classes that wait for it and the square of its members; where a rate was
    /// changed, as with [`set_rate`](Self::set_rate).
    pub fn balance(&mut self, now: Instant) {
        let due = self.balance_at <= now;
        let mut changed = false;
        let mut parts = core::mem::take(&mut self.shared);
        for Part { limit, shared, member, seen, is_behind } in &mut parts {
            // Most have nothing to say, and are told nothing, in most turns.
            if !due && !*is_behind && seen.1 != BitRate::ZERO && *seen == (shared.rate(), shared.share(*member)) {
                continue;
            }
            let before = self.share(*limit);
            let (offered, needs) = self.demand(now, *limit);
            // Who has nothing and needs some does not wait for the next division, nor does who has what he said he needs: until he
            // has said so, it is kept for him.
            let at_once = if needs { before == BitRate::ZERO } else { *is_behind };
            if due || at_once {
                let weight = if needs { self.weight(*limit) } else { 0 };
                shared.report(now, *member, offered, weight, at_once);
                *is_behind = needs;
            }
            let (rate, share) = (shared.rate(), shared.share(*member));
            *seen = (rate, share);
            if core::mem::replace(&mut self.limits[limit.index()].rate, rate) != rate {
                self.spare(now, *limit);
                changed = true;
            }
            if share != before {
                self.set_share(now, *limit, share);
            }
        }
        self.shared = parts;
        if changed {
            self.fit_wheel(now);
        }
        if due {
            self.balance_at = now + INTERVAL;
        }
    }

    /// When to [`balance`](Self::balance) at the latest: now, where something waits for a share that is nothing, or what was said to be
    /// needed is not any more. `None`: nothing of what is shared is needed here.
    pub fn balance_at(&self, now: Instant) -> Option<Instant> {
        let due = self.shared.iter().filter_map(|Part { limit, shared, is_behind, .. }| {
            let needs = self.demand(now, *limit).1;
            // A limit that is nothing as a whole has nothing to give.
            let at_once =
                if needs { self.share(*limit) == BitRate::ZERO && shared.rate() != BitRate::ZERO } else { *is_behind };
            (needs || *is_behind).then_some(if at_once { now } else { self.balance_at })
        });
        due.min()
    }

    /// Gives back what this member has leased of shared limits and not used: to be called when there is nothing to do. Steps: the
    /// shared limits.
    pub fn handle_idle(&mut self) {
        for Part { limit, .. } in &self.shared {
            if let Means::Lease(member) = &mut self.limits[limit.index()].means {
                member.release();
            }
        }
    }

    /// Its part of a limit.
    pub(super) fn share(&self, limit: LimitId) -> BitRate {
        let state = &self.limits[limit.index()];
        match &state.means {
            Means::Pace(limit) => self.pacer.rate(*limit),
            Means::Gate(gate, _) => gate.rate(),
            Means::Borrow(borrow) => borrow.rate(),
            Means::Drop(bucket) => bucket.rate(),
            Means::Lease(_) => state.rate,
        }
    }

    /// What was offered to its part of a limit so far, and whether something waits for it.
    fn demand(&self, now: Instant, limit: LimitId) -> (Bytes, bool) {
        let State { means, offered, counters, .. } = &self.limits[limit.index()];
        match means {
            Means::Pace(limit) => self.pacer.demand(now, *limit),
            // Its queues are held back, or what it let in is.
            Means::Gate(_, limit) => {
                (Bytes::new(*offered), counters.is_throttled() || self.pacer.is_waited_for(*limit))
            }
            _ => (Bytes::new(*offered), counters.is_throttled()),
        }
    }

    /// What its part of a limit is to be by: the flows that wait for it. What a gate keeps out cannot be counted, and is one.
    fn weight(&self, limit: LimitId) -> u32 {
        match &self.limits[limit.index()].means {
            Means::Pace(limit) => self.pacer.flows_waiting_for(*limit).max(1),
            Means::Gate(..) | Means::Borrow(_) | Means::Drop(_) | Means::Lease(_) => 1,
        }
    }
}
