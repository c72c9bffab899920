//! Where a frame's headers are and what they say. Read first: RFC 791 section 3.1 (IPv4), RFC 8200 sections 3 and 4 (IPv6 and
//! its extension headers), RFC 9293 section 3.1 (TCP), RFC 768 (UDP).

use core::net::{Ipv4Addr, Ipv6Addr};

use super::flow::{self, FlowKey};
use super::ip::{Ecn, Fragment, Ip, TcpFlags, Transport};
use super::link::{Link, Mac};

/// The most IPv6 extension headers that are gone through. Every one that is defined comes once, the destination options twice:
/// eight.
pub const EXTENSIONS_MAX: usize = 8;

/// The shortest frame without its check sequence, in bytes: what is shorter is padded by whoever sends it.
pub(super) const FRAME_MIN: usize = 60;

const TAG: u16 = 0x8100;
const TAG_OUTER: u16 = 0x88a8;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

const IPV4_HEADER_MIN: usize = 20;
const IPV6_HEADER: usize = 40;

/// What a frame's headers say. What is behind an IP packet's end (Ethernet's padding) is no part of anything here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// All bytes of it.
    pub len: usize,
    /// The Ethernet header; `None` where the frame began with the IP header.
    pub link: Option<Link>,
    /// The protocol behind the tags, as IANA numbers it; below 0x600 a length (IEEE 802.3).
    pub ethertype: u16,
    /// The IP packet; `None` is another protocol's frame, ARP's for one, or one behind a third tag.
    pub ip: Option<Ip>,
}

/// Why bytes are not a frame that can be sent on. The values count from 0, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Fewer bytes than Ethernet's header and its tags have.
    #[error("cut within the Ethernet header")]
    Ethernet,
    /// The ethertype, or the device, says IP, and the first four bits say another version.
    #[error("not the version of IP that was announced")]
    IpVersion,
    /// Fewer bytes than the IP header has, or it says that it has fewer than it must.
    #[error("an IP header that is cut or too short")]
    IpHeader,
    /// The IP packet is shorter than its header or longer than the frame: an IPv6 jumbogram too (RFC 2675).
    #[error("an IP length that cannot be")]
    IpLength,
    /// More than [`EXTENSIONS_MAX`] extension headers, or one that reaches past the packet's end.
    #[error("IPv6 extension headers that do not end")]
    Extensions,
    /// A TCP or UDP header that is cut, or too short by its own length. Of a datagram's first part too (RFC 1858).
    #[error("a transport header that is cut or too short")]
    Transport,
}

impl FrameError {
    /// All of them, each at its own value.
    pub const ALL: [Self; 6] =
        [Self::Ethernet, Self::IpVersion, Self::IpHeader, Self::IpLength, Self::Extensions, Self::Transport];
}

impl Frame {
    /// Reads a frame from its Ethernet header on, without preamble and frame check sequence: what a TAP or a network card gives.
    ///
    /// # Errors
    /// [`FrameError`] where it is cut or contradicts itself.
    pub fn ethernet(bytes: &[u8]) -> Result<Self, FrameError> {
        let header: &[u8; 12] = bytes.first_chunk().ok_or(FrameError::Ethernet)?;
        let mac = |at: usize| Mac(core::array::from_fn(|n| header[at + n]));
        let mut link = Link { destination: mac(0), source: mac(6), vlan: None, tags: 0 };
        let mut ethertype = word(bytes, 12).ok_or(FrameError::Ethernet)?;
        while link.tags < 2 && (ethertype == TAG || ethertype == TAG_OUTER) {
            let tag = usize::from(link.header_len());
            let id = word(bytes, tag).ok_or(FrameError::Ethernet)? & 0xfff;
            ethertype = word(bytes, tag + 2).ok_or(FrameError::Ethernet)?;
            link.vlan.get_or_insert(id);
            link.tags += 1;
        }
        let ip = match ethertype {
            IPV4 => Some(ipv4(bytes, link.header_len())?),
            IPV6 => Some(ipv6(bytes, link.header_len())?),
            _ => None,
        };
        Ok(Self { len: bytes.len(), link: Some(link), ethertype, ip })
    }

    /// Reads a packet from its IP header on: what a TUN gives.
    ///
    /// # Errors
    /// [`FrameError`] where it is cut or contradicts itself, or is not IP.
    pub fn ip(bytes: &[u8]) -> Result<Self, FrameError> {
        let (ethertype, ip) = match bytes.first().ok_or(FrameError::IpHeader)? >> 4 {
            4 => (IPV4, ipv4(bytes, 0)?),
            6 => (IPV6, ipv6(bytes, 0)?),
            _ => return Err(FrameError::IpVersion),
        };
        Ok(Self { len: bytes.len(), link: None, ethertype, ip: Some(ip) })
    }

    /// Where it ends by its own headers: behind the IP packet, or the padding of a short frame. What a sender put behind that is
    /// nobody's, and is counted by no [layer](super::Layer).
    pub fn end(&self) -> usize {
        let Some(ip) = &self.ip else { return self.len };
        let packet = usize::from(ip.offset) + ip.total_len as usize;
        if self.link.is_some() { packet.max(FRAME_MIN).min(self.len) } else { packet }
    }

    /// Which flow it belongs to; `None` where it is not IP.
    pub fn flow(&self) -> Option<FlowKey> {
        let ip = self.ip.as_ref()?;
        let (source_port, destination_port) = ip.flow_ports();
        let (source, destination, protocol) = (ip.source, ip.destination, ip.protocol);
        Some(FlowKey { source, destination, protocol, source_port, destination_port })
    }

