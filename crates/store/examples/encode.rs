//! What a record costs: `cargo run --release -p weirgate-store --example encode [RECORDS] [FOLDER]`.
//!
//! Times are CPU time of the thread that does the work, over the median of five runs:
//!
//! - **encode**: from a decoded sample to Arrow buffers, no compression, no I/O. The bar is 0.2 us.
//! - **message**: from a decoded sample to a message of protobuf's, for Kafka. The bar is 0.2 us.
//! - **write**: the rest of the way into a closed Parquet file: column encodings, compression, the disk. The bar is 2
//!   us.
//! - **read**: back to a record.
//! - **memory**: what the writer adds to the process's own memory at its largest, of the first run.
//!
//! The samples are those of 10,000 connections that are polled again and again: counters grow, most of them by
//! little, a third is idle.
#![allow(clippy::disallowed_methods, reason = "this room touches the world: clocks, files, threads are its work")]

use std::path::{Path, PathBuf};

use weirgate_sockets::record::{Direction, Origin, Record};
use weirgate_sockets::sample::{CcName, Sample, flag, mapped, state};
use weirgate_store::export::ProtobufEncoder;
use weirgate_store::{Anonymise, Encoder, Options, TimeRange, Writer, for_each_record};
use weirgate_units::{Prefix, UnixTime};

const CONNECTIONS: u64 = 10_000;
const START: u64 = 1_795_291_200_000_000_000;

fn main() {
    let mut args = std::env::args().skip(1);
    let records = args.next().map_or(400_000, |n| n.parse().expect("RECORDS is a number"));
    let folder = args
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from)
        .join(format!("weirgate-encode-{}", std::process::id()));
    let mut connections: Vec<Sample> = (0..CONNECTIONS).map(connection).collect();

    let encode = median(|| encode(&mut connections, records));
    let message = median(|| message(&mut connections, records));
    let mut bytes = 0;
    let mut memory = 0;
    let write = median(|| {
        let _ = std::fs::remove_dir_all(&folder);
        let before = anonymous_kb();
        let (micros, written, largest) = write(&mut connections, records, &folder);
        bytes = written;
        // Later runs begin with what the allocator kept of the first.
        memory = memory.max(largest.saturating_sub(before));
        micros
    });
    let read = median(|| read(&folder, records));
    let _ = std::fs::remove_dir_all(&folder);
    println!("encode {encode:.3} us/record");
    println!("message {message:.3} us/record");
    println!("write  {write:.3} us/record, {:.1} B/record", bytes as f64 / records as f64);
    println!("read   {read:.3} us/record");
    println!("memory {memory} kB more while it writes");
}

fn median(mut run: impl FnMut() -> f64) -> f64 {
    let mut times: Vec<f64> = (0..5).map(|_| run()).collect();
    times.sort_by(f64::total_cmp);
    times[2]
}

