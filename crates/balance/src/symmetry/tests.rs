use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use weirgate_units::{BitRate, Duration};

use super::ways::factor;
use super::*;
use crate::topology::{FatTree, Kind, LeafSpine, LinkSettings, Pods, Topology};

const GBIT: u64 = 1_000_000_000;

fn gbits(rate: u64) -> LinkSettings {
    LinkSettings { rate: BitRate::from_bits_per_sec(rate * GBIT), delay: Duration::from_micros(1) }
}

/// Leaves with a host each, spines, and a link of such a rate from each leaf to each spine; 0: none.
fn leaf_spine<const N: usize>(rates: &[[u64; N]]) -> (Topology, Vec<Node>, Vec<Node>) {
    let mut topology = Topology::new();
    let leaves: Vec<Node> = rates.iter().map(|_| topology.add(Kind::Switch { stage: 0 })).collect();
    let spines: Vec<Node> = rates[0].iter().map(|_| topology.add(Kind::Switch { stage: 1 })).collect();
    for (leaf, rates) in leaves.iter().zip(rates) {
        for (spine, rate) in spines.iter().zip(rates) {
            if *rate > 0 {
                topology.link(*leaf, *spine, gbits(*rate)).unwrap();
            }
        }
        let host = topology.add(Kind::Host);
        topology.link(host, *leaf, gbits(10)).unwrap();
    }
    (topology, leaves, spines)
}

fn ports(components: &[Component]) -> Vec<Vec<u16>> {
    components.iter().map(|component| component.ports.iter().map(|port| port.0).collect()).collect()
}

/// Figure 4 of the article: four leaves, three spines, the link from L0 to S0 has failed.
#[test]
fn the_articles_failure_leaves_two_components() {
    let (mut topology, leaves, _) = leaf_spine(&[[40; 3]; 4]);
    let mut symmetry = Symmetry::new(&topology);
    let whole = symmetry.components(leaves[3], leaves[1]);
    assert_eq!(ports(&whole), [[0, 1, 2]]);
    let failed = topology.ports(leaves[0])[0];
    symmetry.set_up(&mut topology, failed, false);
    // From L3 to L1: {P1, P2} of weight 2, which L0 uses as well, and {P0} of weight 1, which it cannot.
    let components = symmetry.components(leaves[3], leaves[1]);
    assert_eq!(ports(&components), [vec![1, 2], vec![0]]);
    assert_eq!(components.iter().map(|c| c.weight / (40 * GBIT)).collect::<Vec<_>>(), [2, 1]);
    // To L0 nobody has a way by S0: what is left is alike.
    assert_eq!(ports(&symmetry.components(leaves[3], leaves[0])), [[1, 2]]);
    assert_eq!(ports(&symmetry.components(leaves[0], leaves[1])), [[1, 2]]);
}

/// The article's unequal links: L0-S0, L0-S1 and L1-S0 have 40 Gbit/s, the others 10.
#[test]
fn the_articles_unequal_links_are_three_components() {
    let (topology, leaves, spines) = leaf_spine(&[[40, 40, 10], [40, 10, 10], [10; 3], [10; 3]]);
    // Capacity factors of H0, H1, H2 at the links down to L1: by that pair of leaves alone, H0 and H2 are alike.
    let rate = |at: Node, port: usize| Some(topology.settings(topology.ports(at)[port]).rate);
    let factors: Vec<u128> =
        (0..3).map(|spine| factor(rate(leaves[0], spine), rate(spines[spine], 1).unwrap())).collect();
    let of = |a: u128, b: u128| a << 64 | b;
    assert_eq!(factors, [of(1, 1), of(4, 1), of(1, 1)]);
    // The labels of all pairs tell all three from each other: what L2 sends to L1 fills S0's link to a quarter, and S2's wholly.
    let symmetry = Symmetry::new(&topology);
    let labels = labels(&topology);
    let [by_s0, by_s1, by_s2] =
        [0, 1, 2].map(|spine| directed(&topology, spines[spine], topology.ports(spines[spine])[1]));
    let factors_from = |source: Node| {
        let is_of_pair = |(from, to, _): &&(Node, Node, u128)| (*from, *to) == (source, leaves[1]);
        [by_s0, by_s1, by_s2].map(|link| labels[&link].iter().find(is_of_pair).unwrap().2)
    };
    assert_eq!(factors_from(leaves[0]), [of(1, 1), of(4, 1), of(1, 1)]);
    assert_eq!(factors_from(leaves[2]), [of(1, 4), of(1, 1), of(1, 1)]);
    for (one, other) in [(by_s0, by_s1), (by_s1, by_s2), (by_s0, by_s2)] {
        assert_ne!(labels[&one], labels[&other]);
        assert_ne!(symmetry.scores[one], symmetry.scores[other]);
    }
    // And so do the rates.
    let components = symmetry.components(leaves[0], leaves[1]);
    let mut each = ports(&components);
    each.sort();
    assert_eq!(each, [[0], [1], [2]]);
    let weight = |port: u16| components.iter().find(|c| c.ports == [Port(port)]).unwrap().weight / GBIT;
    assert_eq!([0, 1, 2].map(weight), [40, 10, 10]);
}

