//! A limit that several threads' limits keep together.

use std::sync::Arc;

use weirgate_shape::{Aggregate, Division, Member};
use weirgate_units::{BitRate, Bytes, Instant};

use super::{LimitSettings, Mode, PACKET};

/// One limit of several [`Limits`](super::Limits), one on each thread. A limit that drops is leased from ([`Aggregate`]): its bound
/// is the rate, the burst, and a lease for each thread. Others hold at their parts of the rate ([`Division`]), by the flows
/// that wait there, each with as much of the burst, two packets at least.
#[derive(Debug)]
pub struct SharedLimit {
    settings: LimitSettings,
    how: How,
}

#[derive(Debug)]
enum How {
    Leased(Arc<Aggregate>),
    Divided(Division),
}

impl SharedLimit {
    /// A limit for `members` threads.
    ///
    /// # Panics
    /// Where there are none.
    pub fn new(now: Instant, settings: LimitSettings, members: usize) -> Self {
        assert!(members > 0, "a limit has members");
        let LimitSettings { rate, burst, mode } = settings;
        let how = match mode {
            Mode::Drop => How::Leased(Arc::new(Aggregate::new(now, rate, burst, PACKET))),
            Mode::Pace | Mode::Gate | Mode::Borrow => How::Divided(Division::new(now, rate, members)),
        };
        Self { settings, how }
    }

    /// What the limit was made with.
    pub(super) const fn settings(&self) -> LimitSettings {
        self.settings
    }

    /// The whole rate.
    pub fn rate(&self) -> BitRate {
        match &self.how {
            How::Leased(aggregate) => aggregate.rate(),
            How::Divided(division) => division.rate(),
        }
    }

    /// Changes the whole rate from `now` on. To be called by one thread at a time.
    pub fn set_rate(&self, now: Instant, rate: BitRate) {
        match &self.how {
            How::Leased(aggregate) => aggregate.set_rate(now, rate),
            How::Divided(division) => division.set_rate(now, rate),
        }
    }

    /// Changes the whole burst. To be called by who calls [`set_rate`](Self::set_rate).
    pub(super) fn set_burst(&self, burst: Bytes) {
        if let How::Leased(aggregate) = &self.how {
            aggregate.set_burst(burst);
        }
    }

    pub(super) fn share(&self, member: usize) -> BitRate {
        match &self.how {
            How::Leased(aggregate) => aggregate.rate(),
            How::Divided(division) => division.share(member),
        }
    }

    pub(super) fn lease(&self) -> Option<Member> {
        match &self.how {
            How::Leased(aggregate) => Some(Member::new(Arc::clone(aggregate))),
            How::Divided(_) => None,
        }
    }

    pub(super) fn report(&self, now: Instant, member: usize, charged: Bytes, weight: u32, at_once: bool) {
        if let How::Divided(division) = &self.how {
            division.report(member, charged, weight);
            division.divide(now, at_once);
        }
    }
}
