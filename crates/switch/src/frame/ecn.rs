//! Signalling congestion in the IP header. Read first: RFC 3168, section 5.

use core::net::IpAddr;

use super::checksum::update;
use super::ip::Ecn;
use super::parse::Frame;

/// A packet whose sender would not understand: drop or delay it instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet's sender does not understand ECN")]
pub struct NotEct;

impl Frame {
    /// Marks the packet, which these are the `bytes` of, as having met congestion; the IPv4 header's checksum stays right. Of a
    /// super-packet, every segment is marked. A packet that is marked already stays so. Constant time.
    ///
    /// # Errors
    /// [`NotEct`] where it is not IP or not ECN-capable; nothing is changed.
    pub fn mark_ce(&mut self, bytes: &mut [u8]) -> Result<(), NotEct> {
        let ip = self.ip.as_mut().filter(|ip| ip.ecn != Ecn::NotEct).ok_or(NotEct)?;
        let header: &mut [u8; 12] =
            bytes.get_mut(usize::from(ip.offset)..).and_then(<[u8]>::first_chunk_mut).ok_or(NotEct)?;
        match ip.source {
            IpAddr::V4(_) => {
                let old = u16::from_be_bytes([header[0], header[1]]);
                let new = old | 0x03;
                let check = update(u16::from_be_bytes([header[10], header[11]]), old, new);
                header[1] |= 0x03;
                header[10..12].copy_from_slice(&check.to_be_bytes());
            }
            // The traffic class lies across two bytes, its last two bits in the upper half of the second.
            IpAddr::V6(_) => header[1] |= 0x30,
        }
        ip.ecn = Ecn::Ce;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::testing::{any_build, checksums_verify};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Marked, it is the packet that would have been built so; not marked, nothing has changed.
        #[test]
        fn a_marked_packet_differs_in_its_mark_only(mut build in any_build(60)) {
            let mut bytes = build.bytes();
            let before = bytes.clone();
            let mut frame = build.parse(&bytes);
            if build.traffic_class & 3 == 0 {
                prop_assert_eq!(frame.mark_ce(&mut bytes), Err(NotEct));
                prop_assert_eq!(bytes, before);
            } else {
                prop_assert_eq!(frame.mark_ce(&mut bytes), Ok(()));
                build.traffic_class |= 3;
                prop_assert_eq!(frame, build.parse(&bytes));
                prop_assert!(checksums_verify(&bytes, &frame));
                prop_assert_eq!(bytes, build.bytes());
            }
        }
    }
}
