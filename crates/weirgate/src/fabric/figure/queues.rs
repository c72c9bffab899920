//! Figures of queues: how even they are.

use anyhow::Result;
use serde_json::json;
use weirgate_balance::Looks;
use weirgate_fabric::{Queues, Scheme, Span};
use weirgate_lab::expectation::Expectations;
use weirgate_lab::plot;
use weirgate_lab::report::{Report, Table, number};
use weirgate_lab::stats::{mean, mean_of_runs};
use weirgate_units::Duration;

use super::Bench;
use super::arm::{Arm, Observed};
use super::grid::{DRILL, equal_links, with_interval};
use crate::fabric::scenario::{Scenario, Traffic};

/// The article: lengths "do not include packets that are just entering a queue, until they are fully enqueued", and not how long that
/// takes. Here, as long as a full packet takes to come in at 10 Gbit/s.
pub(super) const ENQUEUE_DELAY: Span = Span::from_nanos(1_230);

/// The article's 48 spines, 48 leaves, 48 hosts at each; the short form has 12 of each.
fn scenario(bench: &Bench, load_to: f64, engines: u16) -> Scenario {
    let mut scenario = bench.article();
    let size = if bench.is_quick() { 12 } else { 48 };
    scenario.network.shape = equal_links(size, size, size);
    if let Traffic::Poisson { load, .. } = &mut scenario.traffic {
        *load = load_to;
    }
    // About 20 ms of the small network at 80 %, and 6 ms of the large one.
    scenario.run.flows = if bench.is_quick() { 40_000 } else { 200_000 };
    scenario.run.warm_up = Duration::from_millis(2);
    (scenario.settings.engines, scenario.settings.enqueue_delay) = (engines, ENQUEUE_DELAY);
    scenario
}

/// The mean of both directions' standard deviations, in bytes.
fn unevenness(run: &Observed) -> f64 {
    f64::midpoint(run.up.deviation(), run.down.deviation())
}

/// The share of samples in which a queue has no packet that waits behind another, in percent.
fn short(queues: &[&Queues]) -> f64 {
    let all: u64 = queues.iter().flat_map(|queues| &queues.lengths).sum();
    let short: u64 = queues.iter().map(|queues| queues.lengths.iter().take(16).sum::<u64>()).sum();
    100.0 * short as f64 / all.max(1) as f64
}

fn row(name: &str, runs: &[Observed], drill: &[Observed]) -> Vec<String> {
    let of = |of: fn(&Observed) -> f64| mean(runs.iter().map(of));
    let ratios: Vec<f64> = runs.iter().zip(drill).map(|(a, b)| unevenness(a) / unevenness(b)).collect();
    let queues: Vec<&Queues> = runs.iter().flat_map(|run| [&run.up, &run.down]).collect();
    vec![
        name.to_owned(),
        number(of(|run| run.up.deviation()) / 1_538.0),
        number(of(|run| run.down.deviation()) / 1_538.0),
        with_interval(mean_of_runs(&ratios)),
        format!("{:.4}", short(&queues)),
    ]
}

const HEADS: [&str; 5] =
    ["", "STDV of uplinks, packets", "STDV of downlinks, packets", "over DRILL(2,1)", "queues of at most a packet, %"];

