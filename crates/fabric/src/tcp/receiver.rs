//! A flow's receiver: when it acknowledges, what arrived out of order, and the shim that may stand below it.

use super::TcpSettings;
use super::board::{Range, add, remove_below};
use crate::Time;

/// Bytes of a batch at most: a super-packet.
const BATCH_MAX: u32 = 65_536;

/// An ACK to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) expected: u32,
    pub(crate) blocks: [(u16, u16); 3],
    pub(crate) is_marked: bool,
    /// When the segment was sent that it answers: what that segment said.
    pub(crate) sent: u32,
    /// What the last two of the segments that it answers were hashed by, the last one first; of one alone, twice.
    pub(crate) entropies: [u32; 2],
}

/// A segment that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) number: u32,
    pub(crate) payload: u16,
    pub(crate) is_marked: bool,
    pub(crate) sent: u32,
    pub(crate) entropy: u32,
}

/// What a receiver saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// ACKs for segments out of order.
    pub(crate) dup_acks: u32,
    /// Of these, for a last segment that is shorter than the others.
    pub(crate) dup_acks_of_short_last: u32,
    /// ACKs in a row that were duplicate: now, and at most.
    row: u32,
    pub(crate) dup_ack_row: u32,
    /// Segments that had arrived before.
    pub(crate) again: u32,
    /// Batches that a host would have handed up (GRO).
    pub(crate) batches: u32,
}

/// The receiver of a flow.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    total: u32,
    /// The segment that is expected.
    next: u32,
    ranges: Vec<Range>,
    /// The segment that arrived out of order last.
    latest: u32,
    /// Segments that were not acknowledged yet.
    unanswered: u16,
    /// What the first of them said of when it was sent.
    sent: u32,
    entropies: [u32; 2],
    is_marked: bool,
    ack_at: Time,
    /// Segments that are still acknowledged at once, and when the last one came.
    quick: u16,
    came: Time,
    /// What the shim holds back, by their numbers, and until when.
    held: Vec<(Segment, Time)>,
    batch: Batch,
    pub(crate) seen: Seen,
}

#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    next: u32,
    bytes: u32,
    began: Time,
}

impl Receiver {
    /// Of a flow of so many segments.
    pub(crate) const fn new(total: u32) -> Self {
        Self {
            total,
            next: 0,
            ranges: Vec::new(),
            latest: 0,
            unanswered: 0,
            sent: 0,
            entropies: [0; 2],
            is_marked: false,
            ack_at: Time::MAX,
            quick: 0,
            came: Time::MAX,
            held: Vec::new(),
            batch: Batch { next: 0, bytes: 0, began: Time::ZERO },
            seen: Seen { dup_acks: 0, dup_acks_of_short_last: 0, row: 0, dup_ack_row: 0, again: 0, batches: 0 },
        }
    }

    /// The segment that is expected: all before it have arrived.
    pub(crate) const fn expected(&self) -> u32 {
        self.next
    }

    /// Whether all has arrived.
    pub(crate) const fn is_done(&self) -> bool {
        self.next >= self.total
    }

    /// When [`handle_ack_due`](Self::handle_ack_due) is to be called.
    pub(crate) const fn ack_at(&self) -> Time {
        self.ack_at
    }

    /// When [`handle_release`](Self::handle_release) is to be called.
    pub(crate) fn release_at(&self) -> Time {
        self.held.iter().map(|(_, until)| *until).min().unwrap_or(Time::MAX)
    }

    /// A segment has arrived: its ACKs go to `replies`.
    #[inline]
    pub(crate) fn handle_segment(
        &mut self,
        settings: &TcpSettings,
        now: Time,
        segment: &Segment,
        replies: &mut Vec<Reply>,
    ) {
        let Some(shim) = settings.shim else { return self.receive(settings, now, segment, replies) };
        if segment.number > self.next {
            match self.held.binary_search_by_key(&segment.number, |(held, _)| held.number) {
                Ok(_) => self.seen.again += 1,
                Err(at) => self.held.insert(at, (*segment, now + shim)),
            }
            return;
        }
        self.receive(settings, now, segment, replies);
        // What it filled the gap before is handed up, and what TCP has by now dropped.
        let mut count = 0;
        while let Some((held, _)) = self.held.get(count).copied().filter(|(held, _)| held.number <= self.next) {
            if held.number == self.next {
                self.receive(settings, now, &held, replies);
            }
            count += 1;
        }
        self.held.drain(..count);
    }

    /// The shim gives up waiting: all that it holds is handed up.
    pub(crate) fn handle_release(&mut self, settings: &TcpSettings, now: Time, replies: &mut Vec<Reply>) {
        for (segment, _) in std::mem::take(&mut self.held) {
            self.receive(settings, now, &segment, replies);
        }
    }

    /// An ACK was put off for long enough.
    pub(crate) fn handle_ack_due(&mut self, replies: &mut Vec<Reply>) {
        if self.unanswered > 0 {
            replies.push(self.reply());
        }
        self.ack_at = Time::MAX;
    }

