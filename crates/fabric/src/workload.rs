//! Who sends what to whom, and when.

mod collective;
mod incast;
mod pairs;
mod poisson;

pub use collective::{AllToAll, Ring, RingOrder};
pub use incast::Incast;
pub use pairs::{Mice, Pairs, Pattern};
pub use poisson::Poisson;

use weirgate_balance::Sampler as _;
use weirgate_balance::topology::Topology;

use crate::Time;
use crate::chance::Chance;
use crate::measure::Finished;

/// A flow begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The host that sends, by number: hosts are numbered from 0 in the order of their nodes.
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

    /// How many flows have still to begin; `None`, where nobody knows.
    fn flows_left(&self) -> Option<u64>;

    /// A flow has arrived as a whole.
    fn handle_finished(&mut self, _now: Time, _flow: &Finished) {}
}

/// Flows that are listed, by the time at which they begin: a trace.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The next one last.
    starts: Vec<(Time, Start)>,
}

impl Listed {
    /// These flows, in any order; of one time, in theirs.
    pub fn new(mut starts: Vec<(Time, Start)>) -> Self {
        starts.reverse();
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

    fn flows_left(&self) -> Option<u64> {
        Some(self.starts.len() as u64)
    }
}

/// Two workloads at once.
#[derive(Debug)]
pub struct Both(pub Box<dyn Workload>, pub Box<dyn Workload>);

impl Workload for Both {
    fn poll(&mut self, now: Time) -> Option<Start> {
        self.0.poll(now).or_else(|| self.1.poll(now))
    }

    fn poll_at(&self) -> Option<Time> {
        [self.0.poll_at(), self.1.poll_at()].into_iter().flatten().min()
    }

    fn flows_left(&self) -> Option<u64> {
        Some(self.0.flows_left()? + self.1.flows_left()?)
    }

    fn handle_finished(&mut self, now: Time, flow: &Finished) {
        self.0.handle_finished(now, flow);
        self.1.handle_finished(now, flow);
    }
}

/// The hosts of a network, by their leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// Their numbers, leaf by leaf.
    by_leaf: Vec<u32>,
    /// By host: where those of its leaf begin and end among these.
    leaves: Vec<(u32, u32)>,
}

impl Hosts {
    /// Those of a network.
    pub fn of(topology: &Topology) -> Self {
        let leaf_of = |node| topology.leaf_of(node).index();
        let hosts: Vec<usize> = topology.nodes().filter(|node| topology.is_host(*node)).map(leaf_of).collect();
        let mut by_leaf: Vec<u32> = (0..hosts.len() as u32).collect();
        by_leaf.sort_by_key(|host| hosts[*host as usize]);
        let mut leaves = vec![(0, 0); hosts.len()];
        let mut from = 0;
        for one in by_leaf.chunk_by(|a, b| hosts[*a as usize] == hosts[*b as usize]) {
            let to = from + one.len() as u32;
            one.iter().for_each(|host| leaves[*host as usize] = (from, to));
            from = to;
        }
        Self { by_leaf, leaves }
    }

    /// How many.
    pub const fn len(&self) -> u32 {
        self.by_leaf.len() as u32
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.by_leaf.is_empty()
    }

    /// Whether all are at one leaf: no flow can leave it.
    pub fn are_at_one_leaf(&self) -> bool {
        self.leaves.first().is_none_or(|(from, to)| to - from == self.len())
    }

    /// One of each leaf in turn, until there is none left.
    pub fn by_turns(&self) -> Vec<u32> {
        // A host's place among those of its leaf first, then its leaf.
        let mut all: Vec<(u32, u32)> = Vec::new();
        for (at, host) in self.by_leaf.iter().enumerate() {
            let (first, _) = self.leaves[*host as usize];
            all.push((at as u32 - first, *host));
        }
        all.sort_by_key(|(turn, _)| *turn);
        all.into_iter().map(|(_, host)| host).collect()
    }

    /// Any host.
    pub fn any(&self, chance: &mut Chance) -> u32 {
        chance.below(self.len())
    }

    /// Any host but those of another one's leaf, of which there is one.
    pub fn any_elsewhere(&self, from: u32, chance: &mut Chance) -> u32 {
        let (first, end) = self.leaves[from as usize];
        let other = chance.below(self.len() - (end - first));
        self.by_leaf[(if other < first { other } else { other + (end - first) }) as usize]
    }

    /// Any host but that one.
    pub fn any_but(&self, host: u32, chance: &mut Chance) -> u32 {
        let other = chance.below(self.len() - 1);
        if other < host { other } else { other + 1 }
    }

    /// So many different ones, or all.
    pub fn some(&self, count: u32, chance: &mut Chance) -> Vec<u32> {
        let mut all: Vec<u32> = (0..self.len()).collect();
        shuffle(&mut all, count as usize, chance);
        all.truncate(count as usize);
        all
    }
}

/// Puts any of all into the first places (Fisher and Yates).
fn shuffle(all: &mut [u32], first: usize, chance: &mut Chance) {
    for at in 0..first.min(all.len()) {
        let other = at + chance.below((all.len() - at) as u32) as usize;
        all.swap(at, other);
    }
}
