//! An object: bytes at offsets, in both directions. What of it is to be sent, what came, and what the other side may send.
//!
//! Ground rules: it holds no bytes. Who sends is asked for them when a packet has room ([`Source`]), who receives is given them as they come
//! ([`Sink`]), in any order.

use std::ops::Range;

use crate::path::Chunk;
use crate::ranges::Ranges;
use crate::wire::Holes;

/// Where the bytes that are sent come from.
pub trait Source {
    /// Fills `out` with an object's bytes from `offset` on. They were said to be there, and have not been acknowledged.
    fn read(&mut self, object: u64, offset: u64, out: &mut [u8]);
}

/// Where the bytes that come go to.
pub trait Sink {
    /// An object's bytes, which did not come before.
    fn write(&mut self, object: u64, offset: u64, bytes: &[u8]);

    /// A datagram's, as it was [sent](crate::Connection::send_datagram): once at most, in any order.
    fn datagram(&mut self, bytes: &[u8]) {
        let _nobody_wants_it = bytes;
    }
}

/// One direction of an object: what goes.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Bytes that there are to be sent so far.
    available: u64,
    /// Whether the object ends there.
    is_complete: bool,
    /// The other side takes bytes up to here.
    pub(crate) limit: u64,
    /// Was not sent yet from here on.
    next: u64,
    /// Whether its end was sent and not lost since, and whether that was acknowledged.
    end: (bool, bool),
    /// Was lost, and is to be sent again.
    lost: Ranges,
    acked: Ranges,
    /// Was sent twice, so that it is there sooner.
    twice: Ranges,
    pub(crate) is_reset: bool,
    /// Whether it was said that the other side has all of it.
    pub(crate) is_told: bool,
}

/// The other direction: what comes.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    have: Ranges,
    /// Where it ends, once that is known.
    end: Option<u64>,
    /// Bytes are taken up to here.
    pub(crate) limit: u64,
    pub(crate) is_done: bool,
}

/// Why the other side's bytes are not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Beyond what it may send.
    Credit,
    /// Beyond the object's end, or it has two.
    End,
}

