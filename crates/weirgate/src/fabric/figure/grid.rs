//! Figures of flow completion times: balancers beside each other, at several loads.

use anyhow::Result;
use serde_json::json;
use weirgate_balance::topology::{LeafSpine, LinkSettings};
use weirgate_balance::{CongaSettings, Looks};
use weirgate_fabric::{PUBLISHED, Scheme, Sizes};
use weirgate_lab::expectation::Expectations;
use weirgate_lab::plot;
use weirgate_lab::report::{Report, Table, number};
use weirgate_lab::stats::{Interval, mean, ratio_of_runs, sorted};
use weirgate_units::{BitRate, Duration};

use super::Bench;
use super::arm::{Arm, Observed, Order, parts, tail};
use super::variants::{paired, variants};
use crate::fabric::outcome::HopCounts;
use crate::fabric::scenario::{Scenario, Shape, Traffic};
use crate::fabric::statistics::Estimate;

/// DRILL(2,1).
pub(super) const DRILL: Scheme = Scheme::Drill(Looks::RECOMMENDED);

/// What the article compares with.
pub(super) fn rivals() -> Vec<Scheme> {
    vec![Scheme::Ecmp, Scheme::Conga(CongaSettings::default()), Scheme::Presto, DRILL]
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
    /// As the article has it; none: it shows a plot and no number.
    pub(super) article: Option<f64>,
}

/// A statistic of flow completion times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum What {
    Mean,
    Quantile(f64),
}

impl What {
    pub(super) fn name(self) -> String {
        match self {
            Self::Mean => "mean".into(),
            Self::Quantile(q) => format!("p{}", (q * 1e4).round() / 100.0),
        }
    }

    /// Of times in ascending order.
    pub(super) fn of(self, sorted: &[f64]) -> f64 {
        match self {
            Self::Mean => mean(sorted.iter().copied()),
            Self::Quantile(q) => tail(sorted, q),
        }
    }

    /// Of all runs of an arm: means are means of means, quantiles are of all flows together.
    pub(super) fn of_runs(self, runs: &[Observed]) -> f64 {
        match self {
            Self::Mean => mean(runs.iter().map(|run| self.of(&run.times))),
            Self::Quantile(_) => self.of(&pooled(runs)),
        }
    }
}

/// The statistics of every table.
pub(super) const STATISTICS: [What; 5] =
    [What::Mean, What::Quantile(0.5), What::Quantile(0.99), What::Quantile(0.999), What::Quantile(0.9999)];

pub(super) fn pooled(runs: &[Observed]) -> Vec<f64> {
    sorted(runs.iter().flat_map(|run| run.times.iter().copied()))
}

/// Nothing is known of a value.
pub(super) const UNKNOWN: Interval = Interval { low: f64::NEG_INFINITY, high: f64::INFINITY };

/// The ratio of a statistic of one arm to that of another, paired by seed, and its interval. A quantile that single runs are too short
/// for is of all runs together; its interval comes of the order statistics that enclose the one and the other, and is wider than need be.
pub(super) fn ratio(one: &[Observed], other: &[Observed], what: What) -> (f64, Interval) {
    if std::ptr::eq(one, other) {
        return (1.0, Interval { low: 1.0, high: 1.0 });
    }
    let pairs = one.iter().zip(other).map(|(a, b)| what.of(&a.times) / what.of(&b.times));
    let pairs: Vec<f64> = pairs.collect();
    if pairs.iter().any(|ratio| !ratio.is_finite()) {
        let enclosed = |runs: &[Observed]| match what {
            What::Quantile(q) => Estimate::quantile(&pooled(runs), parts(q)),
            What::Mean => None,
        };
        let Some((one, other)) = enclosed(one).zip(enclosed(other)) else { return (f64::NAN, UNKNOWN) };
        let interval = match (one.interval, other.interval) {
            (Some(one), Some(other)) => Interval { low: one[0] / other[1], high: one[1] / other[0] },
            _ => UNKNOWN,
        };
        return (one.value / other.value, interval);
    }
    ratio_of_runs(&pairs)
}

/// What stands where a short form's runs are too short.
pub(super) const TOO_SHORT: &str = "n/a (full)";

