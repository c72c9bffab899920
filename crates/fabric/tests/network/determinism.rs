use weirgate_balance::topology::Link;
use weirgate_balance::{CongaSettings, Looks};
use weirgate_fabric::verify::crowd;
use weirgate_fabric::{Change, ControlKind, Listed, Scheme, Settings, Simulation, Span, TcpSettings};

use crate::common::{leaf_spine, micros, start};

#[test]
fn the_same_seed_gives_the_same_events() {
    let digest = |seed| crowd(Settings::new(seed, Scheme::Drill(Looks::RECOMMENDED))).digest();
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
    // On every machine: whoever changes what happens changes this with it.
    assert_eq!(format!("{:016x}", digest(1)), "a1581f7c5675c11b");
}

#[test]
fn flows_that_drill_places_once_give_the_same_events() {
    let digest = crowd(Settings::new(1, Scheme::DrillPerFlow(Looks::RECOMMENDED))).digest();
    assert_eq!(format!("{digest:016x}"), "729c17fa7edb3b11");
}

/// The same of congestion control, of balancers with tables, estimates and entropies, and of what a failure changes: one of each kind.
#[test]
fn other_parts_give_the_same_events() {
    let drill = Scheme::Drill(Looks::RECOMMENDED);
    let control = |control| TcpSettings { control, ..TcpSettings::default() };
    let crowded = |scheme, tcp| crowd(Settings { mark: Some(20_000), tcp, ..Settings::new(1, scheme) }).digest();
    let of = |scheme| crowded(scheme, TcpSettings::default());
    let digests = [
        ("cubic", crowded(drill, control(ControlKind::Cubic))),
        ("dctcp", crowded(drill, control(ControlKind::Dctcp))),
        ("conga", of(Scheme::Conga(CongaSettings::default()))),
        ("presto", of(Scheme::Presto)),
        ("reps", of(Scheme::Reps)),
        ("a failure", failing()),
    ];
    let digests = digests.map(|(what, digest)| format!("{what} {digest:016x}"));
    assert_eq!(
        digests,
        [
            "cubic 61459eba55bf1603",
            "dctcp 885d4d1bb1bae2ca",
            "conga 2a9ea5fde11ac813",
            "presto 0bae88ae2040eceb",
            "reps ea0838b4a4f940dc",
            "a failure 9db84e505419d87c"
        ]
    );
}

/// One of three spines is lost to a leaf for 2 ms; routing learns of it, and of its return, after 200 us.
fn failing() -> u64 {
    let topology = leaf_spine(3, 3, 2, 10, 10);
    let leaf = topology.leaves()[0];
    let is_uplink = |link: &&Link| !topology.is_host(topology.far_end(**link, leaf));
    let link = *topology.ports(leaf).iter().find(is_uplink).unwrap();
    let flows = (0..6).map(|host| (micros(0), start(host, (host + 2) % 6, 3_000_000))).collect();
    let changes = vec![Change { at: micros(500), link, is_up: false }, Change { at: micros(2_500), link, is_up: true }];
    let settings =
        Settings { routing_delay: Span::from_micros(200), ..Settings::new(1, Scheme::Drill(Looks::RECOMMENDED)) };
    let mut simulation = Simulation::new(topology, settings, Box::new(Listed::new(flows)), changes).unwrap();
    assert!(!simulation.run_until(micros(10_000_000)), "it does not end");
    assert!(simulation.measures().no_route > 0, "nothing has failed");
    simulation.digest()
}
