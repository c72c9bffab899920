//! The Internet checksum. Read first: RFC 1071, RFC 1624 (changing a word under a checksum) and, for the pseudo-headers,
//! RFC 9293 section 3.1 and RFC 8200 section 8.1.

use core::net::IpAddr;

use weirgate_port::{Checksum, Offload};

/// A ones' complement sum that is being added up.
///
/// It is kept in the machine's byte order: the sum of swapped words is the swapped sum (RFC 1071, section 2 (B)).
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes; where their number is odd, a zero follows. So only the last ones may be odd in number. At most 2^32 bytes
    /// in all.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        // Four sums that do not wait for each other, of 32-bit words so that none overflows: the compiler makes vectors of it.
        let mut sums = [0_u64; 4];
        let (blocks, rest) = bytes.as_chunks::<16>();
        for block in blocks {
            let (words, _) = block.as_chunks::<4>();
            for (sum, word) in sums.iter_mut().zip(words) {
                *sum += u64::from(u32::from_ne_bytes(*word));
            }
        }
        let (words, odd) = rest.as_chunks::<2>();
        let mut sum = sums.iter().sum::<u64>() + words.iter().map(|w| u64::from(u16::from_ne_bytes(*w))).sum::<u64>();
        if let [last] = odd {
            sum += u64::from(u16::from_ne_bytes([*last, 0]));
        }
        // The carries come back in, so that sums of sums do not overflow either.
        Self((self.0 >> 32) + (self.0 & 0xffff_ffff) + (sum >> 32) + (sum & 0xffff_ffff))
    }

    /// Adds one 16-bit word.
    #[must_use]
    pub fn word(self, word: u16) -> Self {
        self.bytes(&word.to_be_bytes())
    }

    /// Adds the pseudo-header of `len` bytes of `protocol`, its header included.
    #[must_use]
    pub fn pseudo_header(self, source: IpAddr, destination: IpAddr, protocol: u8, len: u32) -> Self {
        let addresses = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => self.bytes(&source.octets()).bytes(&destination.octets()),
            (source, destination) => self.bytes(&wide(source)).bytes(&wide(destination)),
        };
        // The lengths differ in width between the families, and sum to the same.
        addresses.bytes(&len.to_be_bytes()).word(protocol.into())
    }

    /// The sum in 16 bits, the carries added: what a partial checksum's field holds.
    pub fn fold(self) -> u16 {
        let mut sum = self.0;
        while sum >> 16 != 0 {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        u16::from_be(sum as u16)
    }

    /// The checksum: the sum's complement.
    pub fn checksum(self) -> u16 {
        !self.fold()
    }
}

