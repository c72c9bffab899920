//! Flows: what belongs together, and a number for it.

use core::hash::{BuildHasher, Hash, Hasher};
use core::net::IpAddr;

/// The 5-tuple. Fragments have no ports here, the first one included, so that all of a datagram's fragments are of one flow
/// and keep their order; nor has what is neither TCP nor UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    /// From where.
    pub source: IpAddr,
    /// To where.
    pub destination: IpAddr,
    /// The protocol over IP, as IANA numbers it.
    pub protocol: u8,
    /// The source port; 0 where there is none.
    pub source_port: u16,
    /// The destination port; 0 where there is none.
    pub destination_port: u16,
}

impl FlowKey {
    /// A number for the flow, the same for the same seed, evenly spread in all its bits. The two directions of a connection have
    /// different ones. Keep the seed secret: who knows it can choose flows that collide.
    pub fn hash(&self, seed: u64) -> u64 {
        hash(seed, &self.source, &self.destination, self.protocol, (self.source_port, self.destination_port))
    }
}

/// As [`FlowKey::hash`], of what stands where it is: an address that is copied right after it was written is waited for.
#[inline]
pub(super) fn hash(seed: u64, source: &IpAddr, destination: &IpAddr, protocol: u8, ports: (u16, u16)) -> u64 {
    let mut words = Seeded(seed).build_hasher();
    write(&mut words, source, destination, protocol, ports);
    words.finish()
}

#[inline]
fn write<H: Hasher>(state: &mut H, source: &IpAddr, destination: &IpAddr, protocol: u8, ports: (u16, u16)) {
    for address in [source, destination] {
        match address {
            IpAddr::V4(address) => state.write_u64(address.to_bits().into()),
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                state.write_u64((bits >> 64) as u64);
                state.write_u64(bits as u64);
            }
        }
    }
    let ports = u64::from(ports.0) << 32 | u64::from(ports.1) << 16;
    state.write_u64(ports | u64::from(protocol) << 1 | u64::from(source.is_ipv4()));
}

impl Hash for FlowKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        write(state, &self.source, &self.destination, self.protocol, (self.source_port, self.destination_port));
    }
}

/// Hashes words with a seed, for [`FlowKey::hash`] and for tables: a folded multiplication for each (Wang Yi's wyhash; the
/// standard library has none that takes a seed of ours).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeded(pub(crate) u64);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    state: u64,
    factor: u64,
}

impl BuildHasher for Seeded {
    type Hasher = Words;

    fn build_hasher(&self) -> Words {
        // wyhash's constants: odd, and half of the bits of every byte are set.
        Words { state: self.0 ^ 0xa076_1d64_78bd_642f, factor: fold(self.0 ^ 0xe703_7ed1_a0b4_28db, FINISH) | 1 }
    }
}

const FINISH: u64 = 0x8ebc_6af0_9c88_c6e3;

/// Both halves of the product.
const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Hasher for Words {
    fn finish(&self) -> u64 {
        fold(self.state, FINISH)
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.state = fold(self.state ^ word, self.factor);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flow(source: u32, source_port: u16) -> FlowKey {
        FlowKey {
            source: IpAddr::V4(source.into()),
            destination: [198, 51, 100, 1].into(),
            protocol: 6,
            source_port,
            destination_port: 443,
        }
    }

    /// 65,536 flows that differ as flows do, in 1,024 buckets by any ten bits: chi-squared of 1,023 degrees of freedom has mean
    /// 1,023 and deviation 45.
    #[test]
    fn flows_spread_evenly_by_any_bits() {
        for seed in [0, 1, 0x0123_4567_89ab_cdef] {
            for shift in [0, 10, 27, 54] {
                let mut buckets = [0_u32; 1_024];
                for n in 0..65_536_u32 {
                    let key = flow(0x0a00_0000 + n / 256, 32_768 + (n % 256) as u16);
                    buckets[(key.hash(seed) >> shift & 1_023) as usize] += 1;
                }
                let chi: f64 = buckets.iter().map(|n| (f64::from(*n) - 64.0).powi(2) / 64.0).sum();
                assert!((800.0..1_250.0).contains(&chi), "seed {seed:x}, bits from {shift}: {chi}");
            }
        }
    }

    /// Every bit of the key changes every bit of the hash about half the time.
    #[test]
    fn one_bit_changes_half_of_them() {
        let mut changed = [0_u32; 64];
        let mut cases = 0;
        for n in 0..200_u32 {
            let (key, seed) = (flow(n.wrapping_mul(2_654_435_761), n as u16), 7);
            let others = (0..32).map(|b| flow(n.wrapping_mul(2_654_435_761) ^ 1 << b, n as u16));
            for other in others.chain((0..16).map(|b| FlowKey { source_port: key.source_port ^ 1 << b, ..key })) {
                let difference = key.hash(seed) ^ other.hash(seed);
                cases += 1;
                changed.iter_mut().enumerate().for_each(|(bit, count)| *count += (difference >> bit & 1) as u32);
            }
        }
        for (bit, count) in changed.into_iter().enumerate() {
            let share = f64::from(count) / f64::from(cases);
            assert!((0.45..0.55).contains(&share), "bit {bit}: {share}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Different tuples have different numbers (a chance of 2^-64 against), other seeds others, and so has the way back.
        #[test]
        fn tuples_and_seeds_tell_apart(source: IpAddr, destination: IpAddr, protocol: u8, ports: (u16, u16), seed: u64) {
            let key = FlowKey { source, destination, protocol, source_port: ports.0, destination_port: ports.1 };
            prop_assert_eq!(key.hash(seed), key.hash(seed));
            prop_assert_ne!(key.hash(seed), key.hash(seed ^ 1));
            prop_assert_ne!(key.hash(seed), FlowKey { protocol: protocol ^ 1, ..key }.hash(seed));
            prop_assert_ne!(key.hash(seed), FlowKey { destination_port: ports.1 ^ 0x8000, ..key }.hash(seed));
            let back = FlowKey { source: destination, destination: source, source_port: ports.1, destination_port: ports.0, ..key };
            prop_assert!(back == key || back.hash(seed) != key.hash(seed));
        }
    }
}
