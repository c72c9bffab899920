//! What somebody who wrote a scenario may have meant otherwise: no problem, and said before a run.

use weirgate_fabric::Scheme;

use super::{Scenario, Traffic};

impl Scenario {
    /// A sentence for each of these.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Traffic::Poisson { sizes, .. } = &self.traffic {
            let (mean, largest) = (sizes.mean(|bytes| bytes), sizes.largest());
            notes.push(format!("flows have {mean:.0} bytes in the mean and {largest} at most"));
        }
        // What is wrong with the network the run says.
        let Ok((topology, _)) = self.network.build(self.settings.seed) else { return notes };
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
}
