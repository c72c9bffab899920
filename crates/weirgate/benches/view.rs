//! What the page costs the daemon: a record in the view, the end of a poll, and an answer, over 100,000 connections in
//! 10,000 networks. Prints nanoseconds, the median of eleven passes, and the memory that the view holds.
//!
//! `cargo bench -p weirgate --bench view`
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::fs;
use std::hint::black_box;
use std::time::Instant;

use weirgate::view::{self, Order, PollEnd, api};
use weirgate_sockets::record::{Direction, Record};
use weirgate_sockets::sample::{CcName, Field, Sample, mapped, state};
use weirgate_units::{Duration, Prefix, UnixTime};

const CONNECTIONS: u32 = 100_000;
const NETWORKS: u32 = 10_000;
const PASSES: u64 = 11;

fn main() {
    let samples: Vec<Sample> = (0..CONNECTIONS).map(sample).collect();
    let networks: Vec<Prefix> = samples.iter().map(|s| Prefix::client_network(s.remote().ip())).collect();
    let before = anonymous_kb();
    let (mut collector, shared) = view::new(api::Facts::default());
    let (mut records, mut polls, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    for pass in 0..PASSES {
        let began = Instant::now();
        for (sample, network) in samples.iter().zip(&networks) {
            collector.handle_record(black_box(&Record {
                sample,
                time: UnixTime::default(),
                sequence: 0,
                direction: Direction::Accepted,
                listener_port: 443,
                delivery_rate_max: 0,
                network: *network,
                asn: 0,
                country: [0; 2],
            }));
        }
        records.push(began.elapsed().as_nanos() / u128::from(CONNECTIONS));
        let began = Instant::now();
        let now = UnixTime::from_nanos((pass + 1) * 10_000_000_000);
        collector.handle_poll_end(PollEnd { now, took: Duration::ZERO, bytes: 0, complete: true });
        polls.push(began.elapsed().as_nanos());
        let began = Instant::now();
        black_box(shared.networks(now, Order::Goodput, 15));
        answers.push(began.elapsed().as_nanos());
    }
    let held = anonymous_kb().saturating_sub(before);
    for (name, mut times) in [("record", records), ("poll end", polls), ("answer of 15 rows", answers)] {
        times.sort_unstable();
        println!("{name:18} {:>12} ns", times[times.len() / 2]);
    }
    println!("{:18} {held:>12} KB", "memory");
}

/// Connections come as a kernel's hash table has them: neighbours are of different networks.
fn sample(n: u32) -> Sample {
    let network = n.wrapping_mul(2_654_435_761) % NETWORKS;
    let [_, _, high, low] = network.to_be_bytes();
    let mut sample = Sample {
        state: state::ESTABLISHED,
        remote: mapped([10, high, low, 1].into()),
        cc: CcName::new(if n.is_multiple_of(5) { "bbr" } else { "cubic" }).expect("a name"),
        bytes_acked: u64::from(n) * 1_000,
        bytes_sent: u64::from(n) * 1_001,
        bytes_retrans: u64::from(n),
        unacked: n & 1,
        delivery_rate: u64::from(n) * 100 + 1,
        rtt_us: 10_000 + n,
        min_rtt_us: 9_000,
        ..Sample::default()
    };
    sample.set_given(Field::TcpInfo);
    sample.set_given(Field::MinRttUs);
    sample
}

/// This process's anonymous memory.
fn anonymous_kb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}
