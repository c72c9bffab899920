//! Super-packets, cut by the kernel and by us.
//!
//! The kernel gets them through a TUN device with a virtio-net header, forwards them to a second one that can neither sum nor
//! cut, and so cuts and sums them itself (`skb_segment`). What arrives there has to be ours to the byte, once ours has a hop
//! less, as a forwarded packet has.
#![allow(clippy::disallowed_methods, reason = "a real kernel takes real time")]

mod namespace;

use std::net::IpAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use weirgate_linux::netns::Netns;
use weirgate_linux::tun::{Tun, TunError};
use weirgate_port::{Checksum, Gso, GsoKind, Offload};
use weirgate_switch::frame::checksum::Sum;
use weirgate_switch::frame::{Frame, Segments, Sums, TcpFlags};

use namespace::{in_own_namespace, ip};

/// A host that forwards between two devices.
struct Forwarder {
    way_in: Tun,
    way_out: Tun,
}

impl Forwarder {
    /// In the thread's namespace. Prints why and gives `None` where there are no TUN devices.
    fn new() -> Option<Self> {
        let ns = Netns::current().unwrap();
        let way_in = match Tun::create_with_headers(&ns, "in") {
            Err(e @ TunError::Open(_)) => {
                println!("SKIPPED: no TUN device for this test ({e})");
                return None;
            }
            way_in => way_in.unwrap(),
        };
        let forwarder = Self { way_in, way_out: Tun::create(&ns, "out").unwrap() };
        for (device, v4, v6) in
            [("in", "192.0.2.254/24", "2001:db8::fe/64"), ("out", "198.51.100.254/24", "2001:db8:7::fe/64")]
        {
            ip(&format!("link set {device} addrgenmode none up"));
            ip(&format!("addr add {v4} dev {device}"));
            ip(&format!("addr add {v6} dev {device} nodad"));
        }
        for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            std::fs::write(format!("/proc/sys/net/{setting}"), "1").unwrap();
        }
        Some(forwarder)
    }

    /// Gives the kernel a packet, and takes what comes of it: so many packets, or however many there are after two seconds.
    fn forward(&self, packet: &[u8], offload: &Offload, count: usize) -> Vec<Vec<u8>> {
        let header = offload.to_bytes(0);
        self.way_in.send(&[&header[..Offload::LEN_SHORT], packet].concat()).expect("the kernel takes the packet");
        let (mut got, mut buffer) = (Vec::new(), vec![0; 65_536]);
        let start = Instant::now();
        while got.len() < count && start.elapsed() < Duration::from_secs(2) {
            match self.way_out.receive(&mut buffer).unwrap() {
                Some(len) if is_ours(&buffer[..len]) => got.push(buffer[..len].to_vec()),
                Some(_) => {}
                None => sleep(Duration::from_micros(100)),
            }
        }
        got
    }

    /// What is left there that nobody expects.
    fn rest(&self) -> usize {
        let mut buffer = vec![0; 65_536];
        std::iter::from_fn(|| self.way_out.receive(&mut buffer).unwrap().map(|len| is_ours(&buffer[..len])))
            .filter(|ours| *ours)
            .count()
    }
}

/// Not the kernel's own: multicast listener reports and such.
fn is_ours(bytes: &[u8]) -> bool {
    Frame::ip(bytes).is_ok_and(|frame| frame.ip.is_some_and(|ip| ip.transport.ports() == Some((40_000, 443))))
}

/// What a super-packet is to be.
#[derive(Clone, Debug)]
struct Case {
    v6: bool,
    udp: bool,
    /// With IPv4 options, or IPv6 destination options.
    ip_options: bool,
    tcp_options: Vec<u8>,
    flags: u8,
    do_not_fragment: bool,
    gso_size: u16,
    payload: usize,
}

