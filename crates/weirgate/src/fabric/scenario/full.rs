//! Which link a workload asks for more than it carries.

use std::cmp::Reverse;

use weirgate_balance::topology::{Link, Node, Topology};
use weirgate_fabric::Distances;

/// So many steps are a second.
const STEPS_MAX: usize = 200_000_000;

/// The fullest link, from the first of its ends to the other, and its load, where hosts send so many bits a second between leaves, each
/// source and each destination outside its leaf alike, and each switch shares out what it has among its shortest ways by their rates: a host's
/// own link, too. None, where the network is too large to be asked.
pub(super) fn fullest(topology: &Topology, bits_per_sec: f64) -> Option<(Node, Node, f64)> {
    let leaves = topology.leaves();
    let links: Vec<Link> = topology.links().filter(|link| topology.is_up(*link)).collect();
    if leaves.len().saturating_mul(links.len()) > STEPS_MAX {
        return None;
    }
    let hosts_of = |leaf: Node| {
        topology.ports(leaf).iter().filter(|link| topology.is_host(topology.far_end(**link, leaf))).count() as f64
    };
    let hosts: Vec<f64> = leaves.iter().map(|leaf| hosts_of(*leaf)).collect();
    let all: f64 = hosts.iter().sum();
    let mut switches: Vec<Node> = topology.nodes().filter(|node| !topology.is_host(*node)).collect();
    // By link, from its first end and to it.
    let mut asked = vec![[0.0; 2]; topology.links().len()];
    for (to, hosts_to) in leaves.iter().zip(&hosts) {
        let far = Distances::to(topology, *to);
        let mut waits = vec![0.0; topology.nodes().len()];
        for (from, hosts_from) in leaves.iter().zip(&hosts).filter(|(from, _)| *from != to) {
            waits[from.index()] = bits_per_sec * hosts_from / all * hosts_to / (all - hosts_from);
        }
        switches.sort_by_key(|node| Reverse(far.hops(*node)));
        for node in switches.iter().copied() {
            let is_way = |link: &Link| {
                let next = topology.far_end(*link, node);
                let hops = far.hops(next).zip(far.hops(node));
                topology.is_up(*link) && !topology.is_host(next) && hops.is_some_and(|(next, here)| next + 1 == here)
            };
            let rate = |link: Link| topology.settings(link).rate.as_bits_per_sec() as f64;
            let ways: Vec<Link> = topology.ports(node).iter().copied().filter(is_way).collect();
            let sum: f64 = ways.iter().map(|link| rate(*link)).sum();
            let has = std::mem::take(&mut waits[node.index()]);
            for link in ways {
                let share = has * rate(link) / sum;
                asked[link.index()][usize::from(topology.ends(link)[0] != node)] += share;
                waits[topology.far_end(link, node).index()] += share;
            }
        }
    }
    // What each host sends, and what comes to it.
    for leaf in &leaves {
        let others = leaves.iter().zip(&hosts).filter(|(other, _)| *other != leaf);
        let comes: f64 = others.map(|(_, hosts_from)| bits_per_sec * hosts_from / all / (all - hosts_from)).sum();
        for link in topology.ports(*leaf).iter().filter(|link| topology.is_host(topology.far_end(**link, *leaf))) {
            let down = usize::from(topology.ends(*link)[0] != *leaf);
            asked[link.index()][down] += comes;
            asked[link.index()][1 - down] += bits_per_sec / all;
        }
    }
    let loads = links.into_iter().flat_map(|link| {
        let (rate, [one, other]) = (topology.settings(link).rate.as_bits_per_sec() as f64, topology.ends(link));
        let [there, back] = asked[link.index()].map(|asked| asked / rate);
        [(one, other, there), (other, one, back)]
    });
    loads.filter(|(_, _, load)| *load > 0.0).max_by(|a, b| a.2.total_cmp(&b.2))
}
