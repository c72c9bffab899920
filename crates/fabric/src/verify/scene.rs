//! What several checks run: small networks, and a crowd.

use weirgate_balance::topology::{LeafSpine, Link, LinkSettings, Node, Topology};
use weirgate_balance::{CongaSettings, LabelSettings, Looks};
use weirgate_units::{BitRate, Duration};

use crate::{Chance, Hop, Hosts, Listed, Poisson, Scheme, Settings, Simulation, Sizes, Span, Start, Time};

/// Half a microsecond long: 100 m.
pub(super) const fn link(gbit: u64) -> LinkSettings {
    LinkSettings { rate: BitRate::from_bits_per_sec(gbit * 1_000_000_000), delay: Duration::from_nanos(500) }
}

pub(super) fn leaf_spine(spines: u32, leaves: u32, hosts: u32, edge: u64, core: u64) -> Topology {
    built(LeafSpine { spines, leaves, hosts, edge: link(edge), core: link(core) }.build())
}

/// Networks of checks can be built.
pub(super) fn built<T, E: core::fmt::Debug>(built: Result<T, E>) -> T {
    built.expect("hosts, and links with rates between them")
}

/// The first link between two nodes that are linked.
pub(super) fn link_between(topology: &Topology, a: Node, b: Node) -> Link {
    *topology.ports(a).iter().find(|link| topology.far_end(**link, a) == b).expect("they are linked")
}

pub(super) const fn start(source: u32, destination: u32, bytes: u64) -> Start {
    Start { source, destination, bytes, class: 0 }
}

pub(super) const fn micros(micros: u64) -> Time {
    Time::from_picos(micros * 1_000_000)
}

pub(super) fn simulation(topology: Topology, settings: Settings, starts: Vec<(Time, Start)>) -> Simulation {
    let settings = Settings { sample_every: None, ..settings };
    built(Simulation::new(topology, settings, Box::new(Listed::new(starts)), Vec::new()))
}

/// What the first so many lines of a hop have taken in: lines are in order of their nodes, and ports.
pub(super) fn packets(simulation: &Simulation, hop: Hop, first: usize) -> Vec<u64> {
    simulation.lines().filter(|(other, _)| *other == hop).take(first).map(|(_, counters)| counters.packets).collect()
}

/// All that choose anew for each packet, or each cell.
pub(super) const BY_PACKET: [Scheme; 7] = [
    Scheme::Random,
    Scheme::RoundRobin,
    Scheme::Drill(Looks::RECOMMENDED),
    Scheme::Shortest { quantum: 1 },
    Scheme::Shortest { quantum: 1_538 },
    Scheme::Presto,
    Scheme::Reps,
];

/// One of each kind of [`Scheme`]: of labels PLB and not FlowBender, of shortest queues adaptive routing and not JSQ, of DRILL's rules the
/// default.
pub fn schemes() -> Vec<Scheme> {
    vec![
        Scheme::Ecmp,
        Scheme::Wcmp,
        Scheme::Random,
        Scheme::RoundRobin,
        Scheme::Drill(Looks::RECOMMENDED),
        Scheme::DrillPerFlow(Looks::RECOMMENDED),
        Scheme::Shortest { quantum: 1_538 },
        Scheme::Conga(CongaSettings::default()),
        Scheme::LetFlow { gap: Span::from_micros(100), places: 1_024 },
        Scheme::Presto,
        Scheme::Label(LabelSettings::PLB),
        Scheme::Reps,
    ]
}

/// A crowded network, for 2 ms, and then until all is there, or a simulated 20 s are over: what is compared between seeds, threads and
/// machines by its [digest](Simulation::digest).
pub fn crowd(settings: Settings) -> Simulation {
    let topology = leaf_spine(2, 3, 8, 10, 20);
    let settings = Settings { sample_every: None, ..settings };
    let chance = Chance::new(settings.seed, 1_000);
    let sizes = built(Sizes::new(vec![(100, 0.0), (20_000, 0.9), (200_000, 1.0)]));
    let workload = Poisson::new(sizes, Hosts::of(&topology), 600_000.0, micros(2_000), chance);
    let mut simulation = built(Simulation::new(topology, settings, Box::new(workload), Vec::new()));
    simulation.run_until(micros(20_000_000));
    simulation
}
