//! The order in which packets arrive.

use anyhow::Result;
use serde_json::json;
use weirgate_balance::CongaSettings;
use weirgate_fabric::{PUBLISHED, Scheme, Sizes};
use weirgate_lab::expectation::Expectations;
use weirgate_lab::report::{Report, Table, number};
use weirgate_lab::stats::mean_of_runs;

use super::Bench;
use super::arm::{Arm, Observed, Order};
use super::claims::Article::{self, Above, Below, Value};
use super::claims::{Beside, differences, joined};
use super::grid::{DRILL, FIRST_HOP, at_load, counts_at, waited};
use super::ratios::{steadiness, with_interval};
use super::variants::{Said, paired, sensitivity};
use crate::fabric::outcome::HopCounts;
use crate::fabric::scenario::Traffic;

fn sum(runs: &[Observed]) -> Order {
    let mut all = Order::default();
    for Observed { order, .. } in runs {
        let Order {
            flows,
            one,
            three,
            three_in_a_row,
            lost,
            short_last,
            others,
            three_unlost,
            batches,
            sent_again,
            timeouts,
        } = order;
        all.flows += flows;
        all.one += one;
        all.three += three;
        all.three_in_a_row += three_in_a_row;
        all.lost += lost;
        all.short_last += short_last;
        all.others += others;
        all.three_unlost += three_unlost;
        all.batches += batches;
        all.sent_again += sent_again;
        all.timeouts += timeouts;
    }
    all
}

