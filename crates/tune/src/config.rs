//! Every threshold of the decision process, with its unit, its bounds and the argument for its default.
//!
//! No readable source gives the article's thresholds (it names duty cycle and flap rate, the round of five minutes and the
//! worst 20 %, nothing else), so the defaults are argued from replays: `weirgate tune replay --synthetic --sensitivity` prints the
//! tables of docs/sensitivity.md ([`crate::sensitivity`]), which the comments below quote.

use weirgate_sockets::sample::CcName;
use weirgate_units::{Bytes, Duration, Prefix};

use crate::validate::Limits;

/// The most rules at once: each costs 16 bytes of history per tracked network.
pub const RULES_MAX: usize = 3;
/// The longest window: the history of a network is one `u128` per rule.
pub const WINDOW_MAX: u32 = 128;

/// What a connection's vote says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// Bytes acknowledged for the first time over the time with data outstanding (`tcpi_busy_time`). Idle time of a
    /// kept-alive connection does not count, so it is not app-limited by construction.
    ///
    /// Receiver- and sender-buffer-limited time is *not* subtracted: the bytes that were delivered in it cannot be, and
    /// the quotient would be inflated. A connection that was so limited for most of its busy time has no vote instead
    /// ([`Config::limited_share_max`]).
    #[default]
    Goodput,
    /// The last delivery-rate sample that the application did not limit, as in the article. One sample of one round trip:
    /// noisier, and absent for connections that are app-limited throughout.
    DeliveryRate,
}

impl Metric {
    /// As it is written: `goodput` or `delivery_rate`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Goodput => "goodput",
            Self::DeliveryRate => "delivery_rate",
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Goodput, Self::DeliveryRate].into_iter().find(|metric| metric.name() == name)
    }
}

/// The group of networks that a [`Rule`] is about: those for which all conditions hold in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Among this share of the networks with the lowest metric in the round; `None`: whatever the metric. Above 0, at
    /// most 0.5.
    pub worst_share: Option<f64>,
    /// The mean over connections of the smallest round-trip time is at least this.
    pub min_rtt_min: Duration,
    /// ... and at most this.
    pub min_rtt_max: Duration,
    /// The share of sent bytes that were retransmissions is at least this, 0..=1.
    pub retransmit_min: f64,
    /// ... and at most this, 0..=1.
    pub retransmit_max: f64,
}

/// Networks that are consistently in `group` are sent to with `cc`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Names the rule in decisions, and finds its history again after a restart; unique, 1 to 32 bytes.
    pub name: String,
    /// Which networks.
    pub group: Group,
    /// What they get.
    pub cc: CcName,
}

