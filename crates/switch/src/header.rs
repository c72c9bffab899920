//! As much of an IP header as forwarding needs. Read first: RFC 791 section 3.1, RFC 8200 section 3.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why bytes are not a packet that can be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The first four bits are neither 4 nor 6.
    #[error("not IPv4 or IPv6: version {0}")]
    Version(u8),
    /// Fewer bytes than a header has, none at all included.
    #[error("{0} bytes are too few for an IP header")]
    Short(usize),
    /// The header's own lengths contradict each other or the number of bytes.
    #[error("the header says {said} bytes, {there} are there")]
    Length {
        /// What the header says the packet has.
        said: usize,
        /// What was read.
        there: usize,
    },
}

const IPV4_HEADER_MIN: usize = 20;
const IPV6_HEADER: usize = 40;

/// The destination of an IP packet that is exactly `bytes`.
///
/// Strict: the header is complete and its length is that of `bytes`. An IPv6 jumbogram (payload length 0, RFC 2675) is not
/// taken. Checksums are the receiver's affair.
///
/// # Errors
/// [`HeaderError`] says what is wrong; such a packet is dropped.
pub fn destination(bytes: &[u8]) -> Result<IpAddr, HeaderError> {
    let there = bytes.len();
    let first = *bytes.first().ok_or(HeaderError::Short(there))?;
    match first >> 4 {
        4 => {
            let header: &[u8; IPV4_HEADER_MIN] = bytes.first_chunk().ok_or(HeaderError::Short(there))?;
            let header_len = usize::from(first & 15) * 4;
            let said = usize::from(u16::from_be_bytes([header[2], header[3]]));
            if said != there || header_len < IPV4_HEADER_MIN || header_len > said {
                return Err(HeaderError::Length { said, there });
            }
            Ok(Ipv4Addr::new(header[16], header[17], header[18], header[19]).into())
        }
        6 => {
            let header: &[u8; IPV6_HEADER] = bytes.first_chunk().ok_or(HeaderError::Short(there))?;
            let said = IPV6_HEADER + usize::from(u16::from_be_bytes([header[4], header[5]]));
            if said != there {
                return Err(HeaderError::Length { said, there });
            }
            let (_, address) = header.split_last_chunk::<16>().expect("40 bytes have a last 16");
            Ok(Ipv6Addr::from_octets(*address).into())
        }
        version => Err(HeaderError::Version(version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A valid packet to `to` with `payload` bytes behind a header of `options` more words.
    fn packet(to: IpAddr, payload: usize, options: usize) -> Vec<u8> {
        match to {
            IpAddr::V4(to) => {
                let len = 20 + 4 * options + payload;
                let mut bytes = vec![0; len];
                bytes[0] = 0x45 + options as u8;
                bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
                bytes[16..20].copy_from_slice(&to.octets());
                bytes
            }
            IpAddr::V6(to) => {
                let mut bytes = vec![0; 40 + payload];
                bytes[0] = 0x60;
                bytes[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
                bytes[24..40].copy_from_slice(&to.octets());
                bytes
            }
        }
    }

    #[test]
    fn says_what_is_wrong() {
        assert_eq!(destination(&[]), Err(HeaderError::Short(0)));
        assert_eq!(destination(&[0x45; 19]), Err(HeaderError::Short(19)));
        assert_eq!(destination(&[0x60; 39]), Err(HeaderError::Short(39)));
        assert_eq!(destination(&[0x50; 40]), Err(HeaderError::Version(5)));
        let mut bytes = packet("192.0.2.1".parse().expect("an address"), 8, 0);
        bytes.push(0);
        assert_eq!(destination(&bytes), Err(HeaderError::Length { said: 28, there: 29 }), "bytes behind the packet");
        bytes.truncate(28);
        bytes[0] = 0x44;
        assert_eq!(destination(&bytes), Err(HeaderError::Length { said: 28, there: 28 }), "a header of 16 bytes");
        bytes[0] = 0x48;
        assert_eq!(destination(&bytes), Err(HeaderError::Length { said: 28, there: 28 }), "a header of 32 bytes");
    }

    proptest! {
        #[test]
        fn reads_what_was_written(to in any::<IpAddr>(), payload in 0_usize..1_480, options in 0_usize..11) {
            prop_assert_eq!(destination(&packet(to, payload, options)), Ok(to));
        }

        /// Any bytes get an answer; a yes means that the lengths agree.
        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), version in 0_u8..16) {
            let _ = destination(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = version << 4 | (*first & 15);
            }
            if let Ok(to) = destination(&bytes) {
                prop_assert!(matches!((version, to), (4, IpAddr::V4(_)) | (6, IpAddr::V6(_))));
            }
        }

        /// Every valid packet cut anywhere, or with one byte of its lengths changed, is refused.
        #[test]
        fn cut_packets_are_refused(to in any::<IpAddr>(), payload in 0_usize..100, cut in any::<prop::sample::Index>()) {
            let bytes = packet(to, payload, 0);
            prop_assert!(destination(&bytes[..cut.index(bytes.len())]).is_err());
        }
    }
}
