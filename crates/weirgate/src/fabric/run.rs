//! A run of a scenario, from its warm-up to its end, with somebody who watches.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use weirgate_fabric::{Simulation, Span, Time};

use super::outcome::{Ended, Outcome, Wall, asked};
use super::scenario::Scenario;
use crate::config::Problem;

/// A run that is over.
#[derive(Debug)]
pub struct Ran {
    /// As it was then.
    pub simulation: Simulation,
    /// Why.
    pub ended: Ended,
    /// How long it took.
    pub wall: Wall,
}

impl Ran {
    /// What came of it.
    pub fn outcome(&self, scenario: &Scenario) -> Outcome {
        Outcome::of(&self.simulation, scenario, self.ended, self.wall)
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Flows that count and have ended.
    pub finished: u64,
    /// Of so many; none, where nobody knows.
    pub asked: Option<u64>,
    /// Flows that have begun and not ended.
    pub under_way: u64,
    /// Simulated time.
    pub now: Time,
}

/// A run is looked at about so often: seldom enough to cost nothing, often enough for who has pressed Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs a scenario to its end, or until `is_interrupted`. What happens does not depend on who looks, and when.
///
/// # Errors
/// Where the network cannot carry what is asked for.
pub fn run(
    scenario: &Scenario,
    is_interrupted: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Ran, Problem> {
    let mut simulation = scenario.simulation()?;
    let warm_up = Time::ZERO + Span::from(scenario.run.warm_up);
    let begin = Instant::now();
    let mut look = |simulation: &Simulation, counts: bool| {
        progress(Progress {
            finished: if counts { simulation.measures().finished.len() as u64 } else { 0 },
            asked: asked(simulation, scenario),
            under_way: simulation.flows_under_way() as u64,
            now: simulation.now(),
        });
        is_interrupted.load(Ordering::Relaxed)
    };
    let mut slices = Slices::new();
    let mut is_stopped = false;
    while slices.at < warm_up && !is_stopped {
        let until = slices.next(warm_up);
        if !simulation.run_until(until) {
            break;
        }
        is_stopped = look(&simulation, false);
    }
    simulation.begin_measures(Some(scenario.run.flows));
    let warm = begin.elapsed();
    let ended = loop {
        if is_stopped {
            break Ended::Interrupted;
        }
        let until = slices.next(scenario.end());
        if !simulation.run_until(until) {
            break Ended::Finished;
        }
        if until >= scenario.end() {
            break Ended::TimeLimit;
        }
        is_stopped = look(&simulation, true);
    };
    let wall = Wall { warm_up: warm, measured: begin.elapsed() - warm };
    Ok(Ran { simulation, ended, wall })
}

/// Spans of simulated time that each take about as long as it should be between two looks.
struct Slices {
    at: Time,
    length: Span,
    began: Instant,
}

impl Slices {
    fn new() -> Self {
        Self { at: Time::ZERO, length: Span::from_micros(1), began: Instant::now() }
    }

    /// The end of the next one, at most `end`.
    fn next(&mut self, end: Time) -> Time {
        let took = std::mem::replace(&mut self.began, Instant::now()).elapsed();
        if took < LOOK_EVERY / 2 {
            self.length = self.length.saturating_mul(2);
        } else if took > LOOK_EVERY * 2 {
            self.length = Span::from_picos((self.length.as_picos() / 2).max(1));
        }
        self.at = (self.at + self.length).min(end);
        self.at
    }
}

/// What Ctrl-C and SIGTERM set from now on, in place of ending the program; the second one ends it with 1.
///
/// # Errors
/// Where signals cannot be caught.
pub fn interruption() -> io::Result<Arc<AtomicBool>> {
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_interrupted);
    on_signals(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(1);
        }
    })?;
    Ok(is_interrupted)
}

/// From now on Ctrl-C and SIGTERM end the program with 1, and it says `what`.
///
/// # Errors
/// Where signals cannot be caught.
pub fn end_with(what: &'static str) -> io::Result<()> {
    on_signals(move || {
        say!("{what}");
        std::process::exit(1);
    })
}

