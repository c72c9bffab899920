//! `accelerator`: a real nginx whose responses a simulated accelerator compresses, and everything that can go wrong with one.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use weirgate_deflate::count::{Maker, Reason, Totals};

use super::calls;
use super::clients::{self, Seen};
use super::server::{Library, Server};
use super::{Body, bodies, pause};
use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::process::Killed;
use crate::report::{Report, Table, number};

/// Workers of the server.
const WORKERS: usize = 4;

/// For how long a body is waited for, in microseconds: of four workers that the device has to serve, by libdeflate, it does one after the
/// other.
const WAIT_US: &str = "10000";

/// What goes wrong, and what is to come of it.
struct Fault {
    name: &'static str,
    /// What the device is told.
    told: &'static [&'static str],
    /// What happens to it in the middle.
    then: Then,
    /// What bodies are left to other engines for, among others.
    reason: Option<Reason>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Nothing,
    /// It dies by itself, or is killed, and another one comes.
    Returns,
    /// It is stopped, and goes on.
    GoesOn,
    /// The server reads its configuration again and again.
    Reloads(usize),
}

/// Of which each engine's bodies and reasons are looked at.
const FAULTS: [Fault; 8] = [
    Fault { name: "none", told: &[], then: Then::Nothing, reason: None },
    Fault {
        name: "one of 10 takes 100 ms",
        told: &["--slow-every", "10"],
        then: Then::Nothing,
        reason: Some(Reason::Late),
    },
    Fault {
        name: "one of 10 answers is wrong",
        told: &["--wrong-every", "10"],
        then: Then::Nothing,
        reason: Some(Reason::Wrong),
    },
    Fault {
        name: "one of 10 is an error",
        told: &["--fail-every", "10"],
        then: Then::Nothing,
        reason: Some(Reason::Failed),
    },
    Fault { name: "errors only", told: &["--fail-every", "1"], then: Then::Nothing, reason: Some(Reason::Paused) },
    Fault {
        name: "one instance for all workers",
        told: &["--instances", "1"],
        then: Then::Nothing,
        reason: Some(Reason::Exhausted),
    },
    Fault {
        name: "dies in the middle of an answer, and returns",
        told: &["--crash-at", "100"],
        then: Then::Returns,
        reason: Some(Reason::Gone),
    },
    Fault { name: "stops, and goes on", told: &[], then: Then::GoesOn, reason: Some(Reason::Gone) },
];

/// The device's process; it ends with this value.
struct Device {
    child: Killed,
}

