//! `weirgate fabric sweep` and `merge`.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Args;

use super::show::{NOT_KNOWN, number};
use super::{LINE_EVERY, Read, create};
use crate::cli::Failure;
use crate::cli::figure::processors;
use crate::cli::output::{self, Output};
use crate::fabric::merge::{Compared, Merged, Row};
use crate::fabric::run::interruption;
use crate::fabric::statistics::Estimate;
use crate::fabric::sweep::{Plan, Progress, Shard, SweepError, Vary, sweep};

#[derive(Debug, Args)]
pub(super) struct Sweep {
    #[command(flatten)]
    read: Read,
    /// Vary a key of the scenario, as balance.scheme=ecmp,drill; with several, all combinations
    #[arg(long, value_name = "KEY=VALUE,...")]
    vary: Vec<Vary>,
    /// Run each combination with so many seeds, from the scenario's own on: with one, all have the same arrivals
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    seeds: u32,
    /// Run so many at once; as many as there are cores unless said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    threads: Option<u16>,
    /// Run a part only: the I-th of N, counted from 1, as for a cluster's array of jobs
    #[arg(long, value_name = "I/N", default_value_t = Shard::ALL)]
    shard: Shard,
    /// The folder of its cells, one small file for each run; what is there is not run again
    #[arg(short, long, value_name = "DIR", default_value = "sweep-out")]
    out: PathBuf,
    /// Print the table as JSON, an object per combination
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Merge {
    /// Folders of a sweep, or of its shards
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    /// Where all cells are written as CSV; without it cells.csv in the first folder
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Print the table as JSON, an object per combination
    #[arg(long)]
    json: bool,
}

impl Sweep {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        let refused = |error: SweepError| match error {
            SweepError::Seed(..) | SweepError::Unwritten { .. } => Failure::Work(error.into()),
            SweepError::Scenario(_) | SweepError::Vary(_) | SweepError::Cell(_) => Failure::Usage(error.into()),
        };
        let plan = Plan::new(&self.read.file, &self.read.set, &self.vary, self.seeds).map_err(refused)?;
        let threads = self.threads.map_or_else(processors, usize::from);
        let is_interrupted = interruption().context("signals cannot be caught")?;
        let mut bar = Bar::new();
        let swept = sweep(&plan, self.shard, &self.out, threads, &is_interrupted, &mut |progress| bar.tell(progress));
        bar.bar.finish_and_clear();
        let swept = swept.map_err(refused)?;
        let folder = self.out.display();
        say!("weirgate: {} runs made in {folder}, {} had been there", swept.made, swept.found);
        let is_empty = swept.made + swept.found == 0;
        let mut unfinished = 0;
        if self.shard.is_all() && !is_empty {
            unfinished = Merge { folders: vec![self.out.clone()], csv: None, json: self.json }.table(out)?.unfinished;
            out.flush()?;
        }
        if swept.missing > 0 {
            let missing = swept.missing;
            return Err(Failure::Work(anyhow!(
                "interrupted, so this is partial: {missing} runs are missing; the same command goes on"
            )));
        }
        all_ended(unfinished)
    }
}

fn all_ended(unfinished: usize) -> Result<(), Failure> {
    match unfinished {
        0 => Ok(()),
        runs => Err(Failure::Work(anyhow!(
            "{runs} runs did not end in their time ([run] time): the table has what had ended then; `weirgate fabric run` says why"
        ))),
    }
}

impl Merge {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        let Lacks { unfinished, missing, planned } = self.table(out)?;
        out.flush()?;
        if missing > 0 {
            return Err(Failure::Work(anyhow!("{missing} of {planned} runs are missing: the table is of the others")));
        }
        all_ended(unfinished)
    }

    fn table(&self, out: &mut Output) -> Result<Lacks, Failure> {
        let merged = Merged::read(&self.folders).map_err(|error| Failure::Usage(error.into()))?;
        let csv = self.csv.clone().unwrap_or_else(|| self.folders[0].join("cells.csv"));
        let mut to = create(&csv)?;
        merged.write_csv(&mut to).and_then(|()| to.flush()).with_context(|| csv.display().to_string())?;
        let rows = merged.rows();
        if self.json {
            for row in &rows {
                out.json(row)?;
            }
        } else {
            show(&merged.keys(), &rows, out)?;
            out.line(&csv.display().to_string())?;
        }
        let (missing, planned) = merged.missing();
        Ok(Lacks { unfinished: rows.iter().map(|row| row.unfinished).sum(), missing, planned })
    }
}

/// What a table lacks.
struct Lacks {
    /// Runs that did not end.
    unfinished: usize,
    /// Runs that are not there,
    missing: usize,
    /// of so many.
    planned: usize,
}