/// "One link of 40 Gbit/s or four of 10" (section 3.4.3) between L0 and S0, and S0 and L1.
#[test]
fn four_links_are_as_good_as_one_of_their_rates_sum() {
    let (one, leaves, _) = leaf_spine(&[[40, 10, 10], [40, 10, 10], [10; 3], [10; 3]]);
    let (mut four, same, spines) = leaf_spine(&[[10; 3]; 4]);
    for leaf in &same[..2] {
        for _ in 0..3 {
            four.link(*leaf, spines[0], gbits(10)).unwrap();
        }
    }
    let (one, four) = (Symmetry::new(&one), Symmetry::new(&four));
    for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))).filter(|(from, to)| from != to) {
        let weights = |symmetry: &Symmetry, leaves: &[Node]| {
            let all = symmetry.components(leaves[from], leaves[to]);
            all.into_iter().map(|component| (component.weight, component.ports[0])).collect::<Vec<_>>()
        };
        assert_eq!(weights(&one, &leaves), weights(&four, &same), "{:?}", (from, to));
    }
}

/// Two links from L0 to S0, and one elsewhere: what L0 sends by S0 to another leaf has to go on by one link.
#[test]
fn a_stripe_brings_what_its_links_do_together() {
    let (mut topology, leaves, spines) = leaf_spine(&[[10; 3]; 3]);
    let second = topology.link(leaves[0], spines[0], gbits(10)).unwrap();
    let mut symmetry = Symmetry::new(&topology);
    // A leaf's port 3 is its host's.
    let expected = |from: usize, to: usize, symmetry: &Symmetry| {
        let components = symmetry.components(leaves[from], leaves[to]);
        components
            .into_iter()
            .map(|c| (c.ports.iter().map(|port| port.0).collect::<Vec<_>>(), c.weight / GBIT))
            .collect::<Vec<_>>()
    };
    assert_eq!(expected(0, 1, &symmetry), [(vec![1, 2], 20), (vec![0, 4], 10)]);
    assert_eq!(expected(2, 0, &symmetry), [(vec![1, 2], 20), (vec![0], 10)]);
    // Between two others S0 is not alike, since L0 sends more by it.
    assert_eq!(expected(2, 1, &symmetry), [(vec![1, 2], 20), (vec![0], 10)]);
    // With one of the two all are alike.
    symmetry.set_up(&mut topology, second, false);
    assert_eq!(expected(0, 1, &symmetry), [(vec![0, 1, 2], 30)]);
    symmetry.set_up(&mut topology, second, true);
    assert_eq!(expected(0, 1, &symmetry), [(vec![1, 2], 20), (vec![0, 4], 10)]);
}

