//! What runs the arms of a figure, on all cores.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow};
use weirgate_lab::experiment::{Form, Options};
use weirgate_lab::report::Report;
use weirgate_units::Duration;

use super::arm::{Arm, Observed};
use super::kept::Kept;
use crate::fabric::scenario::Scenario;
use crate::fabric::threads::on_threads;

/// What the article's scenario leaves to a figure.
const ARTICLE: &str = include_str!("../../../../../scenarios/article.toml");

/// A figure's surroundings.
#[derive(Debug)]
pub struct Bench {
    options: Options,
    threads: usize,
    article: Scenario,
    kept: Kept,
    /// How long runs were, in words.
    lengths: Mutex<BTreeSet<String>>,
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
        let kept = Kept::new(options.out.join("fabric-runs"));
        Ok(Self { options: options.clone(), threads: threads.max(1), article, kept, lengths: Mutex::default() })
    }

    /// How it is run.
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// Whether this is the short form.
    pub(super) const fn is_quick(&self) -> bool {
        !matches!(self.options.form, Form::Full)
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

    /// The seeds of every arm; those beside the point have the first ones only.
    pub(super) fn seeds(&self) -> Vec<u64> {
        let count = if self.is_quick() { 3 } else { 10 };
        (0..count).map(|seed| self.options.seed + seed).collect()
    }

    /// How many of them what is beside the point has.
    const fn seeds_aside(&self) -> usize {
        if self.is_quick() { 1 } else { 4 }
    }

    /// The report of a figure that begins now.
    pub(super) fn report(&self, name: &str, title: &str) -> Report {
        Report { is_timed: false, ..Report::begin(&self.options, name, title) }
    }

    /// How long the runs were since this was asked last, for a page.
    pub(super) fn take_lengths(&self) -> String {
        let lengths = std::mem::take(&mut *self.lengths.lock().unwrap_or_else(PoisonError::into_inner));
        let lengths: Vec<String> = lengths.into_iter().collect();
        let settling = "; so short a warm-up leaves long flows out that would be under way, and the load is a little lower than it says";
        format!(
            "Runs: {}; {} seeds, {} of what is beside the point{}.",
            lengths.join("; "),
            self.seeds().len(),
            self.seeds_aside(),
            if self.is_quick() { settling } else { "" }
        )
    }

    /// Says how far it is.
    pub(super) fn say(&self, what: impl std::fmt::Display) {
        if self.options.chatty {
            say!("fabric: {what}");
        }
    }

    /// Runs all arms with all seeds; what was observed of each, by arm and seed.
    pub(super) fn observe(&self, arms: &[Arm]) -> Result<Vec<Vec<Observed>>> {
        let seeds = self.seeds();
        let of = |arm: &Arm| if arm.is_aside { &seeds[..self.seeds_aside()] } else { &seeds[..] };
        self.lengths.lock().unwrap_or_else(PoisonError::into_inner).extend(arms.iter().map(Arm::length));
        let jobs: Vec<(usize, u64)> =
            arms.iter().enumerate().flat_map(|(at, arm)| of(arm).iter().map(move |seed| (at, *seed))).collect();
        let kept: Vec<Option<Observed>> = jobs.iter().map(|(arm, seed)| self.kept.read(&arms[*arm], *seed)).collect();
        let missing: Vec<(usize, u64)> =
            jobs.iter().zip(&kept).filter(|(_, kept)| kept.is_none()).map(|(job, _)| *job).collect();
        self.say(format!("{} runs, {} of them kept from an earlier figure", jobs.len(), jobs.len() - missing.len()));
        let done = AtomicUsize::new(0);
        let began = std::time::Instant::now();
        let mut fresh = on_threads(self.threads, &missing, |(arm, seed)| -> Result<Observed> {
            let observed = arms[*arm].observe(*seed)?;
            self.kept.write(&arms[*arm], *seed, &observed)?;
            self.say_progress(done.fetch_add(1, Ordering::Relaxed) + 1, missing.len(), began);
            Ok(observed)
        })
        .into_iter();
        let mut all: Vec<Vec<Observed>> = arms.iter().map(|_| Vec::new()).collect();
        for ((arm, _), kept) in jobs.iter().zip(kept) {
            let observed = kept.map(Ok).or_else(|| fresh.next()).expect("each job is kept or was run");
            all[*arm].push(observed?);
        }
        Ok(all)
    }

    fn say_progress(&self, done: usize, jobs: usize, began: std::time::Instant) {
        // Ten times in all.
        if done * 10 / jobs != (done - 1) * 10 / jobs {
            let left = began.elapsed().as_secs_f64() / done as f64 * (jobs - done) as f64;
            self.say(format!("{done} of {jobs} runs, about {left:.0} s to go"));
        }
    }
}
