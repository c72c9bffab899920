//! The controller: votes in, a policy with reasons out, once per round.
//!
//! Ground rules:
//! - One call of [`Controller::handle_progress`] per connection and round is one vote; whoever calls it (the ledger of
//!   `sockets`, a replay) keeps a connection from voting twice. [`Controller::handle_tally`] is the same for many of them.
//! - A network is judged by its *untreated* connections alone. Where the kernel program runs, those of a selected network
//!   are its holdout (or a switchback's blocks on the default): a treatment that works does not talk a network out of the
//!   group it was selected for. In observe mode no connection is treated and all of them count.
//! - A round in which a network has too few such votes is unknown for it and leaves its state alone.
//! - Decisions of a round are proposed, paced, validated, and then committed together or not at all. Measurements are
//!   kept even where the decisions are refused.
//! - Nothing here reads a clock or draws an outside number: the same calls give the same policies.

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use weirgate_sockets::progress::Progress;
use weirgate_sockets::sample::{Arm, CcName};
use weirgate_units::{BitRate, Bytes, Prefix, UnixTime};

use crate::book::{Book, NONE};
use crate::config::{Config, ConfigError, RULES_MAX, WINDOW_MAX};
use crate::decision::{Decision, Ignored, NetworkEffect, Round, Stats, What, Why};
use crate::effect::{Cell, Effect};
use crate::holdout::{Holdout, mix};
use crate::policy::Policy;
use crate::sketch;
use crate::tally::{ArmSum, Did, Foreign, Refused, Tally, add, is_refused};
use crate::validate::{self, Facts, Refusal};

/// What the controller must know of the host it decides for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// What sockets can be given (`tcp_available_congestion_control`).
    pub available_cc: Vec<CcName>,
    /// What sockets get by default (`tcp_congestion_control`), where known.
    pub system_cc: Option<CcName>,
}

/// Rounds of measurements in, decisions out. See the head of this file for the ground rules.
#[derive(Debug)]
pub struct Controller {
    pub(crate) config: Config,
    pub(crate) host: Host,
    pub(crate) book: Book,
    /// The selected networks and their slots.
    pub(crate) selected: BTreeMap<Prefix, u32>,
    /// In force, as far as is known here.
    pub(crate) policy: Policy,
    /// Whether policies reach connections.
    pub(crate) applied: bool,
    /// The last round that ended, 0 before the first.
    pub(crate) round: u32,
    /// When it ended.
    pub(crate) time: UnixTime,
    /// (round, end, threshold per rule), newest last, at most [`WINDOW_MAX`].
    pub(crate) thresholds: VecDeque<(u32, UnixTime, [f32; RULES_MAX])>,
    /// Cells of networks that are no longer selected, and the round in which they were closed: without them the pooled
    /// effect would be that of the survivors.
    pub(crate) retired: VecDeque<(u32, Cell)>,
    /// The pooled effect, and whether cells came or went since it was drawn.
    pub(crate) pooled: Option<Effect>,
    pub(crate) cells_changed: bool,
    /// Connections without a vote in the last round.
    pub(crate) ignored: Ignored,
    pub(crate) open: Open,
}

/// What has been counted of the round in progress.
#[derive(Debug, Default)]
pub(crate) struct Open {
    pub(crate) tallies: Vec<Heard>,
    /// Untreated votes.
    pub(crate) votes: Vec<Vote>,
    pub(crate) stats: Stats,
    pub(crate) metric_above_zero: bool,
}

/// Equal votes of one network; 12 bytes however many they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vote {
    /// tally << 1 | held out.
    pub(crate) key: u32,
    /// In bit/s.
    pub(crate) metric: f32,
    /// How many.
    pub(crate) weight: u32,
}

/// One network in the round in progress. Its own are its connections that run on the default by somebody's will: those held out where
/// there are any, those of edges that do not treat it yet, and all where nobody does. Where it is treated the lot of others is not known (a
/// port that is not steered, or not looked at yet).
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) slot: u32,
    /// Whether only the first edges treat it: the others' connections are untreated, too.
    pub(crate) is_on_trial: bool,
    pub(crate) acked: u64,
    pub(crate) none: ArmSum,
    /// Treated, held out.
    pub(crate) arms: Option<Box<[ArmSum; 2]>>,
}

