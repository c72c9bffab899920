//! The graph of a network's switches, and the shortest paths over it to one leaf.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use weirgate_units::BitRate;

use super::NONE;
use crate::Port;
use crate::gcd;
use crate::hash::mix;
use crate::topology::{Link, Node, Topology};

/// The links between switches, by switch, as they are gone through: again and again.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    pub(super) edges: Vec<Vec<Edge>>,
}

/// A link, away from a switch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) far: Node,
    /// The place of its score; that of the other direction differs in the last bit.
    pub(super) score: u32,
    pub(super) rate: BitRate,
    pub(super) port: Port,
    pub(super) is_up: bool,
    /// The rates of all links of its stripe together: those that are up, have its rate, and lead to the same switch.
    pub(super) stripe: BitRate,
    /// Whether it stands for them: of each stripe one does.
    pub(super) is_first: bool,
}

/// The shortest paths to one leaf.
#[derive(Clone, Debug)]
pub(super) struct Ways {
    pub(super) leaf: Node,
    /// From each node; [`NONE`]: there is no way.
    pub(super) hops: Vec<u32>,
    /// Who sends by each node.
    pub(super) sources: Vec<Vec<Sources>>,
    /// Of the paths from each node that others go through.
    pub(super) classes: Vec<Vec<Class>>,
}

/// Leaves whose paths bring the same rate to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sources {
    /// Of the slowest stripe so far; `None`: it is the first node of the path.
    pub(super) rate: Option<BitRate>,
    /// A bit for each leaf.
    pub(super) leaves: Box<[u64]>,
    /// The sum of their numbers.
    pub(super) sum: u128,
}

/// Paths that are alike, and of one rate. By the links of a stripe there is one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class {
    /// The hash of their links' scores and rates, in order.
    pub(super) scores: u128,
    /// Of the slowest stripe.
    pub(super) rate: BitRate,
    pub(super) paths: u64,
}

impl Graph {
    pub(super) fn new(topology: &Topology) -> Self {
        // Hosts are mostly the last ones, and are of no interest.
        let nodes = topology.nodes().rev().find(|node| !topology.is_host(*node)).map_or(0, |node| node.index() + 1);
        let edges = |node| {
            let links = topology.ports(node).iter().enumerate();
            let edge = |(port, link): (usize, &Link)| {
                let far = topology.far_end(*link, node);
                let score = 2 * link.index() as u32 + u32::from(topology.ends(*link)[0] != node);
                let (rate, is_up) = (topology.settings(*link).rate, topology.is_up(*link));
                let (port, stripe) = (Port(port as u16), BitRate::ZERO);
                (!topology.is_host(far)).then_some(Edge { far, score, rate, port, is_up, stripe, is_first: false })
            };
            if topology.is_host(node) { Vec::new() } else { links.filter_map(edge).collect() }
        };
        let mut edges: Vec<Vec<Edge>> = topology.nodes().take(nodes).map(edges).collect();
        edges.iter_mut().for_each(|edges| see_stripes(edges));
        Self { edges }
    }

    pub(super) fn set_up(&mut self, ends: [Node; 2], link: u32, is_up: bool) {
        for end in ends {
            for edge in self.edges[end.index()].iter_mut().filter(|edge| edge.score | 1 == link | 1) {
                edge.is_up = is_up;
            }
            see_stripes(&mut self.edges[end.index()]);
        }
    }
}

/// Which links of a switch are a stripe.
fn see_stripes(edges: &mut [Edge]) {
    let mut order: Vec<usize> = (0..edges.len()).filter(|at| edges[*at].is_up).collect();
    let stripe = |edges: &[Edge], at: usize| (edges[at].far, edges[at].rate);
    order.sort_by_key(|at| (stripe(edges, *at), *at));
    for links in
        order.chunk_by(|a, b| stripe(edges, *a) == stripe(edges, *b)).map(<[usize]>::to_vec).collect::<Vec<_>>()
    {
        let all = edges[links[0]].rate.as_bits_per_sec().saturating_mul(links.len() as u64);
        for at in &links {
            (edges[*at].stripe, edges[*at].is_first) = (BitRate::from_bits_per_sec(all), *at == links[0]);
        }
    }
}

