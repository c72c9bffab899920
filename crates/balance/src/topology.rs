//! Who is linked to whom, and how fast: hosts, switches and the links between them.

mod build;

use alloc::vec::Vec;
use core::fmt;

use weirgate_units::{BitRate, Duration};

use crate::Port;

pub use build::{FatTree, LeafSpine, Pods, Vl2};

/// A host or a switch, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(u32);

/// A full-duplex link, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link(u32);

impl Node {
    pub(crate) const fn from_index(index: usize) -> Self {
        Self(index as u32)
    }

    /// Nodes are numbered from 0 in the order in which they were added.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Link {
    /// Links are numbered from 0 in the order in which they were added.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Sends and receives, and forwards nothing. It has one link.
    Host,
    /// Forwards. Its stage is for reports: 0 has hosts, 1 is above it.
    Switch {
        /// How far from the hosts.
        stage: u8,
    },
}

/// What a link is. Both its directions are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSettings {
    /// Its rate in either direction.
    pub rate: BitRate,
    /// From the last bit's leaving to its arrival.
    pub delay: Duration,
}

#[derive(Clone, Debug)]
struct LinkState {
    ends: [Node; 2],
    settings: LinkSettings,
    is_up: bool,
}

/// A network.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    kinds: Vec<Kind>,
    links: Vec<LinkState>,
    /// The links of each node; a link's place is its port.
    ports: Vec<Vec<Link>>,
}

/// What cannot be a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyError {
    /// A link of no rate carries nothing: leave it out, or take it down.
    NoRate(Node, Node),
    /// A link leads from a node to itself.
    Loop(Node),
    /// A node that was not added to this network.
    Unknown(Node),
    /// A host has another number of links than one.
    HostLinks(Node, usize),
    /// Two hosts are linked without a switch between them.
    HostToHost(Node, Node),
    /// A node has more links than ports can be numbered.
    TooManyPorts(Node),
    /// From one host there is no way to the other.
    Unreachable(Node, Node),
    /// There is no host.
    NoHosts,
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRate(a, b) => write!(f, "the link between nodes {} and {} has a rate of 0: leave it out", a.0, b.0),
            Self::Loop(node) => write!(f, "a link leads from node {} to itself", node.0),
            Self::Unknown(node) => write!(f, "node {} is not in this network", node.0),
            Self::HostLinks(node, links) => write!(f, "host {} has {links} links: a host has one", node.0),
            Self::HostToHost(a, b) => write!(f, "hosts {} and {} are linked without a switch between them", a.0, b.0),
            Self::TooManyPorts(node) => write!(f, "node {} has more than {} links", node.0, u16::MAX),
            Self::Unreachable(a, b) => write!(f, "there is no way from host {} to host {}", a.0, b.0),
            Self::NoHosts => f.write_str("there is no host"),
        }
    }
}

impl core::error::Error for TopologyError {}

impl Topology {
    /// A network of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node.
    pub fn add(&mut self, kind: Kind) -> Node {
        let node = Node(self.kinds.len() as u32);
        self.kinds.push(kind);
        self.ports.push(Vec::new());
        node
    }

    /// Links two nodes. There may be several links between the same two.
    ///
    /// # Errors
    /// Where it cannot carry anything or a node is not of this network.
    pub fn link(&mut self, a: Node, b: Node, settings: LinkSettings) -> Result<Link, TopologyError> {
        for node in [a, b] {
            let ports = self.ports.get(node.index()).ok_or(TopologyError::Unknown(node))?;
            if ports.len() >= usize::from(u16::MAX) {
                return Err(TopologyError::TooManyPorts(node));
            }
        }
        if a == b {
            return Err(TopologyError::Loop(a));
        }
        if settings.rate == BitRate::ZERO {
            return Err(TopologyError::NoRate(a, b));
        }
        if self.is_host(a) && self.is_host(b) {
            return Err(TopologyError::HostToHost(a, b));
        }
        let link = Link(self.links.len() as u32);
        self.links.push(LinkState { ends: [a, b], settings, is_up: true });
        self.ports[a.index()].push(link);
        self.ports[b.index()].push(link);
        Ok(link)
    }

