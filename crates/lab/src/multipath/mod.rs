//! `multipath`: a host with several uplinks that are not alike, and what one transfer over all of them gets of their sum: `weirgate send`,
//! many TCP connections that are pinned to one each or that the daemon steers, and the kernel's MPTCP, beside each uplink alone.

mod ground;
mod sets;
mod steering;
mod tcp;
mod transfer;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::json;

use self::ground::Ground;
use self::sets::{Set, sets};
use self::transfer::Sent;
use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::net::AllowedCongestion;
use crate::report::{Report, Table, number};

/// Congestion controls of the kernel's that single connections have.
const CONTROLS: [&str; 2] = ["cubic", "bbr"];

/// TCP connections that are pinned, over all uplinks.
const PINNED: usize = 20;

/// What one set of uplinks gave, in Mbit/s of payload.
#[derive(Default)]
struct Measured {
    /// By uplink: the best of one connection of each kind.
    singles: Vec<BTreeMap<&'static str, f64>>,
    sum: f64,
    pinned: f64,
    mptcp: BTreeMap<&'static str, f64>,
    spray: f64,
    downs: u64,
    core_per_gbit: f64,
}

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "multipath", "One transfer over unlike uplinks");
    let full = options.form == Form::Full;
    let seconds = if full { 30 } else { 8 };
    let _allowed = AllowedCongestion::widen(&CONTROLS)?;
    let dir = options.dir("multipath")?;
    let wanted: Vec<Set> = sets().into_iter().filter(|set| full || set.is_quick).collect();
    let mut all = Vec::new();
    let mut steered = None;
    for set in &wanted {
        options.say(set.name);
        let ground = Ground::new(set, options.seed)?;
        all.push(measure(options, &ground, set, seconds, &dir)?);
        if set.name == sets::ARTICLE {
            steered = Some(steering::run(options, &ground, set, seconds, &dir)?);
        }
    }
    let steered = steered.context("the article's uplinks")?;
    let mut expectations = Expectations::of("multipath")?;
    let share = |one: &Measured| one.spray / one.sum * 100.0;
    let of = |name: &str| wanted.iter().position(|set| set.name == name).map(|at| &all[at]);
    let worst = all.iter().map(share).fold(f64::INFINITY, f64::min);
    expectations.measured("spray_worst_share_of_sum_pct", worst)?;
    let article = of(sets::ARTICLE).context("the article's uplinks")?;
    expectations.measured("spray_article_share_of_sum_pct", share(article))?;
    let fiber = of(sets::FIBER).context("fiber and LTE")?;
    expectations.measured("fiber_lte_share_of_sum_pct", share(fiber))?;
    expectations.measured("steering_share_of_sum_pct", steered.mbit / article.sum * 100.0)?;
    expectations.measured("silent_uplink_new_flow_ms", steered.last_new_flow_ms)?;
    expectations.measured("false_path_deaths", all.iter().map(|one| one.downs).sum::<u64>() as f64)?;

    let mut table = Table::new(
        "Payload, Mbit/s",
        &[
            "uplinks",
            "sum of the best single ones",
            "spray",
            "spray, %",
            "pinned TCP, %",
            "MPTCP CUBIC, %",
            "MPTCP BBR, %",
            "core per Gbit/s",
        ],
    );
    let mut single_table =
        Table::new("One connection on one uplink, Mbit/s", &["uplinks", "uplink", "TCP CUBIC", "TCP BBR", "spray"]);
    for (set, one) in wanted.iter().zip(&all) {
        let of_sum = |rate: f64| number(rate / one.sum * 100.0);
        let mut row =
            vec![set.name.to_owned(), number(one.sum), number(one.spray), number(share(one)), of_sum(one.pinned)];
        row.extend(CONTROLS.map(|control| of_sum(one.mptcp[control])));
        row.push(number(one.core_per_gbit));
        table.rows.push(row);
        for (single, link) in one.singles.iter().zip(&set.links) {
            let rates = ["cubic", "bbr", "spray"].map(|kind| number(single[kind]));
            single_table.rows.push([vec![set.name.to_owned(), link.name()], rates.to_vec()].concat());
        }
    }
    let after = steering::SETTLES;
    report.finish(
        format!(
            "A client with an emulated link for each uplink, and a server with one address. Each arm sends for {seconds} s, its beginning \
             included: one TCP connection or `weirgate send` on one uplink, {PINNED} TCP connections pinned to uplinks by their rates, the \
             kernel's MPTCP with an endpoint for each uplink, and `weirgate send` over all. The sum is that of each uplink's best single \
             one. Buffers of the kernel's TCP go up to 64 MB. On the article's uplinks {PINNED} connections are steered by the daemon and counted \
             after {after} s; then its fastest uplink becomes a black hole. Not here yet: outages of a transfer, an object of 10 MB, the tunnel, other \
             programs."
        ),
        json!({ "seconds": seconds, "pinned": PINNED }),
        expectations,
        vec![table, single_table, steered.table(article.sum)],
    )
}

fn measure(options: &Options, ground: &Ground, set: &Set, seconds: u64, dir: &std::path::Path) -> Result<Measured> {
    let mut measured = Measured::default();
    for at in 0..set.links.len() {
        let mut single = BTreeMap::new();
        for control in CONTROLS {
            single.insert(control, tcp::pinned(ground, &[at], control, seconds)?);
        }
        single.insert("spray", transfer::run(options, ground, &[at], seconds, dir)?.mbit);
        measured.sum += single.values().copied().fold(0.0, f64::max);
        measured.singles.push(single);
    }
    // Each uplink has one at least, and the others by their rates.
    let rates: Vec<f64> = set.links.iter().map(|link| link.mbit as f64).collect();
    let total: f64 = rates.iter().sum();
    let mut pins: Vec<usize> = (0..rates.len()).collect();
    while pins.len() < PINNED {
        let lacks =
            |at: usize| rates[at] / total - pins.iter().filter(|pin| **pin == at).count() as f64 / PINNED as f64;
        let next = (0..rates.len()).max_by(|a, b| lacks(*a).total_cmp(&lacks(*b))).context("an uplink")?;
        pins.push(next);
    }
    measured.pinned = tcp::pinned(ground, &pins, "bbr", seconds)?;
    for control in CONTROLS {
        measured.mptcp.insert(control, tcp::multipath(ground, control, seconds)?);
    }
    let every: Vec<usize> = (0..set.links.len()).collect();
    let Sent { mbit, downs, core_per_gbit } = transfer::run(options, ground, &every, seconds, dir)?;
    (measured.spray, measured.downs, measured.core_per_gbit) = (mbit, downs, core_per_gbit);
    Ok(measured)
}