/// The decision process's settings. [`Config::check`] is called by everything that takes one.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Time between rounds, at least 1 s. The article's 5 minutes: some hundred votes for a busy network, and a new
    /// policy reaches a host twelve times an hour.
    pub round: Duration,
    /// Prefix length of an IPv4 client network, 8..=32: /24 is the longest that is announced between providers.
    pub network_len_v4: u8,
    /// Prefix length of an IPv6 client network, 16..=64: /56 is what providers give one site (RFC 6177).
    pub network_len_v6: u8,
    /// Accepted connections on these local ports vote; empty: on all ports.
    pub server_ports: Vec<u16>,
    /// Networks never selected: what a person decided stands.
    pub exclude: Vec<Prefix>,
    /// The rules, at most [`RULES_MAX`]; the first whose conditions a network fulfils takes it.
    pub rules: Vec<Rule>,
    /// What untreated connections run on, where it is not the system's default.
    pub default_cc: Option<CcName>,

    /// What a vote says.
    pub metric: Metric,
    /// A connection that delivered less in a round has no vote. 100 KB: below it slow start sets the pace, the article
    /// measured no benefit, and nothing is switched.
    pub vote_bytes_min: Bytes,
    /// A connection that the receiver's window or the send buffer limited for more than this share of its busy time has
    /// no vote on its network (0..=1; 0.5). It still counts in the comparison of treated and held out, since the
    /// treatment may be why it reached the limit.
    pub limited_share_max: f64,
    /// A network with fewer untreated votes in a round keeps its state: the round is unknown for it. At least 1; 3 is the
    /// least that makes a median robust against one odd connection. The table's world has none, and 1 releases 7 networks there
    /// instead of 22; 10 lets clean and flapping ones in, since a holdout seldom has so many.
    pub votes_min: u32,
    /// With fewer known networks a percentile means little, and the round is unknown for all. At least 2; 5 is one
    /// network in the worst 20 %.
    pub networks_min: u32,

    /// Length of the sliding history in rounds, 4..=[`WINDOW_MAX`]. 48 rounds are 4 hours: a network that alternates
    /// every hour or faster shows the duty of both states. In the table 12 lets 10 of 50 flapping networks in. 24 chooses
    /// the same lossy, flapping and clean networks as 48 in half the time, and releases 57 instead of 22; 96 releases 4 and
    /// takes twice as long.
    pub window_rounds: u32,
    /// Known rounds in the window before a network can be selected, 2..=window. 24 (2 hours): a network whose states last an hour
    /// was seen in both. The table's world has shorter ones; there 12 chooses the same in half the time.
    pub known_enter_min: u32,
    /// Known rounds in the window before a selected network can be released, 1..=window. 8: 4 and 16 make no
    /// difference in the table.
    pub known_leave_min: u32,
    /// Select at this share of known rounds in the group, or above (0..=1). 0.8: noise alone passes it once in 10^10
    /// windows (binomial, p = 0.2, n = 24, k >= 20). In the table (window 48, flaps 0.25) 0.5 chooses 50 of 50 flapping
    /// networks, 0.6 chooses 3, 0.7 and more none; every value chooses all 70 lossy ones, as soon as enough rounds are known.
    pub duty_enter: f64,
    /// Release at this share or below; less than `duty_enter`. 0.4, half of it: between 0.2 and 0.6 the table differs in one
    /// network.
    pub duty_leave: f64,
    /// Select only with at most this many changes in and out of the group per known round (0..=1). 0.25: an iid
    /// membership of duty d flaps at 2 d (1 - d), which is 0.25 at d = 0.85. In the table (window 48, duty 0.8) 0.15, 0.25
    /// and 0.4 choose the same lossy, flapping and clean networks; 10, 15 and 21 bufferbloated ones.
    pub flap_enter_max: f64,
    /// Release above this flap rate; at least `flap_enter_max`. 0.4: in the table 0.3 releases 39 networks instead of 22, 0.6 four.
    pub flap_leave_min: f64,
    /// Rounds that a network stays selected, or stays released, before the opposite is considered; a rollback is not
    /// bound by it. 12 rounds are 1 hour; the table is the same for 0 to 24.
    pub dwell_rounds: u32,

    /// Share of a selected network's clients that stay on the default, 0.01..=0.5. 10 %: in the table 5 % releases 61
    /// networks instead of 22 and chooses 39 bufferbloated ones instead of 15, 20 % releases 3 and leaves twice as many clients
    /// without the treatment.
    pub holdout_share: f64,
    /// Rounds until the holdout is drawn again, at least 2. One epoch is one time block of the comparison, so that a
    /// client's lot never lasts longer than a block and the blocks are independent. 12 rounds are 1 hour.
    pub epoch_rounds: u32,
    /// Rounds at the start of an epoch, and after a change of treatment, whose votes are ignored: connections of both
    /// lots are mixed in them. Less than `epoch_rounds` and `switchback_rounds`. 1.
    pub washout_rounds: u32,
    /// A selected network with fewer distinct clients in an epoch alternates in time instead of holding clients out. 20
    /// clients leave two in a holdout of 10 %.
    pub holdout_clients_min: u32,
    /// Length of one block of a switchback, in rounds. 6 rounds are 30 minutes.
    pub switchback_rounds: u32,
    /// One block in this many is on the default, at a drawn place, 2..=16. 4: a quarter of the time pays for the proof.
    pub switchback_every: u32,

    /// Time blocks kept per selected network, 8..=256. 48 epochs are 2 days.
    pub effect_blocks: u32,
    /// Bootstrap resamples, 100..=10,000. 1,000 for a 95 % interval.
    pub resamples: u32,
    /// Level of the reported intervals, 0.5..1. 0.95.
    pub level: f64,
    /// Level of the interval whose upper end below "no effect" rolls a network back, 0.5..1. 0.99, since it is looked at
    /// every block.
    pub rollback_level: f64,
    /// Blocks before a rollback, at least 5. 6.
    pub rollback_blocks_min: u32,
    /// Rounds for which a network that was rolled back cannot be selected. 288 rounds are 1 day.
    pub bar_rounds: u32,
    /// Rounds with treated votes before all edges of a fleet treat a network that was just selected, and not only those that go first
    /// ([`canary`](crate::canary)), 0..=10,000; 0: all do at once. 0, since a host alone has no others.
    pub trial_rounds: u32,

    /// Networks tracked at once, 1..=4,000,000; the longest idle make room, and are counted. 1,000,000 (about 270 MB, and 430 MB as a
    /// round ends: `benches/round.rs`).
    pub networks_max: u32,
    /// A network without any connection for so many rounds is forgotten, and released if it was selected. 288 rounds are 1 day.
    pub idle_rounds: u32,
    /// Networks whose votes and metrics are kept round by round for `explain`, beside the bits that all have; about 600
    /// bytes each. The last tenth is for networks that are selected or were in a group lately. 10,000.
    pub detail_max: u32,
    /// Secret of the holdout and origin of every draw. The daemon makes it once and keeps it.
    pub seed: u64,

    /// Handed on in the policy: a response is switched once this much of it is acknowledged. 100 KB, the article's.
    pub switch_after: Bytes,
    /// Handed on in the policy: stay on the chosen algorithm for the connection's life.
    pub stay: bool,
    /// Handed on in the policy: pace a switched response no faster than its network carried in the last five to ten minutes,
    /// until its own rate has settled. On: BBR finds the rate by sending 2.9 times as much as is delivered, and each switch
    /// begins with that; in the experiment `edge` it cost a tenth of the bytes of a 5 MB response, and its neighbours'.
    pub cap_start: bool,
    /// What a policy must keep to before it is applied.
    pub limits: Limits,
}

