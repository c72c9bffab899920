use weirgate_balance::Looks;
use weirgate_balance::topology::{FatTree, Node, Pods, Topology, Vl2};
use weirgate_fabric::{Scheme, Settings, Span, TcpSettings, Time, ideal, shortest_path};

use crate::common::{leaf_spine, link, run, start};

fn topologies() -> Vec<Topology> {
    let pods =
        Pods { pods: 3, tors: 2, planes: 2, spines: 2, hosts: 2, edge: link(10), fabric: link(40), spine: link(40) };
    let vl2 = Vl2 { tors: 4, aggregations: 4, intermediates: 2, hosts: 2, edge: link(1), core: link(10) };
    vec![
        leaf_spine(4, 4, 4, 10, 40),
        leaf_spine(2, 3, 2, 40, 10),
        vl2.build().unwrap(),
        pods.build().unwrap(),
        FatTree { k: 4, link: link(10) }.build().unwrap(),
    ]
}

/// The times that a flow takes, and should take, from the first host to the last, and to the second.
fn times(topology: &Topology, scheme: Scheme, bytes: u64) -> [(Span, Span); 2] {
    let hosts: Vec<Node> = topology.nodes().filter(|node| topology.is_host(*node)).collect();
    let tcp = TcpSettings { initial_window: 1_000, host_queue: Span::from_micros(1_000_000), ..TcpSettings::default() };
    let settings = Settings { tcp, ..Settings::new(1, scheme) };
    [hosts.len() - 1, 1].map(|to| {
        let starts = vec![(Time::from_picos(7), start(0, to as u32, bytes))];
        let simulation = run(topology.clone(), settings.clone(), starts);
        let path = shortest_path(topology, hosts[0], hosts[to]).unwrap();
        (simulation.measures().finished[0].time, ideal(&path, &tcp, bytes))
    })
}

#[test]
fn a_flow_alone_takes_as_long_as_it_must() {
    for (number, topology) in topologies().iter().enumerate() {
        for bytes in [1, 1_460, 1_461, 14_600, 50_000, 100_001] {
            for (took, must) in times(topology, Scheme::Ecmp, bytes) {
                assert_eq!(took, must, "topology {number}, {bytes} bytes");
            }
        }
    }
}

/// Where links of the core are not slower than those of hosts, packets that take several ways are not faster.
#[test]
fn so_does_one_whose_packets_take_several_ways() {
    let schemes = [Scheme::Random, Scheme::RoundRobin, Scheme::Presto, Scheme::Drill(Looks::RECOMMENDED), Scheme::Reps];
    for (number, topology) in topologies().iter().enumerate().filter(|(number, _)| *number != 1) {
        for scheme in schemes {
            for (took, must) in times(topology, scheme, 100 * 1_460) {
                assert_eq!(took, must, "topology {number}, {}", scheme.name());
            }
        }
    }
}