/// What a link's going down or up changes in the ways to a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
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
    pub(super) fn none(rate: Option<BitRate>, leaves: usize) -> Self {
        Self { rate, leaves: vec![0; leaves.div_ceil(64)].into_boxed_slice(), sum: 0 }
    }

    /// Sums up the numbers of its leaves.
    pub(super) fn sum_up(&mut self, numbers: &[u128]) {
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
    pub(super) fn change(&self, graph: &Graph, [a, b]: [Node; 2], link: u32, is_up: bool) -> Change {
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
    pub(super) fn after<'a>(&'a self, graph: &'a Graph, node: Node) -> impl Iterator<Item = &'a Edge> + 'a {
        let hops = self.hops[node.index()];
        let is_next = move |edge: &&Edge| edge.is_up && hops != NONE && self.hops[edge.far.index()] + 1 == hops;
        graph.edges[node.index()].iter().filter(is_next)
    }

    /// The links by which they come to it, away from it.
    pub(super) fn before<'a>(&'a self, graph: &'a Graph, node: Node) -> impl Iterator<Item = &'a Edge> + 'a {
        let hops = self.hops[node.index()];
        let is_before = move |edge: &&Edge| edge.is_up && hops != NONE && self.hops[edge.far.index()] == hops + 1;
        graph.edges[node.index()].iter().filter(is_before)
    }

    /// The nodes that have a way, the farthest first.
    pub(super) fn farthest_first(&self) -> Vec<Node> {
        let mut nodes: Vec<Node> =
            (0..self.hops.len()).filter(|node| self.hops[*node] != NONE).map(Node::from_index).collect();
        nodes.sort_by_key(|node| core::cmp::Reverse(self.hops[node.index()]));
        nodes
    }

    /// Distances, in links, over switches only.
    pub(super) fn measure(&mut self, graph: &Graph) {
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

    /// The hash of the labels that a link from `node` of such a stripe has by its paths to this leaf, the `at`-th.
    pub(super) fn labels(&self, at: usize, node: Node, stripe: BitRate) -> u128 {
        let label = |sources: &Sources| mix(sources.sum, mix(at as u128, factor(sources.rate, stripe)));
        self.sources[node.index()].iter().fold(0, |sum, sources| sum.wrapping_add(label(sources)))
    }

    /// Who sends by `node`, from what is known of the nodes before it. `own`: the place of the leaf that it is itself.
    pub(super) fn gather(&self, graph: &Graph, node: Node, own: u32, numbers: &[u128]) -> Vec<Sources> {
        let mut found: Vec<Sources> = Vec::new();
        if own != NONE && node != self.leaf {
            let mut sources = Sources::none(None, numbers.len());
            sources.leaves[own as usize / 64] |= 1 << (own % 64);
            found.push(sources);
        }
        for edge in self.before(graph, node) {
            for sources in &self.sources[edge.far.index()] {
                let rate = Some(sources.rate.map_or(edge.stripe, |rate| rate.min(edge.stripe)));
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
    pub(super) fn classify(&self, graph: &Graph, keys: &[u128], node: Node, found: &mut Vec<Class>) {
        found.clear();
        if node == self.leaf {
            // The path of no links.
            found.push(Class { scores: 0, rate: BitRate::from_bits_per_sec(u64::MAX), paths: 1 });
            return;
        }
        for edge in self.after(graph, node).filter(|edge| edge.is_first) {
            for class in self.classes_by(keys, edge) {
                match found.iter_mut().find(|found| (found.scores, found.rate) == (class.scores, class.rate)) {
                    Some(found) => found.paths = found.paths.saturating_add(class.paths),
                    None => found.push(class),
                }
            }
        }
        found.sort_unstable_by_key(|class| (class.scores, class.rate));
    }

    /// The classes of the paths that begin with a link.
    pub(super) fn classes_by(&self, keys: &[u128], edge: &Edge) -> impl Iterator<Item = Class> {
        let (key, rate) = (keys[edge.score as usize], edge.stripe);
        self.classes[edge.far.index()].iter().map(move |class| Class {
            scores: mix(key, class.scores),
            rate: class.rate.min(rate),
            paths: class.paths,
        })
    }
}

/// The capacity factor of a path that brings so much to a link, as a fraction in lowest terms: equal factors are equal numbers.
pub(super) fn factor(brought: Option<BitRate>, link: BitRate) -> u128 {
    // The first link of a path has none: nothing comes to it but what it is to carry.
    let Some(brought) = brought else { return 0 };
    let (brought, link) = (brought.as_bits_per_sec(), link.as_bits_per_sec());
    let common = gcd(brought, link);
    u128::from(brought / common) << 64 | u128::from(link / common)
}
