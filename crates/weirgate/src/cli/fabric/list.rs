//! `weirgate fabric list`: what a scenario can name.

use weirgate_fabric::PUBLISHED;

use crate::cli::Failure;
use crate::cli::output::Output;

/// What `balance.scheme` can be.
const SCHEMES: [(&str, &str); 14] = [
    ("ecmp", "each flow to the port that its hash names"),
    ("wcmp", "the same, weighted by what the paths behind each port can carry"),
    ("random", "each packet to any port"),
    ("rr", "each packet to the port after the last one's"),
    (
        "drill",
        "DRILL(d,m): each packet to the shortest queue of d drawn and m remembered ones, within symmetric components",
    ),
    ("drill-per-flow", "the first packet of a flow decides as DRILL's would, the others follow it"),
    ("jsq", "each packet to the shortest queue of all"),
    ("adaptive", "the same, with lengths known in steps of `quantum`"),
    ("conga", "CONGA: each flowlet by the path that is congested least, as leaves tell each other"),
    ("letflow", "LetFlow: each flowlet to any port"),
    ("presto", "Presto: cells of 64 KB by the paths in turn; to go with `tcp.shim`"),
    ("plb", "PLB: hosts give a flow another hash when its path is congested; needs `switch.mark`"),
    ("flowbender", "FlowBender: the same, by its own thresholds; needs `switch.mark`"),
    (
        "reps",
        "REPS: each packet by a hash of its own, those that came through unmarked used again; needs `switch.mark`",
    ),
];

/// What `topology.kind` can be.
const TOPOLOGIES: [(&str, &str); 5] = [
    ("leaf-spine", "each leaf linked to each spine"),
    ("vl2", "top-of-rack switches, each linked to two aggregation switches, and these to all intermediate ones"),
    ("pods", "pods of top-of-rack and fabric switches, and planes of spines above them, as Facebook's"),
    ("fat-tree", "three stages of switches with k ports"),
    ("graph", "any network, from a file"),
];

/// What `workload.kind` can be.
const WORKLOADS: [(&str, &str); 8] = [
    ("poisson", "flows between random hosts of different leaves at random times, at a load; [incast] beside them"),
    ("stride", "host i sends to host i + stride; elephants, with mice beside them"),
    ("random", "each host sends to one of another leaf"),
    ("shuffle", "each host sends to all others, one after the other, in random order"),
    ("permutation", "each host sends to another one, and has one that sends to it"),
    ("ring", "a ring all-reduce of all hosts"),
    ("all-to-all", "each host sends to all others at once"),
    ("trace", "flows from a file"),
];

pub(super) fn list(json: bool, out: &mut Output) -> Result<(), Failure> {
    let sizes = PUBLISHED.map(|(name, text)| (name, of_whom(text)));
    let all = [
        ("balance.scheme", &SCHEMES[..]),
        ("workload.sizes", &sizes),
        ("topology.kind", &TOPOLOGIES),
        ("workload.kind", &WORKLOADS),
    ];
    let mut rows = Vec::new();
    for (key, (name, about)) in all.into_iter().flat_map(|(key, names)| names.iter().map(move |name| (key, *name))) {
        if json {
            out.json(&serde_json::json!({ "key": key, "name": name, "about": about }))?;
        }
        rows.push([key, name, about].map(String::from).to_vec());
    }
    if json { Ok(()) } else { Ok(out.table(&["key", "value", "what it is"], &rows)?) }
}

/// What the head of a distribution says it is.
fn of_whom(text: &str) -> &str {
    let head = text.lines().next().unwrap_or("").trim_start_matches("# Sizes of flows, ");
    head.split_once(", as digitised").map_or(head, |(what, _)| what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::scenario::{KINDS_OF_TOPOLOGY, KINDS_OF_WORKLOAD, SCHEMES as KNOWN};

    #[test]
    fn all_that_a_scenario_can_name_is_listed() {
        assert_eq!(SCHEMES.map(|(name, _)| name), KNOWN);
        assert_eq!(TOPOLOGIES.map(|(name, _)| name), KINDS_OF_TOPOLOGY);
        assert_eq!(WORKLOADS.map(|(name, _)| name), KINDS_OF_WORKLOAD);
        let mut out = Output::memory();
        list(false, &mut out).unwrap();
        let text = out.into_text();
        assert!(
            text.contains("  websearch                web search: Alizadeh et al., \"Data center TCP (DCTCP)\""),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1 + 14 + 6 + 5 + 8);
    }
}
