//! `weirgate fabric figure` and `weirgate fabric verify`: what ends in a report.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use weirgate_lab::experiment::{Form, Options};

use super::Failure;
use super::output::Output;
use crate::config::read::unknown;
use crate::fabric::figure::{Bench, FIGURES, Figure as OneFigure};
use crate::fabric::run::end_with;
use crate::fabric::verify;

#[derive(Debug, Args)]
pub(super) struct Figure {
    /// Which, one after the other; or `all`, or `list`
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// A short form: fewer and shorter runs, smaller networks for figures 2 and 3; what it is too short for is left out
    #[arg(long)]
    quick: bool,
    /// The first seed; the others follow it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1 << 62))]
    seed: u64,
    /// Where its folder is made
    #[arg(short, long, value_name = "DIR", default_value = "lab-out")]
    out: PathBuf,
    /// Runs at once; by default as many as there are processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// `weirgate fabric verify`.
#[derive(Debug, Args)]
pub(super) struct Verify {
    /// A short form: less is measured, and what is random may be further off
    #[arg(long)]
    quick: bool,
    /// The seed of everything random in it
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where its folder is made
    #[arg(short, long, value_name = "DIR", default_value = "lab-out")]
    out: PathBuf,
}

impl Verify {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        let options = options(self.quick, self.seed, self.out)?;
        let (report, holds) = verify::run(&options, processors())?;
        out.line(report.text().trim_end())?;
        out.line(&options.dir("verify")?.join("report.html").display().to_string())?;
        if holds { Ok(()) } else { Err(Failure::Check) }
    }
}

fn options(quick: bool, seed: u64, out: PathBuf) -> Result<Options, Failure> {
    Ok(Options {
        form: if quick { Form::Quick } else { Form::Full },
        seed,
        out,
        weirgate: std::env::current_exe().context("this program's own file is not known")?,
        chatty: true,
    })
}

pub(super) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

impl Figure {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        if self.names == ["list"] {
            let rows: Vec<Vec<String>> =
                FIGURES.iter().map(|figure| vec![figure.name.to_owned(), figure.about.to_owned()]).collect();
            return Ok(out.table(&["figure", "what it shows"], &rows)?);
        }
        let figures = chosen(&self.names).map_err(|error| Failure::Usage(anyhow!(error)))?;
        let threads = self.threads.map_or_else(processors, usize::from);
        let options = options(self.quick, self.seed, self.out)?;
        let bench = Bench::new(&options, threads)?;
        end_with("fabric: interrupted; the runs that are done are kept, and the same command goes on")
            .context("signals cannot be caught")?;
        say!("fabric: {} figures, each {}", figures.len(), OneFigure::cost(options.form));
        let mut all_hold = true;
        for figure in figures {
            say!("fabric: {}: {}", figure.name, figure.about);
            let report = figure.run(&bench)?;
            out.line(report.text().trim_end())?;
            out.line(&options.dir(figure.name)?.join("report.html").display().to_string())?;
            all_hold &= report.holds();
        }
        if all_hold { Ok(()) } else { Err(Failure::Check) }
    }
}

/// The figures of these names, once each, where they are named first.
fn chosen(names: &[String]) -> Result<Vec<&'static OneFigure>, String> {
    let mut figures: Vec<&OneFigure> = Vec::new();
    for name in names {
        let of_name: Vec<&OneFigure> =
            FIGURES.iter().filter(|figure| name == "all" || figure.name == name.as_str()).collect();
        if of_name.is_empty() {
            let known = FIGURES.iter().map(|figure| figure.name).chain(["all"]);
            return Err(unknown("figure", name, &known.collect::<Vec<_>>()));
        }
        figures.extend(of_name);
    }
    let mut seen = BTreeSet::new();
    figures.retain(|figure| seen.insert(figure.name));
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_figures_are_taken_in_their_order_and_once() {
        let names = |typed: &[&str]| {
            let typed: Vec<String> = typed.iter().copied().map(String::from).collect();
            chosen(&typed).map(|figures| figures.iter().map(|figure| figure.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["fig7", "fig2", "fig7"]), Ok(vec!["fig7", "fig2"]));
        let all = names(&["fig12", "all"]).unwrap();
        assert!(all.len() == FIGURES.len() && all[..2] == ["fig12", "fig2"], "{all:?}");
        assert!(names(&["fig2", "fig99"]).unwrap_err().starts_with("there is no figure called `fig99`"));
    }
}
