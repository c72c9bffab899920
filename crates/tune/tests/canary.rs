//! Networks that were just selected, on the edges that go first.

mod world;

use weirgate_sockets::progress::Progress;
use weirgate_sockets::sample::Arm;
use weirgate_tune::replay::Telemetry;
use weirgate_tune::synthetic::{Scenario, Synthetic};
use weirgate_tune::{Config, Controller, Policy, Round, What, Why};
use weirgate_units::BitRate;

use world::{cc, host, quick, two_classes};

/// A point of presence: what the edges that go first see, and what all others do.
struct Pop {
    first: Synthetic,
    others: Synthetic,
    controller: Controller,
    rounds: Vec<Round>,
    /// How many networks the first edges alone treated after each round, and how many all did.
    treated: Vec<(usize, usize)>,
}

impl Pop {
    fn new(config: Config, first: Scenario, others: Scenario) -> Self {
        let controller = Controller::new(config, host("cubic")).expect("sound settings");
        let [first, others] = [first, others].map(Synthetic::new);
        Self { first, others, controller, rounds: Vec::new(), treated: Vec::new() }
    }

    /// A tenth of `scenario`'s connections end at edges that go first, as far as they are `heard` there.
    fn of(config: Config, scenario: Scenario) -> Self {
        let first = Scenario { connections: scenario.connections / 10, ..scenario.clone() };
        let others = Scenario { connections: 6, ..scenario };
        Self::new(config, first, others)
    }

    /// One round more, of which `keep` says which connections at the first edges there are; `None` after the last.
    fn round(&mut self, keep: &dyn Fn(usize, &Progress) -> bool) -> Option<&Round> {
        let (all, first) = self.controller.in_parts();
        let mut networks = [&all.networks[..], &first].concat();
        networks.sort_unstable_by_key(|network| network.0);
        let at = self.rounds.len();
        let first = Policy { networks, ..all.clone() };
        let Self { controller, .. } = self;
        self.others.next_round(&all, &mut |progress| controller.handle_progress(progress))?;
        let each = &mut |progress: &Progress| {
            if keep(at, progress) {
                controller.handle_progress(progress);
            }
        };
        let end = self.first.next_round(&first, each)?;
        let round = controller.end_round(end, Some(end));
        let (all, first) = controller.in_parts();
        self.treated.push((first.len(), all.networks.len()));
        self.rounds.push(round);
        self.rounds.last()
    }

    fn run(&mut self) {
        while self.round(&|_, _| true).is_some() {}
    }

    /// The first round after which the first edges treated any.
    fn began(&self) -> usize {
        self.treated.iter().position(|(first, _)| *first > 0).expect("some are chosen")
    }

    /// The first round after which all edges treated any.
    fn spread(&self) -> Option<usize> {
        self.treated.iter().position(|(_, all)| *all > 0)
    }

    fn halted(&self) -> Option<usize> {
        self.rounds.iter().position(|round| round.halted.is_some())
    }
}

/// As a fleet's controller decides by default.
fn defaults(seed: u64) -> Config {
    Config { trial_rounds: 36, seed, ..Config::default() }
}

/// The same, but networks are looked at too late to be rolled back one by one.
fn short(trial_rounds: u32) -> Config {
    Config { trial_rounds, idle_rounds: 1_000, bar_rounds: 1_000, ..quick() }
}

#[test]
fn what_does_harm_is_given_up_while_few_have_it_and_not_chosen_again() {
    let mut pop = Pop::of(short(60), two_classes(6, 0.5, 100, 11));
    pop.run();
    let round = pop.halted().expect("it does harm");
    let ratio = pop.rounds[round].halted.expect("it was found").ratio;
    assert!((0.35..0.7).contains(&ratio), "{ratio}");
    let treated = &pop.treated;
    assert!(
        treated[..round].iter().any(|(first, _)| *first == 6) && treated.iter().all(|(_, all)| *all == 0),
        "{treated:?}"
    );
    assert!(treated[round..].iter().all(|both| *both == (0, 0)), "barred");
    let Round { decisions, policy, .. } = &pop.rounds[round];
    assert_eq!((decisions.len(), policy.as_ref().map(|policy| policy.networks.len())), (6, Some(0)));
    let by_harm = |why: Why| matches!(why, Why::Harm { effect } if effect.ratio == ratio);
    assert!(decisions.iter().all(|decision| decision.what == What::RollBack && by_harm(decision.why)), "{decisions:?}");
    let text = pop.controller.explain(decisions[0].network).to_string();
    assert!(text.contains("roll back: all networks on trial together did worse treated than held out: x0."), "{text}");
}

