//! What the article lacks: balancers that came after it, and what programs that compute together send.

use anyhow::Result;
use serde_json::json;
use weirgate_balance::{CongaSettings, LabelSettings};
use weirgate_fabric::{ControlKind, RingOrder, Scheme, Span};
use weirgate_lab::expectation::Expectations;
use weirgate_lab::report::{Report, Table, number};
use weirgate_lab::stats::mean_of_runs;

use super::Bench;
use super::arm::{Arm, Observed};
use super::claims::joined;
use super::distributions;
use super::grid::{DRILL, at_load};
use super::ratios::{What, cell, ratio, steadiness, with_interval};
use super::variants::{Said, paired, sensitivity};
use crate::fabric::scenario::Traffic;

pub(super) fn newer(bench: &Bench) -> Result<Report> {
    let mut report = bench.report("newer", "DRILL beside REPS, PLB, FlowBender, LetFlow and adaptive routing");
    let schemes = [
        Scheme::Ecmp,
        Scheme::LetFlow { gap: Span::from_micros(500), places: CongaSettings::default().flowlets },
        Scheme::Label(LabelSettings::PLB),
        Scheme::Label(LabelSettings::FLOW_BENDER),
        Scheme::Reps,
        Scheme::Random,
        Scheme::Shortest { quantum: 15_000 },
        Scheme::Shortest { quantum: 1 },
        DRILL,
    ];
    // What asks for marks has them, and so has everybody else.
    let mut base = bench.article();
    base.settings.tcp.control = ControlKind::Dctcp;
    base.settings.mark = Some(100_000);
    let [ring, all_to_all] = if bench.is_quick() { [3_200_000, 20_000] } else { [32_000_000, 100_000] };
    let mut workloads = vec![
        ("web servers, 50 %".to_owned(), at_load(&base, 0.5)),
        ("web servers, 80 %".to_owned(), at_load(&base, 0.8)),
    ];
    for (name, traffic) in [
        (
            format!("ring all-reduce of {} MB of each host", number(ring as f64 / 1e6)),
            Traffic::Ring { order: RingOrder::Leaves, bytes: ring },
        ),
        (
            format!("all-to-all, {} KB from each host to each other one", all_to_all / 1_000),
            Traffic::AllToAll(all_to_all),
        ),
    ] {
        let mut scenario = base.clone();
        scenario.traffic = traffic;
        workloads.push((name, scenario));
    }
    let arms: Vec<Arm> =
        workloads.iter().flat_map(|(_, scenario)| schemes.iter().map(|scheme| Arm::of(*scheme, scenario))).collect();
    let observed = bench.observe(&arms)?;
    let mut tables = Vec::new();
    for ((name, scenario), runs) in workloads.iter().zip(observed.chunks(schemes.len())) {
        let drill = &runs[schemes.len() - 1];
        if matches!(scenario.traffic, Traffic::Poisson { .. }) {
            let heads = ["balancer", "mean, us", "p99, us", "mean over DRILL's", "p99 over DRILL's"];
            let mut table = Table::new(&format!("{name}: flow completion times"), &heads);
            for (scheme, runs) in schemes.iter().zip(runs) {
                let of = |what: What| cell(what.of_runs(runs));
                let over = |what| with_interval(ratio(runs, drill, what));
                let (mean, p99) = (What::Mean, What::Quantile(0.99));
                table.rows.push(vec![scheme.name(), of(mean), of(p99), over(mean), over(p99)]);
            }
            tables.push(table);
            continue;
        }
        let until_end = paired(|run| run.end);
        let mut table = Table::new(&format!("{name}: until all is there"), &["balancer", "ms", "over DRILL's"]);
        for (scheme, runs) in schemes.iter().zip(runs) {
            let ends: Vec<f64> = runs.iter().map(|run| 1_000.0 * run.end).collect();
            table.rows.push(vec![scheme.name(), cell(mean_of_runs(&ends).0), with_interval(until_end(runs, drill))]);
        }
        tables.push(table);
    }
    let place =
        |scheme: &Scheme| schemes.len() + schemes.iter().position(|other| other == scheme).expect("it is one of them");
    let few = [schemes[1], schemes[2], schemes[4], DRILL];
    let mean_over = |one: &[Observed], other: &[Observed]| ratio(one, other, What::Mean);
    let names: Vec<String> =
        few.iter().map(|scheme| format!("mean at 80 % load, {} over DRILL(2,1)", scheme.name())).collect();
    let row = |(one, what)| Said { what, article: None, one, other: 3, of: &mean_over };
    let said: Vec<Said<'_>> = names.iter().map(String::as_str).enumerate().take(3).map(row).collect();
    let compared = few.map(|scheme| arms[place(&scheme)].clone());
    let runs = few.map(|scheme| observed[place(&scheme)].as_slice());
    let (table, _) = sensitivity(bench, &mut report, &compared, &runs, &said)?;
    tables.push(table);
    tables.extend(distributions::table(bench, "", &compared, &said)?);
    let method = "The article's network and identical arrivals for all; DCTCP and marks from 100 KB on, since PLB, FlowBender and REPS need marks. The ring and the all-to-all are of all \
                  320 hosts at once; in the ring one host of each leaf follows the other, so that each step leaves its leaf.";
    let method = joined(&[method, &steadiness(&arms, &observed)]);
    let settings = json!({ "scenario": "scenarios/article.toml", "seeds": bench.seeds() });
    report.finish(method, settings, Expectations::of("newer")?, tables)
}
