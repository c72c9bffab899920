//! Packets that are no TCP connections taken by the tunnel: UDP and all else, by a TUN device at each side.
//!
//! What the kernel routes into one side's device goes as datagrams of the multipath connection, and comes out of the other side's, from
//! where the kernel there routes it on. A flow's packets go by one path, so that they come in their order: a new flow has the path that
//! lacks most of its share by what the paths deliver (`balance::Weighted`), and stays until that one works no more, or has more than it
//! takes while others have not. Or, where that was asked for, each packet goes by the path that has it there first.
//!
//! Ground rules. Nothing is sent again, and nothing waits for long: who uses datagrams has a way of his own with losses. Each side takes
//! only what is between the networks that it was told: at the side that serves, packets *from* [`Settings::within`] to where it may reach;
//! at the other one, packets *to* [`Settings::within`]. At the side that serves several, an address is of the key that had it first, as
//! long as something comes from it; a later connection of the same key takes it over. The other side says which addresses it has, so that
//! it is reached before it has sent anything.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use anyhow::{Context as _, Result, ensure};
use weirgate_balance::{Share, Weighted};
use weirgate_linux::clock;
use weirgate_linux::link::ip_batch;
use weirgate_linux::netns::Netns;
use weirgate_linux::tun::Tun;
use weirgate_spray::datagrams::WAIT_MAX;
use weirgate_spray::wire::PathId;
use weirgate_spray::{Connection, DatagramError, PathReport, Public};
use weirgate_switch::frame::{FlowKey, Frame};
use weirgate_units::{Duration, Instant, Prefix};

use super::is_elsewhere;
use super::place::Reach;

/// What a device is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name.
    pub name: String,
    /// Its addresses, and how long their networks' are.
    pub addresses: Vec<Address>,
    /// The networks of the side that opens the tunnel, as far as they are reached through it.
    pub within: Vec<Prefix>,
    /// The largest packet.
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

/// An address from which nothing came for so long may be another one's.
const ADDRESS_IDLE: Duration = Duration::from_secs(600);

/// Addresses are said so often.
const SAID_EVERY: Duration = Duration::from_secs(5);

/// A datagram that says an address begins with this; packets begin with 4 or 6 in their first half.
const SAYS_ADDRESS: u8 = 0;

/// Flows whose paths are remembered, and for how long without a packet.
const FLOWS_MAX: usize = 65_536;
const FLOW_IDLE: Duration = Duration::from_secs(120);
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// Between two flows that are taken from a path that has more than it takes: what that helps shows first.
const MOVE_EVERY: Duration = Duration::from_millis(250);

/// Before a path's largest datagram is known, that a packet is too long says nothing.
const MTU_WITHIN: Duration = Duration::from_secs(10);

/// A TUN device, and who its packets are for.
#[derive(Debug)]
pub struct Device {
    tun: Tun,
    settings: Settings,
    /// Whether several share it: then packets are for whom their address is of.
    is_shared: bool,
    members: BTreeMap<u64, Member>,
    owners: HashMap<IpAddr, Owner>,
    next: u64,
    buffer: Vec<u8>,
}

/// One side's connection.
#[derive(Debug, Default)]
struct Member {
    peer: Option<Public>,
    inbox: VecDeque<(Instant, Vec<u8>)>,
    addresses: usize,
}

/// Who has an address.
#[derive(Clone, Copy, Debug)]
struct Owner {
    member: u64,
    peer: Public,
    last: Instant,
}