/// A ratio with its interval, for a table.
pub(super) fn with_interval((ratio, interval): (f64, Interval)) -> String {
    match (ratio.is_finite(), interval.low.is_finite()) {
        (false, _) => TOO_SHORT.into(),
        (true, false) => number(ratio),
        (true, true) => format!("{} [{} to {}]", number(ratio), number(interval.low), number(interval.high)),
    }
}

/// A number for a table; what this form is too short for is said to be so.
pub(super) fn cell(value: f64) -> String {
    if value.is_finite() { number(value) } else { TOO_SHORT.into() }
}

/// A figure that is a grid of balancers and loads.
pub(super) struct Grid<'a> {
    pub(super) name: &'a str,
    pub(super) title: &'a str,
    /// What the article says, and what is changed of its scenario.
    pub(super) method: &'a str,
    pub(super) base: Scenario,
    pub(super) schemes: Vec<Scheme>,
    pub(super) loads: &'a [f64],
    pub(super) claims: &'a [Claim],
    /// How much longer the article has packets of ECMP wait at the first hop, over those of others, at the last of `at`.
    pub(super) first_hops: &'a [(&'a str, f64)],
    /// What speaks for this where the article is contradicted.
    pub(super) why: &'a str,
    /// At which load the sensitivity is looked at, and cumulative distributions are drawn.
    pub(super) at: &'a [f64],
}

pub(super) fn at_load(scenario: &Scenario, to: f64) -> Scenario {
    let mut scenario = scenario.clone();
    if let Traffic::Poisson { load, .. } = &mut scenario.traffic {
        *load = to;
    }
    scenario
}

/// The other published distributions, for as many bytes, at the first of `at`.
fn others(bench: &Bench, base: &Scenario, load: f64) -> Vec<(&'static str, Scenario)> {
    let scenario = at_load(base, load);
    let Traffic::Poisson { sizes: own, .. } = &scenario.traffic else { return Vec::new() };
    let mean = own.mean(|bytes| bytes);
    let other = |(name, _): &(&'static str, &str)| {
        let sizes = Sizes::published(name).filter(|sizes| sizes != own)?;
        let mut scenario = scenario.clone();
        scenario.run.flows = ((scenario.run.flows as f64 * mean / sizes.mean(|bytes| bytes)) as u64).max(500);
        if let Traffic::Poisson { sizes: to, .. } = &mut scenario.traffic {
            *to = sizes;
        }
        Some((*name, scenario))
    };
    // The short form has one of smaller flows, and one of larger ones.
    let is_in = |(name, _): &(&str, Scenario)| !bench.is_quick() || ["facebook_hadoop", "websearch"].contains(name);
    PUBLISHED.iter().filter_map(other).filter(is_in).collect()
}

