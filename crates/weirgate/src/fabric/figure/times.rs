//! The article's figures of flow completion times: what each changes of its scenario, and what it claims.

use anyhow::Result;
use serde_json::json;
use weirgate_balance::topology::{LinkSettings, Vl2};
use weirgate_balance::{CongaSettings, Looks};
use weirgate_fabric::Scheme;
use weirgate_lab::expectation::Expectations;
use weirgate_lab::report::{Report, Table, number};
use weirgate_lab::stats::ratio_of_runs;
use weirgate_units::{BitRate, Duration};

use super::Bench;
use super::arm::{Arm, Observed};
use super::claims::Article::{Above, Alike, Below, Value, Within};
use super::claims::{Beside, claim, differences, joined};
use super::distributions;
use super::grid::{DRILL, FIRST_HOP, Grid, LAST_HOP, at_load, equal_links, per_10_000, rivals};
use super::ratios::{UNKNOWN, What, cell, percent_over, ratio, steadiness, with_interval};
use super::variants::{Said, sensitivity};
use crate::fabric::scenario::{Answers, Shape, Traffic};

const LONG_WHY: &str = "The flows here are drawn from the published distribution of web servers' traffic, since the article's trace is not public; \
    how much of a flow's time is spent where a balancer can do something is in the table of hops.";

pub(super) fn fig6(bench: &Bench) -> Result<Report> {
    let grid = Grid {
        name: "fig6",
        title: "Figure 6: flow completion times with 4 spines, 16 leaves, 20 hosts at each",
        method: "The article's scenario: hosts at 10 Gbit/s, spines at 40 Gbit/s. The article: at 80 % load the mean flow completion time of \
                 DRILL is 1.3 times lower than Presto's, 1.4 times lower than CONGA's, 1.6 times lower than ECMP's (1.5 in its introduction); at \
                 10 % less than 9 % lower than ECMP's, 97.6 % of whose waiting is at the last hop there; at 80 % DRILL, Presto and CONGA wait 2.3, 1.7 \
                 and 1.6 times less than ECMP at the first hop, and 54 % of ECMP's waiting is there. The strawman of flows that DRILL places once \
                 improves on the tails of Presto and CONGA slightly. With a shim and without one DRILL performs very similarly. At the 99.99th percentile that \
                 ECMP, CONGA and Presto have at 25 % load it carries 1.4, 1.3 and 1.2 times the load.",
        base: bench.article(),
        schemes: [rivals(), vec![Scheme::DrillPerFlow(Looks::RECOMMENDED)]].concat(),
        loads: if bench.is_quick() { &[0.1, 0.5, 0.8] } else { &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9] },
        claims: &[
            claim(Some("presto_over_drill_mean_80"), "presto", 0.8, What::Mean, Some(Value(1.3))),
            claim(Some("conga_over_drill_mean_80"), "conga", 0.8, What::Mean, Some(Value(1.4))),
            claim(Some("ecmp_over_drill_mean_80"), "ecmp", 0.8, What::Mean, Some(Value(1.6))),
            claim(None, "ecmp", 0.1, What::Mean, Some(Below(1.09))),
            claim(None, "conga", 0.8, What::Quantile(0.9999), Some(Value(1.4))),
            claim(None, "drill(2,1)-per-flow", 0.8, What::Quantile(0.9999), None),
        ],
        first_hops: &[("drill(2,1)", Value(2.3)), ("presto", Value(1.7)), ("conga", Value(1.6))],
        shares: &[(0.8, FIRST_HOP, 54.0), (0.1, LAST_HOP, 97.6)],
        why: LONG_WHY,
        at: &[0.8],
    };
    let mut report = grid.run_with_shims(bench, 0.8, Some(Alike))?;
    let others = [(Scheme::Ecmp, 1.4), (Scheme::Conga(CongaSettings::default()), 1.3), (Scheme::Presto, 1.2)];
    report.add_table(super::capacity::table(bench, &grid.base, grid.loads, &others)?);
    Ok(report)
}

