//! `weirgate fabric`: the simulator of data-centre fabrics.

mod list;
mod show;
mod sweep;
mod vectors;

use std::fs;
use std::io::{BufWriter, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};

use super::Failure;
use super::figure::{Figure, Verify};
use super::output::{self, Output};
use crate::fabric::outcome::{Ended, Outcome, write_flows};
use crate::fabric::run::{Progress, interruption, run};
use crate::fabric::scenario::{Override, Scenario, Traffic};

#[derive(Debug, Args)]
pub(super) struct Fabric {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show the balancers, distributions of flow sizes, networks and workloads there are
    List {
        /// Print JSON, one object per line
        #[arg(long)]
        json: bool,
    },
    /// Run a scenario, and say what came of it; exit code 1 where it does not end in its time, or is interrupted
    Run(Run),
    /// Run all combinations of what is varied, each with the same seeds, on all cores; goes on where it was interrupted
    Sweep(sweep::Sweep),
    /// Make the table of a sweep, or of its shards: means over seeds, and ratios to the first value, seed by seed
    Merge(sweep::Merge),
    /// Measure a figure of the DRILL article: its claim beside what is measured, as page, CSV and SVG
    Figure(Figure),
    /// Check the simulator against queueing theory, closed forms, and outcomes that are known by hand
    Verify(Verify),
    /// Write what the hardware in hdl/ is tested with: what it is given, clock by clock, and what `balance` picks
    #[command(subcommand)]
    Vectors(vectors::Vectors),
}

/// What every command takes that reads a scenario.
#[derive(Debug, Args)]
struct Read {
    /// A scenario, as scenarios/article.toml
    #[arg(value_name = "SCENARIO")]
    file: PathBuf,
    /// Set a key of the scenario, as balance.scheme=ecmp or "topology.core=40 Gbit/s"; KEY= takes it out
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<Override>,
}

#[derive(Debug, Args)]
struct Run {
    #[command(flatten)]
    read: Read,
    /// The seed of everything random, in place of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write all flows that ended as CSV
    #[arg(long, value_name = "FILE")]
    flows: Option<PathBuf>,
    /// Write the outcome as JSON, too: outcome.json in this folder
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

impl Fabric {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        match self.what {
            What::List { json } => list::list(json, out),
            What::Run(run) => run.run(out),
            What::Sweep(sweep) => sweep.run(out),
            What::Merge(merge) => merge.run(out),
            What::Figure(figure) => figure.run(out),
            What::Verify(verify) => verify.run(out),
            What::Vectors(vectors) => vectors.run(out),
        }
    }
}

