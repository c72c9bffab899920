//! Networks that are not symmetric: failures, unequal stripes.

use anyhow::Result;
use serde_json::json;
use weirgate_fabric::{Scheme, Span};
use weirgate_lab::expectation::Expectations;
use weirgate_lab::report::{Report, Table, number};
use weirgate_lab::stats::{mean, mean_of_runs, quantile};
use weirgate_units::Duration;

use super::Bench;
use super::arm::{Arm, Observed};
use super::claims::Article::{Above, Alike, Below, Value};
use super::claims::{Beside, Claim, claim, differences, joined};
use super::distributions;
use super::grid::{Grid, at_load, equal_links, rivals};
use super::ratios::{What, percent_over, ratio, steadiness, with_interval};
use super::variants::{Said, sensitivity};
use crate::fabric::scenario::{Extra, Shape};

/// `beside`: the balancer that the article has beside DRILL, with the others behind both.
fn failing(bench: &Bench, (name, title): (&str, &str), failures: u32, method: &str, beside: &str) -> Result<Report> {
    let mut base = bench.article();
    base.network.failures.random = failures;
    let mean = |of| claim(None, of, 0.9, What::Mean, Some(if of == beside { Alike } else { Above(1.0) }));
    let claims: [Claim; 4] =
        [mean("ecmp"), mean("conga"), mean("presto"), claim(None, "presto", 0.9, What::Quantile(0.99), None)];
    let alone = super::components::alone(&base, &bench.seeds())?;
    let method = format!(
        "{method} By the article's rule paths are alike only where the same pairs of leaves use their links. Of the components from one leaf to another {} % have one port, in which \
         DRILL goes by the flow's hash as ECMP does.",
        number(alone)
    );
    let loads: &[f64] = if bench.is_quick() { &[0.5, 0.9] } else { &[0.1, 0.3, 0.5, 0.7, 0.9] };
    let grid = Grid {
        name,
        title,
        method: &method,
        base,
        schemes: rivals(),
        loads,
        claims: &claims,
        first_hops: &[],
        shares: &[],
        why: "",
        at: &[0.9],
    };
    let report = grid.run_with_shims(bench, 0.9, Some(Alike))?;
    let is_ecmp = "The article has ECMP behind DRILL. Here both are the same, packet by packet: no component has two ports, so DRILL goes by the \
                   flow's hash everywhere.";
    Ok(report.differing((alone >= 100.0).then(|| is_ecmp.to_owned())))
}

pub(super) fn fig11bc(bench: &Bench) -> Result<Report> {
    let method = "The article's network without one of its 64 links between leaves and spines, another one for each seed, at loads of what is left. The article shows plots: \
                  with one failure DRILL and Presto are the most effective, and the shim makes no difference.";
    failing(bench, ("fig11bc", "Figure 11 (b, c): one link down"), 1, method, "presto")
}

pub(super) fn fig12(bench: &Bench) -> Result<Report> {
    let method = "The article's network without ten of its 64 links between leaves and spines, others for each seed, at loads of what is left. The article shows plots: \
                  with ten failures DRILL and CONGA are the most effective, and the shim makes no difference; it does not say which links were down.";
    failing(bench, ("fig12", "Figure 12: ten links down"), 10, method, "conga")
}

pub(super) fn fig13(bench: &Bench) -> Result<Report> {
    let mut base = bench.article();
    base.network.shape = equal_links(16, 16, 48);
    if !bench.is_quick() {
        // Links are nearly full, which takes long to settle.
        base.run.warm_up = Duration::from_millis(60);
    }
    let Shape::LeafSpine(shape) = base.network.shape else { unreachable!("just made") };
    let stripe = |leaf: u32, spine: u32| Extra {
        between: [format!("leaf{leaf}"), format!("spine{}", spine % 16)],
        settings: shape.core,
        count: 1,
        line: 0,
    };
    base.network.extra = (0..16).flat_map(|leaf| [stripe(leaf, leaf), stripe(leaf, leaf + 1)]).collect();
    let grid = Grid {
        name: "fig13",
        title: "Figure 13: unequal stripes, two links from each leaf to two of 16 spines, one to the others",
        method: "16 leaves with 48 hosts each, 16 spines, all links at 10 Gbit/s; leaf i has a second link to spines i and i + 1. The article shows plots: DRILL and CONGA \
                 are more effective here, with lower flow completion times than Presto and WCMP. Links beside each other count as one of their rates' sum in the capacity \
                 factors. That rule was made after a first comparison of this figure, in which each of them counted for itself, and a spine with two links to a leaf had twice \
                 that leaf's packets, also for leaves to which it has one; section 3.4.3 of the article speaks for the rule, with four links of 10 Gbit/s that are as one of 40. WCMP's weights have it as well, since two links to a spine bring no more than goes on from there; where each of \
                 them were a path of its own, all 18 uplinks of a leaf would have the same weight, and WCMP be ECMP, whose times stand beside it.",
        base,
        schemes: [rivals(), vec![Scheme::Wcmp]].concat(),
        loads: if bench.is_quick() { &[0.3, 0.8] } else { &[0.2, 0.4, 0.6, 0.8] },
        claims: &[
            claim(Some("wcmp_over_drill_mean_80"), "wcmp", 0.8, What::Mean, Some(Above(1.0))),
            claim(None, "conga", 0.8, What::Mean, Some(Alike)),
            claim(None, "ecmp", 0.8, What::Mean, None),
            claim(None, "presto", 0.8, What::Mean, Some(Above(1.0))),
        ],
        first_hops: &[],
        shares: &[],
        why: "The article: DRILL's flow completion times are lower than WCMP's. By its own labels, of source, destination and capacity factor, \
              16 components lie between two leaves here, of one or two ports each (their table has how full they make links): among these there is next to \
              nothing to choose, and DRILL is a WCMP.",
        at: &[0.8],
    };
    let components = super::components::table(&grid.base, 0.8)?;
    let mut report = grid.run(bench)?;
    report.add_table(components);
    Ok(report)
}

