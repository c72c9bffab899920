//! Whether the parts of a scenario fit each other: what has no effect beside the others is a slip, and so is what leaves nothing to measure.

use weirgate_fabric::{Buffers, ControlKind, Scheme, Span, Start, Time};
use weirgate_units::Duration;

use super::{Failures, Scenario, Traffic, problem};
use crate::config::read::Problem;

impl Scenario {
    /// What does not fit; `is_there` knows which keys were written.
    pub(super) fn unfit(&self, is_there: impl Fn(&str) -> bool) -> Vec<Problem> {
        let mut problems = Vec::new();
        let (Buffers::PerPort(room) | Buffers::Shared(room)) = self.settings.buffers;
        // Where more waits, a full packet has no room.
        let most = room.saturating_sub(u64::from(self.settings.tcp.mss + self.settings.tcp.overhead));
        let mut unmarked = |key, who: &str| {
            let what = match self.settings.mark {
                None => "nothing is marked: write mark = \"100 KB\" below [switch]".to_owned(),
                Some(mark) if mark > most => {
                    format!(
                        "a buffer is full before {mark} B wait: write mark = \"{} B\", or less, below [switch], or a larger buffer",
                        most / 3
                    )
                }
                Some(_) => return,
            };
            problems.push(problem(0, key, format!("{who} goes by marks (ECN), and {what}")));
        };
        if self.settings.tcp.control == ControlKind::Dctcp {
            unmarked("tcp.control", "dctcp");
        }
        if matches!(self.settings.scheme, Scheme::Label(_) | Scheme::Reps) {
            unmarked("balance.scheme", &self.settings.scheme.name());
        }
        if is_there("incast") && !matches!(self.traffic, Traffic::Poisson { .. }) {
            let what = "an incast is beside kind = \"poisson\" below [workload] only: take it out";
            problems.push(problem(0, "incast", what));
        }
        let Failures { links, random, at, until, .. } = &self.network.failures;
        // Who writes that there are none has a sweep over how many.
        let is_said = ["failures.links", "failures.random"].into_iter().any(&is_there);
        if links.is_empty() && *random == 0 && !is_said {
            let what = "nothing fails: write links = [\"leaf0 - spine0\"] or random = 1";
            let times = [("failures.at", *at > Duration::ZERO), ("failures.until", until.is_some())];
            problems.extend(times.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| problem(0, key, what)));
        } else if *at >= self.run.time {
            let what = format!("nothing fails: the run ends after {} ([run] time) at the latest", self.run.time);
            problems.push(problem(0, "failures.at", what));
        }
        problems.extend(self.unmeasured());
        problems
    }

    /// Of a trace, that no flow begins while flows are measured.
    fn unmeasured(&self) -> Option<Problem> {
        let Traffic::Trace(starts) = &self.traffic else { return None };
        if starts.iter().any(|(at, _)| self.measures(*at)) {
            return None;
        }
        let times = || starts.iter().map(|(at, _)| at.saturating_since(Time::ZERO));
        let [first, last] = [times().min()?, times().max()?].map(|time| format!("{:.6} s", time.as_secs_f64()));
        let (warm_up, time) = (self.run.warm_up, self.run.time);
        let what = format!(
            "nothing would be measured: its flows begin from {first} to {last}, and those are measured that begin after the warm-up of \
             {warm_up} ([run] warm_up) and before {time} ([run] time)"
        );
        Some(problem(0, "workload.file", what))
    }

    /// Whether a flow that begins then is measured, as far as that depends on the time.
    fn measures(&self, at: Time) -> bool {
        let warm_up = self.run.warm_up;
        at <= self.end() && (warm_up == Duration::ZERO || at > Time::ZERO + Span::from(warm_up))
    }

    /// How many flows of a trace begin after the run's end at the latest, and how many it has.
    pub fn too_late(&self) -> Option<(usize, usize)> {
        let Traffic::Trace(starts) = &self.traffic else { return None };
        let late = |(at, _): &&(Time, Start)| *at > self.end();
        Some((starts.iter().filter(late).count(), starts.len())).filter(|(late, _)| *late > 0)
    }
}
