//! One path: what was sent on it and what came, its round-trip time, what it takes, and whether it works.
//!
//! Read first: RFC 8985 (RACK), RFC 9002. Each path numbers its own packets, so that one which another path's packets overtake is not lost.
//!
//! Ground rules: a path knows nothing of objects. What its packets carried is handed back when they are acknowledged, or lost.

mod mtu;
mod received;

use std::collections::VecDeque;
use std::net::SocketAddr;

use weirgate_shape::Bucket;
use weirgate_units::{BitRate, Bytes, Duration, Instant};

use crate::control::{Acked, Algorithm, Control};
use crate::rtt::Rtt;
use crate::wire::{Ack, Cookie, PathId, Status};

pub(crate) use mtu::MTU_MIN;
use mtu::Mtu;
pub(crate) use received::{ACK_DELAY, Received};

/// Packets that are due within so long go together.
const TOGETHER: Duration = Duration::from_millis(1);

/// A path on which packets are under way is silent when none was acknowledged for this long, and for longer than its round-trip time
/// explains.
const SILENT_AFTER: Duration = Duration::from_millis(60);

/// A silent path is down after this much more, if others are not silent.
const DOWN_AFTER: Duration = Duration::from_millis(90);

/// A silent path is asked this often; each next time it takes twice as long, up to [`PROBE_MAX`].
const PROBE_FIRST: Duration = Duration::from_millis(50);
const PROBE_MAX: Duration = Duration::from_millis(500);

/// A path is asked again after this, and each next time after twice as long, where nothing is known of it.
const CHALLENGE_FIRST: Duration = Duration::from_millis(250);

/// Three packets above show that one is missing, where packets are not seen to overtake (RFC 8985, 6.2).
const OVERTAKEN: u64 = 3;

/// What a packet carried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) chunk: Option<Chunk>,
    pub(crate) controls: Vec<Control_>,
    /// Whether it only asks whether its size passes.
    pub(crate) is_mtu_probe: bool,
}

/// Bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) object: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) is_last: bool,
}

/// What is sent again if it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control_ {
    Credit { object: u64 },
    Reset { object: u64, code: u64 },
    Status { path: PathId, status: Status },
}

/// A packet that is under way.
#[derive(Clone, Debug)]
struct Sent {
    at: Instant,
    size: u16,
    content: Content,
    /// As they were when it was sent: see draft-ietf-ccwg-bbr, section 4.1.
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    is_app_limited: bool,
}

/// A packet that was called lost: it may come after all.
#[derive(Clone, Copy, Debug)]
struct Doubtful {
    since: Instant,
    sent: Instant,
    number: u64,
    size: u16,
}

/// How a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Whether the other side is there is being asked.
    Unproven,
    /// It works.
    Up,
    /// Nothing comes back since then: no data is sent on it, only questions.
    Silent {
        since: Instant,
        /// When it counts as down, if others are heard from meanwhile; `None`: it does.
        down_at: Option<Instant>,
    },
    /// It is not used any more.
    Gone,
}

/// What an acknowledgement, or time, has shown.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) acked: Vec<Content>,
    pub(crate) lost: Vec<Content>,
    /// It counted as down, and works again.
    pub(crate) is_up: bool,
    /// It has been silent for so long that it counts as down.
    pub(crate) is_down: bool,
}

