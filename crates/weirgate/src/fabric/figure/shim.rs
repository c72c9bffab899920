//! What a shim at the hosts changes, which puts packets in order before TCP sees them. Presto comes with one (He et al., "Presto", SIGCOMM
//! 2015, section 3.2); DRILL does without.

use anyhow::Result;
use weirgate_fabric::Scheme;
use weirgate_lab::report::{Report, Table, number};

use super::Bench;
use super::arm::{Arm, SHIM};
use super::claims::{Article, Beside, differences};
use super::grid::{DRILL, Grid, at_load, per_10_000};
use super::ratios::{What, ratio, with_interval};
use super::variants::variants;
use crate::fabric::scenario::Scenario;

impl Grid<'_> {
    /// The grid, and what a shim changes at a load; `drill`: what the article says of DRILL with one, over DRILL without.
    pub(super) fn run_with_shims(&self, bench: &Bench, load: f64, drill: Option<Article>) -> Result<Report> {
        let mut report = self.run(bench)?;
        let (table, said) = shims(bench, &self.base, load, drill)?;
        report.add_table(table);
        Ok(report.differing(said))
    }
}

/// DRILL and Presto with and without, at a load, and a sentence where the article is contradicted.
fn shims(bench: &Bench, base: &Scenario, load: f64, article: Option<Article>) -> Result<(Table, Vec<String>)> {
    let base = at_load(base, load);
    let shimmed = |scenario: &Scenario| {
        let mut scenario = scenario.clone();
        scenario.settings.tcp.shim = Some(SHIM);
        scenario
    };
    let with_shim = shimmed(&base);
    let presto = Arm::of(Scheme::Presto, &base);
    let mut arms = vec![Arm::of(DRILL, &base), Arm::of(DRILL, &with_shim), presto.clone(), presto.without_shim()];
    let [drill, drill_shim, presto, presto_bare] = [0, 1, 2, 3];
    let main = arms.len();
    let varied = variants(&base);
    for (_, scenario) in &varied {
        arms.extend([scenario.clone(), shimmed(scenario)].map(|scenario| Arm::of(DRILL, &scenario).aside()));
    }
    let observed = bench.observe(&arms)?;
    let (observed, others) = observed.split_at(main);
    let statistics = [What::Mean, What::Quantile(0.5), What::Quantile(0.99), What::Quantile(0.9999)];
    let names = statistics.map(What::name);
    let heads: Vec<&str> = ["", "article"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let caption =
        format!("With and without a shim that puts packets in order for up to 100 us, {:.0} % load", 100.0 * load);
    let mut table = Table::new(&caption, &heads);
    for (name, article, one, other) in [
        ("DRILL(2,1) with one, over without", article, drill_shim, drill),
        ("Presto without, over with", None, presto_bare, presto),
        ("Presto without, over DRILL(2,1) without", None, presto_bare, drill),
        ("Presto with one, over DRILL(2,1) with one", None, presto, drill_shim),
    ] {
        let cells = statistics.map(|what| with_interval(ratio(&observed[one], &observed[other], what)));
        table.rows.push([name.to_owned(), Article::cell(article, "-")].into_iter().chain(cells).collect());
    }
    // What the article speaks of, with what it leaves open.
    for ((variant, _), runs) in varied.iter().zip(others.chunks(2)) {
        let cells = statistics.map(|what| with_interval(ratio(&runs[1], &runs[0], what)));
        let name = format!("DRILL(2,1) with one, over without: {variant}");
        table.rows.push([name, Article::cell(article, "-")].into_iter().chain(cells).collect());
    }
    let mut said = differences(statistics.map(|what| Beside {
        what: format!("DRILL(2,1) with a shim over DRILL(2,1) without, {} at {:.0} % load", what.name(), 100.0 * load),
        article,
        here: ratio(&observed[drill_shim], &observed[drill], what),
        cause: String::new(),
    }));
    if said.is_empty() {
        return Ok((table, said));
    }
    let [timers_with, timers] = [drill_shim, drill].map(|at| number(per_10_000(&observed[at], |order| order.timeouts)));
    let [again_with, again] = [drill_shim, drill].map(|at| number(per_10_000(&observed[at], |order| order.sent_again)));
    said.push(format!(
        "Of 10,000 flows timers run out {timers_with} times with a shim and {timers} times without, and {again_with} and {again} segments are sent again."
    ));
    Ok((table, said))
}
