//! Records of some seconds as the messages that they are sent in: one or more for each client network, in one block of bytes that
//! is what a file of the spool holds.
//!
//! Layout, numbers little-endian: [`MAGIC`], messages u32; for each its records u32, key length u16, payload length u32, key,
//! payload; last a CRC-32 of all before it.

use core::ops::Range;

use weirgate_units::Prefix;

use super::Form;

const MAGIC: &[u8] = b"weirgate batch 1\n";
const MESSAGE_HEADER: usize = 4 + 2 + 4;
/// A message grows no further: half of what a broker takes unless it is told otherwise (`max.message.bytes`, 1 MiB).
const PAYLOAD_MAX: usize = 512 * 1_024;

/// Encoded records in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Loose {
    pub(super) bytes: Vec<u8>,
    pub(super) records: Vec<Place>,
}

/// Where a record lies among the bytes, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) network: Prefix,
    pub(super) start: u32,
    pub(super) end: u32,
    /// Of its bytes, those that say its length.
    pub(super) prefix: u8,
}

/// A batch: its bytes, and where its messages lie in them.
#[derive(Debug)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    messages: Vec<Message>,
}

#[derive(Debug)]
struct Message {
    records: u32,
    key: Range<usize>,
    payload: Range<usize>,
}

/// Bytes that are no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no batch of Weirgate's, or it is damaged")]
pub(super) struct Damaged;

impl Loose {
    /// Sorts the records by network and makes messages of them, whose keys are `pop` and the network.
    pub(super) fn pack(mut self, form: Form, pop: &str) -> Batch {
        // Stable: one connection's records stay in their order.
        self.records.sort_by_key(|place| place.network);
        let mut bytes = Vec::with_capacity(self.bytes.len() + self.bytes.len() / 8 + 64);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[0; 4]);
        let mut count = 0u32;
        let mut rest = self.records.as_slice();
        while let Some(first) = rest.first() {
            let mut size = 0;
            let together = |place: &&Place| {
                size += (place.end - place.start) as usize;
                place.network == first.network && size <= PAYLOAD_MAX
            };
            let length = match form {
                Form::Single => 1,
                Form::Delimited => rest.iter().take_while(together).count().max(1),
            };
            let (these, others) = rest.split_at(length);
            let key = format!("{pop}|{}", first.network);
            let places = these.iter().map(|place| {
                let skipped = if form == Form::Single { u32::from(place.prefix) } else { 0 };
                (place.start + skipped) as usize..place.end as usize
            });
            let payload: usize = places.clone().map(|place| place.len()).sum();
            bytes.extend_from_slice(&(length as u32).to_le_bytes());
            bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
            bytes.extend_from_slice(&(payload as u32).to_le_bytes());
            bytes.extend_from_slice(key.as_bytes());
            for place in places {
                bytes.extend_from_slice(&self.bytes[place]);
            }
            count += 1;
            rest = others;
        }
        bytes[MAGIC.len()..MAGIC.len() + 4].copy_from_slice(&count.to_le_bytes());
        let sum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        Batch::read(bytes).expect("what was just written can be read")
    }
}

