//! `weirgate send`, `receive` and `key`: one transfer over all paths.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Args;
use serde_json::json;
use weirgate_linux::clock;
use weirgate_linux::interface::Interface;
use weirgate_linux::netns::Netns;
use weirgate_linux::transport::{self, App, Driver};
use weirgate_linux::udp::Udp;
use weirgate_spray::wire::{ConnectionId, Datagram, init_message};
use weirgate_spray::{Closed, Connection, PathReport, Public, Secret, Settings, crypto};
use weirgate_units::Duration;

use super::Failure;
use super::output::{Output, progress};
use crate::fabric::run::interruption;
use crate::transfer::{keys, manifest};
use crate::transfer::receive::{CREDIT, OBJECTS_MAX, Receiving};
use crate::transfer::send::Sending;

/// Where a receiver listens unless it is told otherwise.
const PORT: u16 = 4747;

/// Transfers at a time, at most.
const SESSIONS_MAX: usize = 256;

#[derive(Debug, Args)]
pub(super) struct Key {
    /// The key's file, made where there is none [default: /etc/weirgate/key for root, ~/.config/weirgate/key for others]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Send {
    /// Files and folders
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where `weirgate receive` runs: a name or an address, and a port if it is not 4747
    #[arg(value_name = "HOST")]
    host: String,
    /// The receiver's public key, as `weirgate key` says it there
    #[arg(long, value_name = "KEY")]
    peer: Public,
    /// An interface or a local address to send from; again for each path [default: every interface that is up and has an address]
    #[arg(long, value_name = "INTERFACE")]
    from: Vec<String>,
    /// Go on with an earlier transfer of the same files, of which a part arrived
    #[arg(long)]
    resume: bool,
    /// This host's key [default: as `weirgate key`]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Receive {
    /// The folder that files are put below
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Whose files are taken: a public key, as `weirgate key` says it there; again for each
    #[arg(long, required = true, value_name = "KEY")]
    allow: Vec<Public>,
    /// Where to listen [default: all addresses, port 4747]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// End with the first transfer
    #[arg(long)]
    once: bool,
    /// This host's key [default: as `weirgate key`]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

fn own(key: Option<PathBuf>) -> Result<Secret> {
    keys::own(&key.map_or_else(keys::place, Ok)?)
}

impl Key {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        Ok(out.line(&own(self.key)?.public().to_string())?)
    }
}

impl Send {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        let secret = own(self.key)?;
        let remote = resolve(&self.host).map_err(Failure::Usage)?;
        let sockets = sockets(&self.from, remote).map_err(Failure::Usage)?;
        let paths: Vec<_> = sockets.iter().map(|socket| (socket.local(), remote)).collect();
        // That may take longer than a receiver waits.
        let files = manifest::list(&self.files).map_err(Failure::Usage)?;
        let mut driver = Driver::new(sockets)?;
        let began = Instant::now();
        let now = clock::monotonic();
        // What the receiver says is as long as the list of files.
        let settings = Settings::default();
        let connection = Connection::connect(now, settings, &secret, self.peer, random()?, &paths);
        let mut connection = connection.context("the receiver's key")?;
        let sending = Sending::begin(files, self.resume, &mut connection)?;
        let bar = progress(Some(sending.bytes()), "sent");
        let mut shown = Shown { sending, bar };
        driver.run(&mut connection, &mut shown).with_context(|| self.host.clone())?;
        let Shown { sending, bar } = shown;
        bar.finish_and_clear();
        let seconds = began.elapsed().as_secs_f64();
        let paths: Vec<PathReport> = connection.paths().collect();
        if self.json {
            let paths: Vec<_> = paths.iter().map(path_json).collect();
            let said = json!({ "files": sending.files(), "bytes": sending.bytes(), "seconds": seconds, "cpu_seconds": clock::process_cpu().as_secs_f64(), "paths": paths });
            return Ok(out.json(&said)?);
        }
        let rate = sending.bytes() as f64 * 8.0 / 1e6 / seconds;
        out.line(&format!("{} files, {} bytes in {seconds:.2} s, {rate:.1} Mbit/s", sending.files(), sending.bytes()))?;
        out.table(
            &["path", "Mbit/s", "rtt, ms", "lost, %", "datagram"],
            &paths.iter().map(|path| row(path, seconds)).collect::<Vec<_>>(),
        )?;
        Ok(())
    }
}

