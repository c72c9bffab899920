//! Serves the page with an invented host, for its tests and for whoever works on it: `page_fixture [PORT] [empty]`.
//!
//! The numbers go the way that a daemon's go, through `view::Collector` and `view::Shared`; nothing is recorded or
//! decided. The same every time, but for the clock: an hour of polls and a day of rounds have passed, then it stands still,
//! so that a test can compare what is shown with what is served. Only its limits and its engines go on passing bytes.
#![allow(clippy::disallowed_methods, reason = "an example's work is to run a server")]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use weirgate::http::Server;
use weirgate::view::{self, Collector, PollEnd, Shared, api};
use weirgate_sockets::progress::Progress;
use weirgate_sockets::record::{Direction, Record};
use weirgate_sockets::sample::{Arm, CcName, Field, Kind, Sample, mapped, state};
use weirgate_tune::decision::{Decision, Effects, Ignored, Loss, Round, Stats, What, Why};
use weirgate_units::{Bytes, Duration, Prefix, UnixTime};

const POLL_S: u64 = 10;
const ROUND_S: u64 = 300;

/// One client network: its kind decides how its connections fare.
struct Network {
    client: IpAddr,
    connections: u64,
    /// bit/s of one connection.
    rate: u64,
    rtt_us: u32,
    loss: f64,
    selected: bool,
}

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments.next().map_or(Ok(0), |port| port.parse())?;
    let empty = arguments.next().as_deref() == Some("empty");
    let now = UnixTime::from_nanos(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos().try_into()?);
    let (mut collector, shared) = view::new(facts(now, empty));
    if !empty {
        fill(&mut collector, &shared, now);
        let began = std::time::Instant::now();
        let ms = move || 1_000_000 + began.elapsed().as_millis() as u64;
        shared.set_switch(Arc::new(move || switch(ms())));
        shared.set_deflate(Arc::new(move || deflate(ms())));
    } else {
        shared.set_notice("rules", Some("rule `worst` chooses cubic, which is the default here already".to_owned()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = Server::bind(([127, 0, 0, 1], port).into()).await?;
        println!("http://{}", server.address());
        anyhow::Ok(server.serve(shared, std::future::pending()).await?)
    })
}

fn facts(now: UnixTime, empty: bool) -> api::Facts {
    let source = |name: &str, why: &str, counted| api::Source { name: name.to_owned(), why: why.to_owned(), counted };
    api::Facts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: "edge-03".to_owned(),
        pop: "ams".to_owned(),
        kernel: "6.18.0".to_owned(),
        started_ms: now.as_nanos() / 1_000_000 - if empty { 20_000 } else { 86_400_000 },
        mode: if empty { "observe" } else { "apply" }.to_owned(),
        polls: source(
            "BPF iterator",
            "the kernel has it; it takes about a third less processor time than netlink",
            true,
        ),
        closes: source("sockops ring", "cgroup v2 is mounted at /sys/fs/cgroup/unified", true),
        steering: source("sockops", "the programs are attached to the root cgroup", true),
        poll_interval_ms: POLL_S * 1_000,
        round_interval_ms: ROUND_S * 1_000,
        known_rounds_min: 24,
        default_cc: "cubic".to_owned(),
        rules: vec!["worst".to_owned()],
        store: "/var/lib/weirgate/store".to_owned(),
    }
}

fn networks() -> Vec<Network> {
    (0..46u64)
        .map(|n| {
            let client: IpAddr = match n % 5 {
                4 => format!("2001:db8:{:x}:1200::7", n * 257).parse(),
                _ => format!(
                    "{}.{}.{}.9",
                    [198, 203, 192, 100][(n % 4) as usize],
                    [51, 0, 0, 64][(n % 4) as usize],
                    n + 2
                )
                .parse(),
            }
            .expect("an address");
            let lossy = n % 9 == 3;
            Network {
                client,
                connections: 3 + (n * 37) % 140,
                rate: if lossy { 1_900_000 } else { 4_000_000 + (n * n % 17) * 3_300_000 },
                rtt_us: if lossy { 95_000 } else { 9_000 + (n * 1_733 % 60_000) as u32 },
                loss: if lossy { 0.014 } else { 0.000_2 * (n % 7) as f64 },
                selected: lossy,
            }
        })
        .collect()
}

