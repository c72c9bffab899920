//! Netlink's framing: messages in a buffer, attributes in a message. Read first: netlink(7), `include/linux/netlink.h`.

/// Bytes of `struct nlmsghdr`.
pub const HEADER_LEN: usize = 16;
/// The message's last part of a dump is still to come.
pub const FLAG_MULTI: u16 = 0x2;
/// What is dumped changed while it was: something may have been left out.
pub const FLAG_DUMP_INTERRUPTED: u16 = 0x10;
/// Message types up to this one belong to netlink itself.
pub const TYPE_NOOP: u16 = 1;
/// An acknowledgement, or a refusal.
pub const TYPE_ERROR: u16 = 2;
/// The end of a dump.
pub const TYPE_DONE: u16 = 3;
/// Data was lost on the way.
pub const TYPE_OVERRUN: u16 = 4;
/// A socket, asked for or announced (`SOCK_DIAG_BY_FAMILY`).
pub const TYPE_SOCK_DIAG: u16 = 20;
/// A socket, in kernels' and programs' older spelling (`TCPDIAG_GETSOCK`).
pub const TYPE_TCPDIAG: u16 = 18;

/// The messages of one datagram, in order. After an error it ends: where the next one begins is not known.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

/// One message: the fields of its header that matter, and what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_flags`.
    pub flags: u16,
    /// The request's number, by which replies to an abandoned request are told.
    pub sequence: u32,
    /// Everything behind the header.
    pub payload: &'a [u8],
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// One socket: `struct inet_diag_msg` and its attributes, for [`super::diag::View`].
    Socket(&'a [u8]),
    /// The dump is over; an error number where it ended early (positive, as in errno(3)), else 0.
    Done(i32),
    /// The request was refused with this error number (positive), or acknowledged (0).
    Error(i32),
    /// Netlink says that data was lost.
    Overrun,
    /// Nothing of interest: a no-op, or a message type of another protocol.
    Other(u16),
}

/// A datagram that is not a row of netlink messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Fewer bytes than a header are left.
    #[error("{left} bytes are left where a netlink header of {HEADER_LEN} begins: the datagram was cut short")]
    HeaderTruncated {
        /// Bytes left.
        left: usize,
    },
    /// A length that cannot be: less than its own header, or more than is left.
    #[error(
        "a netlink message says it is {len} bytes long and {left} are left: the datagram was cut short or is garbage"
    )]
    Length {
        /// What the header says.
        len: usize,
        /// Bytes left, the header included.
        left: usize,
    },
    /// A refusal without its error number.
    #[error("a netlink error message of {len} bytes has no room for its error number")]
    ErrorTruncated {
        /// Bytes behind the header.
        len: usize,
    },
}

impl<'a> Messages<'a> {
    /// The messages in `datagram`: what one receive call returned.
    pub const fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = core::mem::take(&mut self.rest);
        if bytes.is_empty() {
            return None;
        }
        let left = bytes.len();
        let Some(header) = bytes.first_chunk::<HEADER_LEN>() else {
            return Some(Err(FrameError::HeaderTruncated { left }));
        };
        let len = u32_at(header, 0) as usize;
        if len < HEADER_LEN || len > left {
            return Some(Err(FrameError::Length { len, left }));
        }
        // The last message of a datagram may lack its padding.
        self.rest = bytes.get(align(len)..).unwrap_or_default();
        Some(Ok(Message {
            kind: u16_at(header, 4),
            flags: u16_at(header, 6),
            sequence: u32_at(header, 8),
            payload: &bytes[HEADER_LEN..len],
        }))
    }
}

impl<'a> Message<'a> {
    /// What it says.
    ///
    /// # Errors
    /// [`FrameError::ErrorTruncated`].
    pub fn reply(&self) -> Result<Reply<'a>, FrameError> {
        // Errors are negative on the wire.
        let errno = || self.payload.first_chunk::<4>().map(|b| i32::from_ne_bytes(*b).saturating_neg());
        Ok(match self.kind {
            TYPE_SOCK_DIAG | TYPE_TCPDIAG => Reply::Socket(self.payload),
            TYPE_DONE => Reply::Done(errno().unwrap_or(0)),
            TYPE_ERROR => Reply::Error(errno().ok_or(FrameError::ErrorTruncated { len: self.payload.len() })?),
            TYPE_OVERRUN => Reply::Overrun,
            other => Reply::Other(other),
        })
    }

    /// Whether the kernel says that the dump was not of one moment (`NLM_F_DUMP_INTR`).
    pub const fn is_dump_interrupted(&self) -> bool {
        self.flags & FLAG_DUMP_INTERRUPTED != 0
    }
}

