//! Networks that were just selected, on the edges that go first.

mod world;

use weirgate_tune::replay::Telemetry;
use weirgate_tune::synthetic::Synthetic;
use weirgate_tune::{Config, Controller};

use world::{host, quick, two_classes};

/// How many networks a share of the edges treated first, and how many all of them, after each round.
type Treated = Vec<(usize, usize)>;

/// The rounds of a world whose slow networks do `effect` times as well when treated: how many were treated first by a share of the edges
/// and how many by all after each, and when all were given up, with the effect that was found.
fn rounds(effect: f64, trial: u32) -> (Treated, Option<(usize, f32)>) {
    let mut world = Synthetic::new(two_classes(6, effect, 100, 11));
    // Single networks are looked at too late to be rolled back here.
    let config = Config { rollback_blocks_min: 30, idle_rounds: 1_000, bar_rounds: 1_000, ..quick() };
    let mut controller = Controller::new(config, host("cubic")).expect("sound settings");
    let (mut treated, mut halted) = (Vec::new(), None);
    let mut policy = controller.policy().clone();
    while let Some(end) = world.next_round(&policy, &mut |progress| controller.handle_progress(progress)) {
        controller.end_round(end, Some(end));
        if let Some((effect, after, decisions)) = controller.halt_trial(trial) {
            assert_eq!((decisions.len(), after.networks.len()), (6, 0));
            halted.get_or_insert((treated.len(), effect.ratio));
        }
        policy = controller.policy().clone();
        let (all, first) = controller.in_parts(trial);
        assert_eq!(all.networks.len() + first.len(), policy.networks.len());
        treated.push((first.len(), all.networks.len()));
    }
    (treated, halted)
}

#[test]
fn what_does_harm_is_given_up_while_few_have_it_and_not_chosen_again() {
    let (treated, halted) = rounds(0.5, 60);
    let (round, ratio) = halted.expect("it does harm");
    assert!((0.35..0.7).contains(&ratio), "{ratio}");
    assert!(
        treated[..round].iter().any(|(first, _)| *first == 6) && treated.iter().all(|(_, all)| *all == 0),
        "{treated:?}"
    );
    assert!(treated[round..].iter().all(|both| *both == (0, 0)), "barred");
}

#[test]
fn what_does_good_reaches_all_edges_in_time() {
    let (treated, halted) = rounds(2.0, 30);
    assert_eq!(halted, None);
    let began = treated.iter().position(|(first, _)| *first > 0).expect("some are chosen");
    let spread = treated.iter().position(|(_, all)| *all > 0).expect("all edges have some");
    assert_eq!(spread - began, 30, "{treated:?}");
    assert_eq!(treated.last(), Some(&(0, 6)));
}
