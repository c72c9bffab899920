//! `limit-vm`: a real guest behind a limit, from it and to it: what arrives, how long a ping takes meanwhile, whether it comes evenly, and
//! what becomes of 20 small transfers beside a large one.

mod arm;
mod mice;

use anyhow::Result;
use serde_json::json;
use weirgate_switch::limits::Mode;
use weirgate_units::BitRate;

use self::arm::{Arm, One, Site, Times};
use super::ground;
use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::guest::Way;
use crate::net::AllowedCongestion;
use crate::report::{Report, Table, number};
use crate::stats::quantile;

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "limit-vm", "A virtual machine behind a limit");
    let _allowed = AllowedCongestion::widen(&["reno", "cubic", "bbr"])?;
    let full = options.form == Form::Full;
    let modes: &[Mode] =
        if full { &[Mode::Drop, Mode::Borrow, Mode::Gate, Mode::Pace] } else { &[Mode::Gate, Mode::Pace] };
    let times = if full { Times { idle: 10, load: 20, mice: 20 } } else { Times { idle: 2, load: 3, mice: 3 } };
    options.say("a guest boots");
    let mut site = Site::new()?;
    let mut arms = Vec::new();
    for rate in [5_000_000, 100_000_000].map(BitRate::from_bits_per_sec) {
        for way in [Way::FromGuest, Way::ToGuest] {
            for mode in modes {
                let arm = Arm { rate, way, mode: *mode };
                options.say(arm.name());
                let one = site.measure(arm, times, full || *mode == Mode::Pace)?;
                arms.push((arm, one));
            }
        }
    }
    let paced = || arms.iter().filter(|(arm, _)| arm.mode == Mode::Pace).map(|(_, one)| one);
    let even = arms.iter().filter(|(arm, _)| matches!(arm.mode, Mode::Pace | Mode::Gate));
    let mut expectations = Expectations::of("limit-vm")?;
    expectations.measured("pace_goodput_pct", paced().map(|one| one.goodput_pct).fold(f64::INFINITY, f64::min))?;
    let slower = paced().map(|one| quantile(&one.ping, 0.99) - quantile(&one.ping_idle, 0.99));
    expectations.measured("ping_p99_ms_over_idle", slower.fold(f64::NEG_INFINITY, f64::max))?;
    let over: usize = even.map(|(_, one)| one.windows_over).sum();
    expectations.measured("on_off_10ms_windows_over_burst", over as f64)?;
    let tables = tables(&arms);
    report.finish(
        format!(
            "A guest (Debian's kernel under QEMU, emulated, one processor), whose network card is the switch (vhost-user), and a TAP device \
             in a namespace. One CUBIC connection (iperf3) for {load} s after its first, while the guest pings the other end 50 times a \
             second, at nice -20: its processor is the load's, and a ping is to wait for the limit; then another one, beside 20 small transfers, each a connection of its own, one every two seconds: a web server in the \
             guest is asked for 20 KB (from the guest), or asked with 20 KB of headers (to it), and the asker's clock says how long that \
             took. Goodput: payload received, with headers put back, over the limit, which counts IP bytes. Windows of 10 ms, one from \
             each millisecond on: `over` are those in which more left the limit than rate x 10 ms and the burst, or more was read from the sender's \
             device, `empty` those of an even raster in which nothing passed, at the receiver and at the sender. To the guest, \
             what is gated is the TAP device's queue, whose sender is not held back by that: it is a queue that drops its \
             tail. `drop` has a burst of 50 ms, the others one of 5 ms.",
            load = times.load
        ),
        json!({
            "rates": [5_000_000, 100_000_000], "seconds": times.load, "mice_seconds": times.mice, "mice": mice::MICE, "mouse_bytes": mice::SIZE,
        }),
        expectations,
        tables,
    )
}

fn tables(arms: &[(Arm, One)]) -> Vec<Table> {
    let heads = ["goodput, % of the limit", "ping, p50, ms", "p99, ms", "p99 when idle, ms", "dropped"];
    let mut one_flow = Table::new("One connection", &[&["limit"], &heads[..], &ground::CORES].concat());
    let heads = ["over, receiver", "most, KB, receiver", "over, sender", "empty, %, receiver", "empty, %, sender"];
    let mut windows = Table::new("Windows of 10 ms beside it", &[&["limit"], &heads[..]].concat());
    let heads = ["transfers", "p50, ms", "p99, ms"];
    let mut mice = Table::new("20 small transfers beside one connection", &[&["limit"], &heads[..]].concat());
    for (arm, one) in arms {
        let row = |cells: &[String]| [&[arm.name()], cells].concat();
        one_flow.rows.push(row(&[
            number(one.goodput_pct),
            number(quantile(&one.ping, 0.5)),
            number(quantile(&one.ping, 0.99)),
            number(quantile(&one.ping_idle, 0.99)),
            one.dropped.to_string(),
            number(one.cores_per_gbit[0]),
            number(one.cores_per_gbit[1]),
        ]));
        windows.rows.push(row(&[
            one.windows_over.to_string(),
            number(one.window_most as f64 / 1e3),
            one.sender_windows_over.to_string(),
            number(one.empty_receiver_pct),
            number(one.empty_sender_pct),
        ]));
        if let Some(took) = &one.mice {
            mice.rows.push(row(&[took.len().to_string(), number(quantile(took, 0.5)), number(quantile(took, 0.99))]));
        }
    }
    vec![one_flow, windows, mice]
}
