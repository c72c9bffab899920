//! Networks that were just selected are treated by a share of the edges first, and by all once they have not come to harm there.
//!
//! Which edges go first is decided by their names: those below a share of all hashes, which is in the snapshot and never so small that
//! nobody goes first ([`share_of`]). What they treat and hold out is compared as ever, for all networks on trial together: that says sooner
//! than any single network whether a treatment does harm.
//!
//! A trial ends when it has said something: after [`Config::trial_rounds`](crate::Config::trial_rounds) rounds with treated votes, and with
//! twice [`Config::rollback_blocks_min`](crate::Config::rollback_blocks_min) blocks of all networks on trial, since few cannot show harm at
//! the level that is asked for. With a trial of 36 rounds and defaults else four networks that are compared by a holdout have those after
//! three hours, a single one after twelve. A network whose trial has not ended after [`TRIAL_MAX`] times its rounds is given up, as what
//! nobody has measured should not reach everybody; it may be selected again.

use weirgate_sockets::sample::CcName;
use weirgate_units::Prefix;

use crate::controller::Controller;
use crate::decision::{Decision, Stats, What, Why};
use crate::effect::{Cell, Effect};
use crate::group::pool;
use crate::holdout::mix;
use crate::policy::Policy;
use crate::select::Proposal;
use crate::trial::Trial;

/// A trial lasts no longer than so many times the rounds that it takes: at defaults a day.
pub const TRIAL_MAX: u32 = 8;

/// Networks pass with so many times the blocks with which they can be halted. Twice: with the default of six a halved goodput shows in half
/// of all cases, with twelve in nearly all of them.
const PASS_BLOCKS: u32 = 2;

/// Whether the edge `host` is among the share that goes first.
pub fn goes_first(host: &str, share_ppm: u32) -> bool {
    place(host) < share_ppm
}

/// The share that a snapshot carries for a point of presence of these edges: `share_ppm`, or as much more as it takes for one of them to go
/// first, that whose name's hash is the smallest. Of a few edges a tenth can be none. O(edges).
pub fn share_of<'a>(hosts: impl IntoIterator<Item = &'a str>, share_ppm: u32) -> u32 {
    let least = hosts.into_iter().map(place).min();
    least.map_or(share_ppm, |place| share_ppm.max(place + 1))
}

/// Where an edge stands among all that there could be, 0..1,000,000.
fn place(host: &str) -> u32 {
    let hash = host.bytes().fold(0x5765_6972_6761_7465, |hash, byte| mix(hash ^ u64::from(byte)));
    (((hash >> 32) * 1_000_000) >> 32) as u32
}

impl Controller {
    /// The policy in force in two parts: for all edges, and the networks on trial, which only those have that go first. One whose
    /// switchback's turn is the default's is among them with the default, so that the same edges are compared in both turns.
    /// O(selected networks).
    pub fn in_parts(&self) -> (Policy, Vec<(Prefix, CcName)>) {
        let networks = self.policy.networks.iter().filter(|(network, _)| {
            let slot = self.selected.get(network);
            slot.and_then(|slot| self.book.get(*slot).trial.as_ref()).is_none_or(|trial| trial.tested.is_none())
        });
        let all = Policy { networks: networks.copied().collect(), ..self.policy.clone() };
        let first = self.on_trial().filter_map(|(slot, trial)| {
            let cc = if trial.on { Some(trial.cc) } else { self.baseline() };
            Some((self.book.get(slot).prefix, cc?))
        });
        (all, first.collect())
    }

    /// Ends trials that were long enough: all edges treat these networks from now on. Where all networks on trial together have come to
    /// harm, none passes; how much.
    ///
    /// That is looked at as an epoch ends, and not more often: who looks often enough finds harm by chance.
    /// O(selected networks, blocks x resamples).
    pub(crate) fn judge_trials(&mut self) -> Option<Effect> {
        let (config, next) = (&self.config, self.round + 1);
        if !next.is_multiple_of(config.epoch_rounds) {
            return None;
        }
        let trials = self.on_trial();
        let cells: Vec<Cell> = trials.flat_map(|(_, trial)| trial.blocks.iter().map(|block| block.cell)).collect();
        let blocks = cells.len() as u32;
        if blocks < config.rollback_blocks_min {
            return None;
        }
        let drawn = pool(cells, config)?;
        let effect = drawn.interval(config.rollback_level);
        if effect.high < 1.0 {
            return Some(effect);
        }
        if blocks < PASS_BLOCKS * config.rollback_blocks_min || drawn.interval(config.level).high < 1.0 {
            return None;
        }
        for slot in self.selected.values() {
            let Some(trial) = &mut self.book.get_mut(*slot).trial else { continue };
            if trial.tested.is_some_and(|rounds| rounds >= config.trial_rounds) {
                // What all edges do is not compared with what the first did.
                (trial.tested, trial.turned, trial.open) = (None, next, Default::default());
            }
        }
        None
    }

    /// Takes the treatment back from all networks on trial; they are barred as after a roll-back. Always allowed, like every way back to the
    /// default: no limit holds it up, and no bad round. O(selected networks).
    pub(crate) fn halt_trials(&mut self, effect: Effect, stats: &mut Stats) -> Vec<Decision> {
        let slots: Vec<u32> = self.on_trial().map(|(slot, _)| slot).collect();
        let halt = |slot| self.commit(&Proposal::new(slot, What::RollBack, Why::Harm { effect }), stats);
        let decisions = slots.into_iter().map(halt).collect();
        self.policy = self.policy_after(&[]);
        decisions
    }

    /// Slots and comparisons of the networks that only the first edges treat, in ascending order of networks.
    fn on_trial(&self) -> impl Iterator<Item = (u32, &Trial)> {
        let selected = self.selected.values().filter_map(|slot| Some((*slot, self.book.get(*slot).trial.as_deref()?)));
        selected.filter(|(_, trial)| trial.tested.is_some())
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

    #[test]
    fn of_any_edges_at_least_one_goes_first() {
        let mut none_before = 0;
        for pop in 0..200 {
            for edges in 1..=12 {
                let hosts: Vec<String> = (0..edges).map(|n| format!("edge-{n}.pop-{pop}.example")).collect();
                let first = |share_ppm| hosts.iter().filter(|host| goes_first(host, share_ppm)).count();
                let share = share_of(hosts.iter().map(String::as_str), 100_000);
                assert_eq!(first(share), first(100_000).max(1), "no more than it takes: {hosts:?}");
                none_before += u32::from(first(100_000) == 0);
                assert_eq!(first(share_of(hosts.iter().rev().map(String::as_str), 0)), 1);
            }
        }
        // Of three edges in 73 %.
        assert!(none_before > 1_000, "{none_before}");
        assert_eq!((share_of([], 100_000), share_of(["a"], 1_000_000)), (100_000, 1_000_000));
    }
}
