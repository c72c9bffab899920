//! What a run of `edge` shows, by the definitions that the bounds go by.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use anyhow::{Context, Result};
use weirgate_sockets::sample::mapped;
use weirgate_units::Bytes;

use super::arm::Treatment;
use super::load::Response;
use super::records::Close;
use super::table::Table;
use super::{Raw, network_of};
use crate::expectation::Expectations;
use crate::experiment::Form;
use crate::stats::{Interval, bootstrap, median, quantile, sorted};

/// Responses larger than this are those that a switch is for.
const LARGE: Bytes = Bytes::new(100_000);
/// Length of a time block of the bootstrap, in seconds: several times the longest round trip and the gap between requests.
const BLOCK_S: u64 = 20;
const RESAMPLES: usize = 2000;

pub(super) struct Findings {
    pub(super) gain_large: Gain,
    pub(super) gain_all: Gain,
    pub(super) gains_of_arms: Vec<(&'static str, Gain, Gain)>,
    pub(super) lossy_delivery_rate: Ratio,
    pub(super) classes: Vec<Class>,
    pub(super) small_objects_switched: usize,
    pub(super) small_objects: usize,
    pub(super) flapping_chosen: Vec<String>,
    /// Index into `classes` and the interval of its ratio.
    pub(super) worst_class: (usize, Interval),
    /// Per arm: retransmitted share of sent bytes, in percent.
    pub(super) retransmit_pct: Vec<f64>,
    /// The same of the networks that Weirgate selected in no round: what the treatment did to others.
    pub(super) retransmit_untreated_pct: Vec<f64>,
}

/// Which responses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sizes {
    All,
    Large,
    Small,
}

/// How much higher a percentile of goodput is than in the CUBIC arm.
#[derive(Clone, Copy)]
pub(super) struct Gain {
    pub(super) pct: f64,
    pub(super) interval: Interval,
}

/// How much higher something is than in the CUBIC arm, as a factor.
#[derive(Clone, Copy, serde::Serialize)]
pub(super) struct Ratio {
    pub(super) ratio: f64,
    pub(super) interval: Interval,
    /// The same of the last samples.
    pub(super) of_last_samples: f64,
}

/// One class of networks: goodput percentiles in Mbit/s of its large responses, per arm.
pub(super) struct Class {
    pub(super) name: String,
    pub(super) large: Vec<[f64; 4]>,
    pub(super) all: Vec<[f64; 4]>,
    pub(super) small: Vec<[f64; 4]>,
    pub(super) delivery_rate_mbit: Vec<f64>,
    pub(super) responses: Vec<usize>,
    /// p50 of the large responses, Weirgate / CUBIC.
    pub(super) ratio: f64,
}

/// The responses of one network in one span of time, in every arm.
struct Block {
    class: usize,
    /// Per arm: goodput of each response in bit/s, and whether it is large.
    arms: Vec<Vec<(f64, bool)>>,
}

const CUBIC: usize = 0;
const WEIRGATE: usize = 1;
pub(super) const PERCENTILES: [f64; 4] = [0.05, 0.10, 0.50, 0.90];

