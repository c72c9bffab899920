//! Congestion control by route, between two namespaces joined by a veth pair.
#![allow(clippy::disallowed_methods, reason = "real sockets on the real kernel")]

mod namespace;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::mpsc;

use rustix::fd::OwnedFd;
use rustix::net::sockopt::tcp_congestion;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use weirgate_linux::netns::Netns;
use weirgate_linux::route_cc::{RouteCc, RouteCcError, Skipped, undo};
use weirgate_sockets::sample::CcName;
use weirgate_tune::holdout::Holdout;
use weirgate_tune::policy::Policy;
use weirgate_units::{Bytes, Prefix};

use namespace::{in_own_namespace, ip};

/// A server's namespace, in which the test runs, and a client's.
struct Site {
    server: Netns,
    client: Netns,
    /// What new connections get without us, and something else.
    default: String,
    other: &'static str,
}

/// The client is 192.0.2.2 on the link, and 198.51.100.7 and 2001:db8:7::7 behind it.
fn between_namespaces(test: impl FnOnce(&Site) + Send) {
    in_own_namespace(|| {
        let (there, here) = mpsc::channel();
        let (done, finished) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                in_own_namespace(move || {
                    there.send((Netns::current().unwrap(), rustix::thread::gettid())).unwrap();
                    // The namespace lives as long as the thread and what the test holds of it.
                    let _ = finished.recv();
                });
            });
            let Ok((client, thread)) = here.recv() else { return };
            let thread = thread.as_raw_nonzero();
            ip(&format!("link add wg0 type veth peer name wg1 netns {thread}"));
            ip("addr add 192.0.2.1/24 dev wg0");
            ip("addr add 2001:db8::1/64 dev wg0 nodad");
            // A link-local address of the kernel's own would be tentative for a second, and neighbours wait for it.
            ip("link set wg0 addrgenmode none up");
            ip("addr add fe80::1/64 dev wg0 nodad");
            client
                .within(|| {
                    ip("addr add 192.0.2.2/24 dev wg1");
                    ip("addr add 2001:db8::2/64 dev wg1 nodad");
                    ip("addr add 198.51.100.7/32 dev lo");
                    ip("addr add 2001:db8:7::7/128 dev lo nodad");
                    ip("link set wg1 addrgenmode none up");
                    ip("addr add fe80::2/64 dev wg1 nodad");
                })
                .unwrap();
            ip("route add 198.51.100.0/24 via 192.0.2.2");
            ip("route add 2001:db8:7::/48 via 2001:db8::2 mtu 1400");
            let default = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
            let default = default.trim().to_owned();
            let other = if default == "reno" { "cubic" } else { "reno" };
            let site = Site { server: Netns::current().unwrap(), client, default, other };
            test(&site);
            drop(done);
        });
    });
}

impl Site {
    /// The congestion control that a connection accepted from `from` begins with.
    fn accepted(&self, from: &str) -> String {
        let from: IpAddr = from.parse().unwrap();
        let to = if from.is_ipv4() { "192.0.2.1:0" } else { "[2001:db8::1]:0" };
        let listener = TcpListener::bind(to).unwrap();
        let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let client: OwnedFd = self
            .client
            .within(|| {
                let client = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
                bind(&client, &SocketAddr::new(from, 0)).unwrap();
                connect(&client, &listener.local_addr().unwrap()).unwrap();
                client
            })
            .unwrap();
        let (server, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), from);
        drop(client);
        tcp_congestion(&server).unwrap()
    }
}

fn policy(networks: &[(&str, &str)]) -> Policy {
    Policy {
        version: 1,
        networks: networks.iter().map(|(p, cc)| (p.parse().unwrap(), CcName::new(cc).unwrap())).collect(),
        holdout: Holdout::default(),
        default_cc: None,
        switch_after: Bytes::ZERO,
        stay: true,
        cap_start: true,
    }
}

