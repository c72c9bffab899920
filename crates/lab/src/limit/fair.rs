//! `limit-fair`: one elephant, 50 mice and 20 equal senders behind one limit.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::sleep;
use std::time::Duration as StdDuration;

use anyhow::{Result, anyhow};
use serde_json::json;
use weirgate_switch::limits::Mode;
use weirgate_units::{BitRate, Duration};

use super::crowd::{Mice, RESPONSE, Senders};
use super::ground::{A, Arm, CORES, Ground, Plan, has_fq_codel};
use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::net::AllowedCongestion;
use crate::report::{Report, Table, number};
use crate::stats::{jain, quantile, sorted};

const RATE: BitRate = BitRate::from_bits_per_sec(100_000_000);
const RTT: Duration = Duration::from_millis(10);
const SENDERS: u8 = 20;
/// Connections of the elephant, all of one address.
const ELEPHANT: usize = 8;
const MICE: u64 = 50;
/// A mouse rests as long between two requests, on average: they offer some 16 Mbit/s.
const REST: StdDuration = StdDuration::from_millis(500);

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "limit-fair", "An elephant, mice and equal senders behind one limit");
    let _allowed = AllowedCongestion::widen(&["reno", "cubic", "bbr"])?;
    let (settle, seconds) = if options.form == Form::Full { (5, 20) } else { (2, 5) };
    let [switch, all] = CORES;
    let heads = [
        "limit",
        "Jain's index of the senders",
        "least of them, Mbit/s",
        "most",
        "elephant, Mbit/s",
        "mice, p50, ms",
        "p99, ms",
        "responses",
        switch,
        all,
    ];
    let mut table = Table::new("100 Mbit/s for 20 senders, an elephant and 50 mice", &heads);
    let (mut fairness, mut p99, mut p99_htb) = (f64::NAN, f64::NAN, f64::NAN);
    let mut managed = None;
    let fq_codel = has_fq_codel()?;
    let mut arms = vec![Arm::Switch(Mode::Drop), Arm::Htb];
    arms.extend(fq_codel.then_some(Arm::HtbFqCodel));
    arms.extend([Arm::Switch(Mode::Gate), Arm::Switch(Mode::Pace)]);
    for arm in arms {
        options.say(arm.name());
        let one = measure(arm, settle, seconds, options.seed)?;
        let mbit = |bytes: &u64| *bytes as f64 * 8.0 / 1e6 / seconds as f64;
        let senders = sorted(one.senders.iter().map(mbit));
        let index = jain(&senders);
        let mice = sorted(one.mice_s.iter().map(|s| s * 1e3));
        match arm {
            Arm::Switch(Mode::Pace) => (fairness, p99) = (index, quantile(&mice, 0.99)),
            Arm::Htb => p99_htb = quantile(&mice, 0.99),
            Arm::HtbFqCodel => managed = Some((index, quantile(&mice, 0.99))),
            _ => {}
        }
        let numbers = [
            index,
            quantile(&senders, 0.0),
            quantile(&senders, 1.0),
            one.elephant.iter().map(mbit).sum(),
            quantile(&mice, 0.5),
            quantile(&mice, 0.99),
            mice.len() as f64,
            one.cores_per_gbit[0],
            one.cores_per_gbit[1],
        ];
        // Three digits do not tell one index from the next.
        let cells = numbers.iter().enumerate().map(|(at, n)| if at == 0 { format!("{n:.4}") } else { number(*n) });
        table.rows.push([arm.name().to_owned()].into_iter().chain(cells).collect());
    }
    let mut expectations = Expectations::of("limit-fair")?;
    expectations.measured("jain", fairness)?;
    let beside = managed.map_or("this kernel has no fq_codel to put below htb".to_owned(), |(index, p99)| {
        format!("with fq_codel below htb {} ms, and Jain's index is {index:.4}", number(p99))
    });
    expectations.measured("mice_p99_over_htb", p99 / p99_htb)?.explanation =
        Some(format!("{} ms and {} ms, by a FIFO below htb; {beside}", number(p99), number(p99_htb)));
    let leaf = if fq_codel {
        "The kernel's htb has a FIFO of 1,000 packets (pfifo) below it, and in an arm of its own fq_codel with its defaults"
    } else {
        "The kernel's htb has a FIFO of 1,000 packets (pfifo) below it: fq_codel would be the better rival, but this kernel has none"
    };
    report.finish(
        format!(
            "Behind one limit of {RATE} and a path of {RTT}: {SENDERS} connections, each from an address of its own, that always have \
             something to send; an elephant of {ELEPHANT} such connections from one address; and {MICE} clients beyond the limit that \
             ask a server before it for {RESPONSE} bytes, each on a new connection, and rest for {} ms on average. Kernel TCP (CUBIC), \
             all on this machine, threads of this process. Payload is counted where it arrives, for {seconds} s after the first {settle}; a \
             request's time is that from its SYN to the last byte of the response, at the client. {leaf}. \
             `gate` does not read the TAP, whose queue is one for all. What a qdisc takes of the processors is only in the last column.",
            REST.as_millis()
        ),
        json!({
            "rate": RATE.as_bits_per_sec(), "rtt_ms": RTT.as_nanos() / 1_000_000, "senders": SENDERS,
            "elephant_connections": ELEPHANT, "mice": MICE, "rest_ms": REST.as_millis() as u64, "response": RESPONSE,
            "settle": settle, "seconds": seconds,
        }),
        expectations,
        vec![table],
    )
}

struct One {
    /// Payload of each, bytes.
    senders: Vec<u64>,
    elephant: Vec<u64>,
    mice_s: Vec<f64>,
    cores_per_gbit: [f64; 2],
}

fn measure(arm: Arm, settle: u64, seconds: u64, seed: u64) -> Result<One> {
    let ground = Ground::new(Plan { arm, rate: RATE, rtt: RTT })?;
    let [net, sub, link, _] = A.octets();
    let own = |n: u8| Ipv4Addr::new(net, sub, link, 100 + n);
    let sources: Vec<Ipv4Addr> = (0..SENDERS).map(own).chain(vec![A; ELEPHANT]).collect();
    ground.add_addresses(&sources[..usize::from(SENDERS)])?;
    let server = ground.next_server();
    let senders = Senders::start(&ground.a, &sources, &ground.b, server)?;
    sleep(StdDuration::from_secs(settle));
    let (cpu, before) = (ground.cpu()?, senders.received());
    let mice = Mice { clients: MICE, wait_mean: REST, time: StdDuration::from_secs(seconds), seed };
    let (mice_s, received, after) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| mice.run(&ground.b, &ground.a, SocketAddr::new(A.into(), 8_080)));
        sleep(StdDuration::from_secs(seconds));
        let (received, after) = (senders.received(), ground.cpu());
        (asking.join(), received, after)
    });
    let mice_s = mice_s.map_err(|_| anyhow!("the mice panicked"))??;
    let bytes: Vec<u64> = received.iter().zip(&before).map(|(after, before)| after - before).collect();
    let all = bytes.iter().sum::<u64>() + (mice_s.len() * RESPONSE) as u64;
    let (senders, elephant) = bytes.split_at(usize::from(SENDERS));
    Ok(One {
        senders: senders.to_vec(),
        elephant: elephant.to_vec(),
        mice_s,
        cores_per_gbit: cpu.per_gbit(&after?, all),
    })
}
