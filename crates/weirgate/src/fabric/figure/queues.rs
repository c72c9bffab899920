//! Figures of queues: how even they are.

use anyhow::Result;
use serde_json::json;
use weirgate_balance::{Looks, Rule};
use weirgate_fabric::{Scheme, Span};
use weirgate_lab::expectation::Expectations;
use weirgate_lab::plot;
use weirgate_lab::report::{Report, Table, number};
use weirgate_lab::stats::{mean, mean_of_runs};
use weirgate_units::Duration;

use super::Bench;
use super::arm::{Arm, Observed};
use super::claims::Article::{self, Above, Below, Value};
use super::claims::{Beside, differences, joined};
use super::distributions;
use super::grid::{DRILL, equal_links};
use super::ratios::{steadiness, with_interval};
use super::variants::{Said, paired, sensitivity};
use crate::fabric::scenario::{Scenario, Traffic};

/// The article: lengths "do not include packets that are just entering a queue, until they are fully enqueued"; it does not say for how
/// long. At once, as long as a chip's pipeline takes, and as long as a full packet takes to come in at 10 Gbit/s.
pub(super) const ENQUEUE_DELAYS: [Span; 3] = [Span::ZERO, Span::from_nanos(100), Span::from_nanos(1_230)];

/// The article's 48 spines, 48 leaves, 48 hosts at each; the short form has 12 of each.
fn scenario(bench: &Bench, load_to: f64, engines: u16, enqueue_delay: Span) -> Scenario {
    let mut scenario = bench.article();
    let size = if bench.is_quick() { 12 } else { 48 };
    scenario.network.shape = equal_links(size, size, size);
    if let Traffic::Poisson { load, .. } = &mut scenario.traffic {
        *load = load_to;
    }
    // About 20 ms of the small network at 80 %, and 6 ms of the large one.
    scenario.run.flows = if bench.is_quick() { 40_000 } else { 200_000 };
    scenario.run.warm_up = Duration::from_millis(if bench.is_quick() { 2 } else { 5 });
    (scenario.settings.engines, scenario.settings.enqueue_delay) = (engines, enqueue_delay);
    scenario
}

/// The mean of both directions' standard deviations, in bytes.
fn unevenness(run: &Observed) -> f64 {
    f64::midpoint(run.up.deviation, run.down.deviation)
}

/// The share of samples in which a queue has no packet that waits behind another, in percent.
fn share_of_short(runs: &[Observed]) -> f64 {
    let queues = || runs.iter().flat_map(|run| [&run.up, &run.down]);
    let [all, short] = [queues().map(|even| even.samples).sum::<u64>(), queues().map(|even| even.short).sum()];
    100.0 * short as f64 / all.max(1) as f64
}

fn row(name: &str, runs: &[Observed], drill: &[Observed]) -> Vec<String> {
    let of = |of: fn(&Observed) -> f64| mean(runs.iter().map(of));
    let ratio = |of: fn(&Observed) -> f64| with_interval(paired(of)(runs, drill));
    vec![
        name.to_owned(),
        number(of(|run| run.up.deviation) / 1_538.0),
        number(of(|run| run.down.deviation) / 1_538.0),
        ratio(unevenness),
        ratio(|run| run.up.deviation),
        ratio(|run| run.down.deviation),
        format!("{:.4}", share_of_short(runs)),
    ]
}

const HEADS: [&str; 7] = [
    "",
    "STDV of uplinks, packets",
    "STDV of downlinks, packets",
    "mean of both over DRILL(2,1)'s",
    "uplinks",
    "downlinks",
    "queues of at most a packet, %",
];

