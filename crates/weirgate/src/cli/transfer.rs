//! `weirgate send`, `receive` and `key`: one transfer over all paths.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use clap::Args;
use serde_json::json;
use weirgate_linux::clock;
use weirgate_linux::transport::{App, Driver};
use weirgate_linux::udp::Udp;
use weirgate_spray::{Closed, Connection, PathReport, Public, Secret, Settings};

use super::Failure;
use super::output::{Output, progress};
use crate::fabric::run::interruption;
use crate::sessions::{Session, Sessions, random};
use crate::transfer::paths::{Paths, Selection};
use crate::transfer::receive::{CREDIT, OBJECTS_MAX, Receiving};
use crate::transfer::send::Sending;
use crate::transfer::{keys, manifest};

/// Where a receiver listens unless it is told otherwise.
const PORT: u16 = 4747;

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

pub(super) fn own(key: Option<PathBuf>) -> Result<Secret> {
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
        let (paths, sockets) =
            Paths::open(clock::monotonic(), Selection { from: self.from, ..Selection::default() }, remote)
                .map_err(Failure::Usage)?;
        let ends = paths.ends(&sockets);
        // That may take longer than a receiver waits.
        let files = manifest::list(&self.files).map_err(Failure::Usage)?;
        let mut driver = Driver::new(sockets)?;
        let began = Instant::now();
        let now = clock::monotonic();
        // What the receiver says is as long as the list of files.
        let settings = Settings::default();
        let connection = Connection::connect(now, settings, &secret, self.peer, random()?, &ends);
        let mut connection = connection.context("the receiver's key")?;
        let sending = Sending::begin(files, self.resume, &mut connection)?;
        let bar = progress(Some(sending.bytes()), "sent");
        let mut shown = Shown { sending, paths, bar };
        driver.run(&mut connection, &mut shown).with_context(|| self.host.clone())?;
        let Shown { sending, bar, .. } = shown;
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
        "silences": counts.silences,
        "downs": counts.downs,
    })
}

/// What is sent, with a bar.
struct Shown {
    sending: Sending,
    paths: Paths,
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
        let _has_room = self.paths.look(clock::monotonic(), connection);
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
        [self.sending.poll_at(), Some(self.paths.poll_at())].into_iter().flatten().min()
    }

    fn take_sockets(&mut self) -> Vec<Udp> {
        self.paths.take_sockets()
    }
}

impl Receive {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        let secret = own(self.key)?;
        let root = File::open(&self.dir).with_context(|| self.dir.display().to_string()).map_err(Failure::Usage)?;
        let root: Arc<OwnedFd> = Arc::new(root.into());
        let mut driver = Driver::new(listening(self.listen).map_err(Failure::Usage)?)?;
        let is_ended = interruption().context("signals cannot be caught")?;
        announce(out, &secret, &driver)?;
        let settings = Settings { credit: CREDIT, objects_max: OBJECTS_MAX, ..Settings::default() };
        let mut sessions = Sessions::new(&secret, settings, &self.allow);
        while !is_ended.load(Ordering::Relaxed) {
            for session in sessions.turn(&mut driver, &mut || Ok(Receiving::new(root.clone())))? {
                report(&session, out)?;
                if self.once {
                    return Ok(outcome(session)?);
                }
            }
        }
        sessions.close(&mut driver);
        Ok(())
    }
}

/// Sockets at these addresses, or at all of the host's.
pub(super) fn listening(listen: Vec<SocketAddr>) -> Result<Vec<Udp>> {
    let any = [SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)), SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT))];
    let listen = if listen.is_empty() { any.to_vec() } else { listen };
    listen.into_iter().map(|local| Udp::bind(local, None).with_context(|| local.to_string())).collect()
}

/// Says by which key and where others find this side.
pub(super) fn announce(out: &mut Output, secret: &Secret, driver: &Driver) -> Result<(), Failure> {
    let locals: Vec<String> = driver.locals().map(|local| local.to_string()).collect();
    out.line(&format!("key {}, listening on {}", secret.public(), locals.join(" and ")))?;
    Ok(out.flush()?)
}

/// Why not all of it is there.
fn outcome(session: Session<Receiving>) -> Result<()> {
    let (done, all) = session.app.files();
    match (session.failed, session.app.ended()) {
        (Some(problem), _) => Err(problem),
        (None, Some(Closed::ByPeer { code: 0, .. })) if done == all => Ok(()),
        (None, Some(why)) => Err(anyhow!("{why}")),
        (None, None) => Err(anyhow!("the transfer was not finished")),
    }
}

fn report(session: &Session<Receiving>, out: &mut Output) -> Result<(), Failure> {
    let receiving = &session.app;
    let (done, all) = receiving.files();
    let seconds = session.began.elapsed().as_secs_f64();
    let peer = session.connection.peer().to_string();
    let ended = match (&session.failed, receiving.ended()) {
        (Some(problem), _) => format!(": {problem:#}"),
        (None, Some(Closed::ByPeer { code: 0, .. })) => String::new(),
        (None, Some(why)) => format!(": {why}"),
        (None, None) => ": it was not finished".to_owned(),
    };
    let bytes = receiving.bytes();
    out.line(&format!("{done} of {all} files, {bytes} bytes in {seconds:.2} s, of {}{ended}", &peer[..16]))?;
    Ok(out.flush()?)
}

/// An address of a host, with a port.
pub(super) fn resolve(host: &str) -> Result<SocketAddr> {
    // An IPv6 address without a port looks as one with a port.
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok((ip, PORT).into());
    }
    let with_port = host.to_socket_addrs().or_else(|_| (host, PORT).to_socket_addrs());
    let mut all = with_port.with_context(|| format!("{host}: no such host"))?;
    all.next().with_context(|| format!("{host} has no address"))
}
