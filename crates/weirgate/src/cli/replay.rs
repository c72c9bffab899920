//! `weirgate tune replay`: what the decisions would have been.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Args;
use plotters::prelude::*;
use weirgate_sockets::sample::CcName;
use weirgate_store::TimeRange;
use weirgate_tune::replay::{CSV_HEADER, Summary, csv_line, replay};
use weirgate_tune::sensitivity::{Grid, one_at_a_time, sensitivity};
use weirgate_tune::synthetic::{Scenario, Synthetic};
use weirgate_tune::{Config as Settings, Controller, Host, Round};

use super::output::{self, Output};
use super::records::{self, Records};
use super::{Common, Failure};

#[derive(Debug, Args)]
pub(super) struct Replay {
    #[command(flatten)]
    common: Common,
    /// What `weirgate run` recorded: a Parquet file of its store, or the whole store, as /var/lib/weirgate/store
    #[arg(value_name = "FILE", conflicts_with = "synthetic")]
    recorded: Option<PathBuf>,
    /// Replay made-up telemetry: networks of known classes whose clients answer to the decisions
    #[arg(long)]
    synthetic: bool,
    /// Of the made-up world: client networks
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    networks: u32,
    /// Of the made-up world: rounds
    #[arg(long, value_name = "N", default_value_t = 288, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Of the made-up world: the origin of every draw
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Of the made-up world: replay it under other thresholds too, and print the tables that argue the defaults
    #[arg(long, requires = "synthetic")]
    sensitivity: bool,
    /// Where rounds.csv and new-networks.svg are written
    #[arg(short, long, value_name = "DIR", default_value = "replay-out")]
    out: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Replay {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        let config = self.common.load()?;
        let mut settings = config.tune.controller.clone();
        settings.seed = self.seed;
        if let Some(store) = &self.recorded {
            return self.replay_recorded(store, settings, out);
        }
        if !self.synthetic {
            return Err(Failure::Usage(anyhow!(
                "there is nothing to replay: name what `weirgate run` recorded, as /var/lib/weirgate/store, or add \
                 --synthetic for made-up telemetry"
            )));
        }
        let scenario = Scenario::mixed(self.networks, self.rounds, self.seed);
        let settings = Settings { default_cc: Some(scenario.default_cc), ..settings };
        let host = host_with(&settings, settings.default_cc);
        if self.sensitivity {
            return table(&self, &scenario, &settings, &host, out);
        }
        let mut controller = Controller::new(settings, host)?;
        let bar = output::progress(Some(u64::from(self.rounds)), "rounds");
        let mut files = Files::create(&self.out)?;
        let mut failed = None;
        let summary = replay(&mut controller, &mut Synthetic::new(scenario), &mut |_, round| {
            bar.inc(1);
            failed = files.round(round).err();
            failed.is_none()
        });
        bar.finish_and_clear();
        match failed {
            Some(error) => Err(error.into()),
            None => finish(&self, files, summary, controller.baseline(), out),
        }
    }

    fn replay_recorded(&self, store: &Path, settings: Settings, out: &mut Output) -> Result<(), Failure> {
        if let Err(error) = std::fs::metadata(store) {
            return Err(Failure::Usage(anyhow!("{} cannot be replayed: {error}", store.display())));
        }
        // What the host ran on is in the records; where nothing there says it, every untreated connection votes.
        let default_cc = match settings.default_cc {
            Some(cc) => Some(cc),
            None => records::default_cc(store).map_err(|error| Failure::Usage(error.into()))?,
        };
        let host = host_with(&settings, default_cc);
        let mut files = Files::create(&self.out)?;
        let bar = output::progress(None, "records");
        let mut records = Records::new(Controller::new(settings, host)?);
        let mut failed = None;
        let done = weirgate_store::for_each_record(store, TimeRange::ALL, &mut |record, origin| {
            bar.inc(1);
            failed = records.handle_record(record, origin, &mut |round| files.round(round)).err();
            failed.is_none()
        });
        if failed.is_none() {
            failed = records.finish(&mut |round| files.round(round)).err();
        }
        bar.finish_and_clear();
        let done = done.map_err(|error| Failure::Usage(error.into()))?;
        for warning in &done.warnings {
            say!("weirgate: {warning}");
        }
        if done.records == 0 {
            return Err(Failure::Work(anyhow!("{} holds no record to replay", store.display())));
        }
        match failed {
            Some(error) => Err(error.into()),
            None => finish(self, files, records.summary, default_cc, out),
        }
    }
}

