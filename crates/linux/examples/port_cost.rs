//! What a kind of port carries and what that costs: iperf3 from one network namespace to another through the switch, by each
//! kind, in turn, several rounds: TCP in bulk, and UDP in small datagrams. Gbit/s as received, packets per second, what was
//! lost, and the processor time of the switch's own process and of the whole machine meanwhile.
//!
//! `cargo run --release -p weirgate-linux --example port_cost -- [ROUNDS] [SECONDS]`, as root; iperf3 and iproute2 are needed.
#![allow(clippy::disallowed_methods, reason = "a measurement")]

use std::process::Command;

use weirgate_linux::clock;
use weirgate_linux::dataplane::{Dataplane, Device, open_interface, spawn};
use weirgate_linux::netns::Netns;
use weirgate_linux::tap::Tap;
use weirgate_switch::bridge::Bridge;
use weirgate_units::{BitRate, Bytes};

const KINDS: [&str; 3] = ["tap", "packet", "xdp"];

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u32>().expect("ROUNDS and SECONDS are numbers"));
    let (rounds, seconds) = (args.next().unwrap_or(3), args.next().unwrap_or(3));
    println!(
        "{:<8} {:<5} {:>8} {:>10} {:>7} {:>9} {:>9} {:>9}",
        "port", "what", "Gbit/s", "packets/s", "lost", "switch s", "all s", "ring full"
    );
    for _ in 0..rounds {
        for kind in KINDS {
            for udp in [false, true] {
                once(kind, udp, seconds);
            }
        }
    }
}

fn run(script: &str) -> String {
    let done = Command::new("sh").args(["-ec", script]).output().expect("sh runs");
    assert!(done.status.success(), "{script}\n{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn once(kind: &str, udp: bool, seconds: u32) {
    let name = format!("wgc{}", std::process::id());
    run(&format!("ip netns add {name}a; ip netns add {name}b; ip netns add {name}s"));
    let ns = |side: &str| Netns::by_name(&format!("{name}{side}")).expect("it was just made");
    let rate = BitRate::from_bits_per_sec(1_000_000_000);
    let bridge = Bridge::new(clock::boottime(), rate, rate, Bytes::new(64 << 20), 1);
    let mut dataplane = Dataplane::new(bridge).expect("files are free");
    let ports: Vec<_> = ["a", "b"]
        .into_iter()
        .enumerate()
        .map(|(at, side)| {
            let device: Box<dyn Device> = if kind == "tap" {
                Box::new(Tap::create(&ns(side), "eth0", 1).expect("a TAP"))
            } else {
                run(&format!(
                    "ip -n {name}s link add v{side} type veth peer name eth0 netns {name}{side}
                 ip -n {name}s link set v{side} addrgenmode none up"
                ));
                open_interface(&ns("s"), &format!("v{side}"), 1, kind == "xdp").expect("a port")
            };
            run(&format!(
                "ip netns exec {name}{side} sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6'
             ip -n {name}{side} link set lo up; ip -n {name}{side} link set eth0 txqueuelen 4000 up
             ip -n {name}{side} addr add 10.96.0.{}/24 dev eth0",
                at + 1
            ));
            dataplane.add_port(device, None, Bytes::new(1 << 20)).expect("a port")
        })
        .collect();
    let handle = spawn("switch", dataplane).expect("a thread");
    let how = if udp { "-u -b 0 -l 64" } else { "-C cubic" };
    let before = (own(), machine());
    let said = run(&format!(
        "ip netns exec {name}b timeout {0} iperf3 -s -1 -D -p 5201; sleep 0.3
         ip netns exec {name}a timeout {0} iperf3 -J -c 10.96.0.2 -p 5201 -t {seconds} {how}",
        seconds + 10
    ));
    let (own, machine) = (own() - before.0, machine() - before.1);
    // iperf3's summary of what was received is the last of each.
    let last = |key: &str| -> f64 {
        let at = said.rfind(&format!("\"{key}\":")).map_or("0", |at| &said[at + key.len() + 3..]);
        at.trim_start().split([',', '\n', '}']).next().and_then(|n| n.trim().parse().ok()).unwrap_or(0.0)
    };
    let received = said.rfind("\"sum_received\"").map_or(0.0, |at| {
        let rest = &said[at..];
        let at = rest.find("\"bits_per_second\":").map_or(0, |at| at + 18);
        rest[at..].trim_start().split([',', '\n']).next().and_then(|n| n.trim().parse().ok()).unwrap_or(0.0)
    });
    let (from, to) = (ports[0], ports[1]);
    let (first, second) = handle.call(move |d| (d.port(from).0, d.port(to).0)).expect("it runs");
    let packets = second.sent as f64 / f64::from(seconds);
    let lost = if udp { last("lost_percent") } else { 0.0 };
    println!(
        "{kind:<8} {:<5} {:>8.2} {packets:>10.0} {lost:>6.1}% {own:>9.2} {machine:>9.2} {:>9}",
        if udp { "udp" } else { "tcp" },
        received / 1e9,
        first.lost + second.lost,
    );
    drop(handle);
    run(&format!("ip netns del {name}a; ip netns del {name}b; ip netns del {name}s"));
}

/// Processor time of this process, in seconds.
fn own() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Processor time that the machine did not idle, in seconds: /proc/stat counts in hundredths.
fn machine() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").expect("it is there");
    let numbers: Vec<f64> =
        stat.lines().next().unwrap_or("").split_ascii_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    let idle = numbers[3] + numbers[4];
    // Not the guest's times, which are in the user's already.
    (numbers[..8].iter().sum::<f64>() - idle) / 100.0
}
