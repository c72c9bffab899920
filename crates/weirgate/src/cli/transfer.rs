//! `weirgate send`, `receive` and `key`: one transfer over all paths.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Args;
use serde_json::json;
use weirgate_linux::clock;
use weirgate_linux::transport::{App, Driver};
use weirgate_linux::udp::Udp;
use weirgate_spray::wire::{ConnectionId, PathId};
use weirgate_spray::{Closed, Connection, PathReport, Public, Secret, Settings};
use weirgate_units::Duration;

use super::Failure;
use super::output::{Output, progress};
use crate::fabric::run::interruption;
use crate::sessions::{Session, Sessions, random};
use crate::transfer::paths::{Paths, Selection};
use crate::transfer::receive::{CREDIT, Finished, OBJECTS_MAX, Receiving};
use crate::transfer::send::Sending;
use crate::transfer::{keys, manifest};

/// Where a receiver listens unless it is told otherwise.
const PORT: u16 = 4747;

/// How often it is looked for signals.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// Rates are those of so long.
const RATES_OVER: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(super) struct Key {
    /// The key's file, made where there is none [default: /etc/weirgate/key for root, ~/.config/weirgate/key for others]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(override_usage = "weirgate send [OPTIONS] --peer <KEY> <FILE>... <HOST>")]
pub(super) struct Send {
    /// Files and folders; and last the host where `weirgate receive` runs: a name or an address, and a port if it is not 4747
    // As an argument of its own the host could not follow an option.
    #[arg(required = true, value_name = "FILE|HOST")]
    files: Vec<PathBuf>,
    /// The receiver's public key, as `weirgate key` says it there
    #[arg(long, value_name = "KEY")]
    peer: Public,
    /// An interface or a local address to send from; again for each path [default: every interface that is up and has a route to the
    /// receiver, from its first address of the receiver's family]
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
    /// Have each file on the disk before it is said to be done, and what is noted of it before that is: a power failure loses nothing that
    /// was said. The transfer waits for the disk meanwhile
    #[arg(long)]
    fsync: bool,
    /// End with the first transfer
    #[arg(long)]
    once: bool,
    /// Print JSON, a line for each file that is done and one for each transfer
    #[arg(long)]
    json: bool,
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
    pub(super) fn run(mut self, out: &mut Output) -> Result<(), Failure> {
        let host = self.files.pop().filter(|_| !self.files.is_empty());
        let host = host.context("say what to send, and to which host").map_err(Failure::Usage)?.display().to_string();
        let secret = own(self.key)?;
        let remote = resolve(&host).map_err(Failure::Usage)?;
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
        let is_ended = interruption().context("signals cannot be caught")?;
        let rates = Rates::new(now);
        let mut shown = Shown { sending, paths, bar, rates, is_ended };
        let sent = driver.run(&mut connection, &mut shown);
        let Shown { sending, bar, paths, .. } = shown;
        sent.map_err(|problem| match problem.downcast_ref() {
            Some(Closed::Idle) => anyhow!("{problem}; --resume goes on with it"),
            _ => explained(problem, &secret, remote, &paths),
        })
        .context(host)?;
        bar.finish_and_clear();
        let seconds = began.elapsed().as_secs_f64();
        let paths: Vec<PathReport> = connection.paths().collect();
        if self.json {
            let paths: Vec<_> = paths.iter().map(path_json).collect();
            let said = json!({ "files": sending.files(), "bytes": sending.bytes(), "new_bytes": sending.new_bytes(), "seconds": seconds, "cpu_seconds": clock::process_cpu().as_secs_f64(), "paths": paths });
            return Ok(out.json(&said)?);
        }
        let (files, bytes, new) = (sending.files(), sending.bytes(), sending.new_bytes());
        let rate = new as f64 * 8.0 / 1e6 / seconds;
        let there = if new == bytes { String::new() } else { format!(", {} of them there already", bytes - new) };
        out.line(&format!("{}, {bytes} bytes{there}; in {seconds:.2} s, {rate:.1} Mbit/s", of_files(files)))?;
        out.table(
            &["path", "Mbit/s", "rtt, ms", "lost, %", "datagram"],
            &paths.iter().map(|path| row(path, seconds)).collect::<Vec<_>>(),
        )?;
        Ok(())
    }
}

/// Says of a call that nobody has answered what to look at.
pub(super) fn explained(problem: anyhow::Error, secret: &Secret, remote: SocketAddr, paths: &Paths) -> anyhow::Error {
    match problem.downcast_ref() {
        Some(Closed::Unanswered) => anyhow!(
            "nobody has answered: nobody listens at {remote}, or does not know this host's key (--allow {}), or its key is not the one of \
             --peer{}",
            secret.public(),
            paths.unsent()
        ),
        _ => problem,
    }
}

fn row(path: &PathReport, seconds: f64) -> Vec<String> {
    let counts = path.counts;
    vec![
        path.local.ip().to_string(),
        format!("{:.1}", counts.bytes_out as f64 * 8.0 / 1e6 / seconds),
        path.rtt.map_or_else(|| "-".to_owned(), |rtt| format!("{:.1}", rtt.as_secs_f64() * 1e3)),
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
        "gone": path.is_gone,
        "rtt_us": path.rtt.map(|rtt| rtt.as_micros()),
        "rtt_min_us": path.rtt_min.map(|rtt| rtt.as_micros()),
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
    rates: Rates,
    is_ended: Arc<AtomicBool>,
}

/// What passed by each path, over the last second.
struct Rates {
    since: weirgate_units::Instant,
    before: BTreeMap<(ConnectionId, PathId), u64>,
    text: String,
}

/// A path of a connection, as it is named, and the bytes that have passed by it.
struct Passed {
    of: (ConnectionId, PathId),
    name: IpAddr,
    bytes: u64,
}

impl Rates {
    const fn new(now: weirgate_units::Instant) -> Self {
        Self { since: now, before: BTreeMap::new(), text: String::new() }
    }

    /// `paths` are those that work.
    fn look(&mut self, now: weirgate_units::Instant, paths: impl Iterator<Item = Passed>) -> &str {
        let passed = now.saturating_since(self.since);
        if passed >= RATES_OVER {
            self.since = now;
            let before = std::mem::take(&mut self.before);
            let each = paths.map(|Passed { of, name, bytes }| {
                self.before.insert(of, bytes);
                // One that is new or was away shows what passes from now on.
                let new = before.get(&of).map_or(0, |before| bytes - before);
                format!("{name} {:.0}", new as f64 * 8.0 / 1e6 / passed.as_secs_f64())
            });
            self.text = each.collect::<Vec<_>>().join(", ");
        }
        &self.text
    }
}

/// Shows what all senders have sent, of what they have named, and their paths by the addresses that these come from.
fn show(bar: &indicatif::ProgressBar, rates: &mut Rates, sessions: &Sessions<'_, Receiving>) {
    if bar.is_hidden() {
        return;
    }
    let paths = sessions.open().flat_map(|session| {
        let id = session.connection.id();
        let of =
            move |path: PathReport| Passed { of: (id, path.path), name: path.remote.ip(), bytes: path.counts.bytes_in };
        session.connection.paths().filter(|path| path.is_up).map(of)
    });
    bar.set_message(format!("received; Mbit/s: {}", rates.look(clock::monotonic(), paths)));
    bar.set_length(sessions.open().map(|session| session.app.total()).sum());
    bar.set_position(sessions.open().map(|session| session.app.bytes()).sum());
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
        ensure!(!self.is_ended.load(Ordering::Relaxed), "it was interrupted; --resume goes on with it");
        self.sending.advance(connection)?;
        let now = clock::monotonic();
        self.paths.look(now, connection);
        let id = connection.id();
        let of = |path: PathReport| Passed { of: (id, path.path), name: path.local.ip(), bytes: path.counts.bytes_out };
        let rates = self.rates.look(now, connection.paths().filter(|path| path.is_up).map(of));
        if !self.bar.is_hidden() {
            self.bar.set_position(self.sending.delivered(connection));
            self.bar.set_message(format!("sent; Mbit/s: {rates}"));
        }
        Ok(())
    }

    fn poll_at(&self) -> Option<weirgate_units::Instant> {
        let look = clock::monotonic() + LOOK;
        [self.sending.poll_at(), Some(self.paths.poll_at()), Some(look)].into_iter().flatten().min()
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

impl Receive {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        let secret = own(self.key)?;
        let root = folder(&self.dir).with_context(|| self.dir.display().to_string()).map_err(Failure::Usage)?;
        let root: Arc<OwnedFd> = Arc::new(root.into());
        let mut driver = Driver::new(listening(self.listen).map_err(Failure::Usage)?)?;
        let is_ended = interruption().context("signals cannot be caught")?;
        if self.json {
            let listening: Vec<_> = driver.locals().collect();
            out.json(&json!({ "key": secret.public().to_string(), "listening": listening }))?;
            out.flush()?;
        } else {
            announce(out, &secret, &driver)?;
        }
        let settings = Settings { credit: CREDIT, objects_max: OBJECTS_MAX, ..Settings::default() };
        let mut sessions = Sessions::new(&secret, settings, &self.allow)?;
        let (say, news) = channel();
        let say = self.json.then_some(say);
        let mut bar: Option<indicatif::ProgressBar> = None;
        let mut rates = Rates::new(clock::monotonic());
        let mut begin = || Ok(Receiving::new(root.clone()).with_sync(self.fsync).with_news(say.clone()));
        while !is_ended.load(Ordering::Relaxed) {
            let over = sessions.turn(&mut driver, &mut begin)?;
            // While somebody sends.
            if sessions.open().next().is_none() {
                bar.take().iter().for_each(indicatif::ProgressBar::finish_and_clear);
            } else {
                show(bar.get_or_insert_with(|| progress(Some(0), "received")), &mut rates, &sessions);
            }
            for finished in news.try_iter() {
                out.json(&finished_json(&finished))?;
                out.flush()?;
            }
            for session in over {
                match &bar {
                    Some(bar) => bar.suspend(|| report(&session, self.json, out))?,
                    None => report(&session, self.json, out)?,
                }
                // One that was given up has another one after it.
                let goes_on = sessions.open().any(|other| other.connection.peer() == session.connection.peer());
                if self.once && !goes_on {
                    return Ok(outcome(session)?);
                }
            }
        }
        bar.iter().for_each(indicatif::ProgressBar::finish_and_clear);
        sessions.close(&mut driver);
        Ok(())
    }
}

fn finished_json(Finished { peer, file, refused }: &Finished) -> serde_json::Value {
    json!({ "file": file.path, "bytes": file.len, "from": peer.to_string(), "error": refused.as_ref().map(ToString::to_string) })
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

fn report(session: &Session<Receiving>, as_json: bool, out: &mut Output) -> Result<(), Failure> {
    let receiving = &session.app;
    let (done, all) = receiving.files();
    let seconds = session.began.elapsed().as_secs_f64();
    let peer = session.connection.peer().to_string();
    let error = match (&session.failed, receiving.ended()) {
        (Some(problem), _) => Some(format!("{problem:#}")),
        (None, Some(Closed::ByPeer { code: 0, .. })) => None,
        (None, Some(why)) => Some(why.to_string()),
        (None, None) => Some("it was not finished".to_owned()),
    };
    let bytes = receiving.bytes();
    if as_json {
        out.json(
            &json!({ "files": done, "of": all, "bytes": bytes, "seconds": seconds, "from": peer, "error": error }),
        )?;
    } else {
        let ended = error.map_or_else(String::new, |error| format!(": {error}"));
        out.line(&format!("{done} of {}, {bytes} bytes in {seconds:.2} s, of {}{ended}", of_files(all), &peer[..16]))?;
    }
    Ok(out.flush()?)
}

/// So many files, for people.
fn of_files(count: usize) -> String {
    format!("{count} file{}", if count == 1 { "" } else { "s" })
}

/// A folder to put files below.
fn folder(dir: &Path) -> io::Result<File> {
    let folder = File::open(dir)?;
    if folder.metadata()?.is_dir() { Ok(folder) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// An address of a host, with a port.
pub(super) fn resolve(host: &str) -> Result<SocketAddr> {
    // An IPv6 address without a port looks as one with a port.
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok((ip, PORT).into());
    }
    let is_number = |port: &&str| !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit());
    let found = match host.rsplit_once(':').map(|(_, port)| port).filter(is_number) {
        Some(port) => {
            ensure!(port.parse::<u16>().is_ok_and(|port| port > 0), "{host}: a port is 1 to 65535");
            host.to_socket_addrs()
        }
        None => (host, PORT).to_socket_addrs(),
    };
    let mut all = found.with_context(|| format!("{host}: no such host"))?;
    all.next().with_context(|| format!("{host} has no address"))
}

#[cfg(test)]
mod tests {
    use weirgate_units::Instant;

    use super::*;

    #[test]
    fn a_host_has_a_port_or_the_usual_one() {
        let of = |host: &str| resolve(host).map(|at| at.to_string()).map_err(|why| format!("{why:#}"));
        assert_eq!(of("127.0.0.1").unwrap(), "127.0.0.1:4747");
        assert_eq!(of("127.0.0.1:80").unwrap(), "127.0.0.1:80");
        assert_eq!(of("::1").unwrap(), "[::1]:4747");
        assert_eq!(of("[::1]:80").unwrap(), "[::1]:80");
        assert_eq!(of("127.0.0.1:99999").unwrap_err(), "127.0.0.1:99999: a port is 1 to 65535");
        assert!(of("[::1]:0").is_err());
    }

    #[test]
    fn files_are_put_below_folders_only() {
        assert!(folder(Path::new("/")).is_ok());
        assert_eq!(folder(Path::new("/etc/passwd")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn rates_are_what_passed_in_the_last_second() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let path =
            |id: u8, bytes| Passed { of: (ConnectionId(5), PathId(id)), name: IpAddr::from([10, 0, 0, id]), bytes };
        let mut rates = Rates::new(at(0));
        assert_eq!(rates.look(at(500), [path(1, 1_000_000)].into_iter()), "");
        assert_eq!(rates.look(at(1_000), [path(1, 1_500_000)].into_iter()), "10.0.0.1 0");
        assert_eq!(rates.look(at(2_000), [path(1, 4_000_000)].into_iter()), "10.0.0.1 20");
        assert_eq!(rates.look(at(2_900), [path(1, 9_000_000)].into_iter()), "10.0.0.1 20");
        let both = [path(1, 4_000_000), path(2, 5_000_000)];
        assert_eq!(rates.look(at(4_000), both.into_iter()), "10.0.0.1 0, 10.0.0.2 0");
        let both = [path(1, 4_000_000), path(2, 6_250_000)];
        assert_eq!(rates.look(at(5_000), both.into_iter()), "10.0.0.1 0, 10.0.0.2 10");
    }
}
