//! The experiment `sockets-scale`: what it costs to look at 100,000 sockets, and whether any connection is missed.

mod closes;
mod hold;
mod memory;
mod poll;

use std::path::Path;

use anyhow::Result;
use serde_json::json;
use weirgate_linux::netns::Netns;

use crate::daemon::Daemon;
use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::net::Namespace;
use crate::report::{Report, Table, number};
use crate::stats::{median, quantile, sorted};
use hold::Held;

pub use hold::hold;

/// How much of everything.
struct Size {
    connections: u32,
    poll_rounds: usize,
    encode_rounds: usize,
    short_connections: u64,
    paced_seconds: u64,
    daemon_polls: u64,
    daemon_interval_s: u64,
}

impl Size {
    const fn of(form: Form) -> Self {
        match form {
            Form::Full => Self {
                connections: 50_000,
                poll_rounds: 10,
                encode_rounds: 10,
                short_connections: 100_000,
                paced_seconds: 20,
                daemon_polls: 10,
                daemon_interval_s: 10,
            },
            // The same sockets, since the bounds are about them; less of the rest.
            Form::Quick | Form::Demo => Self {
                connections: 50_000,
                poll_rounds: 5,
                encode_rounds: 3,
                short_connections: 30_000,
                paced_seconds: 5,
                daemon_polls: 10,
                daemon_interval_s: 2,
            },
        }
    }
}

/// Closes a second of the paced run.
const RATE: u64 = 5_000;

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let size = Size::of(options.form);
    let report = Report::begin(options, "sockets-scale", "Looking at many sockets");
    let dir = options.dir("sockets-scale")?;
    let place = Namespace::create("scale")?;
    let ns = place.netns();
    // Orphans and TIME-WAIT sockets of 100,000 short connections.
    place.set_sysctl("net.ipv4.tcp_max_tw_buckets", "262144")?;
    options.say(format!("holding {} sockets", u64::from(size.connections) * 2));
    let held = Held::start(&options.weirgate, ns, size.connections)?;
    options.say("polling them");
    let costs = poll::costs(ns, &dir, size.poll_rounds)?;
    options.say("encoding their records");
    let encoding = poll::encoding(ns, &dir, size.encode_rounds)?;
    options.say("watching the daemon's memory, its page open");
    let memory = watch_memory(options, &dir, place.name(), &size)?;
    let sockets = u64::from(held.connections) * 2;
    drop(held);
    options.say("making short connections");
    let fast = short(options, &dir, "fast", place.name(), ns, size.short_connections, None)?;
    let paced = short(options, &dir, "paced", place.name(), ns, RATE * size.paced_seconds, Some(RATE))?;

    let ratio = |ours: &[f64]| median(ours.iter().copied()) / median(costs.ss_ms.iter().copied());
    let (iter_ratio, netlink_ratio) = (ratio(&costs.iter_ms), ratio(&costs.netlink_ms));
    let mut expectations = Expectations::of("sockets-scale")?;
    expectations.measured("poll_cpu_vs_ss", iter_ratio)?.explanation = Some(format!(
        "by the iterator; by netlink with all fields {}, for which at most 0.5 is expected",
        number(netlink_ratio)
    ));
    expectations.measured("rss_mb", memory.peak_mb)?;
    expectations.measured("encode_us_per_record", encoding.append_us)?.explanation = Some(format!(
        "writing Parquet costs {} us per record more, for which at most 2 is expected",
        number(encoding.close_us)
    ));
    expectations.measured("closes_unaccounted", fast.unaccounted() as f64)?;
    expectations.measured("closes_lost_at_5000_per_s", (paced.made - paced.recorded) as f64)?;

    let tables = vec![cost_table(&costs), close_table(&fast, &paced), memory.table()];
    let settings = json!({ "form": options.form.name(), "sockets": sockets, "closes_per_s": RATE });
    let mut report = report.finish(method(&size, &memory), settings, expectations, tables)?;
    report.title = format!("Looking at {sockets} sockets");
    report.add_numbers([
        ("sockets", json!(sockets)),
        ("poll_cpu_vs_ss_netlink", json!(netlink_ratio)),
        ("iter_ms", json!(costs.iter_ms)),
        ("netlink_ms", json!(costs.netlink_ms)),
        ("ss_ms", json!(costs.ss_ms)),
        ("parquet_us_per_record", json!(encoding.close_us)),
        ("encoded_records", json!(encoding.records)),
    ]);
    Ok(report)
}

