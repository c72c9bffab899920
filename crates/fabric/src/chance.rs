//! Randomness: one stream for each component, so that what one draws does not change what another does.

use rand_core::Rng;
use rand_pcg::Pcg32;
use weirgate_balance::Sampler;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Chance(Pcg32);

impl Chance {
    /// The stream of a component, by its number, in a run with this seed.
    pub fn new(seed: u64, component: u64) -> Self {
        Self(Pcg32::new(seed, component))
    }

    /// A number of at least 0 and below 1, in steps of 2^-32.
    pub fn unit(&mut self) -> f64 {
        f64::from(self.0.next_u32()) / 4_294_967_296.0
    }

    /// A span of this mean, exponentially distributed.
    pub fn exponential(&mut self, mean_secs: f64) -> crate::Span {
        // The logarithm is the same on all machines: it is not the system's.
        crate::Span::from_secs_f64(-mean_secs * libm::log(1.0 - self.unit()))
    }

    /// All of 32 bits.
    pub fn bits(&mut self) -> u32 {
        self.0.next_u32()
    }
}

impl Sampler for Chance {
    #[inline]
    fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.0.next_u32()) * u64::from(bound)) >> 32) as u32
    }
}