#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: PathId,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) state: State,
    /// As this side wants it used, and as the other side does.
    pub(crate) status: (Status, Status),
    pub(crate) rtt: Rtt,
    control: Control,
    pacer: Bucket,
    /// Whether it has not sent yet all that it may send at once.
    is_bursting: bool,
    mtu: Mtu,

    next_number: u64,
    /// Those under way, from this number on; `None`: acknowledged or lost.
    first_number: u64,
    sent: VecDeque<Option<Sent>>,
    in_flight: u64,
    highest_acked: Option<u64>,
    last_ack: Instant,
    /// When the packet was sent that was sent last of those that were acknowledged, and its number.
    rack: (Instant, u64),
    has_overtaken: bool,
    /// Parts of a quarter of the least round-trip time that are waited for overtaken ones.
    patience: u64,
    loss_at: Option<Instant>,
    /// Called lost a while ago.
    doubtful: VecDeque<Doubtful>,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    /// Until so much is delivered, there was nothing more to send.
    app_limited_until: u64,
    probe_at: Option<Instant>,
    probes: u32,
    /// When it was asked last whether it works, for nothing else.
    asked: Instant,

    pub(crate) received: Received,

    /// What is asked, until it is answered.
    pub(crate) challenge: Option<Challenge>,
    /// What the first message takes along.
    pub(crate) cookie: Cookie,
    /// Whether it began with the connection's first message.
    pub(crate) was_called: bool,
    /// To be said back.
    pub(crate) response: Option<u64>,
    /// Whether the last packet that carried anything carried datagrams: they and objects take turns.
    pub(crate) was_datagram: bool,
    /// Bytes that came and went before it was proven that the other side is there.
    unproven: (u64, u64),
    pub(crate) counts: Counts,
}

/// What is asked on a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Challenge {
    pub(crate) token: u64,
    pub(crate) due: Instant,
    pub(crate) tries: u32,
}

/// What a path carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams and bytes of UDP payload that were sent.
    pub packets_out: u64,
    /// Bytes of them.
    pub bytes_out: u64,
    /// Datagrams that came and were the other side's.
    pub packets_in: u64,
    /// Bytes of them.
    pub bytes_in: u64,
    /// Datagrams that did not arrive.
    pub lost: u64,
    /// Of these, those that did after all.
    pub spurious: u64,
    /// How often it fell silent: it was not sent on until it answered again, within milliseconds most often.
    pub silences: u64,
    /// Of these, how often it counted as down.
    pub downs: u64,
}

impl Path {
    pub(crate) fn new(
        now: Instant,
        id: PathId,
        (local, remote): (SocketAddr, SocketAddr),
        algorithm: Algorithm,
        mtu_max: u16,
    ) -> Self {
        let control = Control::new(algorithm, MTU_MIN.into(), id.0);
        // IPv6 has 20 bytes more.
        let mtu = Mtu::new(mtu_max.saturating_sub(if remote.is_ipv6() { 20 } else { 0 }));
        let rtt = Rtt::default();
        let pacer = Bucket::new(now, control.pacing_rate(rtt.smoothed()), burst(BitRate::ZERO, MTU_MIN));
        Self {
            id,
            local,
            remote,
            state: State::Unproven,
            status: Default::default(),
            rtt,
            control,
            pacer,
            is_bursting: true,
            mtu,
            next_number: 0,
            first_number: 0,
            sent: VecDeque::new(),
            in_flight: 0,
            highest_acked: None,
            last_ack: now,
            rack: (Instant::ZERO, 0),
            has_overtaken: false,
            patience: 1,
            loss_at: None,
            doubtful: VecDeque::new(),
            delivered: 0,
            delivered_at: now,
            first_sent: now,
            app_limited_until: 0,
            probe_at: None,
            probes: 0,
            asked: now,
            received: Received::new(now),
            challenge: None,
            cookie: Cookie::default(),
            was_called: false,
            response: None,
            was_datagram: false,
            unproven: (0, 0),
            counts: Counts::default(),
        }
    }

    /// A path that was gone, from and to other addresses: as a new one, but that its packets are numbered on. None is sealed twice by a key,
    /// and none is taken twice.
    pub(crate) fn begin_again(
        &mut self,
        now: Instant,
        addresses: (SocketAddr, SocketAddr),
        algorithm: Algorithm,
        mtu_max: u16,
    ) {
        let (next_number, counts) = (self.next_number, self.counts);
        let received = std::mem::replace(&mut self.received, Received::new(now));
        let new = Self::new(now, self.id, addresses, algorithm, mtu_max);
        *self = Self { next_number, first_number: next_number, received, counts, ..new };
    }

    // What comes.

