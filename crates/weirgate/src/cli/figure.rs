//! `weirgate fabric figure`: the figures of the DRILL article.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use weirgate_lab::experiment::{Form, Options};

use super::Failure;
use super::output::Output;
use crate::config::read::unknown;
use crate::fabric::figure::{Bench, FIGURES, Figure as OneFigure};

#[derive(Debug, Args)]
pub(super) struct Figure {
    /// Which, or `all`, or `list`
    name: String,
    /// A short form: fewer and shorter runs, smaller networks for figures 2 and 3; what it is too short for is left out
    #[arg(long)]
    quick: bool,
    /// The first seed; the others follow it
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where its folder is made
    #[arg(short, long, value_name = "DIR", default_value = "lab-out")]
    out: PathBuf,
    /// Runs at once; by default as many as there are processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl Figure {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        if self.name == "list" {
            let rows: Vec<Vec<String>> =
                FIGURES.iter().map(|figure| vec![figure.name.to_owned(), figure.about.to_owned()]).collect();
            return Ok(out.table(&["figure", "what it shows"], &rows)?);
        }
        let figures: Vec<&OneFigure> =
            FIGURES.iter().filter(|figure| self.name == "all" || figure.name == self.name).collect();
        if figures.is_empty() {
            let mut names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
            names.push("all");
            return Err(Failure::Usage(anyhow!(unknown("figure", &self.name, &names))));
        }
        let threads = self
            .threads
            .map_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get), usize::from);
        let options = Options {
            form: if self.quick { Form::Quick } else { Form::Full },
            seed: self.seed,
            out: self.out,
            weirgate: std::env::current_exe().context("this program's own file is not known")?,
            chatty: true,
        };
        let bench = Bench::new(&options, threads)?;
        eprintln!("fabric: {} figures, each {}", figures.len(), OneFigure::cost(options.form));
        let mut all_hold = true;
        for figure in figures {
            eprintln!("fabric: {}: {}", figure.name, figure.about);
            let report = figure.run(&bench)?;
            out.line(report.text().trim_end())?;
            out.line(&options.dir(figure.name)?.join("report.html").display().to_string())?;
            all_hold &= report.holds();
        }
        if all_hold { Ok(()) } else { Err(Failure::Check) }
    }
}
