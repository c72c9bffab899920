//! The few statistics that the reports use: percentiles and seeded bootstrap intervals over blocks.

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// The `q` quantile (0..=1) of `sorted`, linear between neighbours (Hyndman and Fan's type 7); NaN where it is empty.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

/// `values` in ascending order; what is not a number is left out.
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|v| !v.is_nan()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The middle value; NaN where there is none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(&sorted(values), 0.5)
}

/// The arithmetic mean; NaN where there is none.
pub fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = values.into_iter().fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

/// How far values are from their mean: the standard deviation of the values themselves, which are all there are; NaN where there is none.
pub fn deviation(values: &[f64]) -> f64 {
    let centre = mean(values.iter().copied());
    mean(values.iter().map(|value| (value - centre).powi(2))).sqrt()
}

/// How equal shares are: 1 where all are, 1/n where one has everything (Jain, Chiu and Hawe, DEC-TR-301, 1984). NaN where nobody has
/// anything.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|share| share * share).sum::<f64>())
}

/// A two-sided interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The mean of independent runs, and its 95 % interval by Student's t; without bounds where there are fewer than two.
pub fn mean_of_runs(values: &[f64]) -> (f64, Interval) {
    let centre = mean(values.iter().copied());
    let Some(freedom) = values.len().checked_sub(1).filter(|freedom| *freedom > 0) else {
        return (centre, Interval { low: f64::NEG_INFINITY, high: f64::INFINITY });
    };
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    let error = (squares / freedom as f64 / values.len() as f64).sqrt();
    let width = student(freedom) * error;
    (centre, Interval { low: centre - width, high: centre + width })
}

/// The mean of ratios of independent runs, and its 95 % interval: both of their logarithms, so that a ratio and its inverse are alike, and
/// none is below 0. Ratios that have no logarithm are taken as they are.
pub fn ratio_of_runs(ratios: &[f64]) -> (f64, Interval) {
    if ratios.iter().any(|ratio| !(*ratio > 0.0 && ratio.is_finite())) {
        return mean_of_runs(ratios);
    }
    let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let (centre, Interval { low, high }) = mean_of_runs(&logarithms);
    let is_bounded = low.is_finite();
    (
        centre.exp(),
        Interval { low: if is_bounded { low.exp() } else { low }, high: if is_bounded { high.exp() } else { high } },
    )
}

/// The 97.5 % quantile of Student's distribution with so many degrees of freedom, 1 at least.
fn student(freedom: usize) -> f64 {
    const T: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    // Beyond, the first terms of Cornish and Fisher's expansion around the normal distribution (Abramowitz and Stegun, 26.7.5).
    let n = freedom as f64;
    T.get(freedom.wrapping_sub(1)).copied().unwrap_or(1.959_964 + 2.372_27 / n + 2.822_5 / (n * n))
}

/// The 95 % percentile-bootstrap interval of `statistic` over `blocks`: the blocks (a network in a span of time), not their
/// members, are drawn, since responses that share a link and a moment are not independent. `rounds` draws, seeded.
///
/// `statistic` is handed the drawn blocks; draws for which it is not a number are left out.
pub fn bootstrap<B>(blocks: &[B], rounds: usize, seed: u64, statistic: impl Fn(&[&B]) -> f64) -> Interval {
    let mut random = Pcg64Mcg::new(u128::from(seed) << 64 | 0x5eed);
    let mut drawn = Vec::with_capacity(blocks.len());
    let mut results = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        drawn.clear();
        // The bias of the scaled 32-bit draw is below 2^-32 times the number of blocks: nothing beside the interval's width.
        drawn.extend(blocks.iter().map(|_| {
            let index = (u64::from(random.next_u32()) * blocks.len() as u64) >> 32;
            &blocks[index as usize]
        }));
        results.push(statistic(&drawn));
    }
    let results = sorted(results);
    Interval { low: quantile(&results, 0.025), high: quantile(&results, 0.975) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_runs_has_students_interval() {
        let (mean, interval) = mean_of_runs(&[1.0, 2.0, 3.0]);
        // 4.303 * 1 / sqrt(3).
        assert!(mean == 2.0 && (interval.high - 4.484).abs() < 0.001 && (interval.low + 0.484).abs() < 0.001);
        for (freedom, value) in
            [(1, 12.706), (30, 2.042), (31, 2.0395), (60, 2.0003), (120, 1.9799), (100_000, 1.95999)]
        {
            assert!((student(freedom) - value).abs() < 1e-4, "{freedom}: {}", student(freedom));
        }
        assert_eq!(mean_of_runs(&[5.0]), (5.0, Interval { low: f64::NEG_INFINITY, high: f64::INFINITY }));
    }

    #[test]
    fn quantiles_interpolate() {
        let v = sorted([4.0, 1.0, f64::NAN, 3.0, 2.0]);
        assert_eq!(v, [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(quantile(&v, 0.0), 1.0);
        assert_eq!(quantile(&v, 0.5), 2.5);
        assert_eq!(quantile(&v, 1.0), 4.0);
        assert!(quantile(&[], 0.5).is_nan());
        assert!(mean(v.clone()) == 2.5 && mean([]).is_nan());
        assert!((deviation(&v) - 1.25_f64.sqrt()).abs() < 1e-12 && deviation(&[]).is_nan());
    }

    #[test]
    fn equal_shares_are_told_from_unequal_ones() {
        assert_eq!([jain(&[3.0; 4]), jain(&[0.0, 0.0, 5.0, 0.0]), jain(&[1.0, 3.0])], [1.0, 0.25, 0.8]);
        assert!(jain(&[0.0; 3]).is_nan());
    }

    #[test]
    fn the_interval_of_a_mean_covers_it_and_narrows() {
        let mean = |drawn: &[&f64]| drawn.iter().copied().sum::<f64>() / drawn.len() as f64;
        let few: Vec<f64> = (0..20).map(f64::from).collect();
        let many: Vec<f64> = (0..2000).map(|i| f64::from(i % 20)).collect();
        let (a, b) = (bootstrap(&few, 1000, 1, mean), bootstrap(&many, 1000, 1, mean));
        assert!(a.low < 9.5 && 9.5 < a.high && b.low < 9.5 && 9.5 < b.high);
        assert!(b.high - b.low < (a.high - a.low) / 5.0);
        assert_eq!(a, bootstrap(&few, 1000, 1, mean), "seeded");
    }
}
