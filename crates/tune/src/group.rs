//! Judging a round: each network's median, each rule's group, the histories; and what the arms came to.

use weirgate_units::{Bytes, Prefix};

use crate::book::NONE;
use crate::config::{Config, Group, RULES_MAX, WINDOW_MAX};
use crate::controller::{Controller, Heard, Open, Vote, rate};
use crate::decision::{Design, Effects, Loss};
use crate::effect::{Bootstrap, Cell};
use crate::tally::ArmSum;

/// The pooled effect's bootstrap works on at most so many sums of cells: independent cells may be added up in groups, and
/// 4,096 groups x 1,000 resamples take some 10 ms.
const POOL_GROUPS: usize = 4_096;
/// Cells of networks no longer selected that are kept for the pooled effect; 12 bytes each.
const RETIRED_MAX: usize = 100_000;

/// The median untreated vote and the number of votes, per tally. O(entries x log of those of one network), whatever they weigh.
pub(crate) fn medians(open: &mut Open) -> Vec<(u32, f32)> {
    let speaks = |key: u32| open.tallies[(key >> 1) as usize].counts(key & 1 == 1);
    let mut votes = core::mem::take(&mut open.votes);
    votes.retain(|vote| speaks(vote.key));
    // Where each tally's votes end, once they lie behind each other.
    let mut at = vec![0_usize; open.tallies.len() + 1];
    for vote in &votes {
        at[(vote.key >> 1) as usize + 1] += 1;
    }
    for i in 1..at.len() {
        at[i] += at[i - 1];
    }
    let mut sorted = vec![(0.0, 0); votes.len()];
    for Vote { key, metric, weight } in votes {
        let to = &mut at[(key >> 1) as usize];
        sorted[*to] = (metric, weight);
        *to += 1;
    }
    let mut from = 0;
    let median_of = |end: &usize| {
        let votes = &mut sorted[from..*end];
        from = *end;
        median(votes)
    };
    at[..open.tallies.len()].iter().map(median_of).collect()
}

/// How many votes there are, each counted as often as it weighs, and the middle one, or the mean of the two; 0 of none.
fn median(votes: &mut [(f32, u32)]) -> (u32, f32) {
    votes.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    let total: u64 = votes.iter().map(|(_, weight)| u64::from(*weight)).sum();
    if total == 0 {
        return (0, 0.0);
    }
    let value_at = |rank: u64| {
        let mut before = 0;
        let reaches = votes.iter().find(|(_, weight)| {
            before += u64::from(*weight);
            before > rank
        });
        reaches.map_or(0.0, |vote| vote.0)
    };
    let (lower, upper) = (value_at((total - 1) / 2), value_at(total / 2));
    (u32::try_from(total).unwrap_or(u32::MAX), if lower == upper { upper } else { f32::midpoint(lower, upper) })
}

impl Heard {
    /// Whether the network is judged by its connections that are `held` out, or that have no lot.
    fn counts(&self, held: bool) -> bool {
        held || self.arms.is_none() || self.is_on_trial
    }

    /// What the connections came to that it is judged by.
    fn untreated(&self) -> ArmSum {
        let mut sum = self.arms.as_ref().map_or_else(ArmSum::default, |arms| arms[1]);
        if self.counts(false) {
            sum.add(&self.none);
        }
        sum
    }
}

