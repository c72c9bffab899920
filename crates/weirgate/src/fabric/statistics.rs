//! Means and quantiles with their 95 % intervals.

use serde::{Deserialize, Serialize};
use weirgate_lab::stats::{Interval, mean_of_runs, ratio_of_runs};

/// The quantile of the normal distribution that a two-sided interval of 95 % ends at.
const Z: f64 = 1.959_963_984_540_054;

/// Samples that must be above a quantile: with fewer, it is a matter of chance.
const ABOVE_MIN: usize = 100;

/// A value that was estimated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Its 95 % interval; none, where a single sample tells nothing of that.
    pub interval: Option<[f64; 2]>,
}

impl Estimate {
    /// The mean of samples that are independent, with Student's interval; none, if there is no sample.
    pub fn mean(samples: &[f64]) -> Option<Self> {
        let (value, Interval { mut low, high }) = mean_of_runs(samples);
        // Student's interval is alike to both sides and knows nothing of a bound. Where no sample can be below 0, as no time is, no mean
        // can be either: what lies there covers nothing, and to cut it off leaves as many intervals with the mean in them.
        if samples.iter().all(|sample| *sample >= 0.0) {
            low = low.max(0.0);
        }
        (!samples.is_empty()).then(|| Self { value, interval: (samples.len() > 1).then_some([low, high]) })
    }

    /// The mean of ratios that are independent, both of their logarithms; none, if there is no ratio.
    pub fn ratio(ratios: &[f64]) -> Option<Self> {
        let (value, Interval { low, high }) = ratio_of_runs(ratios);
        (!ratios.is_empty()).then(|| Self { value, interval: (ratios.len() > 1).then_some([low, high]) })
    }

    /// The quantile at so many of 10,000 parts of sorted samples, with the order statistics that enclose it (Conover, "Practical
    /// Nonparametric Statistics", section 3.2); none, where fewer than 100 samples are above it.
    pub fn quantile(sorted: &[f64], parts: usize) -> Option<Self> {
        let count = sorted.len();
        let rank = (count * parts).div_ceil(10_000);
        if rank == 0 || count < rank + ABOVE_MIN {
            return None;
        }
        let share = parts as f64 / 10_000.0;
        let (centre, half) = (count as f64 * share, Z * (count as f64 * share * (1.0 - share)).sqrt());
        let [low, high] = [(centre - half).floor().max(1.0) as usize, (centre + half).ceil() as usize + 1];
        Some(Self { value: sorted[rank - 1], interval: Some([sorted[low - 1], sorted[high.min(count) - 1]]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_has_an_interval_where_there_are_two_samples() {
        assert_eq!(Estimate::mean(&[]), None);
        assert_eq!(Estimate::mean(&[3.0]), Some(Estimate { value: 3.0, interval: None }));
        // The deviation is 1, and so is the root of 3 samples' mean 1 / sqrt(3).
        let Estimate { value, interval: Some([low, high]) } = Estimate::mean(&[11.0, 12.0, 13.0]).unwrap() else {
            panic!()
        };
        assert_eq!(value, 12.0);
        assert!((high - 12.0 - 4.303 / 3.0_f64.sqrt()).abs() < 1e-9 && (low + high - 24.0).abs() < 1e-9);
    }

    #[test]
    fn a_mean_of_what_is_not_below_0_is_not_either() {
        let interval = |samples: &[f64]| Estimate::mean(samples).unwrap().interval.unwrap();
        let [low, high] = interval(&[0.0, 1.0, 50.0]);
        assert!(low == 0.0 && high > 80.0, "{high}");
        assert!(interval(&[-0.5, 1.0, 50.0])[0] < -50.0);
    }

    #[test]
    fn a_quantile_has_a_hundred_samples_above_it() {
        let samples: Vec<f64> = (1..=10_000).map(f64::from).collect();
        // The median of 200 is between the 86th and the 115th of them.
        let median = Estimate { value: 100.0, interval: Some([86.0, 115.0]) };
        assert_eq!(Estimate::quantile(&samples[..200], 5_000), Some(median));
        assert_eq!(Estimate::quantile(&samples[..199], 5_000), None);
        assert_eq!(Estimate::quantile(&samples, 9_900).map(|p99| p99.value), Some(9_900.0));
        assert_eq!(Estimate::quantile(&samples[..9_999], 9_900), None);
        assert_eq!(Estimate::quantile(&samples, 9_990), None);
        assert_eq!(Estimate::quantile(&[], 5_000), None);
    }
}
