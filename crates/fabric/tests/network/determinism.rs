use weirgate_balance::{CongaSettings, LabelSettings, Looks};
use weirgate_fabric::{
    Buffers, Chance, ControlKind, Hop, Hosts, Poisson, Scheme, Settings, Simulation, Sizes, Span, TcpSettings,
};

use crate::common::{leaf_spine, micros};

fn schemes() -> Vec<Scheme> {
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

/// A crowded network, for 2 ms, and then until all is there.
fn crowd(settings: Settings) -> Simulation {
    let topology = leaf_spine(2, 3, 8, 10, 20);
    let settings = Settings { sample_every: None, ..settings };
    let chance = Chance::new(settings.seed, 1_000);
    let workload = Poisson::new(
        Sizes::new(vec![(100, 0.0), (20_000, 0.9), (200_000, 1.0)]).unwrap(),
        Hosts::of(&topology),
        600_000.0,
        micros(2_000),
        chance,
    );
    let mut simulation = Simulation::new(topology, settings, Box::new(workload), Vec::new()).unwrap();
    assert!(!simulation.run_until(micros(20_000_000)), "it does not end");
    simulation
}

/// What comes into the network goes out of it, or is counted.
#[test]
fn no_packet_is_made_or_gets_lost_uncounted() {
    let tight = |scheme| Settings {
        buffers: Buffers::PerPort(20_000),
        mark: Some(10_000),
        tcp: TcpSettings { control: ControlKind::Dctcp, min_rto: Span::from_micros(1_000), ..TcpSettings::default() },
        ..Settings::new(7, scheme)
    };
    for scheme in schemes() {
        let shared = Settings { buffers: Buffers::Shared(100_000), ..tight(scheme) };
        let delayed = Settings { enqueue_delay: Span::from_nanos(700), engines: 4, ..tight(scheme) };
        for settings in [tight(scheme), shared, delayed] {
            let simulation = crowd(settings);
            let measures = simulation.measures();
            let sum = |hop: Hop, of: fn(&weirgate_fabric::LineCounters) -> u64| -> u64 {
                simulation.lines().filter(|(other, _)| *other == hop).map(|(_, counters)| of(counters)).sum()
            };
            let dropped: u64 = simulation.lines().map(|(_, counters)| counters.dropped).sum();
            let name = scheme.name();
            assert!(dropped > 0, "{name}: it is not crowded");
            assert_eq!(sum(Hop::Host, |c| c.packets), sum(Hop::Edge, |c| c.packets) + dropped, "{name}");
            assert_eq!(measures.finished.len() as u64, measures.started, "{name}");
            assert_eq!((simulation.flows_under_way(), measures.no_route), (0, 0), "{name}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let digest = |seed| crowd(Settings::new(seed, Scheme::Drill(Looks::RECOMMENDED))).digest();
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
    // On every machine: whoever changes what happens changes this with it.
    assert_eq!(format!("{:016x}", digest(1)), "a1581f7c5675c11b");
}
