//! Networks that were just selected are treated by a share of the edges first, and by all once they have not come to harm there.
//!
//! Which edges go first is decided by their names, and does not change. What they treat and hold out is compared as ever, for all
//! networks on trial together: that says sooner than any single network whether a treatment does harm.

use weirgate_sockets::sample::CcName;
use weirgate_units::Prefix;

use crate::controller::Controller;
use crate::decision::Decision;
use crate::effect::{Bootstrap, Cell, Effect};
use crate::holdout::mix;
use crate::policy::Policy;

/// Which edges go first, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Canary {
    /// The share of edges, in parts per million: 100,000 is 10 %.
    pub share_ppm: u32,
    /// For how many rounds after it was selected a network is on trial: three epochs or more, so that there is something to compare.
    pub rounds: u32,
}

impl Default for Canary {
    /// A tenth of the edges, for three hours at rounds of five minutes.
    fn default() -> Self {
        Self { share_ppm: 100_000, rounds: 36 }
    }
}

/// Whether the edge `host` is among the share that goes first.
pub fn goes_first(host: &str, share_ppm: u32) -> bool {
    let hash = host.bytes().fold(0x5765_6972_6761_7465, |hash, byte| mix(hash ^ u64::from(byte)));
    ((hash >> 32) * 1_000_000) >> 32 < u64::from(share_ppm)
}

impl Controller {
    /// The policy in force in two parts: for all edges, and the networks that only those treat that go first, selected in the last
    /// `rounds` rounds. O(selected networks).
    pub fn in_parts(&self, rounds: u32) -> (Policy, Vec<(Prefix, CcName)>) {
        let (trial, proven) = self.policy.networks.iter().partition(|(network, _)| self.is_on_trial(*network, rounds));
        (Policy { networks: proven, ..self.policy.clone() }, trial)
    }

    /// The effect in all networks that were selected in the last `rounds` rounds together; `None` before there is enough to compare.
    /// O(selected networks, blocks x resamples).
    pub fn effect_on_trial(&self, rounds: u32) -> Option<Effect> {
        let on_trial = self.selected.iter().filter(|(network, _)| self.is_on_trial(**network, rounds));
        let trials = on_trial.filter_map(|(_, slot)| self.book.get(*slot).trial.as_ref());
        let cells: Vec<Cell> = trials.flat_map(|trial| trial.blocks.iter().map(|block| block.cell)).collect();
        let seed = self.config.seed ^ u64::from(self.round);
        let level = self.config.rollback_level;
        Bootstrap::new(&cells, self.config.resamples, seed).map(|drawn| drawn.interval(level))
    }

    /// Takes the treatment back from all networks on trial where together they have come to harm; they are barred as after a roll-back.
    /// The effect, the policy to apply, and the decisions; `None`: they have not.
    pub fn halt_trial(&mut self, rounds: u32) -> Option<(Effect, Policy, Vec<Decision>)> {
        let effect = self.effect_on_trial(rounds)?;
        if effect.high >= 1.0 || effect.blocks < self.config.rollback_blocks_min {
            return None;
        }
        let on_trial = self.selected.keys().copied().filter(|network| self.is_on_trial(*network, rounds));
        let on_trial: Vec<Prefix> = on_trial.collect();
        let decisions = on_trial.into_iter().flat_map(|network| self.clear(Some(network)).1).collect();
        Some((effect, self.policy.clone(), decisions))
    }

    fn is_on_trial(&self, network: Prefix, rounds: u32) -> bool {
        self.book.find(network).is_some_and(|slot| self.round < self.book.get(slot).since.saturating_add(rounds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_edges_goes_first_and_stays_first() {
        let first = |share_ppm| (0..10_000).filter(|n| goes_first(&format!("edge-{n}.example"), share_ppm)).count();
        assert_eq!((first(0), first(1_000_000)), (0, 10_000));
        let tenth = first(100_000);
        assert!((900..1_100).contains(&tenth), "{tenth}");
        let mut first = (0..10_000).map(|n| format!("edge-{n}.example")).filter(|host| goes_first(host, 100_000));
        assert!(first.all(|host| goes_first(&host, 200_000)), "a larger share has the smaller one in it");
    }
}
