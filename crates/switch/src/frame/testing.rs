//! Frames for tests, put together field by field, and the look of a receiver at one.

use core::net::IpAddr;

use proptest::prelude::*;
use weirgate_port::{Checksum, Gso, GsoKind, Offload};

use super::checksum::Sum;
use super::{Frame, Transport};

/// What a frame is to be. The default is 100 bytes of TCP over IPv4, untagged.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    /// `None`: from the IP header on.
    pub(crate) tags: Option<Vec<(u16, u16)>>,
    pub(crate) v6: bool,
    pub(crate) udp: bool,
    /// IPv4 options in words of four bytes, or a destination options header of as many words of eight where there are any.
    pub(crate) ip_options: u8,
    pub(crate) tcp_options: u8,
    pub(crate) id: u16,
    pub(crate) traffic_class: u8,
    pub(crate) sequence: u32,
    pub(crate) flags: u8,
    pub(crate) ports: (u16, u16),
    pub(crate) payload: Vec<u8>,
    /// Bytes behind the packet.
    pub(crate) padding: usize,
}

impl Default for Build {
    fn default() -> Self {
        Self {
            tags: Some(vec![]),
            v6: false,
            udp: false,
            ip_options: 0,
            tcp_options: 0,
            id: 0x1234,
            traffic_class: 0,
            sequence: 1,
            flags: 0x10,
            ports: (40_000, 443),
            payload: (0..100).collect(),
            padding: 0,
        }
    }
}

impl Build {
    pub(crate) fn addresses(&self) -> (IpAddr, IpAddr) {
        if self.v6 {
            ("2001:db8::1".parse().expect("an address"), "2001:db8:7::2".parse().expect("an address"))
        } else {
            ([192, 0, 2, 1].into(), [198, 51, 100, 2].into())
        }
    }

