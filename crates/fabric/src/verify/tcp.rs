//! TCP's throughput under random loss. Read first: Mathis, Semke, Mahdavi, Ott, "The macroscopic behavior of the TCP congestion avoidance
//! algorithm" (CCR 1997).

use weirgate_balance::topology::{LeafSpine, LinkSettings};
use weirgate_units::{BitRate, Duration};

use super::scene::{built, link_between, simulation, start};
use super::{Case, Finding, Form};
use crate::{Scheme, Settings, Span, TcpSettings, Time};

/// Flows side by side, which the lines are far too fast for to be in each other's way.
const FLOWS: u32 = 8;

/// Of one line; a round trip is eight of them, and half a microsecond for the bits.
const DELAY: Duration = Duration::from_micros(125);

/// A loss each time that so many packets in the mean have passed. At the highest one windows are 27 segments in the mean: the formula is of
/// windows that are large, and lose one segment at a time.
const LOSSES: [f64; 3] = [0.0005, 0.001, 0.002];

/// The constant of the formula, for an ACK of each segment, is sqrt(3/2) where each loss comes when 1/p packets have passed. Where losses
/// are independent it is 1.31 in the limit of small p (7 % more), and the round trip in which a loss is mended, without growth, takes some
/// of that away; 10 % holds both.
pub(super) fn square_root(seed: u64, form: Form) -> Finding {
    let tolerance = form.pick(20.0, 10.0);
    let case = |p| {
        let measured = constant(seed, form.pick(60.0, 2_000.0), p);
        Case::new(format!("loss of {p}: rate RTT sqrt(p) / MSS"), measured, 1.22, 1.22 * tolerance / 100.0)
    };
    Finding::error_pct(tolerance, LOSSES.into_iter().map(case).collect())
}

/// Of flows that have so many losses each.
fn constant(seed: u64, losses: f64, p: f64) -> f64 {
    let link = LinkSettings { rate: BitRate::from_bits_per_sec(400_000_000_000), delay: DELAY };
    let topology = built(LeafSpine { spines: 1, leaves: 2, hosts: FLOWS, edge: link, core: link }.build());
    let [leaf, spine] = [0, 2].map(|at| topology.nodes().nth(at).expect("two leaves, then the spine"));
    let lossy = link_between(&topology, leaf, spine);
    // A segment that is lost twice waits for the timer, of which the formula knows nothing: four round trips of it.
    let min_rto = Span::from(DELAY).saturating_mul(32);
    let tcp = TcpSettings { ack_every: 1, min_rto, ..TcpSettings::default() };
    let segments = (losses / p) as u64;
    let flow = |flow| (Time::ZERO, start(flow, FLOWS + flow, segments * u64::from(tcp.mss)));
    let settings = Settings { tcp, ..Settings::new(seed, Scheme::Ecmp) };
    let mut simulation = simulation(topology, settings, (0..FLOWS).map(flow).collect());
    simulation.set_loss(lossy, leaf, p);
    simulation.run_until(Time::MAX);
    let finished = &simulation.measures().finished;
    let secs: f64 = finished.iter().map(|flow| flow.time.as_secs_f64()).sum();
    let round_trip = 8.0 * Span::from(DELAY).as_secs_f64();
    segments as f64 * finished.len() as f64 / secs * round_trip * p.sqrt()
}