fn row(path: &PathReport, seconds: f64) -> Vec<String> {
    let counts = path.counts;
    vec![
        path.local.ip().to_string(),
        format!("{:.1}", counts.bytes_out as f64 * 8.0 / 1e6 / seconds),
        format!("{:.1}", path.rtt.as_secs_f64() * 1e3),
        format!("{:.2}", counts.lost as f64 * 100.0 / (counts.packets_out as f64).max(1.0)),
        path.mtu.to_string(),
    ]
}

fn path_json(path: &PathReport) -> serde_json::Value {
    let counts = path.counts;
    json!({
        "local": path.local,
        "remote": path.remote,
        "up": path.is_up,
        "rtt_us": path.rtt.as_micros(),
        "rtt_min_us": path.rtt_min.as_micros(),
        "rate_bits_per_s": path.rate.as_bits_per_sec(),
        "datagram_bytes": path.mtu,
        "packets_out": counts.packets_out,
        "bytes_out": counts.bytes_out,
        "packets_in": counts.packets_in,
        "bytes_in": counts.bytes_in,
        "lost": counts.lost,
        "spurious": counts.spurious,
        "downs": counts.downs,
    })
}

/// What is sent, with a bar.
struct Shown {
    sending: Sending,
    bar: indicatif::ProgressBar,
}

impl weirgate_spray::Source for Shown {
    fn read(&mut self, object: u64, offset: u64, out: &mut [u8]) {
        self.sending.read(object, offset, out);
    }
}

impl weirgate_spray::Sink for Shown {
    fn write(&mut self, object: u64, offset: u64, bytes: &[u8]) {
        self.sending.write(object, offset, bytes);
    }
}

impl App for Shown {
    type Error = anyhow::Error;

    fn handle_event(&mut self, connection: &mut Connection, event: weirgate_spray::Event) -> Result<()> {
        self.sending.handle_event(connection, event)
    }

    fn advance(&mut self, connection: &mut Connection) -> Result<()> {
        self.sending.advance(connection)?;
        if !self.bar.is_hidden() {
            self.bar.set_position(self.sending.delivered(connection));
            let rates = connection.paths().filter(|path| path.is_up);
            let rates: Vec<String> = rates
                .map(|path| format!("{} {:.0}", path.local.ip(), path.rate.as_bits_per_sec() as f64 / 1e6))
                .collect();
            self.bar.set_message(format!("sent, Mbit/s by {}", rates.join(", ")));
        }
        Ok(())
    }

    fn poll_at(&self) -> Option<weirgate_units::Instant> {
        self.sending.poll_at()
    }
}

/// A transfer that is received.
struct Session {
    connection: Connection,
    receiving: Receiving,
    began: Instant,
    /// Why this side has ended it.
    failed: Option<anyhow::Error>,
}

