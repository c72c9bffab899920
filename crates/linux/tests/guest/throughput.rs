//! iperf3 between the guest and a namespace, through the device and a TAP: super-packets and missing checksums both ways.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use weirgate_linux::netns::Netns;
use weirgate_linux::vhost::{FRAME_MAX, TransmitError, VhostUser, VnetHeader};
use weirgate_linux::wait::Waiter;
use weirgate_units::Duration;
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{HOST, device, guest, place};

/// The guest's token in the waiter, and the TAP's.
const VM: u64 = 0;
const TAP: u64 = 1;

/// A named namespace with a TAP in it that has the host's address.
struct Place {
    name: String,
    tap: File,
}

impl Place {
    fn make() -> Option<Self> {
        let name = format!("vhost-{}", std::process::id());
        let made =
            Command::new("ip").args(["netns", "add", &name]).output().is_ok_and(|output| output.status.success());
        if !made {
            println!("SKIPPED: no network namespace for the other end: run it as root, with iproute2");
            return None;
        }
        let ns = Netns::by_name(&name).expect("it was made");
        let tap = ns.within(tap).expect("can be entered");
        let place = Self { name, tap };
        place.ip(&format!("addr add {HOST}/24 dev tap0"));
        place.ip("link set tap0 up");
        Some(place)
    }

    fn ip(&self, arguments: &str) {
        let status = Command::new("ip").args(["-n", &self.name]).args(arguments.split(' ')).status();
        assert!(status.is_ok_and(|status| status.success()), "ip {arguments}");
    }

    fn iperf_server(&self) -> Child {
        let mut server = Command::new("ip");
        server.args(["netns", "exec", &self.name, "iperf3", "-s"]).stdout(Stdio::null()).spawn().expect("iperf3 runs")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// A TAP of the calling thread's namespace, with the header of twelve bytes, checksum offload and TSO.
fn tap() -> File {
    #[repr(C)]
    struct Request {
        name: [u8; 16],
        flags: libc::c_short,
        rest: [u8; 22],
    }
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
    let file = file.expect("there is a TUN driver");
    let mut request = Request { name: [0; 16], flags: 0, rest: [0; 22] };
    request.name[..4].copy_from_slice(b"tap0");
    request.flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes a `struct ifreq`, which `request` is and which outlives the call.
    assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) }, 0);
    let len: libc::c_int = 12;
    // SAFETY: TUNSETVNETHDRSZ reads an int that outlives the call.
    assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const len) }, 0);
    let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    // SAFETY: TUNSETOFFLOAD takes its flags by value.
    assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads)) }, 0);
    file
}

/// A switch of two ports: no frame is dropped on the way to the guest, it waits in the TAP.
fn forward(device: &VhostUser, tap: &File, stop: &AtomicBool) {
    let mut waiter = Waiter::new().expect("epoll works");
    waiter.add(device.queue_fd(0), VM).expect("can be waited for");
    waiter.add(tap, TAP).expect("can be waited for");
    let mut buffer = vec![0; VnetHeader::LEN + FRAME_MAX];
    let mut whole = Vec::with_capacity(buffer.len());
    // A frame that the guest had no room for.
    let mut kept: Option<usize> = None;
    let mut more = false;
    while !stop.load(Ordering::Relaxed) {
        let timeout = if more { Duration::ZERO } else { Duration::from_millis(20) };
        let ready: Vec<u64> = waiter.wait(Some(timeout)).expect("waits").collect();
        let events = if ready.contains(&VM) { device.events(0) } else { Default::default() };
        if events.sent || events.state || more {
            let received = device.receive(0, 64, &mut |frame| {
                whole.clear();
                whole.extend_from_slice(frame.header.as_bytes());
                whole.extend_from_slice(frame.bytes);
                // A full TAP or one that is down drops, as any cable does.
                let _ = rustix::io::write(tap, &whole);
            });
            more = received.more;
        }
        for _ in 0..64 {
            let Some(len) = kept.take().or_else(|| rustix::io::read(tap, &mut buffer).ok()) else { break };
            let (header, bytes) = VnetHeader::read_from_prefix(&buffer[..len]).expect("the kernel's header");
            match device.transmit(0, &header, bytes) {
                Ok(()) | Err(TransmitError::Down) => {}
                Err(TransmitError::Full) => {
                    kept = Some(len);
                    break;
                }
                Err(e) => panic!("{e}: {header:?}, {} B", bytes.len()),
            }
        }
    }
}

/// Bits per second received, as iperf3 says.
fn rate(said: &str) -> f64 {
    let end = said.split("\"sum_received\"").nth(1).expect("a result");
    let rate = end.split("\"bits_per_second\":").nth(1).expect("a rate");
    rate.trim_start().split([',', '\n', '}']).next().expect("a number").trim().parse().expect("a number")
}

#[test]
fn super_packets_go_both_ways_through_a_tap() {
    let Some(folder) = place() else { return };
    let Some(there) = Place::make() else { return };
    let device = device(folder.path(), 1);
    let stop = AtomicBool::new(false);
    let mut server = there.iperf_server();
    std::thread::scope(|scope| {
        scope.spawn(|| forward(&device, &there.tap, &stop));
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut vm = guest(folder.path(), 1);
            for (way, flag) in [("out of the guest", ""), ("into the guest", "-R")] {
                let before = device.counters();
                let said = vm.run(&format!("iperf3 -c {HOST} -t 3 -J {flag}")).expect("it answers");
                assert_eq!(said.status, 0, "{way}: {}", said.text);
                let (after, rate) = (device.counters(), rate(&said.text));
                let (frames, bytes) = match flag {
                    "" => (after.received - before.received, after.received_bytes - before.received_bytes),
                    _ => (after.transmitted - before.transmitted, after.transmitted_bytes - before.transmitted_bytes),
                };
                println!("{way}: {:.2} Gbit/s, {} B a frame, {after:?}", rate / 1e9, bytes / frames);
                assert!(rate > 1e8, "{way}: {rate} bit/s");
                assert!(bytes / frames > 3_000, "{way}: no super-packets");
                assert_eq!((after.bad_chains, after.bad_headers, after.broken_rings), (0, 0, 0));
            }
        }));
        stop.store(true, Ordering::Relaxed);
        let _ = server.kill();
        let _ = server.wait();
        if let Err(panic) = run {
            std::panic::resume_unwind(panic);
        }
    });
}
