//! Queues side by side without a network, as theory has them: Poisson arrivals that DRILL sends to one of them, exponential times of
//! service.
//!
//! It is a Markov chain, and is taken step by step: each is an arrival or a service, with the chances that their rates have; a service of
//! an empty queue changes nothing. Steps are then equally long in the mean, so means over steps are means over time.

use weirgate_balance::{Looks, Memory, Port, Sampler as _};

use crate::Chance;

/// Queues.
#[derive(Clone, Debug)]
pub(super) struct Bank {
    looks: Looks,
    memory: Memory,
    group: Vec<Port>,
    /// Packets of each queue, the one being served included. The slow ones are the first.
    lengths: Vec<u32>,
    slow: u32,
    /// Services of one slow queue, and of another one, in a time.
    slow_rate: f64,
    fast_rate: f64,
    /// Arrivals in a time.
    arrivals: f64,
    chance: Chance,
    /// By number: the queues that have so many packets at least.
    pub(super) at_least: Vec<u32>,
}

impl Bank {
    /// Empty queues: `slow` that serve `slow_rate` in a time each, and `fast` that serve 1.
    pub(super) fn new(seed: u64, looks: Looks, slow: u32, slow_rate: f64, fast: u32, arrivals: f64) -> Self {
        let queues = slow + fast;
        Self {
            looks,
            memory: Memory::default(),
            group: (0..queues as u16).map(Port).collect(),
            lengths: vec![0; queues as usize],
            slow,
            slow_rate,
            fast_rate: 1.0,
            arrivals,
            chance: Chance::new(seed, 0),
            at_least: vec![queues],
        }
    }

    /// Steps in a time.
    pub(super) fn steps_per_time(&self) -> f64 {
        let fast = self.lengths.len() as f64 - f64::from(self.slow);
        self.arrivals + f64::from(self.slow) * self.slow_rate + fast * self.fast_rate
    }

    /// Packets in all queues.
    pub(super) fn packets(&self) -> u64 {
        self.lengths.iter().map(|length| u64::from(*length)).sum()
    }

    /// Something happens.
    pub(super) fn step(&mut self) {
        let at = self.chance.unit() * self.steps_per_time();
        if at < self.arrivals {
            let Self { looks, memory, group, lengths, chance, .. } = self;
            let depths = |port: Port| u64::from(lengths[usize::from(port.0)]);
            let port = memory.pick(*looks, group, &depths, chance);
            let length = &mut lengths[usize::from(port.0)];
            *length += 1;
            match self.at_least.get_mut(*length as usize) {
                Some(queues) => *queues += 1,
                None => self.at_least.push(1),
            }
            return;
        }
        let queue = if at < self.arrivals + f64::from(self.slow) * self.slow_rate {
            self.chance.below(self.slow)
        } else {
            self.slow + self.chance.below(self.lengths.len() as u32 - self.slow)
        };
        let length = &mut self.lengths[queue as usize];
        if *length > 0 {
            self.at_least[*length as usize] -= 1;
            *length -= 1;
        }
    }
}
