//! Who is selected, who is not, and who stays.

mod world;

use weirgate_sockets::sample::Arm;
use weirgate_tune::decision::Design;
use weirgate_tune::synthetic::{Class, Scenario, Spread};
use weirgate_tune::{Config, Controller, Refusal, Rule, What, Why};
use weirgate_units::{Bytes, Duration, UnixTime};
use world::*;

#[test]
fn the_lossy_are_chosen_and_the_clean_and_the_flapping_are_not() {
    for seed in 1..=4 {
        let (controller, rounds, classes) = run(Config::default(), Scenario::mixed(100, 120, seed));
        assert_eq!(count(&rounds, &classes, "lossy", is_select), 14, "seed {seed}");
        assert_eq!(count(&rounds, &classes, "clean", is_select), 0, "seed {seed}");
        assert_eq!(count(&rounds, &classes, "flapping", is_select), 0, "seed {seed}");
        assert_eq!(controller.policy().networks.len(), rounds.last().unwrap().stats.selected as usize);
    }
}

#[test]
fn flapping_networks_are_never_chosen_whatever_their_rhythm() {
    for period in [1, 2, 3, 5, 8, 12] {
        let flapping = Class {
            alternates: Some((state(3, 110, 0.01, 4.0), period)),
            ..class("flapping", 12, state(50, 15, 0.0, 1.0))
        };
        let classes = vec![class("fast", 48, state(50, 15, 0.0, 1.0)), flapping];
        // Equal when clean: one that is among the worst in both of its states does not flap.
        let spread = Spread { networks: 0.0, clients: 0.4, connections: 0.5, rounds: 0.1 };
        let scenario = Scenario { classes, spread, connections: 10, ..Scenario::mixed(10, 150, u64::from(period)) };
        let (_, rounds, classes) = run(Config::default(), scenario);
        assert_eq!(count(&rounds, &classes, "flapping", is_select), 0, "turns of {period} rounds");
    }
}

#[test]
fn a_perfect_treatment_never_leaves_by_its_own_success() {
    for (clients, design) in [(100, Design::Holdout), (5, Design::Switchback)] {
        let scenario = Scenario { clients, ..two_classes(10, 30.0, 200, 3) };
        let (controller, rounds, classes) = run(Config::default(), scenario);
        assert_eq!(count(&rounds, &classes, "slow", is_select), 10);
        assert_eq!(count(&rounds, &classes, "slow", |w| matches!(w, What::Release | What::RollBack)), 0, "{design:?}");
        for effect in controller.network_effects().filter(|e| classes[&e.network] == "slow") {
            assert_eq!(effect.design, design);
            let ratio = effect.goodput.unwrap().ratio;
            assert!((20.0..45.0).contains(&ratio), "{design:?}: {effect:?}");
            // Its treated clients are well above the threshold; it is judged by the others.
            let explained = controller.explain(effect.network);
            let seen = explained.rounds.iter().find(|r| r.votes.is_some()).unwrap();
            let (median, threshold) = (seen.votes.unwrap().1, seen.threshold.unwrap());
            assert!(median < threshold, "{explained}");
            assert!(median.as_bits_per_sec() as f32 * ratio > threshold.as_bits_per_sec() as f32, "{explained}");
        }
    }
}

#[test]
fn noise_alone_selects_nobody() {
    // 300 equal networks: each round 60 of them are the worst by chance (regression to the mean).
    let spread = Spread { networks: 0.0, clients: 0.0, connections: 0.8, rounds: 0.3 };
    for seed in 1..=3 {
        let classes = vec![class("equal", 300, state(20, 30, 0.001, 1.0))];
        let scenario = Scenario { classes, spread, connections: 6, ..Scenario::mixed(10, 200, seed) };
        let (_, rounds, classes) = run(Config::default(), scenario);
        let members: u32 = rounds.iter().map(|r| r.stats.members[0]).sum();
        assert!(members > 50 * 200, "there was a worst group: {members}");
        assert_eq!(count(&rounds, &classes, "", is_select), 0, "seed {seed}");
    }
}

