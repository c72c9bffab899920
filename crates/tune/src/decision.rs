//! What a round comes to: decisions with their reasons, what was counted, what the treatment did.

use core::fmt;

use weirgate_sockets::sample::CcName;
use weirgate_units::{BitRate, Bytes, Prefix, UnixTime};

use crate::effect::Effect;
use crate::policy::Policy;
use crate::validate::Refusal;

/// The result of [`Controller::end_round`](crate::Controller::end_round).
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// Counts rounds since the first, rounds in which the daemon was down included.
    pub number: u32,
    /// When it ended.
    pub time: UnixTime,
    /// The policy to apply: `Some` where it changed and was found valid.
    pub policy: Option<Policy>,
    /// Why the policy of this round was refused: the last good one stays in force, and no decision was taken.
    pub refusal: Option<Refusal>,
    /// Why nothing was changed in this round though nothing is wrong ([`Refusal::is_quiet`]): the last good policy stays in
    /// force, and what was due comes in a later round.
    pub quiet: Option<Refusal>,
    /// What all networks on trial together came to where that was harm: they are given up, which is among the decisions and in the policy
    /// whatever became of the rest of the round.
    pub halted: Option<Effect>,
    /// What was decided, in ascending order of networks.
    pub decisions: Vec<Decision>,
    /// What was counted.
    pub stats: Stats,
    /// What the treatment did.
    pub effects: Effects,
}

/// One decision on one network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// On which network.
    pub network: Prefix,
    /// What.
    pub what: What,
    /// And why.
    pub why: Why,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It is sent to with this congestion control from now on.
    Select(CcName),
    /// It goes back to the default.
    Release,
    /// It goes back to the default because the treatment was worse, and cannot be selected for a while.
    RollBack,
    /// It would be selected, but not in this round.
    Defer,
    /// It would be selected, but the policy was refused.
    Refuse,
    /// A switchback's block on the default begins.
    Pause,
    /// A switchback's treated block begins.
    Resume(CcName),
    /// Its few clients are compared in time from now on, no longer with a holdout.
    CompareInTime,
    /// Its clients are many enough for a holdout from now on.
    CompareWithHoldout,
}

/// Why. The numbers are those that were compared with a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// Consistently in a rule's group.
    Consistent {
        /// Index into [`Config::rules`](crate::Config::rules).
        rule: u8,
        /// Share of known rounds in the group.
        duty: f32,
        /// Changes per known round.
        flaps: f32,
        /// Known rounds in the window.
        known: u32,
    },
    /// No longer in the group often enough.
    Recovered {
        /// Share of known rounds (of its holdout) in the group.
        duty: f32,
        /// Known rounds in the window.
        known: u32,
    },
    /// In and out too often.
    Flapping {
        /// Changes per known round.
        flaps: f32,
        /// Known rounds in the window.
        known: u32,
    },
    /// Treated clients did worse than those held out.
    Worse {
        /// Ratio of treated to held out, at the rollback's level.
        effect: Effect,
    },
    /// All networks on trial together did worse treated than held out.
    Harm {
        /// Ratio of treated to held out, at the rollback's level.
        effect: Effect,
    },
    /// Its trial has not ended in [`TRIAL_MAX`](crate::canary::TRIAL_MAX) times the rounds that it takes.
    Untested {
        /// Rounds with treated votes.
        tested: u32,
        /// Of how many.
        rounds: u32,
    },
    /// No votes for too long.
    Idle {
        /// Rounds since the last vote.
        rounds: u32,
    },
    /// Its rule is gone, or chooses what the host runs on anyway.
    RuleIdle,
    /// The configuration excludes it.
    Excluded,
    /// A person said so.
    Admin,
    /// More networks were to change than the limits allow in one round; it comes later.
    ChangeLimit,
    /// The policy is as large as the limits allow.
    SizeLimit,
    /// The policy was not valid; [`Round::refusal`] says why.
    Refused,
    /// It is the switchback's turn.
    Turn {
        /// Number of the block.
        block: u32,
    },
    /// Its distinct clients in the last epoch, estimated.
    Clients(u32),
}

