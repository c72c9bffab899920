//! What the article leaves open, varied: every page repeats its ratios so.

use anyhow::Result;
use weirgate_fabric::{Buffers, Span};
use weirgate_lab::plot::{self, Point};
use weirgate_lab::report::{Report, Table, number};
use weirgate_lab::stats::{Interval, ratio_of_runs};

use super::Bench;
use super::arm::{Arm, Observed};
use super::ratios::{UNKNOWN, with_interval};
use crate::fabric::scenario::Scenario;

/// What Linux 2.6 raises its threshold for duplicate ACKs to, at most (`TCP_MAX_REORDERING`).
const LINUX_REORDERING: u32 = 127;

/// The article's open parameters, varied: the port's buffer, the least retransmission timeout, and whether TCP learns of re-ordering.
pub(super) fn variants(scenario: &Scenario) -> Vec<(&'static str, Scenario)> {
    let with = |change: &dyn Fn(&mut Scenario)| {
        let mut scenario = scenario.clone();
        change(&mut scenario);
        scenario
    };
    vec![
        ("buffer 100 KB", with(&|scenario| scenario.settings.buffers = Buffers::PerPort(100_000))),
        ("buffer 900 KB", with(&|scenario| scenario.settings.buffers = Buffers::PerPort(900_000))),
        ("min RTO 5 ms", with(&|scenario| scenario.settings.tcp.min_rto = Span::from_micros(5_000))),
        ("TCP learns of re-ordering", with(&|scenario| scenario.settings.tcp.reordering_max = LINUX_REORDERING)),
    ]
}

/// A ratio of two arms' runs, with its interval.
pub(super) type Compare = dyn Fn(&[Observed], &[Observed]) -> (f64, Interval);

/// What a page says of one arm and another.
pub(super) struct Said<'a> {
    pub(super) what: &'a str,
    /// As the article has it, where it says so.
    pub(super) article: Option<f64>,
    /// Places among the arms.
    pub(super) one: usize,
    pub(super) other: usize,
    pub(super) of: &'a Compare,
}

/// The ratio of a statistic of runs, paired by seed.
pub(super) fn paired(of: impl Fn(&Observed) -> f64) -> impl Fn(&[Observed], &[Observed]) -> (f64, Interval) {
    move |one, other| ratio_of_runs(&one.iter().zip(other).map(|(a, b)| of(a) / of(b)).collect::<Vec<_>>())
}

/// What a page says, here and with each variation: a table, and bars in the report.
pub(super) fn sensitivity(
    bench: &Bench,
    report: &mut Report,
    arms: &[Arm],
    observed: &[&[Observed]],
    said: &[Said<'_>],
) -> Result<Table> {
    let names: Vec<&str> =
        arms.first().map_or_else(Vec::new, |arm| variants(&arm.scenario)).iter().map(|(name, _)| *name).collect();
    let mut varied = Vec::new();
    for at in 0..names.len() {
        varied.extend(arms.iter().map(|arm| {
            let (_, scenario) = variants(&arm.scenario).swap_remove(at);
            Arm::new(arm.name.clone(), scenario).aside()
        }));
    }
    let varied = bench.observe(&varied)?;
    let columns: Vec<&str> = ["article", "here"].into_iter().chain(names).collect();
    // Bars that no group has need no place.
    let has_article = said.iter().any(|said| said.article.is_some());
    let bars_from = usize::from(!has_article);
    let caption = "Ratios, with 95 % intervals over the seeds, and with what the article leaves open varied";
    let mut table = Table::new(caption, &[&[""], &columns[..]].concat());
    let mut groups = Vec::new();
    for Said { what, article, one, other, of } in said {
        let claim = (article.unwrap_or(f64::NAN), UNKNOWN);
        let here = of(observed[*one], observed[*other]);
        let varied = varied.chunks(arms.len()).map(|runs| of(&runs[*one], &runs[*other]));
        let ratios: Vec<(f64, Interval)> = [claim, here].into_iter().chain(varied).collect();
        let bar = |(y, interval): &(f64, Interval)| Point {
            x: (),
            y: *y,
            interval: Some(*interval).filter(|interval| interval.low.is_finite()),
        };
        groups.push(((*what).to_owned(), ratios[bars_from..].iter().map(bar).collect()));
        let article = article.map_or_else(|| "-".to_owned(), number);
        let measured = ratios.into_iter().skip(1).map(with_interval);
        table.rows.push([(*what).to_owned(), article].into_iter().chain(measured).collect());
    }
    let series: Vec<String> = columns[bars_from..].iter().copied().map(str::to_owned).collect();
    report.plots.push((format!("{caption}."), plot::bars("ratio", &series, &groups)?));
    Ok(table)
}
