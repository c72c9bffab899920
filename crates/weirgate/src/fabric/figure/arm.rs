//! An arm: a scenario, and what is observed of its runs.

use anyhow::{Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use weirgate_fabric::{Cause, Finished, PUBLISHED, Queues, Scheme, Simulation, Sizes, Span, Time};

use crate::fabric::outcome::{HopCounts, drift, hops};
use crate::fabric::scenario::{Scenario, Traffic};
use crate::fabric::statistics::Estimate;

/// For how long a shim at a host keeps a packet back that others should be before.
pub(super) const SHIM: Span = Span::from_micros(100);

/// A scenario with a name.
#[derive(Clone, Debug)]
pub(super) struct Arm {
    pub(super) name: String,
    pub(super) scenario: Scenario,
    /// It is beside the point: the first seeds are enough.
    pub(super) is_aside: bool,
}

/// What was observed of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Observed {
    /// The completion times of all flows, in microseconds, in ascending order, to seven digits.
    #[serde(skip)]
    pub(super) times: Vec<f64>,
    /// Those of class 1: mice, an incast.
    #[serde(skip)]
    pub(super) small_times: Vec<f64>,
    /// Of large flows, what each got, in Mbit/s.
    pub(super) goodputs: Vec<f64>,
    pub(super) hops: Vec<HopCounts>,
    pub(super) up: Even,
    pub(super) down: Even,
    pub(super) order: Order,
    /// When the last flow was there, in seconds of simulated time.
    pub(super) end: f64,
    /// The median completion time of the half of all flows that began later, over that of the others: 1, where the network is steady.
    pub(super) drift: f64,
}

/// How even queues are that should be alike.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Even {
    /// The mean standard deviation of their lengths, in bytes.
    pub(super) deviation: f64,
    /// Samples of a queue, and those in which no packet waited behind another.
    pub(super) samples: u64,
    pub(super) short: u64,
}

impl Even {
    fn of(queues: &Queues) -> Self {
        let sum = |places: usize| queues.lengths.iter().take(places).sum();
        // All figures' networks have several.
        Self { deviation: queues.deviation().unwrap_or_default(), samples: sum(usize::MAX), short: sum(16) }
    }
}

/// Flows by what happened to the order of their packets.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) flows: u64,
    /// With at least one duplicate ACK, and with three.
    pub(super) one: u64,
    pub(super) three: u64,
    /// With three in a row, which a sender takes for a loss.
    pub(super) three_in_a_row: u64,
    /// Of those with at least one: segments of theirs were lost.
    pub(super) lost: u64,
    /// Nothing was lost, and only short last segments overtook.
    pub(super) short_last: u64,
    /// Nothing was lost, and others overtook as well.
    pub(super) others: u64,
    /// Of those with at least three, nothing was lost.
    pub(super) three_unlost: u64,
    pub(super) batches: u64,
    pub(super) sent_again: u64,
    pub(super) timeouts: u64,
}

impl Order {
    pub(super) fn add(&mut self, flow: &Finished) {
        self.flows += 1;
        self.batches += u64::from(flow.batches);
        self.sent_again += u64::from(flow.sent_again);
        self.timeouts += u64::from(flow.timeouts);
        match flow.cause() {
            Some(Cause::Loss) => self.lost += 1,
            Some(Cause::ShortLast) => self.short_last += 1,
            Some(Cause::Reordering) => self.others += 1,
            None => return,
        }
        self.one += 1;
        self.three += u64::from(flow.dup_acks >= 3);
        self.three_in_a_row += u64::from(flow.dup_ack_row >= 3);
        self.three_unlost += u64::from(flow.dup_acks >= 3 && flow.lost == 0);
    }
}

impl Arm {
    pub(super) fn new(name: impl Into<String>, scenario: Scenario) -> Self {
        Self { name: name.into(), scenario, is_aside: false }
    }

    /// The same, beside the point.
    pub(super) fn aside(self) -> Self {
        Self { is_aside: true, ..self }
    }