/// What came of a fault.
struct Outcome {
    seen: Seen,
    totals: Totals,
    alerts: usize,
    /// Until a body was the device's again.
    returned: Option<Duration>,
}

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "accelerator", "An accelerator, and everything that goes wrong with one");
    let full = options.form == Form::Full;
    let seconds = if full { 6.0 } else { 1.5 };
    let dir = options.dir("accelerator")?;
    let bodies: Vec<Body> = bodies(options.seed)?.into_iter().filter(|body| [4, 25, 88].contains(&body.kb)).collect();
    let root = dir.join("root");
    fs::create_dir_all(&root)?;
    for body in &bodies {
        fs::write(root.join(&body.name), &body.bytes)?;
    }
    let libraries = Library::all(&options.weirgate)?;
    let stock = libraries.iter().find(|library| library.is_stock()).context("zlib is not there")?;
    let library = libraries.iter().find(|library| library.is_ours()).context("ours is not there")?;
    let library = library.with("WEIRGATE_Z_ACCELERATOR_USE", "always").with("WEIRGATE_Z_ACCELERATOR_WAIT_US", WAIT_US);
    let bodies: Vec<&Body> = bodies.iter().collect();
    let reloads = if full { 1_000 } else { 50 };
    let name = "none, and the server reads its configuration";
    let many = Fault { name, told: &[], then: Then::Reloads(reloads), reason: None };

    let mut table = Table::new(
        "Faults under load",
        &[
            "fault",
            "requests",
            "failed",
            "alerts",
            "by the accelerator, %",
            "left to other engines",
            "returned after, ms",
        ],
    );
    let (mut failed, mut alerts, mut uncounted, mut unnoticed) = (0, 0, 0, Vec::new());
    let (mut returned_ms, mut exhausted) = (0.0_f64, 0);
    for fault in FAULTS.iter().chain([&many]) {
        options.say(fault.name);
        let place = dir.join(fault.name.replace([' ', ','], "-"));
        let outcome = fault.run(options, &place, &library, &root, &bodies, seconds)?;
        let Outcome { seen, totals, alerts: more, returned } = &outcome;
        failed += seen.failed;
        alerts += more;
        uncounted += uncounted_of(totals, seen.requests);
        let done = totals.made[Maker::Accelerator as usize].bodies;
        let is_noticed = fault.reason.is_none_or(|reason| totals.reasons[reason as usize] > 0);
        if !is_noticed || done == 0 && fault.told != ["--fail-every", "1"] {
            unnoticed.push(fault.name);
        }
        if let Then::Reloads(_) = fault.then {
            exhausted = totals.reasons[Reason::Exhausted as usize];
        }
        if matches!(fault.then, Then::Returns | Then::GoesOn) {
            returned_ms = returned_ms.max(returned.map_or(f64::INFINITY, |after| after.as_secs_f64() * 1e3));
        }
        let reasons = Reason::ALL.into_iter().zip(totals.reasons).filter(|(_, count)| *count > 0);
        let reasons: Vec<String> = reasons.map(|(reason, count)| format!("{} {count}", reason.name())).collect();
        table.rows.push(vec![
            fault.name.to_owned(),
            seen.requests.to_string(),
            seen.failed.to_string(),
            more.to_string(),
            number(done as f64 / (seen.requests as f64).max(1.0) * 100.0),
            if reasons.is_empty() { "none".to_owned() } else { reasons.join(", ") },
            returned.map_or("-".to_owned(), |after| number(after.as_secs_f64() * 1e3)),
        ]);
    }
    options.say("system calls");
    let place = dir.join("calls");
    let _there_was_none = fs::remove_dir_all(&place);
    fs::create_dir_all(&place)?;
    let device = Device::start(&options.weirgate, &place.join("accelerator"), &[])?;
    let with = library.with("WEIRGATE_Z_ACCELERATOR", place.join("accelerator"));
    let servers = [
        Server::workers(&place.join("zlib"), stock, &root, 1)?,
        Server::workers(&place.join("with"), &with, &root, 1)?,
    ];
    let (calls, more) = calls::run(&place, &servers, &[stock.clone(), with], &bodies)?;
    drop(device);
    let more =
        more.last().into_iter().flat_map(|more| calls::often(more)).filter(|name| *name != "clock_nanosleep").count();
    let mut expectations = Expectations::of("accelerator")?;
    expectations.measured("failed_requests", failed as f64)?;
    expectations.measured("nginx_alerts", alerts as f64)?;
    expectations.measured("uncounted_bodies", uncounted as f64)?;
    expectations.measured("faults_unnoticed", unnoticed.len() as f64)?;
    expectations.measured("returned_ms", returned_ms)?;
    expectations.measured("reloads_exhausted", exhausted as f64)?;
    expectations.measured("calls_beside_sleep", more as f64)?;
    report.finish(
        format!(
            "nginx of Debian with {WORKERS} workers, `gzip_comp_level 6` and libweirgate_z.so, which is told to give every body to the \
             accelerator (`accelerator_use = always`) and to wait for {WAIT_US} us: `weirgate deflate accelerator`, 64 instances unless it is said \
             otherwise, which compresses on the core that clients have too. Four clients \
             ask for files of 4, 25 and 88 KB, each by a new connection, and decompress and compare every answer; {seconds} s for each \
             fault, {reloads} reloads. A device that dies is started again after a third of that time. Every body is to be counted once, by \
             the engine that made it, and every one that another engine than the accelerator made by why."
        ),
        json!({ "workers": WORKERS, "seconds": seconds, "reloads": reloads, "instances": 64, "unnoticed": unnoticed }),
        expectations,
        vec![table, calls],
    )
}

