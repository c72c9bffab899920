//! The experiment `fabric-speed`: how many packet-hops a second the simulator makes, beside a hold model of a binary heap, which says how
//! fast the machine is, and beside ns-3 on the same flows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant as Clock;

use anyhow::{Context, Result, anyhow};
use serde_json::json;
use weirgate_balance::Looks;
use weirgate_balance::symmetry::Symmetry;
use weirgate_balance::topology::{FatTree, LeafSpine, Link, LinkSettings, Topology, TopologyError};
use weirgate_fabric::{Chance, Hosts, PUBLISHED, Poisson, Scheme, Settings, Simulation, Sizes, Span, Time};
use weirgate_units::{BitRate, Duration};

use super::ns3::Ns3;
use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::process::memory_mb;
use crate::report::{Report, Table, number};
use crate::stats::{median, quantile, sorted};

/// Of the capacity of all leaves' uplinks, in bytes on the wire of data.
const LOAD: f64 = 0.8;
const SIZES: &str = "facebook_web_server";

/// What the hold model holds, and how often something is taken out of it and put in again.
const HELD: u32 = 10_000;
const HOLDS: u32 = 20_000_000;

/// How many links go down for [`Components`].
const FAILURES: usize = 20;

/// A network that is simulated.
struct Network {
    name: &'static str,
    hosts: u32,
    build: fn() -> Result<Topology, TopologyError>,
    warm_up: Span,
    /// What is simulated in each round.
    slice: Span,
}

/// How much of everything.
struct Plan {
    rounds: usize,
    networks: [Network; 3],
    /// Of ns-3's simulated time, what is measured: from, until.
    ns3: [Span; 2],
}

impl Plan {
    fn of(form: Form) -> Self {
        let is_full = form == Form::Full;
        let [warm_ups, slices] = if is_full {
            [[10_000, 5_000, 1_000], [10_000, 3_000, 300]]
        } else {
            [[2_000, 1_000, 300], [3_000, 1_000, 100]]
        };
        let network = |at: usize, name, hosts, build| Network {
            name,
            hosts,
            build,
            warm_up: Span::from_micros(warm_ups[at]),
            slice: Span::from_micros(slices[at]),
        };
        Self {
            rounds: if is_full { 7 } else { 3 },
            networks: [
                network(0, "4 spines, 16 leaves", 320, || leaf_spine(4, 16, 20)),
                network(1, "8 spines, 32 leaves", 1_024, || leaf_spine(8, 32, 32)),
                network(2, "fat tree, k = 32", 8_192, || FatTree { k: 32, link: link(10) }.build()),
            ],
            ns3: if is_full { [500, 1_000] } else { [100, 200] }.map(Span::from_micros),
        }
    }
}

fn link(gbit: u64) -> LinkSettings {
    LinkSettings { rate: BitRate::from_bits_per_sec(gbit * 1_000_000_000), delay: Duration::from_nanos(500) }
}

fn leaf_spine(spines: u32, leaves: u32, hosts: u32) -> Result<Topology, TopologyError> {
    LeafSpine { spines, leaves, hosts, edge: link(10), core: link(40) }.build()
}

/// A simulation under way, and what it was seen to do.
struct Arm {
    network: Network,
    simulation: Simulation,
    /// For topology, routes and symmetric components, in seconds.
    build_secs: f64,
    /// Of the process, in MB: what it grew by with the network, and with flows and packets.
    network_mb: f64,
    traffic_mb: f64,
    flows: usize,
    /// By round.
    hops_per_sec: Vec<f64>,
    over_hold: Vec<f64>,
    secs: Vec<f64>,
}

impl Arm {
    fn new(network: Network, seed: u64) -> Result<Self> {
        let before = memory_mb(std::process::id(), "VmRSS")?;
        let start = Clock::now();
        let topology = (network.build)().map_err(|error| anyhow!("{error}"))?;
        let settings = settings(seed);
        let workload = workload(&topology, &settings)?;
        let mut simulation =
            Simulation::new(topology, settings, Box::new(workload), Vec::new()).map_err(|error| anyhow!("{error}"))?;
        let build_secs = start.elapsed().as_secs_f64();
        let built = memory_mb(std::process::id(), "VmRSS")?;
        simulation.run_until(Time::ZERO + network.warm_up);
        simulation.begin_measures(None);
        Ok(Self {
            build_secs,
            network_mb: built - before,
            traffic_mb: memory_mb(std::process::id(), "VmRSS")? - built,
            flows: simulation.flows_under_way(),
            network,
            simulation,
            hops_per_sec: Vec::new(),
            over_hold: Vec::new(),
            secs: Vec::new(),
        })
    }

