//! `weirgate tunnel`: TCP connections of other programs over all paths, and packets of all else.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand};
use rustix::io::Errno;
use weirgate_linux::clock;
use weirgate_linux::tcp;
use weirgate_linux::transport::{App, Driver};
use weirgate_linux::udp::Udp;
use weirgate_linux::wait::Waiter;
use weirgate_spray::{Connection, Event, Public, Secret, Sink, Source};
use weirgate_units::{Instant, Prefix};

use super::Failure;
use super::output::Output;
use super::transfer::{LOOK, announce, explained, listening, own, resolve};
use crate::fabric::run::interruption;
use crate::sessions::{Sessions, random};
use crate::transfer::paths::{Paths, Selection};
use crate::tunnel::packets::{Address, Device, Packets, Settings};
use crate::tunnel::place::Reach;
use crate::tunnel::{self, Tunnel};

/// How long it is waited before the other side is called again.
const AGAIN: Duration = Duration::from_secs(1);

/// Where connections are taken unless it is told otherwise.
const PORT: u16 = 4748;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Take connections here, and have them go on from the other side
    Open(Open),
    /// Be the other side
    Serve(Serve),
}

#[derive(Debug, Args)]
pub(super) struct Open {
    /// Where `weirgate tunnel serve` runs: a name or an address, and a port if it is not 4747
    #[arg(value_name = "HOST")]
    host: String,
    /// Its public key, as `weirgate key` says it there
    #[arg(long, value_name = "KEY")]
    peer: Public,
    /// Where connections are taken; again for each [default: 127.0.0.1:4748, and [::1]:4748 where there is IPv6]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// Where all of them go [default: each one where it was to go before it was redirected (nftables' redirect or tproxy)]
    #[arg(long, value_name = "ADDRESS:PORT")]
    to: Option<SocketAddr>,
    #[command(flatten)]
    packets: Carried,
    /// An interface or a local address to send from; again for each path [default: every interface that is up and has a route to the
    /// other side, from its first address of its family]
    #[arg(long, value_name = "INTERFACE")]
    from: Vec<String>,
    /// This host's key [default: as `weirgate key`]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Whose connections are taken: a public key, as `weirgate key` says it there; again for each
    #[arg(long, required = true, value_name = "KEY")]
    allow: Vec<Public>,
    /// Where connections may go from here: a network; again for each [default: anywhere but this host's loopback and its links' own]
    #[arg(long, value_name = "NETWORK")]
    reach: Vec<Prefix>,
    /// The firewall mark of connections that go on from here, for rules that would redirect them into another tunnel
    #[arg(long, value_name = "MARK", value_parser = mark)]
    mark: Option<u32>,
    #[command(flatten)]
    packets: Carried,
    /// Where to listen [default: all addresses, port 4747]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// This host's key [default: as `weirgate key`]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
struct Carried {
    /// Carry packets as well, UDP and all else: those that are routed into this device, which is made here
    #[arg(long, value_name = "DEVICE")]
    tun: Option<String>,
    /// An address of the device, and its network's length; again for each
    #[arg(long, value_name = "ADDRESS/LENGTH", requires = "tun")]
    tun_address: Vec<Address>,
    /// Networks of the opening side, as far as they are reached through the tunnel: from them packets are taken by the side that serves, to
    /// them by the one that opens; again for each [default: those of --tun-address]
    #[arg(long, value_name = "NETWORK", requires = "tun")]
    within: Vec<Prefix>,
    /// The longest packet in bytes; a path takes it whose own MTU is 79 more (IPv6: 99)
    #[arg(long, value_name = "BYTES", default_value_t = 1_280, value_parser = clap::value_parser!(u16).range(576..=1_400))]
    mtu: u16,
    /// Send each packet by the path that has it there first, in any order [default: those of a flow by one path, in their order]
    #[arg(long, requires = "tun")]
    spray: bool,
}

/// A device, and whether each packet may go by another path.
type Outlet = Option<(Rc<RefCell<Device>>, bool)>;

impl Carried {
    fn device(self, is_shared: bool) -> Result<Outlet, Failure> {
        let Self { tun, tun_address, within, mtu, spray } = self;
        let Some(name) = tun else { return Ok(None) };
        let settings = Settings { name, addresses: tun_address, within, mtu };
        let device = Device::create(settings, is_shared).map_err(Failure::Usage)?;
        Ok(Some((device, spray)))
    }
}

fn packets(outlet: &Outlet, reach: Option<&Reach>) -> Option<Packets> {
    outlet.as_ref().map(|(device, is_sprayed)| Packets::new(Rc::clone(device), *is_sprayed, reach.cloned()))
}

/// A firewall mark, as nftables takes it.
fn mark(text: &str) -> Result<u32, String> {
    let read = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    read.map_err(|_| format!("`{text}` is no mark: write a number of 32 bits, as 7 or 0x7"))
}

impl Command {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        super::allow_files();
        match self {
            Self::Open(open) => open.run(out),
            Self::Serve(serve) => serve.run(out),
        }
    }
}

