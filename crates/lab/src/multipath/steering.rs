//! New connections steered by the daemon: what many long ones get of the uplinks' sum, and what becomes of connections when an uplink turns
//! into a black hole.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use weirgate_linux::conntrack::Conntrack;
use weirgate_linux::tcp::{Options, connect, listen};

use super::PINNED;
use super::ground::Ground;
use super::sets::Set;
use crate::daemon::Daemon;
use crate::experiment;
use crate::machine::CpuTimes;
use crate::report::{Table, number};

/// Long connections are counted from this many seconds on.
pub(super) const SETTLES: u64 = 5;

/// Which bits of a connection mark name an uplink, by the daemon's default.
const SHIFT: u32 = 24;
const NAMES: u32 = 0x7f;

/// Servers of this room listen here.
const PORT: u16 = 5_901;

/// New connections begin this often, while an uplink is a black hole for so long.
const BEGIN_EVERY: Duration = Duration::from_millis(20);
const HOLE: Duration = Duration::from_secs(4);

/// For so long it is waited until the uplinks work.
const PATIENCE: Duration = Duration::from_secs(20);

/// For so long a weight that is measured is waited for: a train that the kernel did not stamp is followed by another ten minutes later.
const WEIGHED: Duration = Duration::from_secs(10);

/// What came of it.
#[derive(Clone, Debug)]
pub(super) struct Steered {
    /// Of all long connections together.
    pub(super) mbit: f64,
    /// Processor time of the whole machine for them, core per Gbit/s.
    core_per_gbit: f64,
    /// By uplink: long connections.
    flows: Vec<usize>,
    /// By uplink: its share of all weights before the connections and after them, and of the rates that the uplinks are shaped to.
    weights: [Vec<f64>; 3],
    /// From the outage until the last new connection went to the uplink; 0: none did.
    pub(super) last_new_flow_ms: f64,
    /// From the outage until an application's connection there was ended.
    ended_ms: f64,
    /// From then until the first byte of its next one.
    retried_ms: f64,
}

impl Steered {
    /// For the report.
    pub(super) fn table(&self, sum: f64) -> Table {
        let heads = ["what", "measured"];
        let mut table = Table::new("Steered connections over the article's uplinks", &heads);
        let flows: Vec<String> = self.flows.iter().map(ToString::to_string).collect();
        let [before, after, shaped] = self.weights.each_ref().map(|shares| {
            let shares: Vec<String> = shares.iter().map(|share| number(*share)).collect();
            shares.join(", ")
        });
        for (what, measured) in [
            ("long connections together, Mbit/s", number(self.mbit)),
            ("of the sum, %", number(self.mbit / sum * 100.0)),
            ("processor time of the whole machine, core per Gbit/s", number(self.core_per_gbit)),
            ("long connections on each uplink", flows.join(", ")),
            ("rates that the uplinks are shaped to, % of their sum", shaped),
            ("weights when the connections began, by trains of packets, % of all", before),
            ("weights when they ended, by what had passed, % of all", after),
            ("outage to the last new connection there, ms", number(self.last_new_flow_ms)),
            ("outage to the end of a connection there, ms", number(self.ended_ms)),
            ("its end to the first byte of its retry, ms", number(self.retried_ms)),
        ] {
            table.rows.push(vec![what.to_owned(), measured]);
        }
        table
    }
}

/// Runs the daemon over the ground's uplinks, and all of this.
pub(super) fn run(
    options: &experiment::Options,
    ground: &Ground,
    set: &Set,
    seconds: u64,
    dir: &Path,
) -> Result<Steered> {
    let mut sections = format!("[steering]\nnamespace = {:?}\n", ground.client.name());
    for at in 0..set.links.len() {
        let device = Ground::device(at);
        sections.push_str(&format!("[[uplink]]\nname = {device:?}\ntargets = [\"{}\"]\n", ground.host()));
    }
    let mut daemon = Daemon::start(&options.weirgate, &dir.join("steering"), &sections)?;
    // Every uplink has been asked, and by a train if nothing has passed.
    until(PATIENCE, "every uplink has answered", || {
        let uplinks = uplinks(&daemon)?;
        Ok(uplinks.iter().all(|uplink| uplink["state"] == "up" && uplink["rtt_us"].is_u64()))
    })?;
    let is_weighed = || Ok(uplinks(&daemon)?.iter().all(is_weighed));
    let _what_is_in_force_is_shown = until(WEIGHED, "every uplink is weighed", is_weighed);
    let before = weights(&daemon)?;
    let (mbit, core_per_gbit, flows) = long(ground, &daemon, seconds)?;
    let shaped = shares((0..set.links.len()).map(|at| ground.rate(at) as f64).collect());
    let weights = [before, weights(&daemon)?, shaped];
    let worst = (0..set.links.len()).max_by_key(|at| ground.rate(*at)).context("an uplink")?;
    let (last_new_flow_ms, ended_ms, retried_ms) = black_hole(ground, worst)?;
    daemon.stop()?;
    Ok(Steered { mbit, core_per_gbit, flows, weights, last_new_flow_ms, ended_ms, retried_ms })
}

/// Whether an uplink's weight is what was measured of it, and in force.
fn is_weighed(uplink: &Value) -> bool {
    let [weight, capacity] = ["weight", "capacity_down_bits_per_s"].map(|name| uplink[name].as_u64().unwrap_or(0));
    capacity > 0 && weight.abs_diff(capacity) <= capacity / 5
}

/// Each uplink's share of all weights in force, in percent.
fn weights(daemon: &Daemon) -> Result<Vec<f64>> {
    Ok(shares(uplinks(daemon)?.iter().map(|uplink| uplink["weight"].as_f64().unwrap_or(0.0)).collect()))
}