fn fill(collector: &mut Collector, shared: &Shared, now: UnixTime) {
    let networks = networks();
    let ago = |seconds: u64| UnixTime::from_nanos(now.as_nanos() - seconds * 1_000_000_000);
    for round in 0..288 {
        let end = ago((287 - round) * ROUND_S + 40);
        votes(collector, &networks, round);
        collector.handle_round_end(end);
        shared.handle_round(&decisions(&networks, round, end));
    }
    for poll in 0..=360 {
        for network in &networks {
            poll_network(collector, network, poll);
        }
        collector.handle_poll_end(PollEnd {
            now: ago((360 - poll) * POLL_S),
            took: Duration::from_micros(4_180),
            bytes: 512_000,
            complete: true,
        });
    }
    shared.handle_losses(api::Losses {
        closes_seen: 118_204,
        closes_kept: 118_201,
        vanished: 3,
        recovered: 1,
        ..api::Losses::default()
    });
    shared.handle_policy(Some(api::Policy {
        version: 7,
        networks: networks.iter().filter(|network| network.selected).count() as u64,
        applied: true,
        since_ms: ago(5_400).as_nanos() / 1_000_000,
        expires_ms: Some(now.as_nanos() / 1_000_000 + 3_600_000),
        holdout_share: 0.1,
        switch_after_bytes: 100_000,
        fleet_version: None,
        fleet_until_ms: None,
    }));
}

/// Two limits that pass 60 % of what they may, and three ports, one of which is gone.
fn switch(ms: u64) -> api::Switch {
    let limit = |name: &str, mode: &str, rate: u64| api::Limit {
        name: name.to_owned(),
        mode: mode.to_owned(),
        layer: "L2".to_owned(),
        rate_bits_per_s: rate,
        passed_packets: ms,
        passed_bytes: rate / 8_000 * ms * 6 / 10,
        throttled_ms: ms / 4,
        ..api::Limit::default()
    };
    let port =
        |name: &str, kind: &str| api::Port { name: name.to_owned(), kind: kind.to_owned(), ..api::Port::default() };
    api::Switch {
        now_ms: 0,
        frames: api::Frames::default(),
        limits: vec![
            api::Limit {
                waiting: 118,
                marked: 9,
                delay_p50_us: Some(1_450),
                delay_p99_us: Some(12_100),
                ..limit("tenant-a", "pace", 200_000_000)
            },
            api::Limit { dropped_rate: 40, dropped_room: 2, ..limit("uplink", "drop", 1_000_000_000) },
        ],
        ports: vec![
            api::Port { received: 81_204, sent: 40_551, lost: 3, ..port("vm1", "vhost-user") },
            api::Port { received: 40_555, sent: 81_200, ..port("eth1", "interface") },
            api::Port { failed: Some("tap7: No such device".to_owned()), ..port("vm2", "tap") },
        ],
    }
}

/// An engine that compresses 400 bodies per second, one that compressed some long ones, two that did nothing, and why.
fn deflate(ms: u64) -> api::Deflate {
    let engine = |name: &str, bodies, bytes_in: u64, bytes_out, us| api::Engine {
        name: name.to_owned(),
        bodies,
        bytes_in,
        bytes_out,
        us,
    };
    let fallback = |reason: &str, count| api::Fallback { reason: reason.to_owned(), count };
    let bodies = ms * 2 / 5;
    api::Deflate {
        now_ms: 0,
        processes: 4,
        instances: 2,
        engines: vec![
            engine("zlib", 0, 0, 0, 0),
            engine("libdeflate", bodies, bodies * 25_000, bodies * 6_250, bodies * 180),
            engine("igzip", 0, 0, 0, 0),
            engine("zlib_stream", 1_207, 402_000_000, 109_000_000, 6_700_000),
        ],
        fallbacks: vec![
            fallback("flush", 0),
            fallback("slow", 38),
            fallback("long", 1_163),
            fallback("asked", 6),
            fallback("exhausted", 51),
        ],
    }
}

/// A slow wave, so that the lines have a shape: 0.8 to 1.2.
fn wave(at: u64, period: f64) -> f64 {
    1.0 + 0.2 * (at as f64 / period * std::f64::consts::TAU).sin()
}

