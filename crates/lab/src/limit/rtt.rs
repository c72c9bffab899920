//! `limit-rtt`: one TCP connection behind a limit, at round trips of 1 to 100 ms (the article's figure 3).

use anyhow::Result;
use serde_json::json;
use weirgate_switch::bridge::Direction;
use weirgate_switch::limits::{ClassSettings, Mode};
use weirgate_units::{BitRate, Duration};

use super::ground::{Arm, CORES, Ground, Plan};
use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::net::AllowedCongestion;
use crate::report::{Report, Table, number};
use crate::stats::mean;

/// Each with whether a connection's own round trip says how patient CoDel is with it.
const ARMS: [(Arm, bool); 7] = [
    (Arm::Switch(Mode::Drop), true),
    (Arm::Tbf, true),
    (Arm::Htb, true),
    (Arm::Switch(Mode::Borrow), true),
    (Arm::Switch(Mode::Gate), true),
    (Arm::Switch(Mode::Pace), true),
    (Arm::Switch(Mode::Pace), false),
];

/// At 20 ms CoDel is the same in both.
const ARMS_QUICK: [(Arm, bool); 3] =
    [(Arm::Switch(Mode::Drop), true), (Arm::Htb, true), (Arm::Switch(Mode::Pace), true)];

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "limit-rtt", "One TCP connection behind a limit");
    let _allowed = AllowedCongestion::widen(&["reno", "cubic", "bbr"])?;
    let full = options.form == Form::Full;
    let (rtts, omit, seconds): (&[u64], u64, u64) =
        if full { (&[1, 5, 10, 25, 50, 100], 15, 30) } else { (&[20], 6, 5) };
    let rate = BitRate::from_bits_per_sec(if full { 1_000_000_000 } else { 200_000_000 });
    let arms: &[(Arm, bool)] = if full { &ARMS } else { &ARMS_QUICK };
    let mut heads = vec!["limit".to_owned()];
    heads.extend(rtts.iter().map(|ms| format!("{ms} ms")));
    heads.push("sent again at the longest".into());
    heads.extend(CORES.map(String::from));
    let mut table = Table {
        caption: format!("Goodput of one connection behind {rate}, percent of the limit, by round trip"),
        heads,
        rows: Vec::new(),
    };
    let mut worst = f64::INFINITY;
    for (arm, by_flow_rtt) in arms {
        let more = if *by_flow_rtt { "" } else { ", whatever the round trip" };
        let name = format!("{}{more}", arm.name());
        let mut row = vec![name.clone()];
        let (mut again, mut cores) = (0, Vec::new());
        for ms in rtts {
            options.say(format!("{name}, {ms} ms"));
            let rtt = Duration::from_millis(*ms);
            let queue = ClassSettings { by_flow_rtt: *by_flow_rtt, ..ClassSettings::default() };
            let ground = Ground::limited(Plan { arm: *arm, rate, rtt }, Direction::From, queue)?;
            let iperf = ground.iperf(&format!("-O {omit}"), Duration::from_secs(seconds))?;
            let goodput = iperf.received() / super::TCP_PAYLOAD / rate.as_bits_per_sec() as f64 * 100.0;
            again = iperf.retransmits();
            cores.push(iperf.cores_per_gbit());
            if *arm == Arm::Switch(Mode::Pace) && *by_flow_rtt {
                worst = worst.min(goodput);
            }
            row.push(number(goodput));
        }
        row.push(again.to_string());
        row.extend([0, 1].map(|which| number(mean(cores.iter().map(|pair| pair[which])))));
        table.rows.push(row);
    }
    let mut expectations = Expectations::of("limit-rtt")?;
    expectations.measured("pace_worst_goodput_pct", worst)?;
    report.finish(
        format!(
            "One CUBIC connection (iperf3, buffers of up to 64 MB) through the switch, which has the limit or only the delay, and a router, \
             which has the kernel's limit in its arms. All arms have the same path. Goodput is the payload received in {seconds} s after \
             the first {omit}, with headers put back, over the limit, which counts IP bytes; tbf and htb count 14 bytes more of each packet, \
             its Ethernet header, which is 0.9 %. `drop` has a burst of 50 ms, tbf and htb their manual's. `pace` is as it comes: it has seen \
             the connection's handshake, by whose round trip CoDel's target is a quarter of that where it is more than 5 ms, and its interval \
             four of them where these are more than 100 ms. The same with 5 and 100 ms whatever the round trip, which is RFC 8289's CoDel, is \
             beside it and not judged. `gate` and `borrow` do not read the TAP, whose \
             queue then holds 10,000 super-packets: a TAP's sender is not held back by that."
        ),
        json!({ "rate": rate.as_bits_per_sec(), "rtt_ms": rtts, "seconds": seconds, "omitted": omit }),
        expectations,
        vec![table],
    )
}
