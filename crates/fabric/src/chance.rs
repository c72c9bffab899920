//! Randomness in streams, so that what is drawn from one does not change what is drawn from another: each switch has one,
//! each host, each line for its losses, each workload.

use rand_core::Rng;
use rand_pcg::Pcg32;
use weirgate_balance::Sampler;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Chance(Pcg32);

impl Chance {
    /// A stream, by its number, in a run with this seed. A simulation draws from streams 1 and on for its switches, from 2^40 on for
    /// lines' losses, from 2^41 on for its hosts.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(Pcg32::new(seed, stream))
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
