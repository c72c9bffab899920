//! The fault: a port around a port that gives a link's rate, queue, loss, delay, jitter and outages.
//!
//! The stages, in the order in which a packet meets them:
//!
//! 1. **Outage.** While the link is down, what arrives is dropped.
//! 2. **Queue and rate.** First in first out, drop-tail in bytes, one packet at a time on the line: a packet leaves it when
//!    its last bit has. The queue comes first because a bottleneck's queue is where packets meet a link, and it must see
//!    everything that is offered.
//! 3. **Loss**, after the line: a packet lost on the air or on a bad cable has used the line, and has stood in the queue.
//!    Loss before the queue would empty it, and hand a lossy link the delay of an idle one.
//! 4. **Delay and jitter**, last: propagation holds any number of packets and does not slow the line.
//!
//! All of it happens in virtual time: a packet that leaves the line at `t` arrives at exactly `t + delay`, and a queue that
//! was looked at late has done in the meantime what it would have done anyway. So the pattern of polling changes nothing
//! but how late the caller notices. [`Packet::at`] has the exact instant.

use core::fmt;
use std::collections::VecDeque;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use weirgate_shape::Bucket;
use weirgate_units::{BitRate, Bytes, Duration, Instant};

use crate::{Packet, Port, Wire};

/// What a link does to packets, in one direction. The default is a perfect one.
///
/// Sizes and rates count the packet as it is handed over, on the lab's links from the IP header on: a 1,500 B packet is
/// 1,500 B, with no Ethernet around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How fast the line sends; `None` is at once, without a queue. [`BitRate::ZERO`] is a line that stalls: the queue
    /// fills, and goes on when the rate is set again.
    pub rate: Option<BitRate>,
    /// How much may wait, beside the packet on the line. Full means that an arriving packet is dropped.
    pub queue: Bytes,
    /// The chance of every packet to be lost, independent of the others.
    pub loss: Chance,
    /// Propagation: from the last bit leaving the line to its arrival.
    pub delay: Duration,
    /// Up to this much more delay, evenly drawn for each packet.
    pub jitter: Duration,
    /// Whether jitter may let a packet overtake another. Where not, a packet arrives with the one before it at the earliest.
    pub reorder: bool,
    /// Whether the link is down: what arrives at it, or leaves its queue, is dropped; what is already propagating arrives.
    pub outage: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rate: None,
            queue: Bytes::new(u64::MAX),
            loss: Chance::NEVER,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            reorder: false,
            outage: false,
        }
    }
}

/// A probability, in parts per million: 0 to 1,000,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chance(u32);

impl Chance {
    /// It does not happen.
    pub const NEVER: Self = Self(0);

    /// So many times in a million; cut to a million, which is always.
    pub const fn from_ppm(ppm: u32) -> Self {
        Self(if ppm > 1_000_000 { 1_000_000 } else { ppm })
    }

    /// In parts per million.
    pub const fn as_ppm(self) -> u32 {
        self.0
    }

    /// As a number from 0 to 1, for reports.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1e6
    }

    /// Whether it happens this time. Bias below 2^-44.
    fn happens(self, random: &mut Pcg64Mcg) -> bool {
        self.0 > 0 && below(random, 1_000_000) < u64::from(self.0)
    }
}

impl fmt::Display for Chance {
    /// In per cent, exactly: `0.5 %`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} %", f64::from(self.0) / 1e4))
    }
}

/// What a link did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that arrived at the link.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Packets that came through.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Packets that found the queue full.
    pub dropped_full: u64,
    /// Packets lost at random.
    pub dropped_loss: u64,
    /// Packets that met the link down.
    pub dropped_outage: u64,
    /// The most that waited at once, without the packet on the line.
    pub queue_max: Bytes,
}

impl Counters {
    /// Packets that went in and will not come out, by whatever cause.
    pub const fn dropped(&self) -> u64 {
        self.dropped_full + self.dropped_loss + self.dropped_outage
    }
}

