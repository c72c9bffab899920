//! New connections over two uplinks: those of a router, and those that it forwards for a host behind it. Uplinks are pairs of virtual
//! Ethernet devices to one namespace that is the Internet.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use weirgate_linux::netns::Netns;

use super::ground::{Daemon, PATIENCE, Space, ip, text, until};

/// Beyond both uplinks.
const FAR_V4: &str = "198.51.100.1";
const FAR_V6: &str = "2001:db8:ffff::1";

/// A host, its router with two uplinks, and the Internet.
struct Site {
    host: Space,
    router: Space,
    far: Space,
}

impl Site {
    fn make() -> Option<Self> {
        if Command::new("nft").arg("--version").output().is_err() {
            println!("SKIPPED: it takes nft (Debian's package nftables)");
            return None;
        }
        let site = Self { host: Space::make()?, router: Space::make()?, far: Space::make()? };
        let of = |space: &Space, what: &str| {
            let words: Vec<&str> = ["-n", &space.name].into_iter().chain(what.split(' ')).collect();
            ip(&words);
        };
        let [host, router, far] = [&site.host, &site.router, &site.far];
        let pair = |one: &Space, device: &str, other: &Space, peer: &str| {
            of(one, &format!("link add {device} type veth peer name {peer} netns {}", other.name));
            for (space, device) in [(one, device), (other, peer)] {
                of(space, &format!("link set {device} up"));
            }
        };
        pair(router, "lan", host, "eth0");
        pair(router, "up0", far, "isp0");
        pair(router, "up1", far, "isp1");
        for (space, device, addresses) in [
            (router, "lan", ["10.9.0.1/24", "fd00:9::1/64"]),
            (host, "eth0", ["10.9.0.2/24", "fd00:9::2/64"]),
            (router, "up0", ["192.0.2.2/30", "2001:db8:0:1::2/64"]),
            (far, "isp0", ["192.0.2.1/30", "2001:db8:0:1::1/64"]),
            (router, "up1", ["203.0.113.2/30", "2001:db8:0:2::2/64"]),
            (far, "isp1", ["203.0.113.1/30", "2001:db8:0:2::1/64"]),
            (far, "lo", ["198.51.100.1/32", "2001:db8:ffff::1/128"]),
        ] {
            for address in addresses {
                let nodad = if address.contains("::") { " nodad" } else { "" };
                of(space, &format!("addr add {address} dev {device}{nodad}"));
            }
        }
        of(host, "route add default via 10.9.0.1");
        of(host, "-6 route add default via fd00:9::1");
        for (metric, [v4, v6]) in [(10, ["192.0.2.1", "2001:db8:0:1::1"]), (20, ["203.0.113.1", "2001:db8:0:2::1"])] {
            of(router, &format!("route add default via {v4} metric {metric}"));
            of(router, &format!("-6 route add default via {v6} metric {metric}"));
        }
        let set = |space: &Space, key: &str, value: &str| {
            space.ns.within(|| std::fs::write(format!("/proc/sys/net/{key}"), value).unwrap()).unwrap();
        };
        set(router, "ipv4/ip_forward", "1");
        set(router, "ipv6/conf/all/forwarding", "1");
        // Exact, so that what comes by the second uplink would be dropped.
        set(router, "ipv4/conf/up1/rp_filter", "1");
        Some(site)
    }

    fn daemon(&self, more: &str) -> Daemon {
        self.daemon_of(more, ["", ""])
    }

    /// With keys of each uplink's own.
    fn daemon_of(&self, more: &str, [up0, up1]: [&str; 2]) -> Daemon {
        let targets = format!("targets = [\"{FAR_V4}\", \"{FAR_V6}\"]\n");
        let sections = format!(
            "[steering]\nnamespace = \"{}\"\n{more}\
             [[uplink]]\nname = \"up0\"\nweight = \"2\"\n{targets}{up0}[[uplink]]\nname = \"up1\"\nweight = \"1\"\n{targets}{up1}",
            self.router.name
        );
        let daemon = Daemon::start(&self.router, &sections);
        until("both are up", || rows(&daemon).iter().all(|row| row["state"] == "up" && row["rtt_us"].is_u64()));
        daemon
    }