/// The attributes of one message, in order. After an error it ends.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

/// An attribute whose length cannot be: less than its own header of 4 bytes, or more than is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a netlink attribute of type {kind} says it is {len} bytes long and {left} are left")]
pub struct AttributeError {
    /// The type it names, 0 where not even that was whole.
    pub kind: u16,
    /// The length it names.
    pub len: usize,
    /// Bytes left, the header included.
    pub left: usize,
}

impl<'a> Attributes<'a> {
    /// The attributes in `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Attributes<'a> {
    /// An attribute's type and value.
    type Item = Result<(u16, &'a [u8]), AttributeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = core::mem::take(&mut self.rest);
        if bytes.is_empty() {
            return None;
        }
        let left = bytes.len();
        let Some(header) = bytes.first_chunk::<4>() else {
            return Some(Err(AttributeError { kind: 0, len: 4, left }));
        };
        // The two upper bits say "nested" and "network byte order" (include/uapi/linux/netlink.h, NLA_TYPE_MASK).
        let (len, kind) = (usize::from(u16_at(header, 0)), u16_at(header, 2) & 0x3fff);
        if len < 4 || len > left {
            return Some(Err(AttributeError { kind, len, left }));
        }
        self.rest = bytes.get(align(len)..).unwrap_or_default();
        Some(Ok((kind, &bytes[4..len])))
    }
}

/// Messages and attributes begin on multiples of four.
pub(super) const fn align(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// The two bytes at `at`; 0 where there are none, which callers rule out by length.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_ne_bytes(*b))
}

/// The four bytes at `at`; 0 where there are none, which callers rule out by length.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(((HEADER_LEN + payload.len()) as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(FLAG_DUMP_INTERRUPTED.to_ne_bytes());
        bytes.extend(9u32.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(payload);
        bytes.resize(align(bytes.len()), 0);
        bytes
    }

    #[test]
    fn messages_follow_each_other_padded() {
        let datagram = [message(TYPE_SOCK_DIAG, b"abc"), message(TYPE_DONE, &(-11i32).to_ne_bytes())].concat();
        let messages: Vec<_> = Messages::new(&datagram).map(Result::unwrap).collect();
        assert_eq!(messages[0].reply(), Ok(Reply::Socket(b"abc")));
        assert_eq!((messages[0].sequence, messages[0].is_dump_interrupted()), (9, true));
        assert_eq!(messages[1].reply(), Ok(Reply::Done(11)));
        assert_eq!(messages.len(), 2);
    }

    #[test]
    fn control_messages_are_told_apart() {
        let reply = |kind, payload: &[u8]| {
            let bytes = message(kind, payload);
            Messages::new(&bytes).next().unwrap().unwrap().reply().map(|r| format!("{r:?}"))
        };
        assert_eq!(reply(TYPE_ERROR, &(-2i32).to_ne_bytes()), Ok("Error(2)".into()));
        assert_eq!(reply(TYPE_ERROR, &i32::MIN.to_ne_bytes()), Ok(format!("Error({})", i32::MAX)));
        assert_eq!(reply(TYPE_ERROR, &[0]), Err(FrameError::ErrorTruncated { len: 1 }));
        assert_eq!(reply(TYPE_DONE, &[]), Ok("Done(0)".into()));
        assert_eq!(reply(TYPE_OVERRUN, &[]), Ok("Overrun".into()));
        assert_eq!(reply(777, &[]), Ok("Other(777)".into()));
    }

    #[test]
    fn lengths_that_cannot_be_end_the_row() {
        let mut short = message(TYPE_DONE, &[0; 4]);
        short[0] = 15;
        let errors = |bytes: &[u8]| Messages::new(bytes).map(|m| m.unwrap_err()).collect::<Vec<_>>();
        assert_eq!(errors(&short), [FrameError::Length { len: 15, left: 20 }]);
        short[0] = 21;
        assert_eq!(errors(&short), [FrameError::Length { len: 21, left: 20 }]);
        assert_eq!(errors(&short[..7]), [FrameError::HeaderTruncated { left: 7 }]);
        let attributes = |bytes: &[u8]| Attributes::new(bytes).map(|a| a.unwrap_err()).collect::<Vec<_>>();
        assert_eq!(attributes(&[3, 0, 1, 0]), [AttributeError { kind: 1, len: 3, left: 4 }]);
        assert_eq!(attributes(&[9, 0, 1, 0, 0]), [AttributeError { kind: 1, len: 9, left: 5 }]);
        assert_eq!(attributes(&[4]), [AttributeError { kind: 0, len: 4, left: 1 }]);
    }
}
