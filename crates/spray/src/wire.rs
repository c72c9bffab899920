//! What a datagram looks like.
//!
//! Read first: RFC 9000, section 16 (numbers of variable length) and 19.3 (acknowledged ranges), of which these are. Numbers of a fixed
//! length are big-endian.
//!
//! ```text
//! Init      0x01, version (1), connection (8), path (1), cookie (16; zeros: none), length (2), first message of the handshake, zeros up to
//!           1,200 bytes
//! Reply     0x02, connection (8), path (1), token (8), second message of the handshake
//! Retry     0x03, connection (8), path (1), cookie (16)
//! Protected 0x40 | key phase, connection (8), path (1), packet number (6), frames, AEAD tag (16)
//! ```
//!
//! Ground rules: a view never reads beyond its bytes and allocates nothing; what it refuses is refused before anything of it has had an
//! effect.

use std::ops::RangeInclusive;

/// The protocol's version.
pub const VERSION: u8 = 1;

/// Bytes before a protected datagram's frames.
pub const HEADER_LEN: usize = 1 + 8 + 1 + 6;

/// Bytes of the tag behind them.
pub const TAG_LEN: usize = 16;

/// The least that the first datagram of a connection has: nobody is answered with more than was sent.
pub const INIT_MIN: usize = 1_200;

const INIT: u8 = 0x01;
const REPLY: u8 = 0x02;
const RETRY: u8 = 0x03;
const PROTECTED: u8 = 0x40;

/// Packet numbers end here (6 bytes).
pub const PACKET_NUMBER_END: u64 = 1 << 48;

/// The largest number of variable length.
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// A connection's name, which the side that begins it draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A path's number, which the side that begins a connection gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u8);

/// What shows that its sender is reached at its address; zeros are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cookie(pub [u8; 16]);

/// A datagram, before it is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// The first one of a connection.
    Init {
        /// Its name.
        connection: ConnectionId,
        /// On which path.
        path: PathId,
        /// Of a [retry](Self::Retry).
        cookie: Cookie,
        /// Of the handshake.
        message: &'a [u8],
    },
    /// Its answer.
    Reply {
        /// Its name.
        connection: ConnectionId,
        /// On which path.
        path: PathId,
        /// To be said back on this path: whoever does is reached there.
        token: u64,
        /// Of the handshake.
        message: &'a [u8],
    },
    /// Another answer: the first one is to be sent again, with this.
    Retry {
        /// Its name.
        connection: ConnectionId,
        /// On which path.
        path: PathId,
        /// For the address from where it came.
        cookie: Cookie,
    },
    /// Any other one.
    Protected(Header),
}

/// What stands before a protected datagram's frames; all of it is authenticated with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which of two keys, one after the other, it is sealed by.
    pub phase: bool,
    /// Its connection.
    pub connection: ConnectionId,
    /// The path that it was sent on.
    pub path: PathId,
    /// Its number on that path.
    pub number: u64,
}

/// Why bytes are not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// They end too early.
    #[error("the datagram ends in the middle")]
    Short,
    /// Nothing begins with this byte.
    #[error("no datagram and no frame begins with {0:#04x}")]
    Kind(u8),
    /// Another release's.
    #[error("version {0} of the protocol, and this is version {VERSION}")]
    Version(u8),
    /// A number that cannot be.
    #[error("a number is out of its range")]
    Range,
}

