//! What routing puts into the switches: for each leaf, the next hops of the shortest paths there, with their weights and components.

use weirgate_balance::symmetry::Symmetry;
use weirgate_balance::topology::{Node, Topology};
use weirgate_balance::{Port, Schedule};

/// No way, or none yet.
pub(crate) const NO_GROUP: u16 = u16::MAX;

/// No way.
pub(crate) const FAR: u32 = u32::MAX;

/// The ways from one switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// By leaf, which of the groups.
    pub(crate) by_leaf: Box<[u16]>,
    pub(crate) groups: Vec<Group>,
    /// The components of all groups.
    pub(crate) components: usize,
}

/// Next hops. What every packet needs is in its first cache line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Group {
    pub(crate) ports: Box<[Port]>,
    /// The symmetric components: one, unless the network is unequal.
    pub(crate) components: Box<[Box<[Port]>]>,
    pub(crate) component_weights: Box<[u32]>,
    /// The number of its first component among those of the switch.
    pub(crate) first_component: usize,
    /// What each can carry to the leaf, in the smallest whole numbers.
    pub(crate) weights: Box<[u32]>,
    /// Presto's order of them, with Presto.
    pub(crate) schedule: Option<Schedule>,
}

/// The tables of all nodes; of hosts, empty ones. `symmetry`: where components are asked for; `in_turn`: where Presto's order is.
pub(crate) fn tables(topology: &Topology, leaves: &[Node], symmetry: Option<&Symmetry>, in_turn: bool) -> Vec<Table> {
    let none = || Table { by_leaf: vec![NO_GROUP; leaves.len()].into(), ..Table::default() };
    let mut tables: Vec<Table> =
        topology.nodes().map(|node| if topology.is_host(node) { Table::default() } else { none() }).collect();
    for (at, leaf) in leaves.iter().enumerate() {
        let hops = distances(topology, *leaf);
        let capacities = capacities(topology, *leaf, &hops);
        for node in topology.nodes().filter(|node| !topology.is_host(*node) && hops[node.index()] != FAR) {
            let next = next_hops(topology, &hops, node);
            if next.is_empty() {
                continue;
            }
            let weights = reduce(&carries(topology, &capacities, node, &next));
            let components = match symmetry {
                Some(symmetry) if next.len() > 1 => symmetry.components(node, *leaf),
                _ => Vec::new(),
            };
            let mut component_weights = reduce(&components.iter().map(|one| one.weight).collect::<Vec<_>>());
            let mut components: Vec<Box<[Port]>> = components.into_iter().map(|one| one.ports.into()).collect();
            if components.is_empty() {
                (components, component_weights) = (vec![next.clone().into()], vec![1]);
            }
            let schedule = in_turn.then(|| schedule(&weights));
            let ports = next.into();
            let (weights, components, component_weights) =
                (weights.into(), components.into(), component_weights.into());
            let first_component = 0;
            let group = Group { ports, components, component_weights, first_component, weights, schedule };
            tables[node.index()].add(at, group);
        }
    }
    tables
}

impl Table {
    /// The next hops to a leaf; none, if there is no way.
    pub(crate) fn group(&self, leaf: u16) -> Option<&Group> {
        self.groups.get(usize::from(*self.by_leaf.get(usize::from(leaf))?))
    }

    /// Leaves out ports that the switch itself knows to be down, before routing does; what is left keeps its weights.
    pub(crate) fn keep(&mut self, is_up: impl Fn(Port) -> bool) {
        for (number, group) in self.groups.iter_mut().enumerate() {
            if group.ports.iter().all(|port| is_up(*port)) {
                continue;
            }
            let kept = group.ports.iter().zip(&group.weights).filter(|(port, _)| is_up(**port));
            let (ports, weights): (Vec<Port>, Vec<u32>) = kept.map(|(port, weight)| (*port, *weight)).unzip();
            let components = group.components.iter().zip(&group.component_weights).filter_map(|(ports, weight)| {
                let left: Box<[Port]> = ports.iter().copied().filter(|port| is_up(*port)).collect();
                (!left.is_empty()).then_some((left, *weight))
            });
            let (components, component_weights): (Vec<Box<[Port]>>, Vec<u32>) = components.unzip();
            if ports.is_empty() {
                self.by_leaf.iter_mut().filter(|at| usize::from(**at) == number).for_each(|at| *at = NO_GROUP);
                continue;
            }
            group.schedule = group.schedule.is_some().then(|| schedule(&weights));
            (group.ports, group.weights) = (ports.into(), weights.into());
            (group.components, group.component_weights) = (components.into(), component_weights.into());
        }
    }

    /// The ways to a leaf; the group's first component is found here.
    fn add(&mut self, leaf: usize, group: Group) {
        let is_same = |other: &Group| {
            other.ports == group.ports
                && other.weights == group.weights
                && other.components == group.components
                && other.component_weights == group.component_weights
        };
        let at = self.groups.iter().position(is_same).unwrap_or_else(|| {
            let first_component = self.components;
            self.components += group.components.len();
            self.groups.push(Group { first_component, ..group });
            self.groups.len() - 1
        });
        self.by_leaf[leaf] = u16::try_from(at).ok().filter(|at| *at != NO_GROUP).expect("fewer groups than leaves");
    }
}

