//! `[topology]`, `[[link]]` and `[failures]`: the network.

mod graph;
mod names;
mod shape;

use std::collections::BTreeMap;
use std::path::Path;

use weirgate_balance::Sampler as _;
use weirgate_balance::topology::{
    FatTree, Kind, LeafSpine, Link, LinkSettings, Node, Pods, Topology, TopologyError, Vl2,
};
use weirgate_fabric::{Chance, Change, Span, Time};
use weirgate_units::Duration;

use super::problem;
use crate::config::read::{Problem, Section};

pub use self::graph::Graph;
use self::names::Names;
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
        let mut topology = built.map_err(|error| match error {
            TopologyError::TooManyPorts(_) => {
                let most = u16::MAX;
                problem(0, "topology", format!("a switch has more than {most} links: fewer hosts, leaves or spines"))
            }
            other => problem(0, "topology", other.to_string()),
        })?;
        let names = self.names(&topology);
        join(&mut topology, &names, &self.extra)?;
        let Shape::Graph(graph) = &self.shape else {
            topology.check().map_err(|error| problem(0, "topology", names.error(error)))?;
            return self.fail(topology, &names, seed);
        };
        let wrong = |what: String| problem(0, "topology.file", format!("{}: {what}", graph.file));
        topology.check().map_err(|error| wrong(names.error(error)))?;
        if let Some(lone) = topology.nodes().find(|node| topology.ports(*node).is_empty()) {
            return Err(wrong(format!("{} has no link: write a [[link]] to it, or take it out", names.of(lone))));
        }
        self.fail(topology, &names, seed)
    }

    /// How many hosts it has.
    pub fn hosts(&self) -> u64 {
        let all = |counts: &[u32]| counts.iter().map(|count| u64::from(*count)).product();
        match &self.shape {
            Shape::LeafSpine(shape) => all(&[shape.leaves, shape.hosts]),
            Shape::Vl2(shape) => all(&[shape.tors, shape.hosts]),
            Shape::Pods(shape) => all(&[shape.pods, shape.tors, shape.hosts]),
            Shape::FatTree(FatTree { k, .. }) => all(&[*k, *k, *k]) / 4,
            Shape::Graph(graph) => graph.hosts.len() as u64,
        }
    }

    /// That every host can reach every other over links that are up, in a network that was built of this.
    ///
    /// # Errors
    /// Two that cannot, and the links that are down and cut one off.
    pub fn check_up(&self, topology: &Topology) -> Result<(), Problem> {
        topology.check_up().map_err(|error| {
            let key = if self.failures.links.is_empty() { "failures.random" } else { "failures.links" };
            problem(0, key, self.names(topology).error_up(topology, error))
        })
    }

    /// The same at a time of a run.
    ///
    /// # Errors
    /// As [`check_up`](Self::check_up), and what it cannot be built of.
    pub fn check_up_at(&self, seed: u64, time: Time) -> Result<(), Problem> {
        let (mut topology, mut changes) = self.build(seed)?;
        changes.sort_by_key(|change| change.at);
        for change in changes.iter().filter(|change| change.at <= time) {
            topology.set_up(change.link, change.is_up);
        }
        self.check_up(&topology)
    }

    fn fail(&self, mut topology: Topology, names: &Names, seed: u64) -> Result<(Topology, Vec<Change>), Problem> {
        let Failures { links, random, at, until, line } = &self.failures;
        let key = if links.is_empty() { "failures.random" } else { "failures.links" };
        let wrong = |what: String| problem(*line, key, what);
        let mut down: Vec<Link> = Vec::new();
        for [a, b] in links {
            let [from, to] = [names.node(a).map_err(wrong)?, names.node(b).map_err(wrong)?];
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
                let what = format!("there are not {random} links that could fail");
                return Err(problem(0, "failures.random", what));
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

    /// What a node is called.
    pub(super) fn name(&self, topology: &Topology, node: Node) -> String {
        self.names(topology).of(node).to_owned()
    }

    /// The names of all nodes.
    fn names(&self, topology: &Topology) -> Names {
        let stages = match &self.shape {
            Shape::Graph(graph) => return Names::new(graph.names().cloned().zip(topology.nodes())),
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
        Names::new(topology.nodes().map(name))
    }
}

fn join(topology: &mut Topology, names: &Names, links: &[Extra]) -> Result<(), Problem> {
    for Extra { between: [a, b], settings, count, line } in links {
        let wrong = |what: String| problem(*line, "link.between", what);
        let [from, to] = [names.node(a).map_err(wrong)?, names.node(b).map_err(wrong)?];
        for _ in 0..*count {
            topology.link(from, to, *settings).map_err(|error| wrong(names.error(error)))?;
        }
        // Here the line is known.
        for node in [from, to].into_iter().filter(|node| topology.is_host(*node)) {
            let links = topology.ports(node).len();
            if links > 1 {
                return Err(wrong(names.error(TopologyError::HostLinks(node, links))));
            }
        }
    }
    Ok(())
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
        // Names may have hyphens themselves.
        let only = || link.split_once('-').filter(|(_, rest)| !rest.contains('-'));
        match link.split_once(" - ").or_else(only) {
            Some((a, b)) => pairs.push([a.trim().to_owned(), b.trim().to_owned()]),
            None => {
                let what = format!("`{link}` is not \"leaf0 - spine1\", with spaces around the hyphen");
                problems.push(problem(line, "failures.links", what));
            }
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
