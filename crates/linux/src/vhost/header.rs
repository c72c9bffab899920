//! The header that virtio-net puts before every frame: what is left for the device to do. See virtio 1.2, section 5.1.6,
//! and linux/virtio_net.h.

use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_ECN, VIRTIO_NET_F_GUEST_TSO4,
    VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_HOST_ECN, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6,
};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `struct virtio_net_hdr_v1`. Its first ten bytes are the header that a TAP device takes and gives with `IFF_VNET_HDR`
/// (in the host's byte order there: the same on little-endian hosts), all twelve with a `TUNSETVNETHDRSZ` of 12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct VnetHeader {
    /// [`VnetHeader::NEEDS_CSUM`], [`VnetHeader::DATA_VALID`].
    pub flags: u8,
    /// How the frame is to be cut into segments: a `GSO_` constant, perhaps with [`VnetHeader::GSO_ECN`].
    pub gso_type: u8,
    /// Bytes of headers to be repeated in each segment: a hint.
    pub hdr_len: U16,
    /// Bytes of payload in each segment.
    pub gso_size: U16,
    /// Where the bytes to be summed begin, in bytes from the frame's start.
    pub csum_start: U16,
    /// Where the sum goes, in bytes from `csum_start`.
    pub csum_offset: U16,
    /// Receive buffers that the frame is in; the device sets it.
    pub num_buffers: U16,
}

/// Why a header makes no sense for its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The checksum, or the headers, lie outside the frame.
    #[error("it points outside the frame")]
    Outside,
    /// Segments of no length, or without a checksum.
    #[error("its segments are not possible")]
    Segments,
    /// Asks for what was not negotiated.
    #[error("it asks for an offload that was not negotiated")]
    Offload,
}

/// What may be left undone in one direction, as negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// A frame may come without its TCP or UDP checksum.
    pub csum: bool,
    /// TCP over IPv4 may come unsegmented.
    pub tso4: bool,
    /// TCP over IPv6 may come unsegmented.
    pub tso6: bool,
    /// Unsegmented TCP may have CWR set.
    pub ecn: bool,
}

impl VnetHeader {
    /// Its length in bytes.
    pub const LEN: usize = size_of::<Self>();
    /// The checksum at `csum_start + csum_offset` is yet to be made.
    pub const NEEDS_CSUM: u8 = 1;
    /// The checksum was found to be right.
    pub const DATA_VALID: u8 = 2;
    /// One packet.
    pub const GSO_NONE: u8 = 0;
    /// TCP over IPv4.
    pub const GSO_TCPV4: u8 = 1;
    /// TCP over IPv6.
    pub const GSO_TCPV6: u8 = 4;
    /// The first segment alone has CWR.
    pub const GSO_ECN: u8 = 0x80;

    /// Whether it can be believed for a frame of `len` bytes where `offloads` were negotiated.
    ///
    /// # Errors
    /// [`HeaderError`].
    pub fn check(&self, len: usize, offloads: Offloads) -> Result<(), HeaderError> {
        let needs_csum = self.flags & Self::NEEDS_CSUM != 0;
        if needs_csum && !offloads.csum {
            return Err(HeaderError::Offload);
        }
        if needs_csum && usize::from(self.csum_start.get()) + usize::from(self.csum_offset.get()) + 2 > len {
            return Err(HeaderError::Outside);
        }
        let negotiated = match self.gso_type & !Self::GSO_ECN {
            Self::GSO_NONE => return Ok(()),
            Self::GSO_TCPV4 => offloads.tso4,
            Self::GSO_TCPV6 => offloads.tso6,
            _ => false,
        };
        if !negotiated || (self.gso_type & Self::GSO_ECN != 0 && !offloads.ecn) {
            return Err(HeaderError::Offload);
        }
        if !needs_csum || self.gso_size.get() == 0 {
            return Err(HeaderError::Segments);
        }
        if usize::from(self.hdr_len.get()) > len { Err(HeaderError::Outside) } else { Ok(()) }
    }
}

const fn has(features: u64, bit: u32) -> bool {
    features & (1 << bit) != 0
}