impl Batch {
    /// The batch that `bytes` are. O(messages) beside the checksum.
    pub(super) fn read(bytes: Vec<u8>) -> Result<Self, Damaged> {
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or(Damaged)?;
        if !body.starts_with(MAGIC) || crc32fast::hash(body) != u32::from_le_bytes(*sum) {
            return Err(Damaged);
        }
        let mut at = MAGIC.len();
        let number = |at: usize| body.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let count = number(at).ok_or(Damaged)?;
        at += 4;
        // No more than there is room for: the number is from outside.
        let mut messages = Vec::with_capacity((count as usize).min(body.len() / MESSAGE_HEADER));
        for _ in 0..count {
            let header = body.get(at..at + MESSAGE_HEADER).ok_or(Damaged)?;
            let key =
                at + MESSAGE_HEADER..at + MESSAGE_HEADER + usize::from(u16::from_le_bytes([header[4], header[5]]));
            let length = number(at + 6).ok_or(Damaged)? as usize;
            let payload = key.end..key.end.checked_add(length).filter(|end| *end <= body.len()).ok_or(Damaged)?;
            messages.push(Message { records: number(at).ok_or(Damaged)?, key, payload: payload.clone() });
            at = payload.end;
        }
        if at != body.len() {
            return Err(Damaged);
        }
        Ok(Self { bytes, messages })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Messages in it.
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Records in all its messages.
    pub(super) fn records(&self) -> u64 {
        self.messages.iter().map(|message| u64::from(message.records)).sum()
    }

    /// Message `n`: its key, its payload, and how many records are in it.
    pub(super) fn message(&self, n: usize) -> (&[u8], &[u8], u32) {
        let message = &self.messages[n];
        (&self.bytes[message.key.clone()], &self.bytes[message.payload.clone()], message.records)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn loose(records: &[(u8, usize)]) -> Loose {
        let mut loose = Loose::default();
        for (n, (network, length)) in records.iter().enumerate() {
            let start = loose.bytes.len() as u32;
            loose.bytes.push(*length as u8);
            loose.bytes.extend(std::iter::repeat_n(n as u8, *length));
            let network = format!("10.0.{network}.0/24").parse().unwrap();
            loose.records.push(Place { network, start, end: loose.bytes.len() as u32, prefix: 1 });
        }
        loose
    }

    #[test]
    fn a_networks_records_go_together_and_in_their_order() {
        let records = [(7, 3), (2, 1), (7, 2), (2, 1), (9, 0)];
        let batch = loose(&records).pack(Form::Delimited, "ams");
        let all: Vec<_> = (0..batch.len()).map(|n| batch.message(n)).collect();
        assert_eq!(all[0], (&b"ams|10.0.2.0/24"[..], &[1, 1, 1, 3][..], 2));
        assert_eq!(all[1], (&b"ams|10.0.7.0/24"[..], &[3, 0, 0, 0, 2, 2, 2][..], 2));
        assert_eq!(all[2], (&b"ams|10.0.9.0/24"[..], &[0][..], 1));
        assert_eq!(batch.records(), 5);
        let single = loose(&records).pack(Form::Single, "");
        assert_eq!(single.len(), 5);
        assert_eq!(single.message(2), (&b"|10.0.7.0/24"[..], &[0, 0, 0][..], 1));
    }

    #[test]
    fn no_message_is_longer_than_brokers_take() {
        let mut large = Loose::default();
        let network = "10.0.0.0/24".parse().unwrap();
        for n in 0..9_000u32 {
            large.bytes.extend([7; 200]);
            large.records.push(Place { network, start: n * 200, end: (n + 1) * 200, prefix: 2 });
        }
        let batch = large.pack(Form::Delimited, "");
        assert_eq!(batch.records(), 9_000);
        assert!(batch.len() > 1 && (0..batch.len()).all(|n| batch.message(n).1.len() <= PAYLOAD_MAX));
    }

    proptest! {
        #[test]
        fn what_was_packed_is_read_and_what_was_damaged_is_refused(
            records in proptest::collection::vec((0u8..4, 0usize..40), 0..20), cut in 0usize..400, at in 0usize..400, bit in 0u8..8,
        ) {
            let batch = loose(&records).pack(Form::Delimited, "x");
            prop_assert_eq!(batch.records(), records.len() as u64);
            let bytes = batch.bytes().to_vec();
            let again = Batch::read(bytes.clone()).unwrap();
            prop_assert_eq!(again.bytes(), batch.bytes());
            if cut < bytes.len() {
                prop_assert_eq!(Batch::read(bytes[..cut].to_vec()).unwrap_err(), Damaged);
            }
            let mut other = bytes;
            let at = at % other.len();
            other[at] ^= 1 << bit;
            prop_assert_eq!(Batch::read(other).unwrap_err(), Damaged);
        }

        #[test]
        fn any_bytes_with_a_right_sum_are_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = [MAGIC, &body].concat();
            bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
            if let Ok(batch) = Batch::read(bytes) {
                (0..batch.len()).for_each(|n| { batch.message(n); });
            }
        }
    }
}
