//! Elephants and mice between hosts that are told whom to send to.

use std::collections::VecDeque;

use super::{Hosts, Start, Workload, shuffle};
use crate::chance::Chance;
use crate::measure::Finished;
use crate::{Span, Time};

/// Whom each host sends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Host `i` to host `i + n`, modulo their number.
    Stride(u32),
    /// Each to any host of another leaf.
    Random,
    /// Each to all others, one after the other, in random order.
    Shuffle,
    /// Each to another one, so that each has one that sends to it.
    Permutation,
}

/// Small flows beside the large ones, of class 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mice {
    /// Payload of each.
    pub bytes: u64,
    /// Each host sends one so often, to whom it sends a large one; they do not begin at the same time.
    pub every: Span,
}

/// Each host sends large flows, one after the other: class 0.
#[derive(Debug)]
pub struct Pairs {
    bytes: u64,
    mice: Option<Mice>,
    /// By host: whom it has still to send to, the one that it is sending to first.
    destinations: Vec<VecDeque<u32>>,
    /// Large flows that can begin.
    ready: VecDeque<u32>,
    /// When each host's next mouse begins, the earliest first.
    next_mice: VecDeque<(Time, u32)>,
    /// Large flows that have not begun.
    left: u64,
}

impl Pairs {
    /// Large flows of so many bytes, and mice as long as there is one.
    ///
    /// # Panics
    /// Where there are fewer than 2 hosts, or a stride leads to the host itself; with [`Pattern::Random`], where all are at one leaf.
    pub fn new(hosts: &Hosts, pattern: Pattern, bytes: u64, mice: Option<Mice>, chance: &mut Chance) -> Self {
        let count = hosts.len();
        assert!(count >= 2, "a flow has two hosts");
        let ring = if pattern == Pattern::Permutation { hosts.some(count, chance) } else { Vec::new() };
        let mut destinations = vec![VecDeque::new(); count as usize];
        for (host, to) in destinations.iter_mut().enumerate() {
            let host = host as u32;
            match pattern {
                Pattern::Stride(stride) => {
                    assert!(stride % count != 0, "a stride leads to another host");
                    to.push_back((host + stride) % count);
                }
                Pattern::Random => to.push_back(hosts.any_elsewhere(host, chance)),
                Pattern::Shuffle => {
                    let mut others: Vec<u32> = (0..count).filter(|other| *other != host).collect();
                    shuffle(&mut others, count as usize, chance);
                    to.extend(others);
                }
                Pattern::Permutation => {
                    let at = ring.iter().position(|other| *other == host).unwrap_or(0);
                    to.push_back(ring[(at + 1) % ring.len()]);
                }
            }
        }
        let mut next_mice: Vec<(Time, u32)> = Vec::new();
        if let Some(mice) = mice {
            let first = |chance: &mut Chance| Time::from_picos((mice.every.as_picos() as f64 * chance.unit()) as u64);
            next_mice = (0..count).map(|host| (first(chance), host)).collect();
            next_mice.sort_unstable();
        }
        let left = destinations.iter().map(|to| to.len() as u64).sum();
        Self { bytes, mice, destinations, ready: (0..count).collect(), next_mice: next_mice.into(), left }
    }
}

impl Workload for Pairs {
    fn poll(&mut self, now: Time) -> Option<Start> {
        if let Some(source) = self.ready.pop_front() {
            let destination = *self.destinations[source as usize].front()?;
            self.left -= 1;
            return Some(Start { source, destination, bytes: self.bytes, class: 0 });
        }
        let mice = self.mice?;
        loop {
            let (at, source) = self.next_mice.front().copied().filter(|(at, _)| *at <= now)?;
            self.next_mice.pop_front();
            // Whose large flows are all there sends no mice any more.
            if let Some(destination) = self.destinations[source as usize].front().copied() {
                self.next_mice.push_back((at + mice.every, source));
                return Some(Start { source, destination, bytes: mice.bytes, class: 1 });
            }
        }
    }

    fn poll_at(&self) -> Option<Time> {
        if self.ready.is_empty() { self.next_mice.front().map(|(at, _)| *at) } else { Some(Time::ZERO) }
    }

    /// How many mice there will be, only those know for whom all is over.
    fn flows_left(&self) -> Option<u64> {
        self.mice.is_none().then_some(self.left)
    }

    fn handle_finished(&mut self, _now: Time, flow: &Finished) {
        if flow.class == 0 {
            let to = &mut self.destinations[flow.source as usize];
            to.pop_front();
            if !to.is_empty() {
                self.ready.push_back(flow.source);
            }
        }
    }
}