#[test]
fn a_network_that_recovers_is_released_after_the_dwell_and_says_why() {
    let config = quick();
    let mut controller = Controller::new(config.clone(), host("cubic")).unwrap();
    let (mut seen, mut missing) = (Vec::new(), Vec::new());
    for n in 1..=60 {
        for network in 0..10u8 {
            for client in 0..40u8 {
                let slow = network == 0 && n <= 24;
                let client = format!("192.0.{network}.{client}");
                let mut vote = vote(&client, if slow { 2.0 } else { 60.0 - f64::from(network) });
                if controller.policy().networks.iter().any(|(p, _)| p.contains(vote.client)) {
                    vote.arm = match controller.policy().holdout.holds(vote.client) {
                        true => Arm::Holdout,
                        false => Arm::Treated,
                    };
                }
                controller.handle_progress(&vote);
            }
        }
        let round = controller.end_round(end_of(n), Some(end_of(n)));
        seen.extend(round.decisions.iter().filter(|d| d.network == prefix("192.0.0.0/24")).map(|d| (n, d.what, d.why)));
        missing.push(round.stats.rounds_missing);
    }
    let (at, what, why) = seen[0];
    assert_eq!(missing[..9], [7, 6, 5, 4, 3, 2, 1, 0, 0], "rounds before the first selection");
    assert_eq!((at, what), (config.known_enter_min, What::Select(cc("bbr"))));
    assert!(matches!(why, Why::Consistent { rule: 0, known: 8, .. }), "{why}");
    let (_, what, why) = seen.last().unwrap();
    assert_eq!(*what, What::Release);
    assert!(matches!(why, Why::Recovered { .. }), "{why}");
    println!("{}", controller.explain(prefix("192.0.0.0/24")));
}

#[test]
fn the_other_direction_gives_cubic_to_clean_short_networks_of_a_bbr_host() {
    let rule = Rule::clean_and_short(cc("cubic"));
    let mut config = Config { rules: vec![rule], holdout_clients_min: 1, ..quick() };
    config.limits.selected_share_max = 1.0;
    let mut controller = Controller::new(config, host("bbr")).unwrap();
    for n in 1..=10 {
        for network in 0..6u8 {
            for client in 1..5u8 {
                let mut vote = vote(&format!("192.0.{network}.{client}"), 50.0);
                vote.cc = cc("bbr");
                vote.min_rtt = Duration::from_millis(if network < 2 { 5 } else { 50 });
                vote.retransmitted = Bytes::new(if network == 1 { 20_000 } else { 0 });
                controller.handle_progress(&vote);
            }
        }
        controller.end_round(end_of(n), Some(end_of(n)));
    }
    assert_eq!(controller.policy().networks, [(prefix("192.0.0.0/24"), cc("cubic"))], "1 loses, the others are far");
}

#[test]
fn a_rule_that_chooses_what_the_host_runs_on_anyway_selects_nothing() {
    let mut controller = Controller::new(quick(), host("bbr")).unwrap();
    let bbr = cc("bbr");
    assert_eq!(controller.config().coinciding(&bbr).count(), 1);
    for n in 1..=20 {
        for network in 0..10u8 {
            for client in 1..5u8 {
                let mut vote = vote(&format!("192.0.{network}.{client}"), if network == 0 { 1.0 } else { 50.0 });
                vote.cc = bbr;
                controller.handle_progress(&vote);
            }
        }
        let round = controller.end_round(end_of(n), Some(end_of(n)));
        assert!(round.policy.is_none() && round.decisions.is_empty());
    }
    let text = controller.explain(prefix("192.0.0.0/24")).to_string();
    assert!(text.contains("chooses what the host runs on anyway"), "{text}");
}

/// Ten networks, the first slow, in round `n`.
fn feed(controller: &mut Controller) {
    for network in 0..10u8 {
        for client in 1..5u8 {
            controller
                .handle_progress(&vote(&format!("192.0.{network}.{client}"), if network == 0 { 1.0 } else { 50.0 }));
        }
    }
}

