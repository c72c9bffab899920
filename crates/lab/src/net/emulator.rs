//! The thread that carries the packets.
//!
//! It waits for devices and deadlines at once (no busy polling), reads each ready device until it is empty, lets the switch
//! forward, and writes what has come through. Buffers are used again: a packet allocates nothing. A packet costs two system
//! calls, of which the write does most of the receiver's work in the kernel (and, for an acknowledgment, the sending it lets
//! go), so most of this thread's time is TCP's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::event::EventfdFlags;
use rustix::fd::OwnedFd;
use weirgate_linux::clock;
use weirgate_linux::link::{LinkSetup, dropped_out};
use weirgate_linux::netns::Netns;
use weirgate_linux::tun::Tun;
use weirgate_linux::wait::{Promptness, Waiter, run_promptly};
use weirgate_port::{Impair, Packet, Wire};
use weirgate_switch::{PortId, Switch, Table, TableId};
use weirgate_units::{Duration, Instant, Prefix};

use super::topology::{LinkId, LinkSettings, Topology};

/// The device of every emulated host; a client of several links has `wan1`, `wan2` and so on as well.
const DEVICE: &str = "wan";

/// Entries of each device's ring. It gives its sender no back-pressure and drops what does not fit, so it must hold what
/// arrives while this thread is elsewhere: 16,384 packets are 0.2 s of a Gbit/s, and cost 128 KB.
const RING_PACKETS: u32 = 16_384;

/// Packets read from one device before the others have their turn and what is due is sent: a third of a millisecond of work.
const BATCH: usize = 64;

/// The thread's mailbox among the tokens of the devices.
const MAILBOX: u64 = u64::MAX;

/// A packet noticed later than this is counted as late: what the lab promises of a delay.
const LATE: Duration = Duration::from_micros(500);

/// Running links. Stops when dropped; the devices go with it.
#[derive(Debug)]
pub struct Emulator {
    orders: Sender<Order>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<Result<()>>>,
    links: usize,
    /// Each device's namespace and name, for the drops that only the kernel knows.
    hosts: Vec<(Netns, String)>,
    promptness: Promptness,
}

/// What the emulator did so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Each link, by [`LinkId::index`].
    pub links: Vec<LinkCounters>,
    /// What the switch could not forward: hosts' multicast, mostly.
    pub switch: weirgate_switch::Counters,
    /// Packets that the devices' rings dropped before the emulator saw them: above 0, the emulation is not what its settings say.
    pub dropped_ring: u64,
    /// Packets that a host's kernel did not take.
    pub dropped_write: u64,
    /// How late packets were noticed.
    pub lateness: Lateness,
    /// Processor time of the emulator's thread, with the kernel's work inside its calls.
    pub cpu: Duration,
    /// How often it woke up.
    pub wakeups: u64,
}

/// One link's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// From the edge to the client.
    pub down: weirgate_port::Counters,
    /// From the client to the edge.
    pub up: weirgate_port::Counters,
}

/// How late packets were handed to the kernel after the instant at which they came through their link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Packets handed over.
    pub packets: u64,
    /// Those of them that were over 0.5 ms late.
    pub late: u64,
    /// The latest.
    pub max: Duration,
    /// The mean.
    pub mean: Duration,
}

enum Order {
    Set(LinkId, LinkSettings, Sender<()>),
    Count(Sender<Counters>),
    Stop,
}