impl Case {
    fn bytes(&self) -> (Vec<u8>, Offload) {
        let (from, to): (IpAddr, IpAddr) = if self.v6 {
            ("2001:db8::1".parse().unwrap(), "2001:db8:7::2".parse().unwrap())
        } else {
            ([192, 0, 2, 1].into(), [198, 51, 100, 2].into())
        };
        let protocol = if self.udp { 17 } else { 6 };
        let mut transport: Vec<u8> = [40_000_u16, 443].into_iter().flat_map(u16::to_be_bytes).collect();
        if self.udp {
            transport.extend(((8 + self.payload) as u16).to_be_bytes());
            transport.extend([0, 0]);
        } else {
            // The sequence numbers wrap within the packet.
            transport.extend([0xff, 0xff, 0xff, 0x80, 1, 2, 3, 4]);
            let words = 5 + self.tcp_options.len() as u8 / 4;
            transport.extend([words << 4, self.flags, 0x20, 0, 0, 0, 0, 7]);
            transport.extend(&self.tcp_options);
        }
        let header_len = transport.len();
        // Not periodic in any segment size that occurs.
        transport.extend((0..self.payload).map(|n| (n * 7 + n / 251) as u8));
        let check = if self.udp { 6 } else { 16 };
        let pseudo = Sum::default().pseudo_header(from, to, protocol, transport.len() as u32).fold();
        transport[check..check + 2].copy_from_slice(&pseudo.to_be_bytes());

        let mut bytes = self.network(from, to, protocol, transport.len());
        let start = bytes.len();
        bytes.extend(transport);
        let kind = match (self.udp, self.v6) {
            (true, _) => GsoKind::Udp,
            (false, true) => GsoKind::TcpV6,
            (false, false) => GsoKind::TcpV4,
        };
        let offload = Offload {
            checksum: Checksum::Partial { start: start as u16, offset: check as u16 },
            gso: Some(Gso {
                kind,
                size: self.gso_size.try_into().unwrap(),
                ecn: !self.udp && self.flags & TcpFlags::CWR != 0,
            }),
            header_len: (start + header_len) as u16,
        };
        (bytes, offload)
    }

    fn network(&self, from: IpAddr, to: IpAddr, protocol: u8, len: usize) -> Vec<u8> {
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let options: &[u8] = if self.ip_options { &[1, 1, 1, 1, 1, 1, 1, 0] } else { &[] };
                let mut bytes = vec![0x45 + options.len() as u8 / 4, 0x02];
                bytes.extend(((20 + options.len() + len) as u16).to_be_bytes());
                // The identification wraps as well.
                bytes.extend([0xff, 0xfe, if self.do_not_fragment { 0x40 } else { 0 }, 0, 64, protocol, 0, 0]);
                bytes.extend(from.octets().into_iter().chain(to.octets()).chain(options.iter().copied()));
                let check = Sum::default().bytes(&bytes).checksum();
                bytes[10..12].copy_from_slice(&check.to_be_bytes());
                bytes
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let options: &[u8] = if self.ip_options { &[protocol, 0, 1, 4, 0, 0, 0, 0] } else { &[] };
                let mut bytes = vec![0x60, 0x21, 0x23, 0x45];
                bytes.extend(((options.len() + len) as u16).to_be_bytes());
                bytes.extend([if self.ip_options { 60 } else { protocol }, 64]);
                bytes.extend(from.octets().into_iter().chain(to.octets()).chain(options.iter().copied()));
                bytes
            }
            _ => unreachable!("both of one family"),
        }
    }
}

/// A packet as it is one hop further on.
fn one_hop_further(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] >> 4 == 6 {
        packet[7] -= 1;
        return packet;
    }
    packet[8] -= 1;
    packet[10..12].fill(0);
    let header = usize::from(packet[0] & 15) * 4;
    let check = Sum::default().bytes(&packet[..header]).checksum();
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    packet
}