    /// A packet came that had not before; `is_asking`: for an acknowledgement.
    pub(crate) fn handle_packet(&mut self, now: Instant, number: u64, size: usize, is_asking: bool) {
        self.counts.packets_in += 1;
        self.counts.bytes_in += size as u64;
        self.received.insert(now, number, is_asking);
    }

    /// Bytes came by which the other side's address may be answered before it is proven.
    pub(crate) fn handle_bytes(&mut self, size: usize) {
        self.unproven.0 += size as u64;
    }

    // What goes.

    /// The number of the next packet.
    pub(crate) const fn number(&self) -> u64 {
        self.next_number
    }

    /// The size of datagrams, in bytes.
    pub(crate) const fn mtu(&self) -> u16 {
        self.mtu.now()
    }

    /// From when on a packet may be sent; `None`: too much is under way.
    pub(crate) fn may_send_at(&self) -> Option<Instant> {
        let has_window = self.in_flight + u64::from(self.mtu.now()) <= self.control.window();
        if !has_window || (self.state == State::Unproven && !self.has_budget(self.mtu.now().into())) {
            return None;
        }
        // What is due within a millisecond goes together, as TCP's does: a wake-up for each packet is most of what it costs.
        let together = if self.is_bursting { Bytes::ZERO } else { self.pacer.rate().bytes_in(TOGETHER) };
        self.pacer.ready_at(together)
    }

    /// Whether so many bytes may be sent to where nobody may be: three times what came from there (RFC 9000, 8.1).
    pub(crate) fn has_budget(&self, size: u64) -> bool {
        self.state != State::Unproven || self.unproven.1 + size <= 3 * self.unproven.0
    }

    /// Whether data is sent on it.
    pub(crate) fn carries_data(&self) -> bool {
        self.state == State::Up && ![self.status.0, self.status.1].contains(&Status::Gone)
    }

    /// Whether it is for when no other one works.
    pub(crate) fn is_backup(&self) -> bool {
        self.status.0 == Status::Backup || self.status.1 == Status::Backup
    }

    /// A packet was sent; `is_asking`: it is to be acknowledged.
    pub(crate) fn handle_sent(&mut self, now: Instant, size: u16, content: Content, is_asking: bool) {
        self.counts.packets_out += 1;
        self.counts.bytes_out += u64::from(size);
        if self.state == State::Unproven {
            self.unproven.1 += u64::from(size);
        }
        self.next_number += 1;
        if !is_asking {
            // It is not waited for.
            if self.sent.is_empty() {
                self.first_number = self.next_number;
            } else {
                self.sent.push_back(None);
            }
            return;
        }
        if self.in_flight == 0 {
            (self.first_sent, self.delivered_at) = (now, now);
        }
        let is_app_limited = self.app_limited_until > 0;
        let (delivered, delivered_at, first_sent) = (self.delivered, self.delivered_at, self.first_sent);
        self.sent.push_back(Some(Sent { at: now, size, content, delivered, delivered_at, first_sent, is_app_limited }));
        self.in_flight += u64::from(size);
        let rate = self.control.pacing_rate(self.rtt.smoothed());
        self.pacer.set_rate(now, rate);
        self.pacer.set_depth(now, burst(rate, self.mtu.now()));
        self.pacer.charge(now, Bytes::new(size.into()));
        self.is_bursting = self.pacer.ready_at(Bytes::ZERO).is_some_and(|at| at <= now);
    }

    /// There is nothing more to send: what is delivered from now on does not say what the path takes.
    pub(crate) fn handle_nothing_to_send(&mut self) {
        if self.in_flight + u64::from(self.mtu.now()) <= self.control.window() {
            self.app_limited_until = (self.delivered + self.in_flight).max(1);
        }
    }

    /// When it is asked whether it still works, if nothing is under way.
    pub(crate) fn keep_alive_at(&self, every: Duration) -> Option<Instant> {
        // A packet that asks whether its size passes may never be answered.
        (self.state == State::Up && self.silent_at().is_none()).then_some(self.last_ack.max(self.asked) + every)
    }

    /// It is asked with the next packet.
    pub(crate) const fn ask(&mut self, now: Instant) {
        self.asked = now;
        self.probe_at = Some(now);
    }

