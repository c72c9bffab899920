use weirgate_fabric::{
    AllToAll, Both, Chance, Finished, Hosts, Incast, Listed, Mice, Pairs, Pattern, Poisson, Ring, RingOrder, Scheme,
    Settings, Simulation, Sizes, Span, Start, Time, Workload,
};

use crate::common::{leaf_spine, micros};

/// All flows of a workload in a network of 2 leaves with 3 hosts each.
fn finished(workload: impl FnOnce(&Hosts, &mut Chance) -> Box<dyn Workload>) -> Vec<Finished> {
    let topology = leaf_spine(2, 2, 3, 10, 40);
    let workload = workload(&Hosts::of(&topology), &mut Chance::new(1, 9));
    let mut simulation = Simulation::new(topology, Settings::new(1, Scheme::Ecmp), workload, Vec::new()).unwrap();
    assert!(!simulation.run_until(micros(10_000_000)), "it does not end");
    simulation.measures().finished.clone()
}

fn pairs(flows: &[Finished], class: u8) -> Vec<(u32, u32)> {
    let mut pairs: Vec<(u32, u32)> =
        flows.iter().filter(|flow| flow.class == class).map(|flow| (flow.source, flow.destination)).collect();
    pairs.sort_unstable();
    pairs
}

#[test]
fn patterns_say_who_sends_to_whom() {
    let flows = |pattern| finished(|hosts, chance| Box::new(Pairs::new(hosts, pattern, 1_000_000, None, chance)));
    assert_eq!(pairs(&flows(Pattern::Stride(4)), 0), [(0, 4), (1, 5), (2, 0), (3, 1), (4, 2), (5, 3)]);
    let random = pairs(&flows(Pattern::Random), 0);
    assert!(random.len() == 6 && random.iter().all(|(from, to)| from / 3 != to / 3), "{random:?}");
    let mut all = pairs(&flows(Pattern::Shuffle), 0);
    all.dedup();
    assert_eq!(all.len(), 30);
    let mut permutation: Vec<u32> = pairs(&flows(Pattern::Permutation), 0).into_iter().map(|(_, to)| to).collect();
    permutation.sort_unstable();
    assert_eq!(permutation, [0, 1, 2, 3, 4, 5]);
}

/// 10 MB take 8.4 ms at 10 Gbit/s: each host sends a mouse every 2 ms meanwhile.
#[test]
fn mice_are_sent_as_long_as_elephants_are() {
    let mice = Mice { bytes: 1_000, every: Span::from_micros(2_000) };
    let flows =
        finished(|hosts, chance| Box::new(Pairs::new(hosts, Pattern::Stride(3), 10_000_000, Some(mice), chance)));
    let mice = pairs(&flows, 1);
    assert!((24..=36).contains(&mice.len()) && mice.iter().all(|(from, to)| (from + 3) % 6 == *to), "{mice:?}");
}

/// Steps wait for each other: nobody can begin his last before all chunks have gone around.
#[test]
fn a_ring_takes_its_steps() {
    let flows = finished(|hosts, _| Box::new(Ring::new(hosts, RingOrder::Hosts, 6_000)));
    assert_eq!(flows.len(), 6 * 10);
    for step in 0..10 {
        assert_eq!(pairs(&flows, step), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)]);
    }
    let began = |step| flows.iter().filter(|flow| flow.class == step).map(|flow| flow.began).min();
    assert!((1..10).all(|step| began(step) > began(step - 1)));
    assert_eq!(finished(|_, _| Box::new(AllToAll::new(6, 1_000))).len(), 30);
}

/// The hosts of a leaf are three in a row.
#[test]
fn each_step_of_a_ring_of_leaves_leaves_its_leaf() {
    let flows = finished(|hosts, _| Box::new(Ring::new(hosts, RingOrder::Leaves, 6_000)));
    assert_eq!(flows.len(), 6 * 10);
    for step in 0..10 {
        assert_eq!(pairs(&flows, step), [(0, 3), (1, 4), (2, 5), (3, 1), (4, 2), (5, 0)]);
    }
}

