//! What the connections of a client network came to, summed up where they end or in a database: all that the controller needs of them,
//! in about a hundred bytes however many there were.
//!
//! Tallies of one network, arm and congestion control add up, whatever their hosts and minutes. A connection is in one of them in each
//! round, as it has one vote: with the round that it ends in, or else as the round ends.

use std::collections::HashMap;

use weirgate_sockets::progress::Progress;
use weirgate_sockets::record::Direction;
use weirgate_sockets::sample::{Arm, CcName, mapped};
use weirgate_units::{BitRate, Bytes, Duration, Prefix};

use crate::config::{Config, Metric};
use crate::holdout::mix;
use crate::sketch::Sketch;

/// Connections of one client network, one arm of its comparison and one congestion control.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    /// The client network.
    pub network: Prefix,
    /// What the policy had in mind for them.
    pub arm: Arm,
    /// What they ran on.
    pub cc: CcName,
    /// What they came to.
    pub did: Did,
    /// The votes that speak for the network: those neither limited by the receiver nor by the send buffer.
    pub fit: Sketch,
    /// What they are votes of.
    pub terms: Terms,
}

/// What makes votes comparable: those of other terms say something else by the same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// [`Config::round`].
    pub round: Duration,
    /// [`Config::metric`].
    pub metric: Metric,
}

/// What connections came to, as sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Did {
    /// How many there were.
    pub connections: u64,
    /// What they delivered.
    pub acked: Bytes,
    /// Their clients, by linear counting: for each of them the bit that a hash of its address says.
    pub clients: u64,
    /// Without a vote, since they delivered less than [`Config::vote_bytes_min`].
    pub small: u64,
    /// Without a vote, since there is nothing to vote with.
    pub no_metric: u64,
    /// Votes that do not speak for the network: limited for more than [`Config::limited_share_max`] of the time.
    pub limited: u64,
    /// The votes, and what the arm sent.
    pub arm: ArmSum,
}

/// What the connections of one arm came to in a round or a block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ArmSum {
    /// Votes.
    pub votes: u32,
    /// Connections with a round-trip time.
    pub rtts: u32,
    /// Sum of their smallest round-trip times, in microseconds.
    pub rtt_us: u64,
    /// Sum of the natural logarithms of the votes (bit/s).
    pub log: f64,
    /// Bytes sent, retransmissions included.
    pub sent: u64,
    /// Bytes sent again.
    pub retransmitted: u64,
}

/// Tallies of the connections of one host, by network, arm and congestion control.
#[derive(Debug)]
pub struct Tallies {
    config: Config,
    of: HashMap<(Prefix, Arm, CcName), (Did, Sketch)>,
    untracked: u64,
}

impl Tallies {
    /// None yet. `config` says who votes and with what.
    pub fn new(config: Config) -> Self {
        Self { config, of: HashMap::new(), untracked: 0 }
    }

    /// Counts what a connection did since it was counted last, if it can vote: it was accepted, on a server's port. O(1).
    pub fn handle_progress(&mut self, progress: &Progress) {
        if is_refused(progress, &self.config).is_some() {
            return;
        }
        let key = (network(progress, &self.config), progress.arm, progress.cc);
        let is_full = self.of.len() >= self.config.networks_max as usize;
        if is_full && !self.of.contains_key(&key) {
            self.untracked += 1;
            return;
        }
        let (did, fit) = self.of.entry(key).or_default();
        let (one, vote) = Did::of(progress, &self.config);
        did.add(&one);
        if let Some(vote) = vote {
            fit.add(f64::from(vote));
        }
    }

    /// Hands all of them over, in the order of networks, and begins anew.
    pub fn take(&mut self) -> Vec<Tally> {
        let terms = Terms::of(&self.config);
        let all = self.of.drain().map(|((network, arm, cc), (did, fit))| Tally { network, arm, cc, did, fit, terms });
        let mut all: Vec<Tally> = all.collect();
        all.sort_unstable_by(|a, b| {
            (a.network, a.arm as u8, a.cc.as_str()).cmp(&(b.network, b.arm as u8, b.cc.as_str()))
        });
        all
    }

    /// Connections for whose networks there was no room ([`Config::networks_max`]), since the beginning.
    pub fn untracked(&self) -> u64 {
        self.untracked
    }
}

impl Terms {
    /// Those of votes that are counted as `config` says.
    pub const fn of(config: &Config) -> Self {
        Self { round: config.round, metric: config.metric }
    }
}

