//! What a policy must keep to before it is applied. A refused policy leaves the last good one in force.

use weirgate_sockets::sample::CcName;
use weirgate_units::{Bytes, Duration, Prefix};

use crate::config::{ConfigError, Shown};
use crate::policy::Policy;

/// The limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Networks in a policy, 1..=1,000,000. 100,000: freeing a map of millions of prefixes stalls a processor for
    /// seconds, 100,000 are inserted in 0.2 s.
    pub networks_max: u32,
    /// Share of the tracked networks that a policy may hold, above 0, at most 1. 0.5: a policy for more than half is a
    /// change of the default, which a person should make.
    pub selected_share_max: f64,
    /// Share of the tracked networks whose treatment may change in one round, above 0, at most 1. 0.1.
    pub changed_share_max: f64,
    /// So many networks may change in any round, whatever their share, so that small hosts can decide. 10.
    pub changed_free: u32,
    /// Share of the round's traffic whose treatment may change in one round, above 0, at most 1; one network alone may
    /// always change. 0.3.
    pub changed_traffic_max: f64,
    /// How old the newest measurement may be. 15 min, three rounds.
    pub data_age_max: Duration,
}

/// What is known as a policy is to be applied.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// What the kernel offers to sockets (`tcp_available_congestion_control`).
    pub available_cc: &'a [CcName],
    /// Age of the newest measurement: a sample, or a poll that came to its end. `None` where the round has neither.
    pub data_age: Option<Duration>,
    /// Connections heard of in the round: accepted, on server ports.
    pub connections: u64,
    /// Votes counted in the round.
    pub votes: u64,
    /// Whether any vote was above zero.
    pub metric_above_zero: bool,
    /// Networks in the books.
    pub networks_tracked: u32,
    /// Bytes delivered in the round, in all.
    pub traffic: Bytes,
    /// Bytes delivered in the round to one network.
    pub traffic_of: &'a dyn Fn(Prefix) -> Bytes,
    /// Networks, ascending, whose treatment alternates by plan: their turn is no change.
    pub alternating: &'a [Prefix],
}

/// Why a policy is not applied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// Nothing was measured.
    #[error("nothing was measured in this round: no poll came to its end (see `weirgate doctor`)")]
    Unmeasured,
    /// It was looked, and nobody was there.
    #[error("nothing was seen in this round: no client was sent anything")]
    NothingSeen,
    /// Whoever was there had no vote.
    #[error("no connection voted in this round")]
    EmptyRound,
    /// Everything measured zero.
    #[error("every vote of this round is zero: the kernel did not give the metric's fields (see `weirgate doctor`)")]
    ZeroRound,
    /// The measurements are old.
    #[error("the newest measurement is {age} old, more than {max}: check that polling works (see `weirgate doctor`)")]
    Stale {
        /// Age of the newest measurement.
        age: Duration,
        /// The limit.
        max: Duration,
    },
    /// A congestion control that this kernel does not offer.
    #[error(
        "{network} is to get `{cc}`, which this kernel does not offer: load it (modprobe tcp_{cc}) or change the rule"
    )]
    UnknownCc {
        /// Which network.
        network: Prefix,
        /// The name.
        cc: CcName,
    },
    /// The default is not offered.
    #[error(
        "the default is to be `{cc}`, which this kernel does not offer: load it (modprobe tcp_{cc}) or change default_cc"
    )]
    UnknownDefault {
        /// The name.
        cc: CcName,
    },
    /// Two networks share addresses.
    #[error("{first} and {second} overlap: write each address in one network only")]
    Overlap {
        /// One.
        first: Prefix,
        /// The other.
        second: Prefix,
    },
    /// The networks are not in ascending order.
    #[error("{first} stands before {second}: networks must be in ascending order")]
    Unsorted {
        /// The earlier one.
        first: Prefix,
        /// The later one, which is smaller.
        second: Prefix,
    },
    /// The policy is too large.
    #[error("{networks} networks, at most {max} are allowed: select fewer, or raise the limit `networks_max`")]
    TooLarge {
        /// In the policy.
        networks: usize,
        /// The limit.
        max: u32,
    },
    /// Nearly everything is selected.
    #[error(
        "{networks} of {tracked} networks are selected, at most {max} are allowed: make the algorithm the default, or raise \
         the limit `selected_share_max`"
    )]
    TooManySelected {
        /// In the policy.
        networks: usize,
        /// In the books.
        tracked: u32,
        /// The limit, as a number of networks.
        max: usize,
    },
    /// Too many networks change at once.
    #[error("{changed} networks change at once, at most {max} may: apply it in steps, or raise `changed_share_max`")]
    TooManyChanged {
        /// How many.
        changed: usize,
        /// The limit, as a number of networks.
        max: usize,
    },
    /// Too much traffic changes at once.
    #[error(
        "networks with {changed} of {traffic} change at once, a share of at most {max} may: apply it in steps, or raise \
         `changed_traffic_max`"
    )]
    TooMuchTraffic {
        /// Delivered to the networks that change.
        changed: Bytes,
        /// Delivered in all.
        traffic: Bytes,
        /// The limit, a share.
        max: f64,
    },
    /// It is not newer than the one in force.
    #[error("its version {version} is not newer than {in_force}, which is in force: make it again")]
    OldVersion {
        /// Of the new policy.
        version: u32,
        /// Of the policy in force.
        in_force: u32,
    },
}