/// What was counted in a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections heard of.
    pub connections: u64,
    /// Votes of untreated connections in networks that are not selected.
    pub votes_none: u64,
    /// Votes of treated connections.
    pub votes_treated: u64,
    /// Votes of connections held out.
    pub votes_holdout: u64,
    /// Connections without a vote, by the reason.
    pub ignored: Ignored,
    /// Bytes delivered by the connections heard of (accepted, on server ports).
    pub acked: Bytes,
    /// Networks with at least one vote.
    pub networks_seen: u32,
    /// Networks with enough untreated votes.
    pub networks_known: u32,
    /// Whether they were judged: at least [`Config::networks_min`](crate::Config::networks_min) had enough.
    pub judged: bool,
    /// Rounds more that have to be judged before any network can be selected: 0 where one can be now.
    pub rounds_missing: u32,
    /// Networks in the books.
    pub networks_tracked: u32,
    /// Networks forgotten because they were idle, in this round.
    pub expired: u32,
    /// Networks forgotten to make room, in this round.
    pub evicted: u32,
    /// Connections of networks for which there was no room, in this round.
    pub untracked: u64,
    /// The metric's value below which a network was in the worst group, per rule; `None` where the rule has none or too
    /// few networks were known.
    pub thresholds: Vec<Option<BitRate>>,
    /// Networks in each rule's group in this round.
    pub members: Vec<u32>,
    /// Networks selected after this round.
    pub selected: u32,
    /// Networks selected in this round that were not before: the article's figure 2.
    pub new: u32,
    /// Networks released or rolled back in this round.
    pub gone: u32,
}

/// Connections without a vote; each is counted once, under the first reason that holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Opened by this host, or of unknown direction.
    pub direction: u64,
    /// Not on a server port.
    pub port: u64,
    /// Delivered less than [`Config::vote_bytes_min`](crate::Config::vote_bytes_min).
    pub small: u64,
    /// No busy time, or no delivery-rate sample.
    pub no_metric: u64,
    /// Untreated, yet not on the default: its application chose its congestion control.
    pub own_cc: u64,
    /// The receiver's window or the send buffer set its pace. Counted among the arms' votes for the effect all the same.
    pub limited: u64,
    /// In a washout.
    pub washout: u64,
    /// Summed up elsewhere, by networks of another length than [`Config::network_len_v4`](crate::Config::network_len_v4) or
    /// [`Config::network_len_v6`](crate::Config::network_len_v6).
    pub prefix: u64,
    /// ... in rounds of another length than [`Config::round`](crate::Config::round), or of none that was said.
    pub round: u64,
    /// ... of another metric than [`Config::metric`](crate::Config::metric).
    pub metric: u64,
    /// ... with sums that cannot be.
    pub impossible: u64,
}

/// Bytes sent and sent again by a group of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Sent, retransmissions included.
    pub sent: Bytes,
    /// Sent again.
    pub retransmitted: Bytes,
}

impl Stats {
    /// Connections that voted.
    pub const fn votes(&self) -> u64 {
        self.votes_none + self.votes_treated + self.votes_holdout
    }
}

impl Ignored {
    /// Those of tallies that were summed up under other settings, or cannot be.
    pub fn foreign(&self) -> Self {
        let Self { prefix, round, metric, impossible, .. } = *self;
        Self { prefix, round, metric, impossible, ..Self::default() }
    }

    /// All reasons together.
    pub fn count(&self) -> u64 {
        self.reasons().iter().map(|(count, _)| count).sum()
    }

    /// Each count, and what it is of, for people.
    fn reasons(&self) -> [(u64, &'static str); 11] {
        [
            (self.direction, "not known to be a client's"),
            (self.port, "not on [tune] server_ports"),
            (self.small, "delivered less than vote_bytes_min"),
            (self.no_metric, "without the metric"),
            (self.own_cc, "not on the default, by their application's choice"),
            (self.limited, "held back by the receiver or the sender for longer than limited_share_max"),
            (self.washout, "after a new draw or turn"),
            (self.prefix, "in tallies of networks of another length"),
            (self.round, "in tallies of rounds of another length"),
            (self.metric, "in tallies of another metric"),
            (self.impossible, "in tallies that cannot be"),
        ]
    }
}

impl core::ops::AddAssign for Ignored {
    fn add_assign(&mut self, other: Self) {
        self.direction += other.direction;
        self.port += other.port;
        self.small += other.small;
        self.no_metric += other.no_metric;
        self.own_cc += other.own_cc;
        self.limited += other.limited;
        self.washout += other.washout;
        self.prefix += other.prefix;
        self.round += other.round;
        self.metric += other.metric;
        self.impossible += other.impossible;
    }
}

/// The reasons that held, with their counts; empty where none did.
impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        for (count, why) in self.reasons().into_iter().filter(|reason| reason.0 > 0) {
            write!(f, "{before}{count} {why}")?;
            before = ", ";
        }
        Ok(())
    }
}