impl Outgoing {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            available: 0,
            is_complete: false,
            limit,
            next: 0,
            end: (false, false),
            lost: Ranges::new(),
            acked: Ranges::new(),
            twice: Ranges::new(),
            is_reset: false,
            is_told: false,
        }
    }

    /// There are bytes up to `available` now; `is_complete`: and no more.
    pub(crate) fn provide(&mut self, available: u64, is_complete: bool) {
        if self.is_complete {
            return;
        }
        self.available = self.available.max(available);
        self.is_complete = is_complete;
    }

    /// Whether there is something to be sent now.
    pub(crate) fn wants(&self) -> bool {
        !self.is_reset && (!self.lost.is_empty() || self.next < self.available.min(self.limit) || self.wants_end())
    }

    /// Whether all that is left to do is its end.
    fn wants_end(&self) -> bool {
        self.is_complete && !self.end.0 && self.next == self.available
    }

    /// What is to be sent next, of `most` bytes at most: what was lost first.
    pub(crate) fn next(&mut self, object: u64, most: u64) -> Option<Chunk> {
        if self.is_reset {
            return None;
        }
        let range = match self.lost.first() {
            Some(lost) => lost.start..lost.end.min(lost.start + most),
            None => self.next..self.available.min(self.limit).min(self.next + most),
        };
        let is_last = self.is_complete && range.end == self.available;
        if range.is_empty() && !(is_last && self.wants_end()) {
            return None;
        }
        self.lost.remove(range.clone());
        self.next = self.next.max(range.end);
        self.step_over();
        self.end.0 |= is_last;
        Some(Chunk { object, start: range.start, end: range.end, is_last })
    }

    /// What comes next and is there from before is not sent; but for the first bytes, by which the other side hears of the object.
    fn step_over(&mut self) {
        let end = self.available.max(self.next);
        self.next = self.acked.missing(self.next..end).next().map_or(end, |gap| gap.start);
    }

    /// From where on the next ones are sent.
    pub(crate) fn offset(&self) -> u64 {
        self.lost.first().map_or(self.next, |lost| lost.start)
    }

    /// Bytes that are left to be sent for the first time, if the end is known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.is_complete.then(|| self.available - self.next + self.lost.count())
    }

    /// The other side has these.
    pub(crate) fn handle_acked(&mut self, chunk: Chunk) {
        self.acked.insert(chunk.start..chunk.end);
        self.lost.remove(chunk.start..chunk.end);
        self.end.1 |= chunk.is_last;
    }

    /// These did not arrive.
    pub(crate) fn handle_lost(&mut self, chunk: Chunk) {
        for gap in self.acked.missing(chunk.start..chunk.end) {
            self.lost.insert(gap);
        }
        if chunk.is_last && !self.end.1 {
            self.end.0 = false;
        }
        self.twice.remove(chunk.start..chunk.end);
    }

    /// The other side has these from before.
    pub(crate) fn handle_before(&mut self, range: Range<u64>) {
        self.acked.insert(range.clone());
        self.lost.remove(range);
    }

    /// The other side says what it lacks: of that, what is not under way was lost; what is between, it has.
    pub(crate) fn handle_holes(&mut self, holes: &Holes<'_>, under_way: &[Chunk]) {
        let (mut lacks, mut low) = (Ranges::new(), 0);
        for range in holes.ranges() {
            lacks.insert(*range.start()..range.end().saturating_add(1));
            low = *range.start();
        }
        let high = lacks.last().map_or(0, |last| last.end).min(self.next);
        let has: Vec<_> = lacks.missing(low..high).collect();
        for range in has {
            self.handle_before(range);
        }
        for chunk in under_way.iter().filter(|chunk| chunk.object == holes.object) {
            lacks.remove(chunk.start..chunk.end);
        }
        for lost in lacks.iter() {
            for gap in self.acked.missing(lost.start..lost.end.min(self.next)) {
                self.lost.insert(gap);
            }
        }
    }

    /// Whether a chunk that is under way is worth sending once more; it is, once.
    pub(crate) fn send_twice(&mut self, chunk: Chunk) -> bool {
        let range = chunk.start..chunk.end;
        let has_news = !self.acked.covers(&range) && !self.twice.covers(&range);
        self.twice.insert(range);
        has_news
    }

    /// What of a chunk the other side lacks first.
    pub(crate) fn lacking(&self, chunk: Chunk) -> Option<Chunk> {
        let gap = self.acked.missing(chunk.start..chunk.end).next()?;
        Some(Chunk { start: gap.start, end: gap.end, is_last: chunk.is_last && gap.end == chunk.end, ..chunk })
    }

    /// Everything before this the other side has.
    pub(crate) fn acked_up_to(&self) -> u64 {
        self.acked.first().filter(|first| first.start == 0).map_or(0, |first| first.end)
    }

    /// Bytes that the other side has.
    pub(crate) fn acked(&self) -> u64 {
        self.acked.count()
    }

    /// Whether the other side has all of it.
    pub(crate) fn is_done(&self) -> bool {
        self.is_complete && self.end.1 && self.acked_up_to() == self.available
    }

    pub(crate) fn is_valid(&self) -> bool {
        let is_lost_free = self.lost.iter().all(|lost| self.acked.missing(lost.clone()).eq([lost.clone()]));
        is_lost_free && self.lost.is_valid() && self.acked.is_valid() && self.next <= self.available
    }
}

impl Incoming {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Bytes came: hands those on that did not before.
    pub(crate) fn handle_data(
        &mut self,
        offset: u64,
        is_last: bool,
        bytes: &[u8],
        mut new: impl FnMut(u64, &[u8]),
    ) -> Result<(), Refusal> {
        let range = offset..offset + bytes.len() as u64;
        if range.end > self.limit {
            return Err(Refusal::Credit);
        }
        let is_beyond = self.end.is_some_and(|end| range.end > end || (is_last && range.end != end));
        if is_beyond || (is_last && self.have.last().is_some_and(|last| last.end > range.end)) {
            return Err(Refusal::End);
        }
        if is_last {
            self.end = Some(range.end);
        }
        for gap in self.have.missing(range.clone()) {
            new(gap.start, &bytes[(gap.start - offset) as usize..(gap.end - offset) as usize]);
        }
        self.have.insert(range);
        Ok(())
    }

    /// Whether all of it is there.
    pub(crate) fn is_complete(&self) -> bool {
        self.end.is_some_and(|end| end == 0 || self.have.covers(&(0..end)))
    }

    /// Where the last bytes end that are known to be there.
    fn known_end(&self) -> u64 {
        self.end.or_else(|| self.have.last().map(|last| last.end)).unwrap_or(0)
    }

