//! What the article leaves open, varied: every page repeats its main ratios so.

use anyhow::Result;
use weirgate_fabric::{Buffers, Span};
use weirgate_lab::plot::{self, Point};
use weirgate_lab::report::{Report, Table};
use weirgate_lab::stats::{Interval, ratio_of_runs};

use super::Bench;
use super::arm::{Arm, Observed};
use super::claims::{Article, Beside};
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
    /// None: the article does not say.
    pub(super) article: Option<Article>,
    /// Places among the arms.
    pub(super) one: usize,
    pub(super) other: usize,
    pub(super) of: &'a Compare,
}

/// The ratio of a statistic of runs, paired by seed.
pub(super) fn paired(of: impl Fn(&Observed) -> f64) -> impl Fn(&[Observed], &[Observed]) -> (f64, Interval) {
    move |one, other| ratio_of_runs(&one.iter().zip(other).map(|(a, b)| of(a) / of(b)).collect::<Vec<_>>())
}

/// What a page says, here and with each variation: a table, bars in the report, and what the article says beside it.
pub(super) fn sensitivity(
    bench: &Bench,
    report: &mut Report,
    arms: &[Arm],
    observed: &[&[Observed]],
    said: &[Said<'_>],
) -> Result<(Table, Vec<Beside>)> {
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
    let columns: Vec<&str> = ["article", "here"].into_iter().chain(names.iter().copied()).collect();
    // Bars that no group has need no place; a bound has none.
    let has_article = said.iter().any(|said| said.article.and_then(Article::value).is_some());
    let bars_from = usize::from(!has_article);
    let caption = "Ratios, with 95 % intervals over the seeds, and with what the article leaves open varied";
    let mut table = Table::new(caption, &[&[""], &columns[..]].concat());
    let (mut groups, mut beside) = (Vec::new(), Vec::new());
    for Said { what, article, one, other, of } in said {
        let claim = (article.and_then(Article::value).unwrap_or(f64::NAN), UNKNOWN);
        let here = of(observed[*one], observed[*other]);
        let varied = varied.chunks(arms.len()).map(|runs| of(&runs[*one], &runs[*other]));
        let ratios: Vec<(f64, Interval)> = [claim, here].into_iter().chain(varied).collect();
        let cause = article.map_or_else(String::new, |article| with_variations(article, here.1, &names, &ratios[2..]));
        beside.push(Beside { what: (*what).to_owned(), article: *article, here, cause });
        let bar = |(y, interval): &(f64, Interval)| Point {
            x: (),
            y: *y,
            interval: Some(*interval).filter(|interval| interval.low.is_finite()),
        };
        groups.push(((*what).to_owned(), ratios[bars_from..].iter().map(bar).collect()));
        let measured = ratios.into_iter().skip(1).map(with_interval);
        table.rows.push([(*what).to_owned(), Article::cell(*article, "-")].into_iter().chain(measured).collect());
    }
    let series: Vec<String> = columns[bars_from..].iter().copied().map(str::to_owned).collect();
    report.plots.push((format!("{caption}."), plot::bars("ratio", &series, &groups)?));
    Ok((table, beside))
}

/// With which variations the article, which is contradicted `here`, is not, as far as their runs tell.
fn with_variations(article: Article, here: Interval, names: &[&str], varied: &[(f64, Interval)]) -> String {
    let known = || names.iter().zip(varied).filter(|(_, (_, interval))| interval.low.is_finite());
    if known().next().is_none() {
        return String::new();
    }
    let agree = known().filter(|(_, (_, interval))| !article.is_contradicted(*interval));
    let agree: Vec<String> = agree.map(|(name, ratio)| format!("\"{name}\", {}", with_interval(*ratio))).collect();
    if agree.is_empty() {
        let is_above = |interval: &Interval| article.value().is_some_and(|value| interval.low > value);
        let is_beyond = known().any(|(_, (_, interval))| is_above(interval) != is_above(&here));
        return if is_beyond { EITHER_SIDE } else { "So it does with all that is varied." }.to_owned();
    }
    format!("It does not with {}.", agree.join("; "))
}

const EITHER_SIDE: &str = "What is varied leads to either side of the article's number.";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weirgate_fabric::Scheme;
    use weirgate_lab::experiment::{Form, Options};

    use super::super::claims::differences;
    use super::*;

    #[test]
    fn what_agrees_with_the_article_is_named() {
        let ratio = |low: f64, high: f64| (f64::midpoint(low, high), Interval { low, high });
        let said = |varied: &[(f64, Interval)]| {
            with_variations(Article::Below(1.09), Interval { low: 1.1, high: 1.2 }, &["a", "b"], varied)
        };
        assert_eq!(said(&[ratio(1.2, 1.4), ratio(1.0, 1.2)]), "It does not with \"b\", 1.10 [1 to 1.20].");
        assert_eq!(said(&[ratio(1.2, 1.4), ratio(1.5, 1.6)]), "So it does with all that is varied.");
        assert_eq!(said(&[(1.0, UNKNOWN); 2]), "");
        let number = |here| with_variations(Article::Value(1.3), here, &["a"], &[ratio(1.0, 1.2)]);
        assert_eq!(number(Interval { low: 1.4, high: 1.5 }), EITHER_SIDE);
        assert_eq!(number(Interval { low: 1.1, high: 1.2 }), "So it does with all that is varied.");
    }

    /// What is compared is how many runs there are: three seeds, and one of what is varied.
    #[test]
    fn ratios_are_repeated_with_what_is_varied() {
        let folder = tempfile::tempdir().unwrap();
        let (out, weirgate) = (folder.path().to_owned(), "weirgate".into());
        let bench = Bench::new(&Options { form: Form::Quick, seed: 1, out, weirgate, chatty: false }, 2).unwrap();
        let text = "[topology]\nspines = 2\nleaves = 2\nhosts = 4\n[workload]\nload = 0.3\n[run]\nwarm_up = \"0 s\"\nflows = 50\n";
        let scenario = Scenario::parse(text, Path::new("")).unwrap();
        let arms = [Scheme::Ecmp, Scheme::Random].map(|scheme| Arm::of(scheme, &scenario));
        let observed = bench.observe(&arms).unwrap();
        let mut report = bench.report("name", "Title");
        let runs = |one: &[Observed], other: &[Observed]| {
            let ratio = one.len() as f64 / 2.0;
            assert_eq!(one.len(), other.len());
            (ratio, Interval { low: ratio - 0.1, high: ratio + 0.1 })
        };
        let said = |what, article| Said { what, article, one: 1, other: 0, of: &runs };
        let said = [
            said("a bound", Some(Article::Below(1.006))),
            said("a number", Some(Article::Value(1.5))),
            said("nothing", None),
        ];
        let observed: Vec<&[Observed]> = observed.iter().map(Vec::as_slice).collect();
        let (table, beside) = sensitivity(&bench, &mut report, &arms, &observed, &said).unwrap();
        let names = variants(&arms[0].scenario).into_iter().map(|(name, _)| name);
        assert_eq!(table.heads, ["", "article", "here"].into_iter().chain(names).collect::<Vec<_>>());
        let (three, one) = ("1.50 [1.40 to 1.60]", "0.500 [0.400 to 0.600]");
        assert_eq!(table.rows[0], ["a bound", "< 1.006", three, one, one, one, one]);
        assert_eq!([&table.rows[1][1], &table.rows[2][1]], ["1.5", "-"]);
        // A bar for the article's number, and none for its bound.
        let (_, plot) = &report.plots[0];
        let of_article: Vec<&str> =
            plot.points.rows.iter().filter(|row| row[0] == "article").map(|row| row[1].as_str()).collect();
        assert_eq!(of_article, ["a number"]);
        let said = differences(beside);
        assert!(said[0].starts_with("a bound: < 1.006 there, 1.50 "), "{said:?}");
        assert!(said[0].contains("It does not with \"buffer 100 KB\", 0.500 [0.400 to 0.600]; "), "{said:?}");
        assert_eq!(said.len(), 1, "{said:?}");
    }
}
