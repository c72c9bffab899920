//! Proposing, pacing and committing: who enters, who leaves, and how many in one round.

use weirgate_sockets::sample::CcName;
use weirgate_units::{Bytes, Prefix};

use crate::canary::TRIAL_MAX;
use crate::controller::{Controller, Open, holdout};
use crate::decision::{Decision, Design, Stats, What, Why};
use crate::policy::Policy;
use crate::trial::Trial;

/// Deferred decisions that are listed in a round; the others are only not taken.
const DEFER_LISTED_MAX: usize = 1_000;

/// A decision that is not taken yet.
#[derive(Clone, Debug)]
pub(crate) struct Proposal {
    pub(crate) slot: u32,
    pub(crate) what: What,
    pub(crate) why: Why,
}

impl Proposal {
    pub(crate) fn new(slot: u32, what: What, why: Why) -> Self {
        Self { slot, what, why }
    }
}

impl Controller {
    /// What this round would have: first what ends or alternates, then who enters, the most consistent first.
    pub(crate) fn propose(&self, open: &Open) -> Vec<Proposal> {
        let mut proposals: Vec<Proposal> = self.selected.values().filter_map(|slot| self.review(*slot)).collect();
        // Rollbacks, releases, turns: where not all fits, harm ends first.
        proposals.sort_by_key(|p| match p.what {
            What::RollBack => 0,
            What::Release => 1,
            _ => 2,
        });
        let mut entries: Vec<(f32, Prefix, Proposal)> = open
            .tallies
            .iter()
            .filter_map(|tally| {
                let proposal = self.consider(tally.slot)?;
                let Why::Consistent { duty, .. } = proposal.why else { return None };
                Some((duty, self.book.get(tally.slot).prefix, proposal))
            })
            .collect();
        entries.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        proposals.extend(entries.into_iter().map(|e| e.2));
        proposals
    }

    /// Whether a network that is not selected is to be.
    fn consider(&self, slot: u32) -> Option<Proposal> {
        let (network, config, round) = (self.book.get(slot), &self.config, self.round);
        let dwells = network.since > 0 && round - network.since < config.dwell_rounds;
        if network.trial.is_some() || round < network.barred_until || dwells || self.is_excluded(network.prefix) {
            return None;
        }
        config.rules.iter().enumerate().find_map(|(i, rule)| {
            let span = network.history.span(i, round, config.window_rounds);
            let consistent = span.known >= config.known_enter_min
                && span.duty >= config.duty_enter
                && span.flaps <= config.flap_enter_max;
            (consistent && self.is_active(i)).then(|| {
                let (duty, flaps) = (span.duty as f32, span.flaps as f32);
                let why = Why::Consistent { rule: i as u8, duty, flaps, known: span.known };
                Proposal::new(slot, What::Select(rule.cc), why)
            })
        })
    }

    /// What is to become of a selected network, where anything.
    fn review(&self, slot: u32) -> Option<Proposal> {
        let (network, config, round) = (self.book.get(slot), &self.config, self.round);
        let trial = network.trial.as_ref()?;
        let say = |what, why| Some(Proposal::new(slot, what, why));
        if self.is_excluded(network.prefix) {
            return say(What::Release, Why::Excluded);
        }
        if !self.is_active(usize::from(trial.rule)) {
            return say(What::Release, Why::RuleIdle);
        }
        if let Some((_, effect)) = trial.effect
            && effect.high < 1.0
            && effect.blocks >= config.rollback_blocks_min
        {
            return say(What::RollBack, Why::Worse { effect });
        }
        if round - network.seen >= config.idle_rounds {
            return say(What::Release, Why::Idle { rounds: round - network.seen });
        }
        let rounds = round - network.since;
        if let Some(tested) = trial.tested.filter(|_| self.applied && rounds >= TRIAL_MAX * config.trial_rounds.max(1))
        {
            return say(What::Release, Why::Untested { tested, rounds: config.trial_rounds });
        }
        let span = network.history.span(usize::from(trial.rule), round, config.window_rounds);
        if rounds >= config.dwell_rounds && span.known >= config.known_leave_min {
            if span.duty <= config.duty_leave {
                return say(What::Release, Why::Recovered { duty: span.duty as f32, known: span.known });
            }
            if span.flaps > config.flap_leave_min {
                return say(What::Release, Why::Flapping { flaps: span.flaps as f32, known: span.known });
            }
        }
        self.review_design(slot, trial)
    }