/// A host that offers what the rules choose.
fn host_with(settings: &Settings, default_cc: Option<CcName>) -> Host {
    let available_cc = settings.rules.iter().map(|rule| rule.cc).chain(default_cc).collect();
    Host { available_cc, system_cc: default_cc }
}

fn finish(
    args: &Replay,
    files: Files,
    summary: Summary,
    default_cc: Option<CcName>,
    out: &mut Output,
) -> Result<(), Failure> {
    let (csv, svg) = files.finish()?;
    if args.json {
        return Ok(out.json(&serde_json::json!({
            "rounds": summary.rounds,
            "connections": summary.connections,
            "votes": summary.votes,
            "default_cc": default_cc.map(|cc| cc.to_string()),
            "selections": summary.selections,
            "departures": summary.departures,
            "refusals": summary.refusals,
            "selected": summary.selected,
            "seed": args.seed,
            "csv": csv,
            "svg": svg,
        }))?);
    }
    out.line(&format!(
        "{} rounds, {} connections, {} votes: {} selections, {} departures, {} refused policies, {} networks selected at \
         the end; the default was {}",
        summary.rounds,
        summary.connections,
        summary.votes,
        summary.selections,
        summary.departures,
        summary.refusals,
        summary.selected,
        default_cc.map_or("not recorded".to_owned(), |cc| cc.to_string())
    ))?;
    let ignored = summary.ignored.to_string();
    if !ignored.is_empty() {
        out.line(&format!("no vote on their network: {ignored}"))?;
    }
    out.line(&format!("{}\n{}", csv.display(), svg.display()))?;
    Ok(())
}

fn table(
    args: &Replay,
    scenario: &Scenario,
    settings: &Settings,
    host: &Host,
    out: &mut Output,
) -> Result<(), Failure> {
    let table = sensitivity(scenario, settings, host, &Grid::default())?;
    std::fs::create_dir_all(&args.out)?;
    let path = args.out.join("sensitivity.csv");
    std::fs::write(&path, table.csv()).with_context(|| path.display().to_string())?;
    out.line(table.to_string().trim_end())?;
    out.line("")?;
    out.line(one_at_a_time(scenario, settings, host, None)?.to_string().trim_end())?;
    out.line(&path.display().to_string())?;
    Ok(())
}

/// The rounds as CSV while they come, and as a plot at the end.
struct Files {
    dir: PathBuf,
    csv: BufWriter<File>,
    /// New networks of each round.
    new: Vec<(u32, u32)>,
}

impl Files {
    fn create(dir: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("{}: choose another directory with --out", dir.display()))?;
        let mut csv = BufWriter::new(File::create(dir.join("rounds.csv"))?);
        writeln!(csv, "{CSV_HEADER}")?;
        Ok(Self { dir: dir.to_owned(), csv, new: Vec::new() })
    }

    fn round(&mut self, round: &Round) -> std::io::Result<()> {
        self.new.push((round.number, round.stats.new));
        writeln!(self.csv, "{}", csv_line(round))
    }

    fn finish(mut self) -> anyhow::Result<(PathBuf, PathBuf)> {
        self.csv.flush()?;
        let svg = self.dir.join("new-networks.svg");
        plot(&svg, &self.new).map_err(|error| anyhow!("{}: {error}", svg.display()))?;
        Ok((self.dir.join("rounds.csv"), svg))
    }
}

/// New networks per round: the article's figure 2.
fn plot(path: &Path, new: &[(u32, u32)]) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, (900, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    let first = new.first().map_or(0, |(round, _)| *round);
    let last = new.last().map_or(1, |(round, _)| *round).max(first + 1);
    let most = new.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .caption("Networks newly selected, per round", ("sans-serif", 18))
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d(first..last, 0..most + most / 10 + 1)?;
    chart.configure_mesh().disable_x_mesh().x_desc("round").y_desc("networks").draw()?;
    let style = RGBColor(0x1f, 0x77, 0xb4).stroke_width(1);
    chart.draw_series(
        new.iter().filter(|(_, n)| *n > 0).map(|(round, n)| PathElement::new(vec![(*round, 0), (*round, *n)], style)),
    )?;
    root.present()?;
    Ok(())
}
