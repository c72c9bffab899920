//! Duplicate ACKs of a flow alone, over paths that are alike.

use super::scene::{BY_PACKET, leaf_spine, micros, simulation, start};
use super::{Case, Finding, Form};
use crate::{Scheme, Settings, Span, TcpSettings, Time};

/// Gbit/s.
const CORE: u64 = 40;
const EDGE: u64 = 10;

/// Packets of one size do not overtake each other. A short last one leaves its host right behind the one before it, which takes
/// `MTU/core` longer on each of two links of the core and is `tail/edge` ahead: it overtakes on another path where
/// `tail (1/edge + 2/core) < 2 MTU/core`.
pub(super) fn dup_acks(seed: u64, form: Form) -> Finding {
    let mut cases = Vec::new();
    for scheme in BY_PACKET {
        for seed in seed..seed + form.pick(5, 100) {
            cases.extend(flow(scheme, seed, 300 * 1_460, 0));
        }
    }
    // Wire bytes: 1,538 * 2/40 / (1/10 + 2/40) = 512.7, and 78 of these are headers.
    for (tail, overtakes) in [(1, 1), (400, 1), (434, 1), (435, 0), (1_000, 0), (1_459, 0)] {
        // In turn, ports always differ; by hash, never.
        cases.extend(flow(Scheme::RoundRobin, seed, 10 * 1_460 + tail, overtakes));
        cases.extend(flow(Scheme::Ecmp, seed, 10 * 1_460 + tail, 0));
    }
    Finding::misses(cases)
}

/// All duplicate ACKs, and those of the last segment, are as many as expected.
fn flow(scheme: Scheme, seed: u64, bytes: u64, expected: u32) -> [Case; 2] {
    let tcp = TcpSettings { initial_window: 1_000, host_queue: Span::from_micros(1_000_000), ..TcpSettings::default() };
    let starts = vec![(Time::ZERO, start(0, 3, bytes))];
    let mut simulation =
        simulation(leaf_spine(4, 2, 2, EDGE, CORE), Settings { tcp, ..Settings::new(seed, scheme) }, starts);
    simulation.run_until(micros(1_000_000));
    let flow = simulation.measures().finished.first();
    let counts = flow.map_or([f64::NAN; 2], |flow| [flow.dup_acks, flow.dup_acks_of_short_last].map(f64::from));
    [("all", counts[0]), ("of the last", counts[1])].map(|(which, measured)| {
        Case::new(
            format!("{}, {bytes} B, seed {seed}: dup ACKs, {which}", scheme.name()),
            measured,
            expected.into(),
            0.0,
        )
    })
}