/// A setting out of its bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A number is outside its range.
    #[error("`{key}` is {value}: it must be {bounds}")]
    Range {
        /// The field of [`Config`].
        key: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        bounds: &'static str,
    },
    /// There are more rules than histories.
    #[error("{0} rules: at most {RULES_MAX} are possible; merge or remove some")]
    TooManyRules(usize),
    /// Two rules have one name, or a name is empty or too long.
    #[error("rule name `{0}`: names are unique and 1 to 32 bytes long")]
    RuleName(String),
}

impl Group {
    /// Networks whose metric is among the lowest `share`.
    pub const fn worst(share: f64) -> Self {
        Self {
            worst_share: Some(share),
            min_rtt_min: Duration::ZERO,
            min_rtt_max: Duration::MAX,
            retransmit_min: 0.0,
            retransmit_max: 1.0,
        }
    }

    /// Networks that are near and lose next to nothing: the article found BBR worse than CUBIC there. No readable source
    /// gives its numbers; 20 ms and 0.1 % are where a few packets in flight fill the path and loss is accidental.
    pub const fn clean_and_short() -> Self {
        Self {
            worst_share: None,
            min_rtt_min: Duration::ZERO,
            min_rtt_max: Duration::from_millis(20),
            retransmit_min: 0.0,
            retransmit_max: 0.001,
        }
    }
}

impl Rule {
    /// The article's rule: the worst 20 % are sent to with `cc`.
    pub fn worst(cc: CcName) -> Self {
        Self { name: "worst".into(), group: Group::worst(0.2), cc }
    }

    /// The other direction: clean, short networks are sent to with `cc`.
    pub fn clean_and_short(cc: CcName) -> Self {
        Self { name: "clean-and-short".into(), group: Group::clean_and_short(), cc }
    }

    /// Whether it is within its bounds, and named otherwise than those `before` it.
    pub fn check(&self, before: &[Self]) -> Result<(), ConfigError> {
        let bad = |key, value: String, bounds| Err(ConfigError::Range { key, value, bounds });
        if before.iter().any(|rule| rule.name == self.name) || !(1..=32).contains(&self.name.len()) {
            return Err(ConfigError::RuleName(self.name.clone()));
        }
        let g = &self.group;
        if let Some(worst) = g.worst_share.filter(|s| !(*s > 0.0 && *s <= 0.5)) {
            return bad("worst_share", worst.shown(), "above 0 %, at most 50 %");
        }
        if !(share(g.retransmit_min) && share(g.retransmit_max) && g.retransmit_min <= g.retransmit_max) {
            return bad(
                "retransmit_min",
                format!("{} (retransmit_max {})", g.retransmit_min.shown(), g.retransmit_max.shown()),
                "0 % to 100 % and at most retransmit_max",
            );
        }
        if g.min_rtt_min > g.min_rtt_max {
            return bad("min_rtt_min", g.min_rtt_min.to_string(), "at most min_rtt_max");
        }
        if self.cc.as_str().is_empty() {
            return bad("cc", "empty".into(), "the name of a congestion control");
        }
        Ok(())
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            round: Duration::from_secs(300),
            network_len_v4: 24,
            network_len_v6: 56,
            server_ports: Vec::new(),
            exclude: Vec::new(),
            rules: vec![Rule::worst(CcName::from_kernel(b"bbr"))],
            default_cc: None,
            metric: Metric::Goodput,
            vote_bytes_min: Bytes::new(100_000),
            limited_share_max: 0.5,
            votes_min: 3,
            networks_min: 5,
            window_rounds: 48,
            known_enter_min: 24,
            known_leave_min: 8,
            duty_enter: 0.8,
            duty_leave: 0.4,
            flap_enter_max: 0.25,
            flap_leave_min: 0.4,
            dwell_rounds: 12,
            holdout_share: 0.1,
            epoch_rounds: 12,
            washout_rounds: 1,
            holdout_clients_min: 20,
            switchback_rounds: 6,
            switchback_every: 4,
            effect_blocks: 48,
            resamples: 1_000,
            level: 0.95,
            rollback_level: 0.99,
            rollback_blocks_min: 6,
            bar_rounds: 288,
            trial_rounds: 0,
            networks_max: 1_000_000,
            idle_rounds: 288,
            detail_max: 10_000,
            seed: 0,
            switch_after: Bytes::new(100_000),
            stay: false,
            cap_start: true,
            limits: Limits::default(),
        }
    }
}

