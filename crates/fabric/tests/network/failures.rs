use weirgate_balance::Looks;
use weirgate_fabric::{Change, Hop, Listed, Scheme, Settings, Simulation, Span, Time};

use crate::common::{leaf_spine, micros, start};

/// One link of two goes down while a flow is sent: the packets that find it down are lost until routing has learnt of it, and the flow
/// ends all the same.
#[test]
fn what_a_failure_loses_is_sent_again() {
    for scheme in [Scheme::Random, Scheme::Drill(Looks::RECOMMENDED)] {
        let topology = leaf_spine(2, 2, 1, 10, 10);
        let leaf = topology.leaves()[0];
        let link =
            topology.ports(leaf).iter().copied().find(|link| !topology.is_host(topology.far_end(*link, leaf))).unwrap();
        let settings = Settings { routing_delay: Span::from_micros(50), ..Settings::new(1, scheme) };
        let flows = vec![(Time::ZERO, start(0, 1, 3_000_000))];
        let changes =
            vec![Change { at: micros(500), link, is_up: false }, Change { at: micros(1_500), link, is_up: true }];
        let mut simulation = Simulation::new(topology, settings, Box::new(Listed::new(flows)), changes).unwrap();
        assert!(!simulation.run_until(micros(10_000_000)), "it does not end");
        let flow = simulation.measures().finished[0];
        assert!(flow.lost > 0 && flow.sent_again >= flow.lost, "{flow:?}");
        let lost: u64 = simulation.lines().map(|(_, counters)| counters.lost).sum();
        // 50 us are 40 packets; half of them would go by the link, or more, as its queue seems short.
        assert!((u64::from(flow.lost)..100).contains(&lost), "{lost}");
        let up: Vec<u64> =
            simulation.lines().filter(|(hop, _)| *hop == Hop::Up(0)).map(|(_, counters)| counters.packets).collect();
        assert!(up[0] > 100 && up[1] > up[0] && up[0] + up[1] > 2_000, "{up:?}");
    }
}
