//! What came of a run, for people, for files and for sweeps. It is of the flows that begin after the warm-up, as many as are asked for;
//! what is said of hops is of all packets until the last of those flows has ended.
//!
//! Units are in the names; a share is of 0 to 1, and what is not known is null. Intervals take the flows of a run for independent, which
//! those that meet in a queue are not: a sweep's, over seeds, do without that.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weirgate_balance::topology::{Node, Topology};
use weirgate_fabric::{Carried, Cause, Distances, Finished, Hop, Queues, Simulation, Span, TcpSettings, Time, ideal};
use weirgate_lab::stats::median;
use weirgate_units::BitRate;

use super::scenario::{FLOWS_MAX, Scenario, Traffic};
use super::statistics::Estimate;

/// Why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All flows that are measured have ended: as many as were asked for, or all that there are.
    Finished,
    /// Some have not, in the time that it was given.
    TimeLimit,
    /// Somebody did not want to wait.
    Interrupted,
}

/// What was measured of a run, of the flows that began after its warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Why it is over: all else is partial, unless it has finished.
    pub ended: Ended,
    /// Of everything random.
    pub seed: u64,
    /// The balancer, as it calls itself.
    pub scheme: String,
    /// How many flows.
    pub flows: Counts,
    /// How long they took.
    pub times: Times,
    /// The same by class of the workload, where there are several.
    pub classes: BTreeMap<u8, Times>,
    /// The uplinks of each leaf; none, where queues were not measured.
    pub queues_up: Option<QueueLengths>,
    /// The downlinks to each leaf.
    pub queues_down: Option<QueueLengths>,
    /// Along the way of a packet, from host to host.
    pub hops: Vec<HopCounts>,
    /// Flows whose receiver sent duplicate ACKs: one at least.
    pub dup_acks_1: DupAcks,
    /// And three at least.
    pub dup_acks_3: DupAcks,
    /// Segments that were sent again.
    pub sent_again: u64,
    /// How often a flow's timer ran out.
    pub timeouts: u64,
    /// Batches that hosts would have handed up (GRO).
    pub batches: u64,
    /// Payload of a batch, in bytes.
    pub batch_bytes_mean: f64,
    /// Payload that arrived in order, of all flows, for each second of simulated time until the last one began that is measured.
    pub goodput_bits_per_s: f64,
    /// The median completion time of the half of all flows that began later, over that of the others: 1, where the network is steady;
    /// none, where there are fewer than 1,000 flows, or they do not come by themselves.
    #[serde(default)]
    pub drift: Option<f64>,
    /// When the last flow that is measured had arrived, in seconds of simulated time; a collective's completion time. None, where flows come
    /// by themselves, or some have not arrived.
    #[serde(default)]
    pub complete_s: Option<f64>,
    /// What of the leaves' uplinks that are up was used in that time; none, where there is no such link.
    pub uplinks: Option<Use>,
    /// Packets for which a switch had no way.
    pub no_route: u64,
    /// How long it took.
    pub speed: Speed,
    /// Of all events, in hexadecimal digits: the same on every machine.
    pub digest: String,
}

/// How many flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// That are measured at most: as many as were asked for, or all that the workload has; none, where nobody knows.
    pub asked: Option<u64>,
    /// Of these, those that began.
    pub started: u64,
    /// Of these, those that arrived as a whole.
    pub finished: u64,
    /// That have begun and not ended, those that are not measured included.
    pub under_way: u64,
}

/// How long flows took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Of how many flows.
    pub flows: u64,
    /// The flow completion time.
    pub fct_us: Distribution,
    /// The completion time, of the least that it takes by a shortest path of an idle network.
    pub slowdown: Distribution,
}

/// A mean, and the quantiles that have 100 samples above them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// None, where there is nothing.
    pub mean: Option<Estimate>,
    /// Half of all are no longer.
    pub p50: Option<Estimate>,
    /// 99 %.
    pub p99: Option<Estimate>,
    /// 99.9 %.
    pub p99_9: Option<Estimate>,
    /// 99.99 %.
    pub p99_99: Option<Estimate>,
}

/// Queues that should be alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueLengths {
    /// The mean of the standard deviations of their lengths; none, where each is the only one.
    pub deviation_bytes: Option<f64>,
    /// The share of samples that were below a full packet, to 100 bytes.
    pub below_packet_share: f64,
}

