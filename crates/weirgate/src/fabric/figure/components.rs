//! What a network's symmetric components make of its links: how many of them two leaves have between them, and how full their weights
//! would make each link. Nothing is simulated.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use weirgate_balance::symmetry::Symmetry;
use weirgate_balance::topology::{Node, Topology};
use weirgate_lab::report::{Table, number};
use weirgate_lab::stats::mean;

use super::grid::at_load;
use crate::fabric::scenario::Scenario;

/// A table of the links between switches, by their way and by how many there are beside each other, at a load of the leaves' uplinks,
/// where every leaf sends to all others alike.
pub(super) fn table(scenario: &Scenario, load: f64) -> Result<Table> {
    let built = scenario.network.build(scenario.settings.seed).map_err(|problem| anyhow!(problem.to_string()))?;
    let network = Network { symmetry: Symmetry::new(&built.0), topology: built.0 };
    let caption = format!(
        "Symmetric components, and how full their weights would make links at {} % load, traffic between all leaves alike",
        number(100.0 * load)
    );
    let heads = ["links", "how many", "least, %", "mean, %", "most, %"];
    let mut table = Table::new(&caption, &heads);
    for ((way, beside), shares) in network.links(load) {
        let (least, most) =
            (shares.iter().copied().fold(f64::INFINITY, f64::min), shares.iter().copied().fold(0.0, f64::max));
        let numbers = [least, mean(shares.iter().copied()), most].map(|share| number(100.0 * share));
        let count = shares.len().to_string();
        table.rows.push([vec![format!("{way}, {beside} beside each other"), count], numbers.to_vec()].concat());
    }
    let (components, ports) = network.between_leaves();
    let range = |of: Vec<usize>| {
        let ends = of.iter().min().zip(of.iter().max());
        ends.map_or_else(
            String::new,
            |(least, most)| if least == most { least.to_string() } else { format!("{least} to {most}") },
        )
    };
    let row = |what: &str, of: Vec<usize>| [what, &range(of), "-", "-", "-"].map(str::to_owned).to_vec();
    table.rows.push(row("components from one leaf to another", components));
    table.rows.push(row("ports of one, among which DRILL chooses for each packet", ports));
    Ok(table)
}

/// Of the components from one leaf to another, how many have one port, in percent, in the networks of all these seeds.
pub(super) fn alone(scenario: &Scenario, seeds: &[u64]) -> Result<f64> {
    let (mut all, mut alone) = (0, 0);
    for seed in seeds {
        let built = scenario.network.build(*seed).map_err(|problem| anyhow!(problem.to_string()))?;
        let (_, ports) = Network { symmetry: Symmetry::new(&built.0), topology: built.0 }.between_leaves();
        all += ports.len();
        alone += ports.iter().filter(|ports| **ports == 1).count();
    }
    Ok(100.0 * alone as f64 / all as f64)
}

/// At which loads a link is asked for more than it carries, if all shortest ways have their share, and by how much, of the seeds where one
/// is: nothing, where none is.
pub(super) fn asked_too_much(scenario: &Scenario, loads: &[f64], seeds: &[u64]) -> String {
    let said = loads.iter().filter_map(|load| {
        let scenario = at_load(scenario, *load);
        let mut full: Vec<f64> = seeds.iter().filter_map(|seed| scenario.overfull(*seed)).collect();
        full.sort_by(f64::total_cmp);
        let (least, most) = full.first().zip(full.last())?;
        let range = if least == most { number(*most) } else { format!("{} to {}", number(*least), number(*most)) };
        let (some, all) = (full.len(), seeds.len());
        Some(format!("{} % load {range} times that, with {some} of {all} seeds", number(100.0 * load)))
    });
    let said: Vec<String> = said.collect();
    if said.is_empty() {
        return String::new();
    }
    format!(
        "If all shortest ways have their share, the fullest link is asked for more than it carries: at {}. What waits there grows for \
         as long as flows begin, so that these times depend on how many flows a run has.",
        said.join(", at ")
    )
}

struct Network {
    topology: Topology,
    symmetry: Symmetry,
}

