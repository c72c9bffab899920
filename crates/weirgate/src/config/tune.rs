//! `[tune]`: the settings of the decision process, typed and meant.
//!
//! What each is for, its bounds and the argument for its default stand at [`weirgate_tune::Config`]; its own
//! `check` refuses what is out of bounds, and the problem is given the line where it was typed.

use std::str::FromStr;

use weirgate_linux::route_cc::RouteCc;
use weirgate_sockets::sample::CcName;
use weirgate_tune::{Config, ConfigError, Group, Metric, RULES_MAX, Rule};
use weirgate_units::{Duration, Prefix};

use super::read::{Problem, Section, Typed};
use super::typed::{self, Maybe};
use super::{Mode, Steer, Tune, between, directory, or};

/// `[tune]` as typed.
#[derive(Debug)]
pub(super) struct TypedTune {
    mode: Maybe<Mode>,
    steer: Maybe<Steer>,
    pins: Maybe<String>,
    life: Maybe<Duration>,
    route_table: Maybe<u64>,
    route_priority: Maybe<u64>,
    default_cc: Maybe<Cc>,
    server_ports: Maybe<Vec<u16>>,
    exclude: Maybe<Vec<Prefix>>,
    metric: Maybe<TypedMetric>,
    settings: Settings,
    limits: Limits,
    rules: Option<Vec<TypedRule>>,
}

#[derive(Debug)]
struct TypedRule {
    line: usize,
    name: Maybe<String>,
    cc: Maybe<Name>,
    worst_share: Maybe<Share>,
    min_rtt_min: Maybe<Duration>,
    min_rtt_max: Maybe<Duration>,
    retransmit_min: Maybe<Share>,
    retransmit_max: Maybe<Share>,
}

/// Keys that stand for one field each. A key listed here is read, carried over and found again when it is refused.
macro_rules! settings {
    ($name:ident for $target:ty { $($key:ident: $how:ident),* $(,)? }) => {
        #[derive(Debug)]
        struct $name { $($key: settings!(@typed $how)),* }

        impl $name {
            fn read(s: &mut Section<'_>) -> Self {
                Self { $($key: settings!(@read $how s stringify!($key))),* }
            }

            /// Carries what was typed over to `to`.
            fn carry(&self, to: &mut $target) {
                $(if let Some(typed) = &self.$key { to.$key = settings!(@value $how typed); })*
            }

            /// Where `key` was typed.
            fn place(&self, key: &str) -> Option<(usize, String)> {
                match key {
                    $(stringify!($key) => self.$key.as_ref().map(|typed| (typed.line, typed.key.clone())),)*
                    _ => None,
                }
            }
        }
    };
    (@typed number) => { Maybe<u64> };
    (@typed small) => { Maybe<u64> };
    (@typed boolean) => { Maybe<bool> };
    (@typed share) => { Maybe<Share> };
    (@typed time) => { Maybe<Duration> };
    (@typed amount) => { Maybe<weirgate_units::Bytes> };
    (@read number $s:ident $key:expr) => { $s.integer($key, 0, u64::from(u32::MAX)) };
    (@read small $s:ident $key:expr) => { $s.integer($key, 0, 255) };
    (@read boolean $s:ident $key:expr) => { $s.boolean($key) };
    (@read $parsed:ident $s:ident $key:expr) => { $s.parsed($key) };
    (@value number $typed:ident) => { $typed.value as u32 };
    (@value small $typed:ident) => { $typed.value as u8 };
    (@value share $typed:ident) => { $typed.value.0 };
    (@value $same:ident $typed:ident) => { $typed.value };
}

settings!(Settings for Config {
    round: time,
    network_len_v4: small,
    network_len_v6: small,
    vote_bytes_min: amount,
    limited_share_max: share,
    votes_min: number,
    networks_min: number,
    window_rounds: number,
    known_enter_min: number,
    known_leave_min: number,
    duty_enter: share,
    duty_leave: share,
    flap_enter_max: share,
    flap_leave_min: share,
    dwell_rounds: number,
    holdout_share: share,
    epoch_rounds: number,
    washout_rounds: number,
    holdout_clients_min: number,
    switchback_rounds: number,
    switchback_every: number,
    effect_blocks: number,
    resamples: number,
    level: share,
    rollback_level: share,
    rollback_blocks_min: number,
    bar_rounds: number,
    networks_max: number,
    idle_rounds: number,
    detail_max: number,
    switch_after: amount,
    stay: boolean,
    cap_start: boolean,
});