pub(super) fn ospf_delay(bench: &Bench) -> Result<Report> {
    let mut report = bench.report("ospf-delay", "Routing's delay: five links fail at 70 % load");
    // Of 4 x 16 links between leaves and spines.
    let left = (64.0 - 5.0) / 64.0;
    let mut base = at_load(&bench.article(), 0.7 * left);
    base.network.failures.random = 5;
    base.network.failures.at = base.run.warm_up;
    // Some 20 ms: twice what routing takes.
    base.run.flows = if bench.is_quick() { 80_000 } else { 200_000 };
    let delays = [0, 10, 50].map(Duration::from_millis);
    let arm = |delay: &Duration| {
        let mut scenario = base.clone();
        scenario.settings.routing_delay = Span::from(*delay);
        Arm::new(if *delay == Duration::ZERO { "ideal".to_owned() } else { delay.to_string() }, scenario)
    };
    let arms: Vec<Arm> = delays.iter().take(if bench.is_quick() { 2 } else { 3 }).map(arm).collect();
    let observed = bench.observe(&arms)?;
    let median = |run: &Observed| quantile(&run.times, 0.5);
    let median_over = |one: &[Observed], other: &[Observed]| ratio(one, other, What::Quantile(0.5));
    let gap = |runs: &[Observed]| percent_over(median_over(runs, &observed[0]));
    let mut table =
        Table::new("Flow completion time", &["routing learns after", "median, us", "over ideal, %", "mean, us"]);
    for (arm, runs) in arms.iter().zip(&observed) {
        table.rows.push(vec![
            arm.name.clone(),
            number(mean(runs.iter().map(median))),
            with_interval(gap(runs)),
            number(mean(runs.iter().map(|run| What::Mean.of(&run.times)))),
        ]);
    }
    let said =
        [Said { what: "median, 10 ms over ideal", article: Some(Below(1.006)), one: 1, other: 0, of: &median_over }];
    let (sensitivity, mut beside) = sensitivity(bench, &mut report, &arms[..2], &[&observed[0], &observed[1]], &said)?;
    let distributions = distributions::table(bench, "", &arms, &said)?;
    let medians: Vec<f64> = observed[0].iter().map(|run| median(run) / 1_000.0).collect();
    beside.push(Beside::new("median of ideal, ms", Value(3.49), mean_of_runs(&medians)));
    let mut expectations = Expectations::of("ospf-delay")?;
    let why = "Of 10 ms. The article: the median is less than 0.6 % higher than with routing that knows at once.";
    expectations.measured_figure("median_gap_pct", gap(&observed[1]), bench.is_quick(), why)?;
    let method = "The article's network at 70 % load of the links that are left; five random links between leaves and spines, others for each seed, go down when the measuring begins. The switches at both \
                  ends of a link know at once; the others when routing has told them, after what the table's first column has (the article has OSPF, and does not say how long it took; its ideal median is 3.49 ms). Flows that began \
                  since are measured: they last about twice 10 ms in all.";
    let method = joined(&[method, &steadiness(&arms, &observed)]);
    let settings = json!({ "scenario": "scenarios/article.toml", "seeds": bench.seeds() });
    Ok(report
        .finish(method, settings, expectations, [table, sensitivity].into_iter().chain(distributions).collect())?
        .differing(differences(beside)))
}
