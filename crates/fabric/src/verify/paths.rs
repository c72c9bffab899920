//! Balancers of flowlets and cells, each where it is known by hand which paths are taken.

use weirgate_balance::CongaSettings;
use weirgate_balance::topology::{Kind, Topology};

use super::scene::{built, leaf_spine, link, link_between, micros, packets, simulation, start};
use super::{Case, Finding, Form};
use crate::{Change, Hop, Listed, Scheme, Settings, Simulation, Span, TcpSettings, Time};

/// Leaf 1 has lost its link to spine 1, and fills the one from spine 0 to leaf 2 for 10 ms. Leaf 0 can send there by both spines, and sees
/// nothing of it at its own uplinks. CONGA hears of it with the first ACK that comes back that way, and believes it for 10 ms more than
/// it is so; so of the 467 flows before 8 ms at most the first few go there. What no packet meets is told for 10 ms at most: from 40 ms on
/// half of the flows go there again. ECMP knows of nothing, and always sends half of them.
pub(super) fn conga(seed: u64, _form: Form) -> Finding {
    let shares = |scheme| {
        let mut topology = leaf_spine(2, 3, 2, 10, 10);
        let node = |at| topology.nodes().nth(at).expect("leaves are the first three, then spines");
        let gone = link_between(&topology, node(1), node(4));
        topology.set_up(gone, false);
        let mut starts = vec![(Time::ZERO, start(2, 4, 12_000_000))];
        starts.extend((0..4_000).map(|flow| (micros(1_000 + 15 * flow), start(0, 5, 5 * 1_460))));
        let mut simulation = simulation(topology, Settings::new(seed, scheme), starts);
        let mut share = |from, to| {
            simulation.run_until(micros(from));
            simulation.begin_measures(None);
            simulation.run_until(micros(to));
            let up = packets(&simulation, Hop::Up(0), 2);
            up[0] as f64 / (up[0] + up[1]) as f64
        };
        [share(0, 8_000), share(40_000, 60_000)]
    };
    let ([conga, conga_after], [ecmp, ecmp_after]) =
        (shares(Scheme::Conga(CongaSettings::default())), shares(Scheme::Ecmp));
    Finding::all(vec![
        Case::new("CONGA: share by the congested path", conga, 0.0, 0.02),
        Case::new("ECMP: share by the congested path", ecmp, 0.5, 0.12),
        Case::new("CONGA: share by it when it is idle again", conga_after, 0.5, 0.1),
        Case::new("ECMP: share by it when it is idle again", ecmp_after, 0.5, 0.07),
    ])
}

/// A flow alone, of whole cells of 44 packets: over four equal spines each has a quarter of them. Then two spines, from the first of which
/// one of two links of 20 Gbit/s to the other leaf has failed: its path carries 20, the other 40, and it has one cell in three. The same where
/// the choice is above the leaf.
pub(super) fn presto(seed: u64, _form: Form) -> Finding {
    const CELL: u64 = 44;
    let cells = |cells: u64| vec![(micros(1_000), start(0, 1, cells * CELL * 1_460))];
    let settings = Settings { sample_every: None, ..Settings::new(seed, Scheme::Presto) };
    let mut equal = simulation(leaf_spine(4, 2, 1, 10, 40), settings.clone(), cells(40));
    equal.run_until(micros(1_000_000));

    let unequal = |is_above: bool| {
        let mut topology = Topology::new();
        let [mut leaf, other] = [0; 2].map(|_| topology.add(Kind::Switch { stage: 0 }));
        for leaf in [leaf, other] {
            let host = topology.add(Kind::Host);
            built(topology.link(host, leaf, link(10)));
        }
        if is_above {
            let above = topology.add(Kind::Switch { stage: 1 });
            built(topology.link(leaf, above, link(40)));
            leaf = above;
        }
        let spines = [0; 2].map(|_| topology.add(Kind::Switch { stage: 1 + u8::from(is_above) }));
        for spine in spines {
            built(topology.link(leaf, spine, link(40)));
            for _ in 0..2 {
                built(topology.link(spine, other, link(20)));
            }
        }
        let failure = Change { at: micros(10), link: link_between(&topology, spines[0], other), is_up: false };
        let listed = Box::new(Listed::new(cells(30)));
        let mut simulation = built(Simulation::new(topology, settings.clone(), listed, vec![failure]));
        simulation.run_until(micros(1_000_000));
        simulation
    };
    let [at_leaf, above] = [false, true].map(unequal);

    let mut cases = Vec::new();
    let of = [
        ("equal", &equal, Hop::Up(0), &[10, 10, 10, 10][..]),
        ("after a failure", &at_leaf, Hop::Up(0), &[10, 20]),
        ("above the leaf", &above, Hop::Up(1), &[10, 20]),
    ];
    for (name, simulation, hop, cells) in of {
        for (path, (packets, cells)) in packets(simulation, hop, cells.len()).into_iter().zip(cells).enumerate() {
            let name = format!("{name}: packets by path {path}");
            cases.push(Case::new(name, packets as f64, (cells * CELL) as f64, 0.0));
        }
    }
    Finding::all(cases)
}

/// A flow that has one segment under way sends once in a round trip. Where the gap is 2 ns shorter than that, each packet is a flowlet of
/// its own and takes any of 16 paths; where it is 2 ns longer, all are one.
pub(super) fn letflow(seed: u64, _form: Form) -> Finding {
    const PACKETS: u64 = 2_000;
    let tcp = TcpSettings { receive_window: 1, ack_every: 1, ..TcpSettings::default() };
    let link = link(10);
    let one_way = |wire: u16| (Span::of(u64::from(wire), link.rate) + link.delay.into()).saturating_mul(4);
    let round_trip = (one_way(tcp.mss + tcp.overhead) + one_way(tcp.ack_wire)).as_nanos();
    let by_path = |gap| {
        let scheme = Scheme::LetFlow { gap: Span::from_nanos(gap), places: 1_024 };
        let starts = vec![(Time::ZERO, start(0, 1, PACKETS * u64::from(tcp.mss)))];
        let mut simulation =
            simulation(leaf_spine(16, 2, 1, 10, 10), Settings { tcp, ..Settings::new(seed, scheme) }, starts);
        simulation.run_until(micros(1_000_000));
        packets(&simulation, Hop::Up(0), 16)
    };
    let most = |packets: &[u64]| packets.iter().copied().max().unwrap_or(0) as f64 / PACKETS as f64;
    let used = |packets: &[u64]| packets.iter().filter(|packets| **packets > 0).count() as f64;
    let (shorter, longer) = (by_path(round_trip - 2), by_path(round_trip + 2));
    Finding::all(vec![
        Case::new("gap shorter than the pause: paths used", used(&shorter), 16.0, 0.0),
        // Five standard deviations of a 16th of 2,000, since it is the largest of 16.
        Case::new("gap shorter than the pause: largest share", most(&shorter), 0.0625, 0.027),
        Case::new("gap longer than the pause: paths used", used(&longer), 1.0, 0.0),
        Case::new("gap longer than the pause: largest share", most(&longer), 1.0, 0.0),
    ])
}