    /// Whether a selected network turns, or is compared in another way from the next round on.
    fn review_design(&self, slot: u32, trial: &Trial) -> Option<Proposal> {
        let (network, config, next) = (self.book.get(slot), &self.config, self.round + 1);
        if self.applied && next.is_multiple_of(config.epoch_rounds) && self.round - network.since >= config.epoch_rounds
        {
            let clients = network.clients.estimate(self.round / config.epoch_rounds);
            // Half and double, so that the design does not flap.
            if trial.design == Design::Holdout && clients < config.holdout_clients_min / 2 {
                return Some(Proposal::new(slot, What::CompareInTime, Why::Clients(clients)));
            }
            if trial.design == Design::Switchback && clients >= config.holdout_clients_min * 2 {
                return Some(Proposal::new(slot, What::CompareWithHoldout, Why::Clients(clients)));
            }
        }
        let on = !self.applied || trial.is_on_in(next, network.prefix, config);
        let what = match (trial.on, on) {
            (true, false) => What::Pause,
            (false, true) => What::Resume(trial.cc),
            _ => return None,
        };
        Some(Proposal::new(slot, what, Why::Turn { block: next / config.switchback_rounds }))
    }

    /// Holds proposals back that the limits have no room for, and says which.
    pub(crate) fn pace(&self, proposals: Vec<Proposal>, open: &Open) -> (Vec<Proposal>, Vec<Decision>) {
        let (limits, tracked) = (&self.config.limits, self.book.len() as u32);
        let (changed_max, traffic_max) = (limits.changed_max(tracked), limits.traffic_max(open.stats.acked));
        let room = limits.selected_max(tracked);
        let (mut size, mut changed, mut traffic) = (self.selected.len(), 0, Bytes::ZERO);
        let mut deferred = Vec::new();
        let mut taken = Vec::with_capacity(proposals.len());
        for proposal in proposals {
            let network = self.book.get(proposal.slot);
            let (entering, leaving) = match proposal.what {
                What::Select(_) => (true, false),
                What::Release | What::RollBack => (false, true),
                _ => {
                    taken.push(proposal);
                    continue;
                }
            };
            let more = traffic + self.traffic_of(open, network.prefix);
            let why = if entering && size >= room {
                Some(Why::SizeLimit)
            } else if changed >= changed_max || changed > 0 && more > traffic_max {
                Some(Why::ChangeLimit)
            } else {
                None
            };
            match why {
                None => {
                    (changed, traffic) = (changed + 1, more);
                    size = size + usize::from(entering) - usize::from(leaving);
                    taken.push(proposal);
                }
                Some(why) if deferred.len() < DEFER_LISTED_MAX => {
                    deferred.push(Decision { network: network.prefix, what: What::Defer, why });
                }
                Some(_) => {}
            }
        }
        (taken, deferred)
    }

    /// The networks whose turn it is, ascending: their change is planned.
    pub(crate) fn alternating(&self, proposals: &[Proposal]) -> Vec<Prefix> {
        let turns =
            proposals.iter().filter(|p| matches!(p.what, What::Pause | What::Resume(_) | What::CompareWithHoldout));
        let mut networks: Vec<Prefix> = turns.map(|p| self.book.get(p.slot).prefix).collect();
        networks.sort_unstable();
        networks
    }