/// Figure 5 of the article: pods and planes. A failed link between a rack and the first plane's switch of its pod makes that plane
/// unlike the other for who uses both, and nothing for who is within a plane.
#[test]
fn a_failed_link_in_a_pod_parts_the_planes() {
    let pods =
        Pods { pods: 3, tors: 2, planes: 2, spines: 2, hosts: 1, edge: gbits(10), fabric: gbits(40), spine: gbits(40) };
    let mut topology = pods.build().unwrap();
    let mut symmetry = Symmetry::new(&topology);
    let leaves = topology.leaves();
    // A rack's port 0 is its host's.
    assert_eq!(ports(&symmetry.components(leaves[5], leaves[1])), [[1, 2]]);
    let failed = topology.ports(leaves[0])[1];
    let fabric = topology.far_end(failed, leaves[0]);
    symmetry.set_up(&mut topology, failed, false);
    let parted = symmetry.components(leaves[5], leaves[1]);
    assert_eq!(ports(&parted), [[1], [2]]);
    // A fabric switch of another pod: its paths to the same rack stay alike.
    let other = topology.far_end(topology.ports(leaves[5])[1], leaves[5]);
    assert_ne!(other, fabric);
    assert_eq!(symmetry.components(other, leaves[1]).len(), 1);
    symmetry.set_up(&mut topology, failed, true);
    assert_eq!(ports(&symmetry.components(leaves[5], leaves[1])), [[1, 2]]);
}

#[test]
fn regular_networks_are_one_component_everywhere() {
    let leaf_spine = LeafSpine { spines: 4, leaves: 5, hosts: 2, edge: gbits(10), core: gbits(40) };
    let fat_tree = FatTree { k: 4, link: gbits(10) };
    for topology in [leaf_spine.build().unwrap(), fat_tree.build().unwrap()] {
        let symmetry = Symmetry::new(&topology);
        for at in topology.nodes().filter(|node| !topology.is_host(*node)) {
            for leaf in topology.leaves().into_iter().filter(|leaf| *leaf != at) {
                assert_eq!(symmetry.components(at, leaf).len(), 1);
            }
        }
    }
}

/// All shortest paths, as nodes and links.
fn paths(topology: &Topology, from: Node, to: Node) -> Vec<Vec<(Node, Link)>> {
    let mut open = vec![vec![]];
    let mut at = vec![from];
    loop {
        let done: Vec<_> =
            open.iter().zip(&at).filter(|(_, at)| **at == to).map(|(path, _)| Clone::clone(path)).collect();
        if !done.is_empty() || open.is_empty() || open[0].len() > topology.nodes().len() {
            return done;
        }
        let mut next = (vec![], vec![]);
        for (path, at) in open.into_iter().zip(at) {
            for link in topology.ports(at).iter().filter(|link| topology.is_up(**link)) {
                let far = topology.far_end(*link, at);
                if !topology.is_host(far) && far != from && !path.iter().any(|(node, _)| *node == far) {
                    let mut longer: Vec<(Node, Link)> = path.clone();
                    longer.push((at, *link));
                    next.0.push(longer);
                    next.1.push(far);
                }
            }
        }
        (open, at) = next;
    }
}

/// The rate of all links that are up, lead from `node` to where this one does, and have its rate; and whether it is the first of them.
fn stripe(topology: &Topology, node: Node, link: Link) -> (BitRate, bool) {
    let of = |link: Link| (topology.far_end(link, node), topology.settings(link).rate);
    let all: Vec<Link> =
        topology.ports(node).iter().copied().filter(|other| topology.is_up(*other) && of(*other) == of(link)).collect();
    let rate = BitRate::from_bits_per_sec(topology.settings(link).rate.as_bits_per_sec() * all.len() as u64);
    (rate, all[0] == link)
}

/// The labels of each link by the letter of the article, path by path: source, destination and capacity factor. Stripes are its links.
fn labels(topology: &Topology) -> BTreeMap<usize, BTreeSet<(Node, Node, u128)>> {
    let leaves = topology.leaves();
    let mut labels: BTreeMap<usize, BTreeSet<(Node, Node, u128)>> = BTreeMap::new();
    for (source, destination) in
        leaves.iter().flat_map(|s| leaves.iter().map(move |d| (*s, *d))).filter(|(s, d)| s != d)
    {
        for path in paths(topology, source, destination) {
            let mut brought = None;
            for (node, link) in path {
                let rate = stripe(topology, node, link).0;
                labels.entry(directed(topology, node, link)).or_default().insert((
                    source,
                    destination,
                    factor(brought, rate),
                ));
                brought = Some(brought.map_or(rate, |brought: BitRate| brought.min(rate)));
            }
        }
    }
    labels
}