impl Grid<'_> {
    pub(super) fn run(&self, bench: &Bench) -> Result<Report> {
        let report = bench.report(self.name, self.title);
        let mut arms = Vec::new();
        for load in self.loads {
            let scenario = at_load(&self.base, *load);
            arms.extend(self.schemes.iter().map(|scheme| Arm::of(*scheme, &scenario)));
        }
        let main = arms.len();
        let mut varied = Vec::new();
        for load in self.at {
            for (variant, scenario) in variants(&at_load(&self.base, *load)) {
                varied.extend(self.schemes.iter().map(|scheme| (*load, variant, scheme.name())));
                arms.extend(self.schemes.iter().map(|scheme| Arm::of(*scheme, &scenario).aside()));
            }
        }
        let beside = self.at.last().map_or_else(Vec::new, |load| others(bench, &self.base, *load));
        for (_, scenario) in &beside {
            arms.extend(self.schemes.iter().map(|scheme| Arm::of(*scheme, scenario).aside()));
        }
        let observed = bench.observe(&arms)?;
        let (observed, others) = observed.split_at(main);
        let (others, distributions) = others.split_at(varied.len());
        let at = |load: f64, name: &str| {
            let load = self.loads.iter().position(|other| *other == load)?;
            let scheme = self.schemes.iter().position(|scheme| scheme.name() == name)?;
            Some(&observed[load * self.schemes.len() + scheme])
        };
        let other = |load: f64, variant: &str, name: &str| {
            let place = varied.iter().position(|(l, v, n)| (*l, *v, n.as_str()) == (load, variant, name))?;
            Some(&others[place])
        };
        let mut tables = vec![self.claims_table(&at, &other)];
        for what in STATISTICS {
            tables.push(self.table(what, &at));
        }
        let mut table = Table::new(
            &format!(
                "Other distributions, {} % load: mean over DRILL(2,1)'s",
                number(100.0 * self.at.last().unwrap_or(&0.0))
            ),
            &["distribution, balancer", "ratio"],
        );
        for ((name, _), runs) in beside.iter().zip(distributions.chunks(self.schemes.len())) {
            let drill = self.schemes.iter().position(|scheme| *scheme == DRILL).map_or(&runs[0], |at| &runs[at]);
            for (scheme, runs) in self.schemes.iter().zip(runs).filter(|(scheme, _)| **scheme != DRILL) {
                let ratio = with_interval(ratio(runs, drill, What::Mean));
                table.rows.push(vec![format!("{name}, {}", scheme.name()), ratio]);
            }
        }
        tables.insert(1, table);
        if observed.iter().flatten().any(|run| !run.small_times.is_empty()) {
            tables.push(self.incast(&at));
        }
        tables.push(self.first_hop(&at));
        tables.push(self.timers(&at));
        tables.push(self.hops(&at));
        let mut expectations = Expectations::of(self.name)?;
        for claim in self.claims {
            let (Some(bound), Some(one), Some(drill)) =
                (claim.bound, at(claim.load, claim.of), at(claim.load, &DRILL.name()))
            else {
                continue;
            };
            let why = format!("{} {}", self.why, self.evidence(claim, one, drill, &other));
            expectations.measured_figure(bound, ratio(one, drill, claim.what), bench.is_quick(), why.trim())?;
        }
        let mut plots = Vec::new();
        if self.loads.len() > 2 {
            for (what, is_log) in
                [(What::Mean, false), (What::Quantile(if bench.is_quick() { 0.99 } else { 0.9999 }), true)]
            {
                let line = |scheme: &Scheme| {
                    let points = self
                        .loads
                        .iter()
                        .filter_map(|load| Some((100.0 * load, what.of_runs(at(*load, &scheme.name())?) / 1_000.0)));
                    (scheme.name(), points.collect())
                };
                let lines: Vec<_> = self.schemes.iter().map(line).collect();
                let caption = format!("Flow completion time, {}, by load.", what.name());
                plots.push((caption, plot::curves("load, %", "ms", is_log, &lines)?));
            }
        }
        for load in self.at {
            let line = |scheme: &Scheme| Some((scheme.name(), thinned(&pooled(at(*load, &scheme.name())?))));
            let lines: Vec<_> = self.schemes.iter().filter_map(line).collect();
            let caption = format!("Flow completion times at {} % load: cumulative distribution.", number(100.0 * load));
            plots.push((caption, plot::cumulative("us", &lines)?));
        }
        let settings = json!({
            "scenario": "scenarios/article.toml", "loads": self.loads, "flows of a run": self.base.run.flows,
            "seeds": bench.seeds(), "balancers": self.schemes.iter().map(Scheme::name).collect::<Vec<_>>(),
        });
        let mut report = report.finish(self.method.to_owned(), settings, expectations, tables)?;
        report.plots = plots;
        Ok(report)
    }

    /// What the article says beside what is measured, and how that depends on what it leaves open.
    fn claims_table<'a>(
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
                article.map_or("a plot".into(), number),
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

    fn table<'a>(&self, what: What, at: &impl Fn(f64, &str) -> Option<&'a Vec<Observed>>) -> Table {
        let loads: Vec<String> = self.loads.iter().map(|load| format!("{} % load", number(100.0 * load))).collect();
        let heads: Vec<&str> = ["balancer"].into_iter().chain(loads.iter().map(String::as_str)).collect();
        let mut table = Table::new(&format!("Flow completion time, {}, us", what.name()), &heads);
        for scheme in &self.schemes {
            let cells = self
                .loads
                .iter()
                .map(|load| at(*load, &scheme.name()).map_or("-".into(), |runs| cell(what.of_runs(runs))));
            table.rows.push([scheme.name()].into_iter().chain(cells).collect());
        }
        table
    }

    /// What makes a ratio what it is.
    fn evidence<'a>(
        &self,
        claim: &Claim,
        one: &[Observed],
        drill: &[Observed],
        other: &impl Fn(f64, &str, &str) -> Option<&'a Vec<Observed>>,
    ) -> String {
        let [timers, drills] = [one, drill].map(|runs| number(per_10_000(runs, |order| order.timeouts)));
        let (median, _) = ratio(one, drill, What::Quantile(0.5));
        let mut said = format!(
            "A flow whose timer runs out waits 200 ms, which is what a mean or a far quantile is made of: timers ran out {timers} times of 10,000 flows with {}, {drills} times with \
             DRILL. The ratio of the medians is {}.",
            claim.of,
            cell(median),
        );
        for (variant, _) in variants(&self.base).iter().skip(2) {
            let pair = other(claim.load, variant, claim.of).zip(other(claim.load, variant, &DRILL.name()));
            if let Some((one, drill)) = pair {
                said += &format!(" With \"{variant}\" the ratio is {}.", with_interval(ratio(one, drill, claim.what)));
            }
        }
        said
    }

    /// How much longer packets of ECMP wait at the first hop, where the article says how much.
    fn first_hop<'a>(&self, at: &impl Fn(f64, &str) -> Option<&'a Vec<Observed>>) -> Table {
        let heads = ["ECMP's over that of", "load, %", "article", "here"];
        let mut table = Table::new("Mean wait at the first hop, from a leaf to the spines", &heads);
        let wait = |run: &Observed| mean(run.hops.iter().filter(|at| at.hop == FIRST_HOP).map(|at| at.wait_mean_us));
        for load in self.at {
            let Some(ecmp) = at(*load, &Scheme::Ecmp.name()) else { continue };
            for scheme in self.schemes.iter().filter(|scheme| **scheme != Scheme::Ecmp) {
                let Some(runs) = at(*load, &scheme.name()) else { continue };
                let article = self.first_hops.iter().find(|(name, _)| *name == scheme.name());
                table.rows.push(vec![
                    scheme.name(),
                    number(100.0 * load),
                    article.map_or("-".into(), |(_, ratio)| number(*ratio)),
                    with_interval(paired(wait)(ecmp, runs)),
                ]);
            }
        }
        table
    }

    /// How often something was mended, and whether the network was steady.
    fn timers<'a>(&self, at: &impl Fn(f64, &str) -> Option<&'a Vec<Observed>>) -> Table {
        let heads = [
            "balancer, load",
            "timeouts, of 10,000 flows",
            "segments sent again",
            "median of the flows that began later, over the others'",
        ];
        let mut table = Table::new("Timers and retransmissions; 1 in the last column is a steady network", &heads);
        for load in self.loads {
            for scheme in &self.schemes {
                let Some(runs) = at(*load, &scheme.name()) else { continue };
                let drifts: Vec<f64> = runs.iter().map(|run| run.drift).collect();
                table.rows.push(vec![
                    format!("{}, {} %", scheme.name(), number(100.0 * load)),
                    number(per_10_000(runs, |order| order.timeouts)),
                    number(per_10_000(runs, |order| order.sent_again)),
                    with_interval(ratio_of_runs(&drifts)),
                ]);
            }
        }
        table
    }

    /// Times of an incast's flows alone.
    fn incast<'a>(&self, at: &impl Fn(f64, &str) -> Option<&'a Vec<Observed>>) -> Table {
        let names = STATISTICS.map(What::name);
        let heads: Vec<&str> = ["balancer, load"].into_iter().chain(names.iter().map(String::as_str)).collect();
        let mut table = Table::new("Flow completion time of the incast's flows alone, us", &heads);
        for load in self.loads {
            for scheme in &self.schemes {
                let Some(runs) = at(*load, &scheme.name()) else { continue };
                let times = sorted(runs.iter().flat_map(|run| run.small_times.iter().copied()));
                let name = format!("{}, {} %", scheme.name(), number(100.0 * load));
                table.rows.push([name].into_iter().chain(STATISTICS.map(|what| cell(what.of(&times)))).collect());
            }
        }
        table
    }

    /// Queueing and loss by hop.
    fn hops<'a>(&self, at: &impl Fn(f64, &str) -> Option<&'a Vec<Observed>>) -> Table {
        let mut table = Table::new(
            "Where packets wait and are dropped",
            &["balancer, load", "hop", "mean wait, us", "share of waiting in switches, %", "dropped, of a million"],
        );
        for load in self.loads {
            for scheme in &self.schemes {
                let Some(runs) = at(*load, &scheme.name()) else { continue };
                table.rows.extend(hop_rows(&format!("{}, {} %", scheme.name(), number(100.0 * load)), runs));
            }
        }
        table
    }
}