impl<'a> Datagram<'a> {
    /// Looks at a datagram's beginning.
    ///
    /// # Errors
    /// [`WireError`], where it is none of this protocol.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut read = Reader(bytes);
        match read.u8()? {
            INIT => {
                let version = read.u8()?;
                if version != VERSION {
                    return Err(WireError::Version(version));
                }
                if bytes.len() < INIT_MIN {
                    return Err(WireError::Short);
                }
                let (connection, path) = (ConnectionId(read.u64()?), PathId(read.u8()?));
                let (cookie, len) = (read.cookie()?, read.number(2)?);
                Ok(Self::Init { connection, path, cookie, message: read.bytes(len)? })
            }
            REPLY => {
                let (connection, path) = (ConnectionId(read.u64()?), PathId(read.u8()?));
                Ok(Self::Reply { connection, path, token: read.u64()?, message: read.0 })
            }
            RETRY => {
                let (connection, path) = (ConnectionId(read.u64()?), PathId(read.u8()?));
                Ok(Self::Retry { connection, path, cookie: read.cookie()? })
            }
            kind if kind & !1 == PROTECTED => {
                let (connection, path) = (ConnectionId(read.u64()?), PathId(read.u8()?));
                let number = read.number(6)?;
                if read.0.len() < TAG_LEN {
                    return Err(WireError::Short);
                }
                Ok(Self::Protected(Header { phase: kind & 1 != 0, connection, path, number }))
            }
            kind => Err(WireError::Kind(kind)),
        }
    }
}

/// Writes the first datagram of a connection.
pub fn put_init(out: &mut Vec<u8>, connection: ConnectionId, path: PathId, cookie: Cookie, message: &[u8]) {
    out.extend([INIT, VERSION]);
    out.extend(connection.0.to_be_bytes());
    out.push(path.0);
    out.extend(cookie.0);
    out.extend((message.len() as u16).to_be_bytes());
    out.extend(message);
    out.resize(out.len().max(INIT_MIN), 0);
}

/// Writes the answer to the first datagram.
pub fn put_reply(out: &mut Vec<u8>, connection: ConnectionId, path: PathId, token: u64, message: &[u8]) {
    out.push(REPLY);
    out.extend(connection.0.to_be_bytes());
    out.push(path.0);
    out.extend(token.to_be_bytes());
    out.extend(message);
}

/// Asks for the first datagram once more.
pub fn put_retry(out: &mut Vec<u8>, connection: ConnectionId, path: PathId, cookie: Cookie) {
    out.push(RETRY);
    out.extend(connection.0.to_be_bytes());
    out.push(path.0);
    out.extend(cookie.0);
}

impl Header {
    /// Writes it.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.push(PROTECTED | u8::from(self.phase));
        out.extend(self.connection.0.to_be_bytes());
        out.push(self.path.0);
        out.extend(&self.number.to_be_bytes()[2..]);
    }
}

/// A frame, as it is read and as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Asks for an acknowledgement.
    Ping,
    /// Which packets of a path came.
    Ack(Ack<'a>),
    /// Bytes of an object.
    Data {
        /// Which one.
        object: u64,
        /// Where they belong.
        offset: u64,
        /// Whether the object ends with them.
        is_last: bool,
        /// They.
        bytes: &'a [u8],
    },
    /// Which bytes of an object its receiver lacks, of those before the end of the last ones.
    Holes(Holes<'a>),
    /// An object's bytes before this offset may be sent.
    Credit {
        /// Which one.
        object: u64,
        /// Up to here.
        limit: u64,
    },
    /// Bytes of no object, which are sent once.
    Datagram(&'a [u8]),
    /// No more of an object is sent, or wanted.
    Reset {
        /// Which one.
        object: u64,
        /// Why, between programs.
        code: u64,
    },
    /// To be said back: who can is reached there.
    Challenge(u64),
    /// Said back.
    Response(u64),
    /// How a path is to be used from now on.
    Status {
        /// Which one.
        path: PathId,
        /// How.
        status: Status,
    },
    /// The connection ends.
    Close {
        /// Why, between programs.
        code: u64,
        /// Why, for people: UTF-8.
        reason: &'a [u8],
    },
}

/// How a path is to be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// As any other one.
    #[default]
    Available,
    /// Where no other one works.
    Backup,
    /// Not any more.
    Gone,
}

/// Which packets of a path came. It has one range at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// Of which path.
    pub path: PathId,
    /// For how long the one with the highest number waited for this, in microseconds.
    pub delay_us: u64,
    ranges: Spans<'a>,
}

