use weirgate_balance::Looks;
use weirgate_balance::topology::Link;
use weirgate_fabric::{Change, Hop, Listed, Scheme, Settings, Simulation, Span, Time};

use crate::common::{leaf_spine, micros, start};

/// One link of two goes down while a flow is sent: its leaf knows at once, and sends by the other one; the other leaf's ACKs that come to
/// the spine have no way until routing has learnt of it. The flow ends all the same.
#[test]
fn what_a_failure_loses_is_sent_again() {
    for scheme in [Scheme::Random, Scheme::Presto, Scheme::Drill(Looks::RECOMMENDED)] {
        let topology = leaf_spine(2, 2, 1, 10, 10);
        let leaves = topology.leaves();
        let is_uplink = |link: &&Link| !topology.is_host(topology.far_end(**link, leaves[0]));
        let link = *topology.ports(leaves[0]).iter().find(is_uplink).unwrap();
        // By this seed Presto has a cell on the line as it goes down.
        let settings = Settings { routing_delay: Span::from_micros(150), ..Settings::new(2, scheme) };
        // Data one way, and data the other way, of which the spine knows no way.
        let flows = vec![(Time::ZERO, start(0, 1, 3_000_000)), (Time::ZERO, start(1, 0, 3_000_000))];
        let changes =
            vec![Change { at: micros(500), link, is_up: false }, Change { at: micros(1_500), link, is_up: true }];
        let mut simulation = Simulation::new(topology, settings, Box::new(Listed::new(flows)), changes).unwrap();
        assert!(!simulation.run_until(micros(10_000_000)), "it does not end");
        let mut flows = simulation.measures().finished.clone();
        flows.sort_by_key(|flow| flow.source);
        let lost: u64 = simulation.lines().map(|(_, counters)| counters.lost).sum();
        // What was on the line, or in its queue.
        assert!((1..60).contains(&lost), "{lost}");
        // 150 us are 120 packets, some of which go by that spine: of Presto's cells, of 54 us, every second one.
        assert!((1..120).contains(&simulation.measures().no_route), "{}", simulation.measures().no_route);
        assert!(flows[1].lost > 0 && flows[1].sent_again >= flows[1].lost, "{flows:?}");
        let up: Vec<u64> =
            simulation.lines().filter(|(hop, _)| *hop == Hop::Up(0)).map(|(_, counters)| counters.packets).collect();
        assert!(up[0] > 100 && up[1] > up[0], "{up:?}");
    }
}

/// Of the data, and not of the ACKs, a share is lost; the flow has it all the same.
#[test]
fn a_damaged_link_loses_its_share_one_way() {
    let topology = leaf_spine(1, 2, 1, 10, 10);
    let [leaf, spine] = [topology.leaves()[0], topology.nodes().nth(2).unwrap()];
    let link = *topology.ports(leaf).iter().find(|link| topology.far_end(**link, leaf) == spine).unwrap();
    let flows = vec![(Time::ZERO, start(0, 1, 20_000 * 1_460))];
    let settings = Settings::new(1, Scheme::Ecmp);
    let mut simulation = Simulation::new(topology, settings, Box::new(Listed::new(flows)), Vec::new()).unwrap();
    simulation.set_loss(link, leaf, 0.01);
    assert!(!simulation.run_until(micros(600_000_000)), "it does not end");
    let flow = simulation.measures().finished[0];
    let lost: Vec<u64> = simulation.lines().map(|(_, counters)| counters.lost).filter(|lost| *lost > 0).collect();
    // 200 of 20,000, and their standard deviation is 14.
    assert!((150..250).contains(&flow.lost) && lost == [u64::from(flow.lost)], "{flow:?} {lost:?}");
}
