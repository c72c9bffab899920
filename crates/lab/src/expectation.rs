//! Bounds on what an experiment measures, typed in once (`experiments/expectations.toml`) and checked in every run.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use crate::report::number;
use crate::stats::Interval;

const BOUNDS: &str = include_str!("../experiments/expectations.toml");

/// One measured value beside its bound.
#[derive(Clone, Debug, Serialize)]
pub struct Expectation {
    /// The name, as in `expectations.toml`.
    pub name: String,
    /// What this run measured.
    pub measured: f64,
    /// The bound as it is written, an operator and a number.
    pub bound: String,
    /// Whether the measured value keeps to it, or may: see `undecided`.
    pub holds: bool,
    /// The measured value does not keep to it, an end of its 95 % interval does, and the run was too short to tell.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub undecided: bool,
    /// The bound repeats what an article says of its own system, and an honest run contradicts it: `explanation` says why.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub contradicts: bool,
    /// What a reader must know beside the number, where there is something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
}

impl Expectation {
    /// Whether nothing is to be mended: the bound is kept to, or is an article's that an explained run contradicts.
    pub const fn is_settled(&self) -> bool {
        self.holds || self.contradicts
    }
}

/// The bounds of one experiment, ticked off as they are measured.
#[derive(Debug)]
pub struct Expectations {
    open: BTreeMap<String, String>,
    measured: Vec<Expectation>,
}

impl Expectations {
    /// The bounds of `experiment`; an experiment without any is a slip in the file.
    pub fn of(experiment: &str) -> Result<Self> {
        let mut all: BTreeMap<String, BTreeMap<String, String>> =
            toml::from_str(BOUNDS).context("expectations.toml")?;
        let open = all.remove(experiment).with_context(|| format!("expectations.toml has no [{experiment}]"))?;
        Ok(Self { open, measured: Vec::new() })
    }

    /// Notes what was measured for `name`. A value that is not a number never holds.
    pub fn measured(&mut self, name: &str, value: f64) -> Result<&mut Expectation> {
        let bound = self.open.remove(name).with_context(|| format!("`{name}` has no bound, or was measured twice"))?;
        let holds = holds(value, &bound)?;
        let name = name.to_owned();
        let noted = Expectation {
            name,
            measured: value,
            bound,
            holds,
            undecided: false,
            contradicts: false,
            explanation: None,
        };
        self.measured.push(noted);
        self.measured.last_mut().context("just pushed")
    }

    /// The same where there is more to say: the value's 95 % interval, and `explanation`.
    pub fn measured_explained(
        &mut self,
        name: &str,
        (value, interval): (f64, Interval),
        explanation: &str,
    ) -> Result<&mut Expectation> {
        let noted = self.measured(name, value)?;
        let [low, high] = [interval.low, interval.high].map(number);
        noted.explanation = Some(format!("95 % interval {low} to {high}. {explanation}"));
        Ok(noted)
    }

    /// The same for a run too short to tell: where `value` does not keep to the bound and an end of its 95 % interval does, it counts
    /// as kept, and the explanation says so. What is reported is what was measured.
    pub fn measured_roughly(&mut self, name: &str, value: f64, interval: Interval) -> Result<&mut Expectation> {
        let noted = self.measured(name, value)?;
        let end = if noted.bound.starts_with('>') { interval.high } else { interval.low };
        if !noted.holds && holds(end, &noted.bound)? {
            (noted.holds, noted.undecided) = (true, true);
            noted.explanation = Some(format!(
                "95 % interval {:.2} to {:.2}: a run this short cannot tell it from the bound; the full form decides",
                interval.low, interval.high
            ));
        }
        Ok(noted)
    }

    /// The same for a figure of somebody else's system, repeated here: where it does not come out as there, the run contradicts it, and
    /// `explanation` says what speaks for that. A short run that does not tell, since its 95 % interval has the bound in it or there is no
    /// value, has not measured it. In full, no value is a mistake and contradicts nobody.
    pub fn measured_figure(
        &mut self,
        name: &str,
        (value, interval): (f64, Interval),
        is_short: bool,
        explanation: &str,
    ) -> Result<()> {
        ensure!(!explanation.is_empty(), "`{name}`: who contradicts explains");
        let bound = self.open.get(name).with_context(|| format!("`{name}` has no bound, or was measured twice"))?;
        let is_decided = value.is_finite() && holds(interval.low, bound)? == holds(interval.high, bound)?;
        if is_short && !is_decided {
            self.not_measured(name);
            return Ok(());
        }
        ensure!(value.is_finite(), "`{name}`: what was measured is no number");
        let noted = self.measured_explained(name, (value, interval), explanation)?;
        noted.contradicts = !noted.holds;
        Ok(())
    }

    /// A run of this form cannot measure it.
    pub fn not_measured(&mut self, name: &str) {
        self.open.remove(name);
    }

