//! `[topology]`, `[[link]]` and `[failures]`: the network.

mod graph;
mod shape;

use std::collections::BTreeMap;
use std::path::Path;

use weirgate_balance::Sampler as _;
use weirgate_balance::topology::{FatTree, Kind, LeafSpine, Link, LinkSettings, Node, Pods, Topology, Vl2};
use weirgate_fabric::{Chance, Change, Span, Time};
use weirgate_units::Duration;

use super::problem;
use crate::config::read::{Problem, Section, unknown};

pub use self::graph::Graph;
pub use self::shape::KINDS;

/// A network.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// What it is built as.
    pub shape: Shape,
    /// Links beside those.
    pub extra: Vec<Extra>,
    /// What fails.
    pub failures: Failures,
}

/// What a network is built as.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Leaves and spines.
    LeafSpine(LeafSpine),
    /// VL2.
    Vl2(Vl2),
    /// Facebook's pods.
    Pods(Pods),
    /// A fat tree.
    FatTree(FatTree),
    /// What a file says.
    Graph(Graph),
}

/// Links between two nodes, named `leaf0`, `spine3`, `host17` and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extra {
    /// The nodes.
    pub between: [String; 2],
    /// What each link is.
    pub settings: LinkSettings,
    /// How many.
    pub count: u32,
    /// Where they are in the file; 0 in none.
    pub line: usize,
}

/// Links that are down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// These.
    pub links: Vec<[String; 2]>,
    /// And so many random ones between a leaf and a switch above it.
    pub random: u32,
    /// From when on; zero: they were never there.
    pub at: Duration,
    /// Until when; nothing: to the end.
    pub until: Option<Duration>,
    /// Where they are in the file; 0 in none.
    pub line: usize,
}

/// The stream that says which links fail.
const FAILURES: u64 = u64::MAX - 16;

impl Network {
    /// The network, and what changes in it. Of random failures `seed` says which: the same for every balancer.
    ///
    /// # Errors
    /// What it cannot be built of.
    pub fn build(&self, seed: u64) -> Result<(Topology, Vec<Change>), Problem> {
        let built = match &self.shape {
            Shape::LeafSpine(shape) => shape.build(),
            Shape::Vl2(shape) => shape.build(),
            Shape::Pods(shape) => shape.build(),
            Shape::FatTree(shape) => shape.build(),
            Shape::Graph(graph) => Ok(graph.build()?),
        };
        let mut topology = built.map_err(|error| problem(0, "topology", error.to_string()))?;
        let names = self.names(&topology);
        join(&mut topology, &names, &self.extra)?;
        self.fail(topology, &names, seed)
    }

    fn fail(
        &self,
        mut topology: Topology,
        names: &BTreeMap<String, Node>,
        seed: u64,
    ) -> Result<(Topology, Vec<Change>), Problem> {
        let Failures { links, random, at, until, line } = &self.failures;
        let wrong = |what: String| problem(*line, "failures", what);
        let mut down: Vec<Link> = Vec::new();
        for [a, b] in links {
            let [from, to] = [named(names, a).map_err(wrong)?, named(names, b).map_err(wrong)?];
            let is_it = |link: &&Link| topology.far_end(**link, from) == to && !down.contains(link);
            let link = topology.ports(from).iter().find(is_it).copied();
            down.push(link.ok_or_else(|| wrong(format!("there is no link between {a} and {b}, or not so many")))?);
        }
        let leaves = topology.leaves();
        let is_uplink = |link: &Link| {
            let [a, b] = topology.ends(*link);
            !topology.is_host(a) && !topology.is_host(b) && (leaves.contains(&a) || leaves.contains(&b))
        };
        let mut uplinks: Vec<Link> = topology.links().filter(|link| is_uplink(link) && !down.contains(link)).collect();
        let mut chance = Chance::new(seed, FAILURES);
        for _ in 0..*random {
            if uplinks.is_empty() {
                return Err(wrong(format!("there are not {random} links that could fail")));
            }
            down.push(uplinks.swap_remove(chance.below(uplinks.len() as u32) as usize));
        }
        let mut changes = Vec::new();
        for link in down {
            if *at == Duration::ZERO {
                topology.set_up(link, false);
            } else {
                changes.push(Change { at: Time::ZERO + Span::from(*at), link, is_up: false });
            }
            if let Some(until) = until {
                changes.push(Change { at: Time::ZERO + Span::from(*until), link, is_up: true });
            }
        }
        Ok((topology, changes))
    }

    /// The names of all nodes.
    fn names(&self, topology: &Topology) -> BTreeMap<String, Node> {
        let stages = match &self.shape {
            Shape::Graph(graph) => return graph.names().cloned().zip(topology.nodes()).collect(),
            Shape::LeafSpine(_) => ["leaf", "spine", "spine"],
            Shape::Vl2(_) => ["tor", "aggregation", "intermediate"],
            Shape::Pods(_) => ["tor", "fabric", "spine"],
            Shape::FatTree(_) => ["edge", "aggregation", "core"],
        };
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        let name = |node| {
            let stage = match topology.kind(node) {
                Kind::Host => "host",
                Kind::Switch { stage } => stages[usize::from(stage)],
            };
            let count = counts.entry(stage).or_default();
            *count += 1;
            (format!("{stage}{}", *count - 1), node)
        };
        topology.nodes().map(name).collect()
    }
}

fn join(topology: &mut Topology, names: &BTreeMap<String, Node>, links: &[Extra]) -> Result<(), Problem> {
    for Extra { between: [a, b], settings, count, line } in links {
        let wrong = |what: String| problem(*line, "link.between", what);
        let [from, to] = [named(names, a).map_err(wrong)?, named(names, b).map_err(wrong)?];
        for _ in 0..*count {
            topology.link(from, to, *settings).map_err(|error| wrong(error.to_string()))?;
        }
    }
    Ok(())
}

fn named(names: &BTreeMap<String, Node>, name: &str) -> Result<Node, String> {
    let known = || names.keys().map(String::as_str).collect::<Vec<_>>();
    names.get(name).copied().ok_or_else(|| unknown("node", name, &known()))
}

/// Reads `[topology]`, `[[link]]` and `[failures]`.
pub(super) fn read(root: &mut Section<'_>, folder: &Path, problems: &mut Vec<Problem>) -> Option<Network> {
    let extra = shape::links(root, problems);
    let failures = root.table("failures", |section| failures(section, problems));
    let shape = root.table("topology", |section| shape::read(section, folder, problems))?;
    Some(Network { shape, extra, failures })
}

fn failures(section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Failures {
    let links = section.list::<String>("links");
    let line = links.as_ref().map_or(0, |links| links.line);
    let mut pairs = Vec::new();
    for link in links.map_or_else(Vec::new, |links| links.value) {
        match link.split_once('-') {
            Some((a, b)) => pairs.push([a.trim().to_owned(), b.trim().to_owned()]),
            None => problems.push(problem(line, "failures.links", format!("`{link}` is not \"leaf0 - spine1\""))),
        }
    }
    let at = section.parsed::<Duration>("at").map_or(Duration::ZERO, |at| at.value);
    let until = section.parsed::<Duration>("until");
    if let Some(until) = until.as_ref().filter(|until| until.value <= at) {
        problems.push(until.problem("a link comes up after it has gone down: `until` is later than `at`"));
    }
    Failures {
        links: pairs,
        random: section.integer("random", 0, 1_000_000).map_or(0, |random| random.value as u32),
        at,
        until: until.map(|until| until.value),
        line,
    }
}