/// What an object's receiver lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holes<'a> {
    /// Which one.
    pub object: u64,
    spans: Spans<'a>,
}

/// Ranges from the highest down, which were walked through once and found right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spans<'a> {
    highest: u64,
    count: u64,
    /// The first one's length less one; then for each the gap before it less one, and its length less one.
    bytes: &'a [u8],
}

impl Ack<'_> {
    /// Packet numbers, from the highest range down.
    pub fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u64>> + '_ {
        self.ranges.iter()
    }

    /// The highest packet number.
    pub const fn highest(&self) -> u64 {
        self.ranges.highest
    }
}

impl Holes<'_> {
    /// Offsets, from the highest range down.
    pub fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u64>> + '_ {
        self.spans.iter()
    }
}

/// Ranges in one frame at most: 64 of them are 1 KB at worst.
pub const SPANS_MAX: usize = 64;

impl<'a> Spans<'a> {
    fn parse(read: &mut Reader<'a>) -> Result<Self, WireError> {
        let highest = read.varint()?;
        let count = read.varint()?;
        if !(1..=SPANS_MAX as u64).contains(&count) {
            return Err(WireError::Range);
        }
        let bytes = read.0;
        let mut low = highest.checked_sub(read.varint()?).ok_or(WireError::Range)?;
        for _ in 1..count {
            // A gap has one number at least, and so has a range.
            let (gap, len) = (read.varint()?, read.varint()?);
            let high = low.checked_sub(gap + 2).ok_or(WireError::Range)?;
            low = high.checked_sub(len).ok_or(WireError::Range)?;
        }
        let taken = bytes.len() - read.0.len();
        Ok(Self { highest, count, bytes: &bytes[..taken] })
    }

    fn iter(self) -> impl Iterator<Item = RangeInclusive<u64>> + 'a {
        let mut read = Reader(self.bytes);
        let mut low = None;
        (0..self.count).map_while(move |_| {
            let high = match low {
                None => self.highest,
                Some(low) => u64::checked_sub(low, read.varint().ok()? + 2)?,
            };
            let start = high.checked_sub(read.varint().ok()?)?;
            low = Some(start);
            Some(start..=high)
        })
    }

    /// Writes as many of `ranges`, from the highest down, as there is room for; there is one at least.
    fn put<'r>(out: &mut Vec<u8>, ranges: impl Iterator<Item = &'r std::ops::Range<u64>> + Clone, room: usize) {
        // A range takes 16 bytes at most, and what is before them 9.
        let count = ranges.clone().take(SPANS_MAX.min(room.saturating_sub(9) / 16).max(1)).count();
        let mut low = None;
        for range in ranges.take(count) {
            match low {
                None => {
                    put_varint(out, range.end - 1);
                    put_varint(out, count as u64);
                }
                Some(low) => put_varint(out, low - range.end - 1),
            }
            put_varint(out, range.end - 1 - range.start);
            low = Some(range.start);
        }
    }
}

const PADDING: u8 = 0x00;
const PING: u8 = 0x01;
const ACK: u8 = 0x02;
const HOLES: u8 = 0x03;
const CREDIT: u8 = 0x04;
const RESET: u8 = 0x05;
const CHALLENGE: u8 = 0x06;
const RESPONSE: u8 = 0x07;
const STATUS: u8 = 0x08;
const CLOSE: u8 = 0x09;
const DATAGRAM: u8 = 0x0a;
/// And its two flags.
const DATA: u8 = 0x10;
const DATA_LAST: u8 = 0x01;
const DATA_LEN: u8 = 0x02;