impl Open {
    fn run(self, out: &mut Output) -> Result<(), Failure> {
        let secret = own(self.key.clone())?;
        resolve(&self.host).map_err(Failure::Usage)?;
        let listeners = entries(&self.listen).map_err(Failure::Usage)?;
        let is_ended = interruption().context("signals cannot be caught")?;
        let outlet = self.packets.clone().device(false)?;
        let locals = listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string()));
        out.line(&format!("taking connections at {}", locals.collect::<Result<Vec<_>>>()?.join(" and ")))?;
        out.flush()?;
        while !is_ended.load(Ordering::Relaxed) {
            let tunnel = Tunnel::open(&listeners, self.to)?.with_packets(packets(&outlet, None));
            if let Err(problem) = self.carry(&secret, tunnel, &outlet, &is_ended) {
                // Without its device it would be half a tunnel.
                outlet.iter().try_for_each(|(device, _)| device.borrow_mut().read()).context("the device is gone")?;
                tracing::warn!("{}: {problem:#}; it is called again", self.host);
                thread::sleep(AGAIN);
            }
        }
        Ok(())
    }

    /// Runs one connection to the other side until it ends.
    fn carry(&self, secret: &Secret, tunnel: Tunnel, outlet: &Outlet, is_ended: &Arc<AtomicBool>) -> Result<()> {
        let now = clock::monotonic();
        // It may have another address by now.
        let remote = resolve(&self.host)?;
        let except = outlet.as_ref().map(|(device, _)| device.borrow().name().to_owned());
        let selection = Selection { from: self.from.clone(), except, may_lack: true };
        let (paths, sockets) = Paths::open(now, selection, remote)?;
        let ends = paths.ends(&sockets);
        let mut driver = Driver::new(sockets)?;
        driver.wake_for(tunnel.waiter())?;
        let device = outlet.as_ref().map(|(device, _)| Rc::clone(device));
        device.iter().try_for_each(|device| driver.wake_for(&*device.borrow()))?;
        let connection = Connection::connect(now, tunnel::settings(), secret, self.peer, random()?, &ends);
        let mut connection = connection.context("the other side's key")?;
        let mut ending = Ending { tunnel, paths, device, is_ended: is_ended.clone() };
        let carried = driver.run(&mut connection, &mut ending);
        carried.map_err(|problem| explained(problem, secret, remote, &ending.paths))
    }
}

/// Where connections are taken that are to go through the tunnel: at these addresses, or at those of the loopback that there are.
fn entries(listen: &[SocketAddr]) -> Result<Vec<TcpListener>> {
    let options = tcp::Options { transparent: true, ..tcp::Options::default() };
    let at = |local: SocketAddr| tcp::listen(local, &options).with_context(|| local.to_string());
    // Which may be meant, or a slip: the kernel takes any.
    for local in listen.iter().filter(|local| UdpSocket::bind((local.ip(), 0)).is_err()) {
        tracing::warn!("{}: no address of this host: only what is redirected to it comes there", local.ip());
    }
    if !listen.is_empty() {
        return listen.iter().map(|local| at(*local)).collect();
    }
    let mut all = vec![at(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))?];
    match at(SocketAddr::from((Ipv6Addr::LOCALHOST, PORT))) {
        Ok(listener) => all.push(listener),
        Err(problem) => {
            let errno = problem.downcast_ref().and_then(Errno::from_io_error);
            ensure!(matches!(errno, Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT)), problem);
        }
    }
    Ok(all)
}

