//! Several limits in a row: all of them let a packet pass, or none of them is charged.
//!
//! Without that, what one limit passes and the next one refuses is lost to the first: two close limits that both refuse can give some
//! percent less than the smaller of them, where several senders share one of them or the two count different things.

use weirgate_units::{Bytes, Instant, Packets};

use crate::aggregate::Member;
use crate::bucket::{Bucket, Short};

/// A limit that one packet at a time can be taken from and put back.
pub trait Limit {
    /// Takes a packet of `size`.
    ///
    /// # Errors
    /// [`Short`]: nothing was taken.
    fn take(&mut self, now: Instant, size: Bytes) -> Result<(), Short>;

    /// Puts back what [`take`](Self::take) took for a packet of `size`.
    fn refund(&mut self, size: Bytes);
}

impl Limit for Bucket {
    fn take(&mut self, now: Instant, size: Bytes) -> Result<(), Short> {
        Self::take(self, now, size)
    }

    fn refund(&mut self, size: Bytes) {
        Self::refund(self, size);
    }
}

impl Limit for Bucket<Packets> {
    fn take(&mut self, now: Instant, _size: Bytes) -> Result<(), Short> {
        Self::take(self, now, Packets::new(1))
    }

    fn refund(&mut self, _size: Bytes) {
        Self::refund(self, Packets::new(1));
    }
}

impl Limit for Member {
    fn take(&mut self, now: Instant, size: Bytes) -> Result<(), Short> {
        Self::take(self, now, size)
    }

    fn refund(&mut self, size: Bytes) {
        Self::refund(self, size);
    }
}

impl<L: Limit + ?Sized> Limit for &mut L {
    fn take(&mut self, now: Instant, size: Bytes) -> Result<(), Short> {
        (**self).take(now, size)
    }

    fn refund(&mut self, size: Bytes) {
        (**self).refund(size);
    }
}

/// A limit of the chain refused; the others were given back what they had taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Which one, by its place among all limits.
    pub by: usize,
    /// When it will have enough, if nobody else takes.
    pub short: Short,
}

/// Takes a packet of `size` from every limit of a `chain`, in order, or from none; the chain is places among `limits`. Twice as many steps
/// as limits in the chain at most.
///
/// # Errors
/// [`Refused`] names the first limit that has too little.
pub fn take_all<L: Limit>(
    now: Instant,
    size: Bytes,
    limits: &mut [L],
    chain: impl Iterator<Item = usize> + Clone,
) -> Result<(), Refused> {
    for (taken, by) in chain.clone().enumerate() {
        if let Err(short) = limits[by].take(now, size) {
            chain.take(taken).for_each(|at| limits[at].refund(size));
            return Err(Refused { by, short });
        }
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::aggregate::Aggregate;
    use weirgate_units::{BitRate, PacketRate};

    const MTU: Bytes = Bytes::new(1_500);

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_refusal_costs_nobody_anything() {
        let mut first = Bucket::new(at(0), BitRate::from_bytes_per_sec(1_000), Bytes::new(3_000));
        let mut packets = Bucket::new(at(0), PacketRate::from_packets_per_sec(1), Packets::new(3));
        let shared = Arc::new(Aggregate::new(at(0), BitRate::from_bytes_per_sec(1_000), Bytes::new(1_500), MTU));
        let mut member = Member::new(shared);
        let take = |now, chain: &mut [&mut dyn Limit]| take_all(now, MTU, chain, 0..chain.len());
        assert_eq!(take(at(0), &mut [&mut first, &mut packets, &mut member]), Ok(()));
        let refused = take(at(0), &mut [&mut first, &mut packets, &mut member]).unwrap_err();
        assert_eq!((refused.by, refused.short.ready_at), (2, Some(at(1_500_000_000))));
        assert_eq!(first.check(at(0), MTU), Ok(()), "given back");
        assert_eq!(packets.check(at(0), Packets::new(2)), Ok(()));
        // And across an aggregate in front of a bucket.
        let mut empty = Bucket::new(at(0), BitRate::ZERO, Bytes::ZERO);
        assert_eq!(take(at(1_500_000_000), &mut [&mut member, &mut empty]).unwrap_err().by, 1);
        assert_eq!(member.credit(), MTU);
    }

    /// A limit of packets and one of bytes, as close as the mix of sizes makes them, offered six times as much: what passes of
    /// each in 10 s, as shares of what they allow.
    fn passed(refunding: bool) -> (f64, f64) {
        let mut packets = Bucket::new(at(0), PacketRate::from_packets_per_sec(16_000), Packets::new(4));
        let mut bytes = Bucket::new(at(0), BitRate::from_bits_per_sec(100_000_000), Bytes::new(3_000));
        let (mut random, mut sum) = (1_u64, (0, 0));
        for step in 0..1_000_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (now, size) = (at(step * 10_000), Bytes::new(64 + (random >> 33) % 1_437));
            let passes = if refunding {
                take_all(now, size, &mut [&mut packets as &mut dyn Limit, &mut bytes], 0..2).is_ok()
            } else {
                packets.take(now, Packets::new(1)).is_ok() && bytes.take(now, size).is_ok()
            };
            if passes {
                sum = (sum.0 + 1, sum.1 + size.as_u64());
            }
        }
        (sum.0 as f64 / 160_000.0, sum.1 as f64 / 125e6)
    }

    #[test]
    fn without_refunds_a_limit_pays_for_what_the_next_one_refuses() {
        let (with, without) = (passed(true), passed(false));
        assert!(with.0 > 0.999, "{with:?}, without refunds {without:?}");
        assert!(without.0 < 0.97, "{with:?}, without refunds {without:?}");
    }
}
