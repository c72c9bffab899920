//! `weirgate tunnel`: TCP connections of programs that know nothing of it, and packets of all else, over all uplinks.
//!
//! A program's connection ends at this host: its own TCP knows a network of no length and no losses. What it says is an object of the
//! multipath connection, whose bytes come in any order by all paths, and are put in order at the other end, which has a TCP connection
//! to where the program wanted to go. So no TCP runs over another TCP, or over paths that are unlike.
//!
//! Ground rules: of a flow each side keeps what the other one may not have yet, at most [`WINDOW_MAX`], and what came before its turn, as
//! much; when one side's program does not read, the other one's is not read from. A flow that breaks is broken off at the other end.
//!
//! UDP, and whatever is no TCP connection, goes packet by packet ([`packets`]).

pub mod buffer;
pub mod flow;
pub mod packets;
pub mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use anyhow::{Context as _, Result, anyhow};
use weirgate_linux::transport::App;
use weirgate_linux::wait::Waiter;
use weirgate_linux::{clock, route, tcp};
use weirgate_spray::wire::PathId;
use weirgate_spray::{Closed, Connection, Event, PathReport, Settings, Sink, Source};
use weirgate_units::{Duration, Instant};

use self::flow::Flow;
use self::packets::{PacketCounts, Packets};
use self::place::Reach;

/// Bytes of one flow that are under way at most: 400 Mbit/s over 160 ms.
pub const WINDOW_MAX: usize = 8 << 20;

/// The same where there are many flows.
const WINDOW_MIN: usize = 64 << 10;

/// Bytes of all flows that may be under way, each way, where there are many.
const ALL_MAX: usize = 256 << 20;

/// Flows at a time.
const FLOWS_MAX: usize = 16_384;

/// The first listener's token, and those before it the others'; a flow's is its object.
const LISTENER: u64 = u64::MAX;

/// Why a flow is broken off.
const BROKEN: u64 = 1;

/// What a connection that carries flows is told.
pub fn settings() -> Settings {
    // The one side may still hear of the ends of flows that the other one has forgotten.
    Settings { credit: WINDOW_MIN as u64, objects_max: 2 * FLOWS_MAX, ..Settings::default() }
}

/// One side of a tunnel.
#[derive(Debug)]
pub struct Tunnel {
    waiter: Waiter,
    /// Where programs' connections come from.
    entries: Vec<Entry>,
    /// Where all of them are to go; `None`: where each was meant to go.
    to: Option<SocketAddr>,
    /// Where flows may go that come from the other side; `None`: nowhere.
    reach: Option<Reach>,
    /// The firewall mark of connections that go on from here.
    mark: Option<u32>,
    packets: Option<Packets>,
    /// Whether it was said that packets come which nobody takes.
    is_said: bool,
    flows: BTreeMap<u64, Flow>,
    /// Flows with which something has happened.
    touched: BTreeSet<u64>,
    /// Whether the other side is there: before, programs' connections wait in the listener's queue.
    has_peer: bool,
    scratch: Vec<u8>,
    counts: Counts,
}

/// Where connections are taken.
#[derive(Debug)]
struct Entry {
    listener: TcpListener,
    /// Whether there may be one: until the kernel said that there is none.
    is_ready: bool,
}

/// What a tunnel did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Flows that began.
    pub flows: u64,
    /// Of these, those that were broken off.
    pub broken: u64,
    /// Packets.
    pub packets: PacketCounts,
}

impl Tunnel {
    /// The side at which programs are: every connection that these listeners have is a flow, to where it was meant to go before it was
    /// redirected, or `to` there.
    ///
    /// # Errors
    /// Where they cannot be waited for.
    pub fn open(listeners: &[TcpListener], to: Option<SocketAddr>) -> io::Result<Self> {
        let mut new = Self::new()?;
        for (listener, at) in listeners.iter().zip(0..) {
            listener.set_nonblocking(true)?;
            new.waiter.add_edge(listener, LISTENER - at)?;
            new.entries.push(Entry { listener: listener.try_clone()?, is_ready: true });
        }
        new.to = to;
        Ok(new)
    }

    /// The side from which flows go on, as far as it may reach.
    ///
    /// # Errors
    /// Where the process has too many files open.
    pub fn serve(reach: Reach) -> io::Result<Self> {
        let mut new = Self::new()?;
        new.reach = Some(reach);
        Ok(new)
    }

    /// Connections that go on from here have this firewall mark.
    #[must_use]
    pub const fn with_mark(mut self, mark: Option<u32>) -> Self {
        self.mark = mark;
        self
    }

    /// Carries packets as well.
    #[must_use]
    pub fn with_packets(mut self, packets: Option<Packets>) -> Self {
        self.packets = packets;
        self
    }

