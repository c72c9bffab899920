//! The comparison group inside each selected network.
//!
//! A seeded hash of (client address, epoch) decides, so that the kernel program, the controller and a later replay agree
//! without exchanging anything, and a client's lot changes only with the epoch. `bpf/holdout.h` is the twin in C; a test
//! of `linux` compares the two on real connections.

use core::net::IpAddr;

use weirgate_sockets::sample::mapped;

/// A random share of the clients, re-drawn every epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdout {
    /// Secret of the draw, so that clients cannot choose an address that is never held out.
    pub seed: u64,
    /// Number of the draw.
    pub epoch: u32,
    /// The share held out, in parts per million: 100,000 is 10 %.
    pub share_ppm: u32,
}

impl Holdout {
    /// Whether `client` stays on the default in this epoch. Mapped IPv4 addresses are IPv4.
    pub fn holds(&self, client: IpAddr) -> bool {
        let bytes = mapped(client);
        let (high, low) = bytes.split_at(8);
        let word = |b: &[u8]| u64::from_be_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
        let hash = mix(mix(mix(self.seed ^ u64::from(self.epoch)) ^ word(high)) ^ word(low));
        // The upper 32 bits, scaled to 0..1,000,000 without division.
        ((hash >> 32) * 1_000_000) >> 32 < u64::from(self.share_ppm)
    }
}

/// The finalizer of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
pub(crate) const fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