impl Offloads {
    /// All that this device knows.
    pub const ALL: Self = Self { csum: true, tso4: true, tso6: true, ecn: true };

    /// What the guest may leave to the device.
    pub(super) const fn from_guest(features: u64) -> Self {
        Self {
            csum: has(features, VIRTIO_NET_F_CSUM),
            tso4: has(features, VIRTIO_NET_F_HOST_TSO4),
            tso6: has(features, VIRTIO_NET_F_HOST_TSO6),
            ecn: has(features, VIRTIO_NET_F_HOST_ECN),
        }
    }

    /// What the device may leave to the guest.
    pub(super) const fn to_guest(features: u64) -> Self {
        Self {
            csum: has(features, VIRTIO_NET_F_GUEST_CSUM),
            tso4: has(features, VIRTIO_NET_F_GUEST_TSO4),
            tso6: has(features, VIRTIO_NET_F_GUEST_TSO6),
            ecn: has(features, VIRTIO_NET_F_GUEST_ECN),
        }
    }

    /// Both directions' feature bits.
    pub(super) const fn features(self) -> u64 {
        let mut features = 0;
        if self.csum {
            features |= 1 << VIRTIO_NET_F_CSUM | 1 << VIRTIO_NET_F_GUEST_CSUM;
        }
        // Segmentation without checksums cannot be (virtio 1.2, section 5.1.3.1), nor ECN without segmentation.
        if self.csum && self.tso4 {
            features |= 1 << VIRTIO_NET_F_HOST_TSO4 | 1 << VIRTIO_NET_F_GUEST_TSO4;
        }
        if self.csum && self.tso6 {
            features |= 1 << VIRTIO_NET_F_HOST_TSO6 | 1 << VIRTIO_NET_F_GUEST_TSO6;
        }
        if self.csum && self.ecn && (self.tso4 || self.tso6) {
            features |= 1 << VIRTIO_NET_F_HOST_ECN | 1 << VIRTIO_NET_F_GUEST_ECN;
        }
        features
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_believed_only_where_it_can_be_true() {
        let tso = VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            gso_type: VnetHeader::GSO_TCPV4,
            hdr_len: 54.into(),
            gso_size: 1_448.into(),
            csum_start: 34.into(),
            csum_offset: 16.into(),
            num_buffers: 0.into(),
        };
        assert_eq!(VnetHeader::LEN, 12);
        assert_eq!(tso.check(9_000, Offloads::ALL), Ok(()));
        assert_eq!(VnetHeader::default().check(14, Offloads::default()), Ok(()));
        assert_eq!(tso.check(9_000, Offloads::default()), Err(HeaderError::Offload));
        assert_eq!(tso.check(51, Offloads::ALL), Err(HeaderError::Outside));
        assert_eq!(tso.check(53, Offloads::ALL), Err(HeaderError::Outside));
        assert_eq!(VnetHeader { gso_size: 0.into(), ..tso }.check(9_000, Offloads::ALL), Err(HeaderError::Segments));
        assert_eq!(VnetHeader { flags: 0, ..tso }.check(9_000, Offloads::ALL), Err(HeaderError::Segments));
        assert_eq!(VnetHeader { gso_type: 3, ..tso }.check(9_000, Offloads::ALL), Err(HeaderError::Offload));
        let without_ecn = Offloads { ecn: false, ..Offloads::ALL };
        let ecn = VnetHeader { gso_type: VnetHeader::GSO_TCPV4 | VnetHeader::GSO_ECN, ..tso };
        assert_eq!(ecn.check(9_000, without_ecn), Err(HeaderError::Offload));
    }

    #[test]
    fn feature_bits_and_offloads_are_one() {
        for offloads in [Offloads::ALL, Offloads::default(), Offloads { tso6: false, ..Offloads::ALL }] {
            assert_eq!(Offloads::from_guest(offloads.features()), offloads);
            assert_eq!(Offloads::to_guest(offloads.features()), offloads);
        }
        assert_eq!(Offloads { csum: false, ..Offloads::ALL }.features(), 0);
    }
}