/// Has the kernel cut the super-packet, and smaller super-packets that we made of it, and compares both with what we cut.
fn compare(forwarder: &Forwarder, case: &Case) {
    let (bytes, offload) = case.bytes();
    let frame = Frame::ip(&bytes).unwrap();
    let cut = |most, sums| Segments::new(&bytes, &frame, &offload, most, sums).unwrap();
    let ours: Vec<_> =
        cut(1, Sums::Software).map(|segment| one_hop_further(segment.packet().bytes().to_vec())).collect();
    let kernel = forwarder.forward(&bytes, &offload, ours.len());
    assert_same(&kernel, &ours, case, "cut by the kernel alone");
    for most in [1, 2, 7] {
        let mut kernel = Vec::new();
        for segment in cut(most, Sums::Partial) {
            let count = segment.parts()[1].len().div_ceil(case.gso_size.into());
            kernel.extend(forwarder.forward(segment.packet().bytes(), segment.offload(), count));
        }
        // A sum of zero is written as 0xffff where the kernel finishes it, and as 0 where it cuts.
        let sums = |packets: &[Vec<u8>]| packets.iter().map(|packet| zero_in_one_form(packet)).collect::<Vec<_>>();
        assert_same(&sums(&kernel), &sums(&ours), case, &format!("cut by us into {most}, and by the kernel"));
    }
    assert_eq!(forwarder.rest(), 0, "{case:?}");
}

fn assert_same(kernel: &[Vec<u8>], ours: &[Vec<u8>], case: &Case, how: &str) {
    assert_eq!(kernel.len(), ours.len(), "packets, {how}: {case:?}");
    for (at, (kernel, ours)) in kernel.iter().zip(ours).enumerate() {
        assert_eq!(kernel.len(), ours.len(), "bytes of packet {at}, {how}: {case:?}");
        let different = kernel.iter().zip(ours).position(|(a, b)| a != b);
        assert_eq!(different, None, "first difference in packet {at}, {how}: {case:?}\n{kernel:x?}\n{ours:x?}");
    }
}

fn zero_in_one_form(packet: &[u8]) -> Vec<u8> {
    let ip = Frame::ip(packet).unwrap().ip.unwrap();
    let at = ip.transport_offset() + if ip.protocol == 17 { 6 } else { 16 };
    let mut packet = packet.to_vec();
    if packet[at..at + 2] == [0xff, 0xff] {
        packet[at..at + 2].fill(0);
    }
    packet
}

/// Timestamps, padded as Linux does.
const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0x30, 0x39, 0, 1, 0xe2, 0x40];

/// With the longest headers, a segment of 1,380 bytes is a packet of 1,488, within the MTU of 1,500.
fn cases(udp: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    let sizes = [(1_380, 2 * 1_380), (1_380, 45 * 1_380), (1_379, 10_001), (536, 1_609), (8, 129), (1_380, 1_381)];
    let (ack, all) =
        (TcpFlags::ACK, [0, TcpFlags::PSH, TcpFlags::PSH | TcpFlags::FIN, TcpFlags::CWR | 0x40 | TcpFlags::PSH]);
    let flags: &[u8] = if udp { &all[..1] } else { &all };
    let options: &[&[u8]] = if udp { &[&[]] } else { &[&[], &TIMESTAMPS, &[1; 40]] };
    for v6 in [false, true] {
        for flags in flags {
            for tcp_options in options {
                for (gso_size, payload) in sizes {
                    cases.push(Case {
                        v6,
                        udp,
                        ip_options: payload % 2 == 1,
                        tcp_options: tcp_options.to_vec(),
                        flags: ack | flags,
                        do_not_fragment: payload % 3 != 0,
                        gso_size,
                        payload,
                    });
                }
            }
        }
    }
    cases
}

#[test]
fn tcp_is_cut_as_the_kernel_cuts_it() {
    in_own_namespace(|| {
        let Some(forwarder) = Forwarder::new() else { return };
        let cases = cases(false);
        assert!(cases.len() > 100);
        cases.iter().for_each(|case| compare(&forwarder, case));
    });
}

#[test]
fn udp_is_cut_as_the_kernel_cuts_it() {
    in_own_namespace(|| {
        let Some(forwarder) = Forwarder::new() else { return };
        cases(true).iter().for_each(|case| compare(&forwarder, case));
    });
}