/// The components by the letter of the article, path by path and label by label.
fn by_the_letter(topology: &Topology, from: Node, to: Node) -> BTreeSet<(Vec<Port>, u64)> {
    let labels = labels(topology);
    let mut alike: BTreeMap<Vec<_>, (BTreeSet<Port>, u64)> = BTreeMap::new();
    for path in paths(topology, from, to) {
        let score = path.iter().map(|(node, link)| {
            (labels.get(&directed(topology, *node, *link)).cloned().unwrap_or_default(), topology.settings(*link).rate)
        });
        let slowest = path.iter().map(|(node, link)| stripe(topology, *node, *link).0).min().unwrap();
        // One of the paths by these stripes stands for all.
        let is_first = path.iter().all(|(node, link)| stripe(topology, *node, *link).1);
        let port = topology.ports(from).iter().position(|link| *link == path[0].1).unwrap();
        let entry = alike.entry(score.collect()).or_default();
        entry.0.insert(Port(port as u16));
        entry.1 += if is_first { slowest.as_bits_per_sec() } else { 0 };
    }
    let mut by_ports: BTreeMap<Vec<Port>, u64> = BTreeMap::new();
    for (ports, weight) in alike.into_values() {
        *by_ports.entry(ports.into_iter().collect()).or_default() += weight;
    }
    by_ports.into_iter().collect()
}

/// The place of a link's labels, in the direction away from `from`.
fn directed(topology: &Topology, from: Node, link: Link) -> usize {
    2 * link.index() + usize::from(topology.ends(link)[0] != from)
}

/// Switches in three stages with links here and there, of three rates; some hosts on the first.
fn any_network() -> impl Strategy<Value = Topology> {
    let links =
        prop::collection::vec((0_usize..9, 0_usize..9, prop::sample::select(vec![10_u64, 10, 10, 25, 40])), 8..24);
    links.prop_map(|links| {
        let mut topology = Topology::new();
        let nodes: Vec<Node> = (0..9).map(|at| topology.add(Kind::Switch { stage: at / 4 })).collect();
        for leaf in &nodes[..4] {
            let host = topology.add(Kind::Host);
            topology.link(host, *leaf, gbits(10)).unwrap();
        }
        for (a, b, rate) in links.into_iter().filter(|(a, b, _)| a != b) {
            topology.link(nodes[a], nodes[b], gbits(rate)).unwrap();
        }
        topology
    })
}

fn all(topology: &Topology, symmetry: &Symmetry) -> Vec<Vec<Component>> {
    let switches = topology.nodes().filter(|node| !topology.is_host(*node));
    let pairs = switches.flat_map(|at| topology.leaves().into_iter().map(move |leaf| (at, leaf)));
    pairs.map(|(at, leaf)| symmetry.components(at, leaf)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Hashes and classes find what going through all paths and labels finds.
    #[test]
    fn components_are_the_articles(topology in any_network()) {
        let symmetry = Symmetry::new(&topology);
        for from in topology.nodes().filter(|node| !topology.is_host(*node)) {
            for to in topology.leaves().into_iter().filter(|to| *to != from) {
                let found = symmetry.components(from, to).into_iter().map(|c| (c.ports, c.weight)).collect();
                prop_assert_eq!(by_the_letter(&topology, from, to), found, "{:?}", (from, to));
            }
        }
    }

    /// What follows failures and repairs is what is found from nothing.
    #[test]
    fn following_is_as_good_as_finding_again(mut topology in any_network(), flips in prop::collection::vec(any::<prop::sample::Index>(), 1..12)) {
        let mut symmetry = Symmetry::new(&topology);
        for flip in flips {
            let link = topology.links().nth(flip.index(topology.links().len())).unwrap();
            let is_up = topology.is_up(link);
            symmetry.set_up(&mut topology, link, !is_up);
            let fresh = Symmetry::new(&topology);
            prop_assert_eq!(&symmetry.scores, &fresh.scores);
            prop_assert_eq!(all(&topology, &symmetry), all(&topology, &fresh), "{}", format!("{link:?}"));
        }
    }
}
