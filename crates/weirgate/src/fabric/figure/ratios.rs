//! Statistics of flow completion times, their ratios with intervals, and how they are written.

use weirgate_lab::report::number;
use weirgate_lab::stats::{Interval, mean, ratio_of_runs, sorted};

use super::arm::{Arm, Observed, parts, tail};
use crate::fabric::scenario::Traffic;
use crate::fabric::statistics::Estimate;

/// A statistic of flow completion times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum What {
    Mean,
    Quantile(f64),
}

impl What {
    pub(super) fn name(self) -> String {
        match self {
            Self::Mean => "mean".into(),
            Self::Quantile(q) => format!("p{}", (q * 1e4).round() / 100.0),
        }
    }

    /// Of times in ascending order.
    pub(super) fn of(self, sorted: &[f64]) -> f64 {
        match self {
            Self::Mean => mean(sorted.iter().copied()),
            Self::Quantile(q) => tail(sorted, q),
        }
    }

    /// Of all runs of an arm: means are means of means, quantiles are of all flows together.
    pub(super) fn of_runs(self, runs: &[Observed]) -> f64 {
        match self {
            Self::Mean => mean(runs.iter().map(|run| self.of(&run.times))),
            Self::Quantile(_) => self.of(&pooled(runs)),
        }
    }
}

/// The statistics of every table.
pub(super) const STATISTICS: [What; 5] =
    [What::Mean, What::Quantile(0.5), What::Quantile(0.99), What::Quantile(0.999), What::Quantile(0.9999)];

/// Which completion times of a run.
pub(super) type Times = fn(&Observed) -> &[f64];

/// All of them.
const ALL: Times = |run| &run.times;

/// Those of all runs, in order.
fn pooled_of(runs: &[Observed], of: Times) -> Vec<f64> {
    sorted(runs.iter().flat_map(|run| of(run).iter().copied()))
}

pub(super) fn pooled(runs: &[Observed]) -> Vec<f64> {
    pooled_of(runs, ALL)
}

/// Nothing is known of a value.
pub(super) const UNKNOWN: Interval = Interval { low: f64::NEG_INFINITY, high: f64::INFINITY };

/// The ratio of a statistic of one arm to that of another, paired by seed, and its interval. A quantile that single runs are too short
/// for is of all runs together; its interval is the jackknife's over the seeds (Efron and Stein, "The jackknife estimate of variance", 1981):
/// the flows of a run depend on each other, those of an incast above all, and its order statistics would know nothing of that.
pub(super) fn ratio(one: &[Observed], other: &[Observed], what: What) -> (f64, Interval) {
    ratio_of(one, other, what, ALL)
}

/// The same of some of the completion times.
pub(super) fn ratio_of(one: &[Observed], other: &[Observed], what: What, of: Times) -> (f64, Interval) {
    if std::ptr::eq(one, other) {
        return (1.0, Interval { low: 1.0, high: 1.0 });
    }
    let pairs = one.iter().zip(other).map(|(a, b)| what.of(of(a)) / what.of(of(b)));
    let pairs: Vec<f64> = pairs.collect();
    if pairs.iter().all(|ratio| ratio.is_finite()) {
        return ratio_of_runs(&pairs);
    }
    let What::Quantile(q) = what else { return (f64::NAN, UNKNOWN) };
    let is_there = |runs: &[Observed]| Estimate::quantile(&pooled_of(runs, of), parts(q)).is_some();
    if !(is_there(one) && is_there(other)) {
        return (f64::NAN, UNKNOWN);
    }
    let without = |left_out| pooled_quantile(one, left_out, of, q) / pooled_quantile(other, left_out, of, q);
    let (all, runs) = (without(None), one.len().min(other.len()));
    if runs < 2 {
        return (all, UNKNOWN);
    }
    let part = |run| (runs as f64 * all.ln() - (runs - 1) as f64 * without(Some(run)).ln()).exp();
    // Around what all runs say, beside which the mean of the jackknife's values may lie.
    let (centre, Interval { low, high }) = ratio_of_runs(&(0..runs).map(part).collect::<Vec<_>>());
    (all, Interval { low: low * all / centre, high: high * all / centre })
}

