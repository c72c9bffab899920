//! What nodes are called, in scenarios and in what is said of them: who wrote `leaf3` does not know which number it has.

use std::collections::BTreeMap;

use weirgate_balance::topology::{Link, Node, Topology, TopologyError};

use crate::config::read::unknown;

/// The names of all nodes of a network.
pub(super) struct Names {
    nodes: BTreeMap<String, Node>,
    /// By node.
    names: Vec<String>,
}

/// The most links that one message lists.
const LISTED_MAX: usize = 8;

impl Names {
    /// Of nodes in their order.
    pub(super) fn new(named: impl Iterator<Item = (String, Node)>) -> Self {
        let (names, nodes): (Vec<String>, Vec<Node>) = named.unzip();
        Self { nodes: names.iter().cloned().zip(nodes).collect(), names }
    }

    /// The node that is called so.
    ///
    /// # Errors
    /// That there is none, and which there are.
    pub(super) fn node(&self, name: &str) -> Result<Node, String> {
        let known = || self.nodes.keys().map(String::as_str).collect::<Vec<_>>();
        self.nodes.get(name).copied().ok_or_else(|| unknown("node", name, &known()))
    }

    /// What a node is called.
    pub(super) fn of(&self, node: Node) -> &str {
        self.names.get(node.index()).map_or("a node of another network", String::as_str)
    }

    /// What is wrong with a network.
    pub(super) fn error(&self, error: TopologyError) -> String {
        let of = |node| self.of(node);
        match error {
            TopologyError::NoRate(a, b) => format!("the link {} - {} has a rate of 0: leave it out", of(a), of(b)),
            TopologyError::Loop(node) => format!("the link leads from {} to itself", of(node)),
            TopologyError::Unknown(node) => format!("{} is not in this network", of(node)),
            TopologyError::HostLinks(node, links) => format!("{} has {links} links: a host has one", of(node)),
            TopologyError::HostToHost(a, b) => {
                format!("{} and {} are hosts, linked without a switch between them", of(a), of(b))
            }
            TopologyError::TooManyPorts(node) => format!("{} has more than {} links", of(node), u16::MAX),
            TopologyError::Unreachable(a, b) => format!("there is no way from {} to {}", of(a), of(b)),
            TopologyError::NoHosts => error.to_string(),
        }
    }

    /// The same of links that are up, with those that are down and cut off the one host or the other.
    pub(super) fn error_up(&self, topology: &Topology, error: TopologyError) -> String {
        let said = self.error(error);
        let TopologyError::Unreachable(a, b) = error else { return said };
        // Links that are down elsewhere are none of it: those around the host that has fewer are what is to be mended.
        let cut = [a, b].map(|host| border(topology, host)).into_iter().min_by_key(Vec::len).unwrap_or_default();
        let name = |link: &Link| topology.ends(*link).map(|end| self.of(end)).join(" - ");
        let mut listed = cut.iter().take(LISTED_MAX).map(name).collect::<Vec<_>>().join(", ");
        if cut.len() > LISTED_MAX {
            listed += &format!(" and {} more", cut.len() - LISTED_MAX);
        }
        format!("{said} while {listed} {} down", if cut.len() == 1 { "is" } else { "are" })
    }
}

/// The links that are down and would lead away from what a node can reach.
fn border(topology: &Topology, from: Node) -> Vec<Link> {
    let mut reached = vec![false; topology.nodes().len()];
    reached[from.index()] = true;
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        for link in topology.ports(node).iter().filter(|link| topology.is_up(**link)) {
            let far = topology.far_end(*link, node);
            if !std::mem::replace(&mut reached[far.index()], true) {
                open.push(far);
            }
        }
    }
    let leads_away = |link: &Link| {
        let [a, b] = topology.ends(*link).map(|end| reached[end.index()]);
        a != b
    };
    topology.links().filter(leads_away).collect()
}