fn said(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const V4: &str = "198.51.100.0/24";
const V6: &str = "2001:db8:7::/56";

#[test]
fn accepted_connections_of_a_selected_network_begin_with_its_choice() {
    between_namespaces(|site| {
        let routes = RouteCc::default();
        let chosen = policy(&[(V4, site.other), (V6, site.other)]);
        let applied = routes.apply(&chosen, &site.server).unwrap();
        assert_eq!((applied.set, applied.unchanged, applied.removed, &applied.skipped[..]), (2, 0, 0, &[][..]));
        for (from, expected) in [
            ("198.51.100.7", site.other),
            ("192.0.2.2", &site.default),
            ("2001:db8:7::7", site.other),
            ("2001:db8::2", &site.default),
        ] {
            assert_eq!(site.accepted(from), expected, "from {from}");
        }
        // The path is the one that the admin's route gives, its other metrics too.
        assert!(said("route get 198.51.100.7").contains("via 192.0.2.2 dev wg0"));
        let v6 = said("-6 route get 2001:db8:7::7");
        assert!(v6.contains("via 2001:db8::2 dev wg0") && v6.contains("mtu 1400"), "{v6}");

        let again = routes.apply(&chosen, &site.server).unwrap();
        assert_eq!((again.set, again.unchanged, again.removed), (0, 2, 0));
        let fewer = routes.apply(&policy(&[(V6, site.other)]), &site.server).unwrap();
        assert_eq!((fewer.set, fewer.unchanged, fewer.removed), (0, 1, 1));
        assert_eq!(site.accepted("198.51.100.7"), site.default);
        assert_eq!(site.accepted("2001:db8:7::7"), site.other);

        assert_eq!(undo(&site.server, routes.table, routes.priority).unwrap(), 3, "two rules, one route");
        assert_eq!(site.accepted("2001:db8:7::7"), site.default);
        assert!(!said("rule").contains("32700") && !said("-6 rule").contains("32700"));
        assert_eq!(said("route show table 30567"), "");
        assert_eq!(undo(&site.server, routes.table, routes.priority).unwrap(), 0, "undone is undone");
    });
}

#[test]
fn a_route_that_moves_is_followed_and_an_empty_policy_leaves_nothing() {
    between_namespaces(|site| {
        let routes = RouteCc::default();
        let chosen = policy(&[(V4, site.other)]);
        routes.apply(&chosen, &site.server).unwrap();
        ip("route replace 198.51.100.0/24 via 192.0.2.3");
        let applied = routes.apply(&chosen, &site.server).unwrap();
        assert_eq!((applied.set, applied.unchanged), (1, 0));
        assert!(said("route get 198.51.100.7").contains("via 192.0.2.3"));
        ip("route del 198.51.100.0/24");
        let applied = routes.apply(&chosen, &site.server).unwrap();
        assert_eq!(applied.skipped, [(V4.parse::<Prefix>().unwrap(), Skipped::NoRoute)]);
        assert_eq!((applied.set, applied.unchanged, applied.removed), (0, 0, 1), "its old route is gone");
        routes.apply(&policy(&[]), &site.server).unwrap();
        assert!(!said("rule").contains("32700"));
    });
}

#[test]
fn the_admin_wins() {
    between_namespaces(|site| {
        let prefix: Prefix = V4.parse().unwrap();
        let routes = RouteCc::default();
        let chosen = policy(&[(V4, site.other)]);
        let skipped = || routes.apply(&chosen, &site.server).unwrap().skipped;

        ip("route add 198.51.100.128/25 via 192.0.2.3");
        assert_eq!(skipped(), [(prefix, Skipped::Split("198.51.100.128/25".parse().unwrap()))]);
        ip("route del 198.51.100.128/25");

        ip("route replace 198.51.100.0/24 via 192.0.2.2 congctl reno");
        assert_eq!(skipped(), [(prefix, Skipped::AdminChose("reno".into()))]);
        ip("route replace 198.51.100.0/24 via 192.0.2.2");

        let unknown = routes.apply(&policy(&[(V4, "nosuchcc")]), &site.server).unwrap().skipped;
        assert!(matches!(&unknown[..], [(_, Skipped::Refused(_))]), "{unknown:?}");

        ip("rule add priority 32700 lookup main");
        let error = routes.apply(&chosen, &site.server).unwrap_err();
        assert!(matches!(error, RouteCcError::PriorityInUse(32_700)), "{error}");
        assert_eq!(undo(&site.server, routes.table, routes.priority).unwrap(), 0);
        assert!(said("rule").contains("32700"), "not ours to remove");
        ip("rule del priority 32700");

        ip("route add 203.0.113.0/24 via 192.0.2.2 table 30567");
        let error = routes.apply(&chosen, &site.server).unwrap_err();
        assert!(matches!(error, RouteCcError::TableInUse(30_567)), "{error}");
        assert_eq!(undo(&site.server, routes.table, routes.priority).unwrap(), 0);
        assert!(said("route show table 30567").contains("203.0.113.0/24"));
    });
}