pub(super) fn fig7(bench: &Bench) -> Result<Report> {
    let mut base = bench.article();
    base.network.shape = equal_links(16, 16, 20);
    let grid = Grid {
        name: "fig7",
        title: "Figure 7: the same capacity of many slow switches, 16 spines, 16 leaves, 20 hosts at each",
        method: "As figure 6, all links at 10 Gbit/s. The article: at 80 % load the mean flow completion time of DRILL is 2.1 times lower than \
                 ECMP's, 1.6 times lower than CONGA's, 1.4 times lower than Presto's.",
        base,
        schemes: rivals(),
        loads: if bench.is_quick() { &[0.3, 0.5, 0.8] } else { &[0.1, 0.3, 0.5, 0.7, 0.8, 0.9] },
        claims: &[
            claim(Some("ecmp_over_drill_mean_80"), "ecmp", 0.8, What::Mean, Some(Value(2.1))),
            claim(None, "conga", 0.8, What::Mean, Some(Value(1.6))),
            claim(None, "presto", 0.8, What::Mean, Some(Value(1.4))),
            claim(None, "ecmp", 0.8, What::Quantile(0.99), None),
        ],
        first_hops: &[],
        shares: &[],
        why: LONG_WHY,
        at: &[0.8],
    };
    grid.run_with_shims(bench, 0.8, None)
}

pub(super) fn fig8(bench: &Bench) -> Result<Report> {
    let mut base = bench.article();
    base.network.shape = equal_links(16, 16, 20);
    Grid {
        name: "fig8",
        title: "Figure 8: distributions of flow completion times, 16 spines, 16 leaves, 20 hosts at each",
        method: "As figure 7, at 30 % and 80 % load. The article shows cumulative distributions and names no ratios.",
        base,
        schemes: rivals(),
        loads: &[0.3, 0.8],
        claims: &[
            claim(None, "ecmp", 0.3, What::Mean, None),
            claim(None, "ecmp", 0.8, What::Quantile(0.5), None),
            claim(None, "conga", 0.8, What::Quantile(0.5), None),
            claim(None, "presto", 0.8, What::Quantile(0.5), None),
        ],
        first_hops: &[],
        shares: &[],
        why: LONG_WHY,
        at: &[0.3, 0.8],
    }
    .run(bench)
}

pub(super) fn fig9(bench: &Bench) -> Result<Report> {
    let base = |spines| {
        let mut base = bench.article();
        base.network.shape = equal_links(spines, 16, 20);
        base
    };
    // Neither has a bound, so nothing is lost with the second one's.
    let report = |spines, title, method| {
        Grid {
            name: "fig9",
            title,
            method,
            base: base(spines),
            schemes: rivals(),
            loads: &[0.8],
            claims: &[
                claim(None, "ecmp", 0.8, What::Mean, None),
                claim(None, "conga", 0.8, What::Mean, None),
                claim(None, "presto", 0.8, What::Mean, None),
            ],
            first_hops: &[],
            shares: &[],
            why: LONG_WHY,
            at: &[0.8],
        }
        .run(bench)
    };
    let method = "16 leaves with 20 hosts each, all links at 10 Gbit/s, 80 % load: with 20 spines what hosts can send can be carried (1:1), with \
                  12 three fifths of it (5:3). The article sees no considerable difference between the two, and shows cumulative distributions.";
    let equal = report(20, "Figure 9: 20 spines (1:1), and 12 (5:3)", method)?;
    let fewer = report(12, "Figure 9: 12 spines (5:3)", "")?;
    let mut report = equal.beside("20 spines", fewer, "12 spines");
    let [equal, fewer] = [20, 12].map(|spines| {
        let base = at_load(&base(spines), 0.8);
        let arms: Vec<Arm> = rivals().iter().map(|scheme| Arm::of(*scheme, &base)).collect();
        bench.observe(&arms)
    });
    let (equal, fewer) = (equal?, fewer?);
    let drill = rivals().iter().position(|scheme| *scheme == DRILL).expect("it is one of them");
    let of = |one: &[Observed], drill: &[Observed], seed: usize| {
        What::Mean.of(&one[seed].times) / What::Mean.of(&drill[seed].times)
    };
    let mut table = Table::new("Means over DRILL(2,1)'s with 20 spines, over those with 12", &["", "article", "here"]);
    let mut all = Vec::new();
    for (at, scheme) in rivals().iter().enumerate().filter(|(at, _)| *at != drill) {
        let seeds = 0..equal[at].len();
        let pairs = seeds.map(|seed| of(&equal[at], &equal[drill], seed) / of(&fewer[at], &fewer[drill], seed));
        let here = ratio_of_runs(&pairs.collect::<Vec<_>>());
        table.rows.push(vec![scheme.name(), Alike.to_string(), with_interval(here)]);
        all.push(Beside::new(format!("{} over DRILL(2,1), 20 spines over 12", scheme.name()), Alike, here));
    }
    report.add_table(table);
    let why = "80 % of the uplinks' capacity is 80 % of the hosts' links' with 20 spines, 48 % with 12: how much of the waiting is then \
               for the link to a host, where there is nothing to choose, is in the tables of hops.";
    let differs = differences(all);
    let why = (!differs.is_empty()).then(|| why.to_owned());
    Ok(report.differing(differs.into_iter().chain(why)))
}