    /// The scenario under a balancer, by whose name the arm goes.
    pub(super) fn of(scheme: Scheme, scenario: &Scenario) -> Self {
        let mut scenario = scenario.clone();
        scenario.settings.scheme = scheme;
        if scheme == Scheme::Presto {
            // It comes with one.
            scenario.settings.tcp.shim.get_or_insert(SHIM);
        }
        if matches!(scheme, Scheme::Label(_) | Scheme::Reps) {
            // They ask for marks: DCTCP's threshold of 65 packets at 10 Gbit/s.
            scenario.settings.mark = Some(100_000);
        }
        Self::new(scheme.name(), scenario)
    }

    /// The same, with hosts whose TCP sees packets as they come.
    pub(super) fn without_shim(mut self) -> Self {
        self.scenario.settings.tcp.shim = None;
        self
    }

    /// How long a run of it is, in words.
    pub(super) fn length(&self) -> String {
        let run = &self.scenario.run;
        match &self.scenario.traffic {
            Traffic::Poisson { sizes, .. } => {
                let is_it = |name: &str| Sizes::published(name).as_ref() == Some(sizes);
                let of = PUBLISHED.iter().find(|(name, _)| is_it(name)).map(|(name, _)| format!(" of {name}"));
                format!("{} of warm-up, then {} flows{}", run.warm_up, run.flows, of.unwrap_or_default())
            }
            _ => "all flows of a workload that ends".into(),
        }
    }

    /// Runs it.
    pub(super) fn observe(&self, seed: u64) -> Result<Observed> {
        let mut scenario = self.scenario.clone();
        scenario.settings.seed = seed;
        let mut simulation = scenario.simulation().map_err(|problem| anyhow!("{}: {problem}", self.name))?;
        let is_open = matches!(scenario.traffic, Traffic::Poisson { .. });
        if is_open {
            simulation.run_until(Time::ZERO + scenario.run.warm_up.into());
            simulation.begin_measures(Some(scenario.run.flows));
        }
        if simulation.run_until(scenario.end()) {
            let (left, end) = (simulation.flows_under_way(), scenario.run.time);
            bail!("{}, seed {seed}: it does not drain: {left} flows are under way after {end}", self.name);
        }
        Ok(Observed::of(&simulation, !is_open))
    }
}

impl Observed {
    fn of(simulation: &Simulation, has_elephants: bool) -> Self {
        let measures = simulation.measures();
        let (mut times, mut small_times) = (Vec::new(), Vec::new());
        let mut goodputs = Vec::new();
        let mut order = Order::default();
        for flow in &measures.finished {
            let secs = flow.time.as_secs_f64();
            // As many digits as are kept in a file, so that a page is the same with and without.
            let micros = f64::from((secs * 1e6) as f32);
            times.push(micros);
            if flow.class > 0 {
                small_times.push(micros);
            }
            if has_elephants && flow.class == 0 {
                goodputs.push(flow.bytes as f64 * 8.0 / secs / 1e6);
            }
            order.add(flow);
        }
        let drift = drift(&measures.finished);
        times.sort_by(f64::total_cmp);
        small_times.sort_by(f64::total_cmp);
        let hops = hops(simulation, &simulation.carried());
        let (up, down) = (Even::of(&measures.up), Even::of(&measures.down));
        let end = simulation.now().to_instant().as_nanos() as f64 / 1e9;
        Self { times, small_times, goodputs, hops, up, down, order, end, drift }
    }
}

#[cfg(test)]
impl Observed {
    /// A run whose flows took so long, and in which timers ran out so often.
    pub(super) fn of_times(times: Vec<f64>, timeouts: u64) -> Self {
        let even = Even { deviation: 1.0, samples: 1, short: 1 };
        let order = Order { flows: times.len() as u64, timeouts, ..Order::default() };
        let (small_times, goodputs, hops) = (Vec::new(), Vec::new(), Vec::new());
        Self { times, small_times, goodputs, hops, up: even, down: even, order, end: 1.0, drift: 1.0 }
    }
}

/// A statistic of completion times that are in ascending order; not a number, where fewer than 100 flows take longer.
pub(super) fn tail(sorted: &[f64], quantile: f64) -> f64 {
    Estimate::quantile(sorted, parts(quantile)).map_or(f64::NAN, |estimate| estimate.value)
}

/// A quantile in parts of 10,000.
pub(super) fn parts(quantile: f64) -> usize {
    (quantile * 1e4).round() as usize
}
