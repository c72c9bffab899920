//! Summed up at edges, votes decide what they decide one by one.

mod world;

use weirgate_sockets::progress::Progress;
use weirgate_sockets::sample::Arm;
use weirgate_tune::replay::Telemetry;
use weirgate_tune::sketch::{self, Sketch};
use weirgate_tune::synthetic::{Scenario, Synthetic};
use weirgate_tune::{ArmSum, Config, Controller, Decision, Did, Metric, Round, Tallies, Tally, Terms};
use weirgate_units::{Duration, Prefix};

use world::{cc, host};

const ROUNDS: u32 = 72;

/// What a round's connections are handed over as.
type HandOver<'a> = &'a mut dyn FnMut(&mut Controller, &[Progress]);

/// Decisions of all rounds, and the networks that are selected after the last one.
fn decide(hand_over: HandOver<'_>) -> (Vec<(u32, Decision)>, Vec<Prefix>) {
    let mut world = Synthetic::new(Scenario::mixed(400, ROUNDS, 7));
    let mut controller =
        Controller::new(Config { seed: 7, ..Config::default() }, host("cubic")).expect("sound settings");
    let (mut decisions, mut policy) = (Vec::new(), controller.policy().clone());
    loop {
        let mut connections = Vec::new();
        let Some(end) = world.next_round(&policy, &mut |progress| connections.push(*progress)) else { break };
        hand_over(&mut controller, &connections);
        let Round { number, policy: new, decisions: made, .. } = controller.end_round(end, Some(end));
        decisions.extend(made.into_iter().map(|decision| (number, decision)));
        if let Some(new) = new {
            policy = new;
        }
    }
    let selected = controller.policy().networks.iter().map(|(network, _)| *network).collect();
    (decisions, selected)
}

/// By so many edges, each of which hands over `minutes` times in a round.
fn by_edges(edges: usize, minutes: usize) -> (Vec<(u32, Decision)>, Vec<Prefix>) {
    let mut all: Vec<Tallies> = (0..edges).map(|_| Tallies::new(Config::default())).collect();
    decide(&mut |controller, connections| {
        for part in connections.chunks(connections.len().div_ceil(minutes).max(1)) {
            for (at, progress) in part.iter().enumerate() {
                all[at % edges].handle_progress(progress);
            }
            for tally in all.iter_mut().flat_map(Tallies::take) {
                controller.handle_tally(&tally);
            }
        }
    })
}

#[test]
fn however_many_edges_and_minutes_the_decisions_are_the_same() {
    let whole = by_edges(1, 1);
    assert!(whole.0.len() > 20 && !whole.1.is_empty(), "{} decisions", whole.0.len());
    assert!(by_edges(7, 5) == whole, "parts decide otherwise than the whole");
}

/// A vote within 1 % of what it was can turn the scale for a network at the edge of a group, and for no other.
#[test]
fn tallies_choose_the_networks_that_single_votes_choose() {
    let exact = decide(&mut |controller, connections| {
        connections.iter().for_each(|progress| controller.handle_progress(progress));
    });
    let summed = by_edges(3, 5);
    let differ = |one: &[Prefix], other: &[Prefix]| one.iter().filter(|network| !other.contains(network)).count();
    let apart = differ(&summed.1, &exact.1) + differ(&exact.1, &summed.1);
    assert!(exact.1.len() > 50 && apart <= exact.1.len() / 20, "{apart} of {}", exact.1.len());
}

#[test]
fn tallies_count_what_single_votes_count() {
    let mut world = Synthetic::new(Scenario::mixed(50, 1, 3));
    let mut connections = Vec::new();
    let one = Controller::new(Config::default(), host("cubic")).expect("sound settings");
    let end = world.next_round(one.policy(), &mut |progress| connections.push(*progress)).expect("a round");
    let stats = [false, true].map(|summed| {
        let mut controller = Controller::new(Config::default(), host("cubic")).expect("sound settings");
        let mut tallies = Tallies::new(Config::default());
        for progress in &connections {
            if summed { tallies.handle_progress(progress) } else { controller.handle_progress(progress) }
        }
        tallies.take().iter().for_each(|tally| controller.handle_tally(tally));
        let mut stats = controller.end_round(end, Some(end)).stats;
        // These are of votes, which are within 1 %.
        stats.thresholds.clear();
        stats.members.clear();
        stats
    });
    assert_eq!(stats[0], stats[1]);
}