    /// [`FlowKey::hash`] of its flow; `None` where it is not IP.
    pub fn flow_hash(&self, seed: u64) -> Option<u64> {
        let ip = self.ip.as_ref()?;
        Some(flow::hash(seed, &ip.source, &ip.destination, ip.protocol, ip.flow_ports()))
    }

    /// The VLAN that it belongs to; 0 where it is untagged or has a priority tag.
    pub fn vlan(&self) -> u16 {
        self.link.and_then(|link| link.vlan).unwrap_or(0)
    }
}

#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}

#[inline(always)]
fn ipv4(frame: &[u8], offset: u16) -> Result<Ip, FrameError> {
    let bytes = frame.get(usize::from(offset)..).unwrap_or_default();
    let header: &[u8; IPV4_HEADER_MIN] = bytes.first_chunk().ok_or(FrameError::IpHeader)?;
    if header[0] >> 4 != 4 {
        return Err(FrameError::IpVersion);
    }
    let header_len = usize::from(header[0] & 15) * 4;
    if header_len < IPV4_HEADER_MIN || header_len > bytes.len() {
        return Err(FrameError::IpHeader);
    }
    let total_len = u16::from_be_bytes([header[2], header[3]]);
    let packet = bytes.get(..usize::from(total_len)).filter(|p| p.len() >= header_len).ok_or(FrameError::IpLength)?;
    let fragment = match u16::from_be_bytes([header[6], header[7]]) {
        place if place & 0x1fff != 0 => Fragment::Later,
        place if place & 0x2000 != 0 => Fragment::First,
        _ => Fragment::Whole,
    };
    Ok(Ip {
        offset,
        source: Ipv4Addr::new(header[12], header[13], header[14], header[15]).into(),
        destination: Ipv4Addr::new(header[16], header[17], header[18], header[19]).into(),
        dscp: header[1] >> 2,
        ecn: Ecn::of(header[1]),
        protocol: header[9],
        header_len: header_len as u16,
        total_len: total_len.into(),
        fragment,
        transport: transport(header[9], fragment, &packet[header_len..])?,
    })
}

fn ipv6(frame: &[u8], offset: u16) -> Result<Ip, FrameError> {
    let bytes = frame.get(usize::from(offset)..).unwrap_or_default();
    let header: &[u8; IPV6_HEADER] = bytes.first_chunk().ok_or(FrameError::IpHeader)?;
    if header[0] >> 4 != 6 {
        return Err(FrameError::IpVersion);
    }
    let total_len = IPV6_HEADER + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let packet = bytes.get(..total_len).ok_or(FrameError::IpLength)?;
    let (protocol, header_len, fragment) = extensions(packet, header[6])?;
    let traffic_class = header[0] << 4 | header[1] >> 4;
    let address = |at: usize| Ipv6Addr::from_octets(core::array::from_fn(|n| header[at + n]));
    Ok(Ip {
        offset,
        source: address(8).into(),
        destination: address(24).into(),
        dscp: traffic_class >> 2,
        ecn: Ecn::of(traffic_class),
        protocol,
        header_len: header_len as u16,
        total_len: total_len as u32,
        fragment,
        transport: transport(protocol, fragment, &packet[header_len..])?,
    })
}

/// The protocol behind the extension headers, their end, and whether one of them said that this is a fragment. Encrypted
/// payload (ESP) is a protocol; behind a later fragment's header there is payload only.
fn extensions(packet: &[u8], mut next: u8) -> Result<(u8, usize, Fragment), FrameError> {
    let mut at = IPV6_HEADER;
    let mut fragment = Fragment::Whole;
    for _ in 0..=EXTENSIONS_MAX {
        // Hop by hop, routing, fragment, authentication, destination options, mobility, HIP, shim6 (IANA, "IPv6 Extension
        // Header Types"). The authentication header counts in words of four bytes, without the first two.
        if fragment == Fragment::Later || !matches!(next, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140) {
            return Ok((next, at, fragment));
        }
        let head: &[u8; 4] = packet.get(at..).and_then(<[u8]>::first_chunk).ok_or(FrameError::Extensions)?;
        let len = match next {
            44 => {
                // Neither a place nor more to come: an "atomic" fragment is a whole datagram (RFC 6946).
                let place = u16::from_be_bytes([head[2], head[3]]);
                if place >> 3 != 0 {
                    fragment = Fragment::Later;
                } else if place & 1 != 0 {
                    fragment = Fragment::First;
                }
                8
            }
            51 => (usize::from(head[1]) + 2) * 4,
            _ => (usize::from(head[1]) + 1) * 8,
        };
        next = head[0];
        at += len;
        if at > packet.len() {
            return Err(FrameError::Extensions);
        }
    }
    Err(FrameError::Extensions)
}

#[inline(always)]
fn transport(protocol: u8, fragment: Fragment, bytes: &[u8]) -> Result<Transport, FrameError> {
    if fragment == Fragment::Later {
        return Ok(Transport::Other);
    }
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    match protocol {
        6 => {
            let header: &[u8; 20] = bytes.first_chunk().ok_or(FrameError::Transport)?;
            let header_len = u16::from(header[12] >> 4) * 4;
            if header_len < 20 || usize::from(header_len) > bytes.len() {
                return Err(FrameError::Transport);
            }
            Ok(Transport::Tcp { source: port(0), destination: port(2), header_len, flags: TcpFlags(header[13]) })
        }
        17 if bytes.len() < 8 => Err(FrameError::Transport),
        17 => Ok(Transport::Udp { source: port(0), destination: port(2) }),
        _ => Ok(Transport::Other),
    }
}

#[cfg(test)]
mod tests;
