//! A client with several uplinks, and a server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Result;
use weirgate_linux::link::{GATEWAY_V4, GATEWAY_V6, ip_batch, ip_batch_v6};
use weirgate_port::Settings;
use weirgate_units::Prefix;

use super::sets::Set;
use crate::net::{Emulator, LinkId, LinkSettings, Namespace, Topology, device};

/// What the kernel's TCP may have in its buffers, where nothing else is said: more than any set of uplinks has under way.
pub(super) const BUFFERS: u64 = 64 << 20;

/// Namespaces and links; they go with this value.
pub(super) struct Ground {
    pub(super) client: Namespace,
    pub(super) server: Namespace,
    is_v6: bool,
    rates: Vec<u64>,
    links: Vec<(LinkId, LinkSettings)>,
    emulator: Emulator,
}

impl Ground {
    pub(super) fn new(set: &Set, seed: u64) -> Result<Self> {
        let (client, server) = (Namespace::create("client")?, Namespace::create("server")?);
        let mut topology = Topology::new(seed);
        let hub = topology.edge(&server, &[host(set.is_v6)]);
        let mut links = Vec::new();
        for (at, link) in set.links.iter().enumerate() {
            let network = Prefix::of(address(set.is_v6, at), if set.is_v6 { 64 } else { 24 });
            links.push((topology.link(hub, &client, &[network], link.settings()), link.settings()));
        }
        let emulator = Emulator::start(topology)?;
        for namespace in [&client, &server] {
            namespace.set_sysctl("net.mptcp.enabled", "1")?;
        }
        // A packet of an uplink's address goes by that uplink, for MPTCP, which binds to addresses.
        let mut batch = String::new();
        for at in 0..set.links.len() {
            let (ip, device, table) = (address(set.is_v6, at), Self::device(at), 100 + at);
            let gateway = if set.is_v6 { GATEWAY_V6 } else { GATEWAY_V4 };
            batch.push_str(&format!("route add default via {gateway} dev {device} onlink table {table}\n"));
            batch.push_str(&format!("rule add from {ip} table {table}\n"));
            batch.push_str(&format!("mptcp endpoint add {ip} dev {device} subflow\n"));
        }
        batch.push_str("mptcp limits set subflow 8 add_addr_accepted 8\n");
        let run = if set.is_v6 { ip_batch_v6 } else { ip_batch };
        run(client.netns(), &batch)?;
        ip_batch(server.netns(), "mptcp limits set subflow 8 add_addr_accepted 8\n")?;
        let rates = set.links.iter().map(|link| link.mbit * 1_000_000).collect();
        let ground = Self { client, server, is_v6: set.is_v6, rates, links, emulator };
        ground.set_buffers(BUFFERS)?;
        Ok(ground)
    }

    /// How many bytes the kernel's TCP may have in its buffers.
    pub(super) fn set_buffers(&self, bytes: u64) -> Result<()> {
        for namespace in [&self.client, &self.server] {
            namespace.set_sysctl("net.ipv4.tcp_rmem", &format!("4096 131072 {bytes}"))?;
            namespace.set_sysctl("net.ipv4.tcp_wmem", &format!("4096 65536 {bytes}"))?;
        }
        Ok(())
    }

    /// An uplink's rate, in bit/s.
    pub(super) fn rate(&self, at: usize) -> u64 {
        self.rates[at]
    }

    /// Makes an uplink a black hole, or takes that back: nothing passes, and nobody is told.
    pub(super) fn set_outage(&self, at: usize, outage: bool) -> Result<()> {
        let (link, LinkSettings { down, up }) = self.links[at];
        let of = |settings: Settings| Settings { outage, ..settings };
        self.emulator.set(link, LinkSettings { down: of(down), up: of(up) })
    }

    /// Has each link do in the one direction what it did in the other, or takes that back: for programs that can only fetch.
    pub(super) fn set_reversed(&self, is_reversed: bool) -> Result<()> {
        for (link, LinkSettings { down, up }) in &self.links {
            let (down, up) = if is_reversed { (*up, *down) } else { (*down, *up) };
            self.emulator.set(*link, LinkSettings { down, up })?;
        }
        Ok(())
    }

    /// An uplink's device.
    pub(super) fn device(at: usize) -> String {
        device(at)
    }

    /// Its address.
    pub(super) fn address(&self, at: usize) -> IpAddr {
        address(self.is_v6, at)
    }

    /// The server's.
    pub(super) fn host(&self) -> IpAddr {
        host(self.is_v6)
    }

    /// The same, with a port.
    pub(super) fn at(&self, port: u16) -> SocketAddr {
        (self.host(), port).into()
    }
}

fn host(is_v6: bool) -> IpAddr {
    if is_v6 { Ipv6Addr::new(0xfd00, 0xff, 0, 0, 0, 0, 0, 1).into() } else { Ipv4Addr::new(10, 255, 0, 1).into() }
}

/// The client's, of an uplink.
fn address(is_v6: bool, at: usize) -> IpAddr {
    if is_v6 {
        Ipv6Addr::new(0xfd00, 1, at as u16, 0, 0, 0, 0, 1).into()
    } else {
        Ipv4Addr::new(10, 1, at as u8, 1).into()
    }
}