    /// The frame, all checksums done.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(tags) = &self.tags {
            bytes.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
            for (protocol, tag) in tags {
                bytes.extend(protocol.to_be_bytes().into_iter().chain(tag.to_be_bytes()));
            }
            bytes.extend(if self.v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
        }
        let transport = self.transport();
        self.network(&mut bytes, transport.len());
        bytes.extend(transport);
        bytes.resize(bytes.len() + self.padding, 0xee);
        bytes
    }

    /// The same from its receiver to its sender: IPv4, untagged.
    pub(crate) fn answered(&self) -> Vec<u8> {
        let mut bytes = self.bytes();
        // Sums do not change with the order of what they are of.
        for (a, b, len) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
            for n in 0..len {
                bytes.swap(a + n, b + n);
            }
        }
        bytes
    }

    fn network(&self, bytes: &mut Vec<u8>, transport_len: usize) {
        let protocol = if self.udp { 17 } else { 6 };
        let options = usize::from(self.ip_options);
        let (source, destination) = self.addresses();
        if self.v6 {
            bytes.extend([0x60 | self.traffic_class >> 4, self.traffic_class << 4 | 0x0a, 0xbc, 0xde]);
            bytes.extend(((transport_len + 8 * options) as u16).to_be_bytes());
            bytes.extend([if options == 0 { protocol } else { 60 }, 64]);
            octets(bytes, source);
            octets(bytes, destination);
            if options > 0 {
                // One PadN of all the room there is.
                bytes.extend([protocol, self.ip_options - 1, 1, (8 * options - 4) as u8]);
                bytes.resize(bytes.len() + 8 * options - 4, 0);
            }
        } else {
            let start = bytes.len();
            bytes.extend([0x45 + self.ip_options, self.traffic_class]);
            bytes.extend(((20 + 4 * options + transport_len) as u16).to_be_bytes());
            bytes.extend(self.id.to_be_bytes());
            bytes.extend([0x40, 0, 64, protocol, 0, 0]);
            octets(bytes, source);
            octets(bytes, destination);
            bytes.resize(bytes.len() + 4 * options, 1);
            let check = Sum::default().bytes(&bytes[start..]).checksum();
            bytes[start + 10..start + 12].copy_from_slice(&check.to_be_bytes());
        }
    }

    fn transport(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = [self.ports.0, self.ports.1].into_iter().flat_map(u16::to_be_bytes).collect();
        if self.udp {
            bytes.extend(((8 + self.payload.len()) as u16).to_be_bytes());
            bytes.extend([0, 0]);
        } else {
            bytes.extend(self.sequence.to_be_bytes());
            bytes.extend([0, 0, 0, 9, (5 + self.tcp_options) << 4, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
            bytes.resize(bytes.len() + 4 * usize::from(self.tcp_options), 1);
        }
        bytes.extend(&self.payload);
        let at = if self.udp { 6 } else { 16 };
        let check = match self.pseudo_header(bytes.len()).bytes(&bytes).checksum() {
            0 if self.udp => 0xffff,
            check => check,
        };
        bytes[at..at + 2].copy_from_slice(&check.to_be_bytes());
        bytes
    }

    fn pseudo_header(&self, len: usize) -> Sum {
        let (source, destination) = self.addresses();
        Sum::default().pseudo_header(source, destination, if self.udp { 17 } else { 6 }, len as u32)
    }

    /// The same as a super-packet, its checksum left to the device.
    pub(crate) fn super_packet(&self, gso_size: u16) -> (Vec<u8>, Offload) {
        let mut bytes = self.bytes();
        let len = self.transport().len();
        let start = bytes.len() - self.padding - len;
        let offset = if self.udp { 6 } else { 16 };
        let partial = self.pseudo_header(len).fold();
        bytes[start + offset..start + offset + 2].copy_from_slice(&partial.to_be_bytes());
        let kind = match (self.udp, self.v6) {
            (true, _) => GsoKind::Udp,
            (false, true) => GsoKind::TcpV6,
            (false, false) => GsoKind::TcpV4,
        };
        let offload = Offload {
            checksum: Checksum::Partial { start: start as u16, offset: offset as u16 },
            gso: Some(Gso { kind, size: gso_size.try_into().expect("not 0"), ecn: self.flags & 0x80 != 0 }),
            header_len: (start + if self.udp { 8 } else { 20 + 4 * usize::from(self.tcp_options) }) as u16,
        };
        (bytes, offload)
    }

    /// Read as what it is.
    pub(crate) fn parse(&self, bytes: &[u8]) -> Frame {
        let frame = if self.tags.is_some() { Frame::ethernet(bytes) } else { Frame::ip(bytes) };
        frame.expect("what was built is a frame")
    }
}

fn octets(bytes: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(a) => bytes.extend(a.octets()),
        IpAddr::V6(a) => bytes.extend(a.octets()),
    }
}

/// Whether the IPv4 header's and the transport's checksums are right, as the receiver looks.
pub(crate) fn checksums_verify(bytes: &[u8], frame: &Frame) -> bool {
    let ip = frame.ip.expect("an IP packet");
    let start = usize::from(ip.offset);
    let header = &bytes[start..start + usize::from(ip.header_len)];
    let transport = &bytes[ip.transport_offset()..start + ip.total_len as usize];
    let pseudo = Sum::default().pseudo_header(ip.source, ip.destination, ip.protocol, transport.len() as u32);
    let header_ok = !ip.source.is_ipv4() || Sum::default().bytes(header).checksum() == 0;
    header_ok && (ip.transport == Transport::Other || pseudo.bytes(transport).checksum() == 0)
}

/// Any frame of up to `payload` bytes of payload.
pub(crate) fn any_build(payload: usize) -> impl Strategy<Value = Build> {
    let tag = (prop_oneof![Just(0x8100_u16), Just(0x88a8)], any::<u16>());
    let place =
        (prop::option::of(prop::collection::vec(tag, 0..3)), any::<bool>(), any::<bool>(), 0_u8..=10, 0_u8..=10);
    let fields = (any::<u16>(), any::<u8>(), any::<u32>(), any::<u8>(), any::<(u16, u16)>());
    (place, fields, prop::collection::vec(any::<u8>(), 0..=payload), 0_usize..30).prop_map(
        |((tags, v6, udp, ip_options, tcp_options), (id, traffic_class, sequence, flags, ports), payload, padding)| {
            Build {
                tags,
                v6,
                udp,
                ip_options,
                tcp_options,
                id,
                traffic_class,
                sequence,
                flags,
                ports,
                payload,
                padding,
            }
        },
    )
}
