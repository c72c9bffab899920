//! Routes by an interface, on the real kernel, in a network namespace of the test's own.
#![allow(clippy::disallowed_methods, reason = "real routes on the real kernel")]

mod namespace;

use std::net::IpAddr;

use weirgate_linux::interface::Interface;
use weirgate_linux::netns::Netns;
use weirgate_linux::route::is_by;

use namespace::{in_own_namespace, ip};

#[test]
fn an_interface_without_a_route_reaches_its_own_network_only() {
    in_own_namespace(|| {
        for (device, n) in [("up0", 1), ("up1", 2), ("lan0", 3)] {
            ip(&format!("link add {device} type veth peer name {device}-far"));
            ip(&format!("link set {device} addrgenmode none up"));
            ip(&format!("link set {device}-far up"));
            ip(&format!("addr add 10.0.{n}.2/24 dev {device}"));
            ip(&format!("addr add 2001:db8:{n}::2/64 dev {device} nodad"));
        }
        // The one has the default route, the other a worse one, or one in a table of its own for what leaves from its address.
        ip("route add default via 10.0.1.1 dev up0");
        ip("route add default via 10.0.2.1 dev up1 table 7");
        ip("rule add from 10.0.2.2 table 7");
        ip("-6 route add default via 2001:db8:1::1 dev up0");
        ip("-6 route add default via 2001:db8:2::1 dev up1 metric 2048");
        ip("-6 route add 2001:db8:fffe::/48 via 2001:db8:2::1 dev up1 table 7");
        ip("-6 rule add from 2001:db8:2::2 table 7");
        let all = Interface::all(&Netns::current().unwrap()).unwrap();
        let named = |name: &str| all.iter().find(|interface| interface.name == name).unwrap();
        let reached = |to: &str| {
            let to: IpAddr = to.parse().unwrap();
            ["up0", "up1", "lan0"].map(|name| {
                let interface = named(name);
                assert!(interface.has_neighbours);
                let from = interface.addresses.iter().find(|from| from.is_ipv6() == to.is_ipv6()).unwrap();
                is_by(interface.index, *from, to).unwrap()
            })
        };
        for far in ["198.51.100.1", "2001:db8:ffff::1", "2001:db8:fffe::1"] {
            assert_eq!(reached(far), [true, true, false], "{far}");
        }
        for near in ["10.0.3.77", "2001:db8:3::77"] {
            assert_eq!(reached(near), [true, true, true], "{near}");
        }
        assert!(!named("lo").has_neighbours);
    });
}
