//! What a network is built as.

use std::path::Path;

use weirgate_balance::topology::{FatTree, LeafSpine, LinkSettings, Pods, Vl2};
use weirgate_units::{BitRate, Duration};

use super::graph::Graph;
use super::{Extra, Shape, problem};
use crate::config::read::{Problem, Section, Typed, unknown};

/// The names that `kind` can have.
pub const KINDS: [&str; 5] = ["leaf-spine", "vl2", "pods", "fat-tree", "graph"];

/// Below, a queue of 300 KB lasts longer than anybody waits, and times do not fit in the simulator's numbers.
const SLOWEST: BitRate = BitRate::from_bits_per_sec(1_000_000);

/// A simulator that counts in whole picoseconds knows how long a queue is below 8 Tbit/s.
const FASTEST: BitRate = BitRate::from_bits_per_sec(4_000_000_000_000);

/// More do not fit into the memory of most machines.
const LINKS_MAX: u64 = 4_000_000;

/// Packets name leaves by 16 bits.
const LEAVES_MAX: u64 = u16::MAX as u64 - 1;

const DELAY: Duration = Duration::from_nanos(500);

/// Beyond, a segment's timestamp comes round.
const DELAY_MAX: Duration = Duration::from_millis(100);

/// Reads `[topology]`.
pub(super) fn read(section: &mut Section<'_>, folder: &Path, problems: &mut Vec<Problem>) -> Option<Shape> {
    let shape = shape(section, folder, problems)?;
    let (leaves, links) = size(&shape);
    if leaves > LEAVES_MAX || links > LINKS_MAX {
        let most = format!("at most {LEAVES_MAX} and {LINKS_MAX}");
        problems.push(problem(0, "topology", format!("{leaves} leaves and {links} links are too many: {most}")));
        return None;
    }
    Some(shape)
}

/// How many switches that hosts are at it has, and how many links; of a graph, which is written link by link, nothing.
fn size(shape: &Shape) -> (u64, u64) {
    let wide = |counts: &[u32]| counts.iter().map(|count| u64::from(*count)).product::<u64>();
    let pods = |pods: &Pods| {
        let Pods { pods, tors, planes, spines, hosts, .. } = *pods;
        (wide(&[pods, tors]), wide(&[pods, tors, hosts]) + wide(&[pods, tors, planes]) + wide(&[pods, planes, spines]))
    };
    match shape {
        Shape::LeafSpine(LeafSpine { spines, leaves, hosts, .. }) => {
            (u64::from(*leaves), wide(&[*leaves, *hosts]) + wide(&[*leaves, *spines]))
        }
        Shape::Vl2(Vl2 { tors, aggregations, intermediates, hosts, .. }) => {
            (u64::from(*tors), wide(&[*tors, *hosts]) + wide(&[2, *tors]) + wide(&[*aggregations, *intermediates]))
        }
        Shape::Pods(shape) => pods(shape),
        Shape::FatTree(FatTree { k, link }) => {
            let half = k / 2;
            let link = *link;
            pods(&Pods {
                pods: *k,
                tors: half,
                planes: half,
                spines: half,
                hosts: half,
                edge: link,
                fabric: link,
                spine: link,
            })
        }
        Shape::Graph(_) => (0, 0),
    }
}