fn poll_network(collector: &mut Collector, network: &Network, poll: u64) {
    for n in 0..network.connections {
        let spread = 0.3 + (n * 7_919 % 100) as f64 / 60.0;
        let rate = network.rate as f64 * spread * wave(poll + n, 90.0);
        let sending = !(n + poll).is_multiple_of(3);
        // A twentieth of the time busy, more and less in a wave whose integral never falls.
        let seconds = (poll * POLL_S) as f64;
        let busy = 0.05 * (seconds + 60.0 * (seconds / 700.0 + n as f64).sin());
        let acked = (network.rate as f64 * spread / 8.0 * (busy + 3.0)) as u64;
        let holdout = n % 10 == 0;
        let treated = network.selected && !holdout;
        let mut sample = Sample {
            kind: Kind::Poll as u8,
            state: state::ESTABLISHED,
            arm: if !network.selected {
                Arm::None
            } else if holdout {
                Arm::Holdout
            } else {
                Arm::Treated
            } as u8,
            remote: mapped(network.client),
            cc: CcName::new(if treated && sending { "bbr" } else { "cubic" }).expect("a name"),
            bytes_acked: acked,
            bytes_sent: acked + (acked as f64 * network.loss) as u64,
            bytes_retrans: (acked as f64 * network.loss) as u64,
            unacked: u32::from(sending),
            delivery_rate: (rate / 8.0) as u64,
            rtt_us: (f64::from(network.rtt_us) * spread.max(0.7) * wave(poll, 60.0)) as u32,
            min_rtt_us: network.rtt_us,
            ..Sample::default()
        };
        sample.set_given(Field::TcpInfo);
        sample.set_given(Field::MinRttUs);
        collector.handle_record(&Record {
            sample: &sample,
            time: UnixTime::default(),
            sequence: 0,
            direction: if n % 12 == 11 { Direction::Connected } else { Direction::Accepted },
            listener_port: 443,
            delivery_rate_max: 0,
            network: Prefix::client_network(network.client),
            asn: 0,
            country: [0; 2],
        });
    }
}

fn votes(collector: &mut Collector, networks: &[Network], round: u64) {
    for network in networks {
        for n in 0..network.connections {
            let spread = 0.3 + (n * 7_919 % 100) as f64 / 60.0;
            let rate = network.rate as f64 * spread * wave(round, 100.0);
            let acked = (rate / 8.0 * 20.0) as u64;
            collector.handle_progress(&Progress {
                client: network.client,
                local_port: 443,
                direction: Direction::Accepted,
                cc: CcName::default(),
                arm: Arm::None,
                acked: Bytes::new(acked),
                sent: Bytes::new(acked),
                retransmitted: Bytes::new((acked as f64 * network.loss) as u64),
                busy: Duration::from_secs(20),
                rwnd_limited: Duration::ZERO,
                sndbuf_limited: Duration::ZERO,
                delivery_rate: None,
                min_rtt: Duration::from_micros(network.rtt_us.into()),
                closed: false,
            });
        }
    }
}

fn loss(ppm: u64) -> Loss {
    Loss { sent: Bytes::new(1_000_000), retransmitted: Bytes::new(ppm) }
}

fn decisions(networks: &[Network], round: u64, time: UnixTime) -> Round {
    let bbr = CcName::new("bbr").expect("a name");
    let decision =
        |network: &Network, what, why| Decision { network: Prefix::client_network(network.client), what, why };
    let mut decisions = Vec::new();
    for (n, network) in (0..).zip(networks) {
        let steady = Why::Consistent { rule: 0, duty: 0.92, flaps: 0.04, known: 24 };
        match (network.selected, round) {
            (true, 270) => decisions.push(decision(network, What::Select(bbr), steady)),
            (false, 280) if n % 23 == 7 => {
                decisions.push(decision(network, What::Release, Why::Recovered { duty: 0.21, known: 24 }));
            }
            (false, 285) if n % 23 == 11 => {
                decisions.push(decision(network, What::Defer, Why::Flapping { flaps: 0.46, known: 24 }));
            }
            _ => {}
        }
    }
    decisions.sort_by_key(|decision| decision.network);
    Round {
        number: round as u32 + 1,
        time,
        policy: None,
        refusal: None,
        quiet: None,
        halted: None,
        decisions,
        stats: Stats {
            connections: 3_127,
            votes_none: 2_640,
            votes_treated: 291,
            votes_holdout: 30,
            ignored: Ignored { small: 166, limited: 12, ..Ignored::default() },
            networks_known: 44,
            judged: true,
            selected: 5,
            ..Stats::default()
        },
        effects: Effects {
            treated: loss(12_000),
            holdout: loss(9_000),
            neighbours: loss(4_000),
            others: loss(3_100),
            ..Effects::default()
        },
    }
}