    /// The policy once `proposals` are taken. Its version is the next one.
    pub(crate) fn policy_after(&self, proposals: &[Proposal]) -> Policy {
        let mut changes: Vec<(Prefix, Option<CcName>)> = proposals
            .iter()
            .filter_map(|p| {
                let network = self.book.get(p.slot);
                match p.what {
                    What::Select(cc) | What::Resume(cc) => Some((network.prefix, Some(cc))),
                    What::CompareWithHoldout => Some((network.prefix, network.trial.as_ref().map(|t| t.cc))),
                    What::Release | What::RollBack | What::Pause => Some((network.prefix, None)),
                    What::Defer | What::Refuse | What::CompareInTime => None,
                }
            })
            .collect();
        changes.sort_by_key(|c| c.0);
        let changed = |p: &Prefix| changes.binary_search_by_key(p, |c| c.0).is_ok();
        let kept = self.selected.iter().filter(|(p, _)| !changed(p)).filter_map(|(p, slot)| {
            let trial = self.book.get(*slot).trial.as_ref()?;
            trial.on.then_some((*p, trial.cc))
        });
        let mut networks: Vec<(Prefix, CcName)> = kept.collect();
        networks.extend(changes.iter().filter_map(|(p, cc)| Some((*p, (*cc)?))));
        networks.sort_unstable_by_key(|n| n.0);
        // Without selected networks nobody is held out: a new draw would be a new policy for nothing.
        let holdout = if networks.is_empty() { self.policy.holdout } else { holdout(&self.config, self.round) };
        Policy {
            version: self.policy.version.saturating_add(1),
            networks,
            holdout,
            default_cc: self.config.default_cc,
            switch_after: self.config.switch_after,
            stay: self.config.stay,
            cap_start: self.config.cap_start,
        }
    }

    /// Takes one decision.
    pub(crate) fn commit(&mut self, proposal: &Proposal, stats: &mut Stats) -> Decision {
        let (round, config) = (self.round, &self.config);
        let network = self.book.get_mut(proposal.slot);
        let prefix = network.prefix;
        network.last = Some(Box::new((round, proposal.what, proposal.why)));
        match proposal.what {
            What::Select(cc) => {
                let Why::Consistent { rule, .. } = proposal.why else { unreachable!("rules alone select") };
                let clients = network.clients.estimate(round / config.epoch_rounds);
                let few = clients < config.holdout_clients_min;
                let design = if few { Design::Switchback } else { Design::Holdout };
                network.trial = Some(Box::new(Trial::new(rule, cc, design, round + 1, prefix, config)));
                network.since = round;
                self.selected.insert(prefix, proposal.slot);
                stats.new += 1;
            }
            What::Release | What::RollBack => {
                if let Some(trial) = network.trial.take() {
                    self.retired.extend(trial.blocks.iter().map(|b| (round, b.cell)));
                }
                network.since = round;
                if proposal.what == What::RollBack {
                    network.barred_until = round.saturating_add(config.bar_rounds);
                }
                self.selected.remove(&prefix);
                stats.gone += 1;
            }
            What::Pause | What::Resume(_) => {
                if let Some(trial) = &mut network.trial {
                    (trial.on, trial.turned) = (proposal.what != What::Pause, round + 1);
                }
            }
            What::CompareInTime | What::CompareWithHoldout => {
                let with_holdout = proposal.what == What::CompareWithHoldout;
                if let Some(trial) = &mut network.trial {
                    self.retired.extend(trial.blocks.iter().map(|b| (round, b.cell)));
                    let design = if with_holdout { Design::Holdout } else { Design::Switchback };
                    trial.redesign(design, round + 1, prefix, config);
                    trial.on |= with_holdout;
                }
            }
            What::Defer | What::Refuse => {}
        }
        Decision { network: prefix, what: proposal.what, why: proposal.why }
    }

    /// Whether a rule chooses anything else than what the host runs on anyway.
    pub(crate) fn is_active(&self, rule: usize) -> bool {
        self.config.rules.get(rule).is_some_and(|r| Some(r.cc) != self.baseline())
    }

    pub(crate) fn is_excluded(&self, network: Prefix) -> bool {
        self.config.exclude.iter().any(|e| e.overlaps(network))
    }
}