    /// The challenge was sent, with so many bytes that are counted nowhere else.
    pub(crate) fn challenged(&mut self, now: Instant, bytes: usize) {
        if self.state == State::Unproven {
            self.unproven.1 += bytes as u64;
        }
        let timeout = self.rtt.timeout().min(CHALLENGE_FIRST);
        if let Some(challenge) = &mut self.challenge {
            challenge.due = now + timeout.saturating_mul(1 << challenge.tries.min(5));
            challenge.tries += 1;
        }
    }

    /// The other side's address is another one, and has to be proven. Others carry what was under way.
    pub(crate) fn doubt(&mut self) -> Shown {
        self.state = State::Unproven;
        self.unproven = (0, 0);
        (self.probe_at, self.probes) = (None, 0);
        let mut shown = Shown::default();
        self.hand_back(&mut shown);
        shown
    }

    /// Others carry what is under way here; its packets stay, so that an answer to one still shows that the path works.
    fn hand_back(&mut self, shown: &mut Shown) {
        let sent = self.sent.iter_mut().flatten().filter(|sent| !sent.content.is_mtu_probe);
        shown.lost.extend(sent.map(|sent| std::mem::take(&mut sent.content)));
    }

    /// When something was acknowledged last.
    pub(crate) const fn last_ack(&self) -> Instant {
        self.last_ack
    }