    /// Whether it is a network that hosts can use: every host has one link, and every host can reach every other, whether links are up or
    /// not.
    ///
    /// # Errors
    /// What is wrong, with the first node it is wrong of.
    pub fn check(&self) -> Result<(), TopologyError> {
        let first = self.nodes().find(|node| self.is_host(*node)).ok_or(TopologyError::NoHosts)?;
        for host in self.nodes().filter(|node| self.is_host(*node)) {
            let links = self.ports[host.index()].len();
            if links != 1 {
                return Err(TopologyError::HostLinks(host, links));
            }
        }
        self.reach(first, |_| true)
    }

    /// Whether every host can reach every other over links that are up.
    ///
    /// # Errors
    /// [`TopologyError::NoHosts`] and [`TopologyError::Unreachable`].
    pub fn check_up(&self) -> Result<(), TopologyError> {
        let first = self.nodes().find(|node| self.is_host(*node)).ok_or(TopologyError::NoHosts)?;
        self.reach(first, |link| self.is_up(link))
    }

    /// Whether `first` can reach every host over such links.
    fn reach(&self, first: Node, may_use: impl Fn(Link) -> bool) -> Result<(), TopologyError> {
        let mut seen = alloc::vec![false; self.kinds.len()];
        let mut open = alloc::vec![first];
        seen[first.index()] = true;
        while let Some(node) = open.pop() {
            for link in self.ports[node.index()].iter().filter(|link| may_use(**link)) {
                let far = self.far_end(*link, node);
                if !core::mem::replace(&mut seen[far.index()], true) {
                    open.push(far);
                }
            }
        }
        match self.nodes().find(|node| self.is_host(*node) && !seen[node.index()]) {
            Some(host) => Err(TopologyError::Unreachable(first, host)),
            None => Ok(()),
        }
    }

    /// All nodes.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = Node> + ExactSizeIterator + Clone + use<> {
        (0..self.kinds.len() as u32).map(Node)
    }

    /// All links, those that are down included.
    pub fn links(&self) -> impl DoubleEndedIterator<Item = Link> + ExactSizeIterator + Clone + use<> {
        (0..self.links.len() as u32).map(Link)
    }

    /// What a node is.
    pub fn kind(&self, node: Node) -> Kind {
        self.kinds[node.index()]
    }

    /// Whether it is a host.
    pub fn is_host(&self, node: Node) -> bool {
        self.kind(node) == Kind::Host
    }

    /// The links of a node, those that are down included: the first is at its port 0.
    pub fn ports(&self, node: Node) -> &[Link] {
        &self.ports[node.index()]
    }

    /// The link at a port.
    pub fn link_at(&self, node: Node, port: Port) -> Link {
        self.ports[node.index()][usize::from(port.0)]
    }

    /// The two ends of a link.
    pub fn ends(&self, link: Link) -> [Node; 2] {
        self.links[link.index()].ends
    }

    /// The end that is not `node`.
    pub fn far_end(&self, link: Link, node: Node) -> Node {
        let [a, b] = self.ends(link);
        if a == node { b } else { a }
    }

    /// What a link is.
    pub fn settings(&self, link: Link) -> LinkSettings {
        self.links[link.index()].settings
    }

    /// Whether a link carries anything.
    pub fn is_up(&self, link: Link) -> bool {
        self.links[link.index()].is_up
    }

    /// Takes a link down, or up again.
    pub fn set_up(&mut self, link: Link, is_up: bool) {
        self.links[link.index()].is_up = is_up;
    }

    /// The switch that a host is at.
    pub fn leaf_of(&self, host: Node) -> Node {
        self.far_end(self.ports[host.index()][0], host)
    }

    /// The switches that have hosts, by number.
    pub fn leaves(&self) -> Vec<Node> {
        let has_host = |node: &Node| {
            !self.is_host(*node) && self.ports(*node).iter().any(|link| self.is_host(self.far_end(*link, *node)))
        };
        self.nodes().filter(has_host).collect()
    }
}
