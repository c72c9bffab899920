use weirgate_balance::topology::Vl2;
use weirgate_fabric::{Hop, Listed, Scheme, Settings, Simulation, Start, Time};

use crate::common::{link, micros};

/// Flows of one cell each must not all go by the first of the switches above the second stage.
#[test]
fn short_flows_use_all_of_the_upper_stage() {
    let vl2 = Vl2 { tors: 4, aggregations: 4, intermediates: 4, hosts: 1, edge: link(10), core: link(10) };
    let start = Start { source: 0, destination: 1, bytes: 1_000, class: 0 };
    let starts = (0..400).map(|flow| (Time::from_picos(flow * 10_000_000), start)).collect();
    let (settings, workload) = (Settings::new(1, Scheme::Presto), Box::new(Listed::new(starts)));
    let mut simulation = Simulation::new(vl2.build().unwrap(), settings, workload, Vec::new()).unwrap();
    assert!(!simulation.run_until(micros(1_000_000)), "it does not end");
    let up: Vec<u64> =
        simulation.lines().filter(|(hop, _)| *hop == Hop::Up(1)).map(|(_, counters)| counters.packets).collect();
    // Two aggregation switches with four links each carry 400 packets, and as many ACKs go back by two others.
    let used: Vec<u64> = up.iter().copied().filter(|packets| *packets > 0).collect();
    assert_eq!((used.len(), used.iter().sum::<u64>()), (16, 800));
    assert!(used.iter().all(|packets| (25..80).contains(packets)), "{used:?}");
}

/// A flow of as many cells as there are ways, between two pairs of aggregation switches over four intermediate ones: each link of each stage
/// carries its share, to the packet.
#[test]
fn cells_take_all_ways_alike() {
    const CELL: u64 = 44;
    let vl2 = Vl2 { tors: 4, aggregations: 4, intermediates: 4, hosts: 1, edge: link(10), core: link(10) };
    let ways = 2 * 4 * 2;
    let starts = vec![(micros(0), Start { source: 0, destination: 1, bytes: 4 * ways * CELL * 1_460, class: 0 })];
    let (settings, workload) = (Settings::new(1, Scheme::Presto), Box::new(Listed::new(starts)));
    let mut simulation = Simulation::new(vl2.build().unwrap(), settings, workload, Vec::new()).unwrap();
    simulation.run_until(micros(1_000_000));
    for (hop, links) in [(Hop::Up(0), 2), (Hop::Up(1), 8), (Hop::Down(2), 8), (Hop::Down(1), 2)] {
        let share = 4 * ways * CELL / links;
        let all = simulation.lines().filter(|(other, _)| *other == hop).map(|(_, counters)| counters.bytes / 1_538);
        // Other links of the stage have ACKs, a fraction of the bytes, or nothing.
        let carried: Vec<u64> = all.filter(|packets| *packets > share / 2).collect();
        assert_eq!(carried, vec![share; links as usize], "{hop:?}");
    }
}