fn wide(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

/// The checksum `check` after the word `old` under it has become `new`: RFC 1624, equation 3. Constant time.
pub fn update(check: u16, old: u16, new: u16) -> u16 {
    Sum::default().word(!check).word(!old).word(new).checksum()
}

/// Does what was left to the device: sums from the partial checksum's start to the end of `packet`, and puts the result there.
/// The checksum is then [`Checksum::Complete`]; others are left as they are. A super-packet's checksum is finished in each of
/// its segments, not here.
///
/// False, and nothing is changed, where the field lies outside of `packet`, which [`Offload::from_bytes`] has refused, or the
/// packet is still to be cut. A result of 0 is written as 0xffff, as the kernel's `skb_checksum_help` does: the same number,
/// and in UDP 0 means "none" (RFC 768).
#[must_use]
pub fn finish(packet: &mut [u8], offload: &mut Offload) -> bool {
    let Checksum::Partial { start, offset } = offload.checksum else { return true };
    let (start, offset) = (usize::from(start), usize::from(offset));
    let Some(summed) = packet.get_mut(start..).filter(|_| offload.gso.is_none()) else { return false };
    let check = Sum::default().bytes(summed).checksum();
    let Some(field) = summed.get_mut(offset..offset + 2) else { return false };
    field.copy_from_slice(&(if check == 0 { 0xffff } else { check }).to_be_bytes());
    offload.checksum = Checksum::Complete;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weirgate_port::{Gso, GsoKind};

    fn sum(bytes: &[u8]) -> Sum {
        Sum::default().bytes(bytes)
    }

    /// RFC 1071 as it is written, a word at a time.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0_u64;
        for pair in bytes.chunks(2) {
            sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn vectors() {
        // RFC 1071, section 3.
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]).fold(), 0xddf2);
        // An IPv4 header that every textbook has: 192.168.0.1 to 192.168.0.199, UDP, 115 bytes; its field holds 0xb861.
        let header = [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(sum(&header).checksum(), 0xb861);
        // RFC 1624, section 4: 0xdd2f over a word that goes from 0x5555 to 0x3285 becomes 0, not 0xffff.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
        assert_eq!(sum(&[]).checksum(), 0xffff);
        assert_eq!(sum(&[0xab]).fold(), 0xab00, "a lone byte is the high one");
    }

    #[test]
    fn a_datagram_by_hand() {
        // UDP 10.0.0.1:1 to 10.0.0.2:2, "ab": 0a00+0001+0a00+0002 + 0011 + 000a + 0001+0002+000a + 6162 = 758d.
        let pseudo = Sum::default().pseudo_header([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, 10);
        assert_eq!(pseudo.fold(), 0x141e);
        let mut datagram = [0, 1, 0, 2, 0, 10, 0x14, 0x1e, b'a', b'b'];
        let mut offload = Offload { checksum: Checksum::Partial { start: 0, offset: 6 }, ..Offload::default() };
        assert!(finish(&mut datagram, &mut offload));
        assert_eq!((&datagram[6..8], offload.checksum), (&[0x8a, 0x72][..], Checksum::Complete));
        assert_eq!(pseudo.bytes(&datagram).checksum(), 0, "as its receiver sees it");
        // 2001:db8::1 to ::2, TCP, 20 bytes: 2001+0db8+1 + 2001+0db8+2 + 14 + 6 = 5b8f.
        let (from, to) = ("2001:db8::1".parse().expect("one"), "2001:db8::2".parse().expect("one"));
        assert_eq!(Sum::default().pseudo_header(from, to, 6, 20).fold(), 0x5b8f);
    }

    #[test]
    fn a_result_of_zero_is_written_as_its_other_form() {
        let mut packet = [0xff, 0xff, 0, 0];
        let mut offload = Offload { checksum: Checksum::Partial { start: 0, offset: 2 }, ..Offload::default() };
        assert!(finish(&mut packet, &mut offload));
        assert_eq!(packet, [0xff, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn what_lies_outside_or_is_to_be_cut_is_not_touched() {
        let partial = |start, offset| Offload { checksum: Checksum::Partial { start, offset }, ..Offload::default() };
        for (start, offset) in [(5, 0), (4, 0), (0, 3), (2, 65_535)] {
            let (mut packet, mut offload) = ([1, 2, 3, 4], partial(start, offset));
            assert!(!finish(&mut packet, &mut offload), "{start} {offset}");
            assert_eq!((packet, offload), ([1, 2, 3, 4], partial(start, offset)));
        }
        let gso = Some(Gso { kind: GsoKind::Udp, size: 1.try_into().expect("not 0"), ecn: false });
        let mut offload = Offload { gso, ..partial(0, 0) };
        assert!(!finish(&mut [0; 4], &mut offload), "its segments have checksums");
        assert!(finish(&mut [], &mut Offload::default()), "nothing to do");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn agrees_with_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0_usize..150) {
            prop_assert_eq!(sum(&bytes).fold(), naive(&bytes));
            // In two pieces, the first of an even number.
            let (one, two) = bytes.split_at((2 * cut).min(bytes.len()));
            prop_assert_eq!(sum(one).bytes(two).fold(), naive(&bytes));
        }

        /// A change under a checksum gives the checksum of what was changed, but for the two forms of zero.
        #[test]
        fn an_update_is_a_new_sum(mut words in prop::collection::vec(any::<u16>(), 2..40), at in any::<prop::sample::Index>(), new: u16) {
            let all = |words: &[u16]| words.iter().fold(Sum::default(), |sum, w| sum.word(*w)).checksum();
            let (before, at) = (all(&words), at.index(words.len()));
            let updated = update(before, words[at], new);
            words[at] = new;
            prop_assert_eq!(updated % 0xffff, all(&words) % 0xffff);
        }
    }
}
