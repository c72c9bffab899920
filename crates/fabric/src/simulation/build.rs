//! A run's parts: lines, switches and hosts by the topology, and what routing tells the switches.

use weirgate_balance::topology::{Link, Node};
use weirgate_balance::{Conga, Estimator, Port};
use weirgate_units::BitRate;

use super::{HOSTS, Host, LOSSES, Simulation};
use crate::chance::Chance;
use crate::line::{Line, Target, Visible};
use crate::measure::Hop;
use crate::scheme::uplinks;
use crate::switch::{NO_LEAF, Switch};
use crate::{Scheme, Span, routes};

impl Simulation {
    /// Lines, switches and hosts, by the topology.
    pub(super) fn build(&mut self) {
        let topology = &self.topology;
        let mut numbers = (0_u32, 0_u32);
        let targets: Vec<Target> = topology
            .nodes()
            .map(|node| {
                let number = if topology.is_host(node) { &mut numbers.0 } else { &mut numbers.1 };
                *number += 1;
                if topology.is_host(node) { Target::Host(*number - 1) } else { Target::Switch(*number - 1) }
            })
            .collect();
        let mut leaf_at = vec![NO_LEAF; targets.len()];
        for (at, leaf) in self.leaves.iter().enumerate() {
            leaf_at[leaf.index()] = at as u16;
        }
        // The place of each link at either end.
        let mut ports = vec![[0_u16; 2]; topology.links().len()];
        for node in topology.nodes() {
            for (port, link) in topology.ports(node).iter().enumerate() {
                ports[link.index()][usize::from(topology.ends(*link)[0] != node)] = port as u16;
            }
        }
        let (seed, engines) = (self.settings.seed, self.settings.engines);
        let mark = self.settings.mark.unwrap_or(u64::MAX);
        for node in topology.nodes() {
            self.first_lines.push(self.lines.len() as u32);
            for link in topology.ports(node) {
                let far = topology.far_end(*link, node);
                let far_port = ports[link.index()][usize::from(topology.ends(*link)[0] == node)];
                let hop = Hop::of(topology.kind(node), topology.kind(far));
                let mark = if topology.is_host(node) { u64::MAX } else { mark };
                let place = self.measures.place(hop);
                let settings = topology.settings(*link);
                let mut line = Line::new(settings, mark, targets[far.index()], far_port, place);
                line.is_up = topology.is_up(*link);
                self.lines.push(line);
            }
            let (first, ports) = (self.first_lines[node.index()], topology.ports(node).len());
            match targets[node.index()] {
                Target::Host(number) => {
                    let leaf = leaf_at[topology.leaf_of(node).index()];
                    let chance = Chance::new(seed, HOSTS + u64::from(number));
                    // The leaf's lines may come later.
                    self.hosts.push(Host { line: first, last_line: 0, leaf, chance });
                }
                Target::Switch(number) => {
                    let leaf = leaf_at[node.index()];
                    let stream = u64::from(number) + 1;
                    self.switches.push(Switch::new(first, ports, leaf, engines, seed, stream, &self.settings.scheme));
                }
            }
        }
        self.losses = (LOSSES..).take(self.lines.len()).map(|stream| Chance::new(seed, stream)).collect();
        for (number, line) in self.lines.iter().enumerate() {
            if let Target::Host(host) = line.to {
                self.hosts[host as usize].last_line = number as u32;
            }
        }
        let switch = |leaf: &Node| match targets[leaf.index()] {
            Target::Switch(number) => number,
            Target::Host(_) => unreachable!("a leaf is a switch"),
        };
        self.leaf_switches = self.leaves.iter().map(switch).collect();
        if self.settings.enqueue_delay > Span::ZERO {
            self.visible = vec![Visible::default(); self.lines.len()];
        }
        self.targets = targets;
        for leaf in &self.leaves {
            let fabric: Vec<usize> = (0..topology.ports(*leaf).len())
                .filter(|port| !topology.is_host(topology.far_end(topology.ports(*leaf)[*port], *leaf)))
                .collect();
            let first = self.first_lines[leaf.index()];
            let up = fabric.iter().map(|port| first + *port as u32).collect();
            let down = fabric.iter().map(|port| {
                let link = topology.ports(*leaf)[*port];
                let far = topology.far_end(link, *leaf);
                let far_port = ports[link.index()][usize::from(topology.ends(link)[0] != far)];
                self.first_lines[far.index()] + u32::from(far_port)
            });
            self.alike.push((false, down.collect()));
            self.alike.push((true, up));
        }
    }

    /// Gives the switches what routing knows now.
    pub(super) fn route(&mut self) {
        let in_turn = matches!(self.settings.scheme, Scheme::Presto);
        let tables = routes::tables(&self.topology, &self.leaves, self.symmetry.as_ref(), in_turn);
        let tables = tables.into_iter().zip(self.topology.nodes()).filter(|(_, node)| !self.topology.is_host(*node));
        for (switch, (table, _)) in self.switches.iter_mut().zip(tables) {
            switch.set_table(table);
        }
        for node in self.topology.nodes() {
            self.leave_out_what_is_down(node);
        }
    }

    /// CONGA's tables and estimators, which failures do not change.
    pub(super) fn build_conga(&mut self) {
        let Scheme::Conga(conga) = self.settings.scheme else { return };
        let topology = &self.topology;
        let is_uplink = |leaf: Node, link: Link| !topology.is_host(topology.far_end(link, leaf));
        let uplinks_by_leaf: Vec<usize> = self.leaves.iter().map(|leaf| uplinks(topology, *leaf)).collect();
        let nodes = topology.nodes().filter(|node| !topology.is_host(*node));
        for (switch, node) in self.switches.iter_mut().zip(nodes) {
            let ports = topology.ports(node).iter().enumerate();
            let rates =
                ports.map(|(port, link)| (Port(port as u16), topology.settings(*link).rate, is_uplink(node, *link)));
            if switch.leaf == NO_LEAF {
                switch.set_conga(None, rates.map(|(_, rate, _)| Estimator::new(rate, conga)).collect());
            } else {
                let uplinks: Vec<(Port, BitRate)> =
                    rates.filter(|(.., is_uplink)| *is_uplink).map(|(port, rate, _)| (port, rate)).collect();
                switch.set_conga(Some(Conga::new(conga, &uplinks, &uplinks_by_leaf)), Vec::new());
            }
        }
    }

    /// A switch knows of its own links before routing does.
    pub(super) fn leave_out_what_is_down(&mut self, node: Node) {
        let Target::Switch(number) = self.targets[node.index()] else { return };
        let switch = &mut self.switches[number as usize];
        let first = switch.first_line as usize;
        let lines = &self.lines[first..first + switch.ports];
        if lines.iter().any(|line| !line.is_up) {
            let mut table = std::mem::take(&mut switch.table);
            table.keep(|port| lines[usize::from(port.0)].is_up);
            switch.set_table(table);
        }
    }

    /// The direction of a link that leads away from one of its ends.
    pub(super) fn line_of(&self, link: Link, from: Node) -> usize {
        let port = self.topology.ports(from).iter().position(|other| *other == link);
        self.first_lines[from.index()] as usize + port.expect("an end has the link")
    }
}
