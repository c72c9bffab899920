//! What is asked of the kernel: a dump of one address family's TCP sockets. Read first: sock_diag(7).

use super::bytecode::Bytecode;
use super::frame::{HEADER_LEN, TYPE_SOCK_DIAG, align};

/// `IPPROTO_TCP`.
const TCP: u8 = 6;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const FLAGS: u16 = 0x1 | 0x300;
/// `INET_DIAG_REQ_BYTECODE`.
const ATTRIBUTE_BYTECODE: u16 = 1;
/// Bytes of `struct inet_diag_req_v2`.
const REQUEST_LEN: usize = 56;

/// The attributes wanted of each socket, as bits of `idiag_ext`. What the kernel adds unasked (mark, cgroup) costs
/// nothing to name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions(u8);

impl Extensions {
    /// None: addresses and state only.
    pub const NONE: Self = Self(0);
    /// `struct tcp_info`, the congestion control's name and its own numbers (BBR's and DCTCP's come in place of Vegas's,
    /// under Vegas's bit), socket memory: all that a sample has room for.
    pub const ALL: Self = Self(bit(2) | bit(3) | bit(4) | bit(7));
    /// `struct tcp_info` alone.
    pub const INFO: Self = Self(bit(2));

    /// As `idiag_ext`.
    pub const fn bits(self) -> u8 {
        self.0
    }
}

/// The bit of attribute type `attribute` in `idiag_ext`.
const fn bit(attribute: u8) -> u8 {
    1 << (attribute - 1)
}

/// One dump.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// See [`super::family`].
    pub family: u8,
    /// Attributes wanted.
    pub extensions: Extensions,
    /// Bit n: state n is wanted.
    pub states: u32,
    /// The filter, empty for every socket.
    pub filter: &'a Bytecode,
    /// Comes back with every message of the reply.
    pub sequence: u32,
}

impl Request<'_> {
    /// The bytes to send, in place of what `buffer` holds.
    pub fn write(&self, buffer: &mut Vec<u8>) {
        let filter = self.filter.as_bytes();
        let attribute_len = if filter.is_empty() { 0 } else { 4 + filter.len() };
        let len = HEADER_LEN + REQUEST_LEN + align(attribute_len);
        buffer.clear();
        buffer.reserve(len);
        buffer.extend((len as u32).to_ne_bytes());
        buffer.extend(TYPE_SOCK_DIAG.to_ne_bytes());
        buffer.extend(FLAGS.to_ne_bytes());
        buffer.extend(self.sequence.to_ne_bytes());
        buffer.extend(0u32.to_ne_bytes());
        buffer.extend([self.family, TCP, self.extensions.bits(), 0]);
        buffer.extend(self.states.to_ne_bytes());
        // The socket's identity: anything. A dump looks at none of it but the ports, where 0 is any.
        buffer.extend([0; 40]);
        buffer.extend(u64::MAX.to_ne_bytes());
        if attribute_len > 0 {
            // A filter has at most `bytecode::LEN_MAX` bytes, far from the 65,535 of an attribute.
            buffer.extend((attribute_len as u16).to_ne_bytes());
            buffer.extend(ATTRIBUTE_BYTECODE.to_ne_bytes());
            buffer.extend(filter);
        }
        debug_assert_eq!(buffer.len(), len);
    }
}