pub(super) fn fig10(bench: &Bench) -> Result<Report> {
    let link = |gbit: u64| LinkSettings {
        rate: BitRate::from_bits_per_sec(gbit * 1_000_000_000),
        delay: Duration::from_nanos(500),
    };
    let mut base = bench.article();
    base.network.shape =
        Shape::Vl2(Vl2 { tors: 16, aggregations: 8, intermediates: 4, hosts: 20, edge: link(1), core: link(10) });
    // Hosts are ten times slower, and so is all that has to settle.
    base.run.warm_up = Duration::from_millis(if bench.is_quick() { 20 } else { 200 });
    Grid {
        name: "fig10",
        title: "Figure 10: VL2 with 16 top-of-rack, 8 aggregation and 4 intermediate switches",
        method: "20 hosts at each top-of-rack switch, hosts at 1 Gbit/s, switches at 10 Gbit/s, 20 % and 70 % of the top-of-rack switches' uplinks. \
                 The article shows cumulative distributions, in which DRILL shortens flow completion times.",
        base,
        schemes: rivals(),
        loads: &[0.2, 0.7],
        claims: &[
            claim(None, "ecmp", 0.7, What::Mean, Some(Above(1.0))),
            claim(None, "conga", 0.7, What::Mean, Some(Above(1.0))),
            claim(None, "presto", 0.7, What::Mean, Some(Above(1.0))),
        ],
        first_hops: &[],
        shares: &[],
        why: LONG_WHY,
        at: &[0.7],
    }
    .run(bench)
}

pub(super) fn fig14(bench: &Bench) -> Result<Report> {
    let mut base = bench.article();
    if let Traffic::Poisson { incast, .. } = &mut base.traffic {
        *incast = Some(Answers { clients: 32, servers: 32, bytes: 10_000, share: 0.1 });
    }
    let grid = Grid {
        name: "fig14",
        title: "Figure 14: an incast beside the web servers' flows",
        method: "32 random clients each ask 32 random servers at once for 10 KB, a Poisson process of 10 % of the bytes, at 20 % and 35 % load; \
                 times are of all flows. The article: at 20 % load the 99.99th percentile of DRILL is 2.1 times lower than CONGA's and 2.6 times lower \
                 than Presto's; DRILL nearly does away with waiting and loss at the first hop.",
        base,
        schemes: rivals(),
        loads: &[0.2, 0.35],
        claims: &[
            claim(Some("conga_over_drill_p9999_20"), "conga", 0.2, What::Quantile(0.9999), Some(Value(2.1))),
            claim(Some("presto_over_drill_p9999_20"), "presto", 0.2, What::Quantile(0.9999), Some(Value(2.6))),
            claim(None, "conga", 0.2, What::Quantile(0.99), None),
            claim(None, "ecmp", 0.35, What::Quantile(0.99), None),
        ],
        // "Nearly": nine tenths at least.
        first_hops: &[("drill(2,1)", Above(10.0))],
        shares: &[],
        why: LONG_WHY,
        at: &[0.35, 0.2],
    };
    grid.run_with_shims(bench, 0.2, None)
}