impl Fault {
    fn run(
        &self,
        options: &Options,
        dir: &Path,
        library: &Library,
        root: &Path,
        bodies: &[&Body],
        seconds: f64,
    ) -> Result<Outcome> {
        // An earlier run's counters.
        let _there_was_none = fs::remove_dir_all(dir);
        let counters = dir.join("counters");
        fs::create_dir_all(&counters)?;
        let socket = dir.join("accelerator");
        let mut device = Device::start(&options.weirgate, &socket, self.told)?;
        let library = library.with("WEIRGATE_Z_ACCELERATOR", &socket).with("WEIRGATE_Z_COUNTERS", &counters);
        let server = Server::workers(dir, &library, root, WORKERS)?;
        let third = (seconds / 3.0 * 1e3) as u64;
        let (returned, seen) = clients::beside(server.port, bodies, || {
            pause(third);
            let returned = match self.then {
                Then::Nothing => None,
                Then::Reloads(times) => {
                    (0..times).try_for_each(|_| server.reload())?;
                    None
                }
                Then::Returns => {
                    device.wait()?;
                    // Workers that begin while it is dead have never had one.
                    server.reload()?;
                    pause(third);
                    let before = by_accelerator(&counters)?;
                    device = Device::start(&options.weirgate, &socket, &[])?;
                    until_used(&counters, before)?
                }
                Then::GoesOn => {
                    device.signal(Signal::STOP)?;
                    pause(third);
                    let before = by_accelerator(&counters)?;
                    device.signal(Signal::CONT)?;
                    until_used(&counters, before)?
                }
            };
            pause(third);
            Ok(returned)
        })?;
        Ok(Outcome { seen, totals: read(&counters)?, alerts: server.alerts(), returned })
    }
}

/// How long it takes until the accelerator has compressed more bodies; `None`: too long.
fn until_used(counters: &Path, before: u64) -> Result<Option<Duration>> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        if by_accelerator(counters)? > before {
            return Ok(Some(began.elapsed()));
        }
        pause(5);
    }
    Ok(None)
}

fn by_accelerator(counters: &Path) -> Result<u64> {
    Ok(read(counters)?.made[Maker::Accelerator as usize].bodies)
}

/// What all processes counted, those that have ended included.
fn read(counters: &Path) -> Result<Totals> {
    let mut all = Totals::default();
    for entry in fs::read_dir(counters)? {
        // One that has just been made is all zero.
        all = all.and(&Totals::read(&fs::read(entry?.path())?).unwrap_or_default());
    }
    Ok(all)
}

/// Of so many bodies, how many were counted by no engine, or by two, or by another than the accelerator without a reason.
fn uncounted_of(totals: &Totals, requests: u64) -> u64 {
    let bodies: u64 = totals.made.iter().map(|made| made.bodies).sum();
    let others = bodies - totals.made[Maker::Accelerator as usize].bodies;
    bodies.abs_diff(requests) + others.abs_diff(totals.reasons.iter().sum())
}

impl Device {
    fn start(weirgate: &Path, socket: &PathBuf, told: &[&str]) -> Result<Self> {
        let mut command = Command::new(weirgate);
        command.args(["deflate", "accelerator", "--socket"]).arg(socket).args(told);
        let child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("cannot start the accelerator")?;
        let mut device = Self { child: Killed(child) };
        let mut said = String::new();
        BufReader::new(device.child.0.stdout.take().context("its output")?).read_line(&mut said)?;
        ensure!(!said.is_empty(), "the accelerator ended at once: is there something at {}?", socket.display());
        Ok(device)
    }

    /// Until it has ended by itself.
    fn wait(&mut self) -> Result<()> {
        let began = Instant::now();
        while self.child.0.try_wait()?.is_none() {
            ensure!(began.elapsed() < Duration::from_secs(20), "the accelerator did not die");
            pause(5);
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child.0), signal)?)
    }
}
