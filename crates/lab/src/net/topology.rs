//! What is to be emulated.

use std::net::IpAddr;

use weirgate_port::Settings;
use weirgate_units::Prefix;

use super::Namespace;

/// Edges, client networks, and the links between them. Nothing exists until [`super::Emulator::start`].
#[derive(Debug)]
pub struct Topology<'a> {
    pub(super) seed: u64,
    pub(super) mtu: u16,
    pub(super) edges: Vec<Edge<'a>>,
    pub(super) links: Vec<Link<'a>>,
}

#[derive(Debug)]
pub(super) struct Edge<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) addresses: Vec<IpAddr>,
}

#[derive(Debug)]
pub(super) struct Link<'a> {
    pub(super) edge: EdgeId,
    pub(super) client: &'a Namespace,
    pub(super) networks: Vec<Prefix>,
    pub(super) settings: LinkSettings,
}

/// An edge of a [`Topology`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeId(pub(super) usize);

/// A link of a [`Topology`]; links are numbered from 0 in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(super) usize);

impl LinkId {
    /// Its place in [`super::Counters::links`].
    pub const fn index(self) -> usize {
        self.0
    }
}

/// What a link does in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSettings {
    /// From the edge to the client.
    pub down: Settings,
    /// From the client to the edge.
    pub up: Settings,
}

impl<'a> Topology<'a> {
    /// An empty one. Equal seeds lose the same packets of equal traffic.
    pub const fn new(seed: u64) -> Self {
        Self { seed, mtu: 1_500, edges: Vec::new(), links: Vec::new() }
    }

    /// The largest packet on every device, in bytes: 1,500 where not said, 1,280 (IPv6's least) to 2,048.
    #[must_use]
    pub fn with_mtu(mut self, mtu: u16) -> Self {
        self.mtu = mtu.clamp(1_280, 2_048);
        self
    }

    /// Makes `namespace` an edge: one device `wan` with `addresses`, default routes for both families through it.
    pub fn edge(&mut self, namespace: &'a Namespace, addresses: &[IpAddr]) -> EdgeId {
        self.edges.push(Edge { namespace, addresses: addresses.to_vec() });
        EdgeId(self.edges.len() - 1)
    }

    /// Joins `client` to `edge`: a device `wan`, default routes through it, and every address of `networks` the client's own,
    /// to be bound and to answer; the first of each (network + 1) is the source where nothing is bound.
    ///
    /// A client of several links has a device for each, `wan`, `wan1` and so on in their order, of which the first has the default routes
    /// that count where no device is named.
    ///
    /// Networks of one edge must not overlap, else the longer prefix gets the packets; different edges are different worlds.
    pub fn link(&mut self, edge: EdgeId, client: &'a Namespace, networks: &[Prefix], settings: LinkSettings) -> LinkId {
        self.links.push(Link { edge, client, networks: networks.to_vec(), settings });
        LinkId(self.links.len() - 1)
    }
}
