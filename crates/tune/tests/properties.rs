//! What holds for any telemetry: valid, bounded, the same from the same, and nothing lost over a restart.

mod world;

use proptest::prelude::*;
use weirgate_sockets::progress::Progress;
use weirgate_sockets::sample::Arm;
use weirgate_tune::replay::Telemetry;
use weirgate_tune::state::LoadError;
use weirgate_tune::synthetic::{Scenario, Synthetic};
use weirgate_tune::{Config, Controller, Policy, Round, Rule, validate};
use weirgate_units::{Bytes, Duration};
use world::*;

fn any_progress() -> impl Strategy<Value = Progress> {
    let cc = prop_oneof![Just("cubic"), Just("bbr"), Just("reno")];
    let arm = prop_oneof![Just(Arm::None), Just(Arm::Treated), Just(Arm::Holdout)];
    (0u8..6, 0u8..8, any::<bool>(), 0u64..20_000_000, 0u64..10_000_000_000, cc, arm, 0u64..200).prop_map(
        |(network, client, v6, acked, busy, name, arm, rtt)| Progress {
            client: match v6 {
                true => format!("2001:db8:0:{network}00::{client}").parse().unwrap(),
                false => format!("192.0.{network}.{client}").parse().unwrap(),
            },
            acked: Bytes::new(acked),
            sent: Bytes::new(acked + acked / 50),
            retransmitted: Bytes::new(acked / 50),
            busy: Duration::from_nanos(busy),
            cc: cc_of(name),
            arm,
            min_rtt: Duration::from_millis(rtt),
            ..vote("192.0.2.1", 1.0)
        },
    )
}

fn cc_of(name: &str) -> weirgate_sockets::sample::CcName {
    cc(name)
}

