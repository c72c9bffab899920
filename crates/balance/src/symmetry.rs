//! Which paths are alike: the quiver of a network, and the symmetric components that its paths fall into. Read first: Ghorbani et al.,
//! "DRILL" (SIGCOMM 2017), section 3.4.
//!
//! A link is labelled with every pair of leaves, source and destination, that a shortest path over it leads from and to, and with the
//! *capacity factor* of that path there: the rate at which the path brings to the link, its slowest link so far, over the link's own.
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

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use weirgate_units::BitRate;

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

/// The links between switches, by switch, as they are gone through: again and again.
#[derive(Clone, Debug)]
struct Graph {
    edges: Vec<Vec<Edge>>,
}

/// A link, away from a switch.
#[derive(Clone, Copy, Debug)]
struct Edge {
    far: Node,
    /// The place of its score; that of the other direction differs in the last bit.
    score: u32,
    rate: BitRate,
    port: Port,
    is_up: bool,
}

/// The shortest paths to one leaf.
#[derive(Clone, Debug)]
struct Ways {
    leaf: Node,
    /// From each node; [`NONE`]: there is no way.
    hops: Vec<u32>,
    /// Who sends by each node.
    sources: Vec<Vec<Sources>>,
    /// Of the paths from each node.
    classes: Vec<Vec<Class>>,
}

/// Leaves whose paths bring the same rate to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sources {
    /// Of the slowest link so far; `None`: it is the first node of the path.
    rate: Option<BitRate>,
    /// A bit for each leaf.
    leaves: Box<[u64]>,
    /// The sum of their numbers.
    sum: u128,
}

/// Paths that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    /// The hash of their links' scores and rates, in order.
    scores: u128,
    /// Of the slowest link.
    rate: BitRate,
    paths: u64,
}

impl Symmetry {
    /// What is alike in `topology`. Memory: for each pair of a leaf and a switch, a bit for each leaf and some 200 bytes. Steps: for each
    /// leaf, the links.
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
                let weight = class.rate.as_bits_per_sec().saturating_mul(class.paths);
                match found.iter_mut().find(|(scores, _)| *scores == class.scores) {
                    Some((_, component)) => {
                        component.weight = component.weight.saturating_add(weight);
                        component.ports.push(edge.port);
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
                Change::Way { far, .. } if !is_up => self.count_link(at, *far, score, u128::wrapping_sub),
                _ => {}
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
                    if is_up {
                        self.count_link(at, far, score, u128::wrapping_add);
                    }
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
            *score = by(*score, ways.labels(at, node, edge.rate));
        }
    }