    /// Chunks under way.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Chunk> + '_ {
        self.sent.iter().flatten().filter_map(|sent| sent.content.chunk)
    }

    /// Bytes under way.
    pub(crate) const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// When what is sent now arrives, as far as is known: what is under way has to pass first.
    pub(crate) fn arrives_after(&self, more: u64) -> Duration {
        let rate = self.rate();
        let queue = rate.time_for(Bytes::new(self.in_flight + more));
        // What is under way is on its way for half of the round-trip time already.
        let half = Duration::from_nanos(self.rtt.smoothed().as_nanos() / 2);
        Duration::from_nanos(queue.as_nanos().max(half.as_nanos())).saturating_add(if queue > half {
            Duration::ZERO
        } else {
            rate.time_for(Bytes::new(more))
        })
    }

    /// Whether so little was sent on it that its rate is not known.
    pub(crate) fn is_starting(&self) -> bool {
        self.control.is_starting()
    }

    /// Whether nothing is to be hoped of it for now: it is gone, or counts as down.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self.state, State::Gone | State::Silent { down_at: None, .. })
    }

    /// What it delivers, as far as is known.
    pub(crate) fn rate(&self) -> BitRate {
        self.control.rate(self.rtt.smoothed())
    }

    /// Chunks under way, the longest first, and when each is to arrive.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = (Chunk, Instant)> + '_ {
        let half = Duration::from_nanos(self.rtt.smoothed().as_nanos() / 2);
        let sent = self.sent.iter().flatten();
        sent.filter_map(move |sent| Some((sent.content.chunk?, sent.at + half)))
    }

    // What is known of it.

    /// An acknowledgement came. `None`: it is of packets that were never sent.
    pub(crate) fn handle_ack(&mut self, now: Instant, ack: &Ack<'_>) -> Option<Shown> {
        if ack.highest() >= self.next_number {
            return None;
        }
        let mut shown = Shown::default();
        let mut last: Option<(u64, Sent)> = None;
        let mut late: Option<Doubtful> = None;
        let mut bytes = 0;
        for range in ack.ranges() {
            let newest = self.take_back_losses(&range);
            late = late.into_iter().chain(newest).max_by_key(|doubtful| doubtful.number);
            for number in (*range.start()).max(self.first_number)..=*range.end() {
                let Some(sent) = self.take(number) else { continue };
                bytes += u64::from(sent.size);
                self.in_flight -= u64::from(sent.size);
                if self.highest_acked.is_some_and(|highest| number < highest) {
                    self.has_overtaken = true;
                }
                if !sent.content.is_mtu_probe {
                    self.mtu.handle_acked(sent.size);
                } else if self.mtu.handle_probe_acked(sent.size) {
                    self.control.set_mtu(sent.size.into());
                }
                if (sent.at, number) > self.rack {
                    self.rack = (sent.at, number);
                }
                shown.acked.push(sent.content.clone());
                if last.as_ref().is_none_or(|(highest, _)| number > *highest) {
                    last = Some((number, sent));
                }
            }
        }
        let held = Duration::from_micros(ack.delay_us);
        let Some((number, sent)) = last else {
            if let Some(late) = late.filter(|_| held < SILENT_AFTER) {
                // It was this side that did not look for long, or the way has become so long.
                if late.number == ack.highest() {
                    self.rtt.sample(now, now.saturating_since(late.sent), held.min(ACK_DELAY.saturating_mul(4)));
                }
                self.last_ack = self.last_ack.max(now - held);
                self.revive(now, &mut shown);
            }
            return Some(shown);
        };
        self.delivered += bytes;
        self.delivered_at = now;
        // One that was repeated says how the path was then.
        self.last_ack = self.last_ack.max(now - held);
        if self.app_limited_until > 0 && self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        if self.highest_acked.is_none_or(|highest| number > highest) {
            self.highest_acked = Some(number);
            if number == ack.highest() {
                self.rtt.sample(now, now.saturating_since(sent.at), held.min(ACK_DELAY.saturating_mul(4)));
            }
        }
        let rate = self.rate_of(now, &sent);
        self.first_sent = sent.at;
        let acked = Acked {
            now,
            bytes,
            sent: sent.at,
            in_flight: self.in_flight,
            rtt: self.rtt.latest(),
            rtt_min: self.rtt.min(),
            delivered: self.delivered,
            delivered_then: sent.delivered,
            rate,
            is_app_limited: sent.is_app_limited,
        };
        self.control.handle_ack(&acked);
        self.revive(now, &mut shown);
        self.find_lost(now, &mut shown);
        Some(shown)
    }

    /// Something came through: the path works.
    fn revive(&mut self, now: Instant, shown: &mut Shown) {
        (self.probes, self.probe_at) = (0, None);
        let State::Silent { down_at, .. } = self.state else { return };
        self.state = State::Up;
        shown.is_up = down_at.is_none();
        if self.mtu.is_black_hole() {
            // Small ones pass, and large ones did not: perhaps not for their size, which shows at once.
            self.shrink_mtu(now);
        }
    }

    /// What was delivered between this packet's sending and now, over the longer one of the times in which it was sent and acknowledged.
    fn rate_of(&self, now: Instant, sent: &Sent) -> Option<BitRate> {
        let acked = now.saturating_since(sent.delivered_at);
        let interval = acked.max(sent.at.saturating_since(sent.first_sent));
        // Faster than the least round-trip time it cannot have been.
        if interval < self.rtt.min() {
            return None;
        }
        BitRate::of(Bytes::new(self.delivered - sent.delivered), interval)
    }

    fn take(&mut self, number: u64) -> Option<Sent> {
        let at = usize::try_from(number.checked_sub(self.first_number)?).ok()?;
        let taken = self.sent.get_mut(at)?.take();
        while let Some(None) = self.sent.front() {
            self.sent.pop_front();
            self.first_number += 1;
        }
        taken
    }

    /// What was called lost and came after all; the newest of it.
    fn take_back_losses(&mut self, range: &std::ops::RangeInclusive<u64>) -> Option<Doubtful> {
        let before = self.doubtful.len();
        let (mut bytes, mut newest) = (0, None);
        self.doubtful.retain(|doubtful| {
            let has_come = range.contains(&doubtful.number);
            if has_come {
                bytes += u64::from(doubtful.size);
                newest = newest.into_iter().chain([*doubtful]).max_by_key(|doubtful| doubtful.number);
                self.mtu.handle_acked(doubtful.size);
            }
            !has_come
        });
        let came = before - self.doubtful.len();
        if came > 0 {
            self.counts.spurious += came as u64;
            self.has_overtaken = true;
            self.patience = (self.patience + 1).min(16);
            self.control.handle_spurious_loss(bytes);
        }
        newest
    }

    /// RFC 8985: what was sent before a packet that came, and should have come by now.
    fn find_lost(&mut self, now: Instant, shown: &mut Shown) {
        self.loss_at = None;
        let Some(highest) = self.highest_acked else { return };
        let quarter = Duration::from_nanos(self.rtt.min().as_nanos() / 4);
        let wait = quarter.saturating_mul(self.patience).min(self.rtt.smoothed());
        let deadline = self.rtt.smoothed().max(self.rtt.latest()).saturating_add(wait);
        let mut lost = Vec::new();
        for (at, sent) in self.sent.iter().enumerate() {
            let number = self.first_number + at as u64;
            let Some(sent) = sent else { continue };
            if (sent.at, number) > self.rack {
                break;
            }
            let is_overtaken = !self.has_overtaken && highest >= number + OVERTAKEN;
            let due = sent.at + deadline;
            if is_overtaken || due <= now {
                lost.push(number);
            } else {
                self.loss_at = Some(self.loss_at.map_or(due, |at: Instant| at.min(due)));
            }
        }
        self.lose(now, &lost, shown);
    }

    fn lose(&mut self, now: Instant, numbers: &[u64], shown: &mut Shown) {
        let (mut bytes, mut last) = (0, Instant::ZERO);
        for number in numbers {
            let Some(sent) = self.take(*number) else { continue };
            self.in_flight -= u64::from(sent.size);
            if sent.content.is_mtu_probe {
                // Its size does not pass; nothing is known of the path's queue by that.
                continue;
            }
            self.counts.lost += 1;
            self.mtu.handle_lost(now, sent.at, sent.size);
            bytes += u64::from(sent.size);
            last = last.max(sent.at);
            self.doubtful.push_back(Doubtful { since: now, sent: sent.at, number: *number, size: sent.size });
            shown.lost.push(sent.content);
        }
        let forget = self.rtt.smoothed().saturating_mul(4).saturating_add(Duration::from_secs(1));
        while self.doubtful.front().is_some_and(|doubtful| now.saturating_since(doubtful.since) > forget) {
            self.doubtful.pop_front();
        }
        if bytes > 0 {
            self.control.handle_loss(now, bytes, last, self.in_flight);
        }
        if self.mtu.is_black_hole() {
            self.shrink_mtu(now);
        }
    }

    // Time.

    /// When time shows something; `None`: never.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        let silence = (self.state == State::Up && self.in_flight > 0).then(|| self.silent_at()).flatten();
        let down = match self.state {
            State::Silent { down_at, .. } => down_at,
            _ => None,
        };
        [self.loss_at, silence, down, self.probe_at].into_iter().flatten().min()
    }

    /// When it counts as silent, if nothing comes.
    fn silent_at(&self) -> Option<Instant> {
        // One that asks whether its size passes may be lost for that.
        let oldest = self.sent.iter().flatten().find(|sent| !sent.content.is_mtu_probe)?.at;
        let expected = oldest + self.rtt.timeout().saturating_add(ACK_DELAY);
        Some(expected.max(self.last_ack.max(oldest) + SILENT_AFTER))
    }

    /// Time has passed; on other paths something was acknowledged last at `heard`.
    pub(crate) fn handle_timeout(&mut self, now: Instant, heard: Option<Instant>) -> Shown {
        let mut shown = Shown::default();
        if self.loss_at.is_some_and(|at| at <= now) {
            self.find_lost(now, &mut shown);
        }
        match self.state {
            State::Up if self.in_flight > 0 && self.silent_at().is_some_and(|at| at <= now) => {
                self.state = State::Silent { since: now, down_at: Some(now + DOWN_AFTER) };
                (self.probe_at, self.probes) = (Some(now), 0);
                self.counts.silences += 1;
                // Others carry what was under way here.
                let all: Vec<u64> = self.numbers().collect();
                self.loss_at = None;
                self.give_up(now, &all, &mut shown);
            }
            State::Silent { since, down_at: Some(due) } if due <= now => {
                // Where nothing comes on any path it is not this one: the other side may have to wait for its disk.
                let is_down = heard.is_some_and(|heard| heard > since);
                self.state = State::Silent { since, down_at: (!is_down).then(|| now + DOWN_AFTER) };
                self.counts.downs += u64::from(is_down);
                shown.is_down = is_down;
            }
            // What went with the last question may be answered never.
            State::Silent { .. } if self.wants_probe(now) => self.hand_back(&mut shown),
            // Nor what went with a question on a path that may never have been one.
            State::Unproven if self.challenge.is_some_and(|challenge| challenge.due <= now) => {
                self.hand_back(&mut shown)
            }
            _ => {}
        }
        shown
    }

    fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let with = self.sent.iter().enumerate().filter(|(_, sent)| sent.is_some());
        with.map(|(at, _)| self.first_number + at as u64)
    }

    /// As [`lose`](Self::lose), but it says nothing of the path's queue.
    fn give_up(&mut self, now: Instant, numbers: &[u64], shown: &mut Shown) {
        for number in numbers {
            let Some(sent) = self.take(*number) else { continue };
            self.in_flight -= u64::from(sent.size);
            self.counts.lost += 1;
            if !sent.content.is_mtu_probe {
                self.mtu.handle_given_up(sent.size);
            }
            self.doubtful.push_back(Doubtful { since: now, sent: sent.at, number: *number, size: sent.size });
            shown.lost.push(sent.content);
        }
    }

    /// Everything that is under way is given back: the path is not used any more.
    pub(crate) fn abandon(&mut self, now: Instant) -> Shown {
        let mut shown = Shown::default();
        let all: Vec<u64> = self.numbers().collect();
        self.give_up(now, &all, &mut shown);
        self.state = State::Gone;
        (self.loss_at, self.probe_at, self.challenge) = (None, None, None);
        self.received.stop();
        shown
    }

    /// Whether a silent path is to be asked now.
    pub(crate) fn wants_probe(&self, now: Instant) -> bool {
        self.probe_at.is_some_and(|at| at <= now)
    }

    /// It was.
    pub(crate) fn probed(&mut self, now: Instant) {
        let wait = PROBE_FIRST.saturating_mul(1 << self.probes.min(16)).min(PROBE_MAX);
        self.probes += 1;
        self.probe_at = Some(now + wait);
    }

    /// It is proven that the other side is there.
    pub(crate) fn prove(&mut self, now: Instant) -> bool {
        self.challenge = None;
        if self.state != State::Unproven {
            return false;
        }
        self.state = State::Up;
        self.last_ack = now;
        self.mtu.begin(now);
        true
    }

    // The path's MTU.

    /// The size that is to be tried now, if one is.
    pub(crate) fn wants_mtu_probe(&mut self, now: Instant) -> Option<u16> {
        if self.state == State::Up { self.mtu.wants_probe(now) } else { None }
    }

    /// When one is.
    pub(crate) fn mtu_probe_at(&self) -> Option<Instant> {
        self.mtu.probe_at().filter(|_| self.state == State::Up)
    }

    /// It was tried.
    pub(crate) fn mtu_probed(&mut self, now: Instant) {
        self.mtu.probed(now + self.rtt.timeout().saturating_mul(2));
    }

    fn shrink_mtu(&mut self, now: Instant) {
        self.mtu.shrink(now);
        self.control.set_mtu(MTU_MIN.into());
    }

    /// What always holds.
    pub(crate) fn is_valid(&self) -> bool {
        let under_way: u64 = self.sent.iter().flatten().map(|sent| u64::from(sent.size)).sum();
        under_way == self.in_flight && self.received.is_valid() && self.pacer.is_valid()
    }
}

/// Sent at once: what is due in four milliseconds, for which a thread may have to wait for its processor, and four packets at least.
fn burst(rate: BitRate, mtu: u16) -> Bytes {
    rate.bytes_in(Duration::from_millis(4)).max(Bytes::new(4 * u64::from(mtu)))
}
