//! What comes into a network goes out of it, or is counted.

use super::scene::{crowd, schemes};
use super::{Case, Finding, Form};
use crate::{Buffers, ControlKind, Hop, LineCounters, Settings, Span, TcpSettings};

pub(super) fn packets(seed: u64, form: Form) -> Finding {
    let tcp = TcpSettings { control: ControlKind::Dctcp, min_rto: Span::from_micros(1_000), ..TcpSettings::default() };
    let mut cases = Vec::new();
    for seed in seed..seed + form.pick(1, 10) {
        for scheme in schemes() {
            let name = scheme.name();
            let tight =
                Settings { buffers: Buffers::PerPort(20_000), mark: Some(10_000), tcp, ..Settings::new(seed, scheme) };
            let shared = Settings { buffers: Buffers::Shared(60_000), ..tight.clone() };
            let delayed = Settings { enqueue_delay: Span::from_nanos(700), engines: 4, ..tight.clone() };
            for (buffers, settings) in [("ports'", tight), ("shared", shared), ("ports', seen late", delayed)] {
                cases.extend(balance(&format!("{name}, buffers {buffers}, seed {seed}"), settings));
            }
        }
    }
    Finding::misses(cases)
}

fn balance(name: &str, settings: Settings) -> [Case; 7] {
    let simulation = crowd(settings);
    let (measures, carried) = (simulation.measures(), simulation.carried());
    let sum = |hop: Hop, of: fn(&LineCounters) -> u64| -> u64 {
        simulation.lines().filter(|(other, _)| *other == hop).map(|(_, counters)| of(counters)).sum()
    };
    let dropped: u64 = simulation.lines().map(|(_, counters)| counters.dropped).sum();
    let case = |what: &str, measured: u64, expected: u64| {
        Case::new(format!("{name}: {what}"), measured as f64, expected as f64, 0.0)
    };
    [
        case("packets out and dropped", sum(Hop::Edge, |c| c.packets) + dropped, sum(Hop::Host, |c| c.packets)),
        case("payload", carried.payload, measures.finished.iter().map(|flow| flow.bytes).sum()),
        case("bytes of uplinks", carried.uplinks.iter().map(|(_, bytes)| bytes).sum(), sum(Hop::Up(0), |c| c.bytes)),
        case("flows finished", measures.finished.len() as u64, measures.started),
        case("flows under way at the end", simulation.flows_under_way() as u64, 0),
        case("packets without a route", measures.no_route, 0),
        // Else it would not say much.
        case("is crowded", u64::from(dropped > 0), 1),
    ]
}
