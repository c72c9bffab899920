//! Cutting a super-packet, as the kernel does where a device cannot. Read first: net/ipv4/tcp_offload.c (`tcp_gso_segment`),
//! net/ipv4/udp_offload.c (`__udp_gso_segment`), net/ipv4/af_inet.c (`inet_gso_segment`) and net/ipv6/ip6_offload.c
//! (`ipv6_gso_segment`). A test of `weirgate-linux` has the kernel cut the same super-packets and compares every byte.
//!
//! What changes from one packet to the next: the IP length; the IPv4 identification, which goes up by one for every packet *on
//! the wire* (so a smaller super-packet takes as many as it will become) and the IPv4 header's checksum; TCP's sequence number,
//! FIN and PSH, which only the last packet keeps, CWR, which only the first keeps; UDP's length; the transport checksum. All
//! else is the super-packet's in each of them.
//!
//! Two things that the kernel does and this does not: with accurate ECN (`SKB_GSO_TCP_ACCECN`) it keeps CWR in all packets, but no
//! virtio-net header makes Linux 6.18 do so; and it drops a super-packet of TCP with options that is no longer than one segment
//! (`virtio_net_hdr_to_skb` takes it for longer, `tcp_gso_segment` refuses it), which is a packet here.

use core::net::IpAddr;

use weirgate_port::{Checksum, Gso, GsoKind, Offload, Packet};

use super::checksum::Sum;
use super::ip::{Fragment, Ip, TcpFlags, Transport};
use super::parse::Frame;

/// The most that all headers of a super-packet may take, in bytes. Ethernet with two tags, the longest IPv4 and the longest TCP
/// header are 142; the rest is for IPv6 extension headers.
pub const HEADERS_MAX: usize = 256;

/// Who sums the transport checksums of packets that need no further cutting. One that does is left partial in any case: who
/// cuts it sums it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    /// They are complete when they leave here, for a device that cannot.
    Software,
    /// They are left to the device: the field has the pseudo-header's sum ([`Checksum::Partial`]).
    Partial,
}

/// Why a packet cannot be cut. The values count from 0, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// No segmentation is asked for.
    #[error("not a super-packet")]
    NotSuper,
    /// The segmentation that is asked for is not for what the packet is, or the packet is a fragment.
    #[error("a segmentation of something else than what the packet is")]
    Mismatch,
    /// The checksum to be done is not the transport header's.
    #[error("a checksum elsewhere than in the transport header")]
    Checksum,
    /// Headers longer than [`HEADERS_MAX`].
    #[error("headers too long to be repeated")]
    Headers,
    /// The frame was read from other bytes.
    #[error("not the bytes that the frame was read from")]
    Bytes,
}

impl SegmentError {
    /// All of them, each at its own value.
    pub const ALL: [Self; 5] = [Self::NotSuper, Self::Mismatch, Self::Checksum, Self::Headers, Self::Bytes];
}

/// A super-packet that is being cut, an output at each step. Nothing is allocated; dropped half-way, the rest is not made.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    headers: Headers,
    ip: Ip,
    payload: &'a [u8],
    /// The sum of the pseudo-header but for its length.
    pseudo: Sum,
    gso: Gso,
    sums: Sums,
    /// The payload of each output but the last.
    step: usize,
    /// Where the next one begins; `None`: there is none.
    next: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Headers {
    bytes: [u8; HEADERS_MAX],
    len: u16,
}

/// One output of [`Segments`].
#[derive(Clone, Debug)]
pub struct Segment<'a> {
    headers: Headers,
    payload: &'a [u8],
    offload: Offload,
}

impl<'a> Segments<'a> {
    /// Cuts `bytes`, read as `frame` and to be segmented as `offload` says, into packets of at most `most` segments each: 1 gives
    /// packets as on the wire, more gives smaller super-packets. 0 is 1. There are at most 65,535 segments, of which each
    /// [`next`](Iterator::next) makes one, in time linear in its length where sums are done in software, and constant otherwise
    /// but for copying.
    ///
    /// # Errors
    /// [`SegmentError`], where the packet is not what is to be cut.
    pub fn new(bytes: &'a [u8], frame: &Frame, offload: &Offload, most: u16, sums: Sums) -> Result<Self, SegmentError> {
        let gso = offload.gso.ok_or(SegmentError::NotSuper)?;
        let ip = frame.ip.ok_or(SegmentError::Mismatch)?;
        let fits = match gso.kind {
            GsoKind::TcpV4 => ip.source.is_ipv4() && matches!(ip.transport, Transport::Tcp { .. }),
            GsoKind::TcpV6 => ip.source.is_ipv6() && matches!(ip.transport, Transport::Tcp { .. }),
            GsoKind::Udp => matches!(ip.transport, Transport::Udp { .. }),
        };
        if !fits || ip.fragment != Fragment::Whole {
            return Err(SegmentError::Mismatch);
        }
        let transport = ip.transport_offset();
        if let Checksum::Partial { start, offset } = offload.checksum
            && (usize::from(start), usize::from(offset)) != (transport, checksum_offset(gso.kind))
        {
            return Err(SegmentError::Checksum);
        }
        let headers_len = transport + usize::from(ip.transport.header_len());
        let mut headers = Headers { bytes: [0; HEADERS_MAX], len: headers_len as u16 };
        let place = headers.bytes.get_mut(..headers_len).ok_or(SegmentError::Headers)?;
        let end = usize::from(ip.offset) + ip.total_len as usize;
        let packet = bytes.get(..end).filter(|_| bytes.len() == frame.len).ok_or(SegmentError::Bytes)?;
        let (read, payload) = packet.split_at_checked(headers_len).ok_or(SegmentError::Bytes)?;
        place.copy_from_slice(read);
        let pseudo = match offload.checksum {
            // What the sender summed, which need not be what stands in the header: a source route leads to another destination
            // first (RFC 8200, section 8.1). Without its length: to add the complement is to subtract.
            Checksum::Partial { start, offset } => {
                let field = usize::from(start) + usize::from(offset);
                let len = packet.len() as u32 - transport as u32;
                Sum::default().bytes(&read[field..field + 2]).bytes(&(!len).to_be_bytes())
            }
            Checksum::Complete | Checksum::Valid => {
                Sum::default().pseudo_header(ip.source, ip.destination, ip.protocol, 0)
            }
        };
        let step = usize::from(gso.size.get()) * usize::from(most.max(1));
        Ok(Self { headers, ip, payload, pseudo, gso, sums, step, next: Some(0) })
    }