settings!(Limits for weirgate_tune::Limits {
    networks_max: number,
    selected_share_max: share,
    changed_share_max: share,
    changed_free: number,
    changed_traffic_max: share,
    data_age_max: time,
});

pub(super) fn read(s: &mut Section<'_>) -> TypedTune {
    TypedTune {
        mode: s.parsed("mode"),
        steer: s.parsed("steer"),
        pins: s.parsed("pins"),
        life: s.parsed("life"),
        // 253 to 255 are default, main and local; the main table's rule is 32,766.
        route_table: s.integer("route_table", 256, u64::from(u32::MAX)),
        route_priority: s.integer("route_priority", 1, 32_765),
        default_cc: s.parsed("default_cc"),
        server_ports: s.ports("server_ports"),
        exclude: s.list("exclude"),
        metric: s.parsed("metric"),
        settings: Settings::read(s),
        limits: s.table("limits", Limits::read),
        rules: s.tables("rules", |s, line| TypedRule {
            line,
            name: s.parsed("name"),
            cc: s.parsed("cc"),
            worst_share: s.parsed("worst_share"),
            min_rtt_min: s.parsed("min_rtt_min"),
            min_rtt_max: s.parsed("min_rtt_max"),
            retransmit_min: s.parsed("retransmit_min"),
            retransmit_max: s.parsed("retransmit_max"),
        }),
    }
}

pub(super) fn meaning(typed: TypedTune, problems: &mut Vec<Problem>) -> Tune {
    let mut controller = Config::default();
    typed.settings.carry(&mut controller);
    typed.limits.carry(&mut controller.limits);
    controller.server_ports = typed.server_ports.map_or_else(Vec::new, |ports| ports.value);
    if let Some(exclude) = &typed.exclude
        && let Some((inner, outer)) = overlap(&exclude.value)
    {
        problems.push(exclude.problem(format!("{inner} lies within {outer}: leave out one of the two")));
    }
    controller.exclude = or(typed.exclude, Vec::new());
    controller.metric = or(typed.metric, TypedMetric(Metric::default())).0;
    controller.default_cc = match or(typed.default_cc, Cc::System) {
        Cc::System => None,
        Cc::Named(name) => Some(name),
    };
    if let Some(rules) = typed.rules {
        if let Some(excess) = rules.get(RULES_MAX) {
            let what = ConfigError::TooManyRules(rules.len()).to_string();
            problems.push(Problem { line: excess.line, key: "tune.rules".to_owned(), what });
        }
        controller.rules = Vec::new();
        for typed in rules.into_iter().take(RULES_MAX) {
            let sound = rule(typed, &controller.rules, problems);
            controller.rules.extend(sound);
        }
    }
    if let (Some(Mode::Apply), true, Some(typed)) =
        (typed.mode.as_ref().map(|mode| mode.value), controller.server_ports.is_empty(), &typed.mode)
    {
        problems.push(typed.problem(
            "`apply` needs `server_ports`: the ports whose accepted connections may be changed, as [80, 443]",
        ));
    }
    if let Err(error) = controller.check() {
        let place = keys(&error).find_map(|key| typed.settings.place(key).or_else(|| typed.limits.place(key)));
        let (line, key) = place.unwrap_or_else(|| (0, "tune".to_owned()));
        problems.push(Problem { line, key, what: error.to_string() });
    }
    let routes = RouteCc::default();
    Tune {
        mode: or(typed.mode, Mode::default()),
        steer: or(typed.steer, Steer::default()),
        pins: directory(typed.pins, problems).unwrap_or_else(|| "/sys/fs/bpf/weirgate".into()),
        life: between(typed.life, "15 s", "1 h", "60 s", problems),
        routes: RouteCc {
            table: or(typed.route_table.map(narrow), routes.table),
            priority: or(typed.route_priority.map(narrow), routes.priority),
        },
        controller,
    }
}

impl TypedTune {
    /// The round that this comes to.
    pub(super) fn round(&self) -> Duration {
        self.settings.round.as_ref().map_or(Config::default().round, |round| round.value)
    }
}

/// Two of `prefixes` that share addresses, the one within the other first.
fn overlap(prefixes: &[Prefix]) -> Option<(Prefix, Prefix)> {
    let mut sorted = prefixes.to_vec();
    // What lies within a network then follows it, with nothing between but what lies within it too.
    sorted.sort_by_key(|prefix| (prefix.address(), prefix.len()));
    sorted.windows(2).find(|two| two[0].overlaps(two[1])).map(|two| (two[1], two[0]))
}

