//! Ways out by uplinks, on the real kernel, in a network namespace of the test's own.
#![allow(clippy::disallowed_methods, reason = "real routes on the real kernel")]

mod namespace;

use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use weirgate_linux::netns::Netns;
use weirgate_linux::ways::{Way, Ways, WaysError, devices, flags, undo};

use namespace::{in_own_namespace, ip};

const WAYS: Ways = Ways { table: 700, priority: 800, mask: 0x7f00_0000 };

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Two uplinks with the same network, each with a gateway, and a network behind none of them.
fn on_two_uplinks(test: impl FnOnce([u32; 2]) + Send) {
    in_own_namespace(|| {
        for (device, host) in [("up0", 2), ("up1", 3)] {
            ip(&format!("link add {device} type veth peer name {device}-far"));
            ip(&format!("link set {device} addrgenmode none up"));
            ip(&format!("link set {device}-far up"));
            ip(&format!("addr add 192.168.1.{host}/24 dev {device}"));
            ip(&format!("addr add 2001:db8:{host}::{host}/64 dev {device} nodad"));
        }
        ip("link add lan type veth peer name lan-far");
        ip("addr add 10.7.0.1/24 dev lan");
        ip("link set lan up");
        ip("route add default via 192.168.1.1 dev up0");
        ip("-6 route add default via 2001:db8:3::1 dev up1");
        let numbers = ["up0", "up1"].map(|name| devices(&[(name, Vec::new())]).unwrap()[0].clone().unwrap().interface);
        test(numbers);
    });
}

fn ways([up0, up1]: [u32; 2]) -> Vec<Way> {
    let way = |place, interface, gateway: Option<&str>, is_v4| Way {
        place,
        mark: (place + 1) << 24,
        interface,
        is_v4,
        gateway: gateway.map(address),
    };
    vec![
        way(0, up0, Some("192.168.1.1"), true),
        way(1, up1, Some("192.168.1.1"), true),
        way(0, up0, None, false),
        way(1, up1, Some("fe80::1"), false),
    ]
}

/// Where a packet with a mark goes, as the kernel says.
fn route(to: &str, mark: u32) -> String {
    let output = Command::new("ip").args(["route", "get", to, "mark", &mark.to_string()]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).replace('\n', " ")
}

/// What `ip` lists.
fn listed(what: &str) -> String {
    let output = Command::new("ip").args(what.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {what}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// All rules and routes.
fn all() -> [String; 4] {
    ["-4 rule", "-6 rule", "-4 route show table all", "-6 route show table all"].map(listed)
}

#[test]
fn a_mark_leads_to_its_uplink_and_to_nowhere_else() {
    on_two_uplinks(|numbers| {
        let before = all();
        WAYS.apply(&ways(numbers)).unwrap();
        for (to, mark, wanted) in [
            ("198.51.100.1", 0, "via 192.168.1.1 dev up0"),
            ("198.51.100.1", 1 << 24, "via 192.168.1.1 dev up0"),
            ("198.51.100.1", 2 << 24, "via 192.168.1.1 dev up1"),
            ("198.51.100.1", 2 << 24 | 0x8000_ffff, "via 192.168.1.1 dev up1"),
            ("198.51.100.1", 3 << 24, "dev up0"),
            ("10.7.0.9", 2 << 24, "dev lan"),
            ("2001:db8:9::1", 0, "via 2001:db8:3::1 dev up1"),
            ("2001:db8:9::1", 1 << 24, "dev up0"),
            ("2001:db8:9::1", 2 << 24, "via fe80::1 dev up1"),
        ] {
            let found = route(to, mark);
            assert!(found.contains(wanted), "{to} with mark {mark:#x}: {found}");
        }
        let made = all();
        WAYS.apply(&ways(numbers)).unwrap();
        let again = all();
        assert_eq!(made, again, "what is right stays");
        // Without a default route of its own the host goes on by an uplink.
        ip("route del default");
        assert!(route("198.51.100.1", 0).contains("via 192.168.1.1 dev up0"));
        WAYS.apply(&ways(numbers)[1..2]).unwrap();
        assert!(route("198.51.100.1", 0).contains("via 192.168.1.1 dev up1"));
        assert!(!listed("-6 rule").contains("800"));
        ip("route add default via 192.168.1.1 dev up0");
        assert!(undo(&Netns::current().unwrap(), 700, 800).unwrap() > 0);
        assert_eq!(undo(&Netns::current().unwrap(), 700, 800).unwrap(), 0);
        assert_eq!(before, all());
    });
}

#[test]
fn what_others_keep_there_is_refused_and_stays() {
    on_two_uplinks(|numbers| {
        ip("rule add fwmark 5 table 999 priority 803");
        assert!(matches!(WAYS.apply(&ways(numbers)), Err(WaysError::PriorityInUse(803))));
        undo(&Netns::current().unwrap(), 700, 800).unwrap();
        assert!(listed("-4 rule").contains("803"));
        ip("rule del priority 803");
        ip("route add 203.0.113.0/24 dev up0 table 702");
        assert!(matches!(WAYS.apply(&ways(numbers)), Err(WaysError::TableInUse(702))));
        undo(&Netns::current().unwrap(), 700, 800).unwrap();
        assert!(listed("-4 route show table all").contains("203.0.113.0/24"));
    });
}

#[test]
fn what_there_is_of_a_device_is_found() {
    on_two_uplinks(|numbers| {
        let far = vec![address("198.51.100.1"), address("2001:db8:9::1")];
        let found = devices(&[("up0", far.clone()), ("up1", far.clone()), ("none", far)]).unwrap();
        let [Some(up0), Some(up1), None] = &found[..] else { panic!("{found:?}") };
        assert_eq!([up0.interface, up1.interface], numbers);
        assert!(up0.is_up && !up0.is_point_to_point);
        assert_eq!(up0.addresses, [address("192.168.1.2"), address("2001:db8:2::2")]);
        assert!(up0.networks.contains(&"192.168.1.0/24".parse().unwrap()), "{:?}", up0.networks);
        assert_eq!(up0.ways, [Some(Some(address("192.168.1.1"))), None]);
        assert_eq!(up1.ways, [None, Some(Some(address("2001:db8:3::1")))]);
        // Our own routes are no sign of a way.
        WAYS.apply(&ways(numbers)).unwrap();
        ip("route del default");
        let found = devices(&[("up0", vec![address("198.51.100.1")])]).unwrap();
        assert_eq!(found[0].as_ref().unwrap().ways, [None]);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let seen = flags(&socket, "up0").unwrap();
        assert!(seen.is_up && seen.interface == numbers[0]);
        ip("link set up0-far down");
        // The kernel tells of carriers once a second at most, and other tests have changed theirs (net/core/link_watch.c).
        let patience = Instant::now() + Duration::from_secs(10);
        while flags(&socket, "up0").unwrap().is_up {
            assert!(Instant::now() < patience, "the loss of the carrier is not seen");
            sleep(Duration::from_millis(10));
        }
        assert_eq!(flags(&socket, "none"), None);
        assert_eq!(flags(&socket, "a-name-that-is-far-too-long"), None);
    });
}
