//! Packets that are no TCP connections taken by the tunnel: UDP and all else, by a TUN device at each side.
//!
//! What the kernel routes into one side's device goes as datagrams of the multipath connection, and comes out of the other side's, from
//! where the kernel there routes it on. A flow's packets go by one path, so that they come in their order: a new flow has the path that
//! lacks most of its share by what the paths deliver (`balance::Weighted`), and stays until that one works no more. Or, where that was asked
//! for, each packet goes by the path that has it there first.
//!
//! Ground rules. Nothing is sent again, and nothing waits for long: who uses datagrams has a way of his own with losses. At the side that
//! serves several, an address within is of the one that sent from it first, as long as its connection lives: nobody takes another one's
//! answers.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use anyhow::{Context as _, Result};
use weirgate_balance::{Share, Weighted};
use weirgate_linux::link::ip_batch;
use weirgate_linux::netns::Netns;
use weirgate_linux::tun::Tun;
use weirgate_spray::wire::PathId;
use weirgate_spray::{Connection, DatagramError};
use weirgate_switch::frame::{FlowKey, Frame};
use weirgate_units::{Duration, Instant};

use super::is_here;
use super::place::Reach;

/// What a device is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name.
    pub name: String,
    /// Its addresses, and their networks.
    pub addresses: Vec<Address>,
    /// The largest packet: what all paths take, with 83 bytes of headers around it at most.
    pub mtu: u16,
}

/// An address of this host's, and how long its network's is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub IpAddr, pub u8);

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read =
            text.split_once('/').and_then(|(address, len)| Some((address.parse::<IpAddr>().ok()?, len.parse().ok()?)));
        match read {
            Some((address, len)) if len <= if address.is_ipv4() { 32 } else { 128 } => Ok(Self(address, len)),
            _ => Err(format!("`{text}` is no address of a device: write ADDRESS/LENGTH, as 10.9.0.2/24")),
        }
    }
}

/// Packets that are read in a turn, so that whatever else there is has its own.
const READ_MAX: usize = 256;

/// Packets that wait for one side's connection; more are dropped.
const INBOX_MAX: usize = 1_024;

/// Addresses of one side at most.
const ADDRESSES_MAX: usize = 1_024;

/// To ask the kernel how a host is reached: nothing is sent there (discard, RFC 863).
const ANY_PORT: u16 = 9;

/// Flows whose paths are remembered, and for how long without a packet.
const FLOWS_MAX: usize = 65_536;
const FLOW_IDLE: Duration = Duration::from_secs(120);
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// A TUN device, and who its packets are for.
#[derive(Debug)]
pub struct Device {
    tun: Tun,
    /// Whether several share it: then packets are for whom their address is of.
    is_shared: bool,
    inboxes: BTreeMap<u64, VecDeque<Vec<u8>>>,
    owners: HashMap<IpAddr, u64>,
    next: u64,
    buffer: Vec<u8>,
}

impl Device {
    /// Makes it, in this process's network namespace, and sets it up.
    ///
    /// # Errors
    /// Where it cannot be made, or `ip` refuses its addresses.
    pub fn create(settings: &Settings, is_shared: bool) -> Result<Rc<RefCell<Self>>> {
        let Settings { name, addresses, mtu } = settings;
        let ns = Netns::current().context("this network namespace")?;
        let tun = Tun::create(&ns, name)?;
        // No address of the link's own: nobody is asked for a router.
        let mut batch =
            format!("link set dev {name} addrgenmode none\nlink set dev {name} mtu {mtu} txqueuelen 1000 up\n");
        for address in addresses {
            let Address(own, len) = address;
            let nodad = if own.is_ipv6() { " nodad" } else { "" };
            batch.push_str(&format!("addr add {own}/{len} dev {name}{nodad}\n"));
        }
        ip_batch(&ns, &batch)?;
        let (inboxes, owners) = (BTreeMap::new(), HashMap::new());
        Ok(Rc::new(RefCell::new(Self { tun, is_shared, inboxes, owners, next: 0, buffer: vec![0; 65_536] })))
    }

    /// Takes what the kernel has for it; to be called whenever [it](AsFd) is readable, whoever is there.
    ///
    /// # Errors
    /// It was removed.
    pub fn read(&mut self) -> io::Result<()> {
        for _ in 0..READ_MAX {
            let Some(len) = self.tun.receive(&mut self.buffer)? else { break };
            let packet = &self.buffer[..len];
            let whose = if self.is_shared {
                let to = Frame::ip(packet).ok().and_then(|frame| frame.ip).map(|ip| ip.destination);
                to.and_then(|to| self.owners.get(&to)).copied()
            } else {
                self.inboxes.keys().next().copied()
            };
            let inbox = whose.and_then(|whose| self.inboxes.get_mut(&whose));
            if let Some(inbox) = inbox.filter(|inbox| inbox.len() < INBOX_MAX) {
                inbox.push_back(packet.to_vec());
            }
        }
        Ok(())
    }

    fn join(&mut self) -> u64 {
        self.next += 1;
        self.inboxes.insert(self.next, VecDeque::new());
        self.next
    }

    fn leave(&mut self, member: u64) {
        self.inboxes.remove(&member);
        self.owners.retain(|_, owner| *owner != member);
    }