pub(super) fn fig2(bench: &Bench) -> Result<Report> {
    let mut report = bench.report("fig2", "Figure 2: how even queues are, by the number of engines");
    let engines: &[u16] = if bench.is_quick() { &[1, 12] } else { &[1, 6, 12, 24, 48] };
    let loads = [(0.8, 80), (0.3, 30)];
    // What a flow's hash or a draw chooses is the same with any number of engines, and whatever they see.
    let blind = [Scheme::Ecmp, Scheme::Random];
    let mut arms = Vec::new();
    for (load, _) in loads {
        arms.extend(blind.iter().map(|scheme| Arm::of(*scheme, &scenario(bench, load, 1, Span::ZERO))));
        for delay in ENQUEUE_DELAYS {
            for count in engines {
                let scenario = scenario(bench, load, *count, delay);
                let is_judged = load == 0.8 && delay == Span::ZERO && *count == 1;
                let arm = |scheme: &Scheme| {
                    let arm = Arm::of(*scheme, &scenario);
                    if is_judged { arm } else { arm.aside() }
                };
                arms.extend([Scheme::RoundRobin, DRILL].iter().map(arm));
            }
        }
    }
    let observed = bench.observe(&arms)?;
    let of_load = arms.len() / loads.len();
    let mut tables = Vec::new();
    for ((_, percent), runs) in loads.iter().zip(observed.chunks(of_load)) {
        let (random, rest) = runs.split_at(blind.len());
        let mut table = Table::new(&format!("{percent} % load"), &HEADS);
        // The first DRILL: one engine that sees all.
        for (scheme, runs) in blind.iter().zip(random) {
            table.rows.push(row(&scheme.name(), runs, &rest[1]));
        }
        for (delay, runs) in ENQUEUE_DELAYS.iter().zip(rest.chunks(2 * engines.len())) {
            for (count, runs) in engines.iter().zip(runs.chunks(2)) {
                for (scheme, one) in [Scheme::RoundRobin, DRILL].iter().zip(runs) {
                    let name = format!("{}, {count} engines, enqueued after {} ns", scheme.name(), delay.as_nanos());
                    table.rows.push(row(&name, one, &runs[1]));
                }
            }
        }
        tables.push(table);
    }
    let (random, drill) = (1, blind.len() + 1);
    let said = |what, article, of| Said { what, article, one: 0, other: 1, of };
    let (both, up, down) = (paired(unevenness), paired(|run| run.up.deviation), paired(|run| run.down.deviation));
    let compared = [random, drill, 0].map(|at| arms[at].clone());
    let said = [
        // More than 65 % less.
        said("random over DRILL(2,1), mean of both", Some(Above(2.86)), &both),
        said("of uplinks", None, &up),
        said("of downlinks", None, &down),
        // 94 % less.
        Said { what: "ECMP over random, mean of both", article: Some(Value(16.7)), one: 2, other: 0, of: &both },
    ];
    let runs = [random, drill, 0].map(|at| observed[at].as_slice());
    let (table, mut beside) = sensitivity(bench, &mut report, &compared, &runs, &said)?;
    tables.push(table);
    tables.extend(distributions::table(bench, ", 80 % load", &compared, &said)?);
    // The last table's first delay is none.
    let at_30 = &observed[of_load..];
    let caption = "30 % load, mean of both directions over DRILL(2,1)'s";
    let mut table = Table::new(caption, &["balancer, engines", "article", "here"]);
    let last = engines.len() - 1;
    for (engine, of, article) in [(0, 1, 4.0), (last, 48, 1.25)] {
        let count = engines[engine];
        // The short form has fewer.
        let article = (count == of).then_some(Value(article));
        let first = blind.len() + 2 * engine;
        for (name, one) in [("random", random), ("round robin", first)] {
            let here = both(&at_30[one], &at_30[first + 1]);
            table.rows.push(vec![format!("{name}, {count}"), Article::cell(article, "-"), with_interval(here)]);
            let what = format!("{name} over DRILL(2,1) at 30 % load, engines: {count}");
            beside.push(Beside { what, article, here, cause: String::new() });
        }
    }
    tables.push(table);
    let packets = |runs: &Vec<Observed>| mean(runs.iter().map(unevenness)) / 1_538.0;
    let line = |at: usize| {
        let delay = ENQUEUE_DELAYS[at].as_nanos();
        let runs = &observed[blind.len() + at * 2 * engines.len()..][..2 * engines.len()];
        let points = engines.iter().zip(runs.chunks(2)).map(|(count, runs)| (f64::from(*count), packets(&runs[1])));
        (format!("drill(2,1), enqueued after {delay} ns"), points.collect())
    };
    let flat = |at: usize| {
        let level = packets(&observed[at]);
        (blind[at].name(), engines.iter().map(|count| (f64::from(*count), level)).collect())
    };
    let lines: Vec<(String, Vec<(f64, f64)>)> = [flat(1), line(0), line(1), line(2)].into();
    let ratio = |of: fn(&Observed) -> f64| paired(of)(&observed[random], &observed[drill]);
    // With one engine, by delay.
    let [_, short, long] = [0, 1, 2].map(|at| both(&observed[random], &observed[drill + at * 2 * engines.len()]));
    let why = format!(
        "One engine that sees what it has enqueued, as in scenarios/article.toml. The article: DRILL's deviation is more than 65 % below that of a random choice for each \
         packet (a ratio above 2.86), with any number of engines. Of the uplinks alone it is {} here, of the downlinks {}: a leaf evens out its own queues; which spine then has \
         more packets for one leaf than another spine is chance, and a spine has one link to a leaf and nothing to choose. Where packets are on their way to their queues \
         unseen for 100 ns it is {}, for 1,230 ns {}.",
        number(ratio(|run| run.up.deviation).0),
        number(ratio(|run| run.down.deviation).0),
        with_interval(short),
        with_interval(long),
    );
    let mut expectations = Expectations::of("fig2")?;
    expectations.measured_figure("random_over_drill_stdv_80", ratio(unevenness), bench.is_quick(), &why)?;
    let method = "Spines, leaves and hosts of each leaf are 48 each (12 in the short form), all links at 10 Gbit/s; each 10 us the standard deviation of \
                  the lengths of each leaf's uplink queues, and of the queues that lead to each leaf, averaged over leaves and time. A packet of \
                  1,538 bytes is 1. Engines do not see a packet before it is enqueued. The article, which measures for 100 s: at 80 % load DRILL(2,1) \
                  is more than 65 % below random, which is 94 % below ECMP; at 30 % load it is about 20 % better than random and round robin with 48 engines and 75 % with one.";
    let method = joined(&[method, &steadiness(&arms, &observed)]);
    let settings =
        json!({ "scenario": "scenarios/article.toml", "engines": engines, "loads": [80, 30], "seeds": bench.seeds() });
    report = report.finish(method, settings, expectations, tables)?.differing(differences(beside));
    let caption = "Mean standard deviation of queues that should be alike, at 80 % load.".to_owned();
    report.plots.push((caption, plot::curves("engines", "packets", true, &lines)?));
    Ok(report)
}

