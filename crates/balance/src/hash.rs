//! The hash of a flow. Read first: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012); RFC 2992 for what routers do with it.

use core::hash::Hasher;
use core::net::IpAddr;

use siphasher::sip::SipHasher13;

/// What names a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FiveTuple {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// IANA's protocol number.
    pub protocol: u8,
    /// The sender's port, 0 where there is none.
    pub source_port: u16,
    /// The receiver's.
    pub destination_port: u16,
}

/// SipHash-1-3 of a [`FiveTuple`], the same on every machine and in every version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowHash(u64);

impl FlowHash {
    /// The hash of a flow under a network's key.
    ///
    /// The bytes are hashed in network order: addresses of 4 or 16 bytes, source first; the ports, source first; the protocol. SipHash's
    /// key is `key` in its first 8 bytes (little-endian), and zeros.
    pub fn new(flow: &FiveTuple, key: u64) -> Self {
        let mut hasher = SipHasher13::new_with_keys(key, 0);
        for address in [flow.source, flow.destination] {
            match address {
                IpAddr::V4(address) => hasher.write(&address.octets()),
                IpAddr::V6(address) => hasher.write(&address.octets()),
            }
        }
        hasher.write(&flow.source_port.to_be_bytes());
        hasher.write(&flow.destination_port.to_be_bytes());
        hasher.write(&[flow.protocol]);
        Self(hasher.finish())
    }

    /// What a switch makes of it with its own `seed`. With one seed for all, flows that one switch sends the same way meet at the
    /// next one as well: it chooses among them no more (polarisation).
    ///
    /// The finaliser of MurmurHash3: every bit of the hash and the seed changes each bit of the result in half of all cases.
    pub const fn at(self, seed: u64) -> Self {
        let mut hash = self.0 ^ seed;
        hash ^= hash >> 33;
        hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^= hash >> 33;
        hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        Self(hash ^ (hash >> 33))
    }

    /// A number below `bound`, by its upper half (Lemire, "Fast random integer generation in an interval", 2019).
    pub const fn below(self, bound: u32) -> u32 {
        (((self.0 >> 32) * bound as u64) >> 32) as u32
    }

    /// One that was made elsewhere, or drawn.
    pub const fn from_u64(hash: u64) -> Self {
        Self(hash)
    }

    /// All of it.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

/// A hash of two numbers, in this order: two products of 64 by 64 bits, crossed, so that each half of the result has the upper half of one
/// of them, in which all bits have met. For what nobody attacks.
pub(crate) const fn mix(a: u128, b: u128) -> u128 {
    const fn product(a: u64, b: u64) -> u128 {
        a as u128 * b as u128
    }
    let low = product(a as u64 ^ 0x9e37_79b9_7f4a_7c15, b as u64 ^ 0x8cb9_2ba7_2f3d_8dd7);
    let high = product((a >> 64) as u64 ^ 0xd1b5_4a32_d192_ed03, (b >> 64) as u64 ^ 0xa076_1d64_78bd_642f);
    low.wrapping_add(high.rotate_left(64)) ^ a.rotate_left(29).wrapping_add(b.rotate_left(87))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(source: &str, destination: &str, protocol: u8) -> FiveTuple {
        let [source, destination] = [source, destination].map(|address| address.parse().unwrap());
        FiveTuple { source, destination, protocol, source_port: 40_000, destination_port: 443 }
    }

    /// Computed by another implementation: whoever changes these changes the path of every flow.
    #[test]
    fn hashes_are_those_of_every_version() {
        let v4 = flow("192.0.2.1", "198.51.100.7", 6);
        let v6 = flow("2001:db8::1", "2001:db8:0:1::7", 17);
        for (flow, key, hash) in [
            (v4, 0, 0x5d52_ceca_929a_5044),
            (v4, 0x0123_4567_89ab_cdef, 0x678a_307e_4df0_ed82),
            (v6, 0, 0x399d_d252_fc10_1ee6),
            (v6, 0x0123_4567_89ab_cdef, 0x85fc_5d21_90b5_643d),
        ] {
            assert_eq!(FlowHash::new(&flow, key).as_u64(), hash, "{flow:?}, {key:x}");
        }
    }

    #[test]
    fn what_a_switch_makes_of_them_is_that_of_every_version() {
        // MurmurHash3's own: its finaliser of 1.
        assert_eq!(FlowHash::from_u64(1).at(0).as_u64(), 0xb456_bcfc_34c2_cb2c);
        let hash = FlowHash::new(&flow("192.0.2.1", "198.51.100.7", 6), 0);
        for (seed, at, places) in [
            (0, 0x1586_b613_483b_94a3, [0, 84]),
            (1, 0x954c_a4bd_6f28_b00b, [2, 583]),
            (0xfedc_ba98_7654_3210, 0x7534_246f_9111_8872, [1, 457]),
        ] {
            let at_switch = hash.at(seed);
            assert_eq!((at_switch.as_u64(), [4, 1_000].map(|bound| at_switch.below(bound))), (at, places), "{seed:x}");
        }
    }
}
