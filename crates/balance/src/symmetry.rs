//! Which paths are alike: the quiver of a network, and the symmetric components that its paths fall into. Read first: Ghorbani et al.,
//! "DRILL" (SIGCOMM 2017), section 3.4.
//!
//! A link is labelled with every pair of leaves, source and destination, that a shortest path over it leads from and to, and with the
//! *capacity factor* of that path there: the rate at which the path brings to the link, its slowest stripe so far, over that of the link's.
//! Two links are alike where their labels are the same, two paths where their links are, one by one. Paths that are alike have the
//! same queues to expect, whatever the traffic, so packets of one flow may go by any of them.
//!
//! Ground rules:
//!
//! - Labels are not listed but hashed, to 128 bits: those of one destination and capacity factor as the sum of their sources' numbers,
//!   mixed with both; the score of a link is the sum of these. Sums do not ask for an order, and what changes is taken off and put on.
//! - Paths are not listed either. The shortest paths to a leaf are a directed acyclic graph; each node has the *classes* of the
//!   paths from it, which are few, made of those of the nodes after it.
//! - Links of unequal rate are never alike, though their labels may be: half of the packets for half of the rate is one too many.
//! - Links of one rate between the same two switches, a *stripe*, bring and take what all of them do, as the article's four links of 10
//!   Gbit/s do for one of 40: else a switch to which two lead would be sent twice what it can send on by one.

mod open;
#[cfg(test)]
mod tests;
mod ways;

use alloc::vec;
use alloc::vec::Vec;

use self::open::Open;
use self::ways::{Change, Graph, Ways};
use crate::Port;
use crate::hash::mix;
use crate::topology::{Link, Node, Topology};

/// No way, or no leaf.
const NONE: u32 = u32::MAX;

/// Ports of a switch over which a flow's packets may go in any order: all paths by them are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// In order.
    pub ports: Vec<Port>,
    /// How many of the flows are for it, beside those of the other components: the rate of its paths, in bit/s, each by its slowest
    /// link.
    pub weight: u64,
}

/// The quiver of a network, hashed, and what follows from it. It follows its network's failures: see [`set_up`](Self::set_up).
#[derive(Clone, Debug)]
pub struct Symmetry {
    leaves: Vec<Node>,
    /// Each node's place among the leaves.
    leaf_at: Vec<u32>,
    /// What stands for each leaf in a hash.
    numbers: Vec<u128>,
    graph: Graph,
    /// By the leaf that paths lead to.
    ways: Vec<Ways>,
    /// Of each link, in either direction.
    scores: Vec<u128>,
    /// The same, mixed with its rate.
    keys: Vec<u128>,
}

impl Symmetry {
    /// About how many bytes it takes: for each pair of a leaf and a switch, a bit for each leaf and some 200 bytes.
    pub fn memory(topology: &Topology) -> u64 {
        let leaves = topology.leaves().len() as u64;
        let switches = topology.nodes().filter(|node| !topology.is_host(*node)).count() as u64;
        leaves * switches * (leaves / 8 + 200)
    }

    /// What is alike in `topology`. Memory: see [`memory`](Self::memory). Steps: for each leaf, the links.
    pub fn new(topology: &Topology) -> Self {
        let leaves = topology.leaves();
        let graph = Graph::new(topology);
        let nodes = graph.edges.len();
        let mut leaf_at = vec![NONE; nodes];
        for (at, leaf) in leaves.iter().enumerate() {
            leaf_at[leaf.index()] = at as u32;
        }
        let numbers = (0..leaves.len() as u128).map(|at| mix(at, !at)).collect();
        let none = |leaf: &Node| Ways {
            leaf: *leaf,
            hops: vec![NONE; nodes],
            sources: vec![Vec::new(); nodes],
            classes: vec![Vec::new(); nodes],
        };
        let ways = leaves.iter().map(none).collect();
        let scores = vec![0; 2 * topology.links().len()];
        let mut symmetry = Self { leaves, leaf_at, numbers, graph, ways, keys: scores.clone(), scores };
        for at in 0..symmetry.ways.len() {
            symmetry.find_ways(at);
            symmetry.count(at, u128::wrapping_add);
        }
        symmetry.key(&vec![true; nodes]);
        for at in 0..symmetry.ways.len() {
            symmetry.classify_all(at);
        }
        symmetry
    }

