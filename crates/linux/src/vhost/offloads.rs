//! What a frame may leave undone, as a guest's driver has agreed. See virtio 1.2, section 5.1.3 (features) and 5.1.6 (the header
//! before every frame, which [`Offload`] is).

use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_ECN, VIRTIO_NET_F_GUEST_TSO4,
    VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_HOST_ECN, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6,
};
use weirgate_port::{Checksum, GsoKind, Offload, OffloadError};

/// Why a header makes no sense for its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It contradicts itself or the frame's length.
    #[error("{0}")]
    Untrue(OffloadError),
    /// Segments without a checksum to be made for each.
    #[error("segments that are to have no checksum")]
    Segments,
    /// Asks for what was not negotiated.
    #[error("an offload that was not negotiated")]
    NotNegotiated,
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

const fn has(features: u64, bit: u32) -> bool {
    features & (1 << bit) != 0
}

impl Offloads {
    /// All that this device knows.
    pub const ALL: Self = Self { csum: true, tso4: true, tso6: true, ecn: true };

    /// What the header before a frame of `len` bytes leaves undone, if it can be believed.
    ///
    /// # Errors
    /// [`HeaderError`].
    pub fn read(self, header: &[u8], len: usize) -> Result<Offload, HeaderError> {
        let offload = Offload::from_bytes(header, len).map_err(HeaderError::Untrue)?;
        let partial = matches!(offload.checksum, Checksum::Partial { .. });
        let segments = offload.gso.is_none_or(|gso| {
            let kind = match gso.kind {
                GsoKind::TcpV4 => self.tso4,
                GsoKind::TcpV6 => self.tso6,
                GsoKind::Udp => false,
            };
            kind && (self.ecn || !gso.ecn)
        });
        if (partial && !self.csum) || !segments {
            return Err(HeaderError::NotNegotiated);
        }
        if offload.gso.is_some() && !partial { Err(HeaderError::Segments) } else { Ok(offload) }
    }

    /// The header of a frame of `len` bytes that goes into the guest, in `buffers` of its buffers.
    ///
    /// # Errors
    /// [`HeaderError`].
    pub fn write(self, offload: Offload, len: usize, buffers: u16) -> Result<[u8; Offload::LEN], HeaderError> {
        self.read(&offload.to_bytes(0), len)?;
        // Without the feature no flag may be set (virtio 1.2, section 5.1.6.4.1).
        let checksum = if self.csum { offload.checksum } else { Checksum::Complete };
        Ok(Offload { checksum, ..offload }.to_bytes(buffers))
    }

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
    use weirgate_port::Gso;

    #[test]
    fn a_header_is_believed_only_where_it_can_be_true() {
        let gso = Gso { kind: GsoKind::TcpV4, size: 1_448.try_into().unwrap(), ecn: false };
        let checksum = Checksum::Partial { start: 34, offset: 16 };
        let tso = Offload { checksum, gso: Some(gso), header_len: 54 };
        let read = |offloads: Offloads, offload: Offload, len| offloads.read(&offload.to_bytes(0), len);
        assert_eq!(read(Offloads::ALL, tso, 9_000), Ok(tso));
        assert_eq!(read(Offloads::default(), Offload::default(), 14), Ok(Offload::default()));
        assert_eq!(read(Offloads::default(), tso, 9_000), Err(HeaderError::NotNegotiated));
        assert_eq!(read(Offloads::ALL, tso, 53), Err(HeaderError::Untrue(OffloadError::HeaderLength)));
        let without_sum = Offload { checksum: Checksum::Complete, ..tso };
        assert_eq!(read(Offloads::ALL, without_sum, 9_000), Err(HeaderError::Segments));
        let udp = Offload { gso: Some(Gso { kind: GsoKind::Udp, ..gso }), ..tso };
        assert_eq!(read(Offloads::ALL, udp, 9_000), Err(HeaderError::NotNegotiated));
        let (ecn, without_ecn) =
            (Offload { gso: Some(Gso { ecn: true, ..gso }), ..tso }, Offloads { ecn: false, ..Offloads::ALL });
        assert_eq!(read(without_ecn, ecn, 9_000), Err(HeaderError::NotNegotiated));
        assert_eq!(read(Offloads::ALL, ecn, 9_000), Ok(ecn));
    }

    #[test]
    fn flags_are_for_who_agreed_to_them() {
        let valid = Offload { checksum: Checksum::Valid, ..Offload::default() };
        assert_eq!(Offloads::ALL.write(valid, 60, 3).unwrap()[..], [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0]);
        assert_eq!(Offloads::default().write(valid, 60, 1).unwrap()[0], 0);
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
