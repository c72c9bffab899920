//! What a packet's sender left for the device to do: a checksum, a segmentation. Read first: virtio 1.2, section 5.1.6
//! ("Device operation"), and the kernel's include/uapi/linux/virtio_net.h (`struct virtio_net_hdr_v1`) and
//! include/linux/virtio_net.h (`virtio_net_hdr_to_skb`), which reads the same bytes on a TAP's other side.

use core::num::NonZeroU16;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// The value of a virtio-net header. The default asks for nothing: the packet is as it goes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// How far the checksum of the transport header is done.
    pub checksum: Checksum,
    /// Into what the packet is to be cut; `None` is one packet on the wire.
    pub gso: Option<Gso>,
    /// The length of all headers, in bytes, as the sender has it; 0 where it does not say. A hint: whoever cuts the packet
    /// parses it.
    pub header_len: u16,
}

/// How far a transport checksum is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// It is in the packet, and nobody has looked whether it is right.
    #[default]
    Complete,
    /// It has been found to be right, or the packet never left a memory.
    Valid,
    /// The field holds the sum of the pseudo-header only. What is to be put there is the checksum from `start` to the
    /// packet's end.
    Partial {
        /// Where the summed part begins, in bytes from the packet's first.
        start: u16,
        /// Where the field is, in bytes from `start`.
        offset: u16,
    },
}

/// A segmentation that is still to be done ("generic segmentation offload").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Of what.
    pub kind: GsoKind,
    /// The payload of each packet but the last, in bytes: TCP's segment size without options.
    pub size: NonZeroU16,
    /// The TCP header has CWR set, which only the first packet may keep (RFC 3168, section 6.1.2).
    pub ecn: bool,
}

/// What is to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP over either; every packet becomes a datagram of its own.
    Udp,
}

/// Why bytes are not a header that can be relied on. Such a packet is dropped; the values count from 0, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OffloadError {
    /// Fewer bytes than the header has.
    #[error("too short for a virtio-net header")]
    Short,
    /// A segmentation that was never offered: UDP fragmentation, or one that is not known.
    #[error("a segmentation that was not offered")]
    GsoType,
    /// Segments without a payload.
    #[error("a segment size of 0")]
    GsoSize,
    /// Headers longer than the packet.
    #[error("headers longer than the packet")]
    HeaderLength,
    /// A checksum that lies outside of the packet.
    #[error("a checksum field outside of the packet")]
    ChecksumPlace,
}

impl OffloadError {
    /// All of them, each at its own value.
    pub const ALL: [Self; 5] = [Self::Short, Self::GsoType, Self::GsoSize, Self::HeaderLength, Self::ChecksumPlace];
}

impl Offload {
    /// The length of `struct virtio_net_hdr_v1`: modern virtio, and a TAP whose TUNSETVNETHDRSZ says so.
    pub const LEN: usize = 12;

    /// The length of `struct virtio_net_hdr`, without `num_buffers`: legacy virtio, and a TAP unless told otherwise.
    pub const LEN_SHORT: usize = 10;

    /// Reads a header of either length that stands before a packet of `packet_len` bytes; what is behind the first ten bytes
    /// (the number of buffers) is whoever filled them's affair. Flags that are not known are ignored, as the standard wants.
    ///
    /// # Errors
    /// [`OffloadError`], where the header asks for what was not offered or contradicts the packet's length. Whether it fits
    /// the packet's own headers is seen when they are parsed.
    pub fn from_bytes(header: &[u8], packet_len: usize) -> Result<Self, OffloadError> {
        let header: &[u8; Self::LEN_SHORT] = header.first_chunk().ok_or(OffloadError::Short)?;
        let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let kind = match header[1] & !GSO_ECN {
            GSO_NONE if header[1] == GSO_NONE => None,
            GSO_TCPV4 => Some(GsoKind::TcpV4),
            GSO_TCPV6 => Some(GsoKind::TcpV6),
            GSO_UDP_L4 => Some(GsoKind::Udp),
            _ => return Err(OffloadError::GsoType),
        };
        let gso = match kind {
            None => None,
            Some(kind) => {
                let size = NonZeroU16::new(word(4)).ok_or(OffloadError::GsoSize)?;
                Some(Gso { kind, size, ecn: header[1] & GSO_ECN != 0 })
            }
        };
        let header_len = word(2);
        if usize::from(header_len) > packet_len {
            return Err(OffloadError::HeaderLength);
        }
        let checksum = if header[0] & NEEDS_CSUM != 0 {
            let (start, offset) = (word(6), word(8));
            if usize::from(start) + usize::from(offset) + 2 > packet_len {
                return Err(OffloadError::ChecksumPlace);
            }
            Checksum::Partial { start, offset }
        } else if header[0] & DATA_VALID != 0 {
            Checksum::Valid
        } else {
            Checksum::Complete
        };
        Ok(Self { checksum, gso, header_len })
    }