impl Loss {
    /// The share of sent bytes that were retransmissions, 0..=1; `None` where nothing was sent.
    pub fn share(self) -> Option<f64> {
        (self.sent.as_u64() > 0).then(|| self.retransmitted.as_u64() as f64 / self.sent.as_u64() as f64)
    }
}

/// What the treatment did, over all selected networks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Effects {
    /// Treated against held out (or a switchback's blocks against each other), over network x time block.
    pub pooled: Option<Effect>,
    /// Retransmissions of treated connections in this round.
    pub treated: Loss,
    /// ... of connections held out in selected networks.
    pub holdout: Loss,
    /// ... of untreated networks that share a /16 or /40 with a treated one: spillover shows here.
    pub neighbours: Loss,
    /// ... of all other untreated networks.
    pub others: Loss,
}

/// How a selected network's effect is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// Treated clients against held-out clients at the same time.
    Holdout,
    /// The whole network, treated and not, by turns.
    Switchback,
}

/// The effect in one selected network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetworkEffect {
    /// Which.
    pub network: Prefix,
    /// What it is sent to with.
    pub cc: CcName,
    /// How it is compared.
    pub design: Design,
    /// The ratio of goodput, where there are enough blocks.
    pub goodput: Option<Effect>,
    /// Mean over blocks of the share of bytes retransmitted, treated; `None` without blocks.
    pub retransmit_treated: Option<f64>,
    /// ... and held out.
    pub retransmit_holdout: Option<f64>,
    /// Complete time blocks.
    pub blocks: u32,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Select(cc) => write!(f, "select {cc}"),
            Self::Release => f.write_str("release"),
            Self::RollBack => f.write_str("roll back"),
            Self::Defer => f.write_str("defer"),
            Self::Refuse => f.write_str("refuse"),
            Self::Pause => f.write_str("pause"),
            Self::Resume(cc) => write!(f, "resume {cc}"),
            Self::CompareInTime => f.write_str("compare in time"),
            Self::CompareWithHoldout => f.write_str("compare with a holdout"),
        }
    }
}

impl Why {
    /// In words, with the rule's name out of `rules`, which are in the configuration's order.
    pub fn in_words<S: AsRef<str>>(&self, rules: &[S]) -> String {
        let text = self.to_string();
        match self {
            Self::Consistent { rule, .. } => match rules.get(usize::from(*rule)) {
                Some(name) => text.replacen(&format!("rule {rule} "), &format!("rule `{}` ", name.as_ref()), 1),
                None => text,
            },
            _ => text,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |x: &f32| (*x * 100.0).round();
        match self {
            Self::Consistent { rule, duty, flaps, known } => {
                let (duty, flaps) = (percent(duty), percent(flaps));
                write!(f, "in the group of rule {rule} in {duty} % of {known} known rounds, changing in {flaps} %")
            }
            Self::Recovered { duty, known } => {
                write!(f, "in the group in only {} % of {known} known rounds", percent(duty))
            }
            Self::Flapping { flaps, known } => {
                write!(f, "in and out of the group in {} % of {known} known rounds", percent(flaps))
            }
            Self::Worse { effect } => write!(f, "treated did worse than held out: {effect}"),
            Self::Harm { effect } => {
                write!(f, "all networks on trial together did worse treated than held out: {effect}")
            }
            Self::Untested { tested, rounds } => write!(
                f,
                "its trial came to no end: treated votes in {tested} rounds ({rounds} are needed), and too few to compare"
            ),
            Self::Idle { rounds } => write!(f, "no votes for {rounds} rounds"),
            Self::RuleIdle => f.write_str("its rule is gone, or chooses what the host runs on anyway"),
            Self::Excluded => f.write_str("the configuration excludes it"),
            Self::Admin => f.write_str("a person said so"),
            Self::ChangeLimit => f.write_str("too many networks or too much traffic would change in one round"),
            Self::SizeLimit => f.write_str("the policy is as large as its limit allows"),
            Self::Refused => f.write_str("the policy of this round was refused"),
            Self::Turn { block } => write!(f, "block {block} of its switchback begins"),
            Self::Clients(n) => write!(f, "about {n} clients in the last epoch"),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.network, self.what, self.why)
    }
}