/// The keys that `error` may be put right at: its own, else another that it has to agree with.
fn keys(error: &ConfigError) -> impl Iterator<Item = &'static str> {
    let (key, bounds) = match error {
        ConfigError::Range { key, bounds, .. } => (*key, *bounds),
        ConfigError::RuleName(_) => ("name", ""),
        ConfigError::TooManyRules(_) => ("rules", ""),
    };
    std::iter::once(key).chain(bounds.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
}

/// The reader's bound was 32 bits.
fn narrow(typed: Typed<u64>) -> Typed<u32> {
    Typed { value: typed.value as u32, line: typed.line, key: typed.key }
}

impl TypedRule {
    /// Where `key` was typed.
    fn place(&self, key: &str) -> Option<(usize, String)> {
        fn of<T>(typed: &Maybe<T>) -> Option<(usize, String)> {
            typed.as_ref().map(|typed| (typed.line, typed.key.clone()))
        }
        match key {
            "name" => of(&self.name),
            "cc" => of(&self.cc),
            "worst_share" => of(&self.worst_share),
            "min_rtt_min" => of(&self.min_rtt_min),
            "min_rtt_max" => of(&self.min_rtt_max),
            "retransmit_min" => of(&self.retransmit_min),
            "retransmit_max" => of(&self.retransmit_max),
            _ => None,
        }
    }
}

/// The rule that was typed, where it is sound; `before` are those that stand above it.
fn rule(typed: TypedRule, before: &[Rule], problems: &mut Vec<Problem>) -> Option<Rule> {
    let mut missing = |what: &str| {
        let key = "tune.rules".to_owned();
        problems.push(Problem { line: typed.line, key, what: format!("a rule needs {what}") });
    };
    if typed.name.is_none() {
        missing("a `name`, by which decisions speak of it");
    }
    if typed.cc.is_none() {
        missing("a `cc`: what its networks are sent to with, as \"bbr\"");
    }
    let share = |typed: &Maybe<Share>, default: f64| typed.as_ref().map_or(default, |typed| typed.value.0);
    let time = |typed: &Maybe<Duration>, default| typed.as_ref().map_or(default, |typed| typed.value);
    let rule = Rule {
        name: typed.name.as_ref()?.value.clone(),
        cc: typed.cc.as_ref()?.value.0,
        group: Group {
            worst_share: typed.worst_share.as_ref().map(|typed| typed.value.0),
            min_rtt_min: time(&typed.min_rtt_min, Duration::ZERO),
            min_rtt_max: time(&typed.min_rtt_max, Duration::MAX),
            retransmit_min: share(&typed.retransmit_min, 0.0),
            retransmit_max: share(&typed.retransmit_max, 1.0),
        },
    };
    if let Err(error) = rule.check(before) {
        let place = keys(&error).find_map(|key| typed.place(key));
        let (line, key) = place.unwrap_or_else(|| (typed.line, "tune.rules".to_owned()));
        problems.push(Problem { line, key, what: error.to_string() });
        return None;
    }
    Some(rule)
}

/// A share, written in percent, held as 0..=1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Share(pub(super) f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let number = s.trim().strip_suffix('%').map(str::trim_end);
        let plain = |n: &str| n.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        match number.filter(|n| plain(n)).and_then(|n| n.parse::<f64>().ok()) {
            Some(percent) if (0.0..=100.0).contains(&percent) => Ok(Self(percent / 100.0)),
            _ => Err(format!("`{s}` is not a share: write a number of 0 to 100 and %, as \"20 %\"")),
        }
    }
}

/// A congestion control's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name(CcName);

impl FromStr for Name {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        CcName::new(s).map(Self).ok_or_else(|| {
            format!(
                "`{s}` is not a congestion control: write a name of 1 to 15 letters, as in \
                 `sysctl net.ipv4.tcp_available_congestion_control`"
            )
        })
    }
}

/// A congestion control, or whatever the system's default is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cc {
    System,
    Named(CcName),
}

impl FromStr for Cc {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "system" => Ok(Self::System),
            name => name.parse().map(|Name(name)| Self::Named(name)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TypedMetric(Metric);

impl FromStr for TypedMetric {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        typed::word(s, &[("goodput", Metric::Goodput), ("delivery-rate", Metric::DeliveryRate)]).map(Self)
    }
}