/// By which way, and how many links there are between the same two switches.
type Links = BTreeMap<(&'static str, usize), Vec<f64>>;

impl Network {
    /// What share of its rate each link between switches would carry.
    fn links(&self, load: f64) -> Links {
        let leaves = self.symmetry.leaves();
        // In bit/s, by link and the end that it is sent from.
        let mut sent: BTreeMap<(usize, Node), f64> = BTreeMap::new();
        for from in leaves {
            let offered = load * self.uplinks(*from) / (leaves.len() - 1) as f64;
            leaves.iter().filter(|to| *to != from).for_each(|to| self.send(*from, *to, offered, &mut sent));
        }
        let mut links = Links::new();
        for link in self.topology.links() {
            let ends = self.topology.ends(link);
            if ends.iter().any(|end| self.topology.is_host(*end)) {
                continue;
            }
            let beside =
                self.topology.ports(ends[0]).iter().filter(|other| self.topology.far_end(**other, ends[0]) == ends[1]);
            let beside = beside.count();
            for from in ends {
                let way = if leaves.contains(&from) { "up" } else { "down" };
                let sent = sent.get(&(link.index(), from)).copied().unwrap_or(0.0);
                let share = sent / self.topology.settings(link).rate.as_bits_per_sec() as f64;
                links.entry((way, beside)).or_default().push(share);
            }
        }
        links
    }

    /// The rate of a leaf's links to other switches.
    fn uplinks(&self, leaf: Node) -> f64 {
        let links =
            self.topology.ports(leaf).iter().filter(|link| !self.topology.is_host(self.topology.far_end(**link, leaf)));
        links.map(|link| self.topology.settings(*link).rate.as_bits_per_sec() as f64).sum()
    }

    fn send(&self, at: Node, to: Node, rate: f64, sent: &mut BTreeMap<(usize, Node), f64>) {
        let components = self.symmetry.components(at, to);
        let all: f64 = components.iter().map(|component| component.weight as f64).sum();
        for component in components {
            let rate = rate * component.weight as f64 / all / component.ports.len() as f64;
            for port in component.ports {
                let link = self.topology.link_at(at, port);
                *sent.entry((link.index(), at)).or_default() += rate;
                self.send(self.topology.far_end(link, at), to, rate, sent);
            }
        }
    }

    /// How many components each pair of leaves has, and how many ports each of these.
    fn between_leaves(&self) -> (Vec<usize>, Vec<usize>) {
        let leaves = self.symmetry.leaves();
        let pairs =
            leaves.iter().flat_map(|from| leaves.iter().map(move |to| (from, to))).filter(|(from, to)| from != to);
        let of: Vec<_> = pairs.map(|(from, to)| self.symmetry.components(*from, *to)).collect();
        let ports = of.iter().flatten().map(|component| component.ports.len()).collect();
        (of.iter().map(Vec::len).collect(), ports)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn rows(more: &str) -> Vec<Vec<String>> {
        let text = format!(
            "[topology]\nspines = 4\nleaves = 3\nhosts = 6\ncore = \"10 Gbit/s\"\n{more}[workload]\nsizes = \"10 KB\"\n"
        );
        table(&Scenario::parse(&text, Path::new("")).unwrap(), 0.8).unwrap().rows
    }

    #[test]
    fn equal_paths_are_one_component_and_equally_full() {
        let said = rows("");
        let row = |what: &str| said.iter().find(|row| row[0].starts_with(what)).unwrap()[1..].join(" ");
        assert_eq!([row("up, 1"), row("down, 1")], ["12 80 80 80"; 2]);
        assert_eq!([row("components"), row("ports")], ["1 - - -", "4 - - -"]);
    }

    /// Leaf 0's three ways are alike. Of the four between the others the one by spine 0 carries nothing of leaf 0's, and is a component of
    /// its own.
    #[test]
    fn a_failure_leaves_components_of_one_port() {
        let scenario = |failures: &str| {
            let network = "[topology]\nspines = 4\nleaves = 3\nhosts = 6\ncore = \"10 Gbit/s\"\n";
            let text = format!("{network}{failures}[workload]\nsizes = \"10 KB\"\nload = 0.5\n");
            Scenario::parse(&text, Path::new("")).unwrap()
        };
        assert_eq!(alone(&scenario(""), &[1, 2]).unwrap(), 0.0);
        // Four pairs with three ports, two with three and with one.
        let one = alone(&scenario("[failures]\nlinks = [\"leaf0 - spine0\"]\n"), &[1, 2]).unwrap();
        assert_eq!(one, 25.0);
    }

    /// Leaf 0 has two links to spine 0: as one of 20 Gbit/s to a spine that takes 10 to each other leaf. So its flows to one are for two
    /// components, the two links with as much as one of the others, and no link has more than it can take.
    #[test]
    fn a_second_link_brings_its_spine_no_more_than_it_can_take_away() {
        let said = rows("[[link]]\nbetween = [\"leaf0\", \"spine0\"]\nrate = \"10 Gbit/s\"\n");
        let row = |what: &str| said.iter().find(|row| row[0].starts_with(what)).unwrap()[1..].join(" ");
        assert_eq!([row("up, 2"), row("components"), row("ports")], ["2 50 50 50", "2 - - -", "1 to 3 - - -"]);
        assert!(row("down, 1").ends_with(" 90"), "{}", row("down, 1"));
    }
}