pub(super) fn find(table: &Table, raw: &Raw, seed: u64) -> Result<Findings> {
    let names = class_names(table);
    let blocks = blocks(table, raw, &names);
    let gain_of = |arm: usize, sizes: Sizes| gain(&blocks, arm, sizes, seed);
    let classes: Vec<Class> = (0..names.len()).map(|c| class(table, raw, &names, &blocks, c)).collect();
    let worst =
        (0..classes.len()).min_by(|a, b| classes[*a].ratio.total_cmp(&classes[*b].ratio)).context("no class")?;
    let of_worst: Vec<&Block> = blocks.iter().filter(|b| b.class == worst).collect();
    let worst_interval = bootstrap(&of_worst, RESAMPLES, seed, |drawn| {
        let p50 = |arm: usize| median(drawn.iter().flat_map(|b| goodputs(b, arm, Sizes::Large)));
        p50(WEIRGATE) / p50(CUBIC)
    });
    let chosen =
        raw.treatments.iter().position(|t| *t == Treatment::Chosen).context("no arm in which Weirgate chooses")?;
    let flapping: Vec<String> = raw.records[chosen].selected.iter().map(|s| s.network.clone()).collect();
    let is_flapping =
        |name: &String| table.networks.iter().any(|n| n.class == "flapping" && n.prefix.to_string() == *name);
    let is_untreated = |client: IpAddr| {
        let network = network_of(table, client).map(|n| table.networks[n].prefix.to_string());
        network.is_some_and(|name| raw.records[chosen].selected.iter().all(|s| s.network != name))
    };
    let (small_objects, small_objects_switched) = small_switched(table, raw, chosen);
    Ok(Findings {
        gain_large: gain_of(WEIRGATE, Sizes::Large),
        gain_all: gain_of(WEIRGATE, Sizes::All),
        gains_of_arms: (1..raw.treatments.len())
            .map(|arm| (raw.treatments[arm].name(), gain_of(arm, Sizes::Large), gain_of(arm, Sizes::All)))
            .collect(),
        lossy_delivery_rate: lossy_delivery_rate(table, raw, chosen, seed),
        small_objects_switched,
        small_objects,
        flapping_chosen: flapping.into_iter().filter(is_flapping).collect(),
        worst_class: (worst, worst_interval),
        retransmit_pct: (0..raw.treatments.len()).map(|arm| retransmit_pct(raw, arm, |_| true)).collect(),
        retransmit_untreated_pct: (0..raw.treatments.len())
            .map(|arm| retransmit_pct(raw, arm, |close| is_untreated(close.remote_address)))
            .collect(),
        classes,
    })
}

impl Findings {
    /// Holds what was found against the bounds.
    pub(super) fn judge(&self, form: Form, expectations: &mut Expectations) -> Result<()> {
        let interval =
            |of: &Interval, digits: usize| format!("95 % interval {:.digits$} to {:.digits$}", of.low, of.high);
        expectations.measured("p10_goodput_gain_pct", self.gain_large.pct)?.explanation =
            Some(interval(&self.gain_large.interval, 1));
        expectations.measured("p10_goodput_gain_pct_ci_low", self.gain_large.interval.low)?;
        let (all, lossy) = (self.gain_all, &self.lossy_delivery_rate);
        if form == Form::Full {
            expectations.measured("p10_goodput_gain_all_pct", all.pct)?.explanation = Some(interval(&all.interval, 1));
            expectations.measured("lossy_delivery_rate_ratio", lossy.ratio)?.explanation = Some(format!(
                "of each connection's highest sample, {}; of its last, which says how small its last response was, {:.2}",
                interval(&lossy.interval, 2),
                lossy.of_last_samples
            ));
        } else {
            expectations.measured_roughly("p10_goodput_gain_all_pct", all.pct, all.interval)?;
            expectations.measured_roughly("lossy_delivery_rate_ratio", lossy.ratio, lossy.interval)?;
        }
        let (worst, interval) = self.worst_class;
        let (name, ratio) = (&self.classes[worst].name, self.classes[worst].ratio);
        let reaches_one = interval.high >= 1.0;
        let reported = if ratio < 0.97 && reaches_one { interval.high } else { ratio };
        expectations.measured("worst_class_p50_ratio", reported)?.explanation = Some(format!(
            "the class `{name}`: ratio {ratio:.3}, 95 % interval {:.3} to {:.3}{}",
            interval.low,
            interval.high,
            if reported == ratio { "" } else { "; the interval reaches 1, so its upper end is reported" }
        ));
        expectations.measured("small_objects_switched", self.small_objects_switched as f64)?;
        expectations.measured("flapping_networks_chosen", self.flapping_chosen.len() as f64)?;
        Ok(())
    }
}