    /// One more round; packet-hops a second.
    fn go_on(&mut self) -> f64 {
        let before = self.simulation.packet_hops();
        let until = self.simulation.now() + self.network.slice;
        let start = Clock::now();
        self.simulation.run_until(until);
        let secs = start.elapsed().as_secs_f64();
        let hops_per_sec = (self.simulation.packet_hops() - before) as f64 / secs;
        self.hops_per_sec.push(hops_per_sec);
        self.secs.push(secs);
        hops_per_sec
    }

    fn row(&self) -> Vec<String> {
        let rates = sorted(self.hops_per_sec.iter().copied());
        let simulated = self.network.slice.as_secs_f64() * 1e6 / median(self.secs.iter().copied());
        let per_flow = self.traffic_mb * 1e6 / self.flows.max(1) as f64;
        [
            quantile(&rates, 0.5) / 1e6,
            quantile(&rates, 0.0) / 1e6,
            quantile(&rates, 1.0) / 1e6,
            median(self.over_hold.iter().copied()),
            simulated,
            self.build_secs,
            self.network_mb,
            self.traffic_mb,
            self.flows as f64,
            per_flow,
        ]
        .map(number)
        .into_iter()
        .fold(vec![format!("{} hosts: {}", self.network.hosts, self.network.name)], |mut row, cell| {
            row.push(cell);
            row
        })
    }
}

fn settings(seed: u64) -> Settings {
    Settings::new(seed, Scheme::Drill(Looks::RECOMMENDED))
}

/// What symmetric components cost: those of a fat tree with k = 32, 8,192 hosts and 8,192 links between switches of each pair of stages.
struct Components {
    all_secs: f64,
    /// What the process grew by.
    mb: f64,
    /// By failure: one link after the other goes down alone, of all stages.
    failure_ms: Vec<f64>,
}

impl Components {
    fn measure() -> Result<Self> {
        let mut topology = FatTree { k: 32, link: link(10) }.build().map_err(|error| anyhow!("{error}"))?;
        let before = memory_mb(std::process::id(), "VmRSS")?;
        let start = Clock::now();
        let mut symmetry = Symmetry::new(&topology);
        let (all_secs, mb) = (start.elapsed().as_secs_f64(), memory_mb(std::process::id(), "VmRSS")? - before);
        let is_host = |link| topology.ends(link).iter().any(|end| topology.is_host(*end));
        let links: Vec<Link> = topology.links().filter(|link| !is_host(*link)).collect();
        let mut failure_ms = Vec::new();
        for link in links.iter().step_by(links.len() / FAILURES) {
            let start = Clock::now();
            symmetry.set_up(&mut topology, *link, false);
            failure_ms.push(start.elapsed().as_secs_f64() * 1e3);
            symmetry.set_up(&mut topology, *link, true);
        }
        Ok(Self { all_secs, mb, failure_ms })
    }
}

/// Flows of one leaf's hosts to those of another, at the load.
fn workload(topology: &Topology, settings: &Settings) -> Result<Poisson> {
    let (_, text) =
        PUBLISHED.iter().find(|(name, _)| *name == SIZES).context("the distribution comes with the program")?;
    let sizes = Sizes::parse(text)?;
    let is_uplink = |leaf, link| !topology.is_host(topology.far_end(link, leaf));
    let rates = topology.leaves().into_iter().flat_map(|leaf| {
        let links = topology.ports(leaf).iter().filter(move |link| is_uplink(leaf, **link));
        links.map(|link| topology.settings(*link).rate.as_bits_per_sec() as f64)
    });
    let per_sec = LOAD * rates.sum::<f64>() / 8.0 / sizes.mean(|bytes| settings.tcp.wire_bytes(bytes));
    // A stream of its own: switches have the numbers from 1 on.
    let chance = Chance::new(settings.seed, u64::MAX);
    Ok(Poisson::new(sizes, Hosts::of(topology), per_sec, Time::MAX, chance))
}