/// Shares of the sum, in percent.
fn shares(of: Vec<f64>) -> Vec<f64> {
    let sum: f64 = of.iter().sum();
    of.iter().map(|one| one / sum.max(1.0) * 100.0).collect()
}

/// What many long connections get, what that costs the machine, in cores for a Gbit/s, and on which uplinks they are.
fn long(ground: &Ground, daemon: &Daemon, seconds: u64) -> Result<(f64, f64, Vec<usize>)> {
    thread::scope(|scope| {
        let sending = scope.spawn(|| super::tcp::free(ground, PINNED, "bbr", SETTLES, seconds));
        thread::sleep(Duration::from_secs(SETTLES));
        let flows = uplinks(daemon)?.iter().map(|uplink| uplink["flows_tcp"].as_u64().unwrap_or(0) as usize).collect();
        let before = CpuTimes::now().busy();
        let mbit = sending.join().map_err(|_| anyhow::anyhow!("a sender panicked"))??;
        let spent = CpuTimes::now().busy().saturating_sub(before).as_secs_f64();
        Ok((mbit, spent / (mbit * seconds as f64 / 1e3), flows))
    })
}

/// Has an uplink become a black hole: until when new connections went there, when an application's connection there ended, and how long
/// its retry took, in milliseconds.
fn black_hole(ground: &Ground, worst: usize) -> Result<(f64, f64, f64)> {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let listener = ground.server.netns().within(|| listen(ground.at(PORT), &Options::default()))??;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| serve(&listener, &stop));
        // However this ends, the server does.
        let _ends = Ends { ground, stop: &stop };
        let connected = || -> Result<TcpStream> {
            Ok(ground.client.netns().within(|| connect(any, ground.at(PORT), &Options::default()))??)
        };
        // One that is on the uplink, and reads.
        let mut others = Vec::new();
        let mut reader = loop {
            let mut stream = connected()?;
            stream.read_exact(&mut [0])?;
            if uplink_of(ground, stream.local_addr()?.port())? == Some(worst) {
                stream.set_read_timeout(Some(2 * HOLE))?;
                break stream;
            }
            others.push(stream);
            ensure!(others.len() < 100, "no connection goes by the uplink");
        };
        drop(others);
        ground.set_outage(worst, true)?;
        let began = Instant::now();
        let reading = scope.spawn(move || -> Result<(f64, f64)> {
            let error = loop {
                match reader.read(&mut [0; 4_096]) {
                    Ok(0) => bail!("the server ended the connection"),
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => break error,
                }
            };
            tracing::debug!("the application's connection: {error}");
            let ended = began.elapsed();
            let mut retry = connected()?;
            retry.read_exact(&mut [0])?;
            Ok((ended.as_secs_f64() * 1e3, (began.elapsed() - ended).as_secs_f64() * 1e3))
        });
        let mut last = 0.0;
        let mut open = Vec::new();
        while began.elapsed() < HOLE {
            let at = began.elapsed();
            let stream = ground.client.netns().within(|| begin(ground.at(PORT)))??;
            if uplink_of(ground, stream.local_addr()?.port())? == Some(worst) {
                last = at.as_secs_f64() * 1e3;
            }
            open.push(stream);
            thread::sleep(BEGIN_EVERY.saturating_sub(began.elapsed() - at));
        }
        drop(open);
        let (ended, retried) = reading.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
        ground.set_outage(worst, false)?;
        Ok((last, ended, retried))
    })
}

/// Begins a connection, and does not wait for its answer.
fn begin(server: SocketAddr) -> Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &server) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}

/// Sends a byte every 10 ms to whoever connects, until it is told to stop and somebody connects.
fn serve(listener: &TcpListener, stop: &AtomicBool) {
    thread::scope(|scope| {
        while let Ok((stream, _)) = listener.accept()
            && !stop.load(Ordering::Relaxed)
        {
            scope.spawn(move || {
                // A full buffer is a client that does not read.
                let _it_is_new = stream.set_nonblocking(true);
                let is_over = |error: &std::io::Error| error.kind() != ErrorKind::WouldBlock;
                while !stop.load(Ordering::Relaxed) && !(&stream).write(&[0x5a]).is_err_and(|error| is_over(&error)) {
                    thread::sleep(Duration::from_millis(10));
                }
            });
        }
    });
}

/// Ends the server when it is dropped.
struct Ends<'a> {
    ground: &'a Ground,
    stop: &'a AtomicBool,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _it_is_there = self.ground.server.netns().within(|| TcpStream::connect(self.ground.at(PORT)));
    }
}

/// The uplink by which the client's connection from a port goes.
fn uplink_of(ground: &Ground, port: u16) -> Result<Option<usize>> {
    let mut found = None;
    ground.client.netns().within(|| {
        Conntrack::open()?.flows(None, &mut |flow| {
            let is_its = flow.is_tcp() && flow.original.source.port() == port;
            if is_its && flow.original.destination.ip() == ground.host() {
                found = (flow.mark >> SHIFT & NAMES).checked_sub(1).map(|place| place as usize);
            }
        })
    })??;
    Ok(found)
}

fn uplinks(daemon: &Daemon) -> Result<Vec<Value>> {
    let said: Value = serde_json::from_str(&daemon.fetch("/api/v1/uplinks")?)?;
    said["uplinks"].as_array().cloned().context("uplinks")
}

fn until(patience: Duration, what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !done()? {
        ensure!(began.elapsed() < patience, "never: {what}");
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
