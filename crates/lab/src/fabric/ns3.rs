//! ns-3 from Debian's packages, on the same network and the same flows: a program of ours, compiled where it runs.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use weirgate_fabric::{Span, Time, Workload};

const PROGRAM: &str = include_str!("../../experiments/ns3/leaf_spine.cc");

/// The libraries that it uses, those that need others first.
const LIBRARIES: [&str; 6] = ["applications", "internet", "point-to-point", "traffic-control", "network", "core"];

/// A program that runs the scenario with 320 hosts.
#[derive(Debug)]
pub(super) struct Ns3 {
    program: PathBuf,
    flows: PathBuf,
    from: Span,
    until: Span,
}

impl Ns3 {
    /// Compiles it in `dir`, and writes down the flows of `workload`: those that it counts hops of begin before `until`.
    ///
    /// # Errors
    /// Where there is no compiler or no ns-3.
    pub(super) fn build(dir: &Path, mut workload: impl Workload, from: Span, until: Span) -> Result<Self> {
        let (source, program) = (dir.join("leaf_spine.cc"), dir.join("leaf_spine"));
        fs::write(&source, PROGRAM)?;
        let mut compiler = Command::new("g++");
        compiler.args(["-O2", "-std=c++17", "-o"]).arg(&program).arg(&source);
        compiler.args(LIBRARIES.map(|library| format!("-lns3-{library}")));
        tell(&mut compiler).context("the program for ns-3 was not built: run `make setup`")?;

        let mut lines = String::new();
        let end = Time::ZERO + until;
        while let Some(at) = workload.poll_at().filter(|at| *at < end) {
            while let Some(flow) = workload.poll(at) {
                let _ = writeln!(lines, "{} {} {} {}", at.as_picos(), flow.source, flow.destination, flow.bytes);
            }
        }
        let flows = dir.join("flows");
        fs::write(&flows, lines)?;
        Ok(Self { program, flows, from, until })
    }

    /// Packet-hops per second of processor time, in each of so many equal steps of simulated time.
    pub(super) fn run(&self, steps: usize) -> Result<Vec<f64>> {
        let mut command = Command::new(&self.program);
        command.arg(format!("--flows={}", self.flows.display())).arg(format!("--steps={steps}"));
        for (name, span) in [("from", self.from), ("until", self.until)] {
            command.arg(format!("--{name}={}", span.as_nanos() / 1_000));
        }
        let said = tell(&mut command)?;
        let rate = |line: &str| {
            let (hops, secs) = line.split_once(' ')?;
            Some(hops.parse::<f64>().ok()? / secs.parse::<f64>().ok()?)
        };
        let rates: Vec<f64> = said.lines().filter_map(rate).collect();
        ensure!(rates.len() == steps, "ns-3 said `{said}`, and was to say {steps} times two numbers");
        Ok(rates)
    }
}

/// Runs a command to its end; what it prints.
fn tell(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", command.get_program().display(), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