    fn new() -> io::Result<Self> {
        Ok(Self {
            waiter: Waiter::new()?,
            entries: Vec::new(),
            to: None,
            reach: None,
            mark: None,
            packets: None,
            is_said: false,
            flows: BTreeMap::new(),
            touched: BTreeSet::new(),
            has_peer: false,
            scratch: vec![0; 64 << 10],
            counts: Counts::default(),
        })
    }

    /// What to wait for beside the connection's sockets.
    pub const fn waiter(&self) -> &Waiter {
        &self.waiter
    }

    /// What it did.
    pub fn counts(&self) -> Counts {
        let packets = self.packets.as_ref().map(Packets::counts).unwrap_or_default();
        Counts { packets, ..self.counts }
    }

    /// Flows now.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Bytes of each flow that may be under way.
    fn window(&self) -> usize {
        (ALL_MAX / self.flows.len().max(1)).clamp(WINDOW_MIN, WINDOW_MAX)
    }

    /// What the kernel has said.
    fn look(&mut self) -> io::Result<()> {
        loop {
            let mut is_any = false;
            for token in self.waiter.wait(Some(Duration::ZERO))? {
                is_any = true;
                let listener = usize::try_from(LISTENER - token).ok();
                if let Some(entry) = listener.and_then(|at| self.entries.get_mut(at)) {
                    entry.is_ready = true;
                } else if let Some(flow) = self.flows.get_mut(&token) {
                    flow.handle_ready();
                    self.touched.insert(token);
                }
            }
            if !is_any {
                return Ok(());
            }
        }
    }

    fn accept(&mut self, connection: &mut Connection) {
        while self.has_peer && self.flows.len() < FLOWS_MAX {
            let Some(Entry { listener, is_ready }) = self.entries.iter_mut().find(|entry| entry.is_ready) else {
                return;
            };
            let (stream, from) = match listener.accept() {
                Ok(taken) => taken,
                Err(problem) if problem.kind() == ErrorKind::WouldBlock => {
                    *is_ready = false;
                    continue;
                }
                // Where there are too many files, it is tried again with the next turn.
                Err(_) => return,
            };
            let begun = begin(&stream, listener, self.to).and_then(|to| {
                let object = connection.open();
                watch(&self.waiter, &stream, object)?;
                Ok((object, to))
            });
            match begun {
                Ok((object, to)) => {
                    let mut flow = Flow::new(stream, false);
                    flow.out.push(&place::put(to));
                    self.flows.insert(object, flow);
                    self.touched.insert(object);
                    self.counts.flows += 1;
                }
                Err(problem) => tracing::warn!(%from, %problem, "a connection is not taken"),
            }
        }
    }

    /// Carries on with one flow.
    fn pump(&mut self, connection: &mut Connection, object: u64) {
        let window = self.window();
        let Some(flow) = self.flows.get_mut(&object) else { return };
        flow.out.drop_before(connection.acked_up_to(object));
        let is_nowhere = flow.stream().is_none();
        let went = match &self.reach {
            Some(reach) if is_nowhere => go(flow, reach, self.mark, &self.waiter, object),
            _ => Ok(()),
        };
        let went = went.and_then(|()| flow.write()).and_then(|()| flow.read(window, &mut self.scratch));
        if let Err(problem) = went {
            tracing::debug!(object, %problem, "a flow is broken off");
            connection.reset(object, BROKEN);
            return self.drop_flow(connection, object);
        }
        connection.provide(object, flow.out.end(), flow.has_all);
        let limit = flow.into.next() + window as u64;
        if limit >= flow.granted + window as u64 / 4 {
            flow.granted = limit;
            connection.grant(object, limit);
        }
        if flow.is_over() {
            self.flows.remove(&object);
            connection.forget(object);
        }
    }

    fn drop_flow(&mut self, connection: &mut Connection, object: u64) {
        if let Some(flow) = self.flows.remove(&object) {
            self.counts.broken += 1;
            flow.break_off();
        }
        connection.forget(object);
    }
}

/// Where a connection is to go that was taken.
fn begin(stream: &TcpStream, listener: &TcpListener, to: Option<SocketAddr>) -> io::Result<SocketAddr> {
    stream.set_nonblocking(true)?;
    prepare(stream)?;
    if let Some(to) = to {
        return Ok(to);
    }
    let to = tcp::original_destination(stream)?;
    let own = listener.local_addr()?;
    let is_own =
        to.port() == own.port() && (to.ip() == own.ip() || (own.ip().is_unspecified() && !is_elsewhere(to.ip())));
    if is_own {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it was not redirected: it is for the tunnel itself"));
    }
    Ok(to)
}

/// A vanished end is noticed after a while, and small pieces do not wait.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    Ok(rustix::net::sockopt::set_socket_keepalive(stream, true)?)
}

/// Whether an address is another host's; not, where that cannot be found out.
fn is_elsewhere(to: IpAddr) -> bool {
    route::is_elsewhere(to).unwrap_or(false)
}