pub(super) fn fig2(bench: &Bench) -> Result<Report> {
    let report = bench.report("fig2", "Figure 2: how even queues are, by the number of engines");
    let engines: &[u16] = if bench.is_quick() { &[1, 4, 12] } else { &[1, 6, 12, 24, 48] };
    let loads = [0.8, 0.3];
    let schemes = [Scheme::Ecmp, Scheme::Random, Scheme::RoundRobin, DRILL];
    let mut arms = Vec::new();
    for load in loads {
        for count in engines {
            arms.extend(schemes.iter().map(|scheme| Arm::of(*scheme, &scenario(bench, load, *count))));
        }
    }
    let observed = bench.observe(&arms)?;
    let at =
        |load: usize, engine: usize, scheme: usize| &observed[(load * engines.len() + engine) * schemes.len() + scheme];
    let drill = schemes.len() - 1;
    let mut tables = Vec::new();
    for (load, percent) in [(0, 80), (1, 30)] {
        let mut table = Table::new(&format!("{percent} % load"), &HEADS);
        for (engine, count) in engines.iter().enumerate() {
            for (place, scheme) in schemes.iter().enumerate() {
                let name = format!("{}, {count} engines", scheme.name());
                table.rows.push(row(&name, at(load, engine, place), at(load, engine, drill)));
            }
        }
        tables.push(table);
    }
    let line = |(place, scheme): (usize, &Scheme)| {
        let point = |(engine, count): (usize, &u16)| {
            (f64::from(*count), mean(at(0, engine, place).iter().map(unevenness)) / 1_538.0)
        };
        (scheme.name(), engines.iter().enumerate().map(point).collect())
    };
    let lines: Vec<_> = schemes.iter().enumerate().map(line).collect();
    // Random beside DRILL, where that is least.
    let ratio = |engine: usize| {
        let pairs = at(0, engine, 1).iter().zip(at(0, engine, drill));
        mean(pairs.map(|(a, b)| unevenness(a) / unevenness(b)))
    };
    let least = (0..engines.len()).map(ratio).fold(f64::INFINITY, f64::min);
    let mut expectations = Expectations::of("fig2")?;
    expectations.measured_figure(
        "random_over_drill_stdv_80",
        least,
        "The least of all numbers of engines. The article: at 80 % load DRILL's deviation is more than 65 % lower than that of a random choice for \
         each packet (a ratio of 2.9), with any number of engines.",
    )?;
    let method = "Spines, leaves and hosts of each leaf are 48 each (12 in the short form), all links at 10 Gbit/s; each 10 us the standard deviation of \
                  the lengths of each leaf's uplink queues, and of the queues that lead to each leaf, averaged over leaves and time. A packet of \
                  1,538 bytes is 1. Engines do not see a packet before it is enqueued, 1.23 us after their decision. The article: at 80 % load DRILL(2,1) \
                  is more than 65 % below random, which is 94 % below ECMP; at 30 % load it is about 20 % better with 48 engines and 75 % with one.";
    let settings =
        json!({ "scenario": "scenarios/article.toml", "engines": engines, "loads": loads, "seeds": bench.seeds() });
    let mut report = report.finish(method.to_owned(), settings, expectations, tables)?;
    let caption = "Mean standard deviation of queues that should be alike, at 80 % load.".to_owned();
    report.plots.push((caption, plot::curves("engines", "packets", true, &lines)?));
    Ok(report)
}

pub(super) fn fig3(bench: &Bench) -> Result<Report> {
    let report = bench.report("fig3", "Figure 3: how many samples, how many memories");
    let many = if bench.is_quick() { 12 } else { 48 };
    let counts: &[usize] = if bench.is_quick() { &[1, 2, 4, 10] } else { &[1, 2, 3, 4, 6, 8, 12, 20] };
    let looks = |d, m| Looks::new(d, m).expect("20 are no more than 32");
    let mut all: Vec<Looks> = counts.iter().map(|m| looks(1, *m)).collect();
    all.extend(counts.iter().filter(|d| **d > 1).map(|d| looks(*d, 1)));
    let mut arms = Vec::new();
    for engines in [many, 1] {
        arms.extend(all.iter().map(|looks| Arm::of(Scheme::Drill(*looks), &scenario(bench, 0.8, engines))));
    }
    let observed = bench.observe(&arms)?;
    let (with_many, with_one) = observed.split_at(all.len());
    let base = |runs: &[Vec<Observed>]| {
        let at = all.iter().position(|looks| *looks == Looks::RECOMMENDED).unwrap_or(0);
        runs[at].clone()
    };
    let mut tables = Vec::new();
    for (engines, runs) in [(many, with_many), (1, with_one)] {
        let mut table = Table::new(&format!("80 % load, engines: {engines}"), &HEADS);
        let drill = base(runs);
        for (looks, runs) in all.iter().zip(runs) {
            table.rows.push(row(&format!("DRILL({},{})", looks.d(), looks.m()), runs, &drill));
        }
        tables.push(table);
    }
    let curve = |of: &dyn Fn(&Looks) -> Option<usize>| -> Vec<(f64, f64)> {
        let point = |(looks, runs): (&Looks, &Vec<Observed>)| {
            Some((of(looks)? as f64, mean(runs.iter().map(unevenness)) / 1_538.0))
        };
        all.iter().zip(with_many).filter_map(point).collect()
    };
    let lines = [
        ("memories m, d = 1".to_owned(), curve(&|looks| (looks.d() == 1).then_some(looks.m()))),
        ("samples d, m = 1".to_owned(), curve(&|looks| (looks.m() == 1).then_some(looks.d()))),
    ];
    let method = "As figure 2, at 80 % load. The article, with 48 engines: a second memory, DRILL(1,2) beside DRILL(1,1), takes 11 % off the mean \
                  deviation, and twenty of them add 8 %, as engines choose the same ports at the same time; with one engine more samples are better, and it \
                  matters little.";
    let settings = json!({ "scenario": "scenarios/article.toml", "engines": [many, 1], "seeds": bench.seeds() });
    let mut report = report.finish(method.to_owned(), settings, Expectations::of("fig3")?, tables)?;
    let caption = format!("Mean standard deviation of queues that should be alike, engines: {many}.");
    report.plots.push((caption, plot::curves("samples or memories", "packets", false, &lines)?));
    Ok(report)
}
