//! Figures of flow completion times: balancers beside each other, at several loads.

use anyhow::Result;
use serde_json::json;
use weirgate_balance::topology::{LeafSpine, LinkSettings};
use weirgate_balance::{CongaSettings, Looks};
use weirgate_fabric::Scheme;
use weirgate_lab::expectation::Expectations;
use weirgate_lab::plot;
use weirgate_lab::report::{Report, Table, number};
use weirgate_lab::stats::{ratio_of_runs, sorted};
use weirgate_units::{BitRate, Duration};

use super::Bench;
use super::arm::{Arm, Observed, Order};
use super::claims::{Article, Claim, joined};
use super::ratios::{STATISTICS, What, cell, pooled, ratio, with_interval};
use super::variants::{Said, variants};
use super::{components, distributions};
use crate::fabric::outcome::HopCounts;
use crate::fabric::scenario::{Scenario, Shape, Traffic};

/// DRILL(2,1).
pub(super) const DRILL: Scheme = Scheme::Drill(Looks::RECOMMENDED);

/// What the article compares with.
pub(super) fn rivals() -> Vec<Scheme> {
    vec![Scheme::Ecmp, Scheme::Conga(CongaSettings::default()), Scheme::Presto, DRILL]
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
    pub(super) first_hops: &'a [(&'a str, Article)],
    /// At which load, at which hop, and how much of ECMP's waiting in switches the article has there, in percent.
    pub(super) shares: &'a [(f64, &'a str, f64)],
    /// What speaks for this where the article is contradicted.
    pub(super) why: &'a str,
    /// At which load cumulative distributions are drawn, and the sensitivity is looked at beside the loads of claims.
    pub(super) at: &'a [f64],
}

pub(super) fn at_load(scenario: &Scenario, to: f64) -> Scenario {
    let mut scenario = scenario.clone();
    if let Traffic::Poisson { load, .. } = &mut scenario.traffic {
        *load = to;
    }
    scenario
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
        for load in self.loads_said() {
            // Fewer runs would be too short for so far a quantile.
            let is_far = !bench.is_quick()
                && self.said().any(|claim| claim.load == load && claim.what == What::Quantile(0.9999));
            for (variant, scenario) in variants(&at_load(&self.base, load)) {
                varied.extend(self.schemes.iter().map(|scheme| (load, variant, scheme.name())));
                arms.extend(self.schemes.iter().map(|scheme| {
                    let arm = Arm::of(*scheme, &scenario);
                    if is_far { arm } else { arm.aside() }
                }));
            }
        }
        let observed = bench.observe(&arms)?;
        let (observed, others) = observed.split_at(main);
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
        tables.extend(self.distributions(bench)?);
        tables.extend(STATISTICS.map(|what| self.table(what, &at)));
        if observed.iter().flatten().any(|run| !run.small_times.is_empty()) {
            tables.push(self.incast(&at));
        }
        tables.push(self.waits_table(&at, &other));
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
        // The article shows those of all loads, where there are two.
        for load in if self.loads.len() > 2 { self.at } else { self.loads } {
            let line = |scheme: &Scheme| Some((scheme.name(), thinned(&pooled(at(*load, &scheme.name())?))));
            let lines: Vec<_> = self.schemes.iter().filter_map(line).collect();
            let caption = format!("Flow completion times at {} % load: cumulative distribution.", number(100.0 * load));
            plots.push((caption, plot::cumulative("us", &lines)?));
        }
        let settings = json!({
            "scenario": "scenarios/article.toml", "loads": self.loads, "flows of a run": self.base.run.flows,
            "seeds": bench.seeds(), "balancers": self.schemes.iter().map(Scheme::name).collect::<Vec<_>>(),
        });
        let full = components::asked_too_much(&self.base, self.loads, &bench.seeds());
        let method = joined(&[self.method, &full, &self.falling(&at).unwrap_or_default()]);
        let mut report = report.finish(method, settings, expectations, tables)?.differing(self.differences(&at));
        report.plots = plots;
        Ok(report)
    }

    /// Means over DRILL's with the other distributions, at the last of `at`.
    fn distributions(&self, bench: &Bench) -> Result<Option<Table>> {
        let Some(load) = self.at.last() else { return Ok(None) };
        let scenario = at_load(&self.base, *load);
        let arms: Vec<Arm> = self.schemes.iter().map(|scheme| Arm::of(*scheme, &scenario)).collect();
        let drill = self.schemes.iter().position(|scheme| *scheme == DRILL).unwrap_or(0);
        let mean_over = |one: &[Observed], other: &[Observed]| ratio(one, other, What::Mean);
        let rivals = arms.iter().enumerate().filter(|(at, _)| *at != drill);
        let said: Vec<Said<'_>> = rivals
            .map(|(one, arm)| Said { what: &arm.name, article: None, one, other: drill, of: &mean_over })
            .collect();
        distributions::table(bench, &format!(", {} % load: mean over DRILL(2,1)'s", number(100.0 * load)), &arms, &said)
    }

    /// The loads at which the sensitivity is looked at: those of `at`, and those of claims.
    fn loads_said(&self) -> Vec<f64> {
        let mut loads = self.at.to_vec();
        for claim in self.said() {
            if !loads.contains(&claim.load) {
                loads.push(claim.load);
            }
        }
        loads
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
pub(super) const HOST: &str = "host";
pub(super) const FIRST_HOP: &str = "up 0";
pub(super) const LAST_HOP: &str = "edge";

/// And on pages.
pub(super) fn hop_name(hop: &str) -> String {
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

/// Many leaves and spines of equal links, as the article's scale-out networks have them.
pub(super) fn equal_links(spines: u32, leaves: u32, hosts: u32) -> Shape {
    let link = LinkSettings { rate: BitRate::from_bits_per_sec(10_000_000_000), delay: Duration::from_nanos(500) };
    Shape::LeafSpine(LeafSpine { spines, leaves, hosts, edge: link, core: link })
}