/// A quantile of all runs together, but perhaps for one.
fn pooled_quantile(runs: &[Observed], left_out: Option<usize>, of: Times, quantile: f64) -> f64 {
    let times = || runs.iter().enumerate().filter(|(at, _)| Some(*at) != left_out).map(|(_, run)| of(run));
    let count: usize = times().map(<[f64]>::len).sum();
    let above = count - (count * parts(quantile)).div_ceil(10_000);
    // No run's further times are among so many.
    let ends = sorted(times().flat_map(|times| times[times.len().saturating_sub(above + 1)..].iter().copied()));
    ends.len().checked_sub(above + 1).map_or(f64::NAN, |at| ends[at])
}

/// By how much a ratio is over 1, in percent.
pub(super) fn percent_over((ratio, Interval { low, high }): (f64, Interval)) -> (f64, Interval) {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    (percent(ratio), Interval { low: percent(low), high: percent(high) })
}

/// Whether networks were steady, in a sentence: of arms whose flows begin as they come.
pub(super) fn steadiness(arms: &[Arm], observed: &[Vec<Observed>]) -> String {
    let open = arms.iter().zip(observed).filter(|(arm, _)| matches!(arm.scenario.traffic, Traffic::Poisson { .. }));
    let drift = |runs: &Vec<Observed>| ratio_of_runs(&runs.iter().map(|run| run.drift).collect::<Vec<_>>()).0;
    let drifts = sorted(open.map(|(_, runs)| drift(runs)));
    let Some((least, most)) = drifts.first().zip(drifts.last()) else { return String::new() };
    format!(
        "The median of the flows that began later, over that of the others, is {} to {}, by arm; 1 is a steady network.",
        number(*least),
        number(*most)
    )
}

/// What stands where a short form's runs are too short.
pub(super) const TOO_SHORT: &str = "n/a (full)";

/// A ratio with its interval, for a table.
pub(super) fn with_interval((ratio, interval): (f64, Interval)) -> String {
    match (ratio.is_finite(), interval.low.is_finite()) {
        (false, _) => TOO_SHORT.into(),
        (true, false) => number(ratio),
        (true, true) => format!("{} [{} to {}]", number(ratio), number(interval.low), number(interval.high)),
    }
}

/// A number for a table; what this form is too short for is said to be so.
pub(super) fn cell(value: f64) -> String {
    if value.is_finite() { number(value) } else { TOO_SHORT.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: What = What::Quantile(0.9999);

    /// Runs of 100,000 flows each, of which ten in a thousand take as long as this, by run.
    fn runs(long: &[f64]) -> Vec<Observed> {
        let times = |long: &f64| (0..100_000).map(|flow| if flow < 99_000 { 1.0 } else { *long }).collect();
        long.iter().map(|long| Observed::of_times(times(long), 0)).collect()
    }

    #[test]
    fn a_far_quantile_is_of_all_runs_and_as_sure_as_they_are_alike() {
        let (one, other) = (runs(&[20.0; 10]), runs(&[10.0; 10]));
        let (ratio_of_all, Interval { low, high }) = ratio(&one, &other, FAR);
        assert!((ratio_of_all - 2.0).abs() < 1e-9 && (low - 2.0).abs() < 1e-9 && (high - 2.0).abs() < 1e-9);
        // Of one run alone a burst took longer: its 1,000 flows are the longest of all.
        let odd = runs(&[[10.0; 9].as_slice(), &[40.0]].concat());
        let (ratio_of_all, Interval { low, high }) = ratio(&odd, &other, FAR);
        assert!((ratio_of_all - 4.0).abs() < 1e-9 && low < 1.0 && high > 4.0, "{low} to {high}");
        assert_eq!(ratio(&one[..9], &other[..9], FAR).0.to_bits(), f64::NAN.to_bits(), "900,000 flows are too few");
        assert_eq!(pooled_quantile(&odd, Some(9), |run| &run.times, 0.9999), 10.0);
    }
}
