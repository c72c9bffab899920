//! What an experiment is, and the list of them.

use std::path::PathBuf;

use anyhow::{Context, Result};
use weirgate_units::UnixTime;

use crate::report::Report;

/// How an experiment is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much of it.
    pub form: Form,
    /// The seed of everything random in it.
    pub seed: u64,
    /// Where its folder is made.
    pub out: PathBuf,
    /// The `weirgate` binary, for the parts that run the real daemon.
    pub weirgate: PathBuf,
    /// Whether to say on stderr what is going on.
    pub chatty: bool,
}

/// How much of an experiment is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// All of it.
    Full,
    /// A short form for `make test`: wider intervals, the same bounds.
    Quick,
    /// To be watched: less still, where the experiment has such a form.
    Demo,
}

/// One experiment.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Its name, on the command line and below the folder of results.
    pub name: &'static str,
    /// What it shows, in a line.
    pub about: &'static str,
    pub(crate) run: fn(&Options) -> Result<Report>,
}

impl Options {
    /// The experiment's own folder, made.
    pub fn dir(&self, name: &str) -> Result<PathBuf> {
        let dir = self.out.join(name);
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(std::path::absolute(dir)?)
    }

    /// Tells a person who waits what is going on.
    pub fn say(&self, what: impl std::fmt::Display) {
        if self.chatty {
            eprintln!("lab: {what}");
        }
    }
}

impl Form {
    /// Its name in the tables of settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Quick => "quick",
            Self::Demo => "demo",
        }
    }
}

impl Experiment {
    /// Runs it and writes its folder; the report.
    pub fn run(&self, options: &Options) -> Result<Report> {
        for name in crate::net::sweep()? {
            options.say(format!("removed namespace {name}, left by a lab that was killed"));
        }
        let report = (self.run)(options)?;
        report.write(&options.dir(self.name)?)?;
        Ok(report)
    }
}

/// The time now, for the head of a report: RFC 3339, UTC.
pub(crate) fn date() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let secs = UnixTime::from_nanos(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)).as_secs();
    let (days, time) = (secs / 86_400, secs % 86_400);
    // Days to a civil date: Howard Hinnant, "chrono-compatible low-level date algorithms".
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time / 3600, time / 60 % 60, time % 60)
}