/// So that who waits for a run knows for how many, from its start on.
#[test]
fn workloads_know_how_many_flows_there_will_be() {
    let start = |source| Start { source, destination: 5, bytes: 1_000, class: 0 };
    let hosts = Hosts::of(&leaf_spine(2, 2, 3, 10, 40));
    let pairs = |pattern| Box::new(Pairs::new(&hosts, pattern, 1_000, None, &mut Chance::new(1, 9)));
    let workloads: Vec<Box<dyn Workload>> = vec![
        Box::new(Ring::new(&hosts, RingOrder::Hosts, 6_000)),
        Box::new(AllToAll::new(6, 1_000)),
        pairs(Pattern::Permutation),
        pairs(Pattern::Shuffle),
        Box::new(Listed::new((0..3).map(|host| (micros(10), start(host))).collect())),
        Box::new(Both(pairs(Pattern::Random), Box::new(AllToAll::new(3, 1_000)))),
    ];
    for (workload, expected) in workloads.into_iter().zip([60, 30, 6, 30, 3, 12]) {
        let topology = leaf_spine(2, 2, 3, 10, 40);
        let mut simulation = Simulation::new(topology, Settings::new(1, Scheme::Ecmp), workload, Vec::new()).unwrap();
        for now in [0, 11, 12, 100_000] {
            assert_eq!(simulation.flows_to_measure(), Some(expected), "after {now} us");
            simulation.run_until(micros(now));
        }
        assert_eq!((simulation.is_over(), simulation.measures().finished.len() as u64), (true, expected));
        // Those that begin after a warm-up only: none.
        simulation.begin_measures(Some(7));
        assert_eq!(simulation.flows_to_measure(), Some(0));
    }
    let mice = Mice { bytes: 1_000, every: Span::from_micros(2_000) };
    let with_mice = Pairs::new(&hosts, Pattern::Stride(3), 1_000, Some(mice), &mut Chance::new(1, 9));
    assert_eq!(with_mice.flows_left(), None, "as many mice as there is time for");
}

/// A run that measures 400 flows of random hosts after 1 ms.
fn measured(bytes: u64, per_sec: f64) -> Simulation {
    let topology = leaf_spine(2, 2, 3, 10, 40);
    let workload = Poisson::new(Sizes::fixed(bytes), Hosts::of(&topology), per_sec, Time::MAX, Chance::new(1, 9));
    let mut simulation =
        Simulation::new(topology, Settings::new(1, Scheme::Ecmp), Box::new(workload), Vec::new()).unwrap();
    simulation.run_until(micros(1_000));
    simulation.begin_measures(Some(400));
    assert!(!simulation.run_until(micros(10_000_000)), "it does not end");
    simulation
}

/// Of flows that end as soon as they begin, 99 % are there before the last ones have begun.
#[test]
fn as_many_flows_are_measured_as_are_asked_for() {
    let simulation = measured(100, 10_000.0);
    assert_eq!(simulation.measures().finished.len(), 400);
    let carried = simulation.carried();
    assert!(carried.payload >= 390 * 100 && carried.uplinks.len() == 4, "{carried:?}");
    assert!(simulation.measures().began + carried.time < simulation.now());
}

/// Those that are under way when the warm-up ends are the long ones.
#[test]
fn flows_that_began_before_are_not_measured() {
    let simulation = measured(100_000, 50_000.0);
    let measures = simulation.measures();
    assert_eq!((measures.finished.len(), measures.started), (400, 400));
    assert!(measures.finished.iter().all(|flow| flow.began >= micros(1_000)));
}

#[test]
fn in_an_incast_all_servers_answer_all_clients_at_once() {
    let flows = finished(|hosts, chance| {
        Box::new(Incast::new(hosts.clone(), [2, 3], 10_000, 1_000.0, micros(20_000), chance.clone()))
    });
    assert!(flows.len() % 6 == 0 && (6..=300).contains(&flows.len()), "{}", flows.len());
    let mut times: Vec<_> = flows.iter().map(|flow| flow.began).collect();
    times.sort_unstable();
    times.dedup();
    assert_eq!(times.len() * 6, flows.len());
}
