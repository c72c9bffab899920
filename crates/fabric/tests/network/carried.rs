use weirgate_balance::topology::Link;
use weirgate_fabric::{Carried, Change, Listed, Scheme, Settings, Simulation, Span};

use crate::common::{leaf_spine, micros, start};

/// What was used of each uplink.
fn shares(carried: &Carried) -> Vec<f64> {
    let secs = carried.time.as_secs_f64();
    let share =
        |(rate, bytes): &(weirgate_units::BitRate, u64)| *bytes as f64 * 8.0 / rate.as_bits_per_sec() as f64 / secs;
    carried.uplinks.iter().map(share).collect()
}

/// Three hosts send to a leaf by one link as fast as theirs, whose queue is always long: it carries all that it can, and not more, in
/// whichever part of the time.
#[test]
fn no_link_carries_more_than_it_can() {
    let flows = (0..3).map(|host| (micros(0), start(host, host + 3, 20_000_000))).collect();
    let mut simulation = Simulation::new(
        leaf_spine(1, 2, 3, 10, 10),
        Settings::new(1, Scheme::Ecmp),
        Box::new(Listed::new(flows)),
        Vec::new(),
    )
    .unwrap();
    // Each 100 us can carry 125,000 bytes, and a queue has up to 300,000.
    for until in (1..=100).map(|at| at * 100) {
        assert!(simulation.run_until(micros(until)));
        let carried = simulation.carried();
        let (share, waits) = (shares(&carried)[0], until > 2_000);
        // To a byte, of 125,000.
        assert!(share <= 1.000_01 && (!waits || share > 0.999_98), "{share} until {until} us");
        simulation.begin_measures(None);
    }
    let taken: u64 = simulation.lines().map(|(_, counters)| counters.bytes).max().unwrap();
    assert!(taken > 50_000, "what waits is there: {taken}");
}

/// What a link loses as it goes down has not been carried.
#[test]
fn what_was_lost_with_a_link_was_not_carried() {
    let topology = leaf_spine(1, 2, 3, 10, 10);
    let leaf = topology.leaves()[0];
    let is_uplink = |link: &&Link| !topology.is_host(topology.far_end(**link, leaf));
    let link = *topology.ports(leaf).iter().find(is_uplink).unwrap();
    let flows = (0..3).map(|host| (micros(0), start(host, host + 3, 20_000_000))).collect();
    let changes =
        vec![Change { at: micros(5_000), link, is_up: false }, Change { at: micros(5_001), link, is_up: true }];
    let settings = Settings { routing_delay: Span::from_micros(1), ..Settings::new(1, Scheme::Ecmp) };
    let mut simulation = Simulation::new(topology, settings, Box::new(Listed::new(flows)), changes).unwrap();
    simulation.run_until(micros(4_900));
    simulation.begin_measures(None);
    simulation.run_until(micros(5_100));
    let share = shares(&simulation.carried())[0];
    let lost: u64 = simulation.lines().map(|(_, counters)| counters.lost).sum();
    assert!(lost > 20 && (0.4..=1.0).contains(&share), "{share}, {lost} packets");
}
