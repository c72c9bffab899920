//! What the article says beside what is measured: ratios, what they hang on, and a sentence where they differ.

use std::fmt;

use weirgate_fabric::Scheme;
use weirgate_lab::report::{Table, number};
use weirgate_lab::stats::{Interval, mean, mean_of_runs};

use super::arm::Observed;
use super::grid::{DRILL, FIRST_HOP, Grid, HOST, LAST_HOP, counts_at, hop_name, per_10_000, waited};
use super::ratios::{What, cell, ratio, with_interval};
use super::variants::{paired, variants};
use crate::fabric::outcome::HopCounts;

/// What the article says of a number. A ratio is below or above 1 also where it only says which of two is less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Article {
    /// The number.
    Value(f64),
    /// That it is less: "less than 9 %".
    Below(f64),
    /// That it is more: "over 65 %".
    Above(f64),
    /// That two are alike: "very similar".
    Alike,
    /// That it is 1, give or take so much.
    Within(f64),
}

/// Two of which the one is less than 9 % above the other are alike: the article calls that no clear benefit.
const ALIKE: f64 = 1.09;

impl Article {
    /// Whether what was measured contradicts it: all of the interval is beside the number, or on the other side of it.
    pub(super) fn is_contradicted(self, Interval { low, high }: Interval) -> bool {
        if !(low.is_finite() && high.is_finite()) {
            return false;
        }
        match self {
            Self::Value(value) => !(low..=high).contains(&value),
            Self::Below(bound) => low >= bound,
            Self::Above(bound) => high <= bound,
            Self::Alike => low >= ALIKE || high <= 1.0 / ALIKE,
            Self::Within(share) => low >= 1.0 + share || high <= 1.0 - share,
        }
    }

    /// The number that it says, as a bar is drawn for; a bound is none.
    pub(super) const fn value(self) -> Option<f64> {
        if let Self::Value(value) = self { Some(value) } else { None }
    }

    /// As a table has it.
    pub(super) fn cell(article: Option<Self>, none: &str) -> String {
        article.map_or_else(|| none.to_owned(), |article| article.to_string())
    }
}

/// With all its digits, so that 1.006 is not 1.01.
impl fmt::Display for Article {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => write!(f, "{value}"),
            Self::Below(bound) => write!(f, "< {bound}"),
            Self::Above(bound) => write!(f, "> {bound}"),
            Self::Alike => f.write_str("alike"),
            Self::Within(share) => write!(f, "1 within {} %", 100.0 * share),
        }
    }
}

/// What the article says of a number, beside what is measured.
#[derive(Clone, Debug)]
pub(super) struct Beside {
    pub(super) what: String,
    /// None: it does not say.
    pub(super) article: Option<Article>,
    pub(super) here: (f64, Interval),
    /// What it hangs on, in sentences; empty, where that is not known.
    pub(super) cause: String,
}

impl Beside {
    pub(super) fn new(what: impl Into<String>, article: Article, here: (f64, Interval)) -> Self {
        Self { what: what.into(), article: Some(article), here, cause: String::new() }
    }
}

/// A sentence for each of the article's numbers that the interval here contradicts.
pub(super) fn differences(all: impl IntoIterator<Item = Beside>) -> Vec<String> {
    let sentence = |Beside { what, article, here, cause }: Beside| {
        let article = article.filter(|article| article.is_contradicted(here.1))?;
        let sentence = format!("{what}: {article} there, {} here. {cause}", with_interval(here));
        Some(sentence.trim_end().to_owned())
    };
    all.into_iter().filter_map(sentence).collect()
}

/// Texts one after the other, without the empty ones.
pub(super) fn joined(texts: &[&str]) -> String {
    let texts: Vec<&str> = texts.iter().copied().filter(|text| !text.is_empty()).collect();
    texts.join(" ")
}

/// What the article says of a ratio to DRILL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Under which bound it is, if under one.
    pub(super) bound: Option<&'static str>,
    /// Of which balancer.
    pub(super) of: &'static str,
    /// At which load.
    pub(super) load: f64,
    pub(super) what: What,
    /// None: it shows a plot and says nothing.
    pub(super) article: Option<Article>,
}

pub(super) const fn claim(
    bound: Option<&'static str>,
    of: &'static str,
    load: f64,
    what: What,
    article: Option<Article>,
) -> Claim {
    Claim { bound, of, load, what, article }
}