#[test]
fn a_halt_takes_no_other_decision_with_it_and_changes_nobodys_reason() {
    let mut pop = Pop::of(short(60), two_classes(6, 0.5, 100, 11));
    while pop.treated.last().is_none_or(|(first, _)| *first < 6) {
        pop.round(&|_, _| true).expect("they are selected before the end");
    }
    // A person takes one back before the others are given up.
    let taken = pop.controller.policy().networks[2].0;
    let (_, by_person) = pop.controller.clear(Some(taken));
    assert_eq!((by_person.len(), by_person[0].why), (1, Why::Admin));
    pop.run();
    let round = &pop.rounds[pop.halted().expect("it does harm")];
    let halted = round.decisions.iter().filter(|made| matches!(made.why, Why::Harm { .. }));
    assert_eq!((halted.clone().count(), halted.clone().any(|made| made.network == taken)), (5, false));
    assert!(round.decisions.is_sorted_by_key(|made| made.network) && round.stats.gone >= 5);
    let why = pop.controller.explain(taken).last.expect("it was taken back").1.why;
    assert_eq!(why, Why::Admin);
    // What else was decided in that round is there, and in force.
    let others = round.decisions.iter().filter(|made| matches!(made.what, What::Select(_))).map(|made| made.network);
    let policy = round.policy.as_ref().expect("it changed");
    assert!(others.clone().all(|network| policy.networks.iter().any(|(selected, _)| *selected == network)));
}

/// A hundred times the networks take some hundred times as long, not ten thousand times.
#[test]
fn a_halt_of_many_networks_is_one_policy() {
    let halt = |slow: u32| {
        let config = Config { trial_rounds: 60, resamples: 100, ..quick() };
        let mut config = Config { known_enter_min: 2, window_rounds: 4, known_leave_min: 1, ..config };
        (config.limits.changed_free, config.limits.changed_share_max, config.limits.changed_traffic_max) =
            (5, 1.0, 1.0);
        let scenario = Scenario { connections: 20, ..two_classes(slow, 0.2, 24, 5) };
        let first = Scenario { connections: 10, ..scenario.clone() };
        let mut pop = Pop::new(config, first, Scenario { connections: 3, ..scenario });
        pop.run();
        let at = pop.halted().expect("it does harm");
        let version = pop.rounds[at].policy.as_ref().map(|policy| policy.version);
        let halted = pop.rounds[at].decisions.iter().filter(|made| matches!(made.why, Why::Harm { .. })).count();
        (halted, version)
    };
    let (few, many) = (halt(5), halt(2_000));
    assert!(few.0 >= 3 && many.0 > 1_000, "{few:?} {many:?}");
    // A version for each network that was given up would say that a policy was made for each.
    assert!(many.1.is_some_and(|version| version < 24), "{many:?}");
}

#[test]
fn what_does_good_reaches_all_edges_in_time() {
    let mut pop = Pop::of(short(30), two_classes(6, 2.0, 100, 11));
    pop.run();
    assert_eq!(pop.halted(), None);
    // As the epoch ends in which there were treated votes in a 30th round.
    let mut tested = 0;
    let due = pop.rounds[pop.began()..].iter().find(|round| {
        tested += u32::from(round.stats.votes_treated > 0);
        tested >= 30 && (round.number + 1).is_multiple_of(4)
    });
    assert_eq!(pop.spread().map(|at| pop.rounds[at].number), due.map(|round| round.number), "{:?}", pop.treated);
    assert_eq!(pop.treated.last(), Some(&(0, 6)));
}

/// Whatever goes first, half as fast there as at the other edges.
fn slow_edges(scenario: &Scenario) -> Scenario {
    let mut first = Scenario { connections: 4, ..scenario.clone() };
    for class in &mut first.classes {
        class.state.goodput = BitRate::from_bits_per_sec(class.state.goodput.as_bits_per_sec() / 2);
    }
    first
}

#[test]
fn a_network_passes_by_rounds_with_treated_votes_and_not_by_rounds() {
    // The edges that go first are away in the first 40 rounds after the selection, then in every second one.
    let mut pop = Pop::of(short(30), two_classes(6, 2.0, 160, 11));
    let began = std::cell::Cell::new(usize::MAX);
    let keep = |at: usize, _: &Progress| at < began.get() || at > began.get() + 40 && at.is_multiple_of(2);
    while pop.round(&keep).is_some() {
        if began.get() == usize::MAX && pop.treated.last().is_some_and(|(first, _)| *first > 0) {
            began.set(pop.rounds.len() - 1);
        }
    }
    let spread = pop.spread().expect("they pass in the end");
    let tested = pop.rounds[began.get()..=spread].iter().filter(|round| round.stats.votes_treated > 0).count();
    // Passed as an epoch of four rounds ends.
    assert!((30..34).contains(&tested) && spread > began.get() + 40 + 56, "{tested} {spread} {:?}", pop.treated);
}

