//! The figures of the DRILL article, each with what the article says beside what is measured here, and what the article lacks.
//!
//! Every figure begins with `scenarios/article.toml` and says what it changes. An arm is a scenario; all arms of a figure have the same
//! seeds, and so the same arrivals. Ratios are paired by seed, and their means and intervals, Student's over the seeds, are those of their
//! logarithms; of quantiles that single runs are too short for, both come of all runs together, the interval by the jackknife over the seeds.

mod arm;
mod bench;
mod capacity;
mod claims;
mod components;
mod distributions;
mod failures;
mod grid;
mod kept;
mod newer;
mod queues;
mod ratios;
mod reorder;
mod shim;
mod synthetic;
mod times;
mod variants;

use anyhow::{Context, Result};
use weirgate_lab::experiment::Form;
use weirgate_lab::report::Report;

use self::ratios::TOO_SHORT;

pub use self::bench::Bench;

/// A figure.
#[derive(Clone, Copy)]
pub struct Figure {
    /// Its name, on the command line and below the folder of results.
    pub name: &'static str,
    /// What it shows, in a line.
    pub about: &'static str,
    run: fn(&Bench) -> Result<Report>,
}

/// Every figure, in the order of the article.
pub const FIGURES: &[Figure] = &[
    Figure {
        name: "fig2",
        about: "evenness of queues against the number of engines: 80 % and 30 % load",
        run: queues::fig2,
    },
    Figure { name: "fig3", about: "how many samples and memories: 48 engines, 80 % load", run: queues::fig3 },
    Figure {
        name: "fig6",
        about: "flow completion times and queueing by hop, 4 spines of 40 Gbit/s",
        run: times::fig6,
    },
    Figure { name: "fig7", about: "the same with 16 spines of 10 Gbit/s", run: times::fig7 },
    Figure { name: "fig8", about: "distributions of flow completion times there, at 30 % and 80 %", run: times::fig8 },
    Figure { name: "fig9", about: "with 20 spines, and with 12: oversubscribed 1:1 and 5:3", run: times::fig9 },
    Figure { name: "fig10", about: "in VL2, at 20 % and 70 %", run: times::fig10 },
    Figure { name: "engines", about: "mean flow completion time with 1 to 48 engines", run: times::engines },
    Figure { name: "fig11a", about: "duplicate ACKs, their causes, and GRO batches", run: reorder::fig11a },
    Figure { name: "fig11bc", about: "one link down, 90 % of what is left", run: failures::fig11bc },
    Figure { name: "fig12", about: "ten links down, 90 % of what is left", run: failures::fig12 },
    Figure {
        name: "ospf-delay",
        about: "five links that fail, with and without routing's delay",
        run: failures::ospf_delay,
    },
    Figure { name: "fig13", about: "unequal stripes, with WCMP", run: failures::fig13 },
    Figure { name: "fig14", about: "an incast at 20 % and 35 %", run: times::fig14 },
    Figure { name: "table1", about: "elephants and mice: stride, random, shuffle", run: synthetic::table1 },
    Figure { name: "newer", about: "collectives, and REPS, PLB, FlowBender, LetFlow beside DRILL", run: newer::newer },
];

impl std::fmt::Debug for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Figure {
    /// Measures it and writes its folder: `report.html`, `result.json`, a CSV of each table, an SVG of each plot.
    ///
    /// # Errors
    /// Where files cannot be written.
    pub fn run(&self, bench: &Bench) -> Result<Report> {
        let mut report = (self.run)(bench)?;
        report.method = format!("{} {}", report.method, bench.take_lengths());
        if !bench.is_quick() {
            // There is no longer form.
            report.reword(TOO_SHORT, "n/a");
        }
        let dir = bench.options().dir(self.name)?;
        report.write(&dir)?;
        report.write_parts(&dir).with_context(|| format!("cannot write into {}", dir.display()))?;
        Ok(report)
    }

    /// How many runs its arms have, and about how long it takes: said before it begins. A figure runs in stages, its arms first, then what
    /// is varied or shims change: how many runs a stage has, and how long they still take, it says itself as it comes to it.
    pub const fn cost(form: Form) -> &'static str {
        match form {
            Form::Full => {
                "10 seeds for each arm (4 for those beside the point), of 100,000 flows in most: from ten minutes to hours on two cores; what is done is kept"
            }
            Form::Quick | Form::Demo => {
                "3 seeds for each arm (1 for those beside the point), of 5,000 flows in most: half a minute or a whole one on two cores"
            }
        }
    }
}
