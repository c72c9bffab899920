//! What somebody who wrote a scenario may have meant otherwise: no problem, and said before a run.

use weirgate_balance::topology::{Node, Topology};
use weirgate_fabric::Scheme;

use super::full::fullest;
use super::workload::uplinks;
use super::{Scenario, Traffic};

/// Just so full a link may be.
const FULL: f64 = 1.000_001;

impl Scenario {
    /// For how many times what it carries the fullest link is asked, with the failures of a seed, if each switch shares out what it has among
    /// its shortest ways by their rates; none, where that is no more than it carries, flows do not come at a load, or the network is too
    /// large to be asked.
    pub fn overfull(&self, seed: u64) -> Option<f64> {
        let (topology, _) = self.network.build(seed).ok()?;
        Some(self.overfull_link(&topology)?.2)
    }

    /// The same of a network that was built of this, with the link's ends.
    fn overfull_link(&self, topology: &Topology) -> Option<(Node, Node, f64)> {
        let Traffic::Poisson { load, .. } = &self.traffic else { return None };
        fullest(topology, load * uplinks(topology)).filter(|(.., full)| *full > FULL)
    }

    /// A sentence for each of these.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Traffic::Poisson { sizes, .. } = &self.traffic {
            let (mean, largest) = (sizes.mean(|bytes| bytes), sizes.largest());
            notes.push(format!("flows have {mean:.0} bytes in the mean and {largest} at most"));
        }
        // What is wrong with the network the run says.
        let Ok((topology, _)) = self.network.build(self.settings.seed) else { return notes };
        if let Traffic::Poisson { load, .. } = &self.traffic
            && let Some((from, to, full)) = self.overfull_link(&topology)
        {
            let [from, to] = [from, to].map(|node| self.network.name(&topology, node));
            notes.push(format!(
                "[workload] load = {load} asks the link from {from} to {to} for {full:.2} times what it carries, if all shortest paths have their \
                 share of it: what waits there grows for as long as flows begin, and times are of that"
            ));
        }
        let switches = || topology.nodes().filter(|node| !topology.is_host(*node));
        let ports = switches().map(|switch| topology.ports(switch).len()).max().unwrap_or(0);
        let engines = self.settings.engines;
        if usize::from(engines) > ports {
            notes.push(format!(
                "[switch] engines = {engines}: no switch has more than {ports} ports, each of which belongs to one engine, so the others have nothing to do"
            ));
        }
        let is_onwards = |switch, link| !topology.is_host(topology.far_end(link, switch));
        let onwards = |switch| topology.ports(switch).iter().copied().filter(|link| is_onwards(switch, *link)).count();
        let choices = switches().map(onwards).max().unwrap_or(0);
        if let Scheme::Drill(looks) | Scheme::DrillPerFlow(looks) = self.settings.scheme
            && looks.d().max(looks.m()) > choices
            && choices > 0
        {
            let name = self.settings.scheme.name();
            notes.push(format!(
                "{name}: no switch has more than {choices} ports to other switches, so it looks at all there are"
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_more_than_there_is_is_said_and_how_large_flows_are() {
        let notes = |more: &str| {
            let network =
                "[topology]\nspines = 4\nleaves = 2\nhosts = 6\ncore = \"10 Gbit/s\"\n[workload]\nload = 0.5\n";
            Scenario::parse(&format!("{network}{more}"), Path::new("")).unwrap().notes()
        };
        assert_eq!(
            notes("sizes = \"10 KB\"\n[switch]\nengines = 10\n"),
            ["flows have 10000 bytes in the mean and 10000 at most"]
        );
        let said = notes("sizes = \"10 KB\"\n[switch]\nengines = 11\n[balance]\nscheme = \"drill\"\nd = 5\n");
        assert!(said[1].contains("no switch has more than 10 ports"), "{said:?}");
        assert!(said[2].contains("no switch has more than 4 ports to other switches"), "{said:?}");
        assert!(notes("sizes = \"websearch\"\n")[0].ends_with("at most"));
    }

    #[test]
    fn a_link_within_the_network_that_is_asked_for_too_much_is_named() {
        let notes = |topology: &str, load: f64| {
            let text = format!("[topology]\n{topology}[workload]\nload = {load}\nsizes = \"10 KB\"\n");
            Scenario::parse(&text, Path::new("")).unwrap().notes()
        };
        // Of 4 pods of 4 switches 12 of 15 are in another pod; a plane's 4 switches have 4 links each of 1 Gbit/s for what 4 x 40 bring.
        let pods = "kind = \"pods\"\nspine = \"1 Gbit/s\"\n";
        let said = notes(pods, 0.5);
        assert!(said[1].contains("asks the link from"), "{said:?}");
        assert!(said[1].contains(" for 16.00 times what it carries"), "{said:?}");
        assert_eq!(notes(pods, 0.03).len(), 1);
        assert_eq!(notes("spines = 4\nleaves = 2\nhosts = 40\ncore = \"10 Gbit/s\"\n", 1.0).len(), 1);
    }

    /// Three quarters of the flows go to the one host of the other leaf: 15 of 20 Gbit/s.
    #[test]
    fn a_hosts_own_link_that_is_asked_for_too_much_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let link =
            |a: &str, b: &str, rate| format!("[[link]]\nbetween = [\"{a}\", \"{b}\"]\nrate = \"{rate} Gbit/s\"\n");
        let hosts = [("a", "leaf-1"), ("b", "leaf-2"), ("c", "leaf-2"), ("d", "leaf-2")].map(|(a, b)| link(a, b, 10));
        let nodes = "hosts = [\"a\", \"b\", \"c\", \"d\"]\nswitches = [\"leaf-1\", \"leaf-2\"]\n";
        let uplinks = link("leaf-1", "leaf-2", 50).repeat(2);
        std::fs::write(folder.path().join("net.toml"), format!("{nodes}{}{uplinks}", hosts.concat())).unwrap();
        let text = "[topology]\nkind = \"graph\"\nfile = \"net.toml\"\n[workload]\nload = 0.1\nsizes = \"10 KB\"\n\
                    [failures]\nlinks = [\"leaf-1 - leaf-2\"]\nat = \"1 s\"\n";
        let said = Scenario::parse(text, folder.path()).unwrap().notes();
        assert!(said[1].contains("asks the link from leaf-1 to a for 1.50 times what it carries"), "{said:?}");
    }
}
