//! How switches, or hosts, choose among paths.

use weirgate_balance::symmetry::Symmetry;
use weirgate_balance::topology::{Node, Topology};
use weirgate_balance::{Conga, CongaSettings, DrillPerFlow, Flowlets, LabelSettings, Looks, Rule};

use crate::Span;
use crate::switch::DRILL_PLACES;

/// How load is balanced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scheme {
    /// Each flow by its hash.
    Ecmp,
    /// Each flow by its hash, weighted by what each next hop can carry.
    Wcmp,
    /// Each packet by any next hop.
    Random,
    /// Each packet by the next hop after the last one's.
    RoundRobin,
    /// DRILL: each packet to the least loaded of some, within a symmetric component.
    Drill(Looks),
    /// The first packet of a flow decides as DRILL's would, the others follow it.
    DrillPerFlow(Looks),
    /// Each packet to the shortest queue of all, known in steps of so many bytes.
    Shortest {
        /// Bytes, 1 at least.
        quantum: u64,
    },
    /// CONGA: each flowlet by the least congested path, as far as leaves tell each other. Above the leaves: by hash.
    Conga(CongaSettings),
    /// Each flowlet by any next hop.
    LetFlow {
        /// The pause that ends a flowlet.
        gap: Span,
        /// Places in each switch's table.
        places: u32,
    },
    /// Presto: hosts send cells of 64 KB by the paths in turn.
    Presto,
    /// PLB or FlowBender: by hash of a label that hosts change where a path is congested. Asks for ECN.
    Label(LabelSettings),
    /// REPS: each packet by the hash of an entropy; those that came through unmarked are used again. Asks for ECN.
    Reps,
}

impl Scheme {
    /// Its name in tables and files.
    pub fn name(&self) -> String {
        match self {
            Self::Ecmp => "ecmp".into(),
            Self::Wcmp => "wcmp".into(),
            Self::Random => "random".into(),
            Self::RoundRobin => "rr".into(),
            Self::Drill(looks) => drill(*looks),
            Self::DrillPerFlow(looks) => format!("{}-per-flow", drill(*looks)),
            Self::Shortest { quantum: 1 } => "jsq".into(),
            Self::Shortest { quantum } => format!("adaptive({quantum})"),
            Self::Conga(_) => "conga".into(),
            Self::LetFlow { .. } => "letflow".into(),
            Self::Presto => "presto".into(),
            Self::Label(settings) if *settings == LabelSettings::FLOW_BENDER => "flowbender".into(),
            Self::Label(_) => "plb".into(),
            Self::Reps => "reps".into(),
        }
    }

    /// Bytes that the tables of a network's switches would take, or DRILL's symmetric components: what is worth to be known before a run.
    pub fn memory(&self, topology: &Topology) -> u64 {
        let is_switch = |node: &Node| !topology.is_host(*node);
        let switches = topology.nodes().filter(is_switch).count() as u64;
        match self {
            Self::Drill(_) => Symmetry::memory(topology),
            Self::DrillPerFlow(_) => switches * DrillPerFlow::memory(DRILL_PLACES),
            Self::LetFlow { places, .. } => switches * Flowlets::memory(*places),
            Self::Conga(settings) => {
                let uplinks: Vec<usize> = topology.leaves().iter().map(|leaf| uplinks(topology, *leaf)).collect();
                let all = uplinks.iter().sum();
                uplinks.iter().map(|one| Conga::memory(*settings, uplinks.len(), *one, all)).sum()
            }
            _ => 0,
        }
    }
}

/// How many links a leaf has to other switches.
pub fn uplinks(topology: &Topology, leaf: Node) -> usize {
    topology.ports(leaf).iter().filter(|link| !topology.is_host(topology.far_end(**link, leaf))).count()
}

fn drill(looks: Looks) -> String {
    let rule = match looks.rule() {
        Rule::Drawn => "",
        Rule::Remembered => "-remembered-first",
        Rule::Replacement => "-replacement",
    };
    format!("drill({},{}){rule}", looks.d(), looks.m())
}