fn shape(section: &mut Section<'_>, folder: &Path, problems: &mut Vec<Problem>) -> Option<Shape> {
    let kind = section.parsed::<String>("kind");
    let delay = delay(section, problems);
    let mut link = |section: &mut Section<'_>, key, gbit: u64| {
        let default = BitRate::from_bits_per_sec(gbit * 1_000_000_000);
        let rate = section.parsed::<BitRate>(key);
        problems.extend(rate.as_ref().and_then(unfit));
        LinkSettings { rate: rate.map_or(default, |rate| rate.value), delay }
    };
    let count =
        |section: &mut Section<'_>, key, default| section.integer(key, 1, 100_000).map_or(default, |n| n.value as u32);
    let odd = |count: &Option<Typed<u64>>, what| {
        count.as_ref().filter(|count| count.value % 2 == 1).map(|count| count.problem(what))
    };
    Some(match kind.as_ref().map_or("leaf-spine", |kind| kind.value.as_str()) {
        "leaf-spine" => Shape::LeafSpine(LeafSpine {
            spines: count(section, "spines", 4),
            leaves: count(section, "leaves", 16),
            hosts: count(section, "hosts", 20),
            edge: link(section, "edge", 10),
            core: link(section, "core", 40),
        }),
        "vl2" => {
            let aggregations = section.integer("aggregations", 1, 100_000);
            let shape = Vl2 {
                tors: count(section, "tors", 16),
                aggregations: aggregations.as_ref().map_or(8, |count| count.value as u32),
                intermediates: count(section, "intermediates", 4),
                hosts: count(section, "hosts", 20),
                edge: link(section, "edge", 1),
                core: link(section, "core", 10),
            };
            problems.extend(odd(&aggregations, "each top-of-rack switch is at a pair of them: write an even number"));
            Shape::Vl2(shape)
        }
        // As many hosts as the article's leaves and spines have, and above the top-of-rack switches no stage that carries less.
        "pods" => Shape::Pods(Pods {
            pods: count(section, "pods", 4),
            tors: count(section, "tors", 4),
            planes: count(section, "planes", 4),
            spines: count(section, "spines", 4),
            hosts: count(section, "hosts", 20),
            edge: link(section, "edge", 10),
            fabric: link(section, "fabric", 40),
            spine: link(section, "spine", 40),
        }),
        "fat-tree" => {
            let link = link(section, "link", 10);
            let k = section.integer("k", 2, 128);
            problems.extend(odd(&k, "a fat tree's switches have an even number of ports"));
            Shape::FatTree(FatTree { k: k.map_or(8, |k| k.value as u32), link })
        }
        "graph" => {
            let Some(file) = section.parsed::<String>("file") else {
                let what = "a graph is in a file of its own: write file = \"network.toml\"";
                problems.push(problem(0, "topology.file", what));
                return None;
            };
            match Graph::load(folder, &file.value) {
                Ok(graph) => Shape::Graph(graph),
                Err(wrong) => {
                    problems.extend(wrong.iter().map(|wrong| file.problem(format!("{}: {wrong}", file.value))));
                    return None;
                }
            }
        }
        other => {
            problems.extend(kind.as_ref().map(|kind| kind.problem(unknown("kind of topology", other, &KINDS))));
            return None;
        }
    })
}

/// Reads `[[link]]`.
pub(super) fn links(root: &mut Section<'_>, problems: &mut Vec<Problem>) -> Vec<Extra> {
    let links = root.tables("link", |section, line| {
        let between = section.list::<String>("between");
        let pair =
            between.as_ref().and_then(|between| <&[String; 2]>::try_from(between.value.as_slice()).ok()).cloned();
        if let (Some(between), None) = (&between, &pair) {
            problems.push(between.problem("a link is between two nodes: write [\"leaf0\", \"spine0\"]"));
        }
        let rate = section.parsed::<BitRate>("rate");
        let delay = delay(section, problems);
        let count = section.integer("count", 1, 10_000).map_or(1, |count| count.value as u32);
        for (key, as_in) in [("between", "[\"leaf0\", \"spine0\"]"), ("rate", "\"10 Gbit/s\"")] {
            if !section.has(key) {
                problems.push(problem(line, "link", format!("`{key}` is missing: write {key} = {as_in}")));
            }
        }
        let (Some(between), Some(rate)) = (pair, rate) else { return None };
        problems.extend(unfit(&rate));
        Some(Extra { between, settings: LinkSettings { rate: rate.value, delay }, count, line })
    });
    links.into_iter().flatten().flatten().collect()
}

fn delay(section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Duration {
    let delay = section.parsed::<Duration>("delay");
    let long = delay.as_ref().filter(|delay| delay.value > DELAY_MAX);
    problems.extend(long.map(|delay| {
        delay.problem(format!("a link's delay is {DELAY_MAX} at most: round trips are measured up to 4 s"))
    }));
    delay.map_or(DELAY, |delay| delay.value)
}

/// That a link is too slow, or too fast.
fn unfit(rate: &Typed<BitRate>) -> Option<Problem> {
    let slow = || rate.problem(format!("a link carries {SLOWEST} at least; to have none, leave it out or let it fail"));
    let fast = || rate.problem(format!("a link carries {FASTEST} at most"));
    (rate.value < SLOWEST).then(slow).or_else(|| (rate.value > FASTEST).then(fast))
}
