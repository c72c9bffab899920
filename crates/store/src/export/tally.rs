//! Tallies to protobuf: the message `Tally` of `packaging/proto/weirgate/v1/tallies.proto`.

use weirgate_sockets::record::Origin;
use weirgate_sockets::sample::mapped;
use weirgate_tune::Tally;
use weirgate_units::UnixTime;

use super::encode::varint;
use crate::columns::ARMS;

/// The schema, for readers.
pub const TALLIES_PROTO: &str = include_str!("../../../../packaging/proto/weirgate/v1/tallies.proto");

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;

/// Writes messages `Tally` of one origin.
pub(super) struct TallyEncoder {
    /// The fields that are the same in every one, encoded.
    same: Vec<u8>,
}

impl TallyEncoder {
    pub(super) fn new(origin: &Origin) -> Self {
        let mut same = Message::default();
        same.text(21, &origin.host);
        same.text(22, &origin.pop);
        same.text(23, &origin.boot_id);
        Self { same: same.0 }
    }

    /// Appends `tally`, summed up at `time`, of the round that ends at `round`, as one message behind its length. Returns the bytes that the
    /// length takes.
    pub(super) fn push(&self, tally: &Tally, round: UnixTime, time: UnixTime, out: &mut Vec<u8>) -> usize {
        let Tally { network, arm, cc, did, fit, terms } = tally;
        let mut message = Message::default();
        message.number(1, time.as_nanos());
        message.number(2, round.as_secs());
        message.bytes(3, &mapped(network.address()));
        message.number(4, network.len().into());
        message.text(5, (*arm as usize).checked_sub(1).map_or("", |arm| ARMS[arm]));
        message.text(6, cc.as_str());
        message.number(7, did.connections);
        message.number(8, did.acked.as_u64());
        message.fixed(9, did.clients);
        message.number(10, did.small);
        message.number(11, did.no_metric);
        message.number(12, did.limited);
        message.number(13, did.arm.votes.into());
        message.fixed(14, did.arm.log.to_bits());
        message.number(15, did.arm.sent);
        message.number(16, did.arm.retransmitted);
        message.number(17, did.arm.rtts.into());
        message.number(18, did.arm.rtt_us);
        message.numbers(19, fit.bins().iter().map(|(bin, _)| u64::from(*bin)));
        message.numbers(20, fit.bins().iter().map(|(_, count)| u64::from(*count)));
        message.number(24, terms.round.as_secs());
        message.text(25, terms.metric.name());
        let before = out.len();
        varint(out, (self.same.len() + message.0.len()) as u64);
        let prefix = out.len() - before;
        out.extend_from_slice(&message.0);
        out.extend_from_slice(&self.same);
        prefix
    }
}

/// A message while it grows. What is 0 or empty is left out, as proto3 has it.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn key(&mut self, field: u64, wire: u64) {
        varint(&mut self.0, field << 3 | wire);
    }

    fn number(&mut self, field: u64, number: u64) {
        if number != 0 {
            self.key(field, VARINT);
            varint(&mut self.0, number);
        }
    }

    fn fixed(&mut self, field: u64, bits: u64) {
        if bits != 0 {
            self.key(field, FIXED64);
            self.0.extend_from_slice(&bits.to_le_bytes());
        }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.key(field, LENGTH);
            varint(&mut self.0, bytes.len() as u64);
            self.0.extend_from_slice(bytes);
        }
    }

    fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// Packed.
    fn numbers(&mut self, field: u64, numbers: impl Iterator<Item = u64>) {
        let mut packed = Vec::new();
        numbers.for_each(|number| varint(&mut packed, number));
        self.bytes(field, &packed);
    }
}