/// Presto's order, by weights that [`reduce`] gave.
fn schedule(weights: &[u32]) -> Schedule {
    let weights: Vec<u64> = weights.iter().map(|weight| u64::from(*weight)).collect();
    Schedule::new(&weights).expect("weights are reduced to what a schedule takes")
}

/// Links from each node to one, over those that are up; [`FAR`], where there is no way. Hosts have one link, so no way leads over them.
pub(crate) fn distances(topology: &Topology, to: Node) -> Vec<u32> {
    let mut hops = vec![FAR; topology.nodes().len()];
    hops[to.index()] = 0;
    let mut open = std::collections::VecDeque::from([to]);
    while let Some(node) = open.pop_front() {
        for link in topology.ports(node).iter().filter(|link| topology.is_up(**link)) {
            let far = topology.far_end(*link, node);
            if hops[far.index()] == FAR {
                hops[far.index()] = hops[node.index()] + 1;
                open.push_back(far);
            }
        }
    }
    hops
}

/// The ports of shortest paths, in order.
fn next_hops(topology: &Topology, hops: &[u32], node: Node) -> Vec<Port> {
    let links = topology.ports(node).iter().enumerate();
    let is_next = |(_, link): &(usize, &weirgate_balance::topology::Link)| {
        let far = topology.far_end(**link, node);
        topology.is_up(**link) && !topology.is_host(far) && hops[far.index()].wrapping_add(1) == hops[node.index()]
    };
    links.filter(is_next).map(|(port, _)| Port(port as u16)).collect()
}

/// What the shortest paths from each node can carry to a leaf, in bit/s, each link by its rate.
fn capacities(topology: &Topology, leaf: Node, hops: &[u32]) -> Vec<u64> {
    let mut capacities = vec![0; hops.len()];
    capacities[leaf.index()] = u64::MAX;
    let mut nodes: Vec<Node> = topology
        .nodes()
        .filter(|node| hops[node.index()] != FAR && *node != leaf && !topology.is_host(*node))
        .collect();
    nodes.sort_by_key(|node| hops[node.index()]);
    for node in nodes {
        let carries = carries(topology, &capacities, node, &next_hops(topology, hops, node));
        capacities[node.index()] = carries.into_iter().fold(0, u64::saturating_add);
    }
    capacities
}

/// What each of a node's next hops can carry on, in bit/s: its link's rate. Where all links to one node bring more than goes on from there,
/// they share that by their rates.
fn carries(topology: &Topology, capacities: &[u64], node: Node, next: &[Port]) -> Vec<u64> {
    let to = |port: &Port| {
        let link = topology.link_at(node, *port);
        (topology.far_end(link, node).index(), u128::from(topology.settings(link).rate.as_bits_per_sec()))
    };
    let carries = |port| {
        let (far, rate) = to(port);
        let brought: u128 = next.iter().map(to).filter(|(other, _)| *other == far).map(|(_, rate)| rate).sum();
        (rate * brought.min(capacities[far].into()) / brought) as u64
    };
    next.iter().map(carries).collect()
}

/// Weights in the smallest whole numbers; where these add up to more than a schedule takes, they are rounded, none to nothing.
fn reduce(weights: &[u64]) -> Vec<u32> {
    // Of equal weights each is 1, however many.
    let sum_max = (weights.len() as u64).max(1_024);
    let common = weights.iter().copied().fold(0, weirgate_balance::gcd).max(1);
    let sum = weights.iter().fold(0_u64, |sum, weight| sum.saturating_add(weight / common));
    let reduced = |weight: &u64| {
        if sum <= sum_max {
            (weight / common) as u32
        } else {
            ((u128::from(weight / common) * u128::from(sum_max) / u128::from(sum)) as u32).max(u32::from(*weight > 0))
        }
    };
    weights.iter().map(reduced).collect()
}

#[cfg(test)]
mod tests {
    use weirgate_balance::topology::{Kind, LinkSettings};
    use weirgate_units::{BitRate, Duration};

    use super::*;

    /// Two leaves, two spines, and two links of 10 Gbit/s between each, of which `gone` between the first spine and the second leaf are
    /// down: the weights of the first leaf's uplinks.
    fn weights(gone: usize) -> Vec<u32> {
        let mut topology = Topology::new();
        let [leaf, other] = [0; 2].map(|_| topology.add(Kind::Switch { stage: 0 }));
        let spines = [0; 2].map(|_| topology.add(Kind::Switch { stage: 1 }));
        let settings = LinkSettings { rate: BitRate::from_bits_per_sec(10_000_000_000), delay: Duration::ZERO };
        for (spine, leaf) in spines.into_iter().flat_map(|spine| [(spine, leaf), (spine, other)]) {
            for _ in 0..2 {
                topology.link(spine, leaf, settings).unwrap();
            }
        }
        for link in topology.ports(spines[0]).to_vec().into_iter().rev().take(gone) {
            topology.set_up(link, false);
        }
        let tables = tables(&topology, &[leaf, other], None, false);
        tables[leaf.index()].group(1).unwrap().weights.to_vec()
    }

    #[test]
    fn links_to_one_switch_share_what_goes_on_from_there() {
        assert_eq!(weights(0), [1, 1, 1, 1]);
        assert_eq!(weights(1), [1, 1, 2, 2]);
        assert_eq!(weights(2), [1, 1], "there is no way over the first spine");
    }
}
