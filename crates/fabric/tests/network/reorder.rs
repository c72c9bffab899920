use weirgate_balance::Looks;
use weirgate_fabric::{Scheme, Settings, Span, TcpSettings, Time};

use crate::common::{leaf_spine, run, start};

const CORE: u64 = 40;
const EDGE: u64 = 10;

fn dup_acks(scheme: Scheme, seed: u64, bytes: u64) -> (u32, u32) {
    let tcp = TcpSettings { initial_window: 1_000, host_queue: Span::from_micros(1_000_000), ..TcpSettings::default() };
    let settings = Settings { tcp, ..Settings::new(seed, scheme) };
    let simulation = run(leaf_spine(4, 2, 2, EDGE, CORE), settings, vec![(Time::ZERO, start(0, 3, bytes))]);
    let flow = simulation.measures().finished[0];
    (flow.dup_acks, flow.dup_acks_of_short_last)
}

#[test]
fn packets_of_one_size_do_not_overtake_each_other_on_equal_idle_paths() {
    let schemes = [Scheme::Random, Scheme::RoundRobin, Scheme::Drill(Looks::RECOMMENDED), Scheme::Presto, Scheme::Reps];
    for scheme in schemes {
        for seed in 0..5 {
            assert_eq!(dup_acks(scheme, seed, 300 * 1_460), (0, 0), "{}", scheme.name());
        }
    }
}

/// A short last packet leaves its host right behind the one before it, and overtakes it on another path where
/// tail * (1/edge + 2/core) < 2 * MTU/core.
#[test]
fn a_short_last_packet_overtakes_as_the_closed_form_has_it() {
    // Wire bytes: 1,538 * 2/40 / (1/10 + 2/40) = 512.7.
    for (tail, overtakes) in [(1, true), (400, true), (434, true), (435, false), (1_000, false), (1_459, false)] {
        let wire = tail + 78;
        assert_eq!(wire as f64 * (1.0 / EDGE as f64 + 2.0 / CORE as f64) < 2.0 * 1_538.0 / CORE as f64, overtakes);
        // In turn, ports always differ.
        let expected = u32::from(overtakes);
        assert_eq!(dup_acks(Scheme::RoundRobin, 1, 10 * 1_460 + tail), (expected, expected), "{tail}");
        assert_eq!(dup_acks(Scheme::Ecmp, 1, 10 * 1_460 + tail), (0, 0));
    }
}
