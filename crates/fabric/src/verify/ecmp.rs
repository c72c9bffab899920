//! ECMP's flows are balls in bins: of `n` flows over `k` links, a link has `j` with the chance of a binomial distribution, at each stage.

use weirgate_balance::topology::{FatTree, Topology};

use super::scene::{built, leaf_spine, link, micros, packets, simulation, start};
use super::{Case, Finding, Form, choose};
use crate::{Hop, Scheme, Settings, Start};

/// Flows at once, and the links that they may take: those up from one leaf, and those from one pod up to the core, each of which is
/// chosen in two steps. Would two switches hash alike, few of the latter would be chosen.
const FLOWS: u32 = 32;
const LINKS: u32 = 16;

pub(super) fn collisions(seed: u64, form: Form) -> Finding {
    // 10,000 rounds are 160,000 links: 0.005 are four standard deviations of a share of a half.
    let (rounds, tolerance) = form.pick((300, 0.03), (10_000, 0.005));
    let fat_tree = built(FatTree { k: 8, link: link(10) }.build());
    let networks = [("from a leaf", leaf_spine(16, 2, 16, 10, 40), Hop::Up(0)), ("to the core", fat_tree, Hop::Up(1))];
    let mut cases = Vec::new();
    for (name, topology, hop) in networks {
        let counts = counts(seed, topology, hop, rounds);
        for (flows, links) in counts.into_iter().enumerate().take(7) {
            let measured = links as f64 / f64::from(rounds * LINKS);
            let name = format!("{name}: share of links with {flows} of {FLOWS} flows");
            cases.push(Case::new(name, measured, binomial(flows as u32), tolerance));
        }
    }
    Finding::difference(tolerance, cases)
}

/// By number of flows: links that had so many.
fn counts(seed: u64, topology: Topology, hop: Hop, rounds: u32) -> Vec<u64> {
    // 16 hosts send 2 flows of one packet each, to another leaf, or another pod.
    let flow = |flow: u32| -> Start { start(flow % 16, 16 + flow % 16, 100) };
    let round = |round: u32| (0..FLOWS).map(move |at| (micros(u64::from(round) * 100), flow(at)));
    let starts = (0..rounds).flat_map(round).collect();
    let mut simulation = simulation(topology, Settings::new(seed, Scheme::Ecmp), starts);
    let mut counts = vec![0; FLOWS as usize + 1];
    for round in 0..rounds {
        simulation.begin_measures(None);
        simulation.run_until(micros(u64::from(round) * 100 + 99));
        for flows in packets(&simulation, hop, LINKS as usize) {
            counts[flows as usize] += 1;
        }
    }
    counts
}

fn binomial(flows: u32) -> f64 {
    let chance = 1.0 / f64::from(LINKS);
    choose(FLOWS, flows) * chance.powi(flows as i32) * (1.0 - chance).powi((FLOWS - flows) as i32)
}
