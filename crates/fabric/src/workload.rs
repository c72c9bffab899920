//! Who sends what to whom, and when.

use weirgate_balance::Sampler as _;

use crate::Time;
use crate::chance::Chance;
use crate::measure::Finished;
use crate::sizes::Sizes;

/// A flow begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The host that sends, by number.
    pub source: u32,
    /// The host that it is for; another one.
    pub destination: u32,
    /// Payload.
    pub bytes: u64,
    /// What the workload calls it: 0, unless it has several kinds.
    pub class: u8,
}

/// What hosts send.
pub trait Workload: core::fmt::Debug + Send {
    /// A flow that begins at or before `now`; call until `None`.
    fn poll(&mut self, now: Time) -> Option<Start>;

    /// When the next one begins; `None`: none will, unless one ends before.
    fn poll_at(&self) -> Option<Time>;

    /// A flow has arrived as a whole.
    fn handle_finished(&mut self, _now: Time, _flow: &Finished) {}
}

/// Flows that are listed, by the time at which they begin.
#[derive(Clone, Debug)]
pub struct Listed {
    starts: Vec<(Time, Start)>,
}

impl Listed {
    /// These flows, in any order.
    pub fn new(mut starts: Vec<(Time, Start)>) -> Self {
        starts.sort_by_key(|(at, _)| core::cmp::Reverse(*at));
        Self { starts }
    }
}

impl Workload for Listed {
    fn poll(&mut self, now: Time) -> Option<Start> {
        self.starts.pop_if(|(at, _)| *at <= now).map(|(_, start)| start)
    }

    fn poll_at(&self) -> Option<Time> {
        self.starts.last().map(|(at, _)| *at)
    }
}

/// Flows of random hosts to random hosts of other leaves, at random times (a Poisson process).
#[derive(Clone, Debug)]
pub struct Poisson {
    sizes: Sizes,
    /// Hosts of each leaf: those of one are numbered one after the other.
    hosts: u32,
    per_leaf: u32,
    mean_secs: f64,
    next: Time,
    until: Time,
    chance: Chance,
}

impl Poisson {
    /// Flows of these sizes until a time, `per_sec` of them a second in all, among `leaves` leaves with as many hosts each: host `n` is
    /// at leaf `n / per_leaf`.
    ///
    /// # Panics
    /// Where there are fewer than 2 leaves, or none is to begin.
    pub fn new(sizes: Sizes, leaves: u32, per_leaf: u32, per_sec: f64, until: Time, mut chance: Chance) -> Self {
        assert!(leaves >= 2 && per_leaf >= 1 && per_sec > 0.0, "flows go from one leaf to another");
        let mean_secs = 1.0 / per_sec;
        let next = Time::ZERO + chance.exponential(mean_secs);
        Self { sizes, hosts: leaves * per_leaf, per_leaf, mean_secs, next, until, chance }
    }
}

impl Workload for Poisson {
    fn poll(&mut self, now: Time) -> Option<Start> {
        if self.next > now || self.next >= self.until {
            return None;
        }
        self.next += self.chance.exponential(self.mean_secs);
        let source = self.chance.below(self.hosts);
        // Any host but those of its leaf.
        let other = self.chance.below(self.hosts - self.per_leaf);
        let first = source / self.per_leaf * self.per_leaf;
        let destination = if other < first { other } else { other + self.per_leaf };
        Some(Start { source, destination, bytes: self.sizes.draw(&mut self.chance), class: 0 })
    }

    fn poll_at(&self) -> Option<Time> {
        (self.next < self.until).then_some(self.next)
    }
}
