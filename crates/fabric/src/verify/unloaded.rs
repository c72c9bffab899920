//! A flow alone takes as long as it must, to the picosecond, in every kind of network.

use weirgate_balance::topology::{FatTree, Kind, LinkSettings, Node, Pods, Topology, Vl2};
use weirgate_units::{BitRate, Duration};

use super::scene::{BY_PACKET, built, leaf_spine, link, micros, simulation, start};
use super::{Case, Finding, Form};
use crate::{Scheme, Settings, Span, TcpSettings, Time, ideal, shortest_path};

/// With their names, and whether links of the core, where there are several ways, are at least as fast as those of hosts: then packets that
/// take several ways are as fast as those that take one.
fn networks(form: Form) -> Vec<(&'static str, Topology, bool)> {
    let [few, many] = [form.pick(2, 4), form.pick(4, 8)];
    let pods = Pods {
        pods: 3,
        tors: few,
        planes: few,
        spines: few,
        hosts: few,
        edge: link(10),
        fabric: link(40),
        spine: link(40),
    };
    let vl2 = Vl2 { tors: many, aggregations: many, intermediates: few, hosts: few, edge: link(1), core: link(10) };
    vec![
        ("leaf-spine", leaf_spine(many, many, many, 10, 40), true),
        ("leaf-spine with a slow core", leaf_spine(few, 3, few, 40, 10), false),
        ("VL2", built(vl2.build()), true),
        ("pods", built(pods.build()), true),
        ("fat tree", built(FatTree { k: many, link: link(10) }.build()), true),
        ("graph", graph(), true),
    ]
}

/// A network of no regular kind: hardly two links are alike, a host is at a switch that packets of others pass, there are two links between
/// the same two switches, and a detour that takes less time by more links. The slowest link on the way from the first host is the last
/// one's own to the last, and one between switches to the second.
fn graph() -> Topology {
    let mut topology = Topology::new();
    let [a, b, c, d, e, f] = [0, 1, 0, 0, 2, 2].map(|stage| topology.add(Kind::Switch { stage }));
    let hosts = [a, d, b, c].map(|switch| (topology.add(Kind::Host), switch));
    let mut link = |a, b, mbits: u64, nanos| {
        let rate = BitRate::from_bits_per_sec(mbits * 1_000_000);
        built(topology.link(a, b, LinkSettings { rate, delay: Duration::from_nanos(nanos) }));
    };
    for ((host, switch), (mbits, nanos)) in
        hosts.into_iter().zip([(10_000, 70), (5_000, 1_300), (1_000, 5), (7_300, 420)])
    {
        link(host, switch, mbits, nanos);
    }
    // From a to c, and the detour.
    link(a, b, 40_000, 3_000);
    link(a, b, 40_000, 3_000);
    link(b, c, 25_000, 701);
    link(a, e, 100_000, 1);
    link(e, f, 100_000, 0);
    link(f, c, 100_000, 1);
    // To d.
    link(b, d, 2_500, 20_000);
    topology
}

pub(super) fn times(seed: u64, form: Form) -> Finding {
    let mut cases = Vec::new();
    for (name, topology, has_fast_core) in networks(form) {
        for bytes in [1, 1_460, 1_461, 14_600, 50_000, 100_001] {
            cases.extend(flows(seed, name, &topology, Scheme::Ecmp, bytes));
        }
        for scheme in BY_PACKET.into_iter().filter(|_| has_fast_core) {
            cases.extend(flows(seed, name, &topology, scheme, 100 * 1_460));
        }
    }
    Finding::misses(cases)
}

/// The times that a flow takes, and should take, from the first host to the last, and to the second.
fn flows(seed: u64, network: &str, topology: &Topology, scheme: Scheme, bytes: u64) -> [Case; 2] {
    let hosts: Vec<Node> = topology.nodes().filter(|node| topology.is_host(*node)).collect();
    let tcp = TcpSettings { initial_window: 1_000, host_queue: Span::from_micros(1_000_000), ..TcpSettings::default() };
    [hosts.len() - 1, 1].map(|to| {
        let starts = vec![(Time::from_picos(7), start(0, to as u32, bytes))];
        let mut simulation = simulation(topology.clone(), Settings { tcp, ..Settings::new(seed, scheme) }, starts);
        simulation.run_until(micros(1_000_000));
        let took = simulation.measures().finished.first().map_or(f64::NAN, |flow| flow.time.as_picos() as f64);
        let path = shortest_path(topology, hosts[0], hosts[to]).expect("there is a way");
        let must = ideal(&path, &tcp, bytes).as_picos() as f64;
        Case::new(format!("{network}, {}, {bytes} B to host {to}: ps", scheme.name()), took, must, 0.0)
    })
}
