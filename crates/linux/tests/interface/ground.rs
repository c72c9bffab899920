//! Two hosts, `10.97.0.1` in namespace `...a` and `10.97.0.2` in `...b`, each with one end `eth0` of a veth pair. The other ends, `va`
//! and `vb`, are in `...s`, where the switch opens them.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use weirgate_linux::clock;
use weirgate_linux::dataplane::{Dataplane, Device, Handle, PortCounters, spawn};
use weirgate_linux::interface::{InterfaceError, PacketPort};
use weirgate_linux::netns::Netns;
use weirgate_switch::bridge::{Bridge, BridgePort};
use weirgate_units::{BitRate, Bytes};

pub(crate) struct Ground {
    pub(crate) name: String,
    pub(crate) hosts: [Netns; 2],
    pub(crate) middle: Netns,
}

/// How a port is opened.
pub(crate) type Open = fn(&Netns, &str) -> Result<Box<dyn Device>, InterfaceError>;

pub(crate) fn by_packet(ns: &Netns, name: &str) -> Result<Box<dyn Device>, InterfaceError> {
    PacketPort::open(ns, name, 1).map(|port| Box::new(port) as Box<dyn Device>)
}

pub(crate) fn by_packet_queues(ns: &Netns, name: &str) -> Result<Box<dyn Device>, InterfaceError> {
    PacketPort::open(ns, name, 3).map(|port| Box::new(port) as Box<dyn Device>)
}

pub(crate) fn run(script: &str) -> String {
    let done = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(done.status.success(), "{script}\n{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

impl Ground {
    /// Prints why and gives `None` where this process may not.
    pub(crate) fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: interfaces and namespaces need root");
            return None;
        }
        let name = format!("wgi{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        for (at, side) in ["a", "b"].into_iter().enumerate() {
            if at == 0 {
                run(&format!("ip netns add {name}s; ip -n {name}s link set lo up"));
            }
            run(&format!(
                "ip netns add {name}{side}
                 ip -n {name}s link add v{side} type veth peer name eth0 netns {name}{side}
                 ip -n {name}s link set v{side} addrgenmode none up
                 ip netns exec {name}{side} sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
                     echo cubic >/proc/sys/net/ipv4/tcp_congestion_control || true'
                 ip -n {name}{side} link set lo up; ip -n {name}{side} link set eth0 up
                 ip -n {name}{side} addr add 10.97.0.{}/24 dev eth0",
                at + 1
            ));
        }
        let ns = |side: &str| Netns::by_name(&format!("{name}{side}")).unwrap();
        let (hosts, middle) = ([ns("a"), ns("b")], ns("s"));
        Some(Self { name, hosts, middle })
    }

    pub(crate) fn address(side: usize, port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::from([10, 97, 0, side as u8 + 1]), port)
    }

    /// Runs a script in a host's namespace.
    pub(crate) fn on(&self, side: usize, script: &str) -> String {
        let side = ["a", "b"][side];
        run(&format!("ip netns exec {}{side} sh -ec '{script}'", self.name))
    }

    /// A switch between `va` and `vb`.
    pub(crate) fn switch(&self, open: Open) -> Running {
        let bridge = Bridge::new(
            clock::boottime(),
            BitRate::from_bits_per_sec(1_000_000),
            BitRate::from_bits_per_sec(10_000_000_000),
            Bytes::new(64 << 20),
            1,
        );
        let mut dataplane = Dataplane::new(bridge).unwrap();
        let ports = ["va", "vb"].map(|name| {
            let device = open(&self.middle, name).unwrap();
            dataplane.add_port(device, None, Bytes::new(1 << 20)).unwrap()
        });
        Running { handle: spawn("switch", dataplane).unwrap(), ports }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let name = &self.name;
        run(&format!("ip netns del {name}a; ip netns del {name}b; ip netns del {name}s"));
    }
}

/// A switch that runs. To be dropped before its ground.
pub(crate) struct Running {
    pub(crate) handle: Handle,
    ports: [BridgePort; 2],
}

impl Running {
    /// What a port did, and why it does no more.
    pub(crate) fn port(&self, side: usize) -> (PortCounters, Option<String>) {
        let port = self.ports[side];
        let look = move |dataplane: &mut Dataplane| {
            let (counters, failed) = dataplane.port(port);
            (counters, failed.map(ToString::to_string))
        };
        self.handle.call(look).unwrap()
    }
}