impl Controller {
    /// Finds each rule's group in this round and notes it in the histories. O(networks heard of).
    pub(crate) fn judge(&mut self, open: &mut Open, medians: &[(u32, f32)]) {
        let known: Vec<usize> = (0..medians.len()).filter(|i| medians[*i].0 >= self.config.votes_min).collect();
        open.stats.members = vec![0; self.config.rules.len()];
        open.stats.thresholds = vec![None; self.config.rules.len()];
        open.stats.networks_known = known.len() as u32;
        if known.len() < self.config.networks_min as usize {
            return;
        }
        open.stats.judged = true;
        let mut thresholds = [f32::NAN; RULES_MAX];
        let mut sorted: Vec<f32> = known.iter().map(|i| medians[*i].1).collect();
        for (i, rule) in self.config.rules.iter().enumerate() {
            if let Some(share) = rule.group.worst_share {
                // The nearest rank, rounded up, so that the last of the worst does not come and go with every network that
                // is silent for a round. Strictly below the first value outside: where all are alike, none is the worst.
                let outside = ((sorted.len() as f64 * share - 1e-9).ceil() as usize).min(sorted.len() - 1);
                thresholds[i] = *sorted.select_nth_unstable_by(outside, f32::total_cmp).1;
                open.stats.thresholds[i] = Some(rate(thresholds[i]));
            }
        }
        let (round, window) = (self.round, self.config.window_rounds);
        for i in known {
            let (votes, metric) = medians[i];
            let tally = &open.tallies[i];
            let sums = tally.untreated();
            let mut groups = 0;
            for (r, rule) in self.config.rules.iter().enumerate() {
                if is_in(&rule.group, &sums, metric, thresholds[r]) {
                    groups |= 1 << r;
                    open.stats.members[r] += 1;
                }
            }
            let slot = tally.slot;
            let network = self.book.get_mut(slot);
            network.history.push(round, groups);
            let watched = network.trial.is_some()
                || (0..self.config.rules.len()).any(|r| network.history.span(r, round, window).duty > 0.0);
            self.book.note_detail(slot, watched, self.config.detail_max, (round, votes, metric), window);
        }
        if self.thresholds.len() >= WINDOW_MAX as usize {
            self.thresholds.pop_front();
        }
        self.thresholds.push_back((round, self.time, thresholds));
    }

    /// Adds the round to each trial's open block, and closes the blocks that end with it.
    pub(crate) fn close_blocks(&mut self, open: &Open) {
        let (round, config) = (self.round, &self.config);
        for slot in self.selected.values() {
            let network = self.book.get_mut(*slot);
            let prefix = network.prefix;
            let tally = open.tallies.get(network.tally as usize).filter(|_| network.tally != NONE);
            let Some(trial) = &mut network.trial else { continue };
            // Washout votes were not counted; what they sent and sent again would still dilute the comparison.
            if let Some(tally) = tally.filter(|_| !trial.is_washout(round, config)) {
                let treated = tally.arms.as_ref().map_or(0, |arms| arms[0].votes);
                trial.tested = trial.tested.map(|rounds| rounds + u32::from(treated > 0));
                match (trial.design, &tally.arms) {
                    (Design::Holdout, Some(arms)) => {
                        trial.open[0].add(&arms[0]);
                        trial.open[1].add(&arms[1]);
                    }
                    (Design::Switchback, Some(arms)) if trial.on => trial.open[0].add(&arms[0]),
                    // While only the first edges treat it, what the others' connections came to says nothing of its turns.
                    (Design::Switchback, Some(arms)) if trial.tested.is_some() => trial.open[1].add(&arms[1]),
                    (Design::Switchback, _) if !trial.on && trial.tested.is_none() => trial.open[1].add(&tally.none),
                    _ => {}
                }
            }
            self.cells_changed |= trial.end_block(round + 1, prefix, config);
        }
        let keep = config.effect_blocks.saturating_mul(config.epoch_rounds);
        while self.retired.front().is_some_and(|(closed, _)| round - closed > keep) {
            self.retired.pop_front();
            self.cells_changed = true;
        }
        while self.retired.len() > RETIRED_MAX {
            self.retired.pop_front();
        }
    }
}

fn is_in(group: &Group, sums: &ArmSum, metric: f32, threshold: f32) -> bool {
    let rtt_us = sums.rtt_us.checked_div(u64::from(sums.rtts));
    let near = match rtt_us {
        Some(rtt) => (group.min_rtt_min.as_micros()..=group.min_rtt_max.as_micros()).contains(&rtt),
        None => group.min_rtt_min.as_nanos() == 0 && group.min_rtt_max.as_nanos() == u64::MAX,
    };
    let loss = sums.loss().share().unwrap_or(0.0);
    let lossy = (group.retransmit_min..=group.retransmit_max).contains(&loss);
    let worst = group.worst_share.is_none() || metric < threshold;
    near && lossy && worst
}

