//! One limit between the guest and its other end: laid, loaded and looked at.

use std::process::Child;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;
use weirgate_switch::limits::{LimitSettings, Mode};
use weirgate_units::{BitRate, Bytes};

use super::ground;
use super::mice;
use crate::guest::{Cable, Guest, HOST, Record, Way};
use crate::net::Namespace;
use crate::stats::sorted;

/// Before this nothing is counted: slow start.
const SETTLE: u64 = 1;

/// Milliseconds of a window.
const WINDOW: usize = 10;

/// What limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arm {
    pub(super) rate: BitRate,
    pub(super) way: Way,
    pub(super) mode: Mode,
}

/// Seconds of each part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) idle: u64,
    pub(super) load: u64,
    pub(super) mice: u64,
}

/// What was measured.
pub(super) struct One {
    pub(super) goodput_pct: f64,
    /// Round trips, sorted, in milliseconds: under load, and before it.
    pub(super) ping: Vec<f64>,
    pub(super) ping_idle: Vec<f64>,
    /// Windows that more left the limit in than it allows, and the most that did, in bytes; and windows that more came from the sender in.
    pub(super) windows_over: usize,
    pub(super) window_most: u64,
    pub(super) sender_windows_over: usize,
    pub(super) empty_receiver_pct: f64,
    pub(super) empty_sender_pct: f64,
    /// By the limit.
    pub(super) dropped: u64,
    /// See [`ground::CORES`].
    pub(super) cores_per_gbit: [f64; 2],
    /// Sorted, in milliseconds.
    pub(super) mice: Option<Vec<f64>>,
}

/// The guest and the namespace at the other end of its cable.
pub(super) struct Site {
    guest: Option<Guest>,
    host: Namespace,
    folder: TempDir,
    port: u16,
}

impl Arm {
    pub(super) fn name(&self) -> String {
        let way = if self.way == Way::FromGuest { "from" } else { "to" };
        format!("{}, {way} the guest: {}", self.rate, ground::Arm::Switch(self.mode).name())
    }

    fn limit(&self) -> LimitSettings {
        LimitSettings { rate: self.rate, burst: ground::burst(self.rate, self.mode), mode: self.mode }
    }
}

impl Site {
    pub(super) fn new() -> Result<Self> {
        let host = Namespace::create("host")?;
        host.set_congestion_control("cubic")?;
        host.set_sysctl("net.ipv4.tcp_no_metrics_save", "1")?;
        Ok(Self { guest: None, host, folder: TempDir::new()?, port: 5_200 })
    }

    /// Measures one limit, and with `mice` small transfers below it.
    pub(super) fn measure(&mut self, arm: Arm, times: Times, mice: bool) -> Result<One> {
        let cable = Cable::lay(&self.folder.path().join("vm.sock"), &self.host, Some((arm.way, arm.limit())))?;
        self.connect()?;
        let ping_idle = self.ping(times.idle)?;
        let (sender, receiver) = match arm.way {
            Way::FromGuest => (&cable.from_guest, &cable.to_host),
            Way::ToGuest => (&cable.from_host, &cable.to_guest),
        };
        let starts = [sender, receiver].map(|record| record.so_far().by_ms.len());
        let before = ground::Cpu::now(cable.cpu()?);
        let (received, ping) = self.load(arm.way, times.load)?;
        let after = ground::Cpu::now(cable.cpu()?);
        let since = |record: &Record, start| record.so_far().by_ms.split_off(start);
        let (came, passed) = (since(sender, starts[0]), since(receiver, starts[1]));
        let allowed = arm.rate.bytes_in(weirgate_units::Duration::from_millis(WINDOW as u64)) + arm.limit().burst;
        let over = |by_ms: &[u64]| windows(by_ms).filter(|bytes| Bytes::new(*bytes) > allowed).count();
        let counters = cable.counters()?;
        Ok(One {
            goodput_pct: received / crate::limit::TCP_PAYLOAD / arm.rate.as_bits_per_sec() as f64 * 100.0,
            ping,
            ping_idle,
            windows_over: over(&passed),
            window_most: windows(&passed).max().unwrap_or(0),
            sender_windows_over: over(&came),
            empty_receiver_pct: empty_pct(receiver, starts[1], times.load),
            empty_sender_pct: empty_pct(sender, starts[0], times.load),
            dropped: counters.dropped_rate + counters.dropped_room + counters.dropped_codel,
            cores_per_gbit: before.per_gbit(&after, passed.iter().sum()),
            mice: if mice { Some(self.mice(arm.way, times.mice)?) } else { None },
        })
    }

