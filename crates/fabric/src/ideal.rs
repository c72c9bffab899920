//! How long a flow takes in a network that is otherwise idle.

use weirgate_balance::topology::{LinkSettings, Node, Topology};

use crate::routes::{FAR, distances};
use crate::{Span, TcpSettings};

/// The flow completion time of so many bytes over these links, from the source on, one after the other, if nothing else is sent and the
/// window holds nothing back: exact. None for a path of no links.
pub fn ideal(path: &[LinkSettings], tcp: &TcpSettings, bytes: u64) -> Span {
    let (segments, last) = tcp.segments(bytes);
    let full = u64::from(tcp.mss) + u64::from(tcp.overhead);
    // Full packets leave each line one after the other as the slowest one so far has it; the last one, which may be shorter, waits for
    // the one before it.
    let (mut first, mut slowest) = (Span::ZERO, Span::ZERO);
    let mut arrives = Span::ZERO;
    for link in path {
        let time = Span::of(full, link.rate);
        slowest = slowest.max(time);
        first = first + time;
        let before = segments.checked_sub(2).map_or(Span::ZERO, |gaps| first + slowest.saturating_mul(u64::from(gaps)));
        arrives = arrives.max(before) + Span::of(u64::from(last) + u64::from(tcp.overhead), link.rate);
        let delay = link.delay.into();
        first = first + delay;
        arrives = arrives + delay;
    }
    arrives
}

/// The links of a shortest path between two hosts, by the lowest ports; none, if there is no way.
pub fn shortest_path(topology: &Topology, source: Node, destination: Node) -> Option<Vec<LinkSettings>> {
    Distances::to(topology, destination).path(topology, source)
}

/// How far all nodes are from one: for many paths to the same node.
#[derive(Clone, Debug)]
pub struct Distances {
    destination: Node,
    /// Links, by node.
    hops: Vec<u32>,
}

impl Distances {
    /// From `destination`, over links that are up.
    pub fn to(topology: &Topology, destination: Node) -> Self {
        let hops = distances(topology, destination);
        Self { destination, hops }
    }

    /// Links from a node; none, if there is no way.
    pub fn hops(&self, node: Node) -> Option<u32> {
        Some(self.hops[node.index()]).filter(|hops| *hops != FAR)
    }

    /// The links of a shortest path from `source`, by the lowest ports; none, if there is no way. The network is the same as before.
    pub fn path(&self, topology: &Topology, source: Node) -> Option<Vec<LinkSettings>> {
        let mut path = Vec::new();
        let mut node = source;
        while node != self.destination {
            let mut links = topology.ports(node).iter().filter(|link| topology.is_up(**link));
            let far = |link| self.hops[topology.far_end(link, node).index()];
            let next = links.find(|link| far(**link).checked_add(1) == Some(self.hops[node.index()]))?;
            path.push(topology.settings(*next));
            node = topology.far_end(*next, node);
        }
        Some(path)
    }
}