/// A value as a person writes it into a configuration: a share in percent.
pub(crate) trait Shown {
    fn shown(self) -> String;
}

impl Shown for f64 {
    fn shown(self) -> String {
        // Rounded, since 0.07 * 100 is 7.000000000000001.
        format!("{} %", (self * 1e8).round() / 1e6)
    }
}

macro_rules! shown_as_displayed {
    ($($type:ty),*) => { $(impl Shown for $type {
        fn shown(self) -> String {
            self.to_string()
        }
    })* };
}
shown_as_displayed!(u8, u32, Duration);

fn share(x: f64) -> bool {
    (0.0..=1.0).contains(&x)
}

impl Config {
    /// Whether every setting is within its bounds and none contradicts another.
    pub fn check(&self) -> Result<(), ConfigError> {
        let bad = |key, value: String, bounds| Err(ConfigError::Range { key, value, bounds });
        macro_rules! within {
            ($key:ident, $ok:expr, $bounds:literal) => {
                if !$ok(self.$key) {
                    return bad(stringify!($key), Shown::shown(self.$key), $bounds);
                }
            };
        }
        let level = |x: f64| (0.5..1.0).contains(&x);
        within!(round, |x| x >= Duration::from_secs(1), "at least 1 s");
        within!(network_len_v4, |x| (8..=32).contains(&x), "8..=32");
        within!(network_len_v6, |x| (16..=64).contains(&x), "16..=64");
        within!(limited_share_max, share, "0 % to 100 %");
        within!(votes_min, |x| x >= 1, "at least 1");
        within!(networks_min, |x| x >= 2, "at least 2");
        within!(window_rounds, |x| (4..=WINDOW_MAX).contains(&x), "4..=128");
        within!(known_enter_min, |x| (2..=self.window_rounds).contains(&x), "2..=window_rounds");
        within!(known_leave_min, |x| (1..=self.window_rounds).contains(&x), "1..=window_rounds");
        within!(duty_enter, |x| x > 0.0 && share(x), "above 0 %, at most 100 %");
        within!(duty_leave, |x| x >= 0.0 && x < self.duty_enter, "at least 0 %, below duty_enter");
        within!(flap_enter_max, share, "0 % to 100 %");
        within!(flap_leave_min, |x| share(x) && x >= self.flap_enter_max, "flap_enter_max to 100 %");
        within!(holdout_share, |x| (0.01..=0.5).contains(&x), "1 % to 50 %");
        within!(epoch_rounds, |x| (2..=10_000).contains(&x), "2..=10000");
        within!(switchback_rounds, |x| (1..=10_000).contains(&x), "1..=10000");
        within!(switchback_every, |x| (2..=16).contains(&x), "2..=16");
        within!(
            washout_rounds,
            |x| x < self.epoch_rounds && x < self.switchback_rounds,
            "less than epoch_rounds and switchback_rounds"
        );
        within!(effect_blocks, |x| (8..=256).contains(&x), "8..=256");
        within!(resamples, |x| (100..=10_000).contains(&x), "100..=10000");
        within!(level, level, "50 % or more, below 100 %");
        within!(rollback_level, level, "50 % or more, below 100 %");
        within!(rollback_blocks_min, |x| (5..=self.effect_blocks).contains(&x), "5..=effect_blocks");
        within!(trial_rounds, |x| x <= 10_000, "0..=10000");
        within!(networks_max, |x| (1..=4_000_000).contains(&x), "1..=4000000");
        within!(idle_rounds, |x| x >= self.window_rounds, "at least window_rounds");
        if self.rules.len() > RULES_MAX {
            return Err(ConfigError::TooManyRules(self.rules.len()));
        }
        for (i, rule) in self.rules.iter().enumerate() {
            rule.check(&self.rules[..i])?;
        }
        self.limits.check()
    }

    /// The rules that decide nothing on a host whose default is `baseline`: they choose what is in use anyway.
    pub fn coinciding<'a>(&'a self, baseline: &'a CcName) -> impl Iterator<Item = &'a Rule> {
        self.rules.iter().filter(move |r| r.cc == *baseline)
    }

    /// The congestion controls that are asked for here and are not among the `available`: what needs them is refused.
    pub fn unavailable(&self, available: &[CcName]) -> impl Iterator<Item = CcName> {
        self.rules.iter().map(|rule| rule.cc).chain(self.default_cc).filter(|cc| !available.contains(cc))
    }
}