pub(super) fn fig11a(bench: &Bench) -> Result<Report> {
    let mut report = bench.report("fig11a", "Figure 11 (a): duplicate ACKs at 80 % load, and GRO batches");
    let schemes = [
        Scheme::Ecmp,
        Scheme::Conga(CongaSettings::default()),
        Scheme::Presto,
        Scheme::Random,
        Scheme::RoundRobin,
        DRILL,
    ];
    // The article's distribution first.
    let mut names: Vec<&str> = PUBLISHED.iter().map(|(name, _)| *name).collect();
    names.sort_by_key(|name| *name != "facebook_web_server");
    if bench.is_quick() {
        names.truncate(1);
        names.push("websearch");
    }
    let mut arms = Vec::new();
    for name in &names {
        for scheme in schemes {
            let mut scenario = bench.article();
            if let Traffic::Poisson { sizes, .. } = &mut scenario.traffic {
                *sizes = Sizes::published(name).unwrap_or_else(|| sizes.clone());
            }
            // Of larger flows fewer, for as many bytes.
            if *name == "websearch" || *name == "datamining" {
                scenario.run.flows /= 20;
            }
            let arm = Arm::of(scheme, &scenario).without_shim();
            arms.push(if *name == "facebook_web_server" { arm } else { arm.aside() });
        }
    }
    let observed = bench.observe(&arms)?;
    let percent = |part: u64, order: &Order| 100.0 * part as f64 / order.flows.max(1) as f64;
    let mut tables = Vec::new();
    for (name, runs) in names.iter().zip(observed.chunks(schemes.len())) {
        let heads = [
            "balancer",
            "flows with a dup ACK, %",
            "with 3, %",
            "with 3 in a row, %",
            "a segment was lost, %",
            "only short last segments overtook, %",
            "others overtook, %",
            "with 3, nothing lost, %",
            "GRO batches over ECMP's",
        ];
        let mut table = Table::new(&format!("{name}: shares of all flows"), &heads);
        let ecmp = sum(&runs[0]);
        let per_flow = |order: &Order| order.batches as f64 / order.flows.max(1) as f64;
        for (scheme, runs) in schemes.iter().zip(runs) {
            let order = sum(runs);
            let percent = |flows: u64| number(percent(flows, &order));
            table.rows.push(vec![
                scheme.name(),
                percent(order.one),
                percent(order.three),
                percent(order.three_in_a_row),
                percent(order.lost),
                percent(order.short_last),
                percent(order.others),
                percent(order.three_unlost),
                format!("{:.4}", per_flow(&order) / per_flow(&ecmp)),
            ]);
        }
        tables.push(table);
    }
    let place = |scheme: Scheme| schemes.iter().position(|other| *other == scheme).expect("it is one of them");
    let [random, drill] = [Scheme::Random, DRILL].map(place);
    let over =
        |of: fn(&Order) -> u64| paired(move |run: &Observed| of(&run.order) as f64 / run.order.flows.max(1) as f64);
    let (with_one, with_three, batches) =
        (over(|order| order.one), over(|order| order.three), over(|order| order.batches));
    let said = |what, article, one, of| Said { what, article: Some(Value(article)), one, other: 0, of };
    let compared = [DRILL, Scheme::Random, Scheme::RoundRobin, Scheme::Presto, Scheme::Ecmp].map(place);
    let (table, mut beside) = sensitivity(
        bench,
        &mut report,
        &compared.map(|at| arms[at].clone()),
        &compared.map(|at| observed[at].as_slice()),
        &[
            said("flows with a dup ACK, random over DRILL(2,1)", 8.0, 1, &with_one),
            said("round robin over DRILL(2,1)", 7.3, 2, &with_one),
            said("Presto over DRILL(2,1)", 3.3, 3, &with_one),
            Said { what: "with 3, random over DRILL(2,1)", article: None, one: 1, other: 0, of: &with_three },
            Said { what: "with 3, Presto over random", article: Some(Above(1.0)), one: 3, other: 1, of: &with_three },
            Said {
                what: "GRO batches, DRILL(2,1) over ECMP",
                article: Some(Below(1.005)),
                one: 0,
                other: 4,
                of: &batches,
            },
        ],
    )?;
    tables.push(table);
    let (of_random, of_drill) = (sum(&observed[random]), sum(&observed[drill]));
    let of_flows = |of: fn(&Order) -> u64| {
        let shares: Vec<f64> = observed[drill].iter().map(|run| percent(of(&run.order), &run.order)).collect();
        mean_of_runs(&shares)
    };
    let (ones, threes) = (of_flows(|order| order.one), of_flows(|order| order.three));
    beside.push(Beside::new("DRILL's flows with a dup ACK, %", Value(0.4), ones));
    beside.push(Beside::new("DRILL's flows with 3, %", Value(0.02), threes));
    let at_20: Vec<Arm> =
        schemes.iter().map(|scheme| Arm::of(*scheme, &at_load(&bench.article(), 0.2)).without_shim().aside()).collect();
    let mut table = Table::new("20 % load: flows with a dup ACK, %", &["balancer", "article", "here"]);
    for (arm, runs) in at_20.iter().zip(bench.observe(&at_20)?) {
        let shares: Vec<f64> = runs.iter().map(|run| percent(run.order.one, &run.order)).collect();
        let here = mean_of_runs(&shares);
        table.rows.push(vec![arm.name.clone(), Article::cell(Some(Below(0.8)), "-"), with_interval(here)]);
        beside.push(Beside::new(format!("flows with a dup ACK at 20 % load, {}, %", arm.name), Below(0.8), here));
    }
    tables.push(table);
    let mut expectations = Expectations::of("fig11a")?;
    let waits = |hop: &str| {
        let sums = |(packets, all), counts: &HopCounts| (packets + counts.packets, all + waited(counts));
        let (packets, all) = counts_at(&observed[drill], hop).fold((0, 0.0), sums);
        all / packets.max(1) as f64
    };
    let why = format!(
        "Flows with three duplicate ACKs in all or more, whatever their cause. Of flows that lost nothing it is {} % of random's and {} % of DRILL's. The queues that DRILL evens out \
         are short, {} us of waiting on average; those from the spines to a leaf, where there is nothing to choose, are {} us, and a flow's next packet follows after 1.23 us: so packets of a flow overtake each other there, with any balancer that goes by packets, and end a GRO batch: DRILL's flows have {} times as many as ECMP's.",
        number(percent(of_random.three_unlost, &of_random)),
        number(percent(of_drill.three_unlost, &of_drill)),
        number(waits(FIRST_HOP)),
        number(waits("down 1")),
        number(batches(&observed[drill], &observed[place(Scheme::Ecmp)]).0),
    );
    expectations.measured_figure(
        "random_over_drill_flows_with_3_dupacks_80",
        with_three(&observed[random], &observed[drill]),
        bench.is_quick(),
        &why,
    )?;
    expectations.measured_figure(
        "drill_flows_with_3_dupacks_pct_80",
        threes,
        bench.is_quick(),
        "The article: 0.02 %.",
    )?;
    let method = "The article's scenario at 80 % load, no shim. A duplicate ACK is sent for each segment that arrives before one that was sent earlier; a flow's are counted together; in a row are those between which none acknowledges more, which a sender answers. The \
                  article: 0.4 % of DRILL's flows have one at least and 0.02 % three, 8, 7.3 and 3.3 times fewer than with random, round robin and Presto (with one), and \
                  GRO makes less than 0.5 % more batches; of Presto's flows fewer than random's have one, and more have many; at 20 % load less than 0.8 % of flows have one, with any balancer. A last segment that is shorter than the others overtakes the one before it on another path even where all queues are empty; the columns \
                  tell such flows from those that lost a segment and from those in which others overtook.";
    let method = joined(&[method, &steadiness(&arms, &observed)]);
    let settings = json!({ "scenario": "scenarios/article.toml", "distributions": names, "seeds": bench.seeds() });
    Ok(report.finish(method, settings, expectations, tables)?.differing(differences(beside)))
}