impl Emulator {
    /// Makes the devices and addresses, and starts the thread. The namespaces may go before the emulator; their links then
    /// lead nowhere.
    ///
    /// # Errors
    /// Without root's rights, TUN or iproute2; where a namespace has a `wan` already.
    pub fn start(topology: Topology<'_>) -> Result<Self> {
        let now = clock::monotonic();
        let mut carrier = Carrier::new(now)?;
        let mut hosts = Vec::new();
        // The edges' devices come first, in order, then the links' clients.
        let mut edge_tables: Vec<_> = topology.edges.iter().map(|_| Table::new()).collect();
        for edge in &topology.edges {
            carrier.devices.push(set_up(edge.namespace.netns(), 0, &edge.addresses, &[], topology.mtu)?);
            hosts.push((Netns::by_name(edge.namespace.name())?, device(0)));
        }
        for (at, link) in topology.links.iter().enumerate() {
            let edge = topology.edges.get(link.edge.0).context("the edge is of another topology")?;
            let sources: Vec<_> = link.networks.iter().map(|network| first_host(*network)).collect();
            let client = link.client.netns();
            let before = topology.links[..at].iter().filter(|other| other.client.name() == link.client.name()).count();
            // IPv6 binds to an address of a local network only so; IPv4 does anyway.
            link.client.set_sysctl("net.ipv6.ip_nonlocal_bind", "1")?;
            carrier.devices.push(set_up(client, before, &sources, &link.networks, topology.mtu)?);
            hosts.push((Netns::by_name(link.client.name())?, device(before)));
            let seed = topology.seed.wrapping_add(2 * at as u64);
            let mut add = |settings, seed, device| {
                let port = carrier.switch.add_port(Impair::new(now, settings, seed, Wire::new()));
                carrier.port_devices.push(device);
                port
            };
            let down = add(link.settings.down, seed, topology.edges.len() + at);
            let up = add(link.settings.up, seed.wrapping_add(1), link.edge.0);
            for network in &link.networks {
                let before = edge_tables[link.edge.0].insert(*network, down);
                ensure!(before.is_none(), "two links of one edge lead to {network}");
            }
            // Only to the edge: what a host multicasts of its own accord stays off the link.
            let mut table = Table::new();
            for address in &edge.addresses {
                table.insert(Prefix::of(*address, 128), up);
            }
            carrier.links.push((down, up));
            carrier.client_tables.push(table);
        }
        carrier.make_tables(edge_tables);
        let (orders, mailbox) = mpsc::channel();
        let bell = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        carrier.waiter.add(&bell, MAILBOX)?;
        for (at, device) in carrier.devices.iter().enumerate() {
            carrier.waiter.add(device, at as u64)?;
        }
        let (links, thread_bell) = (carrier.links.len(), Arc::clone(&bell));
        let (ready, started) = mpsc::channel();
        let thread = std::thread::Builder::new().name("weirgate-links".to_owned()).spawn(move || {
            // Nobody waits for the answer where the starter is gone, and then the mailbox is closed as well.
            let _ = ready.send(run_promptly());
            carrier.run(&mailbox, &thread_bell)
        })?;
        let promptness = started.recv().context("the emulator's thread ended at once")?;
        Ok(Self { orders, bell, thread: Some(thread), links, hosts, promptness })
    }

    /// Changes a link's settings now, packets in its queue included (see [`Impair::set`]). In force when this returns.
    ///
    /// # Errors
    /// Where the emulator's thread has ended, or the link is of another topology.
    pub fn set(&self, link: LinkId, settings: LinkSettings) -> Result<()> {
        ensure!(link.0 < self.links, "link {} is of another topology", link.0);
        let (done, wait) = mpsc::channel();
        self.order(Order::Set(link, settings, done))?;
        wait.recv().map_err(|_| ended())
    }

    /// What it did so far.
    ///
    /// # Errors
    /// Where the emulator's thread has ended.
    pub fn counters(&self) -> Result<Counters> {
        let (answer, wait) = mpsc::channel();
        self.order(Order::Count(answer))?;
        let mut counters = wait.recv().map_err(|_| ended())?;
        counters.dropped_ring = self
            .hosts
            .iter()
            .map(|(ns, device)| dropped_out(ns, device))
            .sum::<std::io::Result<u64>>()
            .context("reading drops")?;
        Ok(counters)
    }

    /// How soon its thread runs when it is due: without real-time priority, other programs' load shows in the delays.
    pub const fn promptness(&self) -> Promptness {
        self.promptness
    }

    /// Stops, and says what it did.
    ///
    /// # Errors
    /// What ended the thread, where it ended before.
    pub fn stop(mut self) -> Result<Counters> {
        let counters = self.counters();
        self.end()?;
        counters
    }

    fn order(&self, order: Order) -> Result<()> {
        self.orders.send(order).map_err(|_| ended())?;
        // A full counter (2^64 - 2 rings unheard) is the only reason to block, and rings all the same.
        rustix::io::write(&*self.bell, &1_u64.to_ne_bytes())?;
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        // Where the thread has ended before, there is nothing to stop, and joining it says why.
        let _ = self.order(Order::Stop);
        thread.join().map_err(|_| anyhow!("the emulator's thread panicked"))?
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if let Err(e) = self.end() {
            tracing::warn!("the link emulator: {e:#}");
        }
    }
}

fn ended() -> anyhow::Error {
    anyhow!("the emulator's thread has ended: stop() says why")
}

/// A device in `ns`, up, with its addresses and routes.
fn set_up(ns: &Netns, number: usize, addresses: &[IpAddr], local: &[Prefix], mtu: u16) -> Result<Tun> {
    let device = device(number);
    let tun = Tun::create(ns, &device)?;
    let metric = number as u32;
    LinkSetup { device: &device, mtu, queue_packets: RING_PACKETS, addresses, local, metric }.apply(ns)?;
    Ok(tun)
}

/// A host's device, by its number among those of the host.
pub(crate) fn device(number: usize) -> String {
    if number == 0 { DEVICE.to_owned() } else { format!("{DEVICE}{number}") }
}

