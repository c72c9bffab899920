//! The benchmark `bench-switch`: what a frame costs from where it was read to where it would be written, in memory: its headers, its way,
//! its class, its limits, the wheel. By one thread and by two, which serve queues of the same ports and keep limits together.

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant as Clock;

use anyhow::{Result, anyhow, ensure};
use serde_json::json;
use weirgate_linux::clock;
use weirgate_port::Packet;
use weirgate_switch::bridge::{Bridge, BridgeClass, BridgePort};
use weirgate_switch::class::Rule;
use weirgate_switch::frame::Accounting;
use weirgate_switch::limits::{ClassSettings, LimitId, LimitSettings, Mode, SharedLimit};
use weirgate_units::{BitRate, Bytes, Instant};

use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::report::{Report, Table, number};
use crate::stats::median;

/// Ports of tenants, beside the one that all of them send by.
const TENANTS: usize = 64;

/// Of a tenant.
const FLOWS: usize = 16;

/// Frames that are read at a time, and those of a flow that wait.
const BATCH: usize = 32;
const WAITING: usize = 2;

/// Bytes of a frame, without its check sequence: the shortest there is.
const FRAME: usize = 60;

const UPLINK: BitRate = BitRate::from_bits_per_sec(400_000_000_000);

/// What is before a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// A port that leads to another one only.
    Peer,
    /// The table of addresses.
    Table,
    /// That, and two limits which it does not reach.
    Limits,
    /// That, and two limits of which it waits for one.
    Wait,
}

const ARMS: [(Before, &str); 4] = [
    (Before::Peer, "ports with a peer, no limit"),
    (Before::Table, "addresses are learnt, no limit"),
    (Before::Limits, "and a tenant's and the uplink's limits, which are not reached"),
    (Before::Wait, "and each frame waits for its tenant's limit"),
];

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "bench-switch", "What a frame costs in the switch");
    let (repeats, count) = if options.form == Form::Full { (9, 4_000_000) } else { (5, 1_000_000) };
    let mut rates: [[Vec<f64>; 2]; ARMS.len()] = Default::default();
    for repeat in 0..repeats {
        options.say(format!("{} of {repeats}", repeat + 1));
        for ((before, _), rates) in ARMS.iter().zip(&mut rates) {
            for (threads, rates) in (1..).zip(rates) {
                rates.push(million_per_second(*before, threads, count)?);
            }
        }
    }
    let mut table = Table::new(
        "Frames of 60 bytes",
        &["what is before it", "million a second, one thread", "ns a frame", "two threads", "two over one"],
    );
    let mut measured = Vec::new();
    for ((_, name), [one, two]) in ARMS.iter().zip(rates) {
        let ratio = median(one.iter().zip(&two).map(|(one, two)| two / one));
        let [one, two] = [one, two].map(median);
        table.rows.push(vec![(*name).to_owned(), number(one), number(1e3 / one), number(two), number(ratio)]);
        measured.push((one, ratio));
    }
    let mut expectations = Expectations::of("bench-switch")?;
    let [.., (limits, scaling), (wait, _)] = measured[..] else { return Err(anyhow!("four arms")) };
    expectations.measured("mpps_per_core", limits)?.explanation = Some(format!(
        "where the limits are not reached; {} where each frame waits for one, which is to be queued and to go through the wheel beside that",
        number(wait)
    ));
    expectations.measured("threads_2_scaling", scaling)?.explanation =
        Some("with limits that both threads keep together, and are not reached".into());
    report.finish(
        format!(
            "Median of {repeats} interleaved runs of {count} frames for each thread: {TENANTS} tenants with a port each, {FLOWS} flows of \
             UDP over IPv4 of each, to a host by one more port. A frame is copied into a buffer as from a device, {BATCH} at a time, handed in, \
             taken out, and its buffer is used again: no device, no system call. Where frames wait, {WAITING} of each flow do, for limits with rates \
             log-uniform from 0.1 to 10 Gbit/s, and one that has left comes in again: in virtual time, each thread with limits of its \
             own. Otherwise time is real, and two threads have the same addresses and limits, as [switch] `threads = 2` has it, whose \
             shares are looked at with each batch."
        ),
        json!({ "repeats": repeats, "count": count, "tenants": TENANTS, "flows": FLOWS, "batch": BATCH }),
        expectations,
        vec![table],
    )
}

