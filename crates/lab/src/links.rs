//! The experiment `links`: the emulator against its own settings, since every other experiment stands on it.

use anyhow::Result;
use serde_json::json;

use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::net::check::{Checked, Effort, cases, check};
use crate::report::{Report, Table, number};

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "links", "Emulated links against their own settings");
    let effort = if options.form == Form::Full { Effort::FULL } else { Effort::QUICK };
    let mut checked = Vec::new();
    for case in cases() {
        options.say(format!("IPv{} {} {} {}", if case.ipv6 { 6 } else { 4 }, case.rate, case.rtt, case.loss));
        checked.push(check(case, effort, options.seed)?);
    }
    let worst = |of: fn(&Checked) -> f64| checked.iter().map(of).fold(0.0, f64::max);
    let mut expectations = Expectations::of("links")?;
    expectations.measured("rate_error_pct", worst(|c| c.rate_error_pct.abs()))?;
    let delay = |c: &Checked| c.one_way_error_ms.abs().max(c.round_trip_error_ms.abs() / 2.0);
    expectations.measured("delay_error_ms", worst(delay))?;
    let outside = checked.iter().filter(|c| !(c.lost_interval.0..=c.lost_interval.1).contains(&c.lost.1)).count();
    expectations.measured("loss_outside_99_pct_interval", outside as f64)?;
    let table = table(&checked);
    report.finish(
        "Eight links between two namespaces, through the kernel: the rate at which a full queue drains, the median time of \
         UDP packets one way and of echoes both ways less what the settings make of it, the losses of UDP packets \
         against the binomial interval, and what a TCP connection makes of the link. Not measured: jitter and outages \
         (tests in virtual time have those)."
            .into(),
        json!({ "form": options.form.name() }),
        expectations,
        vec![table],
    )
}

fn table(checked: &[Checked]) -> Table {
    let mut out = Table::new(
        "Links",
        &[
            "link",
            "rate error, %",
            "one way error, ms",
            "round trip error, ms",
            "sent",
            "lost",
            "99 % from",
            "to",
            "TCP goodput, %",
        ],
    );
    for c in checked {
        let family = if c.case.ipv6 { 6 } else { 4 };
        out.rows.push(vec![
            format!("IPv{family}, {}, {}, loss {}", c.case.rate, c.case.rtt, c.case.loss),
            format!("{:.3}", c.rate_error_pct),
            format!("{:.3}", c.one_way_error_ms),
            format!("{:.3}", c.round_trip_error_ms),
            c.lost.0.to_string(),
            c.lost.1.to_string(),
            c.lost_interval.0.to_string(),
            c.lost_interval.1.to_string(),
            number(c.tcp_goodput_pct),
        ]);
    }
    out
}