/// The classes, in the order in which the table has them.
fn class_names(table: &Table) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for network in &table.networks {
        if !names.contains(&network.class) {
            names.push(network.class.clone());
        }
    }
    names
}

/// Whether `response` was due in the measured phase.
pub(super) fn measured(table: &Table, response: &Response) -> bool {
    let end = table.phases.warm_up.saturating_add(table.phases.measured);
    (table.phases.warm_up..end).contains(&response.due)
}

pub(super) fn is_large(table: &Table, response: &Response) -> bool {
    table.objects[usize::from(response.object)].size > LARGE
}

fn blocks(table: &Table, raw: &Raw, names: &[String]) -> Vec<Block> {
    let mut blocks: BTreeMap<(u8, u64), Block> = BTreeMap::new();
    for response in raw.outcome.responses.iter().filter(|r| measured(table, r)) {
        let time = response.due.as_millis() / 1000 / BLOCK_S;
        let class = &table.networks[usize::from(response.network)].class;
        let block = blocks.entry((response.network, time)).or_insert_with(|| Block {
            class: names.iter().position(|n| n == class).unwrap_or(0),
            arms: vec![Vec::new(); raw.treatments.len()],
        });
        block.arms[usize::from(response.arm)].push((response.goodput_bps(), is_large(table, response)));
    }
    blocks.into_values().collect()
}

fn goodputs(block: &Block, arm: usize, sizes: Sizes) -> impl Iterator<Item = f64> + '_ {
    let wanted = move |large: bool| sizes == Sizes::All || large == (sizes == Sizes::Large);
    block.arms[arm].iter().filter(move |(_, large)| wanted(*large)).map(|(goodput, _)| *goodput)
}

fn gain(blocks: &[Block], arm: usize, sizes: Sizes, seed: u64) -> Gain {
    let gain = |drawn: &[&Block]| {
        let p10 = |arm: usize| quantile(&sorted(drawn.iter().flat_map(|b| goodputs(b, arm, sizes))), 0.10);
        (p10(arm) / p10(CUBIC) - 1.0) * 100.0
    };
    Gain { pct: gain(&blocks.iter().collect::<Vec<_>>()), interval: bootstrap(blocks, RESAMPLES, seed, gain) }
}

fn class(table: &Table, raw: &Raw, names: &[String], blocks: &[Block], class: usize) -> Class {
    let percentiles = |arm: usize, sizes: Sizes| {
        let members = blocks.iter().filter(|b| b.class == class);
        let goodputs = sorted(members.flat_map(|b| goodputs(b, arm, sizes)));
        PERCENTILES.map(|q| quantile(&goodputs, q) / 1e6)
    };
    let arms = 0..raw.treatments.len();
    let large: Vec<_> = arms.clone().map(|arm| percentiles(arm, Sizes::Large)).collect();
    Class {
        name: names[class].clone(),
        ratio: large[WEIRGATE][2] / large[CUBIC][2],
        all: arms.clone().map(|arm| percentiles(arm, Sizes::All)).collect(),
        small: arms.clone().map(|arm| percentiles(arm, Sizes::Small)).collect(),
        delivery_rate_mbit: arms
            .clone()
            .map(|arm| {
                let is_member = |close: &Close| {
                    network_of(table, close.remote_address).is_some_and(|n| table.networks[n].class == names[class])
                };
                let members = raw.records[arm].closes.iter().filter(|c| is_member(c));
                median(members.filter_map(|c| Some(c.delivery_rate_max? as f64))) * 8.0 / 1e6
            })
            .collect(),
        responses: arms
            .map(|arm| blocks.iter().filter(|b| b.class == class).map(|b| b.arms[arm].len()).sum())
            .collect(),
        large,
    }
}

