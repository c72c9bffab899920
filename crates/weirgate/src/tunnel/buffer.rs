//! Bytes of a flow: those that the other side may not have yet, and those that came in any order.

use std::collections::{BTreeMap, VecDeque};

/// Bytes that are to be sent, until the other side has them.
#[derive(Debug, Default)]
pub struct Kept {
    /// Where the first one stands in the flow.
    base: u64,
    bytes: VecDeque<u8>,
}

impl Kept {
    /// Where the last one ends.
    pub fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// More of them.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Those from `offset` on; in the place of those that were [dropped](Self::drop_before), which the other side has, nothing is written.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        let gone = usize::try_from(self.base.saturating_sub(offset)).unwrap_or(usize::MAX).min(out.len());
        let (offset, out) = (offset.max(self.base), &mut out[gone..]);
        let Ok(at) = usize::try_from(offset - self.base) else { return };
        let (front, back) = self.bytes.as_slices();
        let first = front.get(at..).unwrap_or_default();
        let len = first.len().min(out.len());
        out[..len].copy_from_slice(&first[..len]);
        let rest = &mut out[len..];
        if let Some(second) = back.get((at + len).saturating_sub(front.len())..).and_then(|back| back.get(..rest.len()))
        {
            rest.copy_from_slice(second);
        }
    }

    /// The other side has all before `offset`.
    pub fn drop_before(&mut self, offset: u64) {
        let len = usize::try_from(offset.saturating_sub(self.base)).unwrap_or(usize::MAX).min(self.bytes.len());
        self.bytes.drain(..len);
        self.base += len as u64;
        if self.bytes.is_empty() {
            // Of a burst an idle flow keeps no room.
            self.bytes = VecDeque::new();
        }
    }
}

/// Bytes that came, each once, until they are taken in their order.
#[derive(Debug, Default)]
pub struct Ordered {
    /// The next one to be taken.
    next: u64,
    pieces: BTreeMap<u64, Vec<u8>>,
}

impl Ordered {
    /// Where the next one stands that is to be taken.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Whether all that came was taken.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes came that had not before.
    pub fn insert(&mut self, offset: u64, bytes: &[u8]) {
        self.pieces.insert(offset, bytes.to_vec());
    }

    /// What is to be taken next, piece by piece, as far as nothing lacks.
    pub fn ready(&self) -> impl Iterator<Item = &[u8]> {
        let mut next = self.next;
        self.pieces.iter().map_while(move |(offset, bytes)| {
            let taken = usize::try_from(next.checked_sub(*offset)?).ok()?;
            next = offset + bytes.len() as u64;
            bytes.get(taken..)
        })
    }

    /// So many of these were taken.
    pub fn consume(&mut self, len: usize) {
        self.next += len as u64;
        while let Some(first) = self.pieces.first_entry()
            && first.key() + first.get().len() as u64 <= self.next
        {
            first.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_kept_is_read_until_it_is_dropped(
            pushes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 1..20),
            drops in prop::collection::vec(0_u64..600, 0..5),
            from in 0_u64..600,
            len in 0_usize..100,
        ) {
            let mut kept = Kept::default();
            let mut all = Vec::new();
            let mut drops = drops.into_iter();
            let mut base = 0;
            for push in pushes {
                kept.push(&push);
                all.extend(push);
                if let Some(offset) = drops.next() {
                    kept.drop_before(offset);
                    base = base.max(offset.min(all.len() as u64));
                }
            }
            prop_assert_eq!((kept.end(), kept.len() as u64), (all.len() as u64, all.len() as u64 - base));
            let from = from.min(all.len() as u64);
            let len = len.min(all.len() - from as usize);
            let mut out = vec![0; len];
            kept.read(from, &mut out);
            let gone = (base.saturating_sub(from) as usize).min(len);
            prop_assert_eq!(&out[gone..], &all[from as usize + gone..from as usize + len]);
        }

        #[test]
        fn what_comes_in_any_order_is_taken_in_its_own(
            lens in prop::collection::vec(1_usize..40, 1..20),
            order in any::<u64>(),
            takes in prop::collection::vec(0_usize..100, 1..40),
        ) {
            let all: Vec<u8> = (0..lens.iter().sum::<usize>()).map(|at| at as u8).collect();
            let mut pieces = Vec::new();
            let mut at = 0;
            for len in lens {
                pieces.push((at as u64, &all[at..at + len]));
                at += len;
            }
            pieces.sort_by_key(|(offset, _)| (offset + 1).wrapping_mul(order | 1));
            let (mut ordered, mut taken) = (Ordered::default(), Vec::<u8>::new());
            let mut takes = takes.into_iter().cycle();
            for (offset, bytes) in pieces {
                ordered.insert(offset, bytes);
                let ready: Vec<u8> = ordered.ready().flatten().copied().collect();
                let len = takes.next().unwrap_or(0).min(ready.len());
                taken.extend(&ready[..len]);
                ordered.consume(len);
                prop_assert_eq!(ordered.next(), taken.len() as u64);
            }
            taken.extend(ordered.ready().flatten());
            prop_assert_eq!(taken, all);
        }
    }
}
