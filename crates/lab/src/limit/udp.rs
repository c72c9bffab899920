//! `limit-udp`: a sender that does not slow down, offering twice what its limit lets pass.

use anyhow::Result;
use serde_json::json;
use weirgate_switch::limits::Mode;
use weirgate_units::{BitRate, Duration};

use super::ground::{Arm, CORES, Ground, Plan};
use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::net::AllowedCongestion;
use crate::report::{Report, Table, number};

const RATE: BitRate = BitRate::from_bits_per_sec(100_000_000);

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "limit-udp", "A sender that does not slow down");
    let _allowed = AllowedCongestion::widen(&["reno", "cubic", "bbr"])?;
    let full = options.form == Form::Full;
    let seconds = if full { 20 } else { 4 };
    let [switch, all] = CORES;
    let mut table = Table::new(
        "200 Mbit/s of UDP into a limit of 100 Mbit/s",
        &["limit", "arrives, % of the limit", "waited, p50, ms", "waited, p99, ms", switch, all],
    );
    let mut pace = f64::NAN;
    for arm in [Arm::Switch(Mode::Drop), Arm::Tbf, Arm::Htb, Arm::Switch(Mode::Pace)] {
        options.say(arm.name());
        let ground = Ground::new(Plan { arm, rate: RATE, rtt: Duration::ZERO })?;
        let iperf = ground.iperf("-u -b 200M -l 1448 -O 1", Duration::from_secs(seconds))?;
        let arrives = iperf.received() * 1_476.0 / 1_448.0 / RATE.as_bits_per_sec() as f64 * 100.0;
        if arm == Arm::Switch(Mode::Pace) {
            pace = arrives;
        }
        let delays = ground.counters()?.filter(|_| arm == Arm::Switch(Mode::Pace)).map(|counters| counters.delays);
        let wait = |q: f64| {
            delays.and_then(|d| d.quantile(q)).map_or("-".into(), |d| format!("< {}", number(d.as_secs_f64() * 1e3)))
        };
        let cores = iperf.cores_per_gbit().map(number);
        table.rows.push([arm.name().into(), number(arrives), wait(0.5), wait(0.99)].into_iter().chain(cores).collect());
    }
    let mut expectations = Expectations::of("limit-udp")?;
    expectations.measured("goodput_pct", pace)?;
    report.finish(
        format!(
            "iperf3 sends 200 Mbit/s of UDP in packets of 1,476 bytes for {seconds} s; what arrives counts with its IP headers. What does \
             not is dropped: by `pace` through CoDel, so that what passes has not waited long."
        ),
        json!({ "rate": RATE.as_bits_per_sec(), "offered": 200_000_000, "seconds": seconds }),
        expectations,
        vec![table],
    )
}
