//! Any network, from a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use weirgate_balance::topology::{Kind, Topology};

use super::names::Names;
use super::{Extra, join, problem, shape};
use crate::config::read::{Lines, Problem, Section, document, read_text};

/// A network by the names of its nodes: `hosts = ["a", "b"]`, `switches = ["s"]`, and a `[[link]]` for each link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// Its file, as the scenario calls it.
    pub file: String,
    /// Hosts, in order.
    pub hosts: Vec<String>,
    /// Switches, in order.
    pub switches: Vec<String>,
    /// Links.
    pub links: Vec<Extra>,
}

impl Graph {
    /// Reads a file, which lies in `folder`.
    pub(super) fn load(folder: &Path, file: &str) -> Result<Self, Vec<Problem>> {
        let text = read_text(&folder.join(file)).map_err(|error| vec![problem(0, "", error.to_string())])?;
        let table = document(&text).map_err(|problem| vec![problem])?;
        let lines = Lines::of(&text);
        let mut root = Section::root(&lines, table.get_ref());
        let mut problems = Vec::new();
        let [hosts, switches] = ["hosts", "switches"].map(|key| root.list::<String>(key));
        let lines_of = [&hosts, &switches].map(|list| list.as_ref().map_or(0, |list| list.line));
        let [hosts, switches] = [hosts, switches].map(|list| list.map_or_else(Vec::new, |list| list.value));
        let links = shape::links(&mut root, &mut problems);
        problems.extend(root.finish());
        let graph = Self { file: file.to_owned(), hosts, switches, links };
        let mut all: Vec<&String> = graph.names().collect();
        all.sort_unstable();
        let twice = all.windows(2).find(|pair| pair[0] == pair[1]);
        problems.extend(twice.map(|pair| {
            let is_switch = graph.switches.contains(pair[0]);
            let key = if is_switch { "switches" } else { "hosts" };
            problem(lines_of[usize::from(is_switch)], key, format!("two nodes are called `{}`", pair[0]))
        }));
        if problems.is_empty() {
            // Here it is known which file its lines are of.
            problems.extend(graph.build().err());
        }
        if problems.is_empty() { Ok(graph) } else { Err(problems) }
    }

    /// Of all nodes, in their order.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.hosts.iter().chain(&self.switches)
    }

    /// The network.
    pub(super) fn build(&self) -> Result<Topology, Problem> {
        let mut topology = Topology::new();
        let stages = self.stages();
        let hosts = self.hosts.iter().map(|name| (name, Kind::Host));
        let stage = |name: &String| stages.get(name.as_str()).copied().unwrap_or(0);
        let switches = self.switches.iter().map(|name| (name, Kind::Switch { stage: stage(name) }));
        let names = Names::new(hosts.chain(switches).map(|(name, kind)| (name.clone(), topology.add(kind))));
        join(&mut topology, &names, &self.links)?;
        Ok(topology)
    }

    /// How far each switch is from those that have hosts.
    fn stages(&self) -> BTreeMap<&str, u8> {
        let ends = self.links.iter().flat_map(|link| {
            let [a, b] = link.between.each_ref().map(String::as_str);
            [(a, b), (b, a)]
        });
        let hosts: BTreeSet<&str> = self.hosts.iter().map(String::as_str).collect();
        let (from_hosts, between): (Vec<_>, Vec<_>) = ends.partition(|(a, _)| hosts.contains(a));
        let mut stages: BTreeMap<&str, u8> = from_hosts.into_iter().map(|(_, leaf)| (leaf, 0)).collect();
        for stage in 1..u8::MAX {
            let is_next = |(a, b): &&(&str, &str)| stages.get(a) == Some(&(stage - 1)) && !stages.contains_key(b);
            let next: Vec<&str> = between.iter().filter(is_next).map(|(_, b)| *b).collect();
            if next.is_empty() {
                break;
            }
            stages.extend(next.into_iter().map(|name| (name, stage)));
        }
        stages
    }
}