/// How often something happened, of 10,000 flows.
pub(super) fn per_10_000(runs: &[Observed], of: fn(&Order) -> u64) -> f64 {
    let sum = |of: fn(&Order) -> u64| runs.iter().map(|run| of(&run.order)).sum::<u64>() as f64;
    1e4 * sum(of) / sum(|order| order.flows)
}

/// What the lines of a hop did, in each run.
pub(super) fn counts_at<'a>(runs: &'a [Observed], hop: &'a str) -> impl Iterator<Item = &'a HopCounts> {
    runs.iter().flat_map(move |run| run.hops.iter().filter(move |counts| counts.hop == hop))
}

/// All waiting of a hop's packets, in microseconds.
pub(super) fn waited(counts: &HopCounts) -> f64 {
    counts.wait_mean_us * counts.packets as f64
}

/// A row for each hop.
fn hop_rows(name: &str, runs: &[Observed]) -> Vec<Vec<String>> {
    let hops: Vec<&str> = runs.first().map_or_else(Vec::new, |run| run.hops.iter().map(|at| at.hop.as_str()).collect());
    let sum = |hop: &str, of: fn(&HopCounts) -> f64| -> f64 { counts_at(runs, hop).map(of).sum() };
    let in_switches: f64 = hops.iter().filter(|hop| **hop != HOST).map(|hop| sum(hop, waited)).sum();
    let row = |hop: &&str| {
        let (packets, waited) = (sum(hop, |counts| counts.packets as f64), sum(hop, waited));
        let dropped = sum(hop, |counts| counts.dropped as f64);
        let share = if *hop == HOST { "-".into() } else { number(100.0 * waited / in_switches) };
        vec![
            name.to_owned(),
            hop_name(hop),
            number(waited / packets),
            share,
            number(1e6 * dropped / (packets + dropped)),
        ]
    };
    hops.iter().map(row).collect()
}