impl Tally {
    /// Why it is not counted by a controller with `config`, if it is not.
    pub(crate) fn is_foreign(&self, config: &Config) -> Option<Foreign> {
        let len = if self.network.address().is_ipv4() { config.network_len_v4 } else { config.network_len_v6 };
        let Did { connections, small, no_metric, limited, arm: ArmSum { votes, log, .. }, .. } = self.did;
        let others = small.saturating_add(no_metric).saturating_add(votes.into());
        // A sum that is as large as can be says no more than that.
        let most = if votes == u32::MAX { u64::MAX } else { votes.into() };
        if self.network.len() != len {
            Some(Foreign::Prefix)
        } else if self.terms.round != config.round {
            Some(Foreign::Round)
        } else if self.terms.metric != config.metric {
            Some(Foreign::Metric)
        } else if others > connections
            || self.fit.len().saturating_add(limited) > most
            || !(0.0..=LOG_MAX * f64::from(votes)).contains(&log)
        {
            Some(Foreign::Impossible)
        } else {
            None
        }
    }
}

/// Why what somebody summed up is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// Its network is of another length.
    Prefix,
    /// Its round is of another length.
    Round,
    /// Its votes are of something else.
    Metric,
    /// It has more votes than connections, more that speak for the network than votes, or logarithms that no votes have.
    Impossible,
}

/// No vote's logarithm is larger: rates are below 2^64 bit/s.
const LOG_MAX: f64 = 45.0;

impl Did {
    /// What one connection did, and its vote where it has one that speaks for its network, in bit/s.
    pub(crate) fn of(progress: &Progress, config: &Config) -> (Self, Option<f32>) {
        let mut did = Self {
            connections: 1,
            acked: progress.acked,
            clients: client_bit(progress),
            arm: ArmSum {
                sent: progress.sent.as_u64(),
                retransmitted: progress.retransmitted.as_u64(),
                ..ArmSum::default()
            },
            ..Self::default()
        };
        if progress.min_rtt.as_nanos() > 0 {
            (did.arm.rtts, did.arm.rtt_us) = (1, progress.min_rtt.as_micros());
        }
        if progress.acked < config.vote_bytes_min {
            did.small = 1;
            return (did, None);
        }
        let Some(vote) = vote(config.metric, progress) else {
            did.no_metric = 1;
            return (did, None);
        };
        (did.arm.votes, did.arm.log) = (1, f64::from(vote.max(1.0)).ln());
        if limited_share(progress) > config.limited_share_max {
            did.limited = 1;
            return (did, None);
        }
        (did, Some(vote))
    }

    /// Adds others of the same network, arm and congestion control.
    pub fn add(&mut self, other: &Self) {
        self.acked += other.acked;
        self.clients |= other.clients;
        add(&mut self.connections, other.connections);
        add(&mut self.small, other.small);
        add(&mut self.no_metric, other.no_metric);
        add(&mut self.limited, other.limited);
        self.arm.add(&other.arm);
    }
}

impl ArmSum {
    pub(crate) fn add(&mut self, other: &Self) {
        self.votes = self.votes.saturating_add(other.votes);
        self.rtts = self.rtts.saturating_add(other.rtts);
        self.log += other.log;
        add(&mut self.rtt_us, other.rtt_us);
        add(&mut self.sent, other.sent);
        add(&mut self.retransmitted, other.retransmitted);
    }
}

/// Adds what comes from outside: a sum that is as large as can be stays so.
pub(crate) fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// Why a connection is none that votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// This host opened it, or nobody knows who did.
    Direction,
    /// It is not on a server's port.
    Port,
}

pub(crate) fn is_refused(progress: &Progress, config: &Config) -> Option<Refused> {
    if progress.direction != Direction::Accepted {
        return Some(Refused::Direction);
    }
    let ports = &config.server_ports;
    (!ports.is_empty() && !ports.contains(&progress.local_port)).then_some(Refused::Port)
}

fn network(progress: &Progress, config: &Config) -> Prefix {
    let client = progress.client.to_canonical();
    Prefix::of(client, if client.is_ipv4() { config.network_len_v4 } else { config.network_len_v6 })
}

/// A connection's vote in bit/s.
fn vote(metric: Metric, progress: &Progress) -> Option<f32> {
    match metric {
        Metric::Goodput => BitRate::of(progress.acked, progress.busy),
        Metric::DeliveryRate => progress.delivery_rate,
    }
    .map(|rate| rate.as_bits_per_sec() as f32)
}

fn limited_share(progress: &Progress) -> f64 {
    let limited = progress.rwnd_limited.saturating_add(progress.sndbuf_limited).as_nanos();
    limited as f64 / progress.busy.as_nanos().max(1) as f64
}

/// The bit of a client in a set of 64 for linear counting (Whang et al. 1990).
fn client_bit(progress: &Progress) -> u64 {
    let bits = u128::from_be_bytes(mapped(progress.client));
    1 << (mix(mix((bits >> 64) as u64) ^ bits as u64) >> 58)
}