    /// All of them; an error where one was forgotten.
    pub fn finish(self) -> Result<Vec<Expectation>> {
        ensure!(self.open.is_empty(), "not measured: {}", self.open.into_keys().collect::<Vec<_>>().join(", "));
        Ok(self.measured)
    }
}

fn holds(value: f64, bound: &str) -> Result<bool> {
    let (operator, number) = bound.split_once(' ').with_context(|| format!("bound `{bound}`"))?;
    let number: f64 = number.trim().parse().with_context(|| format!("bound `{bound}`"))?;
    Ok(match operator {
        "<=" => value <= number,
        ">=" => value >= number,
        "<" => value < number,
        ">" => value > number,
        "==" => value == number,
        _ => bail!("bound `{bound}` has no operator of <=, >=, <, >, =="),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_and_compared() {
        assert!(holds(0.25, "<= 0.25").unwrap() && !holds(0.26, "<= 0.25").unwrap());
        assert!(holds(1.0, "> 0").unwrap() && !holds(0.0, "> 0").unwrap());
        assert!(holds(0.0, "== 0").unwrap() && !holds(1.0, "== 0").unwrap());
        assert!(!holds(f64::NAN, ">= 0").unwrap() && !holds(f64::NAN, "<= 0").unwrap());
        assert!(holds(1.0, "~ 0").is_err());
    }

    #[test]
    fn a_short_run_is_judged_by_its_interval() {
        let mut e = Expectations::of("edge").unwrap();
        let interval = Interval { low: 1.5, high: 2.6 };
        let noted = e.measured_roughly("lossy_delivery_rate_ratio", 1.9, interval).unwrap();
        assert!(noted.holds && noted.undecided && noted.measured == 1.9);
        assert!(noted.explanation.as_ref().unwrap().contains("1.50 to 2.60"));
        let interval = Interval { low: -9.0, high: -1.0 };
        let noted = e.measured_roughly("p10_goodput_gain_all_pct", -4.0, interval).unwrap();
        assert!(!noted.holds && noted.measured == -4.0 && noted.explanation.is_none());
    }

    /// What is noted of figure 7, whose bound is `>= 1.7`.
    fn figure(value: f64, [low, high]: [f64; 2], is_short: bool) -> Result<Vec<Expectation>> {
        let mut e = Expectations::of("fig7")?;
        e.measured_figure("ecmp_over_drill_mean_80", (value, Interval { low, high }), is_short, "Since.")?;
        e.finish()
    }

    #[test]
    fn a_figure_that_is_contradicted_is_explained_and_settled() {
        for is_short in [true, false] {
            let noted = figure(1.5, [1.4, 1.6], is_short).unwrap();
            assert!(!noted[0].holds && noted[0].contradicts && noted[0].is_settled());
            assert_eq!(noted[0].explanation.as_deref(), Some("95 % interval 1.40 to 1.60. Since."));
            let noted = figure(2.5, [2.4, 2.6], is_short).unwrap();
            assert!(noted[0].holds && !noted[0].contradicts);
        }
        let mut e = Expectations::of("fig7").unwrap();
        let interval = Interval { low: 2.4, high: 2.6 };
        let unexplained = e.measured_figure("ecmp_over_drill_mean_80", (2.5, interval), false, "");
        assert!(unexplained.unwrap_err().to_string().contains("who contradicts explains"));
        assert!(e.measured_figure("nothing", (2.5, interval), false, "Since.").is_err());
    }

    /// In full the value decides, wherever its interval ends.
    #[test]
    fn what_a_short_run_cannot_tell_is_absent() {
        const UNKNOWN: [f64; 2] = [f64::NEG_INFINITY, f64::INFINITY];
        for (value, interval) in [(1.6, [1.5, 1.8]), (1.8, [1.6, 1.9]), (1.8, UNKNOWN), (f64::NAN, UNKNOWN)] {
            assert!(figure(value, interval, true).unwrap().is_empty(), "{value}");
        }
        assert!(figure(1.6, [1.5, 1.8], false).unwrap()[0].contradicts);
        assert!(figure(1.8, [1.6, 1.9], false).unwrap()[0].holds);
    }

    #[test]
    fn what_is_no_number_never_holds_and_contradicts_nobody() {
        for value in [f64::NAN, f64::INFINITY] {
            let error = figure(value, [f64::NAN; 2], false).unwrap_err().to_string();
            assert!(error.contains("`ecmp_over_drill_mean_80`: what was measured is no number"), "{error}");
        }
    }

    #[test]
    fn a_forgotten_expectation_is_an_error() {
        let mut e = Expectations::of("links").unwrap();
        e.measured("rate_error_pct", 0.5).unwrap();
        assert!(e.measured("rate_error_pct", 0.5).is_err(), "twice");
        assert!(e.finish().unwrap_err().to_string().contains("delay_error_ms"));
        assert!(Expectations::of("nothing").is_err());
    }
}