/// Polls all connections again and again, `records` times in all, and hands each record out.
fn poll(connections: &mut [Sample], records: u64, mut each: impl FnMut(&Record<'_>)) {
    for n in 0..records {
        let sample = &mut connections[(n % CONNECTIONS) as usize];
        step(sample, n);
        let network = Prefix::client_network(sample.remote().ip());
        let time = UnixTime::from_nanos(START + n / CONNECTIONS * 10_000_000_000 + n % CONNECTIONS * 1_000);
        each(&Record {
            sample,
            time,
            sequence: (n / CONNECTIONS) as u32,
            direction: Direction::Accepted,
            listener_port: 443,
            delivery_rate_max: sample.delivery_rate,
            network,
            asn: 64_500 + (sample.cookie % 50) as u32,
            country: *b"DE",
        });
    }
}

fn encode(connections: &mut [Sample], records: u64) -> f64 {
    // What making the records costs is measured apart and taken off.
    let idle = thread_micros(|| poll(connections, records, |record| _ = std::hint::black_box(record)));
    let mut encoder = Encoder::new(&origin(), Anonymise::Off);
    let full = thread_micros(|| {
        poll(connections, records, |record| {
            if encoder.push(record) {
                std::hint::black_box(encoder.take());
            }
        });
    });
    (full - idle) / records as f64
}

fn message(connections: &mut [Sample], records: u64) -> f64 {
    let idle = thread_micros(|| poll(connections, records, |record| _ = std::hint::black_box(record)));
    let mut encoder = ProtobufEncoder::new(&origin(), Anonymise::Off, true);
    let mut out = Vec::with_capacity(1 << 24);
    let full = thread_micros(|| {
        poll(connections, records, |record| {
            if out.len() + 4_096 > out.capacity() {
                out.clear();
            }
            encoder.push(record, 1, &mut out);
        });
    });
    (full - idle) / records as f64
}

fn write(connections: &mut [Sample], records: u64, folder: &Path) -> (f64, u64, u64) {
    let mut largest = 0;
    let mut count = 0u64;
    let mut writer = Writer::open(folder, &origin(), Options::default()).expect("the folder can be written");
    let before = process_micros();
    let mine = thread_micros(|| {
        poll(connections, records, |record| {
            writer.append(record);
            count += 1;
            if count.is_multiple_of(10_000) {
                largest = largest.max(anonymous_kb());
            }
        });
    });
    let mut status = writer.status();
    let closing = thread_micros(|| status = writer.close());
    assert_eq!(status.written, records, "{status:?}");
    ((process_micros() - before - mine - closing) / records as f64, status.bytes_written, largest)
}

fn read(folder: &Path, records: u64) -> f64 {
    let mut sum = 0;
    let micros = thread_micros(|| {
        let done = for_each_record(folder, TimeRange::ALL, &mut |record, _| {
            sum += record.sample.bytes_acked;
            true
        });
        assert_eq!(done.expect("it was just written").records, records);
    });
    std::hint::black_box(sum);
    micros / records as f64
}

fn origin() -> Origin {
    Origin {
        host: "edge-7".to_owned(),
        pop: "fra".to_owned(),
        boot_id: "5ad5f0a8-9d2f-4c6e-8f3b-2f1d1c0e9a77".to_owned(),
    }
}

/// Scatters bits of `n` (the finaliser of SplitMix64).
fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

fn connection(n: u64) -> Sample {
    let chance = mix(n);
    let remote = [100, 64 + (chance >> 8 & 63) as u8, (chance >> 16) as u8, (chance >> 24) as u8];
    Sample {
        state: state::ESTABLISHED,
        flags: flag::TIMESTAMPS | flag::SACK | flag::ACCEPTED,
        family: 4,
        local_port: 443,
        remote_port: 1_024 + (chance >> 32 & 0x7fff) as u16,
        local: mapped([203, 0, 113, 9].into()),
        remote: mapped(remote.into()),
        cookie: 4_096 + n,
        cgroup_id: 4_242,
        given: (1 << 26) - 1,
        netns: 4_026_531_840,
        cc: CcName::new(if n.is_multiple_of(8) { "bbr" } else { "cubic" }).unwrap_or_default(),
        rtt_us: 8_000 + (chance >> 40 & 0xffff) as u32,
        min_rtt_us: 7_000 + (chance >> 40 & 0x7fff) as u32,
        rto_us: 204_000,
        snd_mss: 1_448,
        snd_cwnd: 10,
        snd_ssthresh: 0x7fff_ffff,
        reordering: 3,
        rcvbuf: 131_072,
        sndbuf: 87_040,
        ..Sample::default()
    }
}

/// Ten seconds of a connection's life.
fn step(s: &mut Sample, n: u64) {
    s.time_ns += 10_000_000_000;
    let chance = mix(n ^ s.cookie << 32);
    if s.cookie.is_multiple_of(3) {
        return;
    }
    let bytes = chance & 0x3f_ffff;
    let segments = (bytes / 1_448) as u32;
    s.bytes_sent += bytes;
    s.bytes_acked += bytes;
    s.bytes_received += chance >> 50;
    s.segs_out += segments;
    s.data_segs_out += segments;
    s.delivered += segments;
    s.segs_in += segments / 2;
    s.busy_us += chance >> 42 & 0xf_ffff;
    s.delivery_rate = 100_000 + (chance >> 20 & 0xff_ffff);
    s.pacing_rate = s.delivery_rate * 2;
    s.rtt_us = s.min_rtt_us + (chance >> 30 & 0x3fff) as u32;
    s.rttvar_us = (chance >> 44 & 0xfff) as u32;
    s.snd_cwnd = 10 + (chance >> 10 & 0x7f) as u32;
    if chance.is_multiple_of(50) {
        s.total_retrans += 1;
        s.bytes_retrans += 1_448;
        s.snd_ssthresh = s.snd_cwnd / 2;
    }
    if s.cookie.is_multiple_of(8) {
        s.bbr_bw = s.delivery_rate;
        s.bbr_min_rtt_us = s.min_rtt_us;
        (s.bbr_pacing_gain, s.bbr_cwnd_gain) = (256, 512);
    } else {
        s.given &= !(1 << 9);
    }
}

fn thread_micros(run: impl FnOnce()) -> f64 {
    let before = clock(rustix::time::ClockId::ThreadCPUTime);
    run();
    clock(rustix::time::ClockId::ThreadCPUTime) - before
}

fn process_micros() -> f64 {
    clock(rustix::time::ClockId::ProcessCPUTime)
}

fn clock(id: rustix::time::ClockId) -> f64 {
    let now = rustix::time::clock_gettime(id);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

/// Memory of this process's own, in kB.
fn anonymous_kb() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}