    /// A segment is handed up.
    fn receive(&mut self, settings: &TcpSettings, now: Time, segment: &Segment, replies: &mut Vec<Reply>) {
        self.handle_batch(settings, now, segment);
        if segment.is_marked != self.is_marked {
            // What came before is answered as it was marked (RFC 8257, section 3.2).
            if self.unanswered > 0 {
                replies.push(self.reply());
            }
            self.is_marked = segment.is_marked;
        }
        if settings.quick_acks > 0 {
            if self.came == Time::MAX || now.saturating_since(self.came) >= settings.min_rto {
                self.quick = settings.quick_acks;
            }
            self.came = now;
        }
        let before = if self.unanswered > 0 { self.entropies[0] } else { segment.entropy };
        self.entropies = [segment.entropy, before];
        if segment.number == self.next {
            if self.unanswered == 0 {
                self.sent = segment.sent;
            }
            self.next += 1;
            self.seen.row = 0;
            self.unanswered += 1;
            let fills = !self.ranges.is_empty();
            if fills {
                if let Some((_, end)) = self.ranges.first().filter(|(start, _)| *start == self.next) {
                    self.next = *end;
                }
                remove_below(&mut self.ranges, self.next);
            }
            if fills || self.unanswered >= settings.ack_every || self.quick > 0 || self.is_done() {
                self.quick = self.quick.saturating_sub(1);
                replies.push(self.reply());
            } else if self.ack_at == Time::MAX {
                self.ack_at = now + settings.ack_delay;
            }
            return;
        }
        if segment.number < self.next || add(&mut self.ranges, (segment.number, segment.number + 1)) == 0 {
            self.seen.again += 1;
        } else {
            self.latest = segment.number;
            self.seen.dup_acks += 1;
            self.seen.row += 1;
            self.seen.dup_ack_row = self.seen.dup_ack_row.max(self.seen.row);
            let is_short_last = segment.number + 1 == self.total && segment.payload < settings.mss;
            self.seen.dup_acks_of_short_last += u32::from(is_short_last);
        }
        replies.push(self.reply());
    }

    /// The ACK for all that has arrived.
    fn reply(&mut self) -> Reply {
        self.unanswered = 0;
        self.ack_at = Time::MAX;
        let mut blocks = [(0, 0); 3];
        if !self.ranges.is_empty() {
            self.tell(&mut blocks);
        }
        Reply { expected: self.next, blocks, is_marked: self.is_marked, sent: self.sent, entropies: self.entropies }
    }

    /// The block that grew last, and those with the highest numbers.
    fn tell(&self, blocks: &mut [(u16, u16); 3]) {
        let grew = |range: &&Range| (range.0..range.1).contains(&self.latest);
        let first = self.ranges.iter().filter(grew);
        let others = self.ranges.iter().rev().filter(|range| !grew(range));
        let short = |segments: u32| u16::try_from(segments).unwrap_or(u16::MAX);
        for (block, (start, end)) in blocks.iter_mut().zip(first.chain(others)) {
            // A receive window of more than 65,535 segments would not fit: such a block is not told, and the timer mends it.
            if let Ok(beyond) = u16::try_from(start - self.next) {
                *block = (beyond, short(end - start));
            }
        }
    }