    /// Whether nothing of that is lacking.
    pub(crate) fn holes_are_empty(&self) -> bool {
        self.have.covers(&(0..self.known_end()))
    }

    /// What is lacking of what is known to be there.
    pub(crate) fn holes(&self) -> Ranges {
        let end = self.known_end();
        let mut holes = Ranges::new();
        for gap in self.have.missing(0..end) {
            holes.insert(gap);
        }
        holes
    }

    /// Was there before: of a transfer that goes on.
    pub(crate) fn handle_before(&mut self, range: Range<u64>) {
        self.have.insert(range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(start: u64, end: u64, is_last: bool) -> Chunk {
        Chunk { object: 4, start, end, is_last }
    }

    #[test]
    fn what_was_lost_goes_first_and_the_end_goes_too() {
        let mut out = Outgoing::new(25);
        assert_eq!((out.wants(), out.next(4, 10)), (false, None));
        out.provide(30, true);
        assert_eq!(out.next(4, 10), Some(chunk(0, 10, false)));
        assert_eq!(out.next(4, 10), Some(chunk(10, 20, false)));
        out.handle_lost(chunk(0, 10, false));
        assert_eq!(out.left(), Some(20));
        assert_eq!(out.next(4, 7), Some(chunk(0, 7, false)));
        assert_eq!(out.next(4, 7), Some(chunk(7, 10, false)));
        assert_eq!(out.next(4, 10), Some(chunk(20, 25, false)));
        assert_eq!((out.wants(), out.next(4, 10)), (false, None), "the other side takes no more");
        out.limit = 100;
        assert_eq!(out.next(4, 10), Some(chunk(25, 30, true)));
        for acked in [chunk(0, 30, false), chunk(25, 30, true)] {
            assert!(!out.is_done());
            out.handle_acked(acked);
        }
        assert!(out.is_done() && !out.wants() && out.is_valid());
    }

    #[test]
    fn an_object_of_nothing_has_an_end_that_is_sent_again() {
        let mut out = Outgoing::new(0);
        out.provide(0, true);
        assert_eq!(out.next(4, 10), Some(chunk(0, 0, true)));
        assert!(!out.wants());
        out.handle_lost(chunk(0, 0, true));
        assert_eq!(out.next(4, 10), Some(chunk(0, 0, true)));
        out.handle_acked(chunk(0, 0, true));
        assert!(out.is_done());
        let mut into = Incoming::new(0);
        assert!(!into.is_complete());
        into.handle_data(0, true, b"", |_, _| panic!("nothing is new")).unwrap();
        assert!(into.is_complete());
    }

    #[test]
    fn bytes_are_handed_on_once_and_lies_are_refused() {
        let mut into = Incoming::new(100);
        let mut seen = Vec::new();
        let mut take = |into: &mut Incoming, offset: u64, is_last, bytes: &[u8]| {
            into.handle_data(offset, is_last, bytes, |at, new| seen.push((at, new.to_vec())))
        };
        take(&mut into, 3, false, b"def").unwrap();
        take(&mut into, 0, false, b"abcdefgh").unwrap();
        assert_eq!(take(&mut into, 0, true, b"abc"), Err(Refusal::End), "more of it is here");
        take(&mut into, 8, true, b"ij").unwrap();
        assert_eq!(take(&mut into, 8, true, b"i"), Err(Refusal::End));
        assert_eq!(take(&mut into, 9, false, b"jk"), Err(Refusal::End));
        assert_eq!(take(&mut into, 99, false, b"xy"), Err(Refusal::Credit));
        let wanted: [(u64, &[u8]); 4] = [(3, b"def"), (0, b"abc"), (6, b"gh"), (8, b"ij")];
        assert!(seen.iter().map(|(at, new)| (*at, &new[..])).eq(wanted));
        assert!(into.is_complete() && into.holes().is_empty());
    }

    #[test]
    fn a_chunk_is_sent_twice_at_most() {
        let mut out = Outgoing::new(100);
        out.provide(20, true);
        let sent = out.next(4, 20).unwrap();
        assert!(out.send_twice(sent));
        assert!(!out.send_twice(sent));
        out.handle_lost(sent);
        assert_eq!(out.next(4, 20), Some(sent), "it was lost: it is sent as what is lost is");
    }
}