    /// Writes it. `buffers` is how many of the receiver's buffers the packet takes: 1 towards a driver that did not ask for
    /// more, 0 towards a device or a TAP. The short form is the first [`LEN_SHORT`](Self::LEN_SHORT) bytes.
    pub fn to_bytes(self, buffers: u16) -> [u8; Self::LEN] {
        let (flags, start, offset) = match self.checksum {
            Checksum::Complete => (0, 0, 0),
            Checksum::Valid => (DATA_VALID, 0, 0),
            Checksum::Partial { start, offset } => (NEEDS_CSUM, start, offset),
        };
        let (kind, size) = self.gso.map_or((GSO_NONE, 0), |gso| {
            let kind = match gso.kind {
                GsoKind::TcpV4 => GSO_TCPV4,
                GsoKind::TcpV6 => GSO_TCPV6,
                GsoKind::Udp => GSO_UDP_L4,
            };
            (if gso.ecn { kind | GSO_ECN } else { kind }, gso.size.get())
        });
        let mut bytes = [0; Self::LEN];
        bytes[0] = flags;
        bytes[1] = kind;
        for (at, word) in [self.header_len, size, start, offset, buffers].into_iter().enumerate() {
            bytes[2 + 2 * at..4 + 2 * at].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_as_a_linux_guest_writes_it() {
        // A TCP super-packet over IPv4: partial checksum at 34 + 16, headers of 66 bytes (timestamps), segments of 1,448.
        let bytes = [1, 1, 66, 0, 0xa8, 0x05, 34, 0, 16, 0, 0, 0];
        let value = Offload {
            checksum: Checksum::Partial { start: 34, offset: 16 },
            gso: Some(Gso { kind: GsoKind::TcpV4, size: NonZeroU16::new(1_448).expect("not 0"), ecn: false }),
            header_len: 66,
        };
        assert_eq!(Offload::from_bytes(&bytes, 9_000), Ok(value));
        assert_eq!(Offload::from_bytes(&bytes[..10], 9_000), Ok(value));
        assert_eq!(value.to_bytes(0), bytes);
        assert_eq!(Offload::from_bytes(&[0; 10], 0), Ok(Offload::default()), "nothing to do");
    }

    #[test]
    fn a_header_that_lies_is_refused_and_why() {
        let read = |bytes: [u8; 10], len| Offload::from_bytes(&bytes, len).expect_err("it lies");
        assert_eq!(Offload::from_bytes(&[0; 9], 100), Err(OffloadError::Short));
        assert_eq!(read([0, 3, 0, 0, 8, 0, 0, 0, 0, 0], 100), OffloadError::GsoType, "UDP fragmentation");
        assert_eq!(read([0, 0x80, 0, 0, 8, 0, 0, 0, 0, 0], 100), OffloadError::GsoType, "ECN of nothing");
        assert_eq!(read([0, 1, 0, 0, 0, 0, 0, 0, 0, 0], 100), OffloadError::GsoSize);
        assert_eq!(read([0, 0, 101, 0, 0, 0, 0, 0, 0, 0], 100), OffloadError::HeaderLength);
        assert_eq!(read([1, 0, 0, 0, 0, 0, 83, 0, 16, 0], 100), OffloadError::ChecksumPlace, "by one byte");
        assert_eq!(read([1, 0, 0, 0, 0, 0, 255, 255, 255, 255], 100), OffloadError::ChecksumPlace);
        assert!(Offload::from_bytes(&[1, 0, 0, 0, 0, 0, 82, 0, 16, 0], 100).is_ok(), "the last two bytes");
    }

    #[test]
    fn reasons_count_from_zero() {
        for (at, reason) in OffloadError::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Any bytes get an answer, and what is read is the same when written and read again.
        #[test]
        fn what_is_read_is_read_again(bytes in prop::collection::vec(any::<u8>(), 0..14), len in 0_usize..70_000) {
            if let Ok(value) = Offload::from_bytes(&bytes, len) {
                prop_assert_eq!(Offload::from_bytes(&value.to_bytes(1), len), Ok(value));
            }
        }
    }
}