impl Receive {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        let secret = own(self.key)?;
        let root = File::open(&self.dir).with_context(|| self.dir.display().to_string()).map_err(Failure::Usage)?;
        let root: Arc<OwnedFd> = Arc::new(root.into());
        let any = [SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)), SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT))];
        let listen = if self.listen.is_empty() { any.to_vec() } else { self.listen };
        let bound = listen.iter().map(|local| Udp::bind(*local, None).with_context(|| local.to_string()));
        let sockets = bound.collect::<Result<Vec<_>>>().map_err(Failure::Usage)?;
        let mut driver = Driver::new(sockets)?;
        let is_ended = interruption().context("signals cannot be caught")?;
        let locals: Vec<String> = driver.locals().map(|local| local.to_string()).collect();
        out.line(&format!("key {}, listening on {}", secret.public(), locals.join(" and ")))?;
        out.flush()?;
        let settings = Settings { credit: CREDIT, objects_max: OBJECTS_MAX, ..Settings::default() };
        let mut sessions: BTreeMap<ConnectionId, Session> = BTreeMap::new();
        loop {
            let now = clock::monotonic();
            let mut has_more = false;
            // A signal is looked for now and then.
            let mut until = now + Duration::from_millis(200);
            let mut over = Vec::new();
            for (id, session) in &mut sessions {
                session.connection.handle_timeout(now);
                session.step(now);
                let Session { connection, receiving, .. } = session;
                has_more |= driver.transmit(connection, receiving);
                if connection.is_closed() {
                    session.step(now);
                    over.push(*id);
                } else {
                    until = [connection.poll_at(now), receiving.poll_at()].into_iter().flatten().fold(until, Ord::min);
                }
            }
            for id in over {
                // Whoever repeats somebody else's first message does not go on.
                if let Some(session) = sessions.remove(&id).filter(|session| session.connection.has_peer()) {
                    session.report(out)?;
                    if self.once {
                        return Ok(session.outcome()?);
                    }
                }
            }
            if is_ended.load(Ordering::Relaxed) {
                return Ok(());
            }
            driver.receive(Some(if has_more { now } else { until }), |local, remote, datagram| {
                let id = match Datagram::parse(datagram) {
                    Ok(Datagram::Init { connection, message, .. }) => {
                        if !sessions.contains_key(&connection) && has_room(&mut sessions) {
                            sessions.extend(answer(&secret, &settings, &self.allow, connection, message, &root));
                        }
                        connection
                    }
                    Ok(Datagram::Protected(header)) => header.connection,
                    _ => return,
                };
                if let Some(Session { connection, receiving, .. }) = sessions.get_mut(&id) {
                    connection.handle_datagram(clock::monotonic(), (local, remote), datagram, receiving);
                }
            })?;
        }
    }
}

/// Whether there may be one more; the oldest one goes for it whose sender has shown nothing but a first message, which can be repeated by
/// whoever saw it.
fn has_room(sessions: &mut BTreeMap<ConnectionId, Session>) -> bool {
    if sessions.len() >= SESSIONS_MAX {
        let unproven = sessions.iter().filter(|(_, session)| !session.connection.has_peer());
        let Some(oldest) = unproven.min_by_key(|(_, session)| session.began).map(|(id, _)| *id) else { return false };
        sessions.remove(&oldest);
    }
    true
}

/// A new transfer, if its sender may have one.
fn answer(
    secret: &Secret,
    settings: &Settings,
    allow: &[Public],
    id: ConnectionId,
    message: &[u8],
    root: &Arc<OwnedFd>,
) -> Option<(ConnectionId, Session)> {
    let called =
        crypto::answer(secret, init_message(message)?, &Connection::hello(settings), |peer| allow.contains(peer));
    match called {
        Ok(called) => {
            let (_, seed) = random().ok()?;
            let connection = Connection::accept(clock::monotonic(), *settings, called, (id, seed));
            Some((
                id,
                Session { connection, receiving: Receiving::new(root.clone()), began: Instant::now(), failed: None },
            ))
        }
        Err(problem) => {
            tracing::warn!(%problem, "a transfer is refused");
            None
        }
    }
}

impl Session {
    /// Hands what has happened to the files, until something went wrong with them.
    fn step(&mut self, now: weirgate_units::Instant) {
        let Self { connection, receiving, failed, .. } = self;
        if failed.is_some() {
            while connection.poll_event().is_some() {}
            return;
        }
        if let Err(problem) = transport::step(connection, receiving) {
            connection.close(now, 1, &format!("{problem:#}"));
            *failed = Some(problem);
        }
    }