pub(super) fn fig3(bench: &Bench) -> Result<Report> {
    let mut report = bench.report("fig3", "Figure 3: how many samples, how many memories");
    let many = if bench.is_quick() { 12 } else { 48 };
    let counts: &[usize] = if bench.is_quick() { &[1, 2, 10] } else { &[1, 2, 3, 4, 6, 8, 12, 20] };
    let looks = |d, m| Looks::new(d, m).expect("20 are no more than 32");
    let mut all: Vec<Looks> = counts.iter().map(|m| looks(1, *m)).collect();
    all.extend(counts.iter().filter(|d| **d > 1).map(|d| looks(*d, 1)));
    all.extend([Rule::Remembered, Rule::Replacement].map(|rule| Looks::RECOMMENDED.with(rule)));
    let [at_once, short, long] = ENQUEUE_DELAYS;
    let cases = [(many, short), (many, long), (1, at_once)];
    let most = counts[counts.len() - 1];
    let judged = [(1, 1), (1, 2), (1, most), (2, 1), (most, 1)].map(|(d, m)| looks(d, m));
    let mut arms = Vec::new();
    for (case, (engines, delay)) in cases.into_iter().enumerate() {
        let mut scenario = scenario(bench, 0.8, engines, delay);
        scenario.run.flows /= if bench.is_quick() { 4 } else { 1 };
        arms.extend(all.iter().map(|looks| {
            let arm = Arm::of(Scheme::Drill(*looks), &scenario);
            // The first case's are what the article's numbers are of.
            if case == 0 && judged.contains(looks) { arm } else { arm.aside() }
        }));
    }
    let observed = bench.observe(&arms)?;
    let recommended = all.iter().position(|looks| *looks == Looks::RECOMMENDED).unwrap_or(0);
    let mut tables = Vec::new();
    for ((engines, delay), runs) in cases.iter().zip(observed.chunks(all.len())) {
        let caption = format!("80 % load, engines: {engines}, enqueued after {} ns", delay.as_nanos());
        let mut table = Table::new(&caption, &HEADS);
        for (looks, one) in all.iter().zip(runs) {
            table.rows.push(row(&Scheme::Drill(*looks).name(), one, &runs[recommended]));
        }
        tables.push(table);
    }
    let with_many = &observed[..all.len()];
    let place = |d, m| all.iter().position(|other| *other == looks(d, m)).expect("both forms have it");
    let over_one = paired(unevenness);
    let names = [format!("DRILL(1,{most}) over DRILL(1,1)"), format!("DRILL({most},1) over DRILL(1,1)")];
    // The short form has fewer engines, and fewer looks.
    let of_article = |value| (!bench.is_quick()).then_some(Value(value));
    // Only what is compared is run again with what is varied: the places of these are those among `judged`.
    let compared: Vec<Arm> = judged.iter().map(|looks| arms[place(looks.d(), looks.m())].clone()).collect();
    let runs: Vec<&[Observed]> = judged.iter().map(|looks| with_many[place(looks.d(), looks.m())].as_slice()).collect();
    let said = |what, article, one| Said { what, article, one, other: 0, of: &over_one };
    let said = [
        said("DRILL(1,2) over DRILL(1,1)", of_article(0.89), 1),
        said(&names[0], of_article(1.08), 2),
        said("DRILL(2,1) over DRILL(1,1)", None, 3),
        said(&names[1], None, 4),
    ];
    let (table, mut beside) = sensitivity(bench, &mut report, &compared, &runs, &said)?;
    tables.push(table);
    let what = format!(", 80 % load, engines: {many}, enqueued after 100 ns");
    tables.extend(distributions::table(bench, &what, &compared, &said)?);
    if !bench.is_quick() {
        // What the article says of 48 engines, and of one, here one that sees all at once.
        let one = &observed[2 * all.len()..];
        let (of_12, of_2) = (&one[place(12, 1)], &one[place(2, 1)]);
        let shares = [
            ("queues longer than a packet, DRILL(1,2), 48 engines, %", Below(0.001), &with_many[place(1, 2)]),
            ("queues longer than a packet, DRILL(1,20), 48 engines, %", Above(1.0), &with_many[place(1, 20)]),
            ("queues longer than a packet, DRILL(12,1), one engine, %", Below(0.000_1), of_12),
            ("queues longer than a packet, DRILL(2,1), one engine, %", Below(0.000_1), of_2),
        ];
        let mut table = Table::new("What the article says of queues' lengths", &["", "article", "here"]);
        let share = |(what, article, runs): (&str, Article, &Vec<Observed>)| {
            let of_each: Vec<f64> = runs.iter().map(|run| 100.0 - share_of_short(std::slice::from_ref(run))).collect();
            Beside::new(what, article, mean_of_runs(&of_each))
        };
        let uneven = Beside::new("DRILL(12,1) over DRILL(2,1), one engine", Below(1.0), over_one(of_12, of_2));
        let said: Vec<Beside> = shares.into_iter().map(share).chain([uneven]).collect();
        for Beside { what, article, here, .. } in &said {
            table.rows.push(vec![what.clone(), Article::cell(*article, "-"), with_interval(*here)]);
        }
        tables.push(table);
        beside.extend(said);
    }
    let curve = |of: &dyn Fn(&Looks) -> Option<usize>| -> Vec<(f64, f64)> {
        let point = |(looks, runs): (&Looks, &Vec<Observed>)| {
            if looks.rule() != Rule::Drawn {
                return None;
            }
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
                  matters little: with DRILL(12,1) as with DRILL(2,1) 99.9999 % of queues are shorter than a packet. With 48 engines it has 99.999 % of them shorter with DRILL(1,2), and less than 99 % with DRILL(1,20). Beside them DRILL(2,1) with what the article leaves open the other way: a remembered port taken on a tie, or the same port drawn twice.";
    let evenest = cases.iter().zip(observed.chunks(all.len())).filter_map(|((engines, delay), runs)| {
        let uneven = |at: &usize| mean(runs[*at].iter().map(unevenness));
        let least = (0..all.len()).map(|at| uneven(&at)).min_by(f64::total_cmp)?;
        let near = (0..all.len()).filter(|at| uneven(at) <= 1.01 * least).map(|at| Scheme::Drill(all[at]).name());
        let names = near.collect::<Vec<_>>().join(", ");
        Some(format!("engines: {engines}, enqueued after {} ns: {names}", delay.as_nanos()))
    });
    let evenest = evenest.collect::<Vec<_>>().join("; ");
    let evenest = format!("Here queues are the most even, within a hundredth, with: {evenest}.");
    let method = joined(&[method, &evenest, &steadiness(&arms, &observed)]);
    let settings = json!({ "scenario": "scenarios/article.toml", "engines": [many, 1], "seeds": bench.seeds() });
    report = report.finish(method, settings, Expectations::of("fig3")?, tables)?.differing(differences(beside));
    let caption =
        format!("Mean standard deviation of queues that should be alike, engines: {many}, enqueued after 100 ns.");
    report.plots.push((caption, plot::curves("samples or memories", "packets", false, &lines)?));
    Ok(report)
}
