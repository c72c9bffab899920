//! The switch's ports in the daemon: interfaces that exist, tried by the doctor and shown.

use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt as _;
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
        text(&daemon.run(&["limit", "list"]).stdout).contains("va: there is no interface `va`")
    });
    assert!(daemon.get("/metrics").contains("weirgate_port_up{port=\"va\",kind=\"interface\"} 0"));
    assert_eq!(daemon.stop(), Some(0));
}

/// A veth pair between the switch and a container, and a TAP in another one.
struct Containers {
    daemon: Daemon,
    switch: Space,
    a: Space,
    b: Space,
}

impl Containers {
    /// A switch of two threads, between interface `va`, whose other end is in `a`, and TAP `wg0` in `b`.
    fn start() -> Option<Self> {
        let (switch, a, b) = (Space::make()?, Space::make()?, Space::make()?);
        veth(&switch, &a);
        let sections = format!(
            "[switch]\nthreads = 2\n[[port]]\nname = \"near\"\nkind = \"interface\"\ndevice = \"va\"\nnamespace = \"{}\"\n\
             queues = 2\n[[port]]\nname = \"far\"\nkind = \"tap\"\ndevice = \"wg0\"\nnamespace = \"{}\"\nqueues = 2\n",
            switch.name, b.name
        );
        let mut daemon = Daemon::start(&switch, &sections);
        tap_up(&b);
        assert!(daemon.child.try_wait().unwrap().is_none());
        Some(Self { daemon, switch, a, b })
    }

    fn port(&self, at: usize) -> serde_json::Value {
        self.daemon.json("/api/v1/limits")["ports"][at].clone()
    }

    /// A datagram goes through the switch, by both ports.
    fn passes(&self) {
        let receiver = self.b.ns.within(|| UdpSocket::bind("10.97.0.2:7000").unwrap()).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let sender = self.a.ns.within(|| UdpSocket::bind("10.97.0.1:0").unwrap()).unwrap();
        let mut got = [0; 16];
        until("a datagram goes through the switch", || {
            let _ = sender.send_to(b"through", "10.97.0.2:7000");
            receiver.recv(&mut got).is_ok()
        });
        assert_eq!(&got[..7], b"through");
    }

    /// The lines of the log that name a port.
    fn said(&self, port: &str) -> Vec<String> {
        let name = format!("port `{port}`");
        self.daemon.log().lines().filter(|line| line.contains(&name)).map(str::to_owned).collect()
    }
}

fn veth(switch: &Space, far: &Space) {
    ip(&["-n", &switch.name, "link", "add", "va", "type", "veth", "peer", "name", "eth0", "netns", &far.name]);
    ip(&["-n", &switch.name, "link", "set", "va", "addrgenmode", "none", "up"]);
    ip(&["-n", &far.name, "link", "set", "eth0", "up"]);
    ip(&["-n", &far.name, "addr", "add", "10.97.0.1/24", "dev", "eth0"]);
}

fn tap_up(space: &Space) {
    // The one that it had before, which the other end remembers.
    ip(&["-n", &space.name, "link", "set", "wg0", "address", "02:00:00:00:00:02", "up"]);
    ip(&["-n", &space.name, "addr", "add", "10.97.0.2/24", "dev", "wg0"]);
}

fn has(space: &Space, device: &str) -> bool {
    Command::new("ip").args(["-n", &space.name, "link", "show", device]).output().unwrap().status.success()
}

#[test]
fn a_port_comes_back_when_its_interface_does() {
    let Some(mut all) = Containers::start() else { return };
    all.passes();
    let before = all.port(0)["received"].as_u64();
    for times in 1..=2 {
        ip(&["-n", &all.switch.name, "link", "del", "va"]);
        until("it is said what is missing", || {
            all.port(0)["failed"].as_str().is_some_and(|why| why.starts_with("there is no interface `va`"))
        });
        assert_eq!(all.port(0)["gone"].as_u64(), Some(times));
        assert!(all.daemon.get("/metrics").contains(&format!("weirgate_port_gone_total{{port=\"near\"}} {times}")));
        veth(&all.switch, &all.a);
        all.passes();
        until("it has its device", || all.port(0)["failed"].is_null());
        assert!(all.port(0)["received"].as_u64() > before, "counted on: {}", all.port(0));
    }
    let said = all.said("near");
    assert_eq!(said.len(), 4, "one line when it goes and one when it is back: {said:?}");
    assert!(said[0].contains("port `near` has lost its device `va`: the interface `va` is gone"), "{said:?}");
    assert!(said[1].contains("port `near` has its device `va` again"), "{said:?}");
    assert!(all.said("far").is_empty() && all.port(1)["gone"].as_u64() == Some(0), "the other one never went");
    assert_eq!(all.daemon.stop(), Some(0));
}

#[test]
fn a_tap_that_was_removed_is_made_again() {
    let Some(mut all) = Containers::start() else { return };
    all.passes();
    ip(&["-n", &all.b.name, "link", "del", "wg0"]);
    until("it is there again", || has(&all.b, "wg0"));
    tap_up(&all.b);
    all.passes();
    assert_eq!(all.port(1)["gone"].as_u64(), Some(1));
    assert!(
        all.said("far")[0].contains("port `far` has lost its device `wg0`: the TAP device `wg0` is gone"),
        "{:?}",
        all.said("far")
    );

    // The daemon's TAP keeps the old namespace alive, where nobody finds it any more.
    let name = all.b.name.clone();
    ip(&["netns", "del", &name]);
    std::mem::forget(std::mem::replace(&mut all.b, Space::named(&name)));
    until("it is in the new namespace", || has(&all.b, "wg0"));
    tap_up(&all.b);
    all.passes();
    assert_eq!(all.port(1)["gone"].as_u64(), Some(2));
    assert_eq!(all.said("far").len(), 4, "{:?}", all.said("far"));
    assert_eq!(all.daemon.stop(), Some(0));
}

#[test]
fn a_virtual_machines_socket_is_the_groups_that_its_port_names() {
    let Some(space) = Space::make() else { return };
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("vm.sock");
    let port = format!("[[port]]\nname = \"vm\"\nkind = \"vhost-user\"\nsocket = \"{}\"\n", socket.display());
    // Debian's group of this name is 1 on every system.
    let mut daemon = Daemon::start(&space, &format!("{port}group = \"daemon\"\n"));
    let meta = std::fs::metadata(&socket).unwrap();
    assert_eq!((meta.gid(), meta.mode() & 0o777), (1, 0o660));
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
        (
            "vhost-user",
            "socket = \"/tmp/vm.sock\"\ngroup = \"wg-none\"\n",
            "there is no group \"wg-none\" in /etc/group",
        ),
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
