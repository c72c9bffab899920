//! What a poll costs, beside `ss`: processor time, interleaved, medians.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use weirgate_linux::bpf::IterPoller;
use weirgate_linux::clock;
use weirgate_linux::diag::DiagPoller;
use weirgate_linux::netns::Netns;
use weirgate_linux::poll::{Filter, PollStats};
use weirgate_sockets::ledger::{Ledger, Options};
use weirgate_sockets::network::ClientNetworks;
use weirgate_sockets::record::{Origin, Record};
use weirgate_sockets::sample::{Sample, state};
use weirgate_store::Writer;
use weirgate_units::Duration;

use crate::cgroup::Cgroup;
use crate::stats::median;

/// Processor milliseconds of each kind of poll, one entry a round.
#[derive(Default)]
pub(super) struct Costs {
    pub(super) iter_ms: Vec<f64>,
    pub(super) netlink_ms: Vec<f64>,
    pub(super) ss_ms: Vec<f64>,
    /// Samples of the last poll of each.
    pub(super) iter_stats: PollStats,
    pub(super) netlink_stats: PollStats,
}

/// Polls `ns` by each means `rounds` times in turn; every sample goes through the ledger and becomes a record in a store.
pub(super) fn costs(ns: &Netns, dir: &Path, rounds: usize) -> Result<Costs> {
    let (mut iter, mut netlink) = (IterPoller::load()?, DiagPoller::new());
    let mut by_iter = Sink::open(&dir.join("store-iter"))?;
    let mut by_netlink = Sink::open(&dir.join("store-netlink"))?;
    let filter = Filter { states: 1 << state::ESTABLISHED, ..Filter::default() };
    let mut costs = Costs::default();
    // One round more: the first fills the ledgers and is not counted.
    for round in 0..=rounds {
        let (iter_ms, iter_stats) = by_iter.poll(ns, |each| Ok(iter.poll(ns, &filter, each)?))?;
        let (netlink_ms, netlink_stats) = by_netlink.poll(ns, |each| Ok(netlink.poll(ns, &filter, each)?))?;
        let ss_ms = ss_ms(ns)?;
        if round > 0 {
            costs.iter_ms.push(iter_ms);
            costs.netlink_ms.push(netlink_ms);
            costs.ss_ms.push(ss_ms);
        }
        (costs.iter_stats, costs.netlink_stats) = (iter_stats, netlink_stats);
    }
    Ok(costs)
}

/// The daemon's way of a sample: ledger, record, store.
struct Sink {
    ledger: Ledger,
    writer: Writer,
}

impl Sink {
    fn open(dir: &Path) -> Result<Self> {
        let _ = fs::remove_dir_all(dir);
        let origin = Origin { host: "lab".into(), pop: "lab".into(), boot_id: "lab".into() };
        Ok(Self {
            ledger: Ledger::new(Options::default()),
            writer: Writer::open(dir, &origin, weirgate_store::Options::default())?,
        })
    }

    /// Processor time of this thread from the first request to the last record handed over, in milliseconds.
    fn poll(
        &mut self,
        ns: &Netns,
        poll: impl FnOnce(&mut dyn FnMut(&Sample)) -> Result<PollStats>,
    ) -> Result<(f64, PollStats)> {
        let Self { ledger, writer } = self;
        let (start, time) = (clock::thread_cpu(), clock::unix());
        let stats = poll(&mut |sample| append(ledger, writer, sample, time))?;
        let cost = clock::thread_cpu().saturating_sub(start);
        self.ledger.handle_poll_end(ns.inode(), clock::boottime(), &mut |_| {});
        Ok((cost.as_secs_f64() * 1e3, stats))
    }
}

fn append(ledger: &mut Ledger, writer: &mut Writer, sample: &Sample, time: weirgate_units::UnixTime) {
    let Some(seen) = ledger.handle_sample(sample) else { return };
    writer.append(&Record {
        sample,
        time,
        sequence: seen.sequence,
        direction: seen.direction,
        listener_port: seen.listener_port,
        delivery_rate_max: seen.delivery_rate_max,
        network: ClientNetworks::default().of(seen.remote.ip()),
        asn: 0,
        country: [0; 2],
    });
}

/// Processor milliseconds of `ss -tinem state established`, its output thrown away, by the clock of a cgroup of its own.
fn ss_ms(ns: &Netns) -> Result<f64> {
    let cgroup = Cgroup::create(&format!("weirgate-ss-{}", std::process::id()))?;
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ > \"$1/cgroup.procs\" && exec ss -tinem state established", "ss"]).arg(cgroup.path());
    let status = ns.within(|| command.stdout(Stdio::null()).status())?.context("cannot run ss: run `make setup`")?;
    ensure!(status.success(), "ss ended with {status}");
    let usage = fs::read_to_string(cgroup.path().join("cpu.stat"))?;
    let usage = usage.lines().find_map(|l| l.strip_prefix("usage_usec ")).context("cpu.stat has no usage_usec")?;
    Ok(usage.trim().parse::<f64>()? / 1e3)
}

/// What encoding costs, in microseconds per record.
pub(super) struct Encoding {
    /// Processor time of the thread that appends, decoded sample to Arrow buffers: the median of the rounds.
    pub(super) append_us: f64,
    /// Processor time of all else in the process meanwhile: Parquet's encoding, compression and writing.
    pub(super) close_us: f64,
    pub(super) records: u64,
}

/// Appends the samples of a real poll to a store, again and again.
pub(super) fn encoding(ns: &Netns, dir: &Path, rounds: usize) -> Result<Encoding> {
    let dir = dir.join("store-encode");
    let _ = fs::remove_dir_all(&dir);
    let filter = Filter { states: 1 << state::ESTABLISHED, ..Filter::default() };
    let mut samples = Vec::new();
    IterPoller::load()?.poll(ns, &filter, &mut |sample| samples.push(*sample))?;
    let origin = Origin { host: "lab".into(), pop: "lab".into(), boot_id: "lab".into() };
    let mut writer = Writer::open(&dir, &origin, weirgate_store::Options::default())?;
    let time = clock::unix();
    let (process, mut rounds_took) = (clock::process_cpu(), Vec::new());
    for round in 0..rounds {
        let start = clock::thread_cpu();
        for sample in &samples {
            writer.append(&Record {
                sample,
                time,
                sequence: round as u32,
                direction: weirgate_sockets::record::Direction::Accepted,
                listener_port: sample.local_port,
                delivery_rate_max: sample.delivery_rate,
                network: ClientNetworks::default().of(sample.remote().ip()),
                asn: 0,
                country: [0; 2],
            });
        }
        rounds_took.push(clock::thread_cpu().saturating_sub(start));
        // The writing thread keeps up, so that no record is given up.
        writer.flush(clock::unix());
        while writer.status().pending > 0 {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
    let status = writer.close();
    let total = clock::process_cpu().saturating_sub(process);
    ensure!(status.written == status.appended, "the store lost records: {status:?}");
    let append = rounds_took.iter().fold(Duration::ZERO, |sum, took| sum.saturating_add(*took));
    let us = |d: Duration, records: usize| d.as_secs_f64() * 1e6 / records.max(1) as f64;
    Ok(Encoding {
        append_us: median(rounds_took.iter().map(|took| us(*took, samples.len()))),
        close_us: us(total.saturating_sub(append), status.appended as usize),
        records: status.appended,
    })
}