#[test]
fn a_refused_policy_leaves_the_last_good_one_in_force() {
    let mut controller = Controller::new(quick(), host("cubic")).unwrap();
    let mut without_bbr = host("cubic");
    without_bbr.available_cc.retain(|c| *c != cc("bbr"));
    controller.handle_host(without_bbr);
    for n in 1..=8 {
        feed(&mut controller);
        let round = controller.end_round(end_of(n), Some(end_of(n)));
        assert_eq!(round.refusal.is_some(), n == 8);
        if let Some(refusal) = round.refusal {
            assert_eq!(refusal, Refusal::UnknownCc { network: prefix("192.0.0.0/24"), cc: cc("bbr") });
            assert!(refusal.to_string().contains("modprobe tcp_bbr"), "{refusal}");
            assert_eq!(round.decisions[0].what, What::Refuse);
        }
        assert!(round.policy.is_none());
    }
    assert_eq!(controller.policy().version, 0);
    // The reason is gone: the next round selects.
    controller.handle_host(host("cubic"));
    feed(&mut controller);
    let policy = controller.end_round(end_of(9), Some(end_of(9))).policy.unwrap();
    assert_eq!((policy.version, policy.networks.len()), (1, 1));
}

#[test]
fn old_measurements_and_empty_rounds_change_nothing() {
    let mut controller = Controller::new(quick(), host("cubic")).unwrap();
    for n in 1..=7 {
        feed(&mut controller);
        controller.end_round(end_of(n), Some(end_of(n)));
    }
    // The eighth would select; its measurements are an hour old, and it is not even counted as known.
    feed(&mut controller);
    let old = UnixTime::from_nanos(end_of(8).as_nanos() - 3_600_000_000_000);
    let round = controller.end_round(end_of(8), Some(old));
    assert!(round.policy.is_none());
    assert_eq!(controller.explain(prefix("192.0.0.0/24")).known, 7);
    // Nobody comes: nothing changes.
    for n in 9..=12 {
        let round = controller.end_round(end_of(n), None);
        assert!(round.policy.is_none() && round.refusal.is_none());
    }
    feed(&mut controller);
    assert!(controller.end_round(end_of(13), Some(end_of(13))).policy.is_some());
    // Rounds in which something would change, its turn or the epoch. Nobody came: the policy stays, and nothing is wrong.
    let mut quiet = 0;
    for n in 14..=18 {
        let round = controller.end_round(end_of(n), Some(end_of(n)));
        assert!(round.policy.is_none() && round.refusal.is_none() && round.decisions.is_empty());
        quiet += u32::from(round.quiet == Some(Refusal::NothingSeen));
    }
    assert!(quiet > 0);
    // Nobody looked: that is.
    let faults = (19..=23).filter(|n| controller.end_round(end_of(*n), None).refusal == Some(Refusal::Unmeasured));
    assert!(faults.count() > 0);
    assert_eq!(controller.policy().networks.len(), 1);
}

#[test]
fn votes_are_counted_or_said_why_not() {
    let config = Config { server_ports: vec![443], ..quick() };
    let mut controller = Controller::new(config, host("cubic")).unwrap();
    let good = vote("192.0.2.1", 10.0);
    let backend = weirgate_sockets::record::Direction::Connected;
    for progress in [
        good,
        weirgate_sockets::progress::Progress { direction: backend, ..good },
        weirgate_sockets::progress::Progress { local_port: 22, ..good },
        weirgate_sockets::progress::Progress { acked: Bytes::new(99_999), ..good },
        weirgate_sockets::progress::Progress { busy: Duration::ZERO, ..good },
        weirgate_sockets::progress::Progress { cc: cc("reno"), ..good },
        weirgate_sockets::progress::Progress { rwnd_limited: good.busy, ..good },
    ] {
        controller.handle_progress(&progress);
    }
    let stats = controller.end_round(end_of(1), Some(end_of(1))).stats;
    let i = stats.ignored;
    assert_eq!((i.direction, i.port, i.small, i.no_metric, i.own_cc, i.limited), (1, 1, 1, 1, 1, 1));
    assert_eq!((stats.connections, stats.votes_none, stats.networks_tracked), (7, 2, 1));
    let text = controller.explain(prefix("192.0.2.0/24")).to_string();
    assert!(text.contains("fewer than 5 networks had 3 votes each (connections without one"), "{text}");
    assert!(text.contains("1 delivered less than vote_bytes_min, ") && text.contains("limited_share_max)"), "{text}");
}