impl Device {
    /// Makes it, in this process's network namespace, and sets it up.
    ///
    /// # Errors
    /// Where it cannot be made, or `ip` refuses its addresses, or it is not said which networks are within.
    pub fn create(mut settings: Settings, is_shared: bool) -> Result<Rc<RefCell<Self>>> {
        if settings.within.is_empty() {
            settings.within = settings.addresses.iter().map(|Address(own, len)| Prefix::of(*own, *len)).collect();
        }
        ensure!(
            !settings.within.is_empty(),
            "give the device an address (--tun-address), or say which networks it is for (--within)"
        );
        let Settings { name, addresses, mtu, .. } = &settings;
        let ns = Netns::current().context("this network namespace")?;
        let tun = Tun::create(&ns, name)?;
        // No address of the link's own: nobody is asked for a router.
        let mut batch =
            format!("link set dev {name} addrgenmode none\nlink set dev {name} mtu {mtu} txqueuelen 1000 up\n");
        for Address(own, len) in addresses {
            let nodad = if own.is_ipv6() { " nodad" } else { "" };
            batch.push_str(&format!("addr add {own}/{len} dev {name}{nodad}\n"));
        }
        ip_batch(&ns, &batch)?;
        let (members, owners, buffer) = (BTreeMap::new(), HashMap::new(), vec![0; 65_536]);
        Ok(Rc::new(RefCell::new(Self { tun, settings, is_shared, members, owners, next: 0, buffer })))
    }

    /// Takes what the kernel has for it; to be called whenever [it](AsFd) is readable, whoever is there.
    ///
    /// # Errors
    /// It was removed.
    pub fn read(&mut self) -> io::Result<()> {
        let now = clock::monotonic();
        for _ in 0..READ_MAX {
            let Some(len) = self.tun.receive(&mut self.buffer)? else { break };
            let packet = &self.buffer[..len];
            let member = if self.is_shared {
                let to = Frame::ip(packet).ok().and_then(|frame| frame.ip).map(|ip| ip.destination);
                let owner = to.and_then(|to| self.owners.get(&to));
                owner.and_then(|owner| self.members.get_mut(&owner.member))
            } else {
                self.members.values_mut().next()
            };
            if let Some(Member { inbox, .. }) = member {
                if inbox.len() >= INBOX_MAX {
                    inbox.pop_front();
                }
                inbox.push_back((now, packet.to_vec()));
            }
        }
        Ok(())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.tun.name()
    }

    fn join(&mut self) -> u64 {
        self.next += 1;
        self.members.insert(self.next, Member::default());
        self.next
    }

    fn leave(&mut self, member: u64) {
        self.members.remove(&member);
        self.owners.retain(|_, owner| owner.member != member);
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.settings.addresses.iter().any(|Address(own, _)| *own == address)
    }

    fn is_within(&self, address: IpAddr) -> bool {
        self.settings.within.iter().any(|network| network.contains(address))
    }

    /// Whether packets from this address are of `member`'s.
    fn owns(&mut self, now: Instant, member: u64, address: IpAddr) -> bool {
        let Some(Member { peer: Some(peer), addresses, .. }) = self.members.get(&member) else { return false };
        let (peer, has) = (*peer, *addresses);
        let before = self.owners.get(&address).copied();
        if let Some(owner) = before {
            let is_free = now.saturating_since(owner.last) >= ADDRESS_IDLE;
            let is_later = owner.peer == peer && owner.member < member;
            if owner.member != member && !is_free && !is_later {
                return false;
            }
        } else if !self.is_within(address) || self.is_own(address) {
            return false;
        }
        if before.is_none_or(|owner| owner.member != member) {
            if has >= ADDRESSES_MAX {
                return false;
            }
            if let Some(other) = before.and_then(|owner| self.members.get_mut(&owner.member)) {
                other.addresses -= 1;
            }
            if let Some(one) = self.members.get_mut(&member) {
                one.addresses += 1;
            }
        }
        self.owners.insert(address, Owner { member, peer, last: now });
        true
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
    /// Those that were not sent: no path takes their length, or they waited for too long.
    pub dropped: u64,
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
    /// Flows of each path.
    loads: BTreeMap<PathId, u32>,
    /// When a flow was taken from a path last that had too many.
    moved: BTreeMap<PathId, Instant>,
    /// Whether an address may be reached, of those that were asked for lately.
    reached: HashMap<IpAddr, bool>,
    swept: Instant,
    said: Option<Instant>,
    began: Option<Instant>,
    has_warned: bool,
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
        Self {
            device,
            member,
            is_sprayed,
            reach,
            flows: HashMap::new(),
            loads: BTreeMap::new(),
            moved: BTreeMap::new(),
            reached: HashMap::new(),
            swept: Instant::ZERO,
            said: None,
            began: None,
            has_warned: false,
            counts: PacketCounts::default(),
        }
    }