/// The pooled effect and the retransmissions of treated, held out, neighbours and others. O(cells + networks heard of).
pub(crate) fn effects(controller: &mut Controller, open: &Open) -> Effects {
    if core::mem::take(&mut controller.cells_changed) {
        let drawn = pool(cells(controller), &controller.config);
        controller.pooled = drawn.map(|drawn| drawn.interval(controller.config.level));
    }
    let mut effects = Effects { pooled: controller.pooled, ..Effects::default() };
    let mut treated: Vec<Prefix> = open
        .tallies
        .iter()
        .filter(|t| t.arms.as_ref().is_some_and(|arms| arms[0].sent > 0))
        .map(|t| covering(controller.book.get(t.slot).prefix))
        .collect();
    treated.sort_unstable();
    treated.dedup();
    let add = |to: &mut Loss, sums: &ArmSum| {
        to.sent += Bytes::new(sums.sent);
        to.retransmitted += Bytes::new(sums.retransmitted);
    };
    for tally in &open.tallies {
        if let Some(arms) = &tally.arms {
            add(&mut effects.treated, &arms[0]);
            add(&mut effects.holdout, &arms[1]);
            continue;
        }
        let near =
            !treated.is_empty() && treated.binary_search(&covering(controller.book.get(tally.slot).prefix)).is_ok();
        add(if near { &mut effects.neighbours } else { &mut effects.others }, &tally.none);
    }
    effects
}

/// What shares a provider's region with `prefix`: /16 or /40.
fn covering(prefix: Prefix) -> Prefix {
    Prefix::of(prefix.address(), if prefix.address().is_ipv4() { 16 } else { 40 }.min(prefix.len()))
}

/// Of all networks that are or were selected.
fn cells(controller: &Controller) -> Vec<Cell> {
    let trials = controller.selected.values().filter_map(|slot| controller.book.get(*slot).trial.as_ref());
    let live = trials.flat_map(|t| t.blocks.iter().map(|b| b.cell));
    live.chain(controller.retired.iter().map(|(_, c)| *c)).collect()
}

/// The effect over `cells`; `None`: they are too few.
pub(crate) fn pool(cells: Vec<Cell>, config: &Config) -> Option<Bootstrap> {
    let seed = config.seed ^ (cells.len() as u64) << 32;
    let groups = if cells.len() > POOL_GROUPS { merge(&cells) } else { cells };
    Bootstrap::new(&groups, config.resamples, seed)
}

/// Adds up cells in [`POOL_GROUPS`] groups: weights are summed, differences averaged by weight.
fn merge(cells: &[Cell]) -> Vec<Cell> {
    let mut groups = vec![(0.0f64, 0.0f64); POOL_GROUPS];
    for (i, cell) in cells.iter().enumerate() {
        let (w, wd) = &mut groups[i % POOL_GROUPS];
        *w += f64::from(cell.w);
        *wd += f64::from(cell.w) * f64::from(cell.d);
    }
    groups.into_iter().map(|(w, wd)| Cell { d: (wd / w) as f32, w: w as f32 }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Votes that weigh are copies of votes that do not.
        #[test]
        fn the_median_of_weighted_votes_is_that_of_their_copies(votes in prop::collection::vec((0_u16..40, 0_u32..9), 0..30)) {
            let mut weighted: Vec<(f32, u32)> = votes.iter().map(|(metric, weight)| (f32::from(*metric), *weight)).collect();
            let copies = weighted.iter().flat_map(|(metric, weight)| vec![*metric; *weight as usize]);
            let mut copies: Vec<f32> = copies.collect();
            copies.sort_by(f32::total_cmp);
            let middle = match copies.len() {
                0 => 0.0,
                n => f32::midpoint(copies[(n - 1) / 2], copies[n / 2]),
            };
            prop_assert_eq!(median(&mut weighted), (copies.len() as u32, middle));
        }
    }
}
