//! `limit-precision`: what leaves a paced limit that is always backlogged, against its rate.

use anyhow::Result;
use serde_json::json;
use weirgate_switch::limits::Mode;
use weirgate_units::{BitRate, Duration};

use super::ground::{Arm, CORES, Ground, Plan};
use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::net::AllowedCongestion;
use crate::report::{Report, Table, number};
use crate::stats::{quantile, sorted};

/// Before this nothing is counted: slow start, and the first bucket.
const SETTLE: u64 = 3;
/// One packet: what is on its way when the clock stops.
const MTU: f64 = 1_500.0;

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "limit-precision", "How exact a paced limit is");
    let _allowed = AllowedCongestion::widen(&["reno", "cubic", "bbr"])?;
    let full = options.form == Form::Full;
    let kbit: &[u64] =
        if full { &[10, 100, 1_000, 10_000, 100_000, 1_000_000, 5_000_000] } else { &[1_000, 100_000, 1_000_000] };
    let seconds = if full { 20 } else { 4 };
    let [switch, all] = CORES;
    let heads =
        ["rate", "traffic", "error, %", "100 ms windows: p95 of the error, %", "receiver, % of the rate", switch, all];
    let mut table = Table::new("A paced limit, always backlogged", &heads);
    let (mut worst, mut worst_window) = (0.0_f64, 0.0_f64);
    let mut beyond = Vec::new();
    for kbit in kbit {
        for udp in [false, true] {
            let rate = BitRate::from_bits_per_sec(kbit * 1_000);
            // A UDP sender of this machine fills no more than this.
            if udp && *kbit > 200_000 {
                continue;
            }
            options.say(format!("{rate}, {}", if udp { "UDP" } else { "TCP" }));
            let one = measure(rate, udp, seconds)?;
            let traffic = if udp { "UDP, twice the rate" } else { "TCP, 4 connections" };
            let mut row = vec![rate.to_string(), traffic.into(), number(one.error_pct)];
            row.push(one.windows_pct.map_or("-".into(), number));
            row.push(number(one.received_pct));
            row.extend(one.cores_per_gbit.map(number));
            table.rows.push(row);
            if one.received_pct < 90.0 && *kbit >= 1_000_000 {
                // The machine, not the limit: it is never backlogged there.
                beyond.push(rate.to_string());
                continue;
            }
            worst = worst.max(one.error_pct);
            worst_window = one.windows_pct.map_or(worst_window, |pct| worst_window.max(pct));
        }
    }
    let mut expectations = Expectations::of("limit-precision")?;
    let said = |what: &str| {
        (!beyond.is_empty()).then(|| format!("{what}; not of {}, which this machine cannot fill", beyond.join(", ")))
    };
    expectations.measured("error_20s_pct", worst)?.explanation = said("the worst of the rates");
    expectations.measured("error_100ms_p95_pct", worst_window)?.explanation = said("the worst of 100 Mbit/s and more");
    report.finish(
        format!(
            "A sender (iperf3), the switch with one limit in mode `pace` on TAP devices, a router and a receiver, all on this machine. \
             Counted are the bytes of IP that leave the switch, in each millisecond by the clock of its thread, for {seconds} s after \
             the first {SETTLE}. Error: how far they are from rate x time, less one packet, in percent of it. The receiver's column \
             is iperf3's payload, with headers put back."
        ),
        json!({ "kbit": kbit, "seconds": seconds }),
        expectations,
        vec![table],
    )
}

struct One {
    error_pct: f64,
    windows_pct: Option<f64>,
    received_pct: f64,
    cores_per_gbit: [f64; 2],
}

fn measure(rate: BitRate, udp: bool, seconds: u64) -> Result<One> {
    let mut ground = Ground::new(Plan { arm: Arm::Switch(Mode::Pace), rate, rtt: Duration::ZERO })?;
    let bits = rate.as_bits_per_sec();
    let arguments = if udp { format!("-u -b {} -l 1448", 2 * bits) } else { "-P 4".to_owned() };
    // Its own start takes some of the time.
    let time = Duration::from_secs(SETTLE + seconds + 2);
    let began = ground.released.so_far().by_ms.len();
    let iperf = ground.iperf(&format!("{arguments} -O {SETTLE}"), time)?;
    let by_ms = ground.released.so_far().by_ms;
    // From the first packet of the connection on.
    let first = by_ms.iter().enumerate().skip(began).find(|(_, bytes)| **bytes > 0).map_or(began, |(ms, _)| ms);
    let from = first + SETTLE as usize * 1_000;
    let counted: Vec<u64> =
        (from..from + seconds as usize * 1_000).map(|ms| by_ms.get(ms).copied().unwrap_or(0)).collect();
    let allowed = bits as f64 / 8.0;
    let error = |bytes: u64, s: f64| ((bytes as f64 - allowed * s).abs() - MTU).max(0.0) / (allowed * s) * 100.0;
    let windows = (bits >= 100_000_000).then(|| {
        let errors = counted.chunks_exact(100).map(|window| error(window.iter().sum(), 0.1));
        quantile(&sorted(errors), 0.95)
    });
    let payload = if udp { 1_448.0 / 1_476.0 } else { super::TCP_PAYLOAD };
    Ok(One {
        error_pct: error(counted.iter().sum(), seconds as f64),
        windows_pct: windows,
        received_pct: iperf.received() / payload / bits as f64 * 100.0,
        cores_per_gbit: iperf.cores_per_gbit(),
    })
}