#[test]
fn a_person_takes_the_treatment_back() {
    let mut controller = Controller::new(quick(), host("cubic")).unwrap();
    for n in 1..=8 {
        feed(&mut controller);
        controller.end_round(end_of(n), Some(end_of(n)));
    }
    assert_eq!(controller.policy().networks.len(), 1);
    let (policy, decisions) = controller.clear(None);
    assert_eq!((policy.networks.len(), policy.version, decisions.len()), (0, 2, 1));
    assert_eq!((decisions[0].what, decisions[0].why), (What::Release, Why::Admin));
    assert!(controller.is_valid());
    for n in 9..=20 {
        feed(&mut controller);
        assert!(controller.end_round(end_of(n), Some(end_of(n))).policy.is_none(), "barred");
    }
}

#[test]
fn the_books_are_bounded_and_say_what_was_forgotten() {
    let config = Config { networks_max: 100, idle_rounds: 20, ..quick() };
    let mut controller = Controller::new(config, host("cubic")).unwrap();
    let (mut evicted, mut untracked, mut expired) = (0, 0, 0);
    for n in 1..=40u32 {
        for network in 0..30 {
            let number = n * 30 + network;
            controller.handle_progress(&vote(&format!("10.{}.{}.1", number / 256, number % 256), 10.0));
        }
        let stats = controller.end_round(end_of(n), Some(end_of(n))).stats;
        assert!(stats.networks_tracked <= 100);
        (evicted, untracked, expired) = (evicted + stats.evicted, untracked + stats.untracked, expired + stats.expired);
    }
    assert!(evicted > 500 && controller.is_valid(), "{evicted} evicted, {untracked} untracked");
    for n in 41..=70 {
        expired += controller.end_round(end_of(n), None).stats.expired;
    }
    assert!(expired > 30 && controller.is_valid());
}

#[test]
fn changes_are_paced_worst_first() {
    let mut config = quick();
    config.limits.changed_free = 2;
    config.limits.changed_share_max = 0.01;
    let (_, rounds, classes) = run(config, two_classes(10, 2.0, 40, 5));
    assert!(rounds.iter().all(|r| r.stats.new + r.stats.gone <= 2));
    assert_eq!(count(&rounds, &classes, "slow", is_select), 10);
    assert!(count(&rounds, &classes, "", |w| *w == What::Defer) > 0);
}

#[test]
fn what_is_only_shown_is_said_to_be_and_does_not_alternate() {
    let network = prefix("192.0.0.0/24");
    let turns = |applied: bool| {
        let mut controller = Controller::new(quick(), host("cubic")).unwrap();
        controller.handle_mode(applied);
        let mut turns = 0;
        for n in 1..=40 {
            feed(&mut controller);
            let round = controller.end_round(end_of(n), Some(end_of(n)));
            turns += round.decisions.iter().filter(|d| matches!(d.what, What::Pause | What::Resume(_))).count();
        }
        (turns, controller)
    };
    // Its four clients are too few for a holdout.
    let (applied, mut controller) = turns(true);
    assert!(applied > 2, "{applied} turns");
    let text = controller.explain(network).to_string();
    assert!(text.starts_with("192.0.0.0/24: sent to with bbr since round 8\n"), "{text}");
    // A switchback that is under way when nothing is applied any more ends.
    controller.handle_mode(false);
    for n in 41..=60 {
        feed(&mut controller);
        let round = controller.end_round(end_of(n), Some(end_of(n)));
        assert!(round.decisions.iter().all(|d| d.what != What::Pause), "{:?}", round.decisions);
    }
    assert_eq!(controller.policy().networks.len(), 1);
    let (shown, controller) = turns(false);
    assert_eq!((shown, controller.policy().networks.len()), (0, 1));
    let text = controller.explain(network).to_string();
    let said = "192.0.0.0/24: would be sent to with bbr since round 8 (observe: nothing is applied)\n";
    assert!(text.starts_with(said), "{text}");
    assert!(!text.contains("effect"), "there is none: {text}");
}

#[test]
fn a_pause_of_the_daemon_counts_as_unknown_rounds() {
    let mut controller = Controller::new(quick(), host("cubic")).unwrap();
    for n in [1, 2, 3, 4, 5, 30] {
        feed(&mut controller);
        controller.end_round(end_of(n), Some(end_of(n)));
    }
    assert_eq!(controller.round().0, 30);
    assert_eq!(controller.explain(prefix("192.0.0.7/32")).known, 1, "the window of 16 rounds holds the last one only");
}
