//! One line by itself, and two in a network. Read first: any text on queues, for the Pollaczek-Khinchine formula; Daley, "The serial
//! correlation coefficients of waiting times in a stationary single server queue" (1968), for how many packets it takes to see a mean.

use weirgate_balance::Sampler as _;
use weirgate_units::{BitRate, Duration};

use super::scene::{built, leaf_spine};
use super::{Case, Finding, Form};
use crate::line::{Line, Target};
use crate::{Chance, Hop, Scheme, Settings, Simulation, Start, Time, Workload};

/// Picoseconds per byte: at 10 Gbit/s they are whole.
const BYTE: f64 = 800.0;

/// Bytes of a packet, in the mean. Exponential sizes are rounded to whole bytes, which changes their variance by a 12th of a byte squared,
/// 5e-9 of it, and none exceeds 65,535 bytes, which takes off e^-16.4 or 8e-8 of the mean: nothing beside a tolerance of 1 %.
const MEAN: f64 = 4_000.0;

const LOADS: [f64; 3] = [0.5, 0.8, 0.9];

/// Exponential sizes.
pub(super) fn mm1(seed: u64, form: Form) -> Finding {
    let size = |chance: &mut Chance| (-MEAN * libm::log(1.0 - chance.unit()) + 0.5) as u16;
    errors(seed, form, size, |load| load / (1.0 - load))
}

/// One size.
pub(super) fn md1(seed: u64, form: Form) -> Finding {
    errors(seed, form, |_| MEAN as u16, |load| load / (2.0 * (1.0 - load)))
}

/// Single segments that come to a leaf by chance, and that it sends to one of two spines by chance: to either uplink they come by chance, too.
/// Their hosts' links are 40 times as fast, so that next to none waits there.
pub(super) fn in_network(seed: u64, form: Form) -> Finding {
    let tolerance = form.pick(10.0, 3.0);
    let mut cases = Vec::new();
    for load in [0.5, 0.7] {
        let expected = load / (2.0 * (1.0 - load));
        for (uplink, measured) in mean_waits(seed, load, packets(load, tolerance)).into_iter().enumerate() {
            let name = format!("load {load}, uplink {uplink}: wait, services");
            cases.push(Case::new(name, measured, expected, expected * tolerance / 100.0));
        }
    }
    Finding::error_pct(tolerance, cases)
}

/// Of each of a leaf's two uplinks the mean wait of so many packets, in times of service.
fn mean_waits(seed: u64, load: f64, packets: u64) -> [f64; 2] {
    const HOSTS: u32 = 16;
    const GBIT: u64 = 10;
    let settings = Settings { sample_every: None, ..Settings::new(seed, Scheme::Random) };
    let bytes = u64::from(settings.tcp.mss);
    let service = settings.tcp.wire_bytes(bytes) as f64 * 8.0 / (GBIT * 1_000_000_000) as f64;
    let segments = Segments {
        hosts: HOSTS,
        bytes,
        left: 2 * packets,
        between_secs: service / load / 2.0,
        next: Time::ZERO,
        chance: Chance::new(seed, 1_000),
    };
    let topology = leaf_spine(2, 2, HOSTS, 40 * GBIT, GBIT);
    let mut simulation = built(Simulation::new(topology, settings, Box::new(segments), Vec::new()));
    simulation.run_until(Time::MAX);
    let mut uplinks = simulation.lines().filter(|(hop, _)| *hop == Hop::Up(0)).map(|(_, counters)| counters);
    [(); 2].map(|()| {
        let counters = uplinks.next().expect("two uplinks of each leaf");
        counters.waited.as_secs_f64() / counters.packets as f64 / service
    })
}

/// Flows of one segment, by a Poisson process, from the first leaf's hosts to the second one's.
#[derive(Debug)]
struct Segments {
    hosts: u32,
    bytes: u64,
    left: u64,
    between_secs: f64,
    next: Time,
    chance: Chance,
}

impl Workload for Segments {
    fn poll(&mut self, now: Time) -> Option<Start> {
        if self.left == 0 || self.next > now {
            return None;
        }
        self.left -= 1;
        self.next += self.chance.exponential(self.between_secs);
        let [source, destination] = [0, self.hosts].map(|first| first + self.chance.below(self.hosts));
        Some(Start { source, destination, bytes: self.bytes, class: 0 })
    }

    fn poll_at(&self) -> Option<Time> {
        (self.left > 0).then_some(self.next)
    }

    fn flows_left(&self) -> Option<u64> {
        Some(self.left)
    }
}

fn errors(seed: u64, form: Form, size: fn(&mut Chance) -> u16, expected: fn(f64) -> f64) -> Finding {
    let tolerance = form.pick(3.0, 1.0);
    let case = |load| {
        let measured = mean_wait(seed, load, packets(load, tolerance), size);
        let expected = expected(load);
        Case::new(format!("load {load}: wait, services"), measured, expected, expected * tolerance / 100.0)
    };
    Finding::error_pct(tolerance, LOADS.into_iter().map(case).collect())
}

/// The packets with which 4.5 standard deviations of their mean wait are so many percent of it, where sizes are exponential (where they are
/// equal it takes fewer): the sum of `n` waits has a variance of `n rho (2 + 5 rho - 4 rho^2 + rho^3) / (1 - rho)^4` services squared.
fn packets(load: f64, percent: f64) -> u64 {
    let variance = load * (2.0 + load * (5.0 + load * (load - 4.0))) / (1.0 - load).powi(4);
    let mean = load / (1.0 - load);
    (variance * (4.5 / (mean * percent / 100.0)).powi(2)) as u64
}

/// The mean wait of so many packets, in mean times of service.
fn mean_wait(seed: u64, load: f64, packets: u64, size: fn(&mut Chance) -> u16) -> f64 {
    let rate = BitRate::from_bits_per_sec((8e12 / BYTE) as u64);
    let settings = weirgate_balance::topology::LinkSettings { rate, delay: Duration::ZERO };
    let mut line = Line::new(settings, u64::MAX, Target::Host(0), 0, 0);
    let (mut arrivals, mut sizes) = (Chance::new(seed, 0), Chance::new(seed, 1));
    let between_secs = MEAN * BYTE / 1e12 / load;
    let mut now = Time::ZERO;
    for _ in 0..packets {
        now += arrivals.exponential(between_secs);
        line.take(now, size(&mut sizes), u64::MAX);
    }
    let counters = line.counters;
    counters.waited.as_picos() as f64 / counters.packets as f64 / (MEAN * BYTE)
}