impl Run {
    fn run(mut self, out: &mut Output) -> Result<(), Failure> {
        if let Some(seed) = self.seed {
            self.read.set.push(Override::new("seed", &seed.to_string()).map_err(usage)?);
        }
        let scenario = Scenario::load_with(&self.read.file, &self.read.set).map_err(usage)?;
        // Before what takes long: a folder that cannot be made, or a file.
        let mut flows = self.flows.as_deref().map(create).transpose()?;
        if let Some(folder) = &self.out {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        scenario.notes().iter().for_each(|note| say!("weirgate: {note}"));
        let is_interrupted = interruption().context("signals cannot be caught")?;
        let mut bar = Bar::new();
        let ran = run(&scenario, &is_interrupted, &mut |progress| bar.tell(progress))
            .map_err(|problem| anyhow!(problem.to_string()))?;
        bar.bar.iter().for_each(indicatif::ProgressBar::finish_and_clear);
        let outcome = ran.outcome(&scenario);
        if let Some((to, path)) = flows.as_mut().zip(self.flows.as_deref()) {
            let written = write_flows(&ran.simulation, &scenario, to).and_then(|()| to.flush());
            written.with_context(|| path.display().to_string())?;
        }
        if let Some(folder) = &self.out {
            let path = folder.join("outcome.json");
            fs::write(&path, serde_json::to_vec(&outcome)?).with_context(|| path.display().to_string())?;
        }
        if self.json {
            out.json(&outcome)?;
        } else {
            show::outcome(&outcome, out)?;
        }
        out.flush()?;
        match why_partial(&scenario, &outcome) {
            Some(why) => Err(Failure::Work(anyhow!(why))),
            None => Ok(()),
        }
    }
}

fn usage(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::Usage(error.into())
}

fn create(path: &Path) -> anyhow::Result<BufWriter<fs::File>> {
    Ok(BufWriter::new(fs::File::create(path).with_context(|| path.display().to_string())?))
}

/// Why what was measured is not all; nothing, if it is.
fn why_partial(scenario: &Scenario, outcome: &Outcome) -> Option<String> {
    let flows = &outcome.flows;
    let seconds = outcome.speed.simulated_s;
    let of = of(flows.finished, flows.asked);
    let so_far = format!("{of} flows had ended, {} were under way", flows.under_way);
    match outcome.ended {
        Ended::Finished if flows.finished == 0 => {
            Some(format!("no flow began after the warm-up of {}: shorten it ([run] warm_up)", scenario.run.warm_up))
        }
        Ended::Finished => None,
        Ended::Interrupted => {
            Some(format!("interrupted after {seconds:.6} s of simulated time, so this is partial: {so_far}"))
        }
        Ended::TimeLimit => {
            let (time, why) = (scenario.run.time, why_out_of_time(scenario, outcome));
            Some(format!("after {time} of simulated time ([run] time) {so_far}, so this is partial: {why}"))
        }
    }
}

/// Why flows have not ended in a run's time, and what to do.
fn why_out_of_time(scenario: &Scenario, outcome: &Outcome) -> String {
    let flows = &outcome.flows;
    // Those that no way is left for never end, whatever else there is.
    let no_way = scenario.network.check_up_at(scenario.settings.seed, scenario.end());
    if let Some(no_way) = no_way.err().filter(|_| flows.under_way > 0) {
        return format!(
            "{no_way}, and flows between them do not end: let the links come up ([failures] until), or let others fail"
        );
    }
    if let Some((late, all)) = scenario.too_late() {
        return format!(
            "{late} of the trace's {all} flows begin later: give it more time, or ask for fewer flows ([run] flows)"
        );
    }
    if matches!(scenario.traffic, Traffic::Poisson { .. }) && flows.started < scenario.run.flows {
        return format!(
            "{} of {} flows began after the warm-up: give it more time, or ask for fewer flows ([run] flows), or for more load",
            flows.started, scenario.run.flows
        );
    }
    let lost: u64 = outcome.hops.iter().map(|hop| hop.lost).sum();
    if lost > 0 {
        return format!(
            "{lost} packets were lost with links that failed, or went to such a link before routing knew of it; flows whose timers ran out for \
             that wait, longer each time, and what they sent again is not counted before they end: give it more time, or let routing learn \
             sooner ([routing] delay)"
        );
    }
    if matches!(scenario.traffic, Traffic::Poisson { .. }) {
        return "the network does not drain: lower the load, or ask for fewer flows ([run] flows) or more time"
            .to_owned();
    }
    "what is to be sent takes longer: give it more time, or ask for fewer bytes or flows".to_owned()
}

/// `5 of 10`; where nobody knows of how many, `5`.
fn of(there: u64, all: Option<u64>) -> String {
    all.map_or_else(|| there.to_string(), |all| format!("{there} of {all}"))
}

/// Where nobody looks at a bar, a line is written so often.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How far a run is: a bar on a terminal, lines elsewhere.
struct Bar {
    /// Made when it is known whether it has an end.
    bar: Option<indicatif::ProgressBar>,
    began: Instant,
    said: Instant,
}

impl Bar {
    fn new() -> Self {
        Self { bar: None, began: Instant::now(), said: Instant::now() }
    }

    fn tell(&mut self, progress: Progress) {
        let bar = self.bar.get_or_insert_with(|| output::progress(progress.asked, "flows"));
        bar.set_position(progress.finished);
        progress.asked.into_iter().for_each(|all| bar.set_length(all));
        if std::io::stderr().is_terminal() || self.said.elapsed() < LINE_EVERY {
            return;
        }
        self.said = Instant::now();
        let now = progress.now.saturating_since(weirgate_fabric::Time::ZERO).as_secs_f64();
        say!(
            "weirgate: {} flows, {} under way, {:.3} ms simulated in {} s",
            of(progress.finished, progress.asked),
            progress.under_way,
            now * 1e3,
            self.began.elapsed().as_secs()
        );
    }
}