    /// Those of one link that goes on from a node, or will.
    fn count_link(&mut self, at: usize, node: Node, link: u32, by: fn(u128, u128) -> u128) {
        for edge in self.graph.edges[node.index()].iter().filter(|edge| edge.score | 1 == link | 1) {
            let score = &mut self.scores[edge.score as usize];
            *score = by(*score, self.ways[at].labels(at, node, edge.rate));
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

/// Nodes to go to, the nearest first, each once.
#[derive(Debug, Default)]
struct Open {
    by_hops: Vec<Vec<Node>>,
    at: usize,
    is_in: Vec<bool>,
}

impl Open {
    /// Adds one, no nearer than the one that came out last, unless there is no way from it.
    fn add(&mut self, hops: u32, node: Node) {
        if hops == NONE {
            return;
        }
        if self.is_in.len() <= node.index() {
            self.is_in.resize(node.index() + 1, false);
        }
        if core::mem::replace(&mut self.is_in[node.index()], true) {
            return;
        }
        if self.by_hops.len() <= hops as usize {
            self.by_hops.resize(hops as usize + 1, Vec::new());
        }
        self.by_hops[hops as usize].push(node);
    }

    /// Takes the nearest one out; after the last one, it begins anew.
    fn next(&mut self) -> Option<Node> {
        while let Some(nodes) = self.by_hops.get_mut(self.at) {
            if let Some(node) = nodes.pop() {
                self.is_in[node.index()] = false;
                return Some(node);
            }
            self.at += 1;
        }
        self.at = 0;
        None
    }
}

impl Graph {
    fn new(topology: &Topology) -> Self {
        // Hosts are mostly the last ones, and are of no interest.
        let nodes = topology.nodes().rev().find(|node| !topology.is_host(*node)).map_or(0, |node| node.index() + 1);
        let edges = |node| {
            let links = topology.ports(node).iter().enumerate();
            let edge = |(port, link): (usize, &Link)| {
                let far = topology.far_end(*link, node);
                let score = 2 * link.index() as u32 + u32::from(topology.ends(*link)[0] != node);
                let (rate, is_up) = (topology.settings(*link).rate, topology.is_up(*link));
                (!topology.is_host(far)).then_some(Edge { far, score, rate, port: Port(port as u16), is_up })
            };
            if topology.is_host(node) { Vec::new() } else { links.filter_map(edge).collect() }
        };
        Self { edges: topology.nodes().take(nodes).map(edges).collect() }
    }

    fn set_up(&mut self, ends: [Node; 2], link: u32, is_up: bool) {
        for end in ends {
            for edge in self.edges[end.index()].iter_mut().filter(|edge| edge.score | 1 == link | 1) {
                edge.is_up = is_up;
            }
        }
    }
}

/// What a link's going down or up changes in the ways to a leaf.
#[derive(Clone, Copy, Debug)]
enum Change {
    None,
    /// Some nodes are farther than they were, or nearer.
    Distances,
    /// One way more or less, from `far` to `near`.
    Way {
        far: Node,
        near: Node,
    },
}

impl Sources {
    /// None yet.
    fn none(rate: Option<BitRate>, leaves: usize) -> Self {
        Self { rate, leaves: vec![0; leaves.div_ceil(64)].into_boxed_slice(), sum: 0 }
    }

    /// Sums up the numbers of its leaves.
    fn sum_up(&mut self, numbers: &[u128]) {
        self.sum = 0;
        for (bits, numbers) in self.leaves.iter().zip(numbers.chunks(64)) {
            let mut bits = *bits;
            while bits != 0 {
                self.sum = self.sum.wrapping_add(numbers[bits.trailing_zeros() as usize]);
                bits &= bits - 1;
            }
        }
    }
}

impl Ways {
    /// What a link's going down, or up, will change.
    fn change(&self, graph: &Graph, [a, b]: [Node; 2], link: u32, is_up: bool) -> Change {
        let hops = |node: Node| self.hops[node.index()];
        let (near, far) = if hops(a) <= hops(b) { (a, b) } else { (b, a) };
        if hops(near) == hops(far) {
            // Also where both are NONE: nothing comes by it.
            return Change::None;
        }
        let is_way = hops(far) == hops(near) + 1;
        let is_only = || self.after(graph, far).all(|edge| edge.score | 1 == link | 1);
        match (is_up, is_way) {
            (true, true) => Change::Way { far, near },
            (true, false) => Change::Distances,
            (false, true) if is_only() => Change::Distances,
            (false, true) => Change::Way { far, near },
            (false, false) => Change::None,
        }
    }

    /// The links by which shortest paths go on from a node.
    fn after<'a>(&'a self, graph: &'a Graph, node: Node) -> impl Iterator<Item = &'a Edge> + 'a {
        let hops = self.hops[node.index()];
        let is_next = move |edge: &&Edge| edge.is_up && hops != NONE && self.hops[edge.far.index()] + 1 == hops;
        graph.edges[node.index()].iter().filter(is_next)
    }

    /// The links by which they come to it, away from it.
    fn before<'a>(&'a self, graph: &'a Graph, node: Node) -> impl Iterator<Item = &'a Edge> + 'a {
        let hops = self.hops[node.index()];
        let is_before = move |edge: &&Edge| edge.is_up && hops != NONE && self.hops[edge.far.index()] == hops + 1;
        graph.edges[node.index()].iter().filter(is_before)
    }

    /// The nodes that have a way, the farthest first.
    fn farthest_first(&self) -> Vec<Node> {
        let mut nodes: Vec<Node> =
            (0..self.hops.len()).filter(|node| self.hops[*node] != NONE).map(Node::from_index).collect();
        nodes.sort_by_key(|node| core::cmp::Reverse(self.hops[node.index()]));
        nodes
    }

    /// Distances, in links, over switches only.
    fn measure(&mut self, graph: &Graph) {
        self.hops.fill(NONE);
        self.hops[self.leaf.index()] = 0;
        let mut frontier = vec![self.leaf];
        let mut hops = 0;
        while !frontier.is_empty() {
            hops += 1;
            let mut next = Vec::new();
            for edge in frontier.iter().flat_map(|node| &graph.edges[node.index()]).filter(|edge| edge.is_up) {
                let far = &mut self.hops[edge.far.index()];
                if *far == NONE {
                    *far = hops;
                    next.push(edge.far);
                }
            }
            frontier = next;
        }
    }

    /// The hash of the labels that a link from `node` has by its paths to this leaf, the `at`-th.
    fn labels(&self, at: usize, node: Node, rate: BitRate) -> u128 {
        let label = |sources: &Sources| mix(sources.sum, mix(at as u128, factor(sources.rate, rate)));
        self.sources[node.index()].iter().fold(0, |sum, sources| sum.wrapping_add(label(sources)))
    }

    /// Who sends by `node`, from what is known of the nodes before it. `own`: the place of the leaf that it is itself.
    fn gather(&self, graph: &Graph, node: Node, own: u32, numbers: &[u128]) -> Vec<Sources> {
        let mut found: Vec<Sources> = Vec::new();
        if own != NONE && node != self.leaf {
            let mut sources = Sources::none(None, numbers.len());
            sources.leaves[own as usize / 64] |= 1 << (own % 64);
            found.push(sources);
        }
        for edge in self.before(graph, node) {
            for sources in &self.sources[edge.far.index()] {
                let rate = Some(sources.rate.map_or(edge.rate, |rate| rate.min(edge.rate)));
                let at = found.iter().position(|found| found.rate == rate).unwrap_or_else(|| {
                    found.push(Sources::none(rate, numbers.len()));
                    found.len() - 1
                });
                found[at].leaves.iter_mut().zip(&sources.leaves).for_each(|(all, new)| *all |= new);
            }
        }
        found.iter_mut().for_each(|sources| sources.sum_up(numbers));
        // Equal whatever the order of the links.
        found.sort_by_key(|sources| sources.rate);
        found
    }

    /// The classes of the paths from `node`, from those of the nodes after it, into `found`.
    fn classify(&self, graph: &Graph, keys: &[u128], node: Node, found: &mut Vec<Class>) {
        found.clear();
        if node == self.leaf {
            // The path of no links.
            found.push(Class { scores: 0, rate: BitRate::from_bits_per_sec(u64::MAX), paths: 1 });
            return;
        }
        for edge in self.after(graph, node) {
            for class in self.classes_by(keys, edge) {
                match found.iter_mut().find(|found| found.scores == class.scores) {
                    Some(found) => found.paths = found.paths.saturating_add(class.paths),
                    None => found.push(class),
                }
            }
        }
        found.sort_unstable_by_key(|class| class.scores);
    }

    /// The classes of the paths that begin with a link.
    fn classes_by(&self, keys: &[u128], edge: &Edge) -> impl Iterator<Item = Class> {
        let (key, rate) = (keys[edge.score as usize], edge.rate);
        self.classes[edge.far.index()].iter().map(move |class| Class {
            scores: mix(key, class.scores),
            rate: class.rate.min(rate),
            paths: class.paths,
        })
    }
}

/// The capacity factor of a path that brings so much to a link, as a fraction in lowest terms: equal factors are equal numbers.
fn factor(brought: Option<BitRate>, link: BitRate) -> u128 {
    // The first link of a path has none: nothing comes to it but what it is to carry.
    let Some(brought) = brought else { return 0 };
    let (mut a, mut b) = (brought.as_bits_per_sec(), link.as_bits_per_sec());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    u128::from(brought.as_bits_per_sec() / a) << 64 | u128::from(link.as_bits_per_sec() / a)
}