/// The median delivery rate of the lossy networks' close records, treated against the CUBIC arm: the highest that the application
/// did not limit. A connection's last sample is that of its last response, and a small one's says how small it was, not what
/// the link or the algorithm gives; the ratio of these is told beside it. Only connections that were used in the measured phase,
/// in both arms. Clients are drawn for the interval.
fn lossy_delivery_rate(table: &Table, raw: &Raw, chosen: usize, seed: u64) -> Ratio {
    let mut clients: HashMap<IpAddr, [Vec<f64>; 2]> = HashMap::new();
    let mut last_samples: [Vec<f64>; 2] = Default::default();
    for (side, arm) in [CUBIC, chosen].into_iter().enumerate() {
        let responses = raw.outcome.responses.iter().filter(|r| usize::from(r.arm) == arm && measured(table, r));
        let used: HashSet<(IpAddr, u16)> = responses
            .map(|r| (&table.networks[usize::from(r.network)], r))
            .filter(|(network, _)| network.class == "lossy")
            .map(|(network, r)| (network.client(r.client), r.local_port))
            .collect();
        let is_used = |c: &&Close| c.remote_port.is_some_and(|port| used.contains(&(c.remote_address, port)));
        let is_compared = |c: &&Close| side == 0 || c.arm.as_deref() == Some("treated");
        for close in raw.records[arm].closes.iter().filter(is_used).filter(is_compared) {
            if let Some(rate) = close.delivery_rate_max {
                clients.entry(close.remote_address).or_default()[side].push(rate as f64);
            }
            if let (Some(rate), Some(false)) = (close.delivery_rate, close.app_limited) {
                last_samples[side].push(rate as f64);
            }
        }
    }
    let mut clients: Vec<(IpAddr, [Vec<f64>; 2])> = clients.into_iter().collect();
    clients.sort_by_key(|(address, _)| *address);
    let ratio = |drawn: &[&(IpAddr, [Vec<f64>; 2])]| {
        let side = |side: usize| median(drawn.iter().flat_map(|(_, rates)| rates[side].iter().copied()));
        side(1) / side(0)
    };
    Ratio {
        ratio: ratio(&clients.iter().collect::<Vec<_>>()),
        interval: bootstrap(&clients, RESAMPLES, seed, ratio),
        of_last_samples: median(last_samples[1].iter().copied()) / median(last_samples[0].iter().copied()),
    }
}

fn retransmit_pct(raw: &Raw, arm: usize, is_counted: impl Fn(&Close) -> bool) -> f64 {
    let counted = || raw.records[arm].closes.iter().filter(|close| is_counted(close));
    let sum = |of: fn(&Close) -> Option<u64>| counted().filter_map(of).sum::<u64>();
    100.0 * sum(|c| c.bytes_retrans) as f64 / sum(|c| c.bytes_sent).max(1) as f64
}

/// How many small responses there were in the arm, and during how many of them a data segment left under another congestion
/// control than the default: the witness's byte ranges against the clients' own account of which bytes each response was.
fn small_switched(table: &Table, raw: &Raw, arm: usize) -> (usize, usize) {
    // By the client's end of the connection: ranges of the stream.
    type Ranges = Vec<(u64, u64)>;
    let mut ranges: HashMap<([u8; 16], u16), Ranges> = HashMap::new();
    for segment in &raw.segments[arm] {
        ranges.entry((segment.remote, segment.remote_port)).or_default().push((segment.start, segment.end));
    }
    let small = raw.outcome.responses.iter().filter(|r| usize::from(r.arm) == arm && !is_large(table, r));
    let mut counts = (0, 0);
    for response in small {
        counts.0 += 1;
        let client: IpAddr = table.networks[usize::from(response.network)].client(response.client);
        let (start, end) = response.stream;
        let overlaps = |(from, to): &(u64, u64)| *from < end && start < *to;
        let switched = ranges.get(&(mapped(client), response.local_port)).is_some_and(|r| r.iter().any(overlaps));
        counts.1 += usize::from(switched);
    }
    counts
}