impl<'a> Frame<'a> {
    /// Reads the frames of a datagram that was opened, one after the other; after an error none.
    pub fn all(bytes: &'a [u8]) -> impl Iterator<Item = Result<Self, WireError>> + 'a {
        let mut read = Reader(bytes);
        std::iter::from_fn(move || {
            while let [PADDING, rest @ ..] = read.0 {
                read.0 = rest;
            }
            if read.0.is_empty() {
                return None;
            }
            let frame = Self::parse(&mut read);
            if frame.is_err() {
                read.0 = &[];
            }
            Some(frame)
        })
    }

    fn parse(read: &mut Reader<'a>) -> Result<Self, WireError> {
        Ok(match read.u8()? {
            PING => Self::Ping,
            ACK => {
                let (path, delay_us) = (PathId(read.u8()?), read.varint()?);
                Self::Ack(Ack { path, delay_us, ranges: Spans::parse(read)? })
            }
            HOLES => Self::Holes(Holes { object: read.varint()?, spans: Spans::parse(read)? }),
            CREDIT => Self::Credit { object: read.varint()?, limit: read.varint()? },
            DATAGRAM => {
                let len = read.varint()?;
                Self::Datagram(read.bytes(len)?)
            }
            RESET => Self::Reset { object: read.varint()?, code: read.varint()? },
            CHALLENGE => Self::Challenge(read.u64()?),
            RESPONSE => Self::Response(read.u64()?),
            STATUS => {
                let path = PathId(read.u8()?);
                let status = match read.u8()? {
                    0 => Status::Available,
                    1 => Status::Backup,
                    2 => Status::Gone,
                    _ => return Err(WireError::Range),
                };
                Self::Status { path, status }
            }
            CLOSE => {
                let code = read.varint()?;
                let len = read.varint()?;
                Self::Close { code, reason: read.bytes(len)? }
            }
            kind if kind & !(DATA_LAST | DATA_LEN) == DATA => {
                let (object, offset) = (read.varint()?, read.varint()?);
                let len = if kind & DATA_LEN == 0 { read.0.len() as u64 } else { read.varint()? };
                let bytes = read.bytes(len)?;
                if offset.checked_add(len).is_none_or(|end| end > VARINT_MAX) {
                    return Err(WireError::Range);
                }
                Self::Data { object, offset, is_last: kind & DATA_LAST != 0, bytes }
            }
            kind => return Err(WireError::Kind(kind)),
        })
    }

    /// Writes it; data to the datagram's end where nothing is to come after it.
    pub fn put(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Ping => out.push(PING),
            Self::Ack(ack) => {
                out.extend([ACK, ack.path.0]);
                put_varint(out, ack.delay_us);
                ack.ranges.put_again(out);
            }
            Self::Holes(holes) => {
                out.push(HOLES);
                put_varint(out, holes.object);
                holes.spans.put_again(out);
            }
            Self::Data { object, offset, is_last, bytes } => {
                put_data(out, object, offset, is_last, Some(bytes.len()));
                out.extend(bytes);
            }
            Self::Credit { object, limit } => put_two(out, CREDIT, object, limit),
            Self::Datagram(bytes) => {
                out.push(DATAGRAM);
                put_varint(out, bytes.len() as u64);
                out.extend(bytes);
            }
            Self::Reset { object, code } => put_two(out, RESET, object, code),
            Self::Challenge(token) => {
                out.push(CHALLENGE);
                out.extend(token.to_be_bytes());
            }
            Self::Response(token) => {
                out.push(RESPONSE);
                out.extend(token.to_be_bytes());
            }
            Self::Status { path, status } => out.extend([STATUS, path.0, status as u8]),
            Self::Close { code, reason } => {
                out.push(CLOSE);
                put_varint(out, code);
                put_varint(out, reason.len() as u64);
                out.extend(reason);
            }
        }
    }
}

impl Spans<'_> {
    fn put_again(self, out: &mut Vec<u8>) {
        put_varint(out, self.highest);
        put_varint(out, self.count);
        out.extend(self.bytes);
    }
}

/// Writes which packets of a path came, as many ranges as `room` bytes have room for: 32 bytes are enough for one.
pub fn put_ack<'r>(
    out: &mut Vec<u8>,
    path: PathId,
    delay_us: u64,
    ranges: impl Iterator<Item = &'r std::ops::Range<u64>> + Clone,
    room: usize,
) {
    out.extend([ACK, path.0]);
    put_varint(out, delay_us.min(VARINT_MAX));
    Spans::put(out, ranges, room.saturating_sub(10));
}