    /// Whether packets from this address are of `member`'s.
    fn owns(&mut self, member: u64, address: IpAddr) -> bool {
        if let Some(owner) = self.owners.get(&address) {
            return *owner == member;
        }
        let has = self.owners.values().filter(|owner| **owner == member).count();
        let is_one = !(address.is_unspecified() || address.is_loopback() || address.is_multicast());
        is_one && has < ADDRESSES_MAX && self.owners.insert(address, member).is_none()
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }
}

/// What became of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// Those that went into the connection.
    pub sent: u64,
    /// Those that came out of it, and into the device.
    pub received: u64,
    /// Those that no path takes, for their length.
    pub too_long: u64,
    /// Those that came and may not: from or to such an address, or the device refused them.
    pub refused: u64,
}

/// One side's packets, of one connection.
#[derive(Debug)]
pub struct Packets {
    device: Rc<RefCell<Device>>,
    member: u64,
    is_sprayed: bool,
    /// Of the side that serves: where they may go.
    reach: Option<Reach>,
    flows: HashMap<FlowKey, Known>,
    /// Whether an address may be reached, of those that were asked for lately.
    reached: HashMap<IpAddr, bool>,
    swept: Instant,
    counts: PacketCounts,
}

/// The path of a flow.
#[derive(Clone, Copy, Debug)]
struct Known {
    path: PathId,
    last: Instant,
}

impl Packets {
    /// Those of a device; `reach`: where those that come may go, of the side that serves.
    pub fn new(device: Rc<RefCell<Device>>, is_sprayed: bool, reach: Option<Reach>) -> Self {
        let member = device.borrow_mut().join();
        let (flows, reached) = (HashMap::new(), HashMap::new());
        Self {
            device,
            member,
            is_sprayed,
            reach,
            flows,
            reached,
            swept: Instant::ZERO,
            counts: PacketCounts::default(),
        }
    }

    /// What became of them.
    pub const fn counts(&self) -> PacketCounts {
        self.counts
    }

    /// Sends what the kernel has for the other side.
    pub(super) fn send(&mut self, now: Instant, connection: &mut Connection) {
        self.sweep(now);
        let waiting = self.device.borrow_mut().inboxes.get_mut(&self.member).map(std::mem::take).unwrap_or_default();
        for packet in waiting {
            let flow = Frame::ip(&packet).ok().and_then(|frame| frame.flow());
            let path =
                flow.filter(|_| !self.is_sprayed).and_then(|flow| self.path(now, connection, flow, packet.len()));
            match connection.send_datagram(now, path, &packet) {
                Ok(()) => self.counts.sent += 1,
                Err(DatagramError::TooLong { max }) => {
                    if self.counts.too_long == 0 && max > 0 {
                        tracing::warn!(
                            "packets of {} bytes are dropped: no path takes more than {max}; lower --mtu",
                            packet.len()
                        );
                    }
                    self.counts.too_long += 1;
                }
            }
        }
    }

    /// A packet came from the other side.
    pub(super) fn receive(&mut self, packet: &[u8]) {
        let ip = Frame::ip(packet).ok().and_then(|frame| frame.ip);
        let may = match (ip, &self.reach) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(ip), Some(_)) => {
                self.reaches(ip.destination) && self.device.borrow_mut().owns(self.member, ip.source)
            }
        };
        if may && self.device.borrow().tun.send(packet).is_ok() {
            self.counts.received += 1;
        } else {
            self.counts.refused += 1;
        }
    }

    fn reaches(&mut self, to: IpAddr) -> bool {
        let Some(reach) = &self.reach else { return true };
        let known = self.reached.get(&to).copied();
        known.unwrap_or_else(|| {
            let may = reach.holds(to) && !(reach.0.is_empty() && is_here((to, ANY_PORT).into()));
            if self.reached.len() < FLOWS_MAX {
                self.reached.insert(to, may);
            }
            may
        })
    }

    /// The path of a flow's packet; `None`: any.
    fn path(&mut self, now: Instant, connection: &Connection, flow: FlowKey, len: usize) -> Option<PathId> {
        let takes = |path: PathId| connection.datagram_max(Some(path)) >= len;
        if let Some(known) = self.flows.get_mut(&flow)
            && takes(known.path)
        {
            known.last = now;
            return Some(known.path);
        }
        let paths: Vec<_> = connection.paths().collect();
        let shares: Vec<Share> = paths
            .iter()
            .map(|report| Share {
                weight: report.rate.as_bits_per_sec(),
                is_usable: takes(report.path),
                flows: self.flows.values().filter(|known| known.path == report.path).count() as u32,
            })
            .collect();
        let path = paths[Weighted::new(&shares).next()?].path;
        if self.flows.len() < FLOWS_MAX || self.flows.contains_key(&flow) {
            self.flows.insert(flow, Known { path, last: now });
        }
        Some(path)
    }

    fn sweep(&mut self, now: Instant) {
        if now.saturating_since(self.swept) >= SWEEP_EVERY {
            self.swept = now;
            self.flows.retain(|_, known| now.saturating_since(known.last) < FLOW_IDLE);
            // The host's own addresses may be others by now.
            self.reached.clear();
        }
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        self.device.borrow_mut().leave(self.member);
    }
}
