//! One direction of a link: the queue before it, and the wire.
//!
//! A queue that is served in order at a constant rate needs no event for a departure: when a packet comes in, it is known when it will
//! have left. So a hop is one event, the arrival at the other end, and a queue is one number: when it will be empty.

use std::collections::VecDeque;

use weirgate_balance::topology::LinkSettings;

use crate::{Span, Time};

/// A line. What every packet needs is in its first cache line, what it is counted by in its second one.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Line {
    /// When all that was taken in will have left.
    free_at: Time,
    /// Picoseconds per byte, in 2^-20.
    picos: u64,
    /// Bytes per picosecond, in 2^-64, rounded up: below 8 Tbit/s.
    bytes: u64,
    delay: Span,
    /// Where so many wait, a packet is marked.
    mark: u64,
    /// Where it leads.
    pub(crate) to: Target,
    /// The port there.
    pub(crate) far_port: u16,
    pub(crate) hop: u8,
    pub(crate) is_up: bool,
    /// Of 2^32 packets, so many are lost on the wire.
    pub(crate) loss: u32,
    /// How often it has gone down: packets that it takes in carry this.
    pub(crate) epoch: u16,
    pub(crate) counters: LineCounters,
    /// For each time that it went down, until when what had left by then has arrived.
    downs: Box<[Time]>,
}

/// Where a line leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Host(u32),
    Switch(u32),
}

/// What a line did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounters {
    /// Packets taken in.
    pub packets: u64,
    /// Bytes taken in, as they are on the wire: those that had not left when counting began are among them, and those that a line lost as it
    /// went down are not. Less what waits they are those that have left.
    pub bytes: u64,
    /// Packets for which there was no room.
    pub dropped: u64,
    /// Packets that were lost on the wire, or with the line, or found it down.
    pub lost: u64,
    /// Packets that were marked.
    pub marked: u64,
    /// How long packets waited before their first bit left.
    pub waited: Span,
}

/// A packet was taken in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) arrives_at: Time,
    /// When its last bit leaves.
    pub(crate) leaves_at: Time,
    pub(crate) is_marked: bool,
}

impl Line {
    pub(crate) fn new(settings: LinkSettings, mark: u64, to: Target, far_port: u16, hop: u8) -> Self {
        let rate = u128::from(settings.rate.as_bits_per_sec());
        Self {
            free_at: Time::ZERO,
            picos: ((8_000_000_000_000_u128 << 20) / rate) as u64,
            bytes: u64::try_from((rate << 64).div_ceil(8_000_000_000_000)).unwrap_or(u64::MAX),
            delay: settings.delay.into(),
            mark,
            to,
            far_port,
            hop,
            is_up: true,
            loss: 0,
            epoch: 0,
            counters: LineCounters::default(),
            downs: Box::default(),
        }
    }

    /// Bytes that wait or are on their way to the wire at `now`.
    #[inline]
    pub(crate) const fn depth(&self, now: Time) -> u64 {
        self.depth_until(self.free_at, now)
    }

    /// The same, if it were empty at `free_at`.
    #[inline]
    const fn depth_until(&self, free_at: Time, now: Time) -> u64 {
        let picos = free_at.saturating_since(now).as_picos();
        ((picos as u128 * self.bytes as u128) >> 64) as u64
    }

    /// How long so many bytes take.
    #[inline]
    pub(crate) const fn time_for(&self, bytes: u16) -> Span {
        Span::from_picos((bytes as u64 * self.picos).div_ceil(1 << 20))
    }

    /// A packet of so many bytes comes to the queue at `now`: none, if there is no room. Each `now` is at or after the one before.
    #[inline]
    pub(crate) fn take(&mut self, now: Time, wire: u16, room: u64) -> Option<Taken> {
        let depth = self.depth(now);
        if depth.saturating_add(u64::from(wire)) > room {
            self.counters.dropped += 1;
            return None;
        }
        let starts = self.free_at.max(now);
        self.free_at = starts + self.time_for(wire);
        let is_marked = depth >= self.mark;
        self.counters.packets += 1;
        self.counters.bytes += u64::from(wire);
        self.counters.marked += u64::from(is_marked);
        self.counters.waited = self.counters.waited + starts.saturating_since(now);
        Some(Taken { arrives_at: self.free_at + self.delay, leaves_at: self.free_at, is_marked })
    }

    /// Whether a packet of this epoch that would arrive now was lost: the line went down before it had left.
    #[inline]
    pub(crate) fn has_lost(&self, epoch: u16, arrives_at: Time) -> bool {
        epoch != self.epoch && self.downs[usize::from(epoch)] < arrives_at
    }

    /// It goes down, or comes up empty.
    pub(crate) fn set_up(&mut self, now: Time, is_up: bool) {
        if self.is_up && !is_up {
            let epoch = self.epoch.checked_add(1).expect("a link goes down 65,535 times at most");
            self.epoch = epoch;
            self.downs = self.downs.iter().copied().chain([now + self.delay]).collect();
            self.counters.bytes = self.counters.bytes.saturating_sub(self.depth(now));
            self.free_at = now;
        }
        self.is_up = is_up;
    }

    /// Counts from now on.
    pub(crate) fn begin_counts(&mut self, now: Time) {
        self.counters = LineCounters { bytes: self.depth(now), ..LineCounters::default() };
    }

    /// Bytes that have left, since counting began. Where packets are on their way to an empty queue, those count as waiting until then:
    /// up to one of them too few.
    pub(crate) const fn carried(&self, now: Time) -> u64 {
        self.counters.bytes.saturating_sub(self.depth(now))
    }

    /// When the last packet that was taken in will have left.
    pub(crate) const fn free_at(&self) -> Time {
        self.free_at
    }
}

