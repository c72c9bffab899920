//! What one frame costs: to read, to count, to find its class of 1,000 rules, to cut, to sum. Prints nanoseconds per
//! operation, the median of eleven passes.
//!
//! `cargo bench -p weirgate-switch`; give it part of a name to run those only.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::net::IpAddr;
use std::time;

use weirgate_port::{Checksum, Gso, GsoKind, Offload};
use weirgate_switch::class::{Cached, Classifier, Ports, Rule};
use weirgate_switch::frame::checksum::Sum;
use weirgate_switch::frame::{Accounting, Frame, Layer, Link, Mac, Segments, Sums};
use weirgate_switch::{AGE_MAX, Macs};
use weirgate_units::{Instant, Prefix};

const PASSES: usize = 11;
const FRAMES: u32 = 4_096;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
    let bytes: Vec<Vec<u8>> = (0..FRAMES).map(|n| tcp(n, 100)).collect();
    let frames: Vec<Frame> = bytes.iter().map(|bytes| Frame::ethernet(bytes).expect("a frame")).collect();

    if wants("parse") {
        measure("parse", FRAMES, || bytes.iter().for_each(|bytes| ignore(black_box(Frame::ethernet(bytes)))));
    }
    if wants("flow hash") {
        measure("flow hash", FRAMES, || {
            frames.iter().for_each(|frame| ignore(black_box(frame.flow().map(|flow| flow.hash(7)))));
        });
    }
    if wants("size") {
        let accounting = Accounting { layer: Layer::L1, overhead: 0 };
        let offload = offload(1_448);
        measure("size", FRAMES, || frames.iter().for_each(|frame| ignore(black_box(accounting.size(frame, &offload)))));
    }
    for (name, rules) in rules() {
        if wants(name) {
            let classifier = Classifier::new(rules.clone(), 7).expect("rules");
            measure(name, FRAMES, || {
                frames.iter().for_each(|frame| ignore(black_box(classifier.classify(1, frame))));
            });
            for flows in [64, 1_024, FRAMES] {
                let mut cached = Cached::new(classifier.clone(), FRAMES, 7);
                let frames: Vec<_> = (0..FRAMES).map(|n| frames[(n % flows) as usize]).collect();
                measure(&format!("{name}, cached, {flows} flows"), FRAMES, || {
                    frames.iter().for_each(|frame| ignore(black_box(cached.classify(1, frame))));
                });
            }
            measure(&format!("{name}, one by one"), 64, || {
                frames[..64].iter().for_each(|f| ignore(black_box(rules.iter().find(|rule| rule.matches(1, f)))));
            });
        }
    }
    if wants("macs") {
        let mut macs = Macs::new(FRAMES, AGE_MAX, 7);
        let links: Vec<Link> = (0..FRAMES).map(link).collect();
        measure("macs, learn and decide", FRAMES, || {
            for link in &links {
                black_box(macs.learn(Instant::ZERO, 1, link));
                black_box(macs.decide(Instant::ZERO, 2, link));
            }
        });
    }
    let large = tcp(1, 44 * 1_448);
    if wants("sum") {
        measure("sum of 64 KB", 1, || ignore(black_box(Sum::default().bytes(black_box(&large)))));
    }
    for (name, most, sums) in [
        ("cut 64 KB into 44, sums in software", 1, Sums::Software),
        ("cut 64 KB into 44, sums partial", 1, Sums::Partial),
        ("cut 64 KB into 6", 8, Sums::Partial),
    ] {
        if wants(name) {
            let frame = Frame::ethernet(&large).expect("a frame");
            measure(name, 1, || {
                let segments = Segments::new(&large, &frame, &offload(1_448), most, sums).expect("a super-packet");
                segments.for_each(|segment| ignore(black_box(segment.packet())));
            });
        }
    }
}

/// TCP over IPv4 from one of 4,096 addresses, in VLAN `n` modulo 1,024.
fn tcp(n: u32, payload: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0x00];
    bytes.extend(((n % 1_024) as u16).to_be_bytes());
    bytes.extend([0x08, 0x00, 0x45, 0]);
    bytes.extend(((52 + payload) as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    bytes.extend((0x0a00_0001 + (n << 8)).to_be_bytes());
    bytes.extend([192, 0, 2, 1]);
    bytes.extend((32_768 + (n % 20_000) as u16).to_be_bytes());
    bytes.extend(((n * 16) as u16).to_be_bytes());
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x80, 0x10, 1, 0, 0, 0, 0, 0, 1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    bytes.resize(bytes.len() + payload, 0x5a);
    bytes
}

fn offload(size: u16) -> Offload {
    let gso = Gso { kind: GsoKind::TcpV4, size: size.try_into().expect("not 0"), ecn: false };
    Offload { checksum: Checksum::Partial { start: 38, offset: 16 }, gso: Some(gso), header_len: 70 }
}

fn link(n: u32) -> Link {
    let mac = |n: u32| {
        let [a, b, c, d] = n.to_be_bytes();
        Mac([2, 0, a, b, c, d])
    };
    Link { destination: mac((n * 7) % FRAMES), source: mac(n), vlan: None, tags: 0 }
}

/// 1,000 rules each.
fn rules() -> Vec<(&'static str, Vec<Rule<u32>>)> {
    let source = |n: u32, len: u8| Some(Prefix::of(IpAddr::V4((0x0a00_0000 + (n << 8)).into()), len));
    let all = |rule: &dyn Fn(u32) -> Rule<u32>| (0..1_000).map(rule).collect::<Vec<_>>();
    let host = |address: u32| Some(Prefix::of(IpAddr::V4(address.into()), 32));
    vec![
        (
            "class by flow",
            all(&|n| Rule {
                source: host(0x0a00_0001 + (n << 10)),
                destination: host(0xc000_0201),
                protocol: Some(6),
                source_ports: Some(Ports::one(32_768 + (4 * n) as u16)),
                destination_ports: Some(Ports::one((4 * n * 16) as u16)),
                ..Rule::any(n, n)
            }),
        ),
        ("class by VLAN", all(&|n| Rule { vlan: Some(n as u16), ..Rule::any(n, n) })),
        ("class by source /24", all(&|n| Rule { source: source(4 * n, 24), ..Rule::any(n, n) })),
        (
            "class by source of 9 lengths, protocol and ports",
            all(&|n| Rule {
                source: source(4 * n, 24 + (n % 9) as u8),
                protocol: Some(6),
                destination_ports: Some(Ports { first: (n * 16) as u16, last: (n * 64 + 20_000).min(65_535) as u16 }),
                ..Rule::any(n, n)
            }),
        ),
    ]
}

/// Results are looked at by `black_box` and by nobody else.
fn ignore<T>(_: T) {}

fn measure(name: &str, operations: u32, mut pass: impl FnMut()) {
    let mut times: Vec<_> = (0..PASSES)
        .map(|_| {
            let start = time::Instant::now();
            pass();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("{name}: {:.1} ns", times[PASSES / 2].as_nanos() as f64 / f64::from(operations));
}