/// How many events a second a binary heap takes out and puts in again, each half a microsecond to two and a half later.
fn hold(seed: u64) -> f64 {
    let mut chance = Chance::new(seed, 0);
    let mut ahead = move || 500_000 + u64::from(chance.bits()) % 2_000_000;
    let mut heap: BinaryHeap<_> = (0..HELD).map(|item| Reverse((ahead(), item))).collect();
    let start = Clock::now();
    for _ in 0..HOLDS {
        if let Some(Reverse((at, item))) = heap.pop() {
            heap.push(Reverse((at + ahead(), item)));
        }
    }
    std::hint::black_box(&heap);
    f64::from(HOLDS) / start.elapsed().as_secs_f64()
}

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "fabric-speed", "How fast fabrics are simulated");
    let plan = Plan::of(options.form);
    options.say("building ns-3's program");
    let small = (plan.networks[0].build)().map_err(|error| anyhow!("{error}"))?;
    let [from, until] = plan.ns3;
    let flows = workload(&small, &settings(options.seed))?;
    let ns3 = Ns3::build(&options.dir("fabric-speed")?, flows, from, until)?;
    let mut arms = Vec::new();
    for network in plan.networks {
        options.say(format!("{} hosts: warming up", network.hosts));
        arms.push(Arm::new(network, options.seed)?);
    }
    let (mut holds, mut rivals, mut over_ns3) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=plan.rounds {
        options.say(format!("round {round} of {}", plan.rounds));
        let mut before = hold(options.seed);
        for arm in &mut arms {
            let hops_per_sec = arm.go_on();
            // A machine's speed changes within seconds: it is what it was just before and is just after.
            let after = hold(options.seed);
            arm.over_hold.push(hops_per_sec / ((before + after) / 2.0));
            holds.push(after);
            before = after;
        }
        let steps = ns3.run(5)?;
        let rival = median(steps.iter().copied());
        over_ns3.push(arms[0].hops_per_sec[round - 1] / rival);
        rivals.push((rival, steps));
    }
    let peak_mb = memory_mb(std::process::id(), "VmHWM")?;
    // Last: what it gives back to the allocator would be there for the networks.
    options.say("symmetric components of a fat tree, k = 32");
    let components = Components::measure()?;

    let mut expectations = Expectations::of("fabric-speed")?;
    for arm in &arms {
        let ratio = median(arm.over_hold.iter().copied());
        expectations.measured(&format!("hops_over_hold_{}", arm.network.hosts), ratio)?;
    }
    expectations.measured("hops_over_ns3_320", median(over_ns3.iter().copied()))?;
    expectations.measured("peak_memory_mb", peak_mb)?.explanation =
        Some("of the whole process, which has all three networks at once".into());

    expectations.measured("components_s", components.all_secs)?;
    expectations.measured("components_mb", components.mb)?;
    expectations.measured("components_failure_ms", median(components.failure_ms.iter().copied()))?;

    let mut speeds = Table::new(
        "The event loop after warm-up",
        &[
            "network",
            "million packet-hops/s",
            "least",
            "most",
            "over the hold model",
            "simulated us per s",
            "to build, s",
            "network, MB",
            "traffic, MB",
            "flows under way",
            "bytes per flow, its packets included",
        ],
    );
    speeds.rows = arms.iter().map(Arm::row).collect();
    let mut beside = Table::new("Beside them", &["what", "median", "least", "most"]);
    let rival = sorted(rivals.iter().map(|(rate, _)| rate / 1e6));
    let steps = sorted(rivals.iter().flat_map(|(_, steps)| steps).map(|rate| rate / 1e6));
    for (what, values) in [
        ("hold model, million events/s", sorted(holds.iter().map(|rate| rate / 1e6))),
        ("ns-3, 320 hosts, million packet-hops/s", rival),
        ("the same by fifths of its run", steps),
        ("packet-hops/s over ns-3's, 320 hosts", sorted(over_ns3)),
        ("symmetric components after a link failed, k = 32, ms", sorted(components.failure_ms)),
    ] {
        beside
            .rows
            .push([what.into()].into_iter().chain([0.5, 0.0, 1.0].map(|q| number(quantile(&values, q)))).collect());
    }
    let method = format!(
        "Medians of {} rounds; in each, every network goes on for a while between two runs of the hold model, which takes an event out \
         of std's BinaryHeap with {HELD} pending and puts it in again, {HOLDS} times; then ns-3 runs. A packet-hop is a packet, data or \
         ACK, that has left one link's queue, the host's own included (here it counts when it is taken in, since it is known then when it \
         leaves); what was dropped does not count. Symmetric components are those of a fat tree with k = 32, then {FAILURES} of its links go down, one at a time. DRILL(2,1), TCP NewReno with SACK, {LOAD} of what the leaves' uplinks carry, flow \
         sizes {SIZES}, 10 Gbit/s to hosts and 40 Gbit/s between switches (fat tree: 10), 500 ns a link, 300 KB a port; queues are measured each 10 us. One thread. Memory is what the process grew by, so what a \
         network used only while it was built and traffic uses now counts as the network's. ns-3 is Debian's (3.37, logging compiled \
         in and off), with the same flows at the same times, the same rates, delays and buffers, NewReno with SACK, no \
         timestamps, no queue disciplines, no tracing, routes found before. What differs: its switches draw a next hop for each packet \
         (there is no DRILL), and its routing table is a list, a quarter of its time; connections are opened and closed \
         (packets that count for it); PPP has 36 bytes less of overhead a packet; its hosts' queues hold all that comes instead of 100 us a \
         flow. It is measured from {} us on, before its queues have filled as ours have, and by its processor time, ours by the clock: \
         both in its favour.",
        plan.rounds,
        from.as_nanos() / 1_000,
    );
    report.finish(
        method,
        json!({ "rounds": plan.rounds, "load": LOAD, "sizes": SIZES }),
        expectations,
        vec![speeds, beside],
    )
}
