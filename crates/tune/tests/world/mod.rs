//! What the tests share: hosts, hand-made votes, and worlds run to their end.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;

use weirgate_sockets::progress::Progress;
use weirgate_sockets::record::Direction;
use weirgate_sockets::sample::{Arm, CcName};
use weirgate_tune::replay::replay;
use weirgate_tune::synthetic::{Class, Scenario, State, Synthetic};
use weirgate_tune::{Config, Controller, Host, Round, What};
use weirgate_units::{BitRate, Bytes, Duration, Prefix, UnixTime};

pub(crate) fn cc(name: &str) -> CcName {
    CcName::new(name).unwrap()
}

/// A host that runs on `system` and offers cubic, bbr and reno.
pub(crate) fn host(system: &str) -> Host {
    Host { available_cc: vec![cc("cubic"), cc("bbr"), cc("reno")], system_cc: Some(cc(system)) }
}

pub(crate) fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

/// A connection that delivered 1 MB at `mbit` to `client`, untreated, 30 ms away.
pub(crate) fn vote(client: &str, mbit: f64) -> Progress {
    let acked = Bytes::new(1_000_000);
    Progress {
        client: client.parse().unwrap(),
        local_port: 443,
        direction: Direction::Accepted,
        cc: cc("cubic"),
        arm: Arm::None,
        acked,
        sent: acked,
        retransmitted: Bytes::ZERO,
        busy: Duration::from_nanos((8e9 / mbit) as u64),
        rwnd_limited: Duration::ZERO,
        sndbuf_limited: Duration::ZERO,
        delivery_rate: Some(BitRate::from_bits_per_sec((mbit * 1e6) as u64)),
        min_rtt: Duration::from_millis(30),
        closed: true,
    }
}

/// When round `n` ends, at rounds of five minutes.
pub(crate) fn end_of(n: u32) -> UnixTime {
    UnixTime::from_nanos(1_700_000_000_000_000_000) + Duration::from_secs(300 * u64::from(n))
}

pub(crate) fn state(mbit: u64, rtt_ms: u64, retransmit: f64, effect: f64) -> State {
    State {
        goodput: BitRate::from_bits_per_sec(mbit * 1_000_000),
        min_rtt: Duration::from_millis(rtt_ms),
        retransmit,
        effect,
        retransmit_treated: retransmit * 2.0,
    }
}

pub(crate) fn class(name: &'static str, networks: u32, state: State) -> Class {
    Class { name, networks, state, alternates: None }
}

/// `slow` networks of 3 Mbit/s whose treatment multiplies goodput by `effect`, four times as many of 50 Mbit/s: the worst
/// 20 % are the slow.
pub(crate) fn two_classes(slow: u32, effect: f64, rounds: u32, seed: u64) -> Scenario {
    let classes =
        vec![class("slow", slow, state(3, 110, 0.01, effect)), class("fast", slow * 4, state(50, 15, 0.0002, 1.0))];
    Scenario { classes, silent: 0.0, ..Scenario::mixed(10, rounds, seed) }
}

/// Short windows and epochs, so that much happens in few rounds.
pub(crate) fn quick() -> Config {
    Config {
        window_rounds: 16,
        known_enter_min: 8,
        known_leave_min: 4,
        dwell_rounds: 4,
        epoch_rounds: 4,
        switchback_rounds: 2,
        bar_rounds: 20,
        resamples: 400,
        seed: 7,
        ..Config::default()
    }
}

/// Runs `scenario` to its end; the controller, its rounds, and the class of each network.
pub(crate) fn run(config: Config, scenario: Scenario) -> (Controller, Vec<Round>, BTreeMap<Prefix, &'static str>) {
    let mut world = Synthetic::new(scenario);
    let classes: BTreeMap<_, _> = world.networks().collect();
    let mut controller = Controller::new(config, host("cubic")).unwrap();
    let mut rounds = Vec::new();
    replay(&mut controller, &mut world, &mut |_, round| {
        rounds.push(round.clone());
        true
    });
    check_dwell(&rounds, controller.config());
    (controller, rounds, classes)
}

/// No network is selected and released, or released and selected, within the dwell; none that is barred is selected.
pub(crate) fn check_dwell(rounds: &[Round], config: &Config) {
    let mut changed: BTreeMap<Prefix, (u32, What)> = BTreeMap::new();
    for round in rounds {
        for decision in &round.decisions {
            let (network, what) = (decision.network, decision.what);
            if !matches!(what, What::Select(_) | What::Release | What::RollBack) {
                continue;
            }
            if let Some((at, before)) = changed.insert(network, (round.number, what)) {
                let least = match (before, what) {
                    (_, What::RollBack) => 0,
                    (What::RollBack, _) => config.bar_rounds,
                    _ => config.dwell_rounds,
                };
                assert!(round.number - at >= least, "{network}: {before} in round {at}, {what} in {}", round.number);
            }
        }
    }
}

/// How often a decision of this kind was taken on networks of a class (or of all classes, `""`).
pub(crate) fn count(rounds: &[Round], classes: &BTreeMap<Prefix, &str>, class: &str, what: fn(&What) -> bool) -> usize {
    let decisions = rounds.iter().flat_map(|r| &r.decisions);
    decisions.filter(|d| what(&d.what) && (class.is_empty() || classes.get(&d.network) == Some(&class))).count()
}

pub(crate) fn is_select(what: &What) -> bool {
    matches!(what, What::Select(_))
}