fn method(size: &Size, memory: &memory::Memory) -> String {
    format!(
        "{} loopback connections, both ends of each on this host, in a network namespace of their own. A poll's cost is the \
         processor time of the polling thread (kernel and user) from the first request to the last record handed to the store, \
         through the same ledger and store as in the daemon; `ss -tinem state established` with its output thrown away is \
         charged by a cgroup of its own; the three take turns, {} rounds after one that is not counted, and medians are \
         compared. Memory is RssAnon + RssShmem of `weirgate run` once a second over {} polls, with the store on and {}. \
         Short connections are counted by the client that makes them and held against the store's close records and the \
         daemon's own counts of loss. Not measured: sockets that are busy while they are looked at, other kernels.",
        size.connections, size.poll_rounds, size.daemon_polls, memory.viewer
    )
}

fn cost_table(costs: &poll::Costs) -> Table {
    let mut out = Table::new(
        "Processor time of one look at all sockets, ms",
        &["by", "median", "p10", "p90", "of ss", "sockets", "MB read"],
    );
    let ss = median(costs.ss_ms.iter().copied());
    let empty = weirgate_linux::poll::PollStats::default();
    for (name, times, stats) in [
        ("BPF iterator", &costs.iter_ms, costs.iter_stats),
        ("netlink", &costs.netlink_ms, costs.netlink_stats),
        ("ss -tinem", &costs.ss_ms, empty),
    ] {
        let times = sorted(times.iter().copied());
        let at = |q: f64| number(quantile(&times, q));
        out.rows.push(vec![
            name.into(),
            at(0.5),
            at(0.1),
            at(0.9),
            number(quantile(&times, 0.5) / ss),
            if stats.sockets > 0 { stats.sockets.to_string() } else { "-".into() },
            if stats.bytes > 0 { number(stats.bytes as f64 / 1e6) } else { "-".into() },
        ]);
    }
    out
}

/// What became of a run of short connections.
struct Short {
    made: u64,
    per_s: f64,
    recorded: u64,
    counted_lost: u64,
}

impl Short {
    /// Neither recorded nor counted as lost.
    fn unaccounted(&self) -> u64 {
        self.made.saturating_sub(self.recorded + self.counted_lost)
    }
}

fn close_table(fast: &Short, paced: &Short) -> Table {
    let mut out =
        Table::new("Short connections", &["run", "made", "per second", "recorded", "counted as lost", "unaccounted"]);
    for (name, short) in [("as fast as one thread can", fast), ("paced", paced)] {
        out.rows.push(vec![
            name.into(),
            short.made.to_string(),
            number(short.per_s),
            short.recorded.to_string(),
            short.counted_lost.to_string(),
            short.unaccounted().to_string(),
        ]);
    }
    out
}

fn watch_memory(options: &Options, dir: &Path, ns: &str, size: &Size) -> Result<memory::Memory> {
    let sections = format!("[sockets]\ninterval = \"{} s\"\nnamespaces = [\"{ns}\"]\n", size.daemon_interval_s);
    let mut daemon = Daemon::start(&options.weirgate, &dir.join("daemon-memory"), &sections)?;
    let memory = memory::watch(&daemon, dir, size.daemon_polls * size.daemon_interval_s)?;
    daemon.stop()?;
    Ok(memory)
}

fn short(
    options: &Options,
    dir: &Path,
    name: &str,
    ns_name: &str,
    ns: &Netns,
    count: u64,
    rate: Option<u64>,
) -> Result<Short> {
    let dir = dir.join(format!("daemon-{name}"));
    let _ = std::fs::remove_dir_all(&dir);
    let sections = format!("[sockets]\ninterval = \"2 s\"\nnamespaces = [\"{ns_name}\"]\nclose = \"sockops\"\n");
    let mut daemon = Daemon::start(&options.weirgate, &dir, &sections)?;
    let burst = closes::burst(ns, count, rate)?;
    // Two polls, so that what vanished has been found missing twice.
    std::thread::sleep(std::time::Duration::from_secs(5));
    let metrics = daemon.fetch("/metrics")?;
    daemon.stop()?;
    let lost = ["close_ring_failures_total", "vanished_total", "store_lost_records_total"];
    Ok(Short {
        made: burst.made,
        per_s: burst.made as f64 / burst.took.as_secs_f64(),
        recorded: closes::recorded(&daemon.store(), burst.port)?,
        counted_lost: lost.iter().map(|name| counter(&metrics, name)).sum(),
    })
}

/// A counter of Prometheus' text format, 0 where it is not there.
fn counter(metrics: &str, name: &str) -> u64 {
    let value = metrics.lines().find_map(|l| l.strip_prefix("weirgate_")?.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|v| v.parse().ok()).unwrap_or(0)
}