/// A link in one direction, before the port `P`. See the module's head for its stages.
///
/// The work of a call is proportional to the packets that have come due since the last one; with
/// [`reorder`](Settings::reorder), times the packets that one may overtake.
#[derive(Debug)]
pub struct Impair<P = Wire> {
    settings: Settings,
    /// Owes what the line has yet to send. Charged with each packet's own arrival, so that no fraction of a nanosecond is
    /// lost between two packets that follow each other. Meaningless without a rate.
    line: Bucket,
    /// The first is on the line.
    queue: VecDeque<Packet>,
    /// The bytes of all but the first.
    waiting: Bytes,
    /// When the packet on the line has left it; `None` where there is none, or the line stalls.
    sent_at: Option<Instant>,
    /// Propagating, by arrival.
    flight: VecDeque<(Instant, Packet)>,
    /// The latest arrival given out.
    arrival_max: Instant,
    random: Pcg64Mcg,
    counters: Counters,
    inner: P,
}

impl<P: Port> Impair<P> {
    /// A link that gives what comes through to `inner`. Equal seeds and packets have equal fates.
    pub fn new(now: Instant, settings: Settings, seed: u64, inner: P) -> Self {
        Self {
            settings,
            line: line(now, &settings),
            queue: VecDeque::new(),
            waiting: Bytes::ZERO,
            sent_at: None,
            flight: VecDeque::new(),
            arrival_max: Instant::ZERO,
            random: Pcg64Mcg::seed_from_u64(seed),
            counters: Counters::default(),
            inner,
        }
    }

    /// What is in force.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the settings from `now` on. Packets that wait stay, even where the new queue is shorter, and are sent at the
    /// new rate, the rest of the packet on the line included. Packets that propagate keep their arrival, and a shorter delay
    /// lets nothing overtake them unless [`reorder`](Settings::reorder) says so.
    pub fn set(&mut self, now: Instant, settings: Settings) {
        self.advance(now);
        let before = core::mem::replace(&mut self.settings, settings);
        match (before.rate, settings.rate) {
            (Some(_), Some(rate)) => self.line.set_rate(now, rate),
            (None, Some(_)) => self.line = line(now, &settings),
            (_, None) => {}
        }
        if settings.rate.is_none() {
            self.sent_at = None;
            while let Some(packet) = self.queue.pop_front() {
                self.propagate(now, packet);
            }
            self.waiting = Bytes::ZERO;
        } else if !self.queue.is_empty() {
            self.sent_at = self.line.ready_at(Bytes::ZERO);
        }
        debug_assert!(self.is_valid());
    }

    /// What it did so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The packets it holds: waiting, on the line and propagating.
    pub fn held(&self) -> usize {
        self.queue.len() + self.flight.len()
    }

    /// The bytes that wait now, without the packet on the line.
    pub const fn waiting(&self) -> Bytes {
        self.waiting
    }

    /// The port behind.
    pub const fn inner(&self) -> &P {
        &self.inner
    }

    /// The port behind, for instance to change the settings of a link after this one.
    pub const fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    /// What always holds: every packet that went in came out, was dropped and counted, or is held; those that propagate are
    /// sorted; the sums are right. Walks everything; for tests.
    pub fn is_valid(&self) -> bool {
        let waiting = self.queue.iter().skip(1).fold(Bytes::ZERO, |sum, p| sum + p.size());
        self.balances()
            && waiting == self.waiting
            && self.line.is_valid()
            && self.flight.iter().zip(self.flight.iter().skip(1)).all(|(a, b)| a.0 <= b.0)
    }

    /// As much of [`is_valid`](Self::is_valid) as can be asked at every packet.
    fn balances(&self) -> bool {
        let c = &self.counters;
        c.packets_in == c.packets_out + c.dropped() + self.held() as u64
            && (self.settings.rate.is_some() || self.queue.is_empty())
            && (self.sent_at.is_none() || !self.queue.is_empty())
    }

