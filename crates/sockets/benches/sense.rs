//! What one sample costs: from netlink's bytes, from a kernel program's record, and in the ledger, over 100,000
//! connections. Prints nanoseconds per sample, the median of eleven passes.
//!
//! `cargo bench -p weirgate-sockets`; for instruction counts on a noisy machine give the binary that it names to
//! `valgrind --tool=callgrind BINARY --bench ledger`.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time;

use weirgate_sockets::ledger::{Ledger, Options};
use weirgate_sockets::sample::{CcName, Field, Kind, Sample, mapped};
use weirgate_sockets::wire::diag::{Context, View};
use weirgate_sockets::wire::emit;
use weirgate_units::{Duration, Instant};
use zerocopy::IntoBytes;

const CONNECTIONS: u64 = 100_000;
const PASSES: usize = 11;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
    let samples: Vec<Sample> = (0..CONNECTIONS).map(sample).collect();

    if wants("netlink") {
        let payloads: Vec<Vec<u8>> = samples.iter().map(payload).collect();
        let context = Context { kind: Kind::Poll, time_ns: 1, netns: 1 };
        measure("netlink", || {
            for payload in &payloads {
                let sample = View::new(payload).and_then(|view| Sample::from_diag(&view, context));
                black_box(sample.expect("an emitted sample").cookie);
            }
        });
    }
    if wants("record") {
        let bytes: Vec<u8> = samples.iter().flat_map(|s| s.as_bytes().to_vec()).collect();
        measure("record", || {
            let mut rest = &bytes[..];
            while let Ok((sample, len)) = Sample::from_bytes(rest) {
                black_box(sample.cookie);
                rest = &rest[len..];
            }
        });
    }
    let mut shuffled = samples.clone();
    // A fixed permutation: 50,021 is prime, and so has no factor in common with the count.
    for (i, s) in shuffled.iter_mut().enumerate() {
        *s = samples[i * 50_021 % samples.len()];
    }
    for (name, samples) in [("ledger in order", &samples), ("ledger shuffled", &shuffled)] {
        if wants(name) {
            let mut ledger = Ledger::new(Options::default());
            let mut now = Instant::ZERO;
            measure(name, || {
                for sample in samples {
                    black_box(ledger.handle_sample(sample));
                }
                now += Duration::from_secs(10);
                ledger.handle_poll_end(1, now, &mut |p| {
                    black_box(p);
                });
                ledger.take_round(&mut |p| {
                    black_box(p);
                });
            });
            println!("{name}: {} bytes of heap", ledger.heap_bytes());
        }
    }
}

fn sample(n: u64) -> Sample {
    let mut sample = Sample {
        len: size_of::<Sample>() as u16,
        state: 1,
        family: 4,
        cookie: 1 + n,
        local_port: 443,
        remote_port: 1024 + (n % 60_000) as u16,
        netns: 1,
        local: mapped(std::net::Ipv4Addr::new(10, 0, 0, 1).into()),
        remote: mapped(std::net::Ipv4Addr::from_bits(0x0a01_0000 + n as u32).into()),
        cc: CcName::from_kernel(if n.is_multiple_of(3) { b"bbr" } else { b"cubic" }),
        bytes_acked: n * 1000,
        ..Sample::default()
    };
    for field in [Field::TcpInfo, Field::Cc, Field::Memory, Field::Mark, Field::CgroupId] {
        sample.set_given(field);
    }
    sample
}

fn payload(sample: &Sample) -> Vec<u8> {
    let mut bytes = Vec::new();
    emit::socket(&mut bytes, sample, 280);
    bytes
}

fn measure(name: &str, mut pass: impl FnMut()) {
    let mut times: Vec<_> = (0..PASSES)
        .map(|_| {
            let start = time::Instant::now();
            pass();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("{name}: {} ns per sample", times[PASSES / 2].as_nanos() / u128::from(CONNECTIONS));
}