/// Writes what an object's receiver lacks, from the highest range down, as many as `room` bytes have room for: 32 are enough for one.
pub fn put_holes<'r>(
    out: &mut Vec<u8>,
    object: u64,
    ranges: impl Iterator<Item = &'r std::ops::Range<u64>> + Clone,
    room: usize,
) {
    out.push(HOLES);
    put_varint(out, object);
    Spans::put(out, ranges, room.saturating_sub(9));
}

/// Writes what stands before an object's bytes; `len`: `None` where they go to the datagram's end.
pub fn put_data(out: &mut Vec<u8>, object: u64, offset: u64, is_last: bool, len: Option<usize>) {
    out.push(DATA | if is_last { DATA_LAST } else { 0 } | if len.is_some() { DATA_LEN } else { 0 });
    put_varint(out, object);
    put_varint(out, offset);
    if let Some(len) = len {
        put_varint(out, len as u64);
    }
}

/// Bytes that [`put_data`] writes without a length.
pub const fn data_len(object: u64, offset: u64) -> usize {
    1 + varint_len(object) + varint_len(offset)
}

/// Bytes of a [`Frame::Datagram`] of so many.
pub const fn datagram_len(bytes: usize) -> usize {
    1 + varint_len(bytes as u64) + bytes
}

fn put_two(out: &mut Vec<u8>, kind: u8, one: u64, other: u64) {
    out.push(kind);
    put_varint(out, one);
    put_varint(out, other);
}

