//! Elephants and mice.

use anyhow::Result;
use serde_json::json;
use weirgate_balance::topology::{LeafSpine, LinkSettings};
use weirgate_fabric::{Mice, Pattern, Span};
use weirgate_lab::expectation::Expectations;
use weirgate_lab::report::{Report, Table, number};
use weirgate_lab::stats::{mean, sorted};
use weirgate_units::{BitRate, Duration};

use super::Bench;
use super::arm::{Arm, Observed};
use super::claims::Article::{Above, Alike, Below};
use super::claims::{differences, joined};
use super::grid::rivals;
use super::ratios::{Times, What, cell, ratio_of, with_interval};
use super::variants::{Compare, Said, paired, sensitivity};
use crate::fabric::scenario::{Shape, Traffic};

pub(super) fn table1(bench: &Bench) -> Result<Report> {
    let mut report = bench.report("table1", "Table 1: mice and elephants, normalised by ECMP");
    let link = LinkSettings { rate: BitRate::from_bits_per_sec(1_000_000_000), delay: Duration::from_nanos(500) };
    let shape = Shape::LeafSpine(LeafSpine { spines: 4, leaves: 4, hosts: 8, edge: link, core: link });
    let bytes = if bench.is_quick() { 50_000_000 } else { 1_000_000_000 };
    // Everybody to everybody is 31 times as much.
    let patterns = [
        ("stride", Pattern::Stride(8), bytes),
        ("random", Pattern::Random, bytes),
        ("shuffle", Pattern::Shuffle, bytes / 25),
    ];
    let mut arms = Vec::new();
    for (_, pattern, bytes) in patterns {
        let mut scenario = bench.article();
        scenario.network.shape = shape.clone();
        scenario.settings.sample_every = None;
        let mice = Mice { bytes: 50_000, every: Span::from_micros(100_000) };
        scenario.traffic = Traffic::Pairs { pattern, bytes, mice: Some(mice) };
        arms.extend(rivals().into_iter().map(|scheme| Arm::of(scheme, &scenario)));
    }
    let observed = bench.observe(&arms)?;
    let schemes = rivals();
    const MICE: Times = |run| &run.small_times;
    let mice = |what: What| move |one: &[Observed], other: &[Observed]| ratio_of(one, other, what, MICE);
    const OF_MICE: [What; 3] = [What::Mean, What::Quantile(0.5), What::Quantile(0.99)];
    let [mice_mean, mice_p50, mice_p99] = OF_MICE.map(mice);
    let goodput = |run: &Observed| mean(run.goodputs.iter().copied());
    let elephants = paired(goodput);
    let statistics: [(&str, &Compare); 4] = [
        ("mice, mean time", &mice_mean),
        ("mice, p50", &mice_p50),
        ("mice, p99", &mice_p99),
        ("elephants, mean goodput", &elephants),
    ];
    let mut tables = Vec::new();
    for ((name, _, bytes), runs) in patterns.iter().zip(observed.chunks(schemes.len())) {
        let heads: Vec<String> =
            ["over ECMP's".to_owned()].into_iter().chain(schemes.iter().map(weirgate_fabric::Scheme::name)).collect();
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let mut table = Table::new(&format!("{name}: elephants of {} MB", bytes / 1_000_000), &heads);
        for (what, of) in statistics {
            let mut row = vec![what.to_owned()];
            row.extend(runs.iter().map(|one| with_interval(of(one, &runs[0]))));
            table.rows.push(row);
        }
        let times = sorted(runs[0].iter().flat_map(|run| MICE(run).iter().copied()));
        let [mean_time, p50, p99] = OF_MICE.map(|what| cell(what.of(&times)));
        let goodput = number(mean(runs[0].iter().map(goodput)));
        let note = format!("ECMP itself: {mean_time} us, {p50} us, {p99} us, {goodput} Mbit/s");
        let mut row = vec![note];
        row.resize(heads.len(), String::new());
        table.rows.push(row);
        tables.push(table);
    }
    // Of each pattern, ECMP and DRILL.
    let ends = |at: usize| [at, at + schemes.len() - 1];
    let places: Vec<usize> = (0..patterns.len()).flat_map(|pattern| ends(pattern * schemes.len())).collect();
    let names: Vec<String> =
        patterns.iter().map(|(name, ..)| format!("{name}, mice, mean time: DRILL(2,1) over ECMP")).collect();
    let goodputs: Vec<String> = patterns.iter().map(|(name, ..)| format!("{name}, elephants, mean goodput")).collect();
    let rows = names.iter().zip(&goodputs).enumerate().flat_map(|(at, (mice, elephants_of))| {
        // A shuffle is limited by its last hop.
        let is_limited = patterns[at].1 == Pattern::Shuffle;
        let said = |what, article, of| {
            let article = Some(if is_limited { Alike } else { article });
            Said { what, article, one: 2 * at + 1, other: 2 * at, of }
        };
        [
            said(mice.as_str(), Below(1.0), &mice_mean as &Compare),
            said(elephants_of.as_str(), Above(1.0), &elephants as &Compare),
        ]
    });
    let (table, beside) = sensitivity(
        bench,
        &mut report,
        &places.iter().map(|at| arms[*at].clone()).collect::<Vec<_>>(),
        &places.iter().map(|at| observed[*at].as_slice()).collect::<Vec<_>>(),
        &rows.collect::<Vec<_>>(),
    )?;
    // Here, and where TCP learns of re-ordering.
    let goodputs = table.rows.iter().skip(1).step_by(2).filter_map(|row| {
        let (here, learning) = row.get(2).zip(row.last())?;
        Some(format!("{}: {here}, {learning}", row[0]))
    });
    let goodputs = format!(
        "TCP takes re-ordering for loss and comes down. DRILL's over ECMP's, and the same with a TCP that learns of re-ordering: {}.",
        goodputs.collect::<Vec<_>>().join("; ")
    );
    tables.push(table);
    let method = "4 leaves with 8 hosts each, 4 spines, all links at 1 Gbit/s. Each host sends elephants (the article: 1 GB; here 1 GB, in the short form 50 MB, in a shuffle a 25th of \
                  that), one after the other, and a mouse of 50 KB each 100 ms to the same host. Stride: host i to host i + 8; random: to one of another leaf; shuffle: to all others in \
                  random order. The article: with stride and random DRILL has much lower times of mice, the longest above all, and more goodput of elephants; a shuffle is limited by the last \
                  hop, and no balancer improves much on ECMP. It gives the 99.99th percentile, for which there are too few mice here.";
    let method = joined(&[method, &goodputs]);
    let settings = json!({ "scenario": "scenarios/article.toml", "seeds": bench.seeds() });
    Ok(report.finish(method, settings, Expectations::of("table1")?, tables)?.differing(differences(beside)))
}