#[test]
fn what_no_first_edge_hears_of_is_given_up_after_eight_times_the_rounds() {
    let mut pop = Pop::of(short(10), two_classes(6, 2.0, 120, 11));
    while pop.round(&|_, progress| progress.arm == Arm::None).is_some() {}
    assert_eq!(pop.spread(), None);
    let decisions = pop.rounds.iter().flat_map(|round| round.decisions.iter().map(move |made| (round.number, made)));
    let given_up: Vec<_> = decisions.filter(|(_, made)| made.what == What::Release).collect();
    let selected = pop.rounds[pop.began()].number;
    assert!(given_up.len() >= 6, "{given_up:?}");
    for (round, decision) in &given_up[..6] {
        assert_eq!(decision.why, Why::Untested { tested: 0, rounds: 10 });
        assert!((80..90).contains(&(round - selected)), "{round} {selected}");
    }
}

/// Few clients: their networks alternate, while a tenth of the edges, which are slow, treat them.
#[test]
fn turns_are_compared_at_the_same_edges() {
    let run = |effect: f64, seed: u64| {
        let scenario = Scenario { clients: 5, ..two_classes(8, effect, 150, seed) };
        let mut pop = Pop::new(defaults(seed), slow_edges(&scenario), scenario);
        pop.run();
        pop
    };
    let (mut logs, mut halted) = (Vec::new(), 0);
    for seed in 0..10 {
        let pop = run(1.0, seed);
        halted += u32::from(pop.halted().is_some());
        let effect = pop.rounds.iter().rev().find_map(|round| round.effects.pooled).expect("there are blocks");
        logs.push(f64::from(effect.ratio).ln());
    }
    let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
    println!("no effect at edges half as fast as the others: {mean:.3}, halted in {halted} of 10");
    assert!((0.9..1.1).contains(&mean) && halted <= 1, "{mean} {halted}");
    assert!((0..5).all(|seed| run(0.5, seed).halted().is_some()), "harm is found that way, too");
}

#[test]
fn a_network_in_the_defaults_turn_stays_at_the_first_edges_with_the_default() {
    let mut pop = Pop::of(short(60), Scenario { clients: 5, ..two_classes(8, 1.0, 60, 3) });
    let mut defaults = 0;
    while pop.round(&|_, _| true).is_some() {
        let (all, first) = pop.controller.in_parts();
        assert!(all.networks.is_empty());
        let turns = first.iter().filter(|(_, of)| *of == cc("cubic")).count();
        assert_eq!(first.len() - turns, pop.controller.policy().networks.len());
        defaults += turns;
    }
    assert!(defaults > 50, "{defaults}");
}

/// So many networks are slow, and the treatment makes them `effect` times as fast.
fn by_default(slow: u32, effect: f64, rounds: u32, seed: u64) -> Pop {
    let mut pop = Pop::of(Config { networks_min: 2, ..defaults(seed) }, two_classes(slow, effect, rounds, seed));
    pop.run();
    pop
}

#[test]
fn by_default_harm_is_halted_within_three_hours_and_with_few_networks_before_it_spreads() {
    // A single network may be given up after a day instead, since nothing can be said.
    for (slow, rounds, within, least) in [(10, 80, 36, 20), (4, 130, 60, 20), (2, 130, 72, 20), (1, 330, 288, 18)] {
        let (mut halted, mut last) = (0, 0);
        for seed in 0..20 {
            let pop = by_default(slow, 0.5, rounds, seed);
            let took = pop.halted().map(|at| at - pop.began());
            halted += u32::from(took.is_some_and(|took| took <= within));
            last = last.max(took.unwrap_or(0));
            let before = |spread| pop.halted().is_some_and(|halted| halted < spread);
            assert!(pop.spread().is_none_or(before), "{slow} networks, seed {seed}: it spread");
        }
        println!("{slow} networks: half the goodput is halted in {halted} of 20, the last after {last} rounds");
        assert!(halted >= least, "{slow} networks: {halted}");
    }
}

#[test]
fn by_default_what_does_no_harm_is_seldom_halted() {
    for (slow, seeds, rounds) in [(10, 200, 90), (2, 100, 120)] {
        let (mut halted, mut spread) = (0, 0);
        for seed in 1_000..1_000 + seeds {
            let pop = by_default(slow, 1.0, rounds, seed);
            halted += u32::from(pop.halted().is_some());
            spread += u32::from(pop.spread().is_some());
        }
        println!("{slow} networks: no effect is halted in {halted} of {seeds} trials, and spreads in {spread}");
        // What is said in docs/fleet.md: at most one in twenty.
        assert!(halted * 20 <= seeds as u32 && halted + spread >= seeds as u32 * 19 / 20, "{halted} {spread}");
    }
}