    /// Segments in order that come soon after the first of them are one batch.
    fn handle_batch(&mut self, settings: &TcpSettings, now: Time, segment: &Segment) {
        let Batch { next, bytes, began } = &mut self.batch;
        let payload = u32::from(segment.payload);
        let goes_on = segment.number == *next
            && *bytes > 0
            && *bytes + payload <= BATCH_MAX
            && now.saturating_since(*began) <= settings.batch_time;
        if goes_on {
            *bytes += payload;
        } else {
            (*bytes, *began) = (payload, now);
            self.seen.batches += 1;
        }
        *next = segment.number + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;

    fn receive(receiver: &mut Receiver, settings: &TcpSettings, at: u64, numbers: &[u32]) -> Vec<Reply> {
        let mut replies = Vec::new();
        for number in numbers {
            let segment = Segment { number: *number, payload: 1_460, is_marked: false, sent: *number, entropy: 0 };
            receiver.handle_segment(settings, Time::from_picos(at), &segment, &mut replies);
        }
        replies
    }

    #[test]
    fn every_second_segment_is_acknowledged_and_every_one_out_of_order() {
        let settings = TcpSettings::default();
        let mut receiver = Receiver::new(20);
        let replies = receive(&mut receiver, &settings, 0, &[0, 1, 2]);
        assert_eq!(replies.iter().map(|reply| (reply.expected, reply.sent)).collect::<Vec<_>>(), [(2, 0)]);
        assert_eq!(receiver.ack_at(), Time::ZERO + settings.ack_delay);
        let replies = receive(&mut receiver, &settings, 0, &[5, 9, 7, 6]);
        assert_eq!(replies.iter().map(|reply| reply.expected).collect::<Vec<_>>(), [3; 4]);
        assert_eq!(replies[2].blocks, [(4, 1), (6, 1), (2, 1)]);
        assert_eq!(replies[3].blocks, [(2, 3), (6, 1), (0, 0)]);
        let replies = receive(&mut receiver, &settings, 0, &[3, 4, 3]);
        assert_eq!(replies.iter().map(|reply| reply.expected).collect::<Vec<_>>(), [4, 8, 8]);
        assert_eq!(receiver.seen, Seen { dup_acks: 4, dup_ack_row: 4, again: 1, batches: 7, ..Seen::default() });
    }

    #[test]
    fn the_first_segments_and_those_after_a_pause_are_acknowledged_at_once() {
        let settings = TcpSettings { quick_acks: 3, ..TcpSettings::default() };
        let mut receiver = Receiver::new(20);
        let mut expected = |at: u64, numbers: &[u32]| {
            let replies = receive(&mut receiver, &settings, at, numbers);
            replies.iter().map(|reply| reply.expected).collect::<Vec<_>>()
        };
        assert_eq!(expected(0, &[0, 1, 2, 3, 4, 5]), [1, 2, 3, 5]);
        let pause = settings.min_rto.as_picos();
        assert_eq!(expected(pause - 1, &[6, 7, 8]), [7, 9]);
        assert_eq!(expected(2 * pause, &[9, 10, 11, 12, 13]), [10, 11, 12, 14]);
    }

    #[test]
    fn the_shim_holds_what_comes_too_early() {
        let settings = TcpSettings { shim: Some(Span::from_nanos(100)), ack_every: 1, ..TcpSettings::default() };
        let mut receiver = Receiver::new(20);
        assert!(receive(&mut receiver, &settings, 0, &[1, 2]).is_empty());
        let replies = receive(&mut receiver, &settings, 50_000, &[0]);
        assert_eq!(replies.iter().map(|reply| reply.expected).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!((receiver.release_at(), receiver.seen.dup_acks), (Time::MAX, 0));
        assert_eq!(receiver.seen.batches, 1, "what was put in order is one");
        assert!(receive(&mut receiver, &settings, 0, &[5]).is_empty());
        let mut replies = Vec::new();
        receiver.handle_release(&settings, receiver.release_at(), &mut replies);
        assert_eq!((replies.len(), replies[0].expected, receiver.seen.dup_acks), (1, 3, 1));
    }

    /// Each for as long, whatever comes meanwhile, and as it came.
    #[test]
    fn what_the_shim_holds_stays_what_it_was() {
        let settings = TcpSettings { shim: Some(Span::from_nanos(100)), ack_every: 1, ..TcpSettings::default() };
        let mut receiver = Receiver::new(8);
        let mut replies = Vec::new();
        let segment = |number: u32| Segment {
            number,
            payload: if number == 7 { 10 } else { 1_460 },
            is_marked: number % 2 == 1,
            sent: 100 + number,
            entropy: 200 + number,
        };
        for (at, number) in [(0, 2), (10_000, 1), (50_000, 0), (60_000, 7), (70_000, 5), (90_000, 3)] {
            receiver.handle_segment(&settings, Time::from_picos(at), &segment(number), &mut replies);
        }
        let said = |reply: &Reply| (reply.expected, reply.is_marked, reply.sent, reply.entropies[0]);
        assert_eq!(
            replies.iter().map(said).collect::<Vec<_>>(),
            [(1, false, 100, 200), (2, true, 101, 201), (3, false, 102, 202), (4, true, 103, 203)]
        );
        assert_eq!(receiver.release_at(), Time::from_picos(160_000));
        replies.clear();
        receiver.handle_release(&settings, receiver.release_at(), &mut replies);
        assert_eq!(replies.iter().map(|reply| reply.entropies[0]).collect::<Vec<_>>(), [205, 207]);
        assert_eq!((receiver.seen.dup_acks, receiver.seen.dup_acks_of_short_last), (2, 1));
    }

    #[test]
    fn an_ack_of_two_has_the_entropies_of_both() {
        let settings = TcpSettings::default();
        let mut receiver = Receiver::new(20);
        let mut replies = Vec::new();
        for (number, entropy) in [(0, 7), (1, 8), (2, 9), (4, 10), (6, 11)] {
            let segment = Segment { number, payload: 1_460, is_marked: false, sent: 0, entropy };
            receiver.handle_segment(&settings, Time::ZERO, &segment, &mut replies);
        }
        assert_eq!(replies.iter().map(|reply| reply.entropies).collect::<Vec<_>>(), [[8, 7], [10, 9], [11, 11]]);
    }

    #[test]
    fn another_mark_answers_what_came_before() {
        let settings = TcpSettings::default();
        let mut receiver = Receiver::new(20);
        let mut replies = receive(&mut receiver, &settings, 0, &[0]);
        let marked = Segment { number: 1, payload: 1_460, is_marked: true, sent: 1, entropy: 0 };
        receiver.handle_segment(&settings, Time::ZERO, &marked, &mut replies);
        assert_eq!(replies.iter().map(|reply| (reply.expected, reply.is_marked)).collect::<Vec<_>>(), [(1, false)]);
        receiver.handle_ack_due(&mut replies);
        assert_eq!((replies[1].expected, replies[1].is_marked), (2, true));
    }
}