/// Whoever says so: what it takes is what the sketch takes.
#[test]
fn billions_of_votes_are_one_entry_and_their_sums_do_not_overflow() {
    let config = Config { networks_min: 2, votes_min: 1, ..Config::default() };
    let mut controller = Controller::new(config, host("cubic")).expect("sound settings");
    let bin = |mbit: f64| sketch::bin(mbit * 1e6);
    for (network, fast) in [("192.0.2.0/24", 50.0), ("198.51.100.0/24", 3.0)] {
        let fit = Sketch::new(vec![(bin(1.0), u32::MAX), (bin(fast), u32::MAX - 1)]).expect("in order");
        let votes = f64::from(u32::MAX);
        let arm = ArmSum { votes: u32::MAX, log: votes * 15.0, sent: u64::MAX, ..ArmSum::default() };
        let did = Did { connections: u64::MAX, small: u64::MAX - fit.len(), arm, ..Did::default() };
        let (network, terms) = (network.parse().expect("a network"), Terms::of(controller.config()));
        let tally = Tally { network, arm: Arm::None, cc: cc("cubic"), did, fit, terms };
        (0..3).for_each(|_| controller.handle_tally(&tally));
    }
    let end = world::end_of(1);
    let stats = controller.end_round(end, Some(end)).stats;
    assert_eq!((stats.connections, stats.networks_known, stats.ignored.small), (u64::MAX, 2, u64::MAX));
    let view = controller.explain("192.0.2.0/24".parse().expect("a network")).rounds[0].votes;
    let (votes, median) = view.expect("it was judged");
    assert!(votes == u32::MAX && (0.99..1.01).contains(&(median.as_bits_per_sec() as f64 / 1e6)), "{votes} {median}");
}

#[test]
fn what_was_summed_up_under_other_settings_is_not_mixed_in_and_says_why() {
    let ours = Config::default();
    let lens = Config { network_len_v4: 20, network_len_v6: 48, ..ours.clone() };
    let rounds = Config { round: Duration::from_secs(60), ..ours.clone() };
    let metric = Config { metric: Metric::DeliveryRate, ..ours.clone() };
    let mut world = Synthetic::new(Scenario::mixed(50, 1, 3));
    let mut controller = Controller::new(ours.clone(), host("cubic")).expect("sound settings");
    let mut hosts = [ours, lens, rounds, metric].map(Tallies::new);
    let each = &mut |progress: &Progress| hosts.iter_mut().for_each(|host| host.handle_progress(progress));
    let end = world.next_round(controller.policy(), each).expect("a round");
    let all = hosts.map(|mut host| host.take());
    let count = |of: &[Tally]| of.iter().map(|tally| tally.did.connections).sum::<u64>();
    let [one, others @ ..] = all.each_ref().map(|of| count(of));
    assert_eq!(others, [one; 3]);
    let mut impossible = all[0][0].clone();
    impossible.did.arm.votes += impossible.did.connections as u32;
    let mut loud = all[0][1].clone();
    loud.did.arm.log *= 3.0;
    let odd = [impossible, loud];
    all.iter().flatten().chain(&odd).for_each(|tally| controller.handle_tally(tally));
    let stats = controller.end_round(end, Some(end)).stats;
    let ignored = stats.ignored;
    assert_eq!([ignored.prefix, ignored.round, ignored.metric, ignored.impossible], [one, one, one, count(&odd)]);
    assert_eq!(stats.connections, 4 * one + count(&odd));
    assert_eq!((stats.networks_seen as usize, stats.votes()), (all[0].len(), one - ignored.small - ignored.no_metric));
    let said = ignored.to_string();
    for why in ["networks of another length", "rounds of another length", "another metric", "that cannot be"] {
        assert!(
            said.contains(&format!("in tallies {why}")) || said.contains(&format!("in tallies of {why}")),
            "{said}"
        );
    }
}
