//! Many votes in few numbers: how many lie in each of a row of bins whose bounds grow by a constant factor (DDSketch: Masson, Rim, Lee,
//! VLDB 2019). Sketches of the same votes add up to the same sketch, in whatever parts and order they come, and every quantile of one is
//! within [`ERROR`] of the votes'.

/// How far a vote can be from what stands for it, as a share of it: 1 %, less than what tells one network from another.
pub const ERROR: f64 = 0.01;

/// The natural logarithm of a bin's upper bound over its lower one, (1 + [`ERROR`]) / (1 - [`ERROR`]).
pub const LN_FACTOR: f64 = 0.020_000_666_706_669_5;

/// The highest bin: 10^17 bit/s.
pub const LAST: u16 = 1 + 1_958;

/// Votes by bin. Two bytes and four for each bin that has some: of ten votes of one network, sixty bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    /// In ascending order of bins, none of them empty.
    bins: Vec<(u16, u32)>,
}

/// Why numbers are no sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a sketch: bin {0} is out of order, empty or does not exist")]
pub struct SketchError(pub u16);

impl Sketch {
    /// A sketch of bins in ascending order, as [`bins`](Self::bins) gives them.
    ///
    /// # Errors
    /// [`SketchError`] where they are not in order, are empty, or past the last one.
    pub fn new(bins: Vec<(u16, u32)>) -> Result<Self, SketchError> {
        let mut next = 0;
        for (bin, count) in &bins {
            if *bin < next || *bin > LAST || *count == 0 {
                return Err(SketchError(*bin));
            }
            next = bin + 1;
        }
        Ok(Self { bins })
    }

    /// Adds a vote, in bit/s.
    pub fn add(&mut self, vote: f64) {
        self.add_to(bin(vote), 1);
    }

    /// Adds what is in another sketch. Linear in the bins of both at worst.
    pub fn merge(&mut self, other: &Self) {
        for (bin, count) in &other.bins {
            self.add_to(*bin, *count);
        }
    }

    /// Bins and how many votes are in each, in ascending order.
    pub fn bins(&self) -> &[(u16, u32)] {
        &self.bins
    }

    /// How many votes there are.
    pub fn len(&self) -> u64 {
        self.bins.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.bins.is_empty()
    }

    fn add_to(&mut self, bin: u16, votes: u32) {
        match self.bins.binary_search_by_key(&bin, |(bin, _)| *bin) {
            Ok(at) => self.bins[at].1 = self.bins[at].1.saturating_add(votes),
            Err(at) => self.bins.insert(at, (bin, votes)),
        }
    }
}

/// The bin of a vote: 0 below 1 bit/s and of what is no number, else 1 + ceil(ln(vote) / [`LN_FACTOR`]), which SQL can say as well.
pub fn bin(vote: f64) -> u16 {
    if vote >= 1.0 { (1.0 + (vote.ln() / LN_FACTOR).ceil()).min(f64::from(LAST)) as u16 } else { 0 }
}

/// What stands for a bin's votes, in bit/s.
pub fn value(bin: u16) -> f64 {
    if bin == 0 { 0.0 } else { (f64::from(bin - 1) * LN_FACTOR).exp() * (1.0 - ERROR) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_factor_is_that_of_the_error() {
        assert!((LN_FACTOR - ((1.0 + ERROR) / (1.0 - ERROR)).ln()).abs() < 1e-15);
        assert_eq!(
            (bin(0.0), bin(0.9), bin(f64::NAN), bin(1.0), bin(1e17), bin(f64::INFINITY)),
            (0, 0, 0, 1, LAST, LAST)
        );
        assert_eq!(value(0), 0.0);
    }

    #[test]
    fn what_is_no_sketch_is_refused() {
        for bins in [vec![(3, 1), (3, 1)], vec![(3, 1), (2, 1)], vec![(3, 0)], vec![(LAST + 1, 1)]] {
            assert!(Sketch::new(bins.clone()).is_err(), "{bins:?}");
        }
        assert!(Sketch::new(vec![]).expect("of nothing").is_empty());
    }

    proptest! {
        #[test]
        fn what_stands_for_a_vote_is_near_it(vote in 1.0_f64..1e16) {
            let shown = value(bin(vote));
            prop_assert!((shown / vote - 1.0).abs() <= ERROR + 1e-9, "{vote} {shown}");
        }

        /// However the votes are divided and in whatever order the parts come.
        #[test]
        fn parts_add_up_to_the_whole(votes in prop::collection::vec((0.0_f64..1e10, 0_usize..4), 0..200)) {
            let (mut whole, mut parts) = (Sketch::default(), vec![Sketch::default(); 4]);
            for (vote, part) in &votes {
                whole.add(*vote);
                parts[*part].add(*vote);
            }
            let mut sum = Sketch::default();
            parts.iter().rev().for_each(|part| sum.merge(part));
            prop_assert_eq!(sum.len(), votes.len() as u64);
            prop_assert_eq!(Sketch::new(sum.bins().to_vec()), Ok(whole.clone()));
            prop_assert_eq!(sum, whole);
        }
    }
}