impl Grid<'_> {
    /// The claims that have a number, the article's or a bound.
    pub(super) fn said(&self) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(|claim| claim.article.is_some() || claim.bound.is_some())
    }

    /// A sentence for each of the article's numbers that the interval here contradicts, and why, where that is known.
    pub(super) fn differences<'a>(&self, at: &impl Fn(f64, &str) -> Option<&'a Vec<Observed>>) -> Vec<String> {
        let of_claims = self.claims.iter().filter_map(|claim| {
            let (one, drill) = at(claim.load, claim.of).zip(at(claim.load, &DRILL.name()))?;
            Some(Beside {
                what: format!("{}, {} at {} % load", claim.of, claim.what.name(), number(100.0 * claim.load)),
                article: claim.article,
                here: ratio(one, drill, claim.what),
                cause: cause(claim, one, drill),
            })
        });
        let of_waits = self.waits(at).into_iter().map(|(load, beside)| {
            let what = format!("{} at {} % load", beside.what, number(100.0 * load));
            Beside { what, ..beside }
        });
        let mut said = differences(of_claims.chain(of_waits));
        if !said.is_empty() && !self.why.is_empty() {
            said.push(self.why.to_owned());
        }
        said
    }

    /// How much longer packets of ECMP wait at the first hop than others', and how much of their waiting is at a hop; with the load of each.
    fn waits<'a>(&self, at: &impl Fn(f64, &str) -> Option<&'a Vec<Observed>>) -> Vec<(f64, Beside)> {
        let ecmp = |load: f64| at(load, &Scheme::Ecmp.name());
        let wait = |run: &Observed| mean(run.hops.iter().filter(|at| at.hop == FIRST_HOP).map(|at| at.wait_mean_us));
        let mut waits = Vec::new();
        for load in self.at {
            let Some(ecmp) = ecmp(*load) else { continue };
            for scheme in self.schemes.iter().filter(|scheme| **scheme != Scheme::Ecmp) {
                let name = scheme.name();
                let Some(runs) = at(*load, &name) else { continue };
                let article = self.first_hops.iter().find(|(of, _)| *of == name && self.at.last() == Some(load));
                let [of_ecmp, of_other] = [ecmp, runs].map(|runs| number(mean(runs.iter().map(wait))));
                let beside = Beside {
                    what: format!("wait at the first hop, ecmp over {name}"),
                    article: article.map(|(_, article)| *article),
                    here: paired(wait)(ecmp, runs),
                    cause: format!("A packet waits {of_ecmp} us there with ecmp, {of_other} us with {name}."),
                };
                waits.push((*load, beside));
            }
        }
        for (load, hop, percent) in self.shares {
            let Some(ecmp) = ecmp(*load) else { continue };
            let shares: Vec<f64> = ecmp.iter().map(|run| share_at(run, hop)).collect();
            let what = format!("share of ecmp's waiting in switches that is at \"{}\", %", hop_name(hop));
            waits.push((*load, Beside::new(what, Article::Value(*percent), mean_of_runs(&shares))));
        }
        waits
    }

    /// The same as a table, and how it depends on what the article leaves open.
    pub(super) fn waits_table<'a>(
        &self,
        at: &impl Fn(f64, &str) -> Option<&'a Vec<Observed>>,
        other: &impl Fn(f64, &str, &str) -> Option<&'a Vec<Observed>>,
    ) -> Table {
        let caption = "Waits at the first hop, from a leaf to the spines, and where ECMP's packets wait";
        let names: Vec<&str> = variants(&self.base).into_iter().map(|(name, _)| name).collect();
        let mut table = Table::new(caption, &[&["", "load, %", "article", "here"], &names[..]].concat());
        let varied = |variant: &&str| self.waits(&|load, name| other(load, variant, name));
        let varied: Vec<Vec<(f64, Beside)>> = names.iter().map(varied).collect();
        for (load, Beside { what, article, here, .. }) in self.waits(at) {
            let of_variant = |waits: &Vec<(f64, Beside)>| {
                let same = waits.iter().find(|(other, beside)| *other == load && beside.what == what);
                same.map_or("-".into(), |(_, beside)| with_interval(beside.here))
            };
            let cells: Vec<String> = varied.iter().map(of_variant).collect();
            let row = vec![what.clone(), number(100.0 * load), Article::cell(article, "-"), with_interval(here)];
            table.rows.push([row, cells].concat());
        }
        table
    }

    /// What the article says beside what is measured, and how that depends on what it leaves open.
    pub(super) fn claims_table<'a>(
        &self,
        at: &impl Fn(f64, &str) -> Option<&'a Vec<Observed>>,
        other: &impl Fn(f64, &str, &str) -> Option<&'a Vec<Observed>>,
    ) -> Table {
        let asides = variants(&self.base).into_iter().map(|(name, _)| name);
        let heads: Vec<&str> = ["over DRILL(2,1)", "load, %", "article", "here"].into_iter().chain(asides).collect();
        let mut table = Table::new("Ratios of flow completion times, with 95 % intervals over the seeds", &heads);
        let drill = DRILL.name();
        for Claim { of, load, what, article, .. } in self.claims {
            let Some((one, base)) = at(*load, of).zip(at(*load, &drill)) else { continue };
            let mut row = vec![
                format!("{of}, {}", what.name()),
                number(100.0 * load),
                Article::cell(*article, "a plot"),
                with_interval(ratio(one, base, *what)),
            ];
            for variant in &heads[4..] {
                let pair = other(*load, variant, of).zip(other(*load, variant, &drill));
                row.push(pair.map_or("-".into(), |(one, base)| with_interval(ratio(one, base, *what))));
            }
            table.rows.push(row);
        }
        table
    }

    /// The same, and how it depends on what the article leaves open.
    pub(super) fn evidence<'a>(
        &self,
        claim: &Claim,
        one: &[Observed],
        drill: &[Observed],
        other: &impl Fn(f64, &str, &str) -> Option<&'a Vec<Observed>>,
    ) -> String {
        let mut said = cause(claim, one, drill);
        for (variant, _) in variants(&self.base).iter().skip(2) {
            let pair = other(claim.load, variant, claim.of).zip(other(claim.load, variant, &DRILL.name()));
            if let Some((one, drill)) = pair {
                said += &format!(" With \"{variant}\" the ratio is {}.", with_interval(ratio(one, drill, claim.what)));
            }
        }
        said
    }

    /// Why DRILL's mean is lower at the highest load than at a lower one, where it is.
    pub(super) fn falling<'a>(&self, at: &impl Fn(f64, &str) -> Option<&'a Vec<Observed>>) -> Option<String> {
        let of = |load: f64| at(load, &DRILL.name());
        let mean = |load: f64| of(load).map_or(f64::NAN, |runs| What::Mean.of_runs(runs));
        let last = *self.loads.last()?;
        let most = self.loads.iter().copied().max_by(|a, b| mean(*a).total_cmp(&mean(*b)))?;
        if mean(most) <= mean(last) {
            return None;
        }
        let said = |load: f64| {
            let runs = of(load)?;
            let sum = |of: fn(&HopCounts) -> u64| counts_at(runs, LAST_HOP).map(of).sum::<u64>() as f64;
            let dropped = sum(|hop| hop.dropped);
            let share = 1e6 * dropped / (dropped + sum(|hop| hop.packets));
            Some([
                number(share),
                number(per_10_000(runs, |order| order.sent_again)),
                number(per_10_000(runs, |order| order.timeouts)),
            ])
        };
        let ([drops, again, timers], [drops_last, again_last, timers_last]) = (said(most)?, said(last)?);
        let [from, to] = [most, last].map(|load| number(100.0 * load));
        Some(format!(
            "DRILL's mean falls from {from} to {to} % load: what it loses, it loses at the last hop, where senders' bursts meet, and there the more the less they are held back. \
             With more re-ordering senders take more duplicate ACKs for losses and halve their windows: segments sent again go from {again} to {again_last} of 10,000 flows, \
             drops at the last hop from {drops} to {drops_last} of a million packets, timers that run out from {timers} to {timers_last} of 10,000 flows."
        ))
    }
}