    /// Does what was due by `now`.
    fn advance(&mut self, now: Instant) {
        while let Some(sent_at) = self.sent_at.filter(|t| *t <= now) {
            let packet = self.queue.pop_front().expect("the packet on the line is the queue's first");
            self.propagate(sent_at, packet);
            if let Some(next) = self.queue.front() {
                self.waiting = self.waiting.saturating_sub(next.size());
            }
            self.send();
        }
        while self.flight.front().is_some_and(|(t, _)| *t <= now) {
            let (arrival, packet) = self.flight.pop_front().expect("there is a first");
            self.counters.packets_out += 1;
            self.counters.bytes_out += packet.size().as_u64();
            self.inner.handle_packet(arrival, packet);
        }
    }

    /// Puts the queue's first packet on the line.
    fn send(&mut self) {
        self.sent_at = self.queue.front().and_then(|first| {
            self.line.charge(first.at(), first.size());
            self.line.ready_at(Bytes::ZERO)
        });
    }

    /// What happens to a packet that has left the line at `sent_at`.
    fn propagate(&mut self, sent_at: Instant, packet: Packet) {
        if self.settings.outage {
            self.counters.dropped_outage += 1;
            return;
        }
        if self.settings.loss.happens(&mut self.random) {
            self.counters.dropped_loss += 1;
            return;
        }
        let mut arrival = sent_at + self.settings.delay;
        if self.settings.jitter > Duration::ZERO {
            let most = self.settings.jitter.as_nanos().saturating_add(1);
            arrival += Duration::from_nanos(below(&mut self.random, most));
        }
        if !self.settings.reorder {
            arrival = arrival.max(self.arrival_max);
        }
        self.arrival_max = self.arrival_max.max(arrival);
        let mut place = self.flight.len();
        while place > 0 && self.flight[place - 1].0 > arrival {
            place -= 1;
        }
        self.flight.insert(place, (arrival, packet));
    }
}

impl<P: Port> Port for Impair<P> {
    fn handle_packet(&mut self, now: Instant, mut packet: Packet) {
        self.advance(now);
        let size = packet.size();
        packet.set_at(now);
        self.counters.packets_in += 1;
        self.counters.bytes_in += size.as_u64();
        if self.settings.outage {
            self.counters.dropped_outage += 1;
        } else if self.settings.rate.is_none() {
            self.propagate(now, packet);
        } else if self.queue.is_empty() {
            self.queue.push_back(packet);
            self.send();
        } else if self.waiting + size > self.settings.queue {
            self.counters.dropped_full += 1;
        } else {
            self.waiting += size;
            self.counters.queue_max = self.counters.queue_max.max(self.waiting);
            self.queue.push_back(packet);
        }
        debug_assert!(self.balances());
    }

    fn poll_packet(&mut self, now: Instant) -> Option<Packet> {
        self.advance(now);
        debug_assert!(self.balances());
        self.inner.poll_packet(now)
    }

    fn poll_at(&self) -> Option<Instant> {
        // The line needs no call of its own: nothing is seen of a packet that left it before it has propagated.
        let line = self.sent_at.map(|t| t + self.settings.delay);
        [line, self.flight.front().map(|(t, _)| *t), self.inner.poll_at()].into_iter().flatten().min()
    }
}

/// A line that owes nothing. It earns nothing ahead either: a link that was idle sends the next packet no faster.
fn line(now: Instant, settings: &Settings) -> Bucket {
    Bucket::new(now, settings.rate.unwrap_or(BitRate::ZERO), Bytes::ZERO)
}

/// Evenly from `0..n`, with a bias below n / 2^64.
fn below(random: &mut Pcg64Mcg, n: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(n)) >> 64) as u64
}

#[cfg(test)]
mod tests;
