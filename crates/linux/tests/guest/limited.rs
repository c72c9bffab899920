//! A guest behind the switch: held to its rate in both directions, by delay and by its queue not being read.

use std::process::{Command, Stdio};

use weirgate_linux::clock;
use weirgate_linux::dataplane::{Dataplane, Handle, spawn};
use weirgate_linux::netns::Netns;
use weirgate_linux::tap::Tap;
use weirgate_switch::bridge::{Bridge, BridgeClass, Direction};
use weirgate_switch::class::Rule;
use weirgate_switch::frame::Accounting;
use weirgate_switch::limits::{ClassSettings, LimitCounters, LimitId, LimitSettings, Mode};
use weirgate_units::{BitRate, Bytes};

use super::{HOST, device, guest, place};

const RATE: BitRate = BitRate::from_bits_per_sec(40_000_000);

/// A namespace with the host's address on a TAP, gone with the value.
struct Host(String);

impl Host {
    fn make(name: &str) -> Option<(Self, Tap)> {
        let name = format!("{name}-{}", std::process::id());
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: a namespace for the other end needs root");
            return None;
        }
        let host = Self(name);
        assert!(Command::new("ip").args(["netns", "add", &host.0]).status().unwrap().success());
        let tap = Tap::create(&Netns::by_name(&host.0).unwrap(), "tap0", 1).unwrap();
        for arguments in [format!("addr add {HOST}/24 dev tap0"), "link set tap0 up".to_owned()] {
            assert!(Command::new("ip").args(["-n", &host.0]).args(arguments.split(' ')).status().unwrap().success());
        }
        Some((host, tap))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// The switch between the guest and the host, with a limit on what goes by the guest's port in `direction`.
fn limited(folder: &std::path::Path, tap: Tap, mode: Mode, direction: Direction) -> (Handle, LimitId) {
    let now = clock::boottime();
    let mut bridge = Bridge::new(now, RATE, RATE, Bytes::new(64 << 20), 1);
    let limit = bridge.add_limit(now, LimitSettings { rate: RATE, burst: Bytes::new(25_000), mode });
    let queue = ClassSettings { queue_max: Bytes::new(1 << 20), ..ClassSettings::default() };
    let class = bridge.add_class(&BridgeClass { limits: vec![limit], accounting: Accounting::default(), queue });
    let rules = vec![Rule { port: Some(0), ..Rule::any(0, class) }];
    let (from, to) = if direction == Direction::From { (rules, vec![]) } else { (vec![], rules) };
    bridge.set_rules(from, to).unwrap();
    let mut dataplane = Dataplane::new(bridge).unwrap();
    let gate = (mode == Mode::Gate).then_some(limit);
    let vm = dataplane.add_port(Box::new(device(folder, 1)), gate, Bytes::new(256 << 10)).unwrap();
    let host = dataplane.add_port(Box::new(tap), None, Bytes::new(256 << 10)).unwrap();
    dataplane.bridge_mut().join(vm, host);
    (spawn("switch", dataplane).unwrap(), limit)
}

fn counters(switch: &Handle, limit: LimitId) -> LimitCounters {
    switch.call(move |dataplane| dataplane.bridge().limit_counters(limit, clock::boottime())).unwrap()
}

#[test]
fn a_guest_is_held_to_its_rate_both_ways() {
    let cases = [
        ("pace-from", Mode::Pace, Direction::From, ""),
        ("gate-from", Mode::Gate, Direction::From, ""),
        ("pace-to", Mode::Pace, Direction::To, "-R"),
    ];
    for (name, mode, direction, flag) in cases {
        let Some(folder) = place() else { return };
        let Some((host, tap)) = Host::make(name) else { return };
        let (switch, limit) = limited(folder.path(), tap, mode, direction);
        let mut iperf = Command::new("ip");
        let mut server = iperf.args(["netns", "exec", &host.0, "iperf3", "-s"]).stdout(Stdio::null()).spawn().unwrap();
        let mut vm = guest(folder.path(), 1);
        let before = counters(&switch, limit);
        let began = std::time::Instant::now();
        let said = vm.run(&format!("iperf3 -c {HOST} -t 4 {flag}")).expect("it answers");
        let time = began.elapsed().as_secs_f64();
        let after = counters(&switch, limit);
        server.kill().unwrap();
        server.wait().unwrap();
        assert_eq!(said.status, 0, "{name}: {}", said.text);
        let passed = (after.passed_bytes - before.passed_bytes) as f64 * 8.0;
        println!("{name}: {:.1} Mbit/s over 4 s, {after:?}", passed / 4e6);
        assert!(passed > 0.85 * 4.0 * 40e6, "{name}: {passed} bits");
        assert!(passed < time * 40e6 + 25_000.0 * 8.0 + 65_536.0 * 8.0, "{name}: {passed} bits in {time} s");
        if mode == Mode::Gate {
            assert_eq!(after.dropped_rate, 0, "{name}: a gate holds back");
        }
        vm.kill();
        drop(switch);
    }
}
