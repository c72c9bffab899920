//! Samplers for tests.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::Sampler;

pub(crate) struct Pcg(Pcg64Mcg);

impl Pcg {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }
}

impl Sampler for Pcg {
    fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.0.next_u32()) * u64::from(bound)) >> 32) as u32
    }
}

/// Draws what it is told.
pub(crate) struct Told(pub(crate) Vec<u32>);

impl Sampler for Told {
    fn below(&mut self, bound: u32) -> u32 {
        let told = self.0.remove(0);
        assert!(told < bound);
        told
    }
}