/// The names of hops in what came of a run.
const HOST: &str = "host";
pub(super) const FIRST_HOP: &str = "up 0";

/// And on pages.
fn hop_name(hop: &str) -> String {
    match hop.split_once(' ') {
        Some(("up", "0")) => "leaf, up".into(),
        Some((way, stage)) => format!("stage {stage}, {way}"),
        None if hop == HOST => "in the host".into(),
        None => "leaf, to the host".into(),
    }
}

/// As many points as a plot shows.
fn thinned(sorted: &[f64]) -> Vec<f64> {
    const POINTS: usize = 400;
    if sorted.len() <= POINTS {
        return sorted.to_vec();
    }
    (0..POINTS).map(|at| sorted[at * (sorted.len() - 1) / (POINTS - 1)]).collect()
}

pub(super) const fn claim(
    bound: Option<&'static str>,
    of: &'static str,
    load: f64,
    what: What,
    article: Option<f64>,
) -> Claim {
    Claim { bound, of, load, what, article }
}

/// Many leaves and spines of equal links, as the article's scale-out networks have them.
pub(super) fn equal_links(spines: u32, leaves: u32, hosts: u32) -> Shape {
    let link = LinkSettings { rate: BitRate::from_bits_per_sec(10_000_000_000), delay: Duration::from_nanos(500) };
    Shape::LeafSpine(LeafSpine { spines, leaves, hosts, edge: link, core: link })
}