impl Controller {
    /// A controller that has seen nothing, whose policies are applied.
    pub fn new(config: Config, host: Host) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            policy: Policy {
                version: 0,
                networks: Vec::new(),
                holdout: holdout(&config, 0),
                default_cc: config.default_cc,
                switch_after: config.switch_after,
                stay: config.stay,
                cap_start: config.cap_start,
            },
            applied: true,
            book: Book::new(&config),
            selected: BTreeMap::new(),
            round: 0,
            time: UnixTime::default(),
            thresholds: VecDeque::new(),
            retired: VecDeque::new(),
            pooled: None,
            cells_changed: true,
            ignored: Ignored::default(),
            open: Open::default(),
            host,
            config,
        })
    }

    /// The host changed: a congestion control was loaded, or the system's default is another.
    pub fn handle_host(&mut self, host: Host) {
        self.host = host;
    }

    /// Whether policies are applied from now on. Where they are only shown no network alternates: there is nothing to
    /// compare in time.
    pub fn handle_mode(&mut self, applied: bool) {
        self.applied = applied;
    }

    /// Counts what one connection did in this round. O(1); allocates where the network is new.
    pub fn handle_progress(&mut self, progress: &Progress) {
        let stats = &mut self.open.stats;
        stats.connections += 1;
        match is_refused(progress, &self.config) {
            Some(Refused::Direction) => stats.ignored.direction += 1,
            Some(Refused::Port) => stats.ignored.port += 1,
            None => {
                let (did, vote) = Did::of(progress, &self.config);
                let key = self.count(progress.client, progress.arm, progress.cc, &did);
                self.open.votes.extend(key.zip(vote).map(|(key, metric)| Vote { key, metric, weight: 1 }));
            }
        }
    }

    /// Counts what connections did that were summed up elsewhere. Where that was under other settings, or cannot be, they are among those
    /// that are ignored. O(bins of its sketch), at most 1,960, however many votes it says there are.
    pub fn handle_tally(&mut self, tally: &Tally) {
        let stats = &mut self.open.stats;
        add(&mut stats.connections, tally.did.connections);
        if let Some(why) = tally.is_foreign(&self.config) {
            let count = match why {
                Foreign::Prefix => &mut stats.ignored.prefix,
                Foreign::Round => &mut stats.ignored.round,
                Foreign::Metric => &mut stats.ignored.metric,
                Foreign::Impossible => &mut stats.ignored.impossible,
            };
            return add(count, tally.did.connections);
        }
        let Some(key) = self.count(tally.network.address(), tally.arm, tally.cc, &tally.did) else { return };
        let votes = tally.fit.bins().iter();
        self.open.votes.extend(votes.map(|(bin, votes)| Vote {
            key,
            metric: sketch::value(*bin) as f32,
            weight: *votes,
        }));
    }

    /// Counts connections of one network, arm and congestion control. Under what their votes are noted that speak for the network;
    /// `None`: they are not.
    fn count(&mut self, client: IpAddr, arm: Arm, cc: CcName, did: &Did) -> Option<u32> {
        let round = self.round + 1;
        let stats = &mut self.open.stats;
        stats.acked += did.acked;
        let Some(slot) = self.book.slot_of(client) else {
            add(&mut stats.untracked, did.connections);
            return None;
        };
        let network = self.book.get_mut(slot);
        network.seen = round;
        network.clients.add(round / self.config.epoch_rounds, did.clients);
        if network.tally == NONE {
            network.tally = self.open.tallies.len() as u32;
            let is_on_trial = network.trial.as_ref().is_some_and(|trial| trial.tested.is_some());
            self.open.tallies.push(Heard { slot, is_on_trial, ..Heard::default() });
        }
        let tally = &mut self.open.tallies[network.tally as usize];
        add(&mut tally.acked, did.acked.as_u64());

        let treatment = network.trial.as_ref().map(|t| t.cc);
        let expected = match (arm, self.config.default_cc.or(self.host.system_cc)) {
            (Arm::Treated, Some(default)) => cc == default || Some(cc) == treatment,
            (Arm::None | Arm::Holdout, Some(default)) => cc == default,
            (_, None) => true,
        };
        if !expected {
            add(&mut stats.ignored.own_cc, did.connections);
            return None;
        }
        add(&mut stats.ignored.small, did.small);
        add(&mut stats.ignored.no_metric, did.no_metric);
        let washout =
            arm != Arm::None && network.trial.as_ref().is_some_and(|trial| trial.is_washout(round, &self.config));
        // In the default's turn the edges that go first have the default for it (see `in_parts`).
        let is_held = tally.is_on_trial && network.trial.as_ref().is_some_and(|trial| !trial.on);
        let arm = if is_held && arm == Arm::Treated { Arm::Holdout } else { arm };
        let sums = match arm {
            Arm::None => &mut tally.none,
            Arm::Treated => &mut tally.arms.get_or_insert_default()[0],
            Arm::Holdout => &mut tally.arms.get_or_insert_default()[1],
        };
        let votes = u64::from(did.arm.votes);
        if washout {
            add(&mut stats.ignored.washout, votes);
            sums.add(&ArmSum { votes: 0, log: 0.0, ..did.arm });
            return None;
        }
        sums.add(&did.arm);
        add(&mut stats.ignored.limited, did.limited);
        self.open.metric_above_zero |= did.arm.log > 0.0;
        match arm {
            Arm::None => add(&mut stats.votes_none, votes),
            Arm::Treated => add(&mut stats.votes_treated, votes),
            Arm::Holdout => add(&mut stats.votes_holdout, votes),
        }
        // Those of the treated do not speak for the network.
        (arm != Arm::Treated).then_some(network.tally << 1 | u32::from(arm == Arm::Holdout))
    }

    /// Ends the round at `now`: judges, proposes, validates, commits. `newest` is the time of the newest measurement in
    /// it, a sample or the end of a poll; `None` where there is none. Where the returned policy is `Some` it is taken to be in force from
    /// now on.
    ///
    /// O(votes + networks heard of + tracked networks), and O(selected x blocks x resamples) at the end of an epoch.
    pub fn end_round(&mut self, now: UnixTime, newest: Option<UnixTime>) -> Round {
        self.round += self.rounds_since(now);
        self.time = now;
        let version = self.policy.version;
        let mut open = core::mem::take(&mut self.open);
        let medians = crate::group::medians(&mut open);
        let age = newest.map(|newest| now.saturating_since(newest));
        // A vote that a change of the holdout voids is a sign of life all the same.
        let washed_out = open.stats.ignored.washout;
        let votes = open.stats.votes_none + open.stats.votes_treated + open.stats.votes_holdout + washed_out;
        let known_facts = (age, votes, open.metric_above_zero);

        let early =
            self.with_facts(&open, known_facts, &[], |facts, c| validate::check_round(facts, &c.config.limits).err());
        if !matches!(early, Some(Refusal::Unmeasured | Refusal::Stale { .. } | Refusal::ZeroRound)) {
            self.judge(&mut open, &medians);
        }
        self.close_blocks(&open);
        let effects = crate::group::effects(self, &open);

        let halted = self.judge_trials();
        let mut decisions = halted.map_or_else(Vec::new, |effect| self.halt_trials(effect, &mut open.stats));
        let proposals = self.propose(&open);
        let (proposals, deferred) = self.pace(proposals, &open);
        decisions.extend(deferred);
        let alternating = self.alternating(&proposals);
        let new = self.policy_after(&proposals);
        let unchanged = Policy { version: self.policy.version, ..new.clone() } == self.policy;
        let refused = match unchanged {
            true => None,
            false => self.with_facts(&open, known_facts, &alternating, |facts, c| {
                validate::validate(&c.policy, &new, facts, &c.config.limits).err()
            }),
        };
        let mut stats = core::mem::take(&mut open.stats);
        self.ignored = stats.ignored;
        let (refusal, quiet) = match refused {
            Some(why) if why.is_quiet() => (None, Some(why)),
            refused => (refused, None),
        };
        if refusal.is_some() {
            decisions.extend(proposals.iter().map(|p| Decision {
                network: self.book.get(p.slot).prefix,
                what: What::Refuse,
                why: Why::Refused,
            }));
        } else if quiet.is_none() {
            for proposal in &proposals {
                decisions.push(self.commit(proposal, &mut stats));
            }
            if !unchanged {
                self.policy = new;
            }
        }
        let policy = (self.policy.version != version).then(|| self.policy.clone());
        decisions.sort_by_key(|d| d.network);
        self.forget(&open, &mut stats);
        stats.networks_seen = open.tallies.len() as u32;
        stats.networks_tracked = self.book.len() as u32;
        stats.rounds_missing = self.rounds_missing();
        stats.selected = self.selected.len() as u32;
        debug_assert!(self.is_valid());
        Round { number: self.round, time: now, policy, refusal, quiet, halted, decisions, stats, effects }
    }

    /// A person takes the treatment back from one network, or from all: it ends now and is barred as after a rollback.
    /// Returns the policy to apply, not validated (the default is always allowed), and the decisions.
    pub fn clear(&mut self, network: Option<Prefix>) -> (Policy, Vec<Decision>) {
        let gone: Vec<u32> =
            self.selected.iter().filter(|(p, _)| network.is_none_or(|n| n.overlaps(**p))).map(|(_, s)| *s).collect();
        let mut stats = Stats::default();
        let decisions = gone
            .into_iter()
            .map(|slot| {
                let decision = self.commit(&crate::select::Proposal::new(slot, What::RollBack, Why::Admin), &mut stats);
                Decision { what: What::Release, ..decision }
            })
            .collect();
        self.policy = self.policy_after(&[]);
        (self.policy.clone(), decisions)
    }

    /// The policy in force, as far as is known here.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The last round that ended, 0 before the first, and when.
    pub fn round(&self) -> (u32, UnixTime) {
        (self.round, self.time)
    }

    /// Connections without a vote on their network in the last round since this controller was made or loaded.
    pub fn ignored(&self) -> Ignored {
        self.ignored
    }

    /// The effect in each selected network, in ascending order.
    pub fn network_effects(&self) -> impl Iterator<Item = NetworkEffect> {
        self.selected.iter().filter_map(|(prefix, slot)| Some(self.book.get(*slot).trial.as_ref()?.report(*prefix)))
    }

    /// What untreated connections run on, where known.
    pub fn baseline(&self) -> Option<CcName> {
        self.config.default_cc.or(self.host.system_cc)
    }

    /// Whether the parts agree with each other. O(networks).
    pub fn is_valid(&self) -> bool {
        let in_policy =
            |prefix: &Prefix, on: bool| self.policy.networks.binary_search_by_key(prefix, |(p, _)| *p).is_ok() == on;
        self.book.is_valid()
            && self.selected.iter().all(|(prefix, slot)| {
                let network = self.book.get(*slot);
                network.prefix == *prefix && network.trial.as_ref().is_some_and(|t| in_policy(prefix, t.on))
            })
            && self.book.iter().filter(|(_, n)| n.trial.is_some()).count() == self.selected.len()
            && self.policy.networks.len() <= self.selected.len()
            && self.thresholds.len() <= WINDOW_MAX as usize
    }

    /// Rounds more that have to be judged before any network has been in enough of them. O(window).
    fn rounds_missing(&self) -> u32 {
        let oldest = (self.round + 1).saturating_sub(self.config.window_rounds);
        let judged = self.thresholds.iter().filter(|judged| judged.0 >= oldest).count() as u32;
        self.config.known_enter_min.saturating_sub(judged)
    }

    /// Rounds that `now` is later than the last one: 1, or more where the daemon was down.
    fn rounds_since(&self, now: UnixTime) -> u32 {
        if self.round == 0 {
            return 1;
        }
        let (passed, one) = (now.saturating_since(self.time).as_nanos(), self.config.round.as_nanos());
        u32::try_from((passed + one / 2) / one).unwrap_or(u32::MAX / 2).clamp(1, 1_000_000)
    }

    fn with_facts<R>(
        &self,
        open: &Open,
        (data_age, votes, metric_above_zero): (Option<weirgate_units::Duration>, u64, bool),
        alternating: &[Prefix],
        f: impl FnOnce(&Facts<'_>, &Self) -> R,
    ) -> R {
        let facts = Facts {
            available_cc: &self.host.available_cc,
            data_age,
            connections: open.stats.connections - open.stats.ignored.direction - open.stats.ignored.port,
            votes,
            metric_above_zero,
            networks_tracked: self.book.len() as u32,
            traffic: open.stats.acked,
            traffic_of: &|prefix| self.traffic_of(open, prefix),
            alternating,
        };
        f(&facts, self)
    }

    pub(crate) fn traffic_of(&self, open: &Open, prefix: Prefix) -> Bytes {
        let tally = self.book.find(prefix).map(|slot| self.book.get(slot).tally);
        Bytes::new(tally.and_then(|t| open.tallies.get(t as usize)).map_or(0, |t| t.acked))
    }

    /// Clears the round's marks and makes room.
    fn forget(&mut self, open: &Open, stats: &mut Stats) {
        for tally in &open.tallies {
            self.book.get_mut(tally.slot).tally = NONE;
        }
        (stats.expired, stats.evicted) =
            self.book.forget_idle(self.round, self.config.idle_rounds, stats.untracked > 0);
    }
}

/// The holdout for the round after `round`.
pub(crate) fn holdout(config: &Config, round: u32) -> Holdout {
    Holdout {
        seed: mix(config.seed),
        epoch: (round + 1) / config.epoch_rounds,
        share_ppm: (config.holdout_share * 1e6).round() as u32,
    }
}

/// A rate as it is reported.
pub(crate) fn rate(bits_per_sec: f32) -> BitRate {
    BitRate::from_bits_per_sec(bits_per_sec as u64)
}
