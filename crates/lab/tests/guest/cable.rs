//! A guest behind the switch: held to its rate in both directions, by delay and by its queue not being read; without a limit,
//! super-packets and missing checksums both ways.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use weirgate_lab::guest::{Cable, HOST, Passed, Way};
use weirgate_lab::net::Namespace;
use weirgate_switch::limits::{LimitSettings, Mode};
use weirgate_units::{BitRate, Bytes};

use super::{guest, place};

const RATE: BitRate = BitRate::from_bits_per_sec(40_000_000);
const BURST: Bytes = Bytes::new(25_000);

/// The other end, with iperf3's server.
struct Host {
    server: Child,
    _namespace: Namespace,
}

impl Host {
    fn make() -> Option<Namespace> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: a namespace for the other end needs root");
            return None;
        }
        Some(Namespace::create("guest").expect("it is made"))
    }

    fn serve(namespace: Namespace) -> Self {
        let mut iperf = Command::new("ip");
        let server = iperf.args(["netns", "exec", namespace.name(), "iperf3", "-s"]).stdout(Stdio::null()).spawn();
        Self { server: server.expect("iperf3 runs"), _namespace: namespace }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The most of three measurements, or the first one above `enough`: what the machine is taken away for is not sent.
fn best_of_three(enough: f64, mut measure: impl FnMut() -> f64) -> f64 {
    let mut best = 0.0_f64;
    for _attempt in 0..3 {
        best = best.max(measure());
        if best > enough {
            break;
        }
    }
    best
}

#[test]
fn a_guest_is_held_to_its_rate_both_ways() {
    let cases = [
        ("pace, from", Mode::Pace, Way::FromGuest, ""),
        ("gate, from", Mode::Gate, Way::FromGuest, ""),
        ("pace, to", Mode::Pace, Way::ToGuest, "-R"),
    ];
    for (name, mode, way, flag) in cases {
        let (Some(folder), Some(host)) = (place(), Host::make()) else { return };
        let limit = LimitSettings { rate: RATE, burst: BURST, mode };
        let cable = Cable::lay(&folder.path().join("vm.sock"), &host, Some((way, limit))).expect("it is laid");
        let _host = Host::serve(host);
        let mut vm = guest(folder.path(), 1);
        // Each is held to its rate.
        let best = best_of_three(0.85 * 4.0 * 40e6, || {
            let before = cable.counters().expect("it runs");
            let began = Instant::now();
            vm.expect(&format!("iperf3 -c {HOST} -t 4 {flag}")).expect("iperf3 runs");
            let time = began.elapsed().as_secs_f64();
            let after = cable.counters().expect("it runs");
            let passed = (after.passed_bytes - before.passed_bytes) as f64 * 8.0;
            println!("{name}: {:.1} Mbit/s over 4 s, {after:?}", passed / 4e6);
            assert!(passed < time * 40e6 + 25_000.0 * 8.0 + 65_536.0 * 8.0, "{name}: {passed} bits in {time} s");
            if mode == Mode::Gate {
                assert_eq!(after.dropped_rate, 0, "{name}: a gate holds back");
            }
            passed
        });
        assert!(best > 0.85 * 4.0 * 40e6, "{name}: {best} bits");
    }
}

#[test]
fn super_packets_go_both_ways() {
    let (Some(folder), Some(host)) = (place(), Host::make()) else { return };
    let cable = Cable::lay(&folder.path().join("vm.sock"), &host, None).expect("it is laid");
    let _host = Host::serve(host);
    let mut vm = guest(folder.path(), 1);
    let lost = || cable.ports().expect("it runs").map(|port| port.malformed + port.refused);
    let lost_before = lost();
    for (way, arrives, flag) in [("out of the guest", &cable.to_host, ""), ("into the guest", &cable.to_guest, "-R")] {
        let best = best_of_three(1e8 * 3.0, || {
            let before = arrives.so_far();
            vm.expect(&format!("iperf3 -c {HOST} -t 3 {flag}")).expect("iperf3 runs");
            let after = arrives.so_far();
            let sum = |passed: &Passed| passed.by_ms.iter().sum::<u64>();
            let (bytes, frames) = (sum(&after) - sum(&before), after.frames - before.frames);
            println!("{way}: {:.2} Gbit/s, {} B a frame", bytes as f64 * 8.0 / 3e9, bytes / frames);
            assert!(bytes / frames > 3_000, "{way}: no super-packets");
            bytes as f64 * 8.0
        });
        assert!(best > 1e8 * 3.0, "{way}: {best} bits in 3 s");
    }
    assert_eq!(lost(), lost_before, "headers that cannot be true, and frames that a device would not have");
}