    /// What became of them.
    pub const fn counts(&self) -> PacketCounts {
        self.counts
    }

    /// The other side is there, and who it is.
    pub(super) fn handle_connected(&mut self, now: Instant, peer: Public) {
        self.began.get_or_insert(now);
        if let Some(member) = self.device.borrow_mut().members.get_mut(&self.member) {
            member.peer = Some(peer);
        }
    }

    /// Sends what the kernel has for the other side.
    pub(super) fn send(&mut self, now: Instant, connection: &mut Connection) {
        self.sweep(now);
        self.say_addresses(now, connection);
        let waiting = {
            let mut device = self.device.borrow_mut();
            device.members.get_mut(&self.member).map(|member| std::mem::take(&mut member.inbox)).unwrap_or_default()
        };
        for (came, packet) in waiting {
            if now.saturating_since(came) > WAIT_MAX {
                self.counts.dropped += 1;
                continue;
            }
            let flow = Frame::ip(&packet).ok().and_then(|frame| frame.flow());
            let path =
                flow.filter(|_| !self.is_sprayed).and_then(|flow| self.path(now, connection, flow, packet.len()));
            match connection.send_datagram(now, path, &packet) {
                Ok(()) => self.counts.sent += 1,
                Err(DatagramError::TooLong { max }) => {
                    self.counts.dropped += 1;
                    let is_known = self.began.is_some_and(|began| now.saturating_since(began) >= MTU_WITHIN);
                    if is_known && !std::mem::replace(&mut self.has_warned, true) {
                        tracing::warn!(
                            "packets of {} bytes are dropped: no path takes more than {max}; lower --mtu",
                            packet.len()
                        );
                    }
                }
            }
        }
    }

    /// Says which addresses are here, to the side that serves.
    fn say_addresses(&mut self, now: Instant, connection: &mut Connection) {
        if self.reach.is_some() || self.said.is_some_and(|said| now.saturating_since(said) < SAID_EVERY) {
            return;
        }
        self.said = Some(now);
        for Address(own, _) in &self.device.borrow().settings.addresses {
            let bytes = match own {
                IpAddr::V4(own) => [&[SAYS_ADDRESS][..], &own.octets()].concat(),
                IpAddr::V6(own) => [&[SAYS_ADDRESS][..], &own.octets()].concat(),
            };
            let _it_is_said_again = connection.send_datagram(now, None, &bytes);
        }
    }

    /// When they have something to say, if nothing else happens.
    pub(super) fn poll_at(&self) -> Option<Instant> {
        self.said.filter(|_| self.reach.is_none()).map(|said| said + SAID_EVERY)
    }

    /// A packet came from the other side.
    pub(super) fn receive(&mut self, now: Instant, packet: &[u8]) {
        if let [SAYS_ADDRESS, address @ ..] = packet {
            let v4 = address.try_into().ok().map(|octets: [u8; 4]| IpAddr::from(octets));
            let v6 = address.try_into().ok().map(|octets: [u8; 16]| IpAddr::from(octets));
            if let Some(address) = v4.or(v6).filter(|_| self.reach.is_some()) {
                let _has_it = self.device.borrow_mut().owns(now, self.member, address);
            }
            return;
        }
        let ip = Frame::ip(packet).ok().and_then(|frame| frame.ip);
        let may = match (ip, &self.reach) {
            (None, _) => false,
            (Some(ip), None) => {
                let device = self.device.borrow();
                device.is_own(ip.destination) || device.is_within(ip.destination)
            }
            (Some(ip), Some(_)) => {
                self.reaches(ip.destination) && self.device.borrow_mut().owns(now, self.member, ip.source)
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
            // Nobody goes on from here to another one's network, unless that was said.
            let is_anybodys = reach.0.is_empty() && self.device.borrow().is_within(to);
            let may = reach.holds(to) && !is_anybodys && (!reach.0.is_empty() || is_elsewhere(to));
            if self.reached.len() < FLOWS_MAX {
                self.reached.insert(to, may);
            }
            may
        })
    }