/// Connects a flow whose bytes say where to, once they do.
fn go(flow: &mut Flow, reach: &Reach, mark: Option<u32>, waiter: &Waiter, object: u64) -> io::Result<()> {
    let said: Vec<u8> = flow.into.ready().flatten().take(place::LEN_MAX).copied().collect();
    let place = place::parse(&said).map_err(|problem| io::Error::new(ErrorKind::InvalidData, problem))?;
    let Some((to, len)) = place else { return Ok(()) };
    if !reach.holds(to.ip()) || (reach.0.is_empty() && !is_elsewhere(to.ip())) {
        return Err(io::Error::new(ErrorKind::PermissionDenied, format!("{to} may not be reached from here")));
    }
    flow.into.consume(len);
    let stream = tcp::begin_connecting(to, mark)?;
    prepare(&stream)?;
    watch(waiter, &stream, object)?;
    flow.begin(stream, true);
    Ok(())
}

fn path(connection: &Connection, id: PathId) -> Option<PathReport> {
    connection.paths().find(|path| path.path == id)
}

/// Has whatever happens with a connection said.
fn watch(waiter: &Waiter, stream: &TcpStream, token: u64) -> io::Result<()> {
    waiter.add_edge(stream, token)?;
    waiter.watch_room(stream, token, true)
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        // A stream that was cut is not to look finished.
        std::mem::take(&mut self.flows).into_values().for_each(Flow::break_off);
    }
}

impl App for Tunnel {
    type Error = anyhow::Error;

    fn handle_event(&mut self, connection: &mut Connection, event: Event) -> Result<()> {
        match event {
            Event::Opened(object) if self.reach.is_some() => {
                self.flows.entry(object).or_default();
                self.touched.insert(object);
                self.counts.flows += 1;
            }
            Event::Opened(_) => return Err(anyhow!("the other side sends flows, which go nowhere from here")),
            Event::Complete(object) => {
                if let Some(flow) = self.flows.get_mut(&object) {
                    flow.is_whole = true;
                    self.touched.insert(object);
                }
            }
            Event::Delivered(object) => {
                if let Some(flow) = self.flows.get_mut(&object) {
                    flow.is_delivered = true;
                    self.touched.insert(object);
                }
            }
            Event::Reset { object, .. } => self.drop_flow(connection, object),
            Event::Closed(Closed::Here) => {}
            Event::Closed(why) => return Err(anyhow!(why)),
            Event::Connected => {
                self.has_peer = true;
                if let Some(packets) = &mut self.packets {
                    packets.handle_connected(clock::monotonic(), connection.peer());
                }
            }
            Event::PathUp(id) => {
                if let Some(path) = path(connection, id) {
                    tracing::info!("the path from {} to {} works", path.local.ip(), path.remote);
                }
            }
            Event::PathDown(id) => {
                if let Some(path) = path(connection, id) {
                    let (from, to) = (path.local.ip(), path.remote);
                    tracing::warn!("nothing comes back on the path from {from} to {to}: others carry what it had");
                }
            }
        }
        Ok(())
    }

    fn advance(&mut self, connection: &mut Connection) -> Result<()> {
        self.look().context("connections cannot be waited for")?;
        self.accept(connection);
        if let Some(packets) = self.packets.as_mut().filter(|_| self.has_peer) {
            packets.send(clock::monotonic(), connection);
        }
        // What the other side has makes room.
        let full = self.flows.iter().filter(|(_, flow)| !flow.out.is_empty()).map(|(object, _)| *object);
        self.touched.extend(full);
        for object in std::mem::take(&mut self.touched) {
            self.pump(connection, object);
        }
        Ok(())
    }

    fn poll_at(&self) -> Option<Instant> {
        self.packets.as_ref()?.poll_at()
    }
}

impl Source for Tunnel {
    fn read(&mut self, object: u64, offset: u64, out: &mut [u8]) {
        if let Some(flow) = self.flows.get(&object) {
            flow.out.read(offset, out);
        }
    }
}

impl Sink for Tunnel {
    fn write(&mut self, object: u64, offset: u64, bytes: &[u8]) {
        // The first bytes come before it is said that the other side has opened the flow.
        let flow = match self.reach {
            Some(_) => Some(self.flows.entry(object).or_default()),
            None => self.flows.get_mut(&object),
        };
        if let Some(flow) = flow {
            flow.into.insert(offset, bytes);
            self.touched.insert(object);
        }
    }

    fn datagram(&mut self, bytes: &[u8]) {
        match &mut self.packets {
            Some(packets) => packets.receive(clock::monotonic(), bytes),
            None if !std::mem::replace(&mut self.is_said, true) => {
                tracing::warn!("the other side sends packets, and there is no device for them here: --tun makes one");
            }
            None => {}
        }
    }
}