/// What the lines of a hop did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HopCounts {
    /// `host`, `up 0` (from the leaves), ..., `down 1` (to the leaves), `edge` (to the hosts).
    pub hop: String,
    /// How many lines.
    pub lines: u64,
    /// Packets, ACKs included, that had room.
    pub packets: u64,
    /// How long one waited.
    pub wait_mean_us: f64,
    /// Packets for which there was no room.
    pub dropped: u64,
    /// Packets that were lost with a line, or found it down.
    pub lost: u64,
    /// Packets that were marked.
    pub marked: u64,
    /// What of those that are up was used, until the last flow began that is measured; none, where no time has passed.
    #[serde(default)]
    pub used: Option<Use>,
}

/// Flows with duplicate ACKs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DupAcks {
    /// All of them.
    pub flows: u64,
    /// Those that lost a segment.
    pub lossy: u64,
    /// Of the others, those whose duplicate ACKs are all of a last segment that was shorter, and overtook.
    pub short_last: u64,
    /// And the rest.
    pub reordered: u64,
}

/// What of links was used, on the mean over time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Use {
    /// Of all.
    pub mean_share: f64,
    /// Of the one that was used least.
    pub min_share: f64,
    /// Of the one that was used most.
    pub max_share: f64,
}

/// How long a run took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// Simulated time, its warm-up included.
    pub simulated_s: f64,
    /// Of this, from the warm-up's end until the last flow that is measured began.
    pub loaded_s: f64,
    /// On a clock, its warm-up included.
    pub wall_s: f64,
    /// Packets that left a queue, while measured.
    pub packet_hops: u64,
    /// For each second of a clock, while measured.
    pub packet_hops_per_s: f64,
}

/// What a clock says of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wall {
    /// The warm-up.
    pub warm_up: Duration,
    /// All after it.
    pub measured: Duration,
}

/// A flow, and how long it would have taken in an idle network; none, where that has no way for it.
pub type Slowed<'a> = (&'a Finished, Option<Span>);

impl Outcome {
    /// Of a run of a scenario, as it is now.
    pub fn of(simulation: &Simulation, scenario: &Scenario, ended: Ended, wall: Wall) -> Self {
        let measures = simulation.measures();
        let tcp = &scenario.settings.tcp;
        let flows = slowed(simulation, scenario);
        let packet = u64::from(tcp.mss) + u64::from(tcp.overhead);
        let carried = simulation.carried();
        let loaded_s = carried.time.as_secs_f64();
        let sum = |of: fn(&Finished) -> u64| measures.finished.iter().map(of).sum::<u64>();
        let batches = sum(|flow| u64::from(flow.batches));
        let (packet_hops, hop_s) = (simulation.packet_hops(), wall.measured.as_secs_f64());
        Self {
            ended,
            seed: scenario.settings.seed,
            scheme: scenario.settings.scheme.name(),
            flows: Counts {
                asked: asked(simulation, scenario),
                started: measures.started,
                finished: measures.finished.len() as u64,
                under_way: simulation.flows_under_way() as u64,
            },
            times: Times::of(flows.iter().copied()),
            classes: classes(&flows),
            queues_up: queues(&measures.up, packet),
            queues_down: queues(&measures.down, packet),
            hops: hops(simulation, &carried),
            dup_acks_1: dup_acks(&measures.finished, 1),
            dup_acks_3: dup_acks(&measures.finished, 3),
            sent_again: sum(|flow| u64::from(flow.sent_again)),
            timeouts: sum(|flow| u64::from(flow.timeouts)),
            batches,
            batch_bytes_mean: ratio(sum(|flow| flow.bytes) as f64, batches as f64),
            goodput_bits_per_s: ratio(carried.payload as f64 * 8.0, loaded_s),
            drift: is_open(scenario, measures.finished.len()).then(|| drift(&measures.finished)),
            complete_s: complete(simulation, scenario, ended),
            uplinks: used(carried.time, &carried.uplinks),
            no_route: measures.no_route,
            speed: Speed {
                simulated_s: simulation.now().saturating_since(Time::ZERO).as_secs_f64(),
                loaded_s,
                wall_s: (wall.warm_up + wall.measured).as_secs_f64(),
                packet_hops,
                packet_hops_per_s: ratio(packet_hops as f64, hop_s),
            },
            digest: format!("{:016x}", simulation.digest()),
        }
    }
}

impl Times {
    fn of<'a>(flows: impl Iterator<Item = Slowed<'a>> + Clone) -> Self {
        let slowdown = |(flow, ideal): Slowed<'_>| Some(ratio(flow.time.as_secs_f64(), ideal?.as_secs_f64()));
        Self {
            flows: flows.clone().count() as u64,
            fct_us: Distribution::of(flows.clone().map(|(flow, _)| flow.time.as_secs_f64() * 1e6).collect()),
            slowdown: Distribution::of(flows.filter_map(slowdown).collect()),
        }
    }
}

