//! The switch's ports in the daemon: interfaces that exist, tried by the doctor and shown.

use std::net::UdpSocket;
use std::process::Command;

use super::ground::{Daemon, Space, ip, text, until};

/// `weirgate doctor` in the namespace, with this configuration alone.
fn doctor(space: &Space, sections: &str) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weirgate.toml");
    let state = dir.path().display();
    std::fs::write(&path, format!("[host]\nstate = \"{state}\"\n[control]\nsocket = \"{state}/c.sock\"\n{sections}"))
        .unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    command.args(["doctor", "-c"]).arg(&path);
    let done = space.ns.within(|| command.output().unwrap()).unwrap();
    (done.status.code(), text(&done.stdout))
}

#[test]
fn interfaces_are_ports_and_what_they_did_is_shown() {
    let (Some(middle), Some(a), Some(b)) = (Space::make(), Space::make(), Space::make()) else { return };
    for (side, space, address) in [("va", &a, "10.97.0.1/24"), ("vb", &b, "10.97.0.2/24")] {
        ip(&["-n", &middle.name, "link", "add", side, "type", "veth", "peer", "name", "eth0", "netns", &space.name]);
        ip(&["-n", &middle.name, "link", "set", side, "addrgenmode", "none", "up"]);
        ip(&["-n", &space.name, "link", "set", "eth0", "up"]);
        ip(&["-n", &space.name, "addr", "add", address, "dev", "eth0"]);
    }
    let port = |name: &str, more: &str| {
        format!("[[port]]\nname = \"{name}\"\nkind = \"interface\"\nnamespace = \"{}\"\n{more}", middle.name)
    };
    let limit = "[[limit]]\nname = \"tenant\"\nrate = \"80 Mbit/s\"\n[[class]]\nport = \"va\"\nlimits = [\"tenant\"]\n";
    let mut daemon = Daemon::start(&middle, &format!("{}{}{limit}", port("va", ""), port("vb", "xdp = true\n")));
    let receiver = b.ns.within(|| UdpSocket::bind("10.97.0.2:7000").unwrap()).unwrap();
    receiver.set_nonblocking(true).unwrap();
    let sender = a.ns.within(|| UdpSocket::bind("10.97.0.1:0").unwrap()).unwrap();
    let mut got = [0; 16];
    until("a datagram goes through the switch", || {
        sender.send_to(b"through", "10.97.0.2:7000").unwrap();
        receiver.recv(&mut got).is_ok()
    });
    assert_eq!(&got[..7], b"through");
    let switch = daemon.json("/api/v1/limits");
    assert!(switch["limits"][0]["passed_packets"].as_u64() > Some(0), "{switch}");
    assert_eq!(switch["ports"][0]["kind"], "interface");
    assert_eq!(switch["ports"][1]["kind"], "interface by AF_XDP");
    assert!(switch["ports"][1]["sent"].as_u64() > Some(0) && switch["ports"][1]["failed"].is_null(), "{switch}");
    let metrics = daemon.get("/metrics");
    assert!(metrics.contains("weirgate_port_up{port=\"va\",kind=\"interface\"} 1"), "{metrics}");
    assert!(metrics.contains("weirgate_port_dropped_frames_total{port=\"va\",why=\"lost\"} 0"), "{metrics}");

    ip(&["-n", &middle.name, "link", "del", "va"]);
    until("it is said that an interface is gone", || {
        text(&daemon.run(&["limit", "list"]).stdout).contains("va: the interface `va` is gone")
    });
    assert!(daemon.get("/metrics").contains("weirgate_port_up{port=\"va\",kind=\"interface\"} 0"));
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn the_doctor_tries_the_ports() {
    let Some(space) = Space::make() else { return };
    ip(&["-n", &space.name, "link", "add", "va", "type", "veth", "peer", "name", "vb"]);
    ip(&["-n", &space.name, "link", "set", "va", "addrgenmode", "none", "up"]);
    ip(&["-n", &space.name, "link", "add", "br0", "type", "bridge"]);
    let port = |kind: &str, more: &str| format!("[[port]]\nname = \"p\"\nkind = \"{kind}\"\n{more}");
    let said = |kind: &str, more: &str| doctor(&space, &port(kind, more));
    for (kind, more, wanted) in [
        ("interface", "device = \"va1\"\n", "p: there is no interface `va1`; did you mean `va`?"),
        ("interface", "device = \"va\"\nnamespace = \"wg-none\"\n", "/run/netns/wg-none cannot be opened: `ip netns`"),
        ("tap", "device = \"va\"\n", "cannot make the network device `va`: is there one of that name?"),
        ("vhost-user", "socket = \"/run/wg-none/vm.sock\"\n", "`mkdir -p /run/wg-none`"),
    ] {
        let (code, said) = said(kind, more);
        assert!(
            said.lines().any(|line| line.starts_with("FAILS    port") && line.contains(wanted)),
            "{wanted}\n{said}"
        );
        assert_eq!(code, Some(1), "{said}");
    }
    for (kind, more) in [
        ("interface", "device = \"va\"\n"),
        ("tap", "device = \"tap0\"\n"),
        ("vhost-user", "socket = \"/tmp/vm.sock\"\n"),
    ] {
        let (_, said) = said(kind, more);
        assert!(said.contains("ok       port             p: can be made"), "{kind}\n{said}");
    }
    ip(&["-n", &space.name, "addr", "add", "192.0.2.7/24", "dev", "va"]);
    let (_, told) = said("interface", "device = \"va\"\n");
    assert!(told.contains("note     port             p: `va` has the address 192.0.2.7"), "{told}");
    ip(&["-n", &space.name, "link", "set", "va", "master", "br0"]);
    let (_, told) = said("interface", "device = \"va\"\n");
    assert!(told.contains("`va` is a member of `br0`"), "{told}");
}