fn on_signals(mut handle: impl FnMut() + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut int, mut term) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    // The thread ends with the process; it does nothing but wait for signals.
    std::thread::spawn(move || {
        runtime.block_on(async move {
            for _ in 0..2 {
                tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
                handle();
            }
        });
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const SMALL: &str = "[topology]\nspines = 2\nleaves = 2\nhosts = 4\ncore = \"20 Gbit/s\"\n[workload]\nsizes = \"10 KB\"\nload = 0.5\n\
                         [run]\nwarm_up = \"1 ms\"\n";

    fn scenario(flows: u32, more: &str) -> Scenario {
        Scenario::parse(&format!("{SMALL}flows = {flows}\n{more}"), Path::new("")).unwrap()
    }

    #[test]
    fn who_looks_changes_nothing() {
        let scenario = scenario(300, "");
        let mut simulation = scenario.simulation().unwrap();
        simulation.run_until(Time::ZERO + Span::from(scenario.run.warm_up));
        simulation.begin_measures(Some(300));
        assert!(!simulation.run_until(scenario.end()));
        let mut looks = 0;
        let ran = run(&scenario, &AtomicBool::new(false), &mut |_| looks += 1).unwrap();
        assert!(looks > 3);
        assert_eq!((ran.ended, ran.simulation.digest()), (Ended::Finished, simulation.digest()));
        assert_eq!(ran.simulation.measures().finished, simulation.measures().finished);
    }

    #[test]
    fn a_run_ends_with_its_time_or_when_it_is_told_to() {
        let ran = run(&scenario(300, "time = \"1100 us\"\n"), &AtomicBool::new(false), &mut |_| ()).unwrap();
        assert_eq!(ran.ended, Ended::TimeLimit);
        assert!(ran.simulation.now() <= Time::ZERO + Span::from_micros(1_100));
        let stop = AtomicBool::new(false);
        let ran =
            run(&scenario(100_000, ""), &stop, &mut |seen| stop.store(seen.finished > 20, Ordering::Relaxed)).unwrap();
        assert_eq!(ran.ended, Ended::Interrupted);
        assert!((21..100_000).contains(&ran.simulation.measures().finished.len()));
    }

    #[test]
    fn how_many_flows_there_will_be_is_known_from_the_start() {
        let asked = |workload: &str| {
            let text = format!(
                "[topology]\nspines = 2\nleaves = 2\nhosts = 4\ncore = \"10 Gbit/s\"\n[workload]\n{workload}\n"
            );
            let scenario = Scenario::parse(&text, Path::new("")).unwrap();
            let mut seen = Vec::new();
            let ran = run(&scenario, &AtomicBool::new(false), &mut |progress| seen.push(progress.asked)).unwrap();
            let counts = ran.outcome(&scenario).flows;
            seen.push(counts.asked);
            seen.dedup();
            (seen, counts.finished)
        };
        assert_eq!(asked("kind = \"ring\"\nbytes = \"1 MB\""), (vec![Some(8 * 14)], 8 * 14));
        assert_eq!(asked("kind = \"all-to-all\"\n[run]\nflows = 20"), (vec![Some(20)], 20));
        assert_eq!(asked("sizes = \"10 KB\"\n[run]\nflows = 300"), (vec![Some(300)], 300));
        let (with_mice, finished) = asked("kind = \"permutation\"\nbytes = \"1 MB\"\nmice = \"1 KB\"");
        assert!(with_mice == [None] && finished >= 8, "{with_mice:?}, {finished}");
    }

    /// Nothing happens for longer than a slice takes: until the timer of 200 ms runs out.
    #[test]
    fn a_pause_is_run_over() {
        let alone = "[topology]\nspines = 1\nleaves = 2\nhosts = 2\n[switch]\nbuffer = \"2 KB\"\nsample_every = \"0 s\"\n\
                     [workload]\nkind = \"stride\"\nstride = 2\nbytes = \"100 KB\"\n";
        let scenario = Scenario::parse(alone, Path::new("")).unwrap();
        let ran = run(&scenario, &AtomicBool::new(false), &mut |_| ()).unwrap();
        assert_eq!(ran.ended, Ended::Finished);
        let finished = &ran.simulation.measures().finished;
        assert_eq!(finished.len(), 4);
    }
}
