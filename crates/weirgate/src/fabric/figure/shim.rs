//! What a shim at the hosts changes, which puts packets in order before TCP sees them. Presto comes with one (He et al., "Presto", SIGCOMM
//! 2015, section 3.2); DRILL does without.

use anyhow::Result;
use weirgate_fabric::Scheme;
use weirgate_lab::report::{Report, Table};

use super::Bench;
use super::arm::{Arm, SHIM};
use super::grid::{DRILL, Grid, at_load};
use super::ratios::{What, ratio, with_interval};
use crate::fabric::scenario::Scenario;

impl Grid<'_> {
    /// The grid, and what a shim changes at a load.
    pub(super) fn run_with_shims(&self, bench: &Bench, load: f64) -> Result<Report> {
        let mut report = self.run(bench)?;
        report.add_table(table(bench, &self.base, load)?);
        Ok(report)
    }
}

/// DRILL and Presto with and without, at a load.
fn table(bench: &Bench, base: &Scenario, load: f64) -> Result<Table> {
    let base = at_load(base, load);
    let mut with_shim = base.clone();
    with_shim.settings.tcp.shim = Some(SHIM);
    let presto = Arm::of(Scheme::Presto, &base);
    let arms = [Arm::of(DRILL, &base), Arm::of(DRILL, &with_shim), presto.clone(), presto.without_shim()];
    let [drill, drill_shim, presto, presto_bare] = [0, 1, 2, 3];
    let observed = bench.observe(&arms)?;
    let statistics = [What::Mean, What::Quantile(0.5), What::Quantile(0.99), What::Quantile(0.9999)];
    let names = statistics.map(What::name);
    let heads: Vec<&str> = [""].into_iter().chain(names.iter().map(String::as_str)).collect();
    let caption =
        format!("With and without a shim that puts packets in order for up to 100 us, {:.0} % load", 100.0 * load);
    let mut table = Table::new(&caption, &heads);
    for (name, one, other) in [
        ("DRILL(2,1) with one, over without", drill_shim, drill),
        ("Presto without, over with", presto_bare, presto),
        ("Presto without, over DRILL(2,1) without", presto_bare, drill),
        ("Presto with one, over DRILL(2,1) with one", presto, drill_shim),
    ] {
        let cells = statistics.map(|what| with_interval(ratio(&observed[one], &observed[other], what)));
        table.rows.push([name.to_owned()].into_iter().chain(cells).collect());
    }
    Ok(table)
}