/// Selects as fast as it can.
fn eager() -> Config {
    let rules = vec![Rule::worst(cc("bbr")), Rule::clean_and_short(cc("reno"))];
    Config {
        rules,
        votes_min: 1,
        networks_min: 2,
        known_enter_min: 2,
        known_leave_min: 1,
        duty_enter: 0.5,
        flap_enter_max: 1.0,
        flap_leave_min: 1.0,
        dwell_rounds: 1,
        holdout_clients_min: 4,
        networks_max: 9,
        idle_rounds: 16,
        rollback_blocks_min: 5,
        ..quick()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_telemetry_leaves_a_valid_controller_and_a_valid_policy(
        rounds in prop::collection::vec((prop::collection::vec(any_progress(), 0..60), 0u32..4, any::<bool>()), 1..40),
        clear_at in 0usize..60,
    ) {
        let mut controller = Controller::new(eager(), host("cubic")).unwrap();
        let (mut n, mut before) = (0, controller.policy().clone());
        for (i, (progress, gap, fresh)) in rounds.into_iter().enumerate() {
            progress.iter().for_each(|p| controller.handle_progress(p));
            n += gap;
            let round = controller.end_round(end_of(n), fresh.then(|| end_of(n)));
            prop_assert!(controller.is_valid());
            if let Some(policy) = &round.policy {
                prop_assert!(policy.version > before.version && round.refusal.is_none());
                prop_assert!(policy.networks.windows(2).all(|p| p[0].0 < p[1].0 && !p[0].0.overlaps(p[1].0)));
                before = policy.clone();
            }
            prop_assert_eq!(controller.policy(), &before);
            prop_assert!(round.decisions.windows(2).all(|d| d[0].network <= d[1].network));
            if i == clear_at {
                before = controller.clear(None).0;
                prop_assert!(before.networks.is_empty() && controller.is_valid());
            }
            // In the middle of a round too: a daemon stops when it is told to.
            let mut open = Controller::load(eager(), host("cubic"), &controller.save()).unwrap();
            progress.iter().for_each(|p| open.handle_progress(p));
            let resumed = Controller::load(eager(), host("cubic"), &open.save()).unwrap();
            prop_assert!(resumed.is_valid());
            prop_assert_eq!(resumed.policy(), controller.policy());
            // What was saved is what is loaded.
            let bytes = controller.save();
            let loaded = Controller::load(eager(), host("cubic"), &bytes).unwrap();
            prop_assert!(loaded.is_valid());
            prop_assert!(loaded.save() == bytes);
            prop_assert_eq!(loaded.policy(), controller.policy());
            for (network, _) in &before.networks {
                prop_assert_eq!(loaded.explain(*network), controller.explain(*network));
            }
        }
    }

    #[test]
    fn damaged_bytes_are_an_error_and_never_a_panic(at in any::<prop::sample::Index>(), to in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let bytes = saved();
        let mut flipped = bytes.clone();
        let i = at.index(flipped.len());
        flipped[i] = to;
        if flipped != bytes {
            prop_assert!(Controller::load(quick(), host("cubic"), &flipped).is_err());
        }
        prop_assert!(Controller::load(quick(), host("cubic"), &bytes[..cut.index(bytes.len())]).is_err());
    }
}

/// A controller's state after a world with trials, blocks and decisions in it.
fn saved() -> Vec<u8> {
    static SAVED: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    SAVED.get_or_init(|| run(quick(), two_classes(6, 2.0, 50, 3)).0.save()).clone()
}

#[test]
fn states_of_another_kind_are_refused_by_name() {
    let other = Config { round: Duration::from_secs(60), ..quick() };
    assert_eq!(Controller::load(other, host("cubic"), &saved()).unwrap_err(), LoadError::OtherSetting("round"));
    assert_eq!(Controller::load(quick(), host("cubic"), b"something else").unwrap_err(), LoadError::Magic);
    let mut newer = saved();
    newer[4] = 9;
    assert_eq!(Controller::load(quick(), host("cubic"), &newer).unwrap_err(), LoadError::Version(9));
}

#[test]
fn rules_find_their_history_by_name_and_what_lost_its_rule_begins_on_the_default() {
    let before = Controller::load(quick(), host("cubic"), &saved()).unwrap();
    let selected = before.policy().networks.clone();
    assert!(selected.len() >= 6);
    // The same rule in second place.
    let rules = vec![Rule::clean_and_short(cc("reno")), Rule::worst(cc("bbr"))];
    let moved = Controller::load(Config { rules, ..quick() }, host("cubic"), &saved()).unwrap();
    assert_eq!(moved.policy(), before.policy());
    let network = selected[0].0;
    assert_eq!(moved.explain(network).rules[1].duty, before.explain(network).rules[0].duty);
    // The same rule with another algorithm.
    let other =
        Controller::load(Config { rules: vec![Rule::worst(cc("reno"))], ..quick() }, host("cubic"), &saved()).unwrap();
    assert!(other.policy().networks.is_empty() && other.policy().version == before.policy().version + 1);
    assert_eq!(other.explain(network).rules[0].duty, before.explain(network).rules[0].duty);
}

fn rounds_of(controller: &mut Controller, world: &mut Synthetic, n: usize) -> Vec<Round> {
    let mut policy: Policy = controller.policy().clone();
    let mut rounds = Vec::new();
    while rounds.len() < n {
        let Some(end) = world.next_round(&policy, &mut |p| controller.handle_progress(p)) else { break };
        let round = controller.end_round(end, Some(end));
        if let Some(new) = &round.policy {
            policy.clone_from(new);
        }
        rounds.push(round);
    }
    rounds
}

#[test]
fn the_same_calls_give_the_same_rounds_also_over_a_restart() {
    let scenario = Scenario::mixed(60, 80, 4);
    let mut world = Synthetic::new(scenario);
    let mut controller = Controller::new(quick(), host("cubic")).unwrap();
    rounds_of(&mut controller, &mut world, 40);
    let mut again = Controller::load(quick(), host("cubic"), &controller.save()).unwrap();
    let mut same_world = world.clone();
    let (a, b) = (rounds_of(&mut controller, &mut world, 40), rounds_of(&mut again, &mut same_world, 40));
    assert_eq!(a.len(), 40);
    for (a, b) in a.iter().zip(&b) {
        // Thresholds that do not exist are not equal to themselves as numbers, but are None here.
        assert_eq!(a, b);
    }
    assert!(controller.save() == again.save());
}

#[test]
fn what_the_controller_proposes_passes_validation_by_itself() {
    // Two classes, pacing on: no round of a quiet world is refused.
    let mut config = quick();
    config.limits = validate::Limits { changed_free: 1, changed_share_max: 0.02, ..config.limits };
    let (_, rounds, _) = run(config, two_classes(10, 2.0, 80, 8));
    assert!(rounds.iter().all(|r| r.refusal.is_none()));
}
