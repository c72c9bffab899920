//! What is no port, and what should be known before.

use weirgate_linux::interface::{Interface, InterfaceError};

use crate::ground::{Ground, by_packet, run};

#[test]
fn an_interface_that_is_not_there_or_somebody_elses_is_refused() {
    let Some(ground) = Ground::new() else { return };
    match by_packet(&ground.middle, "va0").err() {
        Some(InterfaceError::Missing { name, mut known }) => {
            known.sort();
            assert_eq!((name.as_str(), known), ("va0", vec!["lo".into(), "va".into(), "vb".into()]));
        }
        other => panic!("{other:?}"),
    }
    let name = &ground.name;
    run(&format!("ip -n {name}s link add br0 type bridge; ip -n {name}s link set va master br0"));
    match by_packet(&ground.middle, "va").err() {
        Some(InterfaceError::Member { name, of }) => assert_eq!((name.as_str(), of.as_str()), ("va", "br0")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn addresses_and_an_interface_that_is_down_are_told() {
    let Some(ground) = Ground::new() else { return };
    let look = || Interface::usable(&ground.middle, "va").unwrap();
    assert_eq!((look().warning(), look().mtu, look().up), (None, 1_500, true));
    let name = &ground.name;
    run(&format!("ip -n {name}s addr add 192.0.2.7/24 dev va"));
    assert_eq!(look().addresses, ["192.0.2.7".parse::<std::net::IpAddr>().unwrap()]);
    assert!(look().warning().unwrap().contains("192.0.2.7"));
    run(&format!("ip -n {name}s addr flush dev va; ip -n {name}s link set va down"));
    assert!(look().warning().unwrap().contains("is down"), "{:?}", look());
}
