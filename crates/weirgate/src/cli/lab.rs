//! `weirgate lab`: experiments on this kernel.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use weirgate_lab::EXPERIMENTS;
use weirgate_lab::experiment::{Form, Options};

use super::output::Output;
use super::{Failure, nearest};

#[derive(Debug, Args)]
pub(super) struct Lab {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show the experiments there are
    List {
        /// Print JSON, one object per experiment
        #[arg(long)]
        json: bool,
    },
    /// Run one: namespaces, real servers, real TCP; ends in a report, and in exit code 1 where a bound does not hold
    Run(Run),
    /// Hold connections to oneself until the input ends; a part of sockets-scale
    #[command(hide = true)]
    Hold {
        /// How many.
        connections: u32,
        /// On which loopback address.
        address: IpAddr,
    },
}

#[derive(Debug, Args)]
struct Run {
    /// Which, as `weirgate lab list` names them
    name: String,
    /// A short form: the same bounds, but wider intervals, which leave some undecided
    #[arg(long)]
    quick: bool,
    /// A form to be watched, where the experiment has one
    #[arg(long, conflicts_with = "quick")]
    demo: bool,
    /// The seed of everything random in it
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where its folder is made
    #[arg(short, long, value_name = "DIR", default_value = "lab-out")]
    out: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl Lab {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        match self.what {
            What::List { json } => list(json, out),
            What::Run(run) => run.run(out),
            What::Hold { connections, address } => Ok(weirgate_lab::hold(connections, address)?),
        }
    }
}

fn list(json: bool, out: &mut Output) -> Result<(), Failure> {
    if json {
        for experiment in EXPERIMENTS {
            out.json(&serde_json::json!({ "name": experiment.name, "about": experiment.about }))?;
        }
        return Ok(());
    }
    let rows: Vec<Vec<String>> = EXPERIMENTS.iter().map(|e| vec![e.name.to_owned(), e.about.to_owned()]).collect();
    Ok(out.table(&["experiment", "what it shows"], &rows)?)
}

impl Run {
    fn run(self, out: &mut Output) -> Result<(), Failure> {
        let Some(experiment) = EXPERIMENTS.iter().find(|experiment| experiment.name == self.name) else {
            let names: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
            let hint = match nearest(&self.name, &names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are {}", names.join(", ")),
            };
            return Err(Failure::Usage(anyhow!("no experiment is called `{}`; {hint}", self.name)));
        };
        let options = Options {
            form: match (self.quick, self.demo) {
                (true, _) => Form::Quick,
                (_, true) => Form::Demo,
                _ => Form::Full,
            },
            seed: self.seed,
            out: self.out,
            weirgate: std::env::current_exe().context("this program's own file is not known")?,
            chatty: true,
        };
        let report = experiment.run(&options)?;
        let result = options.dir(experiment.name)?.join("result.json");
        if self.json {
            out.bytes(&std::fs::read(&result).with_context(|| result.display().to_string())?)?;
        } else {
            out.line(report.text().trim_end())?;
            out.line(&result.with_file_name("report.html").display().to_string())?;
        }
        if report.holds() { Ok(()) } else { Err(Failure::Check) }
    }
}
