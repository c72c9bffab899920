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
/// for is of all runs together; its interval comes of the order statistics that enclose the one and the other, and is wider than need be.
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
    if pairs.iter().any(|ratio| !ratio.is_finite()) {
        let enclosed = |runs: &[Observed]| match what {
            What::Quantile(q) => Estimate::quantile(&pooled_of(runs, of), parts(q)),
            What::Mean => None,
        };
        let Some((one, other)) = enclosed(one).zip(enclosed(other)) else { return (f64::NAN, UNKNOWN) };
        let interval = match (one.interval, other.interval) {
            (Some(one), Some(other)) => Interval { low: one[0] / other[1], high: one[1] / other[0] },
            _ => UNKNOWN,
        };
        return (one.value / other.value, interval);
    }
    ratio_of_runs(&pairs)
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
