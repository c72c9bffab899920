//! `[workload]` and `[incast]`: what hosts send.

mod sizes;
mod trace;

use std::path::Path;

use weirgate_balance::topology::{Link, Node, Topology};
use weirgate_fabric::{
    AllToAll, Both, Chance, Hosts, Incast, Listed, Mice, Pairs, Pattern, Poisson, Ring, RingOrder, Sizes, Span, Start,
    TcpSettings, Time, Workload,
};
use weirgate_units::{Bytes, Duration};

use super::problem;
use crate::config::read::{Problem, Section, Typed, unknown};

/// The names that `kind` can have.
pub const KINDS: [&str; 8] = ["poisson", "stride", "random", "shuffle", "permutation", "ring", "all-to-all", "trace"];

/// What hosts send.
#[derive(Clone, Debug, PartialEq)]
pub enum Traffic {
    /// Random flows, at a load.
    Poisson {
        /// How large.
        sizes: Sizes,
        /// Bytes on the wire between leaves, of what the leaves' uplinks that are up at the start can carry.
        load: f64,
        /// And beside them, many that answer at once.
        incast: Option<Answers>,
    },
    /// Large flows, and perhaps mice.
    Pairs {
        /// Who sends to whom.
        pattern: Pattern,
        /// How large.
        bytes: u64,
        /// Small ones beside.
        mice: Option<Mice>,
    },
    /// A ring all-reduce.
    Ring {
        /// Who sends to whom.
        order: RingOrder,
        /// What each host has.
        bytes: u64,
    },
    /// An all-to-all of so many bytes to each.
    AllToAll(u64),
    /// What a file lists.
    Trace(Vec<(Time, Start)>),
}

/// Random clients that each ask the same random servers at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answers {
    /// How many ask.
    pub clients: u32,
    /// How many they ask.
    pub servers: u32,
    /// How much each answers to each.
    pub bytes: u64,
    /// What of the load they are, those within a leaf included.
    pub share: f64,
}

impl Traffic {
    /// The workload, in a network.
    ///
    /// # Errors
    /// Where the network has too few hosts, or cannot carry it.
    pub fn workload(
        &self,
        topology: &Topology,
        tcp: &TcpSettings,
        chance: impl Fn(u64) -> Chance,
    ) -> Result<Box<dyn Workload>, Problem> {
        let hosts = Hosts::of(topology);
        let wrong = |what: String| Err(problem(0, "workload", what));
        let one_leaf = "flows go from one leaf to another, and all hosts are at one leaf";
        if hosts.len() < 2 {
            return wrong("a flow has two hosts, and the network has not".into());
        }
        Ok(match self {
            Self::Poisson { .. } if hosts.are_at_one_leaf() => return wrong(one_leaf.into()),
            Self::Poisson { sizes, load, incast } => {
                let (bits_per_sec, carried) = (load * uplinks(topology), edges(topology));
                if bits_per_sec > carried {
                    let [asked, carried] = [bits_per_sec / 1e9, carried / 1e9];
                    // Rounded down, so that it is one that fits.
                    let most = (carried / asked * load * 1e3).floor() / 1e3;
                    let less =
                        if most > 0.0 { format!("a load of {most} at most") } else { "faster links to them".into() };
                    let what = format!(
                        "a load of {load} on the uplinks is {asked:.1} Gbit/s, and the hosts' own links carry {carried:.1}: \
                         more hosts, or {less}"
                    );
                    return Err(problem(0, "workload.load", what));
                }
                let per_sec = |share: f64, bytes: f64| bits_per_sec * share / 8.0 / bytes;
                let share = incast.map_or(0.0, |incast| incast.share);
                let mean = sizes.mean(|bytes| tcp.wire_bytes(bytes));
                let often = per_sec(1.0 - share, mean);
                let background = Box::new(Poisson::new(sizes.clone(), hosts.clone(), often, Time::MAX, chance(0)));
                let Some(Answers { clients, servers, bytes, share }) = *incast else { return Ok(background) };
                if clients + servers > hosts.len() {
                    let (asked, there) = (clients + servers, hosts.len());
                    let what = format!(
                        "an incast's clients and servers are {asked} different hosts, and there are {there}: ask fewer"
                    );
                    return Err(problem(0, "incast.servers", what));
                }
                let at_once = u64::from(clients) * u64::from(servers) * tcp.wire_bytes(bytes);
                let often = per_sec(share, at_once as f64);
                let incast = Incast::new(hosts, [clients, servers], bytes, often, Time::MAX, chance(1));
                Box::new(Both(background, Box::new(incast)))
            }
            Self::Pairs { pattern: Pattern::Stride(stride), .. } if stride % hosts.len() == 0 => {
                let what = format!("a stride of {stride} leads to the host itself: there are {}", hosts.len());
                return Err(problem(0, "workload.stride", what));
            }
            Self::Pairs { pattern: Pattern::Random, .. } if hosts.are_at_one_leaf() => return wrong(one_leaf.into()),
            Self::Pairs { pattern, bytes, mice } => {
                Box::new(Pairs::new(&hosts, *pattern, *bytes, *mice, &mut chance(0)))
            }
            Self::Ring { order, bytes } => Box::new(Ring::new(&hosts, *order, *bytes)),
            Self::AllToAll(bytes) => Box::new(AllToAll::new(hosts.len(), *bytes)),
            Self::Trace(starts) => {
                let is_outside = |(_, start): &&(Time, Start)| start.source.max(start.destination) >= hosts.len();
                if let Some((_, Start { source, destination, .. })) = starts.iter().find(is_outside) {
                    let last = hosts.len() - 1;
                    let what = format!("a flow from host {source} to {destination}; the last one is {last}");
                    return Err(problem(0, "workload.file", what));
                }
                Box::new(Listed::new(starts.clone()))
            }
        })
    }
}