/// What the table shows, of all that is compared: with its ratio, unless it has none.
const SHOWN: [(&str, &str); 6] = [
    ("fct_mean_us", "mean FCT us"),
    ("fct_p99_us", "p99"),
    ("fct_p99_9_us", "p99.9"),
    ("fct_p99_99_us", "p99.99"),
    ("queues_up_deviation_bytes", "STDV up bytes"),
    ("dup_acks_3_share", "3+ dup ACKs"),
];

fn show(keys: &[&str], rows: &[Row], out: &mut Output) -> Result<(), Failure> {
    let of = |row: &Row, name: &str| row.measures.get(name).copied().unwrap_or(Compared { mean: None, ratio: None });
    // A column that no row has is left out, and ratios where there is nothing to compare.
    let shown: Vec<_> = SHOWN.iter().filter(|(name, _)| rows.iter().any(|row| of(row, name).mean.is_some())).collect();
    let has_ratios = rows.len() > 1;
    let mut heads: Vec<&str> = keys.to_vec();
    heads.push("seeds");
    for (_, head) in &shown {
        heads.push(head);
        heads.extend(has_ratios.then_some("ratio"));
    }
    let line = |row: &Row| {
        let mut line: Vec<String> = row.vary.iter().map(|[_, value]| value.clone()).collect();
        line.push(row.seeds.len().to_string());
        for (name, _) in &shown {
            let Compared { mean, ratio } = of(row, name);
            line.push(estimate(mean));
            line.extend(has_ratios.then(|| of_ratio(ratio)));
        }
        line
    };
    Ok(out.table(&heads, &rows.iter().map(line).collect::<Vec<_>>())?)
}

/// `12.3 ± 0.4`: the interval of a mean is alike to both sides.
fn estimate(estimate: Option<Estimate>) -> String {
    match estimate {
        None => NOT_KNOWN.to_owned(),
        Some(Estimate { value, interval: None }) => number(value),
        Some(Estimate { value, interval: Some([_, to]) }) => format!("{} ± {}", number(value), number(to - value)),
    }
}

/// `0.8 [0.7 to 0.9]`: the interval of a ratio is not.
fn of_ratio(ratio: Option<Estimate>) -> String {
    match ratio {
        Some(Estimate { value, interval: Some([low, high]) }) => {
            format!("{} [{} to {}]", number(value), number(low), number(high))
        }
        _ => estimate(ratio),
    }
}

/// How far a sweep is, and how long it will take: a bar on a terminal, lines elsewhere.
struct Bar {
    bar: indicatif::ProgressBar,
    said: Option<Instant>,
    is_said: bool,
}

impl Bar {
    fn new() -> Self {
        Self { bar: output::progress(Some(0), "runs"), said: None, is_said: false }
    }

    fn tell(&mut self, progress: Progress) {
        let Progress { all, there, threads, left } = progress;
        self.bar.set_length(all as u64);
        self.bar.set_position(there as u64);
        // How long it will take is said as soon as it is known.
        let is_known = left.is_some() && there < all;
        let is_due = if std::io::stderr().is_terminal() {
            false
        } else {
            self.said.is_none_or(|said| said.elapsed() >= LINE_EVERY)
        };
        if is_due || (is_known && !self.is_said) {
            self.is_said |= is_known;
            self.said = Some(Instant::now());
            let left =
                left.filter(|_| there < all).map_or_else(String::new, |left| format!(", about {} left", rough(left)));
            self.bar.suspend(|| say!("weirgate: {there} of {all} runs, {threads} at once{left}"));
        }
    }
}

/// A time as people say it who do not know it well.
fn rough(time: Duration) -> String {
    match time.as_secs() {
        0..100 => format!("{} s", time.as_secs_f64().ceil()),
        secs @ 100..6_000 => format!("{} min", secs.div_ceil(60)),
        secs @ 6_000..200_000 => format!("{} h", secs.div_ceil(3_600)),
        secs => format!("{} d", secs.div_ceil(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_estimates_are_written_for_people() {
        let said = [0, 12, 99, 100, 5_999, 6_000, 300_000].map(|secs| rough(Duration::from_secs(secs)));
        assert_eq!(said, ["0 s", "12 s", "99 s", "2 min", "100 min", "2 h", "4 d"]);
        let half = Estimate { value: 12.34, interval: Some([11.34, 13.34]) };
        assert_eq!(estimate(Some(half)), "12.34 ± 1.000");
        assert_eq!(of_ratio(Some(half)), "12.34 [11.34 to 13.34]");
        assert_eq!(of_ratio(None), "n/a");
        assert_eq!(
            (estimate(Some(Estimate { interval: None, ..half })), estimate(None)),
            ("12.34".into(), "n/a".into())
        );
    }
}
