//! What runs the arms of a figure, on all cores.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow};
use weirgate_lab::experiment::{Form, Options};
use weirgate_lab::report::Report;
use weirgate_units::Duration;

use super::arm::{Arm, Observed};
use crate::fabric::scenario::Scenario;
use crate::fabric::threads::on_threads;

/// What the article's scenario leaves to a figure.
const ARTICLE: &str = include_str!("../../../../../scenarios/article.toml");

/// Seeds of arms that are beside the point.
const ASIDE: usize = 4;

/// A figure's surroundings.
#[derive(Debug)]
pub struct Bench {
    options: Options,
    threads: usize,
    article: Scenario,
    /// Short forms' runs, by scenario: figures of one network have some in common. Long ones are too large to be kept.
    seen: Mutex<HashMap<String, Observed>>,
}

impl Bench {
    /// `threads`: how many runs at once, 1 at least.
    ///
    /// # Errors
    /// Where the article's scenario cannot be read.
    pub fn new(options: &Options, threads: usize) -> Result<Self> {
        let article = Scenario::parse(ARTICLE, Path::new("")).map_err(|problems| {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            anyhow!("scenarios/article.toml: {}", problems.join("; "))
        })?;
        Ok(Self { options: options.clone(), threads: threads.max(1), article, seen: Mutex::default() })
    }

    /// How it is run.
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// Whether this is the short form.
    pub(super) fn is_quick(&self) -> bool {
        self.options.form != Form::Full
    }

    /// The article's scenario, as long as this form has it.
    pub(super) fn article(&self) -> Scenario {
        let mut scenario = self.article.clone();
        if self.is_quick() {
            scenario.run.flows = 5_000;
            scenario.run.warm_up = Duration::from_millis(2);
        }
        scenario
    }

    /// The seeds of every arm; those beside the point have the first four.
    pub(super) fn seeds(&self) -> Vec<u64> {
        let count = if self.is_quick() { 2 } else { 10 };
        (0..count).map(|seed| self.options.seed + seed).collect()
    }

    /// The report of a figure that begins now.
    pub(super) fn report(&self, name: &str, title: &str) -> Report {
        Report::begin(&self.options, name, title)
    }

    /// Says how far it is.
    pub(super) fn say(&self, what: impl std::fmt::Display) {
        if self.options.chatty {
            eprintln!("fabric: {what}");
        }
    }

    /// Runs all arms with all seeds; what was observed of each, by arm and seed.
    pub(super) fn observe(&self, arms: &[Arm]) -> Result<Vec<Vec<Observed>>> {
        let seeds = self.seeds();
        let of = |arm: &Arm| if arm.is_aside { &seeds[..seeds.len().min(ASIDE)] } else { &seeds[..] };
        let jobs: Vec<(usize, u64)> =
            arms.iter().enumerate().flat_map(|(at, arm)| of(arm).iter().map(move |seed| (at, *seed))).collect();
        let done = AtomicUsize::new(0);
        let began = std::time::Instant::now();
        let observed = on_threads(self.threads, &jobs, |(arm, seed)| {
            let observed = self.observe_one(&arms[*arm], *seed);
            self.say_progress(done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len(), began);
            observed
        });
        let mut all: Vec<Vec<Observed>> = arms.iter().map(|_| Vec::new()).collect();
        for ((arm, _), observed) in jobs.iter().zip(observed) {
            all[*arm].push(observed?);
        }
        Ok(all)
    }

    fn observe_one(&self, arm: &Arm, seed: u64) -> Result<Observed> {
        if !self.is_quick() {
            return arm.observe(seed);
        }
        let seen = || self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let key = format!("{seed} {:?}", arm.scenario);
        let before = seen().get(&key).cloned();
        match before {
            Some(observed) => Ok(observed),
            None => {
                let observed = arm.observe(seed)?;
                seen().insert(key, observed.clone());
                Ok(observed)
            }
        }
    }

    fn say_progress(&self, done: usize, jobs: usize, began: std::time::Instant) {
        // Ten times in all.
        if done * 10 / jobs != (done - 1) * 10 / jobs {
            let left = began.elapsed().as_secs_f64() / done as f64 * (jobs - done) as f64;
            self.say(format!("{done} of {jobs} runs, about {left:.0} s to go"));
        }
    }
}
