//! What programs that compute together send.

use super::{Hosts, Start, Workload};
use crate::Time;
use crate::measure::Finished;

/// Who follows whom in a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RingOrder {
    /// Hosts by number: few steps leave their leaf.
    #[default]
    Hosts,
    /// One host of each leaf in turn: where leaves have as many hosts each, each step leaves its leaf.
    Leaves,
}

/// A ring all-reduce: each host's data is cut into as many chunks as there are hosts, and each host sends the chunk that it has just
/// received to the next one, `2 * (hosts - 1)` times. The class of a flow is its step, modulo 256.
#[derive(Clone, Debug)]
pub struct Ring {
    /// By host: the one that it sends to.
    next: Vec<u32>,
    chunk: u64,
    /// By host: steps that it has begun.
    begun: Vec<u32>,
    ready: Vec<u32>,
    /// Flows that have not begun.
    left: u64,
}

impl Ring {
    /// Of all hosts, of so many bytes each.
    pub fn new(hosts: &Hosts, order: RingOrder, bytes: u64) -> Self {
        let order = match order {
            RingOrder::Hosts => (0..hosts.len()).collect(),
            RingOrder::Leaves => hosts.by_turns(),
        };
        let hosts = hosts.len();
        let mut next = vec![0; order.len()];
        for (at, host) in order.iter().enumerate() {
            next[*host as usize] = order[(at + 1) % order.len()];
        }
        Self {
            next,
            chunk: bytes.div_ceil(u64::from(hosts.max(1))).max(1),
            begun: vec![0; hosts as usize],
            ready: if hosts < 2 { Vec::new() } else { (0..hosts).rev().collect() },
            left: u64::from(hosts) * u64::from(steps(hosts)),
        }
    }
}

/// Of each host.
const fn steps(hosts: u32) -> u32 {
    2 * hosts.saturating_sub(1)
}

impl Workload for Ring {
    fn poll(&mut self, _now: Time) -> Option<Start> {
        let source = self.ready.pop()?;
        self.left -= 1;
        let begun = &mut self.begun[source as usize];
        *begun += 1;
        let class = (*begun - 1) as u8;
        Some(Start { source, destination: self.next[source as usize], bytes: self.chunk, class })
    }

    fn poll_at(&self) -> Option<Time> {
        (!self.ready.is_empty()).then_some(Time::ZERO)
    }

    fn flows_left(&self) -> Option<u64> {
        Some(self.left)
    }

    fn handle_finished(&mut self, _now: Time, flow: &Finished) {
        // What has come goes on: flows of a pair are as many as were received, in whatever order they end.
        if self.begun[flow.destination as usize] < steps(self.next.len() as u32) {
            self.ready.push(flow.destination);
        }
    }
}

/// An all-to-all: each host sends as much to each other one, all at once, each beginning with another one.
#[derive(Clone, Debug)]
pub struct AllToAll {
    hosts: u32,
    bytes: u64,
    at: u64,
}

impl AllToAll {
    /// Of so many hosts, so many bytes to each.
    pub const fn new(hosts: u32, bytes: u64) -> Self {
        Self { hosts, bytes, at: 0 }
    }

    fn all(&self) -> u64 {
        u64::from(self.hosts) * u64::from(self.hosts.saturating_sub(1))
    }
}

impl Workload for AllToAll {
    fn poll(&mut self, _now: Time) -> Option<Start> {
        if self.at >= self.all() {
            return None;
        }
        let hosts = u64::from(self.hosts);
        let (round, source) = (self.at / hosts, (self.at % hosts) as u32);
        self.at += 1;
        let destination = ((u64::from(source) + round + 1) % hosts) as u32;
        Some(Start { source, destination, bytes: self.bytes.max(1), class: 0 })
    }

    fn poll_at(&self) -> Option<Time> {
        (self.at < self.all()).then_some(Time::ZERO)
    }

    fn flows_left(&self) -> Option<u64> {
        Some(self.all() - self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_sends_to_everybody_once() {
        let mut all = AllToAll::new(4, 10);
        let mut pairs: Vec<(u32, u32)> =
            std::iter::from_fn(|| all.poll(Time::ZERO)).map(|start| (start.source, start.destination)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        assert!(pairs.len() == 12 && pairs.iter().all(|(from, to)| from != to));
    }
}