    /// Why not all of it is there.
    fn outcome(self) -> Result<()> {
        let (done, all) = self.receiving.files();
        match (self.failed, self.receiving.ended()) {
            (Some(problem), _) => Err(problem),
            (None, Some(Closed::ByPeer { code: 0, .. })) if done == all => Ok(()),
            (None, Some(why)) => Err(anyhow!("{why}")),
            (None, None) => Err(anyhow!("the transfer was not finished")),
        }
    }

    fn report(&self, out: &mut Output) -> Result<(), Failure> {
        let (done, all) = self.receiving.files();
        let seconds = self.began.elapsed().as_secs_f64();
        let peer = self.connection.peer().to_string();
        let ended = match (&self.failed, self.receiving.ended()) {
            (Some(problem), _) => format!(": {problem:#}"),
            (None, Some(Closed::ByPeer { code: 0, .. })) => String::new(),
            (None, Some(why)) => format!(": {why}"),
            (None, None) => ": it was not finished".to_owned(),
        };
        let bytes = self.receiving.bytes();
        out.line(&format!("{done} of {all} files, {bytes} bytes in {seconds:.2} s, of {}{ended}", &peer[..16]))?;
        Ok(out.flush()?)
    }
}

/// An address of a host, with a port.
fn resolve(host: &str) -> Result<SocketAddr> {
    let with_port = host.to_socket_addrs().or_else(|_| (host, PORT).to_socket_addrs());
    let mut all = with_port.with_context(|| format!("{host}: no such host"))?;
    all.next().with_context(|| format!("{host} has no address"))
}

/// A socket for each path.
fn sockets(from: &[String], remote: SocketAddr) -> Result<Vec<Udp>> {
    let is_wanted = |ip: IpAddr| {
        let is_local = ip.is_loopback() || matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
        ip.is_ipv4() == remote.is_ipv4() && is_local == remote.ip().is_loopback()
    };
    let here = Netns::current().and_then(|here| Interface::all(&here)).context("this host's interfaces")?;
    let up = here.into_iter().filter(|interface| interface.up);
    let all: Vec<(String, IpAddr)> = up
        .flat_map(|Interface { name, addresses, .. }| addresses.into_iter().map(move |ip| (name.clone(), ip)))
        .collect();
    let mut sockets = Vec::new();
    let bind = |ip: IpAddr, device: Option<&str>| {
        Udp::bind(SocketAddr::new(ip, 0), device)
            .with_context(|| format!("{} of {}", ip, device.unwrap_or("this host")))
    };
    for name in from {
        if let Ok(ip) = name.parse::<IpAddr>() {
            sockets.push(bind(ip, None)?);
            continue;
        }
        let of = all.iter().find(|(device, ip)| device == name && is_wanted(*ip));
        let (device, ip) =
            of.with_context(|| format!("{name}: no such interface, or it has no address of the receiver's family"))?;
        sockets.push(bind(*ip, Some(device))?);
    }
    if from.is_empty() {
        let mut seen = Vec::new();
        for (device, ip) in all.iter().filter(|(_, ip)| is_wanted(*ip)) {
            // One address of each interface.
            if !seen.contains(device) {
                seen.push(device.clone());
                sockets.push(bind(*ip, Some(device))?);
            }
        }
    }
    ensure!(!sockets.is_empty(), "no interface has an address of the receiver's family: name one with --from");
    ensure!(sockets.len() <= weirgate_spray::connection::PATHS_MAX, "more paths than a connection can have");
    Ok(sockets)
}

/// A connection's name and its seed.
fn random() -> Result<(ConnectionId, u64)> {
    let mut bytes = [0; 16];
    let len = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    ensure!(len == bytes.len(), "the system has no randomness");
    let (id, seed) = bytes.split_at(8);
    let of = |half: &[u8]| half.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    Ok((ConnectionId(of(id)), of(seed)))
}