const fn varint_len(number: u64) -> usize {
    match number {
        ..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

fn put_varint(out: &mut Vec<u8>, number: u64) {
    debug_assert!(number <= VARINT_MAX, "{number} is no varint");
    let len = varint_len(number);
    let bytes = (number | (len.ilog2() as u64) << (8 * len - 2)).to_be_bytes();
    out.extend(&bytes[8 - len..]);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: u64) -> Result<&'a [u8], WireError> {
        let len = usize::try_from(len).map_err(|_| WireError::Short)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(WireError::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn cookie(&mut self) -> Result<Cookie, WireError> {
        Ok(Cookie(self.bytes(16)?.try_into().map_err(|_| WireError::Short)?))
    }

    fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.number(1)? as u8)
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.number(8)
    }

    /// A big-endian number of so many bytes, eight at most.
    fn number(&mut self, len: u64) -> Result<u64, WireError> {
        Ok(self.bytes(len)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let len = 1 << (self.0.first().ok_or(WireError::Short)? >> 6);
        Ok(self.number(len)? & !(3 << (8 * len - 2)))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::prelude::*;

    use super::*;

    fn written(frame: &Frame<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        frame.put(&mut out);
        out
    }

    /// Ranges with gaps between them, from the highest down.
    fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
        prop::collection::vec((1_u64..1 << 40, 1_u64..1 << 20), 1..80).prop_map(|steps| {
            let mut at = 0;
            let mut ranges: Vec<_> = steps
                .into_iter()
                .map(|(gap, len)| {
                    let start = at + gap;
                    at = start + len;
                    start..at
                })
                .collect();
            ranges.reverse();
            ranges
        })
    }

    proptest! {
        #[test]
        fn numbers_are_read_as_they_were_written(number in 0..=VARINT_MAX, shift in 0_u32..62) {
            let number = number >> shift;
            let mut out = Vec::new();
            put_varint(&mut out, number);
            prop_assert_eq!(out.len(), varint_len(number));
            let mut read = Reader(&out);
            prop_assert_eq!((read.varint(), read.0.len()), (Ok(number), 0));
        }

        #[test]
        fn ranges_are_read_as_they_were_written(all in ranges(), room in 40_usize..1_500) {
            let mut out = Vec::new();
            put_ack(&mut out, PathId(3), 77, all.iter(), room);
            prop_assert!(out.len() <= room, "{} of {room}", out.len());
            let Some(Ok(Frame::Ack(ack))) = Frame::all(&out).next() else { panic!("no ack") };
            let read: Vec<_> = ack.ranges().map(|range| *range.start()..*range.end() + 1).collect();
            prop_assert!(!read.is_empty() && read[..] == all[..read.len()]);
            prop_assert_eq!((ack.path, ack.delay_us, ack.highest()), (PathId(3), 77, all[0].end - 1));
            prop_assert_eq!(written(&Frame::Ack(ack)), out);
        }

        #[test]
        fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for frame in Frame::all(&bytes).map_while(Result::ok) {
                let again = written(&frame);
                prop_assert_eq!(Frame::all(&again).next(), Some(Ok(frame)));
            }
            let _any = Datagram::parse(&bytes);
        }
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        let frames = [
            Frame::Ping,
            Frame::Data { object: 5, offset: 1 << 40, is_last: true, bytes: b"bytes" },
            Frame::Credit { object: 5, limit: VARINT_MAX },
            Frame::Datagram(b"once"),
            Frame::Datagram(b""),
            Frame::Reset { object: 64, code: 16_384 },
            Frame::Challenge(u64::MAX),
            Frame::Response(1),
            Frame::Status { path: PathId(2), status: Status::Gone },
            Frame::Close { code: 0, reason: b"done" },
        ];
        let all: Vec<u8> = frames.iter().flat_map(|frame| [written(frame), vec![PADDING; 2]].concat()).collect();
        assert!(Frame::all(&all).eq(frames.map(Ok)));
        assert_eq!(Frame::all(&all[..8]).last(), Some(Err(WireError::Short)));
        let mut out = Vec::new();
        put_data(&mut out, 1, 70_000, false, None);
        assert_eq!(out.len(), data_len(1, 70_000));
        out.extend(b"to the end");
        let wanted = Frame::Data { object: 1, offset: 70_000, is_last: false, bytes: b"to the end" };
        assert!(Frame::all(&out).eq([Ok(wanted)]));
    }

    #[test]
    fn datagrams_are_read_as_they_were_written() {
        let (connection, path) = (ConnectionId(0x0102_0304_0506_0708), PathId(9));
        let mut out = Vec::new();
        let cookie = Cookie([7; 16]);
        put_init(&mut out, connection, path, cookie, b"hello");
        let init = Datagram::Init { connection, path, cookie, message: b"hello" };
        assert_eq!((out.len(), Datagram::parse(&out)), (INIT_MIN, Ok(init)));
        assert_eq!(Datagram::parse(&out[..INIT_MIN - 1]), Err(WireError::Short));
        out[1] = 2;
        assert_eq!(Datagram::parse(&out), Err(WireError::Version(2)));
        (out[1], out[27]) = (VERSION, 0xff);
        assert_eq!(Datagram::parse(&out), Err(WireError::Short), "a message that is longer than the datagram");
        out.clear();
        put_retry(&mut out, connection, path, cookie);
        assert_eq!(Datagram::parse(&out), Ok(Datagram::Retry { connection, path, cookie }));
        assert_eq!(Datagram::parse(&out[..out.len() - 1]), Err(WireError::Short));
        out.clear();
        put_reply(&mut out, connection, path, 7, b"hi");
        assert_eq!(Datagram::parse(&out), Ok(Datagram::Reply { connection, path, token: 7, message: b"hi" }));
        out.clear();
        let header = Header { phase: true, connection, path, number: PACKET_NUMBER_END - 1 };
        header.put(&mut out);
        assert_eq!((out.len(), Datagram::parse(&out)), (HEADER_LEN, Err(WireError::Short)));
        out.resize(HEADER_LEN + TAG_LEN, 0);
        assert_eq!(Datagram::parse(&out), Ok(Datagram::Protected(header)));
        assert_eq!(Datagram::parse(&[0xff]), Err(WireError::Kind(0xff)));
    }
}
