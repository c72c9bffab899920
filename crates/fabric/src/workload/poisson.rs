//! Open arrivals.

use super::{Hosts, Start, Workload};
use crate::Time;
use crate::chance::Chance;
use crate::sizes::Sizes;

/// Flows of random hosts to random hosts of other leaves, at random times: a Poisson process.
#[derive(Clone, Debug)]
pub struct Poisson {
    sizes: Sizes,
    hosts: Hosts,
    mean_secs: f64,
    next: Time,
    until: Time,
    chance: Chance,
}

impl Poisson {
    /// Flows of these sizes until a time, `per_sec` of them a second in all.
    ///
    /// # Panics
    /// Where all hosts are at one leaf, or `per_sec` is not above 0.
    pub fn new(sizes: Sizes, hosts: Hosts, per_sec: f64, until: Time, mut chance: Chance) -> Self {
        assert!(!hosts.are_at_one_leaf() && per_sec > 0.0, "flows go from one leaf to another");
        let mean_secs = 1.0 / per_sec;
        let next = Time::ZERO + chance.exponential(mean_secs);
        Self { sizes, hosts, mean_secs, next, until, chance }
    }
}

impl Workload for Poisson {
    fn poll(&mut self, now: Time) -> Option<Start> {
        if self.next > now || self.next >= self.until {
            return None;
        }
        self.next += self.chance.exponential(self.mean_secs);
        let source = self.hosts.any(&mut self.chance);
        let destination = self.hosts.any_elsewhere(source, &mut self.chance);
        Some(Start { source, destination, bytes: self.sizes.draw(&mut self.chance), class: 0 })
    }

    fn poll_at(&self) -> Option<Time> {
        (self.next < self.until).then_some(self.next)
    }

    /// Chance says how many.
    fn flows_left(&self) -> Option<u64> {
        None
    }
}