    /// What comes from `from` arrives at the far end from this address.
    fn seen(&self, from: &Space, to: &str, port: u16) -> (TcpStream, TcpStream, IpAddr) {
        let listener = self.far.ns.within(|| TcpListener::bind((to, port)).unwrap()).unwrap();
        let client = from.ns.within(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        (client, server, peer.ip())
    }

    /// A connection from there whose peer is seen as `peer`, which has had a byte, and its server's end.
    fn reader(&self, from: &Space, peer: &str) -> (TcpStream, TcpStream) {
        let mut others = Vec::new();
        for port in 5_100..5_110 {
            let (client, mut server, seen) = self.seen(from, FAR_V4, port);
            server.write_all(b"x").unwrap();
            (&client).read_exact(&mut [0]).unwrap();
            if seen.to_string() == peer {
                return (client, server);
            }
            others.push((client, server));
        }
        panic!("a third of all goes there");
    }

    /// An uplink takes packets and brings none to the other side.
    fn black_hole(&self, device: &str, is_hole: bool) {
        self.black_hole_of(device, is_hole.then_some("!= arp"));
    }

    /// The same of packets of these protocols alone; `None`: of none any more.
    fn black_hole_of(&self, device: &str, protocols: Option<&str>) {
        let script = protocols.map_or_else(
            || "delete table netdev hole".to_owned(),
            |protocols| {
                format!(
                    "add table netdev hole; add chain netdev hole in {{ type filter hook ingress device {device} priority 0; }}; \
                     add rule netdev hole in meta protocol {protocols} drop"
                )
            },
        );
        let mut nft = Command::new("nft");
        nft.arg(script);
        assert!(self.far.ns.within(|| nft.status().unwrap()).unwrap().success());
    }
}

fn rows(daemon: &Daemon) -> Vec<serde_json::Value> {
    daemon.json("/api/v1/uplinks")["uplinks"].as_array().cloned().unwrap_or_default()
}

fn row(daemon: &Daemon, name: &str) -> serde_json::Value {
    rows(daemon).into_iter().find(|row| row["name"] == name).unwrap()
}

/// How many came from each address.
fn tally(seen: impl IntoIterator<Item = IpAddr>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    seen.into_iter().for_each(|address| *counts.entry(address.to_string()).or_default() += 1);
    counts
}

fn counted<const N: usize>(of: [(&str, usize); N]) -> BTreeMap<String, usize> {
    of.map(|(address, count)| (address.to_owned(), count)).into()
}

#[test]
fn connections_of_the_router_and_behind_it_are_spread_by_weight_and_come_from_the_right_address() {
    let Some(site) = Site::make() else { return };
    let mut daemon = site.daemon("");
    let mut open = Vec::new();
    for (at, (from, to, one, other)) in [
        (&site.router, FAR_V4, "192.0.2.2", "203.0.113.2"),
        (&site.host, FAR_V4, "192.0.2.2", "203.0.113.2"),
        (&site.router, FAR_V6, "2001:db8:0:1::2", "2001:db8:0:2::2"),
        (&site.host, FAR_V6, "2001:db8:0:1::2", "2001:db8:0:2::2"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut seen = Vec::new();
        for connection in 0..9 {
            let (client, mut server, peer) = site.seen(from, to, 6_000 + at as u16 * 100 + connection);
            server.write_all(b"x").unwrap();
            (&client).read_exact(&mut [0]).unwrap();
            seen.push(peer);
            open.push((client, server));
        }
        assert_eq!(tally(seen), counted([(one, 6), (other, 3)]), "{to}");
        // The daemon may have counted in between, and begun anew where it was.
        std::thread::sleep(Duration::from_millis(600));
    }
    until("all are counted", || {
        [&row(&daemon, "up0"), &row(&daemon, "up1")].map(|row| row["flows_tcp"].clone()) == [24, 12]
    });
    let status = text(&daemon.run(&["uplink", "status"]).stdout);
    assert!(status.contains("up0") && status.contains("weight: as configured; up1 by 203.0.113.1"), "{status}");
    let metrics = daemon.get("/metrics");
    assert!(metrics.contains("weirgate_uplink_flows{uplink=\"up0\",transport=\"tcp\"} 24"), "{metrics}");
    // Drained, the other one has all; those that it has stay.
    let drain = daemon.run(&["uplink", "drain", "up0"]);
    assert_eq!(drain.status.code(), Some(0), "{}", text(&drain.stderr));
    assert!(text(&drain.stdout).contains("drained"), "{}", text(&drain.stdout));
    let seen: Vec<IpAddr> = (0..4).map(|at| site.seen(&site.host, FAR_V4, 7_000 + at).2).collect();
    assert_eq!(tally(seen), counted([("203.0.113.2", 4)]));
    let (client, server) = &mut open[0];
    client.write_all(b"y").unwrap();
    server.read_exact(&mut [0]).unwrap();
    assert_eq!(daemon.run(&["uplink", "resume", "up0"]).status.code(), Some(0));
    let unknown = daemon.run(&["uplink", "drain", "up2"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("there is no uplink called `up2`; did you mean `up0`?"));
    assert_eq!(daemon.stop(), Some(0), "{}", daemon.log());
    nothing_is_left(&site);
}

/// No table, rule or route, and the setting as it was.
fn nothing_is_left(site: &Site) {
    let said = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        text(&site.router.ns.within(|| command.args(words).output().unwrap()).unwrap().stdout)
    };
    assert_eq!(said("nft", &["list", "ruleset"]), "");
    for family in ["-4", "-6"] {
        assert!(!said("ip", &[family, "rule"]).contains("30600"));
        assert!(!said("ip", &[family, "route", "show", "table", "all"]).contains("table 306"));
    }
    let key = "/proc/sys/net/ipv4/conf/up1/rp_filter";
    assert_eq!(site.router.ns.within(|| std::fs::read_to_string(key).unwrap()).unwrap().trim(), "1");
}

/// A site with addresses of its own (fd00:9::/48) and a network delegated by each provider: each packet leaves with an address that the
/// provider of its uplink has given, the same one within the network.
#[test]
fn networks_are_translated_into_those_that_an_uplink_was_given() {
    let Some(site) = Site::make() else { return };
    let of = |space: &Space, what: &str| ip(&[&["-n", &space.name], &what.split(' ').collect::<Vec<_>>()[..]].concat());
    of(&site.far, "-6 route add 2001:db8:a::/48 via 2001:db8:0:1::2");
    of(&site.far, "-6 route add 2001:db8:b::/48 via 2001:db8:0:2::2");
    of(&site.router, "addr add 2001:db8:a::1/64 dev lan nodad");
    of(&site.host, "addr add 2001:db8:a::2/64 dev eth0 nodad");
    let given = ["prefixes = [\"2001:db8:a::/48\"]\n", "prefixes = [\"2001:db8:b::/48\"]\n"];
    let mut daemon = site.daemon_of("inside = [\"fd00:9::/48\"]\n", given);
    until("both are up for both families", || is_up(&daemon, "up0") && is_up(&daemon, "up1"));
    for from in ["fd00:9::2", "2001:db8:a::2"] {
        let mut seen = Vec::new();
        for _ in 0..9 {
            let listener = site.far.ns.within(|| TcpListener::bind((FAR_V6, 0)).unwrap()).unwrap();
            let from = (from.parse::<IpAddr>().unwrap(), 0).into();
            let mut client = site.host.ns.within(|| connect_from(from, listener.local_addr().unwrap())).unwrap();
            let (mut server, peer) = listener.accept().unwrap();
            server.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
            seen.push(peer.ip());
        }
        assert_eq!(tally(seen), counted([("2001:db8:a::2", 6), ("2001:db8:b::2", 3)]), "from {from}");
    }
    // What has no prefix has the device's address, as without.
    let (.., peer) = site.seen(&site.host, FAR_V4, 6_900);
    assert!(["192.0.2.2", "203.0.113.2"].contains(&peer.to_string().as_str()), "{peer}");
    assert_eq!(daemon.stop(), Some(0), "{}", daemon.log());
    nothing_is_left(&site);
}

#[test]
fn what_comes_in_by_an_uplink_is_answered_by_it() {
    let Some(site) = Site::make() else { return };
    let daemon = site.daemon("");
    for (to, port) in [("203.0.113.2", 8_000), ("192.0.2.2", 8_001), ("2001:db8:0:2::2", 8_002)] {
        let listener = site.router.ns.within(|| TcpListener::bind((to, port)).unwrap()).unwrap();
        let from: SocketAddr = if to.contains("::") {
            (FAR_V6.parse::<IpAddr>().unwrap(), 0).into()
        } else {
            (FAR_V4.parse::<IpAddr>().unwrap(), 0).into()
        };
        let mut client = site.far.ns.within(|| connect_from(from, listener.local_addr().unwrap())).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
    }
    // A sender that is bound to the other uplink's address has chosen.
    for _ in 0..4 {
        let listener = site.far.ns.within(|| TcpListener::bind((FAR_V4, 0)).unwrap()).unwrap();
        let from = "203.0.113.2:0".parse().unwrap();
        let client = site.router.ns.within(|| connect_from(from, listener.local_addr().unwrap())).unwrap();
        assert_eq!(listener.accept().unwrap().1.ip().to_string(), "203.0.113.2");
        drop(client);
    }
    drop(daemon);
    nothing_is_left(&site);
}

fn connect_from(from: SocketAddr, to: SocketAddr) -> TcpStream {
    weirgate_linux::tcp::connect(from, to, &weirgate_linux::tcp::Options::default()).unwrap()
}

#[test]
fn rules_keep_what_they_name_to_their_uplinks() {
    let Some(site) = Site::make() else { return };
    let rules = "[[steer]]\ndestination_ports = \"9000\"\nprotocol = \"tcp\"\nuplinks = [\"up1\"]\n\
                 [[steer]]\nmark = \"0x5/0xff\"\nuplinks = [\"up1\"]\notherwise = \"any\"\n";
    let daemon = site.daemon(rules);
    let seen: Vec<IpAddr> = (0..3).map(|_| site.seen(&site.host, FAR_V4, 9_000).2).collect();
    assert_eq!(tally(seen), counted([("203.0.113.2", 3)]));
    // Without its uplink it is refused, whatever else there is.
    assert_eq!(daemon.run(&["uplink", "drain", "up1"]).status.code(), Some(0));
    let listener = site.far.ns.within(|| TcpListener::bind((FAR_V4, 9_000)).unwrap()).unwrap();
    let refused = site.host.ns.within(|| TcpStream::connect(listener.local_addr().unwrap())).unwrap();
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(site.seen(&site.host, FAR_V4, 9_001).2.to_string(), "192.0.2.2");
}

#[test]
fn rules_see_networks_and_an_admin_s_marks_and_an_admin_s_source_nat_comes_first() {
    let Some(site) = Site::make() else { return };
    for address in ["10.9.0.7/24", "10.9.0.8/24", "10.9.0.9/24"] {
        ip_at(&site.host, &format!("addr add {address} dev eth0"));
    }
    // What the admin has beside ours: who is marked, and who leaves by the second uplink as somebody else.
    ip_at(&site.far, "route add 203.0.113.77/32 via 203.0.113.2 dev isp1");
    let admin = "add table ip admin; add chain ip admin in { type filter hook prerouting priority -200; }; \
                 add rule ip admin in ip saddr 10.9.0.8 meta mark set 0x5; \
                 add chain ip admin out { type nat hook postrouting priority srcnat; }; \
                 add rule ip admin out oifname \"up1\" ip saddr 10.9.0.9 snat to 203.0.113.77";
    assert!(site.router.ns.within(|| Command::new("nft").arg(admin).status().unwrap()).unwrap().success());
    let rules = "[[steer]]\nsource = \"10.9.0.7/32\"\ndestination = \"198.51.100.0/24\"\nuplinks = [\"up1\"]\n\
                 [[steer]]\nmark = \"0x5/0xff\"\nuplinks = [\"up1\"]\n";
    let daemon = site.daemon(rules);
    let seen_from = |address: &str, port: u16| {
        let listener = site.far.ns.within(|| TcpListener::bind((FAR_V4, port)).unwrap()).unwrap();
        let from = SocketAddr::new(address.parse().unwrap(), 0);
        let _client = site.host.ns.within(|| connect_from(from, listener.local_addr().unwrap())).unwrap();
        listener.accept().unwrap().1.ip().to_string()
    };
    for address in ["10.9.0.7", "10.9.0.8"] {
        let seen: Vec<String> = (0..3).map(|at| seen_from(address, 9_100 + at)).collect();
        assert_eq!(seen, ["203.0.113.2"; 3], "{address}");
    }
    let mut seen: Vec<String> = (0..6).map(|at| seen_from("10.9.0.9", 9_200 + at)).collect();
    seen.sort_unstable();
    assert_eq!(seen.first().map(String::as_str), Some("192.0.2.2"), "{seen:?}");
    assert_eq!(seen.last().map(String::as_str), Some("203.0.113.77"), "{seen:?}");
    drop(daemon);
    let kept = site.router.ns.within(|| Command::new("nft").args(["list", "ruleset"]).output().unwrap()).unwrap();
    let kept = text(&kept.stdout);
    assert!(kept.contains("snat to 203.0.113.77") && !kept.contains("weirgate"), "{kept}");
}

#[test]
fn a_backup_has_new_connections_while_none_of_the_others_works() {
    let Some(site) = Site::make() else { return };
    let daemon = site.daemon_of("", ["", "backup = true\nmetered = true\n"]);
    let seen = |port: u16| {
        let seen: Vec<IpAddr> = (0..4).map(|at| site.seen(&site.host, FAR_V4, port + at).2).collect();
        tally(seen)
    };
    assert_eq!(seen(9_300), counted([("192.0.2.2", 4)]));
    assert_eq!(row(&daemon, "up1")["backup"], true);
    site.black_hole("isp0", true);
    until("it is silent", || row(&daemon, "up0")["state"] == "silent");
    assert_eq!(seen(9_400), counted([("203.0.113.2", 4)]));
    site.black_hole("isp0", false);
    until("it is back", || is_up(&daemon, "up0"));
    assert_eq!(seen(9_500), counted([("192.0.2.2", 4)]));
}

/// Whether an uplink is up for both families.
fn is_up(daemon: &Daemon, name: &str) -> bool {
    let families = row(daemon, name)["families"].as_array().cloned().unwrap_or_default();
    families.len() == 2 && families.iter().all(|family| family["state"] == "up")
}

#[test]
fn a_silent_uplink_s_flows_end_and_its_datagrams_move() {
    let Some(site) = Site::make() else { return };
    let daemon = site.daemon("");
    // A flow of datagrams of the host, on each uplink.
    let far = site.far.ns.within(|| UdpSocket::bind((FAR_V4, 5_300)).unwrap()).unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let senders: Vec<UdpSocket> =
        (0..3).map(|_| site.host.ns.within(|| UdpSocket::bind("10.9.0.2:0").unwrap()).unwrap()).collect();
    let peers = |wanted: usize| {
        for sender in &senders {
            sender.send_to(b"d", (FAR_V4, 5_300)).unwrap();
        }
        let mut seen = Vec::new();
        while seen.len() < wanted
            && let Ok((_, peer)) = far.recv_from(&mut [0; 8])
        {
            far.send_to(b"a", peer).unwrap();
            seen.push(peer.ip());
        }
        tally(seen)
    };
    assert_eq!(peers(3), counted([("192.0.2.2", 2), ("203.0.113.2", 1)]));
    far.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    // Of the router and of the host, connections by the second uplink that only receive: they end within 1.5 s in one of three silences,
    // since the machine itself may be away for as long.
    let mut fastest = Duration::MAX;
    for attempt in 0..3 {
        if attempt > 0 {
            site.black_hole("isp1", false);
            until("it is back", || is_up(&daemon, "up1"));
        }
        let mut readers = [&site.router, &site.host].map(|from| site.reader(from, "203.0.113.2"));
        site.black_hole("isp1", true);
        let began = Instant::now();
        for (client, _) in &mut readers {
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let ended = client.read(&mut [0]).map_err(|error| error.kind());
            let wanted = [ErrorKind::ConnectionAborted, ErrorKind::ConnectionReset];
            assert!(ended.is_err_and(|kind| wanted.contains(&kind)), "{ended:?}\n{}", daemon.log());
        }
        fastest = fastest.min(began.elapsed());
        if fastest < Duration::from_millis(1_500) {
            break;
        }
    }
    assert!(fastest < Duration::from_millis(1_500), "{fastest:?}");
    until("all datagrams go by the other one", || peers(3) == counted([("192.0.2.2", 3)]));
    let seen: Vec<IpAddr> = (0..3).map(|at| site.seen(&site.host, FAR_V4, 5_400 + at).2).collect();
    assert_eq!(tally(seen), counted([("192.0.2.2", 3)]));
    until("it is shown", || row(&daemon, "up1")["state"] == "silent");
    let silent = row(&daemon, "up1");
    assert!(silent["why"].as_str().unwrap().contains("its only target did not answer"), "one a family: {silent}");
    site.black_hole("isp1", false);
    until("it is back", || is_up(&daemon, "up1"));
    let kept: Vec<_> = (0..2).map(|at| site.seen(&site.host, FAR_V4, 5_500 + at)).collect();
    assert_eq!(
        tally(kept.iter().map(|(.., peer)| *peer)),
        counted([("192.0.2.2", 1), ("203.0.113.2", 1)]),
        "each has one"
    );
}

/// One family is dead by an uplink: its connections go by the other one, and those of the other family by both.
#[test]
fn a_family_that_is_dead_by_an_uplink_leaves_the_other_one_alone() {
    let Some(site) = Site::make() else { return };
    let daemon = site.daemon("");
    site.black_hole_of("isp0", Some("ip6"));
    let state = |name: &str| -> Vec<String> {
        let families = row(&daemon, name)["families"].as_array().cloned().unwrap_or_default();
        families.iter().map(|family| family["state"].as_str().unwrap().to_owned()).collect()
    };
    until("IPv6 is silent there", || state("up0") == ["up", "silent"]);
    assert_eq!(
        (row(&daemon, "up0")["state"].as_str(), state("up1").as_slice()),
        (Some("up"), &["up", "up"].map(str::to_owned)[..])
    );
    let seen: Vec<IpAddr> = (0..3).map(|at| site.seen(&site.host, FAR_V6, 5_600 + at).2).collect();
    assert_eq!(tally(seen), counted([("2001:db8:0:2::2", 3)]));
    let mut open = Vec::new();
    for at in 0..3 {
        open.push(site.seen(&site.host, FAR_V4, 5_600 + at));
    }
    assert_eq!(tally(open.iter().map(|(.., peer)| *peer)), counted([("192.0.2.2", 2), ("203.0.113.2", 1)]));
    let status = text(&daemon.run(&["uplink", "status"]).stdout);
    assert!(status.contains("up, IPv6 silent") && status.contains("  IPv6: silent for "), "{status}");
    site.black_hole_of("isp0", None);
    until("it is back", || state("up0") == ["up", "up"]);
}

/// A daemon that is started again with its uplinks in another order leaves connections where they are.
#[test]
fn connections_stay_on_their_uplink_when_the_configuration_names_them_in_another_order() {
    let Some(site) = Site::make() else { return };
    let mut daemon = site.daemon("");
    let mut all: Vec<_> = (0..3).map(|at| site.seen(&site.host, FAR_V4, 5_700 + at)).collect();
    assert_eq!(tally(all.iter().map(|(.., peer)| *peer)), counted([("192.0.2.2", 2), ("203.0.113.2", 1)]));
    assert_eq!(daemon.stop(), Some(0), "{}", daemon.log());
    let uplinks = ["up1", "up0"].map(|name| format!("[[uplink]]\nname = \"{name}\"\ntargets = [\"{FAR_V4}\"]\n"));
    let sections = format!("[steering]\nnamespace = \"{}\"\n{}", site.router.name, uplinks.concat());
    let daemon = Daemon::start(&site.router, &sections);
    until("both are up", || rows(&daemon).iter().all(|row| row["state"] == "up" && row["rtt_us"].is_u64()));
    let (client, server, _) = all.iter_mut().find(|(.., peer)| peer.to_string() == "203.0.113.2").unwrap();
    client.write_all(&[7; 300_000]).unwrap();
    server.read_exact(&mut [0; 300_000]).unwrap();
    until("it is counted", || row(&daemon, "up1")["sent_bytes"].as_u64().unwrap() > 300_000);
    // Questions, and a train of them.
    let other = row(&daemon, "up0")["sent_bytes"].as_u64().unwrap();
    assert!(other < 100_000, "{other}");
    assert_eq!([&row(&daemon, "up0"), &row(&daemon, "up1")].map(|row| row["flows_tcp"].clone()), [2, 1]);
}

#[test]
fn what_is_made_again_when_it_is_flushed_and_gone_when_the_daemon_was_killed() {
    let Some(site) = Site::make() else { return };
    let mut daemon = site.daemon("");
    let nft = |words: &[&str]| {
        let mut command = Command::new("nft");
        text(&site.router.ns.within(|| command.args(words).output().unwrap()).unwrap().stdout)
    };
    nft(&["flush", "ruleset"]);
    until("it is there again", || nft(&["list", "ruleset"]).contains("chain next_0_tcp4"));
    let dry = text(&daemon.run(&["undo", "--dry-run"]).stdout);
    assert!(dry.contains("nftables' table weirgate_uplinks"), "{dry}");
    let undone = text(&daemon.run(&["undo"]).stdout);
    assert!(undone.contains("steers new connections no longer"), "{undone}");
    nothing_is_left(&site);
    assert_eq!(daemon.stop(), Some(0), "{}", daemon.log());
    // Killed, it leaves all; undo takes it back.
    daemon.start_again();
    until("it is there again", || nft(&["list", "ruleset"]).contains("chain next_0_tcp4"));
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    assert!(nft(&["list", "ruleset"]).contains("weirgate_uplinks"));
    let undone = daemon.run(&["undo"]);
    assert_eq!(undone.status.code(), Some(0), "{}{}", text(&undone.stdout), text(&undone.stderr));
    nothing_is_left(&site);
}

#[test]
fn an_uplink_whose_device_is_missing_is_down_and_taken_up_when_it_comes() {
    let Some(site) = Site::make() else { return };
    let daemon = site.daemon("");
    ip_at(&site.router, "link set up1 down");
    until("it is down", || row(&daemon, "up1")["state"] == "down");
    let why = row(&daemon, "up1")["why"].as_str().unwrap().to_owned();
    assert!(why.contains("`up1` is down, or nothing is connected to it"), "{why}");
    let seen: Vec<IpAddr> = (0..3).map(|at| site.seen(&site.host, FAR_V4, 5_600 + at).2).collect();
    assert_eq!(tally(seen), counted([("192.0.2.2", 3)]));
    ip_at(&site.router, "link set up1 up");
    // The kernel has forgotten its default route; a person, or DHCP, writes it again.
    ip_at(&site.router, "route add default via 203.0.113.1 metric 20");
    until("it is back", || row(&daemon, "up1")["state"] == "up");
}

/// Modems and USB adapters go and come: the device has its name again, and another number.
#[test]
fn an_uplink_whose_device_is_made_anew_is_taken_up_again_for_both_families() {
    let Some(site) = Site::make() else { return };
    let daemon = site.daemon("");
    until("it is up for both families", || is_up(&daemon, "up1"));
    ip_at(&site.router, "link del up1");
    until("it is down", || row(&daemon, "up1")["state"] == "down");
    ip_at(&site.router, &format!("link add up1 type veth peer name isp1 netns {}", site.far.name));
    for (space, device, addresses) in [
        (&site.router, "up1", ["203.0.113.2/30", "2001:db8:0:2::2/64 nodad"]),
        (&site.far, "isp1", ["203.0.113.1/30", "2001:db8:0:2::1/64 nodad"]),
    ] {
        ip_at(space, &format!("link set {device} up"));
        addresses.iter().for_each(|address| ip_at(space, &format!("addr add dev {device} {address}")));
    }
    ip_at(&site.router, "route add default via 203.0.113.1 metric 20");
    ip_at(&site.router, "-6 route add default via 2001:db8:0:2::1 metric 20");
    until("it is back for both families", || is_up(&daemon, "up1"));
}

/// Connections whose beginning nobody answers: their ends send no reset, so connection tracking would know them for two minutes more.
#[test]
fn a_silent_uplink_s_half_open_connections_leave_nothing_behind() {
    let Some(site) = Site::make() else { return };
    let daemon = site.daemon("");
    let flows = || ["up0", "up1"].map(|name| row(&daemon, name)["flows_tcp"].as_u64().unwrap());
    let listener = site.far.ns.within(|| TcpListener::bind((FAR_V4, 5_900)).unwrap()).unwrap();
    let begin = |from: &Space| -> Vec<_> {
        let threads = (0..9).map(|_| {
            let ns = Netns::by_name(&from.name).unwrap();
            std::thread::spawn(move || ns.within(|| TcpStream::connect((FAR_V4, 5_900))).unwrap())
        });
        threads.collect()
    };
    // Questions are answered, so that all of them begin where their turn is: two of three there, or one more or less where the daemon
    // counted in between.
    site.black_hole_of("isp0", Some("ip tcp flags syn"));
    let own = begin(&site.router);
    until("the router's have begun", || flows().iter().sum::<u64>() == 9);
    let [own_there, _] = flows();
    let forwarded = begin(&site.host);
    until("the host's have begun", || flows().iter().sum::<u64>() == 18);
    let [there, elsewhere] = flows();
    assert!(own_there >= 3 && there - own_there >= 3, "{own_there} of {there}");
    site.black_hole("isp0", true);
    let own: Vec<_> = own.into_iter().map(|one| one.join().unwrap()).collect();
    let ended = |one: &&std::io::Result<TcpStream>| {
        one.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionAborted)
    };
    assert_eq!(own.iter().filter(ended).count() as u64, own_there, "{own:?}");
    // Who is within notices nothing: what it sends again goes by the other one.
    let forwarded: Vec<_> = forwarded.into_iter().map(|one| one.join().unwrap()).collect();
    assert!(forwarded.iter().all(Result::is_ok), "{forwarded:?}");
    until("none is left there", || flows() == [0, elsewhere + there - own_there]);
    // Once: there was nothing left at the looks that followed.
    std::thread::sleep(Duration::from_secs(3));
    let log = daemon.log();
    let said: Vec<&str> = log.lines().filter(|line| line.contains("connections of this host ended")).collect();
    let wanted = format!(
        "{own_there} connections of this host ended, 0 forwarded ones are reset, {} other flows are forgotten",
        there - own_there
    );
    assert!(said.len() == 1 && said[0].contains(&wanted), "{log}");
    drop((own, forwarded, listener));
    site.black_hole("isp0", false);
    until("it is back, and all have ended", || is_up(&daemon, "up0") && flows() == [0, 0]);
    std::thread::sleep(Duration::from_millis(600));
    let open: Vec<_> = (0..6).map(|at| site.seen(&site.router, FAR_V4, 5_910 + at)).collect();
    assert_eq!(tally(open.iter().map(|(.., peer)| *peer)), counted([("192.0.2.2", 4), ("203.0.113.2", 2)]));
}

/// `ip` in a namespace.
fn ip_at(space: &Space, words: &str) {
    ip(&["-n", &space.name].into_iter().chain(words.split(' ')).collect::<Vec<_>>());
}

#[test]
fn both_uplinks_may_have_the_same_network_and_gateway() {
    let Some(site) = Site::make() else { return };
    for (link, host) in [(0, 2), (1, 3)] {
        ip_at(&site.router, &format!("addr flush dev up{link}"));
        ip_at(&site.far, &format!("addr flush dev isp{link}"));
        ip_at(&site.router, &format!("addr add 192.168.1.{host}/24 dev up{link}"));
        ip_at(&site.far, &format!("addr add 192.168.1.1/32 dev isp{link}"));
        ip_at(&site.far, &format!("route add 192.168.1.{host}/32 dev isp{link}"));
        ip_at(&site.router, &format!("route add default via 192.168.1.1 dev up{link} metric {}", 10 * (link + 1)));
    }
    let daemon = site.daemon("");
    let open: Vec<_> = (0..6).map(|at| site.seen(&site.host, FAR_V4, 5_700 + at)).collect();
    assert_eq!(tally(open.iter().map(|(.., peer)| *peer)), counted([("192.168.1.2", 4), ("192.168.1.3", 2)]));
    drop(daemon);
    nothing_is_left(&site);
}

#[test]
fn an_uplink_alone_one_without_a_way_and_none_that_takes_flows() {
    let Some(site) = Site::make() else { return };
    // `lan` has addresses, and no default route names it.
    let sections = format!(
        "[steering]\nnamespace = \"{}\"\n[[uplink]]\nname = \"only\"\ndevice = \"up0\"\ntargets = [\"{FAR_V4}\"]\n\
         [[uplink]]\nname = \"lan\"\ntargets = [\"{FAR_V4}\"]\n",
        site.router.name
    );
    let daemon = Daemon::start(&site.router, &sections);
    until("it is up", || row(&daemon, "only")["state"] == "up" && row(&daemon, "only")["rtt_us"].is_u64());
    let lan = row(&daemon, "lan");
    let why = lan["why"].as_str().unwrap();
    assert!(lan["state"] == "down" && why.contains("no default route names it: write its `gateway`"), "{lan}");
    let seen: Vec<IpAddr> = (0..3).map(|at| site.seen(&site.host, FAR_V4, 5_800 + at).2).collect();
    assert_eq!(tally(seen), counted([("192.0.2.2", 3)]));
    // Where none takes new flows the main table has them: nobody is cut off.
    assert_eq!(daemon.run(&["uplink", "drain", "only"]).status.code(), Some(0));
    let seen = [&site.router, &site.host].map(|from| site.seen(from, FAR_V4, 5_810).2);
    assert_eq!(tally(seen), counted([("192.0.2.2", 2)]));
    drop(daemon);
    nothing_is_left(&site);
}