pub(super) fn engines(bench: &Bench) -> Result<Report> {
    let mut report = bench.report("engines", "How many engines: mean flow completion times of DRILL(2,1) at 80 % load");
    let counts: &[u16] = if bench.is_quick() { &[1, 48] } else { &[1, 2, 4, 12, 24, 48] };
    let [_, short, long] = super::queues::ENQUEUE_DELAYS;
    let mut arms = Vec::new();
    for delay in [short, long] {
        for engines in counts {
            let mut scenario = bench.article();
            (scenario.settings.engines, scenario.settings.enqueue_delay) = (*engines, delay);
            arms.push(Arm::new(format!("{engines}, enqueued after {} ns", delay.as_nanos()), scenario));
        }
    }
    let observed = bench.observe(&arms)?;
    let heads = ["engines", "mean", "p50", "p99", "mean over one engine's", "p50 over one engine's"];
    let mut table = Table::new("Flow completion time, us", &heads);
    for (at, (arm, runs)) in arms.iter().zip(&observed).enumerate() {
        let one = &observed[at / counts.len() * counts.len()];
        let over = |what| with_interval(ratio(runs, one, what));
        let of = |what: What| cell(what.of_runs(runs));
        let (mean, p50, p99) = (What::Mean, What::Quantile(0.5), What::Quantile(0.99));
        table.rows.push(vec![arm.name.clone(), of(mean), of(p50), of(p99), over(mean), over(p50)]);
    }
    let most = counts.len() - 1;
    let mean_over = |one: &[Observed], other: &[Observed]| ratio(one, other, What::Mean);
    let median_over = |one: &[Observed], other: &[Observed]| ratio(one, other, What::Quantile(0.5));
    let said = |what, article, of| Said { what, article, one: 1, other: 0, of };
    let said = [said("mean, 48 engines over one", Some(Within(0.01)), &mean_over), said("median", None, &median_over)];
    let compared = [arms[0].clone(), arms[most].clone()];
    let (sensitivity, beside) = sensitivity(bench, &mut report, &compared, &[&observed[0], &observed[most]], &said)?;
    let distributions = distributions::table(bench, ", enqueued after 100 ns", &compared, &said)?;
    let learning = sensitivity.rows[0].last().cloned().unwrap_or_default();
    // The two that are furthest apart, paired by seed.
    let with_short = &observed[..counts.len()];
    let by_mean = |a: &&Vec<Observed>, b: &&Vec<Observed>| What::Mean.of_runs(a).total_cmp(&What::Mean.of_runs(b));
    let ends = with_short.iter().max_by(by_mean).zip(with_short.iter().min_by(by_mean));
    let spread = ends.map_or((f64::NAN, UNKNOWN), |(most, least)| ratio(most, least, What::Mean));
    let sent_again = |runs: &[Observed]| number(per_10_000(runs, |order| order.sent_again));
    let timeouts = |runs: &[Observed]| number(per_10_000(runs, |order| order.timeouts));
    let why = format!(
        "The article: less than 1 %. Packets enqueued after 100 ns; the two counts that are the furthest apart. The mean is made of the flows whose timers run out, 200 ms each: of 10,000 \
         flows timers run out {} times with one engine and {} times with {}; {} and {} segments are sent again. The median differs by {} %; where TCP learns of \
         re-ordering, the mean is {} of one engine's.",
        timeouts(&observed[0]),
        timeouts(&observed[most]),
        counts[most],
        sent_again(&observed[0]),
        sent_again(&observed[most]),
        number(percent_over(median_over(&observed[most], &observed[0])).0),
        learning,
    );
    let mut expectations = Expectations::of("engines")?;
    expectations.measured_figure("mean_fct_spread_pct", percent_over(spread), bench.is_quick(), &why)?;
    let method = "The article's scenario; each port belongs to one of the engines in turn, and engines do not see a packet before it is enqueued, 100 ns or 1,230 ns after \
                  it was decided on. A leaf has 24 ports here and a spine 16: of 48 engines 24 and 16 have something to do, so that 24 and 48 are the same. The article: the mean \
                  differs by less than 1 % between 1 and 48 engines.";
    let method = joined(&[method, &steadiness(&arms, &observed)]);
    let settings = json!({ "scenario": "scenarios/article.toml", "engines": counts, "seeds": bench.seeds() });
    Ok(report
        .finish(method, settings, expectations, [table, sensitivity].into_iter().chain(distributions).collect())?
        .differing(differences(beside)))
}