impl Distribution {
    fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_unstable_by(f64::total_cmp);
        let quantile = |parts| Estimate::quantile(&samples, parts);
        Self {
            mean: Estimate::mean(&samples),
            p50: quantile(5_000),
            p99: quantile(9_900),
            p99_9: quantile(9_990),
            p99_99: quantile(9_999),
        }
    }

    /// The quantiles, by name.
    pub const fn quantiles(&self) -> [(&'static str, Option<Estimate>); 4] {
        [("p50", self.p50), ("p99", self.p99), ("p99.9", self.p99_9), ("p99.99", self.p99_99)]
    }
}

/// Whether flows come by themselves, however many there are, and enough of them ended to see whether they get slower.
const fn is_open(scenario: &Scenario, finished: usize) -> bool {
    matches!(scenario.traffic, Traffic::Poisson { .. }) && finished >= 1_000
}

/// The median completion time of the half of all flows that began later, over that of the others.
pub(super) fn drift(finished: &[Finished]) -> f64 {
    let began = |flow: &Finished| flow.began.as_picos() as f64;
    let middle = median(finished.iter().map(began));
    let (early, late): (Vec<&Finished>, Vec<&Finished>) = finished.iter().partition(|flow| began(flow) < middle);
    let [early, late] = [early, late].map(|flows| median(flows.into_iter().map(|flow| flow.time.as_secs_f64())));
    late / early
}

/// How many flows are measured at most; none, where all are, and their workload does not know how many there will be.
pub fn asked(simulation: &Simulation, scenario: &Scenario) -> Option<u64> {
    let limit = Some(scenario.run.flows).filter(|flows| *flows < FLOWS_MAX);
    [limit, simulation.flows_to_measure()].into_iter().flatten().min()
}

/// 0 for nothing of nothing.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The flows that ended, each with the least that it takes, in the network as it is at the start.
fn slowed<'a>(simulation: &'a Simulation, scenario: &Scenario) -> Vec<Slowed<'a>> {
    let finished = &simulation.measures().finished;
    let Ok((topology, _)) = scenario.network.build(scenario.settings.seed) else {
        return finished.iter().map(|flow| (flow, None)).collect();
    };
    let mut least = Least::new(&topology, &scenario.settings.tcp);
    finished.iter().map(|flow| (flow, least.time(flow))).collect()
}

/// The least that flows take.
struct Least<'a> {
    topology: &'a Topology,
    tcp: &'a TcpSettings,
    hosts: Vec<Node>,
    /// By leaf.
    distances: BTreeMap<usize, Distances>,
}

impl<'a> Least<'a> {
    fn new(topology: &'a Topology, tcp: &'a TcpSettings) -> Self {
        let hosts = topology.nodes().filter(|node| topology.is_host(*node)).collect();
        Self { topology, tcp, hosts, distances: BTreeMap::new() }
    }

    fn time(&mut self, flow: &Finished) -> Option<Span> {
        let [source, destination] = [flow.source, flow.destination].map(|host| self.hosts[host as usize]);
        // Hosts have one link, so that all ways to those of a leaf are alike up to there.
        let leaf = self.topology.leaf_of(destination);
        let distances = self.distances.entry(leaf.index()).or_insert_with(|| Distances::to(self.topology, leaf));
        let mut path = distances.path(self.topology, source)?;
        path.push(self.topology.settings(self.topology.ports(destination)[0]));
        Some(ideal(&path, self.tcp, flow.bytes))
    }
}