impl Serve {
    fn run(self, out: &mut Output) -> Result<(), Failure> {
        let secret = own(self.key)?;
        let mut driver = Driver::new(listening(self.listen).map_err(Failure::Usage)?)?;
        let is_ended = interruption().context("signals cannot be caught")?;
        announce(out, &secret, &driver)?;
        // One for all of them.
        let waiter = Waiter::new()?;
        driver.wake_for(&waiter)?;
        let reach = Reach(self.reach);
        let outlet = self.packets.device(true)?;
        let device = outlet.as_ref().map(|(device, _)| Rc::clone(device));
        device.iter().try_for_each(|device| driver.wake_for(&*device.borrow()))?;
        let mut begin = || {
            let tunnel = Tunnel::serve(reach.clone())?.with_mark(self.mark);
            let tunnel = tunnel.with_packets(packets(&outlet, Some(&reach)));
            waiter.add(tunnel.waiter(), 0)?;
            Ok(tunnel)
        };
        let mut sessions = Sessions::new(&secret, tunnel::settings(), &self.allow)?;
        while !is_ended.load(Ordering::Relaxed) {
            if let Err(problem) = device.iter().try_for_each(|device| device.borrow_mut().read()) {
                sessions.close(&mut driver);
                return Err(anyhow::Error::from(problem).context("the device is gone").into());
            }
            for session in sessions.turn(&mut driver, &mut begin)? {
                let counts = session.app.counts();
                let peer = session.connection.peer().to_string();
                let seconds = session.began.elapsed().as_secs_f64();
                let why = session.failed.map_or_else(String::new, |why| format!(": {why:#}"));
                let packets = counts.packets;
                let lost = packets.dropped + packets.refused + session.connection.datagrams().dropped;
                let packets = match (packets.received, packets.sent, lost) {
                    (0, 0, 0) => String::new(),
                    (there, back, lost) => {
                        format!(", {there} packets there and {back} back, {lost} refused or dropped")
                    }
                };
                out.line(&format!(
                    "{} connections, {} broken off{packets}, in {seconds:.0} s, of {}{why}",
                    counts.flows,
                    counts.broken,
                    &peer[..16]
                ))?;
                out.flush()?;
            }
        }
        sessions.close(&mut driver);
        Ok(())
    }
}

/// A tunnel that ends with a signal.
struct Ending {
    tunnel: Tunnel,
    paths: Paths,
    device: Option<Rc<RefCell<Device>>>,
    is_ended: Arc<AtomicBool>,
}

impl Source for Ending {
    fn read(&mut self, object: u64, offset: u64, out: &mut [u8]) {
        self.tunnel.read(object, offset, out);
    }
}

impl Sink for Ending {
    fn write(&mut self, object: u64, offset: u64, bytes: &[u8]) {
        self.tunnel.write(object, offset, bytes);
    }

    fn datagram(&mut self, bytes: &[u8]) {
        self.tunnel.datagram(bytes);
    }
}

impl App for Ending {
    type Error = anyhow::Error;

    fn handle_event(&mut self, connection: &mut Connection, event: Event) -> Result<()> {
        self.tunnel.handle_event(connection, event)
    }

    fn advance(&mut self, connection: &mut Connection) -> Result<()> {
        if self.is_ended.load(Ordering::Relaxed) && !connection.is_closed() {
            connection.close(clock::monotonic(), 0, "it was ended");
        }
        self.paths.look(clock::monotonic(), connection);
        self.device.iter().try_for_each(|device| device.borrow_mut().read()).context("the device is gone")?;
        self.tunnel.advance(connection)
    }

    fn poll_at(&self) -> Option<Instant> {
        [Some(clock::monotonic() + LOOK), self.tunnel.poll_at()].into_iter().flatten().min()
    }

    fn handle_unsent(&mut self, local: SocketAddr, problem: io::Error) {
        self.paths.handle_unsent(local, problem);
    }

    fn take_sockets(&mut self) -> Vec<Udp> {
        self.paths.take_sockets()
    }

    fn take_gone(&mut self) -> Vec<SocketAddr> {
        self.paths.take_gone()
    }
}