/// What of a line's queue a switch sees whose packets take a while to be enqueued: those that are on their way do not count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Visible {
    /// When what is enqueued will have left.
    free_at: Time,
    /// Packets on their way: when each is enqueued, and when it will have left.
    coming: VecDeque<(Time, Time)>,
}

impl Visible {
    /// A packet is on its way from `now` on. What is seen by then is let go of: nobody may ever look at this queue.
    pub(crate) fn note(&mut self, now: Time, enqueued_at: Time, leaves_at: Time) {
        self.advance(now);
        self.coming.push_back((enqueued_at, leaves_at));
    }

    /// Packets that are enqueued by `now` are seen.
    pub(crate) fn advance(&mut self, now: Time) {
        while let Some((enqueued_at, leaves_at)) = self.coming.front().copied()
            && enqueued_at <= now
        {
            self.free_at = leaves_at;
            self.coming.pop_front();
        }
    }

    /// Bytes that are seen, after [`advance`](Self::advance).
    pub(crate) const fn depth(&self, line: &Line, now: Time) -> u64 {
        line.depth_until(self.free_at, now)
    }
}

#[cfg(test)]
mod tests {
    use weirgate_units::{BitRate, Duration};

    use super::*;

    const fn micros(n: u64) -> Time {
        Time::from_picos(n * 1_000_000)
    }

    fn line() -> Line {
        // 800 ps a byte, 1 us to the other end.
        let settings =
            LinkSettings { rate: BitRate::from_bits_per_sec(10_000_000_000), delay: Duration::from_micros(1) };
        Line::new(settings, 2_000, Target::Host(0), 0, 0)
    }

    #[test]
    fn packets_leave_one_after_the_other() {
        let mut line = line();
        let arrivals: Vec<u64> =
            (0..2).map(|_| line.take(Time::ZERO, 1_000, 3_000).unwrap().arrives_at.as_picos()).collect();
        assert_eq!(arrivals, [1_800_000, 2_600_000]);
        assert_eq!(line.depth(Time::ZERO), 2_000);
        assert_eq!(line.depth(Time::from_picos(400_000)), 1_500);
        assert!(line.take(Time::ZERO, 1_001, 3_000).is_none(), "no room for it");
        let marked = line.take(Time::ZERO, 1_000, 3_000).unwrap();
        assert!(marked.is_marked);
        assert_eq!(line.depth(micros(10)), 0);
        assert_eq!(line.counters.waited, Span::from_nanos(800 + 1_600));
    }

    #[test]
    fn what_had_not_left_is_lost_with_the_line() {
        let mut line = line();
        let arrivals: Vec<Time> = (0..2).map(|_| line.take(Time::ZERO, 1_000, 3_000).unwrap().arrives_at).collect();
        line.set_up(micros(1), false);
        assert!(!line.has_lost(0, arrivals[0]), "its last bit left after 800 ns");
        assert!(line.has_lost(0, arrivals[1]));
        line.set_up(micros(5), true);
        let later = line.take(micros(5), 1_000, 3_000).unwrap().arrives_at;
        assert!(!line.has_lost(line.epoch, later));
    }

    #[test]
    fn what_comes_after_a_repair_is_not_lost_though_the_old_queue_would_still_be_there() {
        let (mut line, at) = (line(), Time::from_picos);
        let before: Vec<Time> = (0..3).map(|_| line.take(Time::ZERO, 1_000, 3_000).unwrap().arrives_at).collect();
        line.set_up(at(900_000), false);
        line.set_up(at(950_000), true);
        assert_eq!(line.depth(at(950_000)), 0);
        let taken = line.take(at(950_000), 1_000, 3_000).unwrap();
        assert!(taken.arrives_at < before[2] && !line.has_lost(line.epoch, taken.arrives_at));
        assert_eq!(
            before.iter().map(|arrives_at| line.has_lost(0, *arrives_at)).collect::<Vec<_>>(),
            [false, true, true]
        );
        // Once more, before the first packet has arrived: that had left each time.
        line.set_up(at(1_000_000), false);
        assert!(line.has_lost(1, taken.arrives_at));
        assert_eq!(
            before.iter().map(|arrives_at| line.has_lost(0, *arrives_at)).collect::<Vec<_>>(),
            [false, true, true]
        );
    }

    /// Half of a second packet has left when counting begins, and half of a third one when the line goes down.
    #[test]
    fn what_has_left_is_carried() {
        let mut line = line();
        (0..2).for_each(|_| _ = line.take(Time::ZERO, 1_000, 3_000));
        let at = Time::from_picos;
        assert_eq!((line.carried(at(0)), line.carried(at(1_200_000)), line.carried(micros(9))), (0, 1_500, 2_000));
        line.begin_counts(at(1_200_000));
        assert_eq!(line.carried(at(1_200_000)), 0);
        (0..2).for_each(|_| _ = line.take(at(1_200_000), 1_000, 3_000));
        assert_eq!((line.carried(at(1_600_000)), line.counters.packets), (500, 2));
        line.set_up(at(2_000_000), false);
        assert_eq!(line.carried(micros(9)), 1_000, "the half of two packets");
    }

    #[test]
    fn what_is_on_its_way_to_the_queue_is_not_seen() {
        let (mut line, mut visible) = (line(), Visible::default());
        let taken = line.take(micros(1), 1_000, 3_000).unwrap();
        visible.note(Time::ZERO, micros(1), taken.leaves_at);
        visible.advance(Time::from_picos(900_000));
        assert_eq!(visible.depth(&line, Time::from_picos(900_000)), 0);
        visible.advance(micros(1));
        assert_eq!(visible.depth(&line, micros(1)), 1_000);
    }
}