fn classes(flows: &[Slowed<'_>]) -> BTreeMap<u8, Times> {
    let classes: BTreeSet<u8> = flows.iter().map(|(flow, _)| flow.class).collect();
    if classes.len() < 2 {
        return BTreeMap::new();
    }
    let times = |class| Times::of(flows.iter().copied().filter(move |(flow, _)| flow.class == class));
    classes.into_iter().map(|class| (class, times(class))).collect()
}

fn queues(queues: &Queues, packet: u64) -> Option<QueueLengths> {
    queues.lengths.iter().any(|times| *times > 0).then(|| QueueLengths {
        deviation_bytes: queues.deviation(),
        below_packet_share: queues.share_up_to(packet - 1),
    })
}

fn complete(simulation: &Simulation, scenario: &Scenario, ended: Ended) -> Option<f64> {
    let is_closed = !matches!(scenario.traffic, Traffic::Poisson { .. });
    let there = simulation.measures().finished.iter().map(|flow| flow.began + flow.time).max();
    there.filter(|_| is_closed && ended == Ended::Finished).map(|at| at.saturating_since(Time::ZERO).as_secs_f64())
}

fn dup_acks(flows: &[Finished], least: u32) -> DupAcks {
    let mut counts = DupAcks::default();
    for flow in flows.iter().filter(|flow| flow.dup_acks >= least) {
        counts.flows += 1;
        match flow.cause() {
            Some(Cause::Loss) => counts.lossy += 1,
            Some(Cause::ShortLast) => counts.short_last += 1,
            Some(Cause::Reordering) => counts.reordered += 1,
            None => {}
        }
    }
    counts
}

/// What the lines of each hop did, in the order in which a packet comes to them; `carried`, as the simulation has it.
pub(super) fn hops(simulation: &Simulation, carried: &Carried) -> Vec<HopCounts> {
    let place = |hop: Hop| match hop {
        Hop::Host => (0, 0),
        Hop::Up(stage) => (1, stage),
        Hop::Down(stage) => (2, u8::MAX - stage),
        Hop::Edge => (3, 0),
    };
    let mut by_hop: BTreeMap<_, (HopCounts, Span)> = BTreeMap::new();
    for (hop, line) in simulation.lines() {
        let (counts, waited) = by_hop.entry(place(hop)).or_insert_with(|| {
            let hop = match hop {
                Hop::Host => "host".to_owned(),
                Hop::Up(stage) => format!("up {stage}"),
                Hop::Down(stage) => format!("down {stage}"),
                Hop::Edge => "edge".to_owned(),
            };
            let none =
                HopCounts { hop, lines: 0, packets: 0, wait_mean_us: 0.0, dropped: 0, lost: 0, marked: 0, used: None };
            (none, Span::ZERO)
        });
        counts.lines += 1;
        counts.packets += line.packets;
        counts.dropped += line.dropped;
        counts.lost += line.lost;
        counts.marked += line.marked;
        *waited = *waited + line.waited;
    }
    let mut carried_by: BTreeMap<_, Vec<(BitRate, u64)>> = BTreeMap::new();
    for (hop, rate, bytes) in &carried.lines {
        carried_by.entry(place(*hop)).or_default().push((*rate, *bytes));
    }
    let mean = |(place, (mut counts, waited)): (_, (HopCounts, Span))| {
        counts.wait_mean_us = ratio(waited.as_secs_f64() * 1e6, counts.packets as f64);
        counts.used = carried_by.get(&place).and_then(|lines| used(carried.time, lines));
        counts
    };
    by_hop.into_iter().map(mean).collect()
}

/// What of lines was used in a time, by their rates and the bytes that they carried.
fn used(time: Span, lines: &[(BitRate, u64)]) -> Option<Use> {
    let secs = time.as_secs_f64();
    // A byte is counted whole.
    let share = |(rate, bytes): &(BitRate, u64)| (*bytes as f64 * 8.0 / rate.as_bits_per_sec() as f64 / secs).min(1.0);
    let shares: Vec<f64> = lines.iter().map(share).collect();
    let sum: f64 = shares.iter().sum();
    (!shares.is_empty() && secs > 0.0).then(|| Use {
        mean_share: sum / shares.len() as f64,
        min_share: shares.iter().copied().fold(f64::INFINITY, f64::min),
        max_share: shares.iter().copied().fold(0.0, f64::max),
    })
}

/// All flows that ended, as CSV, in the order in which they began, which is the same for every balancer where arrivals are open.
///
/// # Errors
/// Where they cannot be written.
pub fn write_flows(simulation: &Simulation, scenario: &Scenario, to: &mut dyn io::Write) -> io::Result<()> {
    let mut flows = slowed(simulation, scenario);
    flows.sort_by_key(|(flow, _)| (flow.began, flow.source, flow.destination));
    writeln!(
        to,
        "began_ps,source,destination,class,bytes,fct_ps,ideal_ps,lost,dup_acks,dup_acks_of_short_last,dup_ack_row,sent_again,timeouts,batches"
    )?;
    for (flow, ideal) in flows {
        let ideal = ideal.map_or_else(String::new, |ideal| ideal.as_picos().to_string());
        writeln!(
            to,
            "{},{},{},{},{},{},{ideal},{},{},{},{},{},{},{}",
            flow.began.as_picos(),
            flow.source,
            flow.destination,
            flow.class,
            flow.bytes,
            flow.time.as_picos(),
            flow.lost,
            flow.dup_acks,
            flow.dup_acks_of_short_last,
            flow.dup_ack_row,
            flow.sent_again,
            flow.timeouts,
            flow.batches,
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
