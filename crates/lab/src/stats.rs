//! The few statistics that the reports use: percentiles and seeded bootstrap intervals over blocks.

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// The `q` quantile (0..=1) of `sorted`, linear between neighbours (Hyndman and Fan's type 7); NaN where it is empty.
pub(crate) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

/// `values` in ascending order; what is not a number is left out.
pub(crate) fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|v| !v.is_nan()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The middle value; NaN where there is none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(&sorted(values), 0.5)
}

/// The arithmetic mean; NaN where there is none.
pub(crate) fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = values.into_iter().fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

/// How far values are from their mean: the standard deviation of the values themselves, which are all there are; NaN where there is none.
pub(crate) fn deviation(values: &[f64]) -> f64 {
    let centre = mean(values.iter().copied());
    mean(values.iter().map(|value| (value - centre).powi(2))).sqrt()
}

/// How equal shares are: 1 where all are, 1/n where one has everything (Jain, Chiu and Hawe, DEC-TR-301, 1984). NaN where nobody has anything.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|share| share * share).sum::<f64>())
}

/// A two-sided interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Interval {
    /// Lower end.
    pub(crate) low: f64,
    /// Upper end.
    pub(crate) high: f64,
}

/// The 95 % percentile-bootstrap interval of `statistic` over `blocks`: the blocks (a network in a span of time), not their
/// members, are drawn, since responses that share a link and a moment are not independent. `rounds` draws, seeded.
///
/// `statistic` is handed the drawn blocks; draws for which it is not a number are left out.
pub(crate) fn bootstrap<B>(blocks: &[B], rounds: usize, seed: u64, statistic: impl Fn(&[&B]) -> f64) -> Interval {
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