    /// Has the guest use the cable that was just laid.
    fn connect(&mut self) -> Result<()> {
        if let Some(guest) = &mut self.guest {
            guest.expect("ip neigh flush dev eth0")?;
        } else {
            let mut guest = Guest::with_card(&self.folder.path().join("vm.sock"), 1)?;
            guest.expect("echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save")?;
            mice::serve(&mut guest)?;
            self.guest = Some(guest);
        }
        // QEMU connects again within a second, and its link goes down and up meanwhile.
        self.guest()?.expect(&format!("for i in $(seq 20); do ping -c 1 -W 1 {HOST} && exit; done; exit 1"))?;
        Ok(self.guest()?.link_up()?)
    }

    fn guest(&mut self) -> Result<&mut Guest> {
        self.guest.as_mut().context("the guest was booted")
    }

    /// Sorted round trips, in milliseconds.
    fn ping(&mut self, seconds: u64) -> Result<Vec<f64>> {
        let said = self.guest()?.expect(&ping(seconds))?;
        round_trips(&said)
    }

    /// One connection, the payload that came through in bit/s, and pings once it has settled.
    fn load(&mut self, way: Way, seconds: u64) -> Result<(f64, Vec<f64>)> {
        let (mut server, connect) = self.elephant(way, seconds)?;
        let pings = ping(seconds - SETTLE);
        let all =
            format!("{connect} -J > /tmp/iperf & sleep {}; {pings} > /tmp/ping; wait $! && cat /tmp/iperf", SETTLE + 1);
        let said = self.guest()?.expect(&all);
        let _ = server.kill();
        let _ = server.wait();
        let pings = self.guest()?.expect("cat /tmp/ping")?;
        Ok((ground::received(&ground::read_answer(said?.as_bytes())?), round_trips(&pings)?))
    }

    /// Small transfers beside one connection: how long they took, sorted, in milliseconds.
    fn mice(&mut self, way: Way, seconds: u64) -> Result<Vec<f64>> {
        let (mut server, connect) = self.elephant(way, seconds + SETTLE)?;
        self.guest()?.expect(&format!("{connect} > /dev/null 2>&1 &"))?;
        thread::sleep(Duration::from_secs(SETTLE + 1));
        let took = mice::run(&self.host, way, Duration::from_secs(seconds));
        let _ = server.kill();
        let _ = server.wait();
        Ok(sorted(took?))
    }

    /// An iperf3 server, and the client's command.
    fn elephant(&mut self, way: Way, seconds: u64) -> Result<(Child, String)> {
        self.port += 1;
        let server = ground::serve(&self.host, "", self.port)?;
        let back = if way == Way::ToGuest { "-R" } else { "" };
        Ok((server, format!("iperf3 -c {HOST} -p {} -t {seconds} -O {SETTLE} {back}", self.port)))
    }
}

/// Seconds that ping waits for an answer.
const PATIENCE: u64 = 2;

/// The command that pings 50 times a second, before all else that the guest has to do: its one processor is busy with the load, and a
/// ping is to wait for what the limit has waiting.
fn ping(seconds: u64) -> String {
    format!("sh -c 'renice -n -20 -p $$ > /dev/null && exec ping -i 0.02 -c {} -W {PATIENCE} {HOST}'", seconds * 50)
}

/// Round trips that ping tells, sorted, in milliseconds; one that was lost took as long as it waits for an answer.
fn round_trips(said: &str) -> Result<Vec<f64>> {
    let sent = said.lines().find_map(|line| line.split_once(" packets transmitted")?.0.parse().ok());
    let sent: usize = sent.with_context(|| format!("ping does not say how many it sent: {said}"))?;
    let answered = said.lines().filter_map(|line| line.split("time=").nth(1)?.split(' ').next()?.parse().ok());
    let answered: Vec<f64> = answered.collect();
    let lost = std::iter::repeat_n(1e3 * PATIENCE as f64, sent.saturating_sub(answered.len()));
    Ok(sorted(answered.iter().copied().chain(lost)))
}

/// Bytes in each window, one from each millisecond on.
fn windows(by_ms: &[u64]) -> impl Iterator<Item = u64> {
    by_ms.windows(WINDOW).map(|window| window.iter().sum())
}

/// Windows in which nothing passed, of those of a settled connection that began after `start`.
fn empty_pct(record: &Record, start: usize, seconds: u64) -> f64 {
    let by_ms = record.so_far().by_ms;
    let first = by_ms.iter().skip(start).position(|bytes| *bytes > 0).map_or(by_ms.len(), |at| start + at);
    let settled = by_ms.get(first + SETTLE as usize * 1_000..).unwrap_or_default();
    // What is missing at the end is nothing, too.
    let windows = (seconds as usize * 1_000 - 200) / WINDOW;
    let full = settled.chunks(WINDOW).take(windows).filter(|window| window.iter().any(|bytes| *bytes > 0)).count();
    100.0 * (1.0 - full as f64 / windows as f64)
}