/// Million frames a second, of all threads together.
fn million_per_second(before: Before, threads: usize, count: usize) -> Result<f64> {
    let now = clock::monotonic();
    let is_shared = threads > 1 && before == Before::Limits;
    let shared: Option<Vec<Arc<SharedLimit>>> = is_shared.then(|| {
        let limit = |_| Arc::new(SharedLimit::new(now, settings(UPLINK), threads));
        (0..=TENANTS).map(limit).collect()
    });
    let barrier = Barrier::new(threads);
    let mut lanes = Vec::new();
    for member in 0..threads {
        let mut lane = Lane::new(now, before, shared.as_deref().map(|shared| (shared, member)))?;
        if let Some(first) = lanes.first() {
            lane.learn_with(first);
        }
        lanes.push(lane);
    }
    let took = thread::scope(|scope| {
        let ran: Vec<_> = lanes
            .into_iter()
            .map(|mut lane| {
                let barrier = &barrier;
                scope.spawn(move || {
                    // Buffers and tables are there then.
                    lane.run(before, count / 20)?;
                    barrier.wait();
                    let began = Clock::now();
                    lane.run(before, count)?;
                    Ok(began.elapsed().as_secs_f64())
                })
            })
            .collect();
        let took = ran.into_iter().map(|ran| ran.join().map_err(|_| anyhow!("a thread panicked"))?);
        took.collect::<Result<Vec<f64>>>()
    })?;
    let longest = took.into_iter().fold(0.0, f64::max);
    Ok((threads * count) as f64 / 1e6 / longest)
}

const fn settings(rate: BitRate) -> LimitSettings {
    LimitSettings { rate, burst: Bytes::new(1 << 20), mode: Mode::Pace }
}

/// A thread's bridge, and what comes to it.
struct Lane {
    bridge: Bridge,
    ports: Vec<BridgePort>,
    /// Of each flow: its frame.
    frames: Vec<[u8; FRAME]>,
    is_shared: bool,
    next: usize,
    /// Where time is not real.
    now: Instant,
    waiting: usize,
}

impl Lane {
    fn new(now: Instant, before: Before, shared: Option<(&[Arc<SharedLimit>], usize)>) -> Result<Self> {
        let rate = |bits| BitRate::from_bits_per_sec(bits);
        let mut bridge = Bridge::new(now, rate(100_000_000), rate(10_000_000_000), Bytes::new(256 << 20), 7);
        let ports: Vec<BridgePort> = (0..=TENANTS).map(|_| bridge.add_port()).collect();
        let frames = (0..TENANTS * FLOWS).map(frame).collect();
        if before == Before::Peer {
            ports[1..].iter().for_each(|port| bridge.join(*port, ports[0]));
        } else {
            // The host that all send to is known.
            bridge.set_address(weirgate_switch::frame::Mac(HOST), ports[0])?;
        }
        if matches!(before, Before::Limits | Before::Wait) {
            let limits: Vec<LimitId> = (0..=TENANTS)
                .map(|at| match shared {
                    Some((shared, member)) => bridge.add_shared_limit(now, &shared[at], member),
                    None if before == Before::Wait && at > 0 => {
                        let bits = 1e8 * 100_f64.powf((at - 1) as f64 / (TENANTS - 1) as f64);
                        let burst = Bytes::new(1_514);
                        bridge.add_limit(now, LimitSettings { burst, ..settings(rate(bits as u64)) })
                    }
                    None => bridge.add_limit(now, settings(UPLINK)),
                })
                .collect();
            let mut rules = Vec::new();
            for at in 1..=TENANTS {
                let class = BridgeClass {
                    limits: vec![limits[at], limits[0]],
                    accounting: Accounting::default(),
                    queue: ClassSettings::default(),
                };
                let class = bridge.add_class(&class);
                rules.push(Rule { port: Some(at as u16), ..Rule::any(at as u32, class) });
            }
            bridge.set_rules(rules, Vec::new())?;
        }
        Ok(Self { bridge, ports, frames, is_shared: shared.is_some(), next: 0, now, waiting: 0 })
    }