impl Refusal {
    /// Whether nothing is wrong: clients may come or stay away, and nothing is decided from a round without votes.
    pub const fn is_quiet(&self) -> bool {
        matches!(self, Self::NothingSeen | Self::EmptyRound)
    }
}

/// Whether `new` may replace `old`. The first policy that selects anything is bound by the size limits alone: everything
/// in it is new. O(networks).
pub fn validate(old: &Policy, new: &Policy, facts: &Facts<'_>, limits: &Limits) -> Result<(), Refusal> {
    check_round(facts, limits)?;
    if new.version <= old.version {
        return Err(Refusal::OldVersion { version: new.version, in_force: old.version });
    }
    for pair in new.networks.windows(2) {
        let (first, second) = (pair[0].0, pair[1].0);
        if first.overlaps(second) {
            return Err(Refusal::Overlap { first, second });
        }
        if first > second {
            return Err(Refusal::Unsorted { first, second });
        }
    }
    if let Some(cc) = new.default_cc.filter(|cc| !facts.available_cc.contains(cc)) {
        return Err(Refusal::UnknownDefault { cc });
    }
    if let Some(&(network, cc)) = new.networks.iter().find(|(_, cc)| !facts.available_cc.contains(cc)) {
        return Err(Refusal::UnknownCc { network, cc });
    }
    let networks = new.networks.len();
    if networks > limits.networks_max as usize {
        return Err(Refusal::TooLarge { networks, max: limits.networks_max });
    }
    let (tracked, max) = (facts.networks_tracked, limits.selected_max(facts.networks_tracked));
    if networks > max {
        return Err(Refusal::TooManySelected { networks, tracked, max });
    }
    if old.networks.is_empty() {
        return Ok(());
    }
    let (mut changed, mut traffic) = (0, Bytes::ZERO);
    for network in changes(old, new) {
        if facts.alternating.binary_search(&network).is_err() {
            changed += 1;
            traffic += (facts.traffic_of)(network);
        }
    }
    let max = limits.changed_max(tracked);
    if changed > max {
        return Err(Refusal::TooManyChanged { changed, max });
    }
    if changed > 1 && traffic > limits.traffic_max(facts.traffic) {
        let max = limits.changed_traffic_max;
        return Err(Refusal::TooMuchTraffic { changed: traffic, traffic: facts.traffic, max });
    }
    Ok(())
}

/// Whether anything should be decided from this round.
pub fn check_round(facts: &Facts<'_>, limits: &Limits) -> Result<(), Refusal> {
    let Some(age) = facts.data_age else { return Err(Refusal::Unmeasured) };
    if age > limits.data_age_max {
        return Err(Refusal::Stale { age, max: limits.data_age_max });
    }
    if facts.votes == 0 {
        return Err(if facts.connections == 0 { Refusal::NothingSeen } else { Refusal::EmptyRound });
    }
    if !facts.metric_above_zero {
        return Err(Refusal::ZeroRound);
    }
    Ok(())
}

/// The networks that one of the two policies treats differently from the other, ascending; both must be in order.
fn changes<'a>(old: &'a Policy, new: &'a Policy) -> impl Iterator<Item = Prefix> + 'a {
    let (mut a, mut b) = (old.networks.iter().peekable(), new.networks.iter().peekable());
    core::iter::from_fn(move || {
        loop {
            match (a.peek().copied(), b.peek().copied()) {
                (None, None) => return None,
                (Some(x), Some(y)) if x.0 == y.0 => {
                    a.next();
                    b.next();
                    if x.1 != y.1 {
                        return Some(x.0);
                    }
                }
                (Some(x), y) if y.is_none_or(|y| x.0 < y.0) => return a.next().map(|x| x.0),
                _ => return b.next().map(|y| y.0),
            }
        }
    })
}

impl Limits {
    /// Networks that may be selected of `tracked`: at least one.
    pub fn selected_max(&self, tracked: u32) -> usize {
        let share = (f64::from(tracked) * self.selected_share_max) as usize;
        share.max(1).min(self.networks_max as usize)
    }

    /// Networks that may change in one round of `tracked`.
    pub fn changed_max(&self, tracked: u32) -> usize {
        ((f64::from(tracked) * self.changed_share_max) as usize).max(self.changed_free as usize).max(1)
    }

    /// Traffic that may change in one round of `traffic`.
    pub fn traffic_max(&self, traffic: Bytes) -> Bytes {
        Bytes::new((traffic.as_u64() as f64 * self.changed_traffic_max) as u64)
    }

    /// Whether every limit is within its bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        let share = |key, value: f64| match value > 0.0 && value <= 1.0 {
            true => Ok(()),
            false => Err(ConfigError::Range { key, value: value.shown(), bounds: "above 0 %, at most 100 %" }),
        };
        share("selected_share_max", self.selected_share_max)?;
        share("changed_share_max", self.changed_share_max)?;
        share("changed_traffic_max", self.changed_traffic_max)?;
        if !(1..=1_000_000).contains(&self.networks_max) {
            let (key, value) = ("networks_max", self.networks_max.to_string());
            return Err(ConfigError::Range { key, value, bounds: "1..=1000000" });
        }
        Ok(())
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            networks_max: 100_000,
            selected_share_max: 0.5,
            changed_share_max: 0.1,
            changed_free: 10,
            changed_traffic_max: 0.3,
            data_age_max: Duration::from_secs(900),
        }
    }
}
