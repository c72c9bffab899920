//! Each reason to refuse a policy, and what must be possible.

mod world;

use weirgate_tune::{Facts, Holdout, Limits, Policy, Refusal, validate};
use weirgate_units::{Bytes, Duration, Prefix};
use world::*;

fn policy(version: u32, networks: &[&str]) -> Policy {
    Policy {
        version,
        networks: networks.iter().map(|n| (prefix(n), cc("bbr"))).collect(),
        holdout: Holdout { seed: 1, epoch: 0, share_ppm: 100_000 },
        default_cc: None,
        switch_after: Bytes::new(100_000),
        stay: false,
        cap_start: true,
    }
}

/// `n` networks from 10.`from`.0.0/24 on.
fn many(version: u32, from: u32, n: u32) -> Policy {
    let network = |i: u32| Prefix::of(core::net::Ipv4Addr::from_bits(0x0a00_0000 + ((from + i) << 8)).into(), 24);
    Policy { networks: (0..n).map(|i| (network(i), cc("bbr"))).collect(), ..policy(version, &[]) }
}

fn check<'a>(old: &Policy, new: &Policy, change: impl FnOnce(&mut Facts<'a>)) -> Result<(), Refusal> {
    let mut facts = Facts {
        available_cc: Vec::leak(vec![cc("cubic"), cc("bbr")]),
        data_age: Some(Duration::from_secs(1)),
        connections: 1_000,
        votes: 1_000,
        metric_above_zero: true,
        networks_tracked: 1_000,
        traffic: Bytes::new(1_000_000),
        traffic_of: &|_| Bytes::new(1_000),
        alternating: &[],
    };
    change(&mut facts);
    validate(old, new, &facts, &Limits::default())
}

#[test]
fn the_first_policy_is_possible_and_so_is_none() {
    assert_eq!(check(&policy(0, &[]), &many(1, 0, 200), |_| ()), Ok(()), "the worst 20 % at once");
    assert_eq!(check(&many(1, 0, 50), &policy(2, &[]), |_| ()), Ok(()));
}

#[test]
fn rounds_without_substance_are_refused() {
    let (old, new) = (policy(0, &[]), policy(1, &["192.0.2.0/24"]));
    assert_eq!(check(&old, &new, |f| f.votes = 0), Err(Refusal::EmptyRound));
    assert_eq!(check(&old, &new, |f| (f.votes, f.connections) = (0, 0)), Err(Refusal::NothingSeen));
    // Nobody there is no fault; nobody looking is one.
    assert!(Refusal::NothingSeen.is_quiet() && Refusal::EmptyRound.is_quiet() && !Refusal::Unmeasured.is_quiet());
    let unlooked = check(&old, &new, |f| (f.data_age, f.votes, f.connections) = (None, 0, 0));
    assert_eq!(unlooked, Err(Refusal::Unmeasured));
    assert_eq!(check(&old, &new, |f| f.metric_above_zero = false), Err(Refusal::ZeroRound));
    let age = Duration::from_secs(901);
    let refusal = check(&old, &new, |f| f.data_age = Some(age)).unwrap_err();
    assert!(
        matches!(refusal, Refusal::Stale { .. }) && refusal.to_string().contains("901 s old, more than 15 min"),
        "{refusal}"
    );
    assert!(matches!(check(&new, &new.clone(), |_| ()), Err(Refusal::OldVersion { version: 1, in_force: 1 })));
}

#[test]
fn unknown_congestion_controls_are_refused() {
    let new = policy(1, &["192.0.2.0/24"]);
    let refusal = check(&policy(0, &[]), &new, |f| f.available_cc = &[]).unwrap_err();
    assert!(refusal.to_string().contains("modprobe tcp_bbr"), "{refusal}");
    let new = Policy { default_cc: Some(cc("vegas")), ..new };
    assert_eq!(check(&policy(0, &[]), &new, |_| ()), Err(Refusal::UnknownDefault { cc: cc("vegas") }));
}

#[test]
fn networks_that_overlap_or_are_out_of_order_are_refused() {
    let refused = |networks: &[&str]| check(&policy(0, &[]), &policy(1, networks), |_| ()).unwrap_err();
    assert!(matches!(refused(&["10.0.0.0/16", "10.0.7.0/24"]), Refusal::Overlap { .. }));
    assert!(matches!(refused(&["10.0.7.0/24", "10.0.7.0/24"]), Refusal::Overlap { .. }));
    assert!(matches!(refused(&["2001:db8::/32", "2001:db8:1::/56"]), Refusal::Overlap { .. }));
    assert!(matches!(refused(&["10.0.8.0/24", "10.0.7.0/24"]), Refusal::Unsorted { .. }));
}

#[test]
fn too_large_and_too_much_at_once_are_refused() {
    let refused = |old: &Policy, new: &Policy| check(old, new, |_| ()).unwrap_err();
    assert!(matches!(
        check(&policy(0, &[]), &many(1, 0, 100_001), |f| f.networks_tracked = 1_000_000).unwrap_err(),
        Refusal::TooLarge { networks: 100_001, max: 100_000 }
    ));
    assert_eq!(
        refused(&policy(0, &[]), &many(1, 0, 1_000)),
        Refusal::TooManySelected { networks: 1_000, tracked: 1_000, max: 500 }
    );
    let old = many(1, 0, 100);
    assert_eq!(refused(&old, &many(2, 51, 100)), Refusal::TooManyChanged { changed: 102, max: 100 });
    assert_eq!(check(&old, &many(2, 50, 100), |_| ()), Ok(()));
    // A change of algorithm is a change.
    let mut other = many(2, 0, 100);
    other.networks[..].iter_mut().for_each(|n| n.1 = cc("cubic"));
    assert_eq!(check(&old, &other, |_| ()), Ok(()));
    let heavy = |p: Prefix| Bytes::new(if p == prefix("10.0.0.0/24") { 400_000 } else { 1_000 });
    let refusal = check(&old, &other, |f| f.traffic_of = &heavy).unwrap_err();
    assert!(matches!(refusal, Refusal::TooMuchTraffic { .. }), "{refusal}");
    let mut one = many(2, 0, 100);
    one.networks[0].1 = cc("cubic");
    assert_eq!(check(&old, &one, |f| f.traffic_of = &heavy), Ok(()), "one network may always change");
    // A planned turn is no change.
    let turns: Vec<Prefix> = old.networks.iter().map(|n| n.0).collect();
    assert_eq!(check(&old, &many(2, 100, 100), |f| f.alternating = &turns), Ok(()));
}

#[test]
fn limits_and_settings_out_of_bounds_are_refused_by_name() {
    let mut config = quick();
    assert_eq!(config.check(), Ok(()));
    config.limits.changed_share_max = 0.0;
    assert!(config.check().unwrap_err().to_string().contains("changed_share_max"));
    let mut config = quick();
    config.duty_leave = config.duty_enter;
    assert!(config.check().unwrap_err().to_string().contains("below duty_enter"));
    let mut config = quick();
    config.rules.push(config.rules[0].clone());
    assert!(config.check().unwrap_err().to_string().contains("unique"));
    config.rules = (0..4).map(|_| weirgate_tune::Rule::worst(cc("bbr"))).collect();
    assert!(config.check().unwrap_err().to_string().contains("at most 3"));
}