    fn learn_with(&mut self, other: &Self) {
        self.bridge.learn_with(&other.bridge);
    }

    /// Hands in the next frame of a flow.
    fn come(&mut self, now: Instant, flow: usize) {
        let port = self.ports[1 + flow / FLOWS];
        black_box(self.bridge.handle_frame(now, port, None, Packet::copy_of(&self.frames[flow])));
    }

    fn run(&mut self, before: Before, count: usize) -> Result<()> {
        if before == Before::Wait { self.wait(count) } else { self.pass(count) }
    }

    fn pass(&mut self, count: usize) -> Result<()> {
        let mut left = 0;
        let mut came = 0;
        while left < count {
            let now = clock::monotonic();
            if self.is_shared {
                self.bridge.balance(now);
            }
            for _ in 0..BATCH.min(count - came) {
                self.come(now, self.next);
                self.next = (self.next + 1) % self.frames.len();
                came += 1;
            }
            while let Some(frame) = self.bridge.poll_frame(now) {
                black_box(frame);
                left += 1;
            }
        }
        self.check()
    }

    /// In virtual time: whoever leaves comes in again.
    fn wait(&mut self, count: usize) -> Result<()> {
        while self.waiting < WAITING * self.frames.len() {
            self.come(self.now, self.waiting % self.frames.len());
            self.waiting += 1;
        }
        let mut left = 0;
        let mut again = Vec::with_capacity(BATCH);
        while left < count {
            let due = self.bridge.poll_at().ok_or_else(|| anyhow!("nothing waits any more"))?;
            self.now = self.now.max(due);
            while again.len() < BATCH
                && let Some((_, packet)) = self.bridge.poll_frame(self.now)
            {
                again.push(flow_of(packet.bytes()));
            }
            left += again.len();
            for flow in again.drain(..) {
                self.come(self.now, flow);
            }
        }
        self.check()
    }

    /// Nothing was dropped, on its way or by a limit.
    fn check(&self) -> Result<()> {
        let counters = self.bridge.counters();
        let dropped = self.ports.iter().map(|port| self.bridge.dropped(*port)).map(|of| of.malformed + of.filtered);
        let dropped = dropped.sum::<u64>() + counters.limited + counters.added;
        ensure!(dropped == 0, "{dropped} frames were dropped, or sent to all: {counters:?}");
        Ok(())
    }
}

/// The host's address, which is behind the uplink.
const HOST: [u8; 6] = [2, 0, 0, 1, 0, 0];

/// A flow's: UDP over IPv4 of its tenant, whose source port is its number.
fn frame(flow: usize) -> [u8; FRAME] {
    let mut bytes = [0; FRAME];
    bytes[..6].copy_from_slice(&HOST);
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, (flow / FLOWS) as u8]);
    bytes[12..18].copy_from_slice(&[0x08, 0x00, 0x45, 0x00, 0x00, (FRAME - 14) as u8]);
    bytes[22..24].copy_from_slice(&[64, 17]);
    bytes[26..30].copy_from_slice(&[10, 0, (flow / FLOWS) as u8, 1]);
    bytes[30..34].copy_from_slice(&[192, 0, 2, 1]);
    bytes[34..36].copy_from_slice(&(flow as u16).to_be_bytes());
    bytes[36..38].copy_from_slice(&53_u16.to_be_bytes());
    bytes[38..40].copy_from_slice(&((FRAME - 34) as u16).to_be_bytes());
    bytes
}

fn flow_of(frame: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([frame[34], frame[35]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_frames_of_each_arm_come_through() {
        for (before, name) in ARMS {
            for threads in 1..=2 {
                let rate = million_per_second(before, threads, 5_000);
                assert!(rate.as_ref().is_ok_and(|rate| *rate > 0.0), "{name}, {threads}: {rate:?}");
            }
        }
    }
}
