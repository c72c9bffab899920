//! What a network is built as.

use std::path::Path;

use weirgate_balance::topology::{FatTree, LeafSpine, LinkSettings, Pods, Vl2};
use weirgate_units::{BitRate, Duration};

use super::graph::Graph;
use super::{Extra, Shape, problem};
use crate::config::read::{Problem, Section, unknown};

const KINDS: [&str; 5] = ["leaf-spine", "vl2", "pods", "fat-tree", "graph"];

/// Below, a queue of 300 KB lasts longer than anybody waits, and times do not fit in the simulator's numbers.
const SLOWEST: BitRate = BitRate::from_bits_per_sec(1_000_000);

const DELAY: Duration = Duration::from_nanos(500);

/// Reads `[topology]`.
pub(super) fn read(section: &mut Section<'_>, folder: &Path, problems: &mut Vec<Problem>) -> Option<Shape> {
    let kind = section.parsed::<String>("kind");
    let delay = section.parsed("delay").map_or(DELAY, |delay| delay.value);
    let mut link = |section: &mut Section<'_>, key, gbit: u64| {
        let default = BitRate::from_bits_per_sec(gbit * 1_000_000_000);
        let rate = section.parsed::<BitRate>(key);
        problems.extend(rate.as_ref().filter(|rate| rate.value < SLOWEST).map(|rate| rate.problem(too_slow())));
        LinkSettings { rate: rate.map_or(default, |rate| rate.value), delay }
    };
    let count =
        |section: &mut Section<'_>, key, default| section.integer(key, 1, 100_000).map_or(default, |n| n.value as u32);
    Some(match kind.as_ref().map_or("leaf-spine", |kind| kind.value.as_str()) {
        "leaf-spine" => Shape::LeafSpine(LeafSpine {
            spines: count(section, "spines", 4),
            leaves: count(section, "leaves", 16),
            hosts: count(section, "hosts", 20),
            edge: link(section, "edge", 10),
            core: link(section, "core", 40),
        }),
        "vl2" => Shape::Vl2(Vl2 {
            tors: count(section, "tors", 16),
            aggregations: count(section, "aggregations", 8),
            intermediates: count(section, "intermediates", 4),
            hosts: count(section, "hosts", 20),
            edge: link(section, "edge", 1),
            core: link(section, "core", 10),
        }),
        "pods" => Shape::Pods(Pods {
            pods: count(section, "pods", 4),
            tors: count(section, "tors", 8),
            planes: count(section, "planes", 4),
            spines: count(section, "spines", 4),
            hosts: count(section, "hosts", 8),
            edge: link(section, "edge", 10),
            fabric: link(section, "fabric", 40),
            spine: link(section, "spine", 40),
        }),
        "fat-tree" => {
            let link = link(section, "link", 10);
            let k = section.integer("k", 2, 128);
            let odd = k.as_ref().filter(|k| k.value % 2 == 1);
            problems.extend(odd.map(|k| k.problem("a fat tree's switches have an even number of ports")));
            Shape::FatTree(FatTree { k: k.map_or(8, |k| k.value as u32), link })
        }
        "graph" => {
            let Some(file) = section.parsed::<String>("file") else {
                let what = "a graph is in a file of its own: write file = \"network.toml\"";
                problems.push(problem(0, "topology.file", what));
                return None;
            };
            match Graph::load(&folder.join(&file.value)) {
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
        let between = section.list::<String>("between").and_then(|between| between.value.try_into().ok());
        let rate = section.parsed::<BitRate>("rate");
        let delay = section.parsed("delay").map_or(DELAY, |delay| delay.value);
        let count = section.integer("count", 1, 10_000).map_or(1, |count| count.value as u32);
        let (Some(between), Some(rate)) = (between, rate) else {
            let what = "a link has between = [\"leaf0\", \"spine0\"] and rate = \"10 Gbit/s\"";
            problems.push(problem(line, "link", what));
            return None;
        };
        problems.extend((rate.value < SLOWEST).then(|| rate.problem(too_slow())));
        Some(Extra { between, settings: LinkSettings { rate: rate.value, delay }, count, line })
    });
    links.into_iter().flatten().flatten().collect()
}

fn too_slow() -> String {
    format!("a link carries {SLOWEST} at least; to have none, leave it out or let it fail")
}