/// What the leaves' links to other switches carry one way, in bit/s, of those that are up.
pub(super) fn uplinks(topology: &Topology) -> f64 {
    let leaves = topology.leaves();
    let links = leaves.iter().flat_map(|leaf| topology.ports(*leaf).iter().map(|link| (*leaf, *link)));
    let is_up =
        |(leaf, link): &(Node, Link)| topology.is_up(*link) && !topology.is_host(topology.far_end(*link, *leaf));
    links.filter(is_up).map(|(_, link)| topology.settings(link).rate.as_bits_per_sec() as f64).sum()
}

/// What the hosts' links carry one way, in bit/s.
fn edges(topology: &Topology) -> f64 {
    let hosts = topology.nodes().filter(|node| topology.is_host(*node));
    let links = hosts.flat_map(|host| topology.ports(host));
    links.map(|link| topology.settings(*link).rate.as_bits_per_sec() as f64).sum()
}

/// What files are read by: where they are, how many hosts there are, what a full segment carries.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) folder: &'a Path,
    /// Nothing, where it is not known.
    pub(super) hosts: Option<u64>,
    pub(super) mss: u16,
}

/// Reads `[workload]` and `[incast]`.
pub(super) fn read(root: &mut Section<'_>, around: Around<'_>, problems: &mut Vec<Problem>) -> Option<Traffic> {
    let incast = root.table("incast", |section| {
        let is_there = section.is_there();
        let answers = Answers {
            clients: section.integer("clients", 1, 100_000).map_or(32, |clients| clients.value as u32),
            servers: section.integer("servers", 1, 100_000).map_or(32, |servers| servers.value as u32),
            bytes: bytes(section, "bytes", 10_000, problems),
            share: section.share("share").map_or(0.1, |share| {
                let is_part = share.value > 0.0 && share.value < 1.0;
                let wrong = "is a part of the load, neither none nor all of it: write 0.1, or leave [incast] out";
                problems.extend((!is_part).then(|| share.problem(wrong)));
                share.value
            }),
        };
        is_there.then_some(answers)
    });
    root.table("workload", |section| {
        let kind = section.parsed::<String>("kind");
        let pattern = match kind.as_ref().map_or("poisson", |kind| kind.value.as_str()) {
            "poisson" => {
                let sizes = sizes::read(section, around, problems);
                let load = section.share("load");
                let zero = load.as_ref().filter(|load| load.value == 0.0);
                problems.extend(zero.map(|load| load.problem("a load of 0 sends nothing: write more, as 0.8")));
                let load = load.map_or(0.8, |load| load.value);
                return Some(Traffic::Poisson { sizes: sizes?, load, incast });
            }
            "ring" => {
                let order = order(section, problems);
                return Some(Traffic::Ring { order, bytes: bytes(section, "bytes", 100_000_000, problems) });
            }
            "all-to-all" => return Some(Traffic::AllToAll(bytes(section, "bytes", 1_000_000, problems))),
            "trace" => return trace::read(section, around, problems).map(Traffic::Trace),
            "stride" => {
                Pattern::Stride(section.integer("stride", 1, 1_000_000).map_or(8, |stride| stride.value as u32))
            }
            "random" => Pattern::Random,
            "shuffle" => Pattern::Shuffle,
            "permutation" => Pattern::Permutation,
            other => {
                let what = unknown("kind of workload", other, &KINDS);
                problems.extend(kind.as_ref().map(|kind| kind.problem(what)));
                return None;
            }
        };
        let every = section.parsed::<Duration>("mice_every");
        problems.extend(every.as_ref().filter(|every| every.value == Duration::ZERO).map(|every| {
            every.problem(
                "mice that come without a pause have no end: write how long it is from one to the next, as \"100 ms\"",
            )
        }));
        let every = every.map_or(Duration::from_millis(100), |every| every.value);
        let mice = section.parsed::<Bytes>("mice");
        problems.extend(mice.as_ref().and_then(is_nothing));
        let mice = mice.map(|mice| Mice { bytes: mice.value.as_u64().max(1), every: Span::from(every) });
        Some(Traffic::Pairs { pattern, bytes: bytes(section, "bytes", 1_000_000_000, problems), mice })
    })
}

fn order(section: &mut Section<'_>, problems: &mut Vec<Problem>) -> RingOrder {
    let Some(named) = section.parsed::<String>("order") else { return RingOrder::default() };
    match named.value.as_str() {
        "hosts" => RingOrder::Hosts,
        "leaves" => RingOrder::Leaves,
        _ => {
            problems.push(named.problem("must be \"hosts\" or \"leaves\""));
            RingOrder::default()
        }
    }
}

fn bytes(section: &mut Section<'_>, key: &'static str, default: u64, problems: &mut Vec<Problem>) -> u64 {
    let bytes = section.parsed::<Bytes>(key);
    problems.extend(bytes.as_ref().and_then(is_nothing));
    bytes.map_or(default, |bytes| bytes.value.as_u64().max(1))
}

fn is_nothing(bytes: &Typed<Bytes>) -> Option<Problem> {
    (bytes.value == Bytes::ZERO).then(|| bytes.problem("a flow has 1 byte at least: write \"10 KB\""))
}