    /// The leaves, by number of their nodes.
    pub fn leaves(&self) -> &[Node] {
        &self.leaves
    }

    /// The components of the paths from switch `at` to `leaf`, those of the most weight first; none where there is no way, or `at` is
    /// `leaf`. Components that leave by the same ports are one: here they differ in nothing.
    ///
    /// # Panics
    /// Where `leaf` has no hosts.
    pub fn components(&self, at: Node, leaf: Node) -> Vec<Component> {
        let ways = &self.ways[self.leaf_at[leaf.index()] as usize];
        let mut found: Vec<(u128, Component)> = Vec::new();
        for edge in ways.after(&self.graph, at) {
            for class in ways.classes_by(&self.keys, edge) {
                // All links of a stripe together have what its paths take.
                let paths = if edge.is_first { class.paths } else { 0 };
                let weight = class.rate.as_bits_per_sec().saturating_mul(paths);
                match found.iter_mut().find(|(scores, _)| *scores == class.scores) {
                    Some((_, component)) => {
                        component.weight = component.weight.saturating_add(weight);
                        if component.ports.last() != Some(&edge.port) {
                            component.ports.push(edge.port);
                        }
                    }
                    None => found.push((class.scores, Component { ports: vec![edge.port], weight })),
                }
            }
        }
        let mut components: Vec<Component> = Vec::new();
        for (_, component) in found {
            match components.iter_mut().find(|other| other.ports == component.ports) {
                Some(other) => other.weight = other.weight.saturating_add(component.weight),
                None => components.push(component),
            }
        }
        components.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.ports.cmp(&b.ports)));
        components
    }

    /// Takes a link of `topology` down, or up again, there and here, and follows what comes of it. Steps: for each leaf, the links of the
    /// switches whose sources or paths change by it; of all switches where distances do.
    pub fn set_up(&mut self, topology: &mut Topology, link: Link, is_up: bool) {
        let [a, b] = topology.ends(link);
        let was_up = topology.is_up(link);
        topology.set_up(link, is_up);
        if was_up == is_up || topology.is_host(a) || topology.is_host(b) {
            return;
        }
        let score = 2 * link.index() as u32;
        let changes: Vec<Change> =
            self.ways.iter().map(|ways| ways.change(&self.graph, [a, b], score, is_up)).collect();
        let mut touched = vec![false; self.leaf_at.len()];
        for (at, change) in changes.iter().enumerate() {
            match change {
                Change::Distances => self.count(at, u128::wrapping_sub),
                Change::Way { far, .. } => self.count_stripe(at, *far, score, u128::wrapping_sub),
                Change::None => {}
            }
        }
        self.graph.set_up([a, b], score, is_up);
        for (at, change) in changes.iter().enumerate() {
            match *change {
                Change::None => {}
                Change::Distances => {
                    self.find_ways(at);
                    self.count(at, u128::wrapping_add);
                    touched.fill(true);
                }
                Change::Way { near, far } => {
                    self.count_stripe(at, far, score, u128::wrapping_add);
                    touched[far.index()] = true;
                    self.follow(at, near, &mut touched);
                }
            }
        }
        self.key(&touched);
        let mut open = Open::default();
        for (at, change) in changes.iter().enumerate() {
            match *change {
                Change::Distances => self.classify_all(at),
                Change::None => self.classify_changed(at, &touched, None, &mut open),
                Change::Way { near, .. } => self.classify_changed(at, &touched, Some(near), &mut open),
            }
        }
    }

    /// The distances to a leaf, and who sends by each node.
    fn find_ways(&mut self, at: usize) {
        let ways = &mut self.ways[at];
        ways.measure(&self.graph);
        ways.sources.fill(Vec::new());
        for node in ways.farthest_first() {
            ways.sources[node.index()] = ways.gather(&self.graph, node, self.leaf_at[node.index()], &self.numbers);
        }
    }

    /// Adds all labels of paths to a leaf to the scores, or takes them off.
    fn count(&mut self, at: usize, by: fn(u128, u128) -> u128) {
        for node in self.ways[at].farthest_first() {
            self.count_node(at, node, by);
        }
    }

    /// Those of the links that go on from a node.
    fn count_node(&mut self, at: usize, node: Node, by: fn(u128, u128) -> u128) {
        let ways = &self.ways[at];
        for edge in ways.after(&self.graph, node) {
            let score = &mut self.scores[edge.score as usize];
            *score = by(*score, ways.labels(at, node, edge.stripe));
        }
    }

    /// Those of a link that goes on from a node, and of the others of its stripe: of those that are up.
    fn count_stripe(&mut self, at: usize, node: Node, link: u32, by: fn(u128, u128) -> u128) {
        let edges = &self.graph.edges[node.index()];
        let Some(one) = edges.iter().find(|edge| edge.score | 1 == link | 1) else { return };
        for edge in edges.iter().filter(|edge| edge.is_up && (edge.far, edge.rate) == (one.far, one.rate)) {
            let score = &mut self.scores[edge.score as usize];
            *score = by(*score, self.ways[at].labels(at, node, edge.stripe));
        }
    }

    /// Gathers the sources of `node` again, and of those after it whose sources change by that.
    fn follow(&mut self, at: usize, node: Node, touched: &mut [bool]) {
        // All of one distance before the nearer ones, so each is gathered once.
        let mut open = vec![node];
        while !open.is_empty() {
            let mut next = Vec::new();
            for node in open {
                let ways = &self.ways[at];
                let sources = ways.gather(&self.graph, node, self.leaf_at[node.index()], &self.numbers);
                if sources == ways.sources[node.index()] {
                    continue;
                }
                self.count_node(at, node, u128::wrapping_sub);
                self.ways[at].sources[node.index()] = sources;
                self.count_node(at, node, u128::wrapping_add);
                touched[node.index()] = true;
                next.extend(self.ways[at].after(&self.graph, node).map(|edge| edge.far));
            }
            next.sort_unstable();
            next.dedup();
            open = next;
        }
    }

    /// Mixes the scores of the links away from these nodes with their rates.
    fn key(&mut self, touched: &[bool]) {
        for (edges, _) in self.graph.edges.iter().zip(touched).filter(|(_, touched)| **touched) {
            for edge in edges {
                let at = edge.score as usize;
                self.keys[at] = mix(self.scores[at], u128::from(edge.rate.as_bits_per_sec()));
            }
        }
    }

    /// The classes of all paths to a leaf, the nearest nodes first: of those nodes that paths go through.
    fn classify_all(&mut self, at: usize) {
        let ways = &mut self.ways[at];
        ways.classes.fill(Vec::new());
        let mut found = Vec::new();
        for node in ways.farthest_first().into_iter().rev() {
            if ways.before(&self.graph, node).next().is_some() {
                ways.classify(&self.graph, &self.keys, node, &mut found);
                ways.classes[node.index()] = found.clone();
            }
        }
    }

    /// The same of the nodes that a link with another score goes on from, of one that paths may go through now, and of those before them
    /// whose classes change by that.
    fn classify_changed(&mut self, at: usize, touched: &[bool], passed: Option<Node>, open: &mut Open) {
        let ways = &mut self.ways[at];
        let touched = touched.iter().enumerate().filter(|(_, touched)| **touched);
        for node in touched.map(|(node, _)| Node::from_index(node)).chain(passed) {
            open.add(ways.hops[node.index()], node);
        }
        let mut found = Vec::new();
        while let Some(node) = open.next() {
            let mut before = ways.before(&self.graph, node).peekable();
            if before.peek().is_none() {
                continue;
            }
            ways.classify(&self.graph, &self.keys, node, &mut found);
            if found != ways.classes[node.index()] {
                before.for_each(|edge| open.add(ways.hops[edge.far.index()], edge.far));
                ways.classes[node.index()].clone_from(&found);
            }
        }
    }
}