    /// The path of a flow's packet; `None`: any.
    fn path(&mut self, now: Instant, connection: &Connection, flow: FlowKey, len: usize) -> Option<PathId> {
        // One that is silent for some milliseconds keeps its flows; what they send meanwhile goes by others.
        let takes = |path: PathId| !connection.is_down(path) && connection.datagram_max(Some(path)) >= len;
        let before = self.flows.get(&flow).copied().filter(|known| takes(known.path));
        if let Some(known) = self.flows.get_mut(&flow) {
            known.last = now;
        }
        let Some(Known { path, .. }) = before else {
            if self.flows.len() >= FLOWS_MAX && !self.flows.contains_key(&flow) {
                return None;
            }
            let path = self.next_path(connection, takes)?;
            self.place(now, flow, path);
            return Some(path);
        };
        let wait = |path: PathId| connection.datagram_wait(now, path).as_nanos();
        let has_rested = self.moved.get(&path).is_none_or(|moved| now.saturating_since(*moved) >= MOVE_EVERY);
        if !has_rested || wait(path) < WAIT_MAX.as_nanos() / 2 {
            return Some(path);
        }
        // It has more than it takes: one flow after the other goes to paths that have not, as far as there are any.
        self.moved.insert(path, now);
        match self.next_path(connection, |other| takes(other) && wait(other) < WAIT_MAX.as_nanos() / 4) {
            Some(other) => {
                self.place(now, flow, other);
                Some(other)
            }
            None => Some(path),
        }
    }

    /// The path, of those that are usable, that lacks most of its share of flows.
    fn next_path(&self, connection: &Connection, is_usable: impl Fn(PathId) -> bool) -> Option<PathId> {
        let paths: Vec<_> = connection.paths().collect();
        // A path on which little was sent is like the others.
        let known = || paths.iter().filter(|report| report.is_rate_known).map(|report| report.rate.as_bits_per_sec());
        let mean = known().sum::<u64>().checked_div(known().count() as u64).unwrap_or(1);
        let share = |report: &PathReport| Share {
            weight: if report.is_rate_known { report.rate.as_bits_per_sec() } else { mean },
            is_usable: is_usable(report.path),
            flows: self.loads.get(&report.path).copied().unwrap_or(0),
        };
        let shares: Vec<Share> = paths.iter().map(share).collect();
        Some(paths[Weighted::new(&shares).next()?].path)
    }

    fn place(&mut self, now: Instant, flow: FlowKey, path: PathId) {
        if let Some(before) = self.flows.insert(flow, Known { path, last: now }) {
            self.unload(before.path);
        }
        *self.loads.entry(path).or_default() += 1;
    }

    fn unload(&mut self, path: PathId) {
        if let Some(load) = self.loads.get_mut(&path) {
            *load = load.saturating_sub(1);
        }
    }

    fn sweep(&mut self, now: Instant) {
        if now.saturating_since(self.swept) < SWEEP_EVERY {
            return;
        }
        self.swept = now;
        self.flows.retain(|_, known| now.saturating_since(known.last) < FLOW_IDLE);
        self.loads.clear();
        for known in self.flows.values() {
            *self.loads.entry(known.path).or_default() += 1;
        }
        // The host's own addresses may be others by now.
        self.reached.clear();
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        self.device.borrow_mut().leave(self.member);
    }
}