/// The first address of a network that a host can have: network + 1, or the network's own where it is a single address.
fn first_host(network: Prefix) -> IpAddr {
    match network.address() {
        IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits() | u32::from(network.len() < 32)).into(),
        IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits() | u128::from(network.len() < 128)).into(),
    }
}

/// What the thread owns.
struct Carrier {
    waiter: Waiter,
    switch: Switch<Impair>,
    devices: Vec<Tun>,
    /// By device: where its packets go.
    tables: Vec<TableId>,
    /// By port: the device that its packets leave by.
    port_devices: Vec<usize>,
    /// By link: its ports down and up.
    links: Vec<(PortId, PortId)>,
    /// By link, until the tables are made.
    client_tables: Vec<Table<PortId>>,
    counters: Counters,
    late_nanos: u64,
}

impl Carrier {
    fn new(now: Instant) -> Result<Self> {
        Ok(Self {
            waiter: Waiter::new()?,
            switch: Switch::new(now),
            devices: Vec::new(),
            tables: Vec::new(),
            port_devices: Vec::new(),
            links: Vec::new(),
            client_tables: Vec::new(),
            counters: Counters::default(),
            late_nanos: 0,
        })
    }

    fn make_tables(&mut self, edges: Vec<Table<PortId>>) {
        let all = edges.into_iter().chain(std::mem::take(&mut self.client_tables));
        self.tables = all.map(|table| self.switch.add_table(table)).collect();
    }

    fn run(mut self, mailbox: &Receiver<Order>, bell: &OwnedFd) -> Result<()> {
        let mut ready = Vec::new();
        loop {
            let now = clock::monotonic();
            let timeout = self.switch.poll_at().map(|due| due.saturating_since(now));
            ready.clear();
            ready.extend(self.waiter.wait(timeout).context("waiting for the links' devices")?);
            self.counters.wakeups += 1;
            self.send_due();
            for token in &ready {
                if *token == MAILBOX {
                    // The eventfd is non-blocking: where it has been read already there is nothing to wait for.
                    let _ = rustix::io::read(bell, &mut [0; 8]);
                    for order in mailbox.try_iter() {
                        if !self.obey(order) {
                            return Ok(());
                        }
                    }
                } else {
                    self.receive(*token as usize)?;
                    self.send_due();
                }
            }
        }
    }

    /// Reads what a device has, up to a batch.
    fn receive(&mut self, device: usize) -> Result<()> {
        for _ in 0..BATCH {
            let mut packet = Packet::with_capacity(0);
            match self.devices[device].receive(packet.buffer_mut()) {
                Ok(Some(len)) => packet.set_len(len),
                Ok(None) => break,
                Err(e) => return Err(e).context("reading a link's device: was its namespace removed?"),
            }
            self.switch.handle_packet(clock::monotonic(), self.tables[device], packet);
        }
        Ok(())
    }

    /// Hands over what has come through.
    fn send_due(&mut self) {
        let mut now = clock::monotonic();
        while let Some((port, packet)) = self.switch.poll_packet(now) {
            let late = now.saturating_since(packet.at());
            self.late_nanos = self.late_nanos.saturating_add(late.as_nanos());
            let lateness = &mut self.counters.lateness;
            lateness.packets += 1;
            lateness.max = lateness.max.max(late);
            lateness.late += u64::from(late > LATE);
            if self.devices[self.port_devices[port.index()]].send(packet.bytes()).is_err() {
                self.counters.dropped_write += 1;
            }
            now = clock::monotonic();
        }
    }

    /// Whether to go on.
    fn obey(&mut self, order: Order) -> bool {
        match order {
            Order::Set(link, settings, done) => {
                let now = clock::monotonic();
                let (down, up) = self.links[link.0];
                self.switch.with_port(down, |port| port.set(now, settings.down));
                self.switch.with_port(up, |port| port.set(now, settings.up));
                // Who asked and did not wait does not need to know.
                let _ = done.send(());
            }
            Order::Count(answer) => {
                let mut counters = self.counters.clone();
                counters.links = self.links.iter().map(|(down, up)| self.count(*down, *up)).collect();
                counters.switch = *self.switch.counters();
                let mean = self.late_nanos.checked_div(counters.lateness.packets).unwrap_or(0);
                counters.lateness.mean = Duration::from_nanos(mean);
                counters.cpu = clock::thread_cpu();
                let _ = answer.send(counters);
            }
            Order::Stop => return false,
        }
        true
    }

    fn count(&self, down: PortId, up: PortId) -> LinkCounters {
        LinkCounters { down: *self.switch.port(down).counters(), up: *self.switch.port(up).counters() }
    }
}