/// How much of a run's waiting in switches is at a hop, in percent.
fn share_at(run: &Observed, hop: &str) -> f64 {
    let all: f64 = run.hops.iter().filter(|at| at.hop != HOST).map(waited).sum();
    let there: f64 = run.hops.iter().filter(|at| at.hop == hop).map(waited).sum();
    100.0 * there / all
}

/// What makes a ratio what it is.
fn cause(claim: &Claim, one: &[Observed], drill: &[Observed]) -> String {
    let [timers, drills] = [one, drill].map(|runs| number(per_10_000(runs, |order| order.timeouts)));
    let (median, _) = ratio(one, drill, What::Quantile(0.5));
    format!(
        "A flow whose timer runs out waits 200 ms, which is what a mean or a far quantile is made of: timers ran out {timers} times of 10,000 flows with {}, {drills} times with \
         DRILL. The ratio of the medians is {}.",
        claim.of,
        cell(median),
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::fabric::scenario::Scenario;

    #[test]
    fn bounds_are_written_as_such_and_contradicted_from_their_side_alone() {
        let values = [Article::Value(1.3), Article::Value(54.0)].map(|article| article.to_string());
        assert_eq!(values, ["1.3", "54"]);
        let bounds = [Article::Below(1.09), Article::Below(1.006), Article::Above(2.86), Article::Above(1.0)];
        assert_eq!(bounds.map(|article| article.to_string()), ["< 1.09", "< 1.006", "> 2.86", "> 1"]);
        assert_eq!([Article::cell(Some(Article::Alike), "-"), Article::cell(None, "-")], ["alike", "-"]);
        assert_eq!(Article::Within(0.01).to_string(), "1 within 1 %");
        let is_contradicted = |article: Article, low, high| article.is_contradicted(Interval { low, high });
        for (article, contradicted, kept) in [
            (Article::Value(1.3), [[1.0, 1.2], [1.4, 1.5]], [[1.2, 1.4], [1.3, 1.3]]),
            (Article::Below(1.09), [[1.09, 1.2], [1.5, 2.0]], [[0.9, 1.0], [1.0, 1.2]]),
            (Article::Above(2.86), [[1.0, 2.0], [2.0, 2.86]], [[2.0, 3.0], [20.0, 30.0]]),
            (Article::Alike, [[1.09, 1.2], [0.7, 0.9]], [[0.9, 1.08], [1.08, 2.0]]),
            (Article::Within(0.01), [[1.02, 1.2], [0.7, 0.9]], [[0.9, 1.0], [1.0, 2.0]]),
        ] {
            assert!(contradicted.iter().all(|[low, high]| is_contradicted(article, *low, *high)), "{article}");
            assert!(!kept.iter().any(|[low, high]| is_contradicted(article, *low, *high)), "{article}");
            let unknown = [[f64::NEG_INFINITY, f64::INFINITY], [f64::NAN, f64::NAN], [f64::NEG_INFINITY, 0.1]];
            assert!(!unknown.iter().any(|[low, high]| is_contradicted(article, *low, *high)), "{article}");
        }
        assert_eq!([Article::Value(1.3), Article::Below(1.09)].map(Article::value), [Some(1.3), None]);
    }

    #[test]
    fn only_what_is_contradicted_has_a_sentence() {
        let here = (1.0, Interval { low: 0.5, high: 1.5 });
        let beside = |article| Beside { what: "a".into(), article, here, cause: String::new() };
        let kept = [None, Some(Article::Value(1.2)), Some(Article::Below(1.09)), Some(Article::Above(1.4))];
        assert!(differences(kept.map(beside)).is_empty());
        let with_cause = Beside { cause: "Since.".into(), ..Beside::new("b", Article::Below(0.5), here) };
        assert_eq!(
            differences([beside(Some(Article::Value(2.0))), beside(None), with_cause]),
            ["a: 2 there, 1 [0.500 to 1.50] here.", "b: < 0.5 there, 1 [0.500 to 1.50] here. Since."]
        );
    }

    /// Ratios of means of three seeds: 3, from 2.76 to 3.26.
    fn ecmp() -> Vec<Observed> {
        [2.9, 3.0, 3.1].map(|time| Observed::of_times(vec![time; 100], 1)).into()
    }

    fn drill() -> Vec<Observed> {
        [1.0; 3].map(|time| Observed::of_times(vec![time; 100], 0)).into()
    }

    fn grid(claims: &[Claim]) -> Grid<'_> {
        Grid {
            name: "fig7",
            title: "",
            method: "",
            base: Scenario::parse("", Path::new("")).unwrap(),
            schemes: vec![Scheme::Ecmp, DRILL],
            loads: &[0.8],
            claims,
            first_hops: &[("drill(2,1)", Article::Value(2.3))],
            shares: &[(0.8, FIRST_HOP, 54.0)],
            why: "For a reason.",
            at: &[0.8],
        }
    }

    #[test]
    fn a_grid_says_where_it_differs_and_its_table_has_bounds() {
        let (ecmp, drill) = (ecmp(), drill());
        let at = |_: f64, name: &str| match name {
            "ecmp" => Some(&ecmp),
            "drill(2,1)" => Some(&drill),
            _ => None,
        };
        let mean = |of, article| claim(None, of, 0.8, What::Mean, article);
        let claims = [
            mean("ecmp", Some(Article::Value(1.6))),
            mean("ecmp", Some(Article::Below(1.09))),
            mean("ecmp", Some(Article::Above(3.5))),
            mean("ecmp", Some(Article::Value(3.0))),
            mean("ecmp", Some(Article::Below(3.1))),
            mean("ecmp", None),
            mean("conga", Some(Article::Value(1.4))),
        ];
        let grid = grid(&claims);
        let said = grid.differences(&at);
        assert!(said[0].starts_with("ecmp, mean at 80 % load: 1.6 there, "), "{said:?}");
        assert!(said[1].contains("load: < 1.09 there, ") && said[2].contains("load: > 3.5 there, "), "{said:?}");
        assert_eq!(said[3..], ["For a reason."]);
        let table = grid.claims_table(&at, &|_: f64, _: &str, _: &str| None);
        let cells: Vec<&str> = table.rows.iter().map(|row| row[2].as_str()).collect();
        assert_eq!(cells, ["1.6", "< 1.09", "> 3.5", "3", "< 3.1", "a plot"]);
        assert!(Grid { claims: &claims[3..6], ..grid }.differences(&at).is_empty());
    }

    #[test]
    fn waits_are_compared_at_each_hop() {
        let of = |waits: [f64; 3]| {
            let hop = |(hop, wait_mean_us): (&str, f64)| HopCounts {
                hop: hop.into(),
                lines: 1,
                packets: 100,
                wait_mean_us,
                dropped: 0,
                lost: 0,
                marked: 0,
                used: None,
            };
            let run = Observed::of_times(vec![1.0; 100], 0);
            let hops = [HOST, FIRST_HOP, LAST_HOP].into_iter().zip(waits).map(hop).collect();
            vec![Observed { hops, ..run }; 3]
        };
        let (ecmp, drill) = (of([50.0, 3.0, 1.0]), of([50.0, 0.5, 1.0]));
        let at = |_: f64, name: &str| if name == "ecmp" { Some(&ecmp) } else { Some(&drill) };
        let twice = of([50.0, 1.0, 1.0]);
        let other = |_: f64, variant: &str, name: &str| match (variant, name) {
            ("min RTO 5 ms", "ecmp") => Some(&twice),
            ("min RTO 5 ms", _) => Some(&drill),
            _ => None,
        };
        let rows = grid(&[]).waits_table(&at, &other).rows;
        assert!(rows[0][..3] == ["wait at the first hop, ecmp over drill(2,1)", "80", "2.3"], "{rows:?}");
        assert!(rows[0][3].starts_with('6') && rows[0][4..] == ["-", "-", "2 [2 to 2]", "-"], "{rows:?}");
        let shares = ["54", "75 [75 to 75]", "-", "-", "50 [50 to 50]", "-"];
        assert!(rows[1][0].contains("\"leaf, up\"") && rows[1][2..] == shares, "{rows:?}");
        let said = grid(&[]).differences(&at).join(" ");
        assert!(said.contains("drill(2,1) at 80 % load: 2.3 there, 6"), "{said}");
        assert!(said.contains("A packet waits 3 us there with ecmp, 0.500 us with drill(2,1)."), "{said}");
        assert!(said.contains("% at 80 % load: 54 there, 75 "), "{said}");
    }

    /// What was varied first, buffers, is in the table and not in the explanation.
    #[test]
    fn evidence_is_of_timers_and_of_what_is_varied() {
        let (ecmp, drill, twice) = (ecmp(), drill(), [2.0; 3].map(|time| Observed::of_times(vec![time; 100], 0)));
        let twice: Vec<Observed> = twice.into();
        let other = |_: f64, variant: &str, name: &str| match (variant, name) {
            ("buffer 100 KB" | "min RTO 5 ms", "ecmp") => Some(&twice),
            ("buffer 100 KB" | "min RTO 5 ms", "drill(2,1)") => Some(&drill),
            _ => None,
        };
        let claims = [claim(None, "ecmp", 0.8, What::Mean, Some(Article::Value(1.6)))];
        let grid = grid(&claims);
        let said = grid.evidence(&claims[0], &ecmp, &drill, &other);
        assert!(said.contains("timers ran out 100 times of 10,000 flows with ecmp, 0 times with DRILL"), "{said}");
        assert!(said.contains("With \"min RTO 5 ms\" the ratio is 2"), "{said}");
        assert!(!said.contains("buffer") && !said.contains("re-ordering"), "{said}");
        let table = grid.claims_table(&|_: f64, _: &str| Some(&drill), &other);
        assert!(table.rows[0][4].starts_with('2') && table.rows[0][5] == "-", "{:?}", table.rows);
    }
}
