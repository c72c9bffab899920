//! `limit-udp`: a sender that does not slow down, offering twice what its limit lets pass.

use anyhow::Result;
use serde_json::json;
use weirgate_switch::limits::{LimitCounters, Mode};
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
        &[
            "limit",
            "arrives, % of the limit",
            "waited, p50, ms",
            "waited, p99, ms",
            "dropped for want of room",
            "by CoDel",
            switch,
            all,
        ],
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
        let queued = ground.counters()?.filter(|_| arm == Arm::Switch(Mode::Pace));
        let wait = |q: f64| {
            let bound = queued.and_then(|counters| counters.delays.quantile(q));
            bound.map_or("-".into(), |bound| format!("< {}", number(bound.as_secs_f64() * 1e3)))
        };
        let dropped = |count: fn(&LimitCounters) -> u64| queued.map_or("-".into(), |all| count(&all).to_string());
        let mut row = vec![arm.name().into(), number(arrives), wait(0.5), wait(0.99)];
        row.extend([dropped(|all| all.dropped_room), dropped(|all| all.dropped_codel)]);
        row.extend(iperf.cores_per_gbit().map(number));
        table.rows.push(row);
    }
    let mut expectations = Expectations::of("limit-udp")?;
    expectations.measured("goodput_pct", pace)?;
    report.finish(
        format!(
            "iperf3 sends 200 Mbit/s of UDP in packets of 1,476 bytes for {seconds} s; what arrives counts with its IP headers. tbf and htb \
             count 14 bytes more of each, its Ethernet header: 0.9 % of what they lack is that. What does not arrive is dropped, by `pace` \
             mostly for want of room: one flow may fill half of the queue of 250 ms, so that what passes has waited for about 125. CoDel \
             drops too, but its drops come closer only slowly, and a sender that does not answer fills its part before. The waits are \
             bounds of slots that double."
        ),
        json!({ "rate": RATE.as_bits_per_sec(), "offered": 200_000_000, "seconds": seconds }),
        expectations,
        vec![table],
    )
}