    /// All but the first segment, in one output, a super-packet where it is more than one; `None`: there is no other.
    pub fn without_first(&self) -> Option<Segment<'a>> {
        let size = usize::from(self.gso.size.get());
        (size < self.payload.len()).then(|| self.cut(size, self.payload.len()))
    }

    /// One output from `start` to `end` of the payload.
    fn cut(&self, start: usize, end: usize) -> Segment<'a> {
        let payload = &self.payload[start..end];
        let size = usize::from(self.gso.size.get());
        let is_first = start == 0;
        let is_super = payload.len() > size;
        let mut headers = self.headers;
        let transport = self.ip.transport_offset();
        let transport_len = usize::from(self.ip.transport.header_len()) + payload.len();

        let (network, rest) = headers.bytes.split_at_mut(transport);
        self.network(&mut network[usize::from(self.ip.offset)..], transport_len, start / size);

        let header = &mut rest[..usize::from(self.ip.transport.header_len())];
        match self.gso.kind {
            GsoKind::TcpV4 | GsoKind::TcpV6 => {
                let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
                header[4..8].copy_from_slice(&sequence.wrapping_add(start as u32).to_be_bytes());
                if end != self.payload.len() {
                    header[13] &= !(TcpFlags::FIN | TcpFlags::PSH);
                }
                if !is_first {
                    header[13] &= !TcpFlags::CWR;
                }
            }
            GsoKind::Udp => header[4..6].copy_from_slice(&(transport_len as u16).to_be_bytes()),
        }
        let at = checksum_offset(self.gso.kind);
        header[at..at + 2].fill(0);
        let pseudo = self.pseudo.bytes(&(transport_len as u32).to_be_bytes());
        let is_partial = is_super || self.sums == Sums::Partial;
        let sum = if is_partial {
            pseudo.fold()
        } else {
            match pseudo.bytes(header).bytes(payload).checksum() {
                // No checksum, in UDP (RFC 768).
                0 if self.gso.kind == GsoKind::Udp => 0xffff,
                check => check,
            }
        };
        header[at..at + 2].copy_from_slice(&sum.to_be_bytes());

        let checksum = if is_partial {
            Checksum::Partial { start: transport as u16, offset: at as u16 }
        } else {
            Checksum::Complete
        };
        let gso = is_super.then_some(Gso { ecn: self.gso.ecn && is_first, ..self.gso });
        let offload = Offload { checksum, gso, header_len: if is_super { headers.len } else { 0 } };
        Segment { headers, payload, offload }
    }

    /// The IP header over `transport_len` bytes that come after `before` other packets.
    fn network(&self, header: &mut [u8], transport_len: usize, before: usize) {
        match self.ip.source {
            IpAddr::V4(_) => {
                let total_len = header.len() + transport_len;
                header[2..4].copy_from_slice(&(total_len as u16).to_be_bytes());
                let id = u16::from_be_bytes([header[4], header[5]]).wrapping_add(before as u16);
                header[4..6].copy_from_slice(&id.to_be_bytes());
                header[10..12].fill(0);
                let check = Sum::default().bytes(header).checksum();
                header[10..12].copy_from_slice(&check.to_be_bytes());
            }
            IpAddr::V6(_) => {
                // The extension headers are payload by this length.
                let payload_len = header.len() - 40 + transport_len;
                header[4..6].copy_from_slice(&(payload_len as u16).to_be_bytes());
            }
        }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    fn next(&mut self) -> Option<Segment<'a>> {
        let start = self.next?;
        let end = self.payload.len().min(start + self.step);
        // A super-packet without a payload is one packet.
        self.next = (end < self.payload.len()).then_some(end);
        Some(self.cut(start, end))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.next.map_or(0, |next| (self.payload.len() - next).div_ceil(self.step).max(1));
        (left, Some(left))
    }
}

impl ExactSizeIterator for Segments<'_> {}

impl Segment<'_> {
    /// Its bytes in two pieces, headers and payload: for one `writev`, without copying the payload.
    pub fn parts(&self) -> [&[u8]; 2] {
        [&self.headers.bytes[..usize::from(self.headers.len)], self.payload]
    }

    /// What is still to be done to it.
    pub const fn offload(&self) -> &Offload {
        &self.offload
    }

    /// All of its bytes, in a packet of their own.
    pub fn packet(&self) -> Packet {
        let [headers, payload] = self.parts();
        let len = headers.len() + payload.len();
        let mut packet = Packet::with_capacity(len);
        packet.buffer_mut()[..headers.len()].copy_from_slice(headers);
        packet.buffer_mut()[headers.len()..len].copy_from_slice(payload);
        packet.set_len(len);
        packet.set_offload(self.offload);
        packet
    }
}

/// Where the checksum is in the transport header.
const fn checksum_offset(kind: GsoKind) -> usize {
    match kind {
        GsoKind::TcpV4 | GsoKind::TcpV6 => 16,
        GsoKind::Udp => 6,
    }
}

#[cfg(test)]
mod tests;
