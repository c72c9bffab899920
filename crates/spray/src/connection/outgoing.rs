//! What goes: which path has the next packet, and what is in it.

use weirgate_units::{Duration, Instant};

use super::{Connection, Phase, Transmit};
use crate::object::Source;
use crate::path::{Chunk, Content, Control_, MTU_MIN, Path, State};
use crate::wire::{
    Frame, HEADER_LEN, Header, PACKET_NUMBER_END, PathId, TAG_LEN, data_len, datagram_len, put_ack, put_data,
    put_holes, put_init, put_reply,
};

impl Connection {
    /// The next datagram, which is written to `out`; bytes of objects are asked of `source`. To be called until there is none.
    pub fn poll_transmit(&mut self, now: Instant, source: &mut impl Source, out: &mut Vec<u8>) -> Option<Transmit> {
        out.clear();
        let at = match &self.phase {
            Phase::Calling { .. } => self.call(now, out),
            Phase::Open { .. } => self.answer(now, out).or_else(|| self.next_packet(now, source, out)),
            Phase::Closing { .. } => self.say_goodbye(out),
            Phase::Closed => None,
        }?;
        let path = &self.paths[at];
        debug_assert!(path.is_valid());
        Some(Transmit { path: path.id, local: path.local, remote: path.remote })
    }

    /// The first message, on each path until it is answered.
    fn call(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<usize> {
        let Phase::Calling { message, .. } = &self.phase else { return None };
        let at = self.paths.iter().position(|path| path.challenge.is_some_and(|challenge| challenge.due <= now))?;
        put_init(out, self.id, self.paths[at].id, self.paths[at].cookie, message);
        self.paths[at].challenged(now, out.len());
        Some(at)
    }

    /// Its answer, on each path on which it came.
    fn answer(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<usize> {
        let Phase::Open { answer, .. } = &self.phase else { return None };
        if self.is_client {
            // A path whose answer has not come is asked as any later one: nobody else would answer.
            return None;
        }
        let is_due = |path: &Path| {
            path.was_called
                && path.state == State::Unproven
                && path.challenge.is_some_and(|challenge| challenge.due <= now)
        };
        let at = self.paths.iter().position(is_due)?;
        let path = &mut self.paths[at];
        let token = path.challenge?.token;
        put_reply(out, self.id, path.id, token, answer);
        if !path.has_budget(out.len() as u64) {
            path.challenge = None;
            out.clear();
            return None;
        }
        path.challenged(now, out.len());
        Some(at)
    }

    fn say_goodbye(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        let count = self.paths.len();
        let Phase::Closing { keys, code, reason, due, next, is_answer, .. } = &mut self.phase else { return None };
        *due = due.checked_sub(1)?;
        // In turn: one may just have died.
        let mut turn = (0..count).map(|step| (*next + step) % count);
        let at = turn.find(|at| self.paths[*at].state != State::Gone)?;
        *next = at + 1;
        let path = &mut self.paths[at];
        let header =
            Header { phase: keys.sealer.phase(false), connection: self.id, path: path.id, number: path.number() };
        header.put(out);
        Frame::Close { code: *code, reason }.put(out);
        keys.sealer.seal(&header, out);
        path.handle_sent(self.last_received, out.len() as u16, Content::default(), false);
        if *is_answer && *due == 0 {
            self.phase = Phase::Closed;
        }
        Some(at)
    }

    fn next_packet(&mut self, now: Instant, source: &mut impl Source, out: &mut Vec<u8>) -> Option<usize> {
        self.look_at_datagrams(now);
        let carrier = self.carrier();
        let count = self.paths.len();
        for step in 0..count {
            let at = (self.turn + step) % count;
            let is_carrier = carrier == Some(at);
            if self.packet(now, at, is_carrier, source, out) {
                // Data goes round; what else there is does not matter.
                self.turn = (at + 1) % count;
                return Some(at);
            }
        }
        None
    }

    /// The path on which goes what is for no path of its own.
    pub(super) fn carrier(&self) -> Option<usize> {
        let best = |wanted: fn(&Path) -> bool| {
            let all = self.paths.iter().enumerate().filter(|(_, path)| wanted(path));
            all.min_by_key(|(_, path)| path.rtt.smoothed()).map(|(at, _)| at)
        };
        best(|path| path.carries_data() && !path.is_backup())
            .or_else(|| best(Path::carries_data))
            .or_else(|| best(|path| matches!(path.state, State::Silent { down_at: Some(_), .. })))
            .or_else(|| best(|path| path.state == State::Unproven && path.has_budget(u64::from(MTU_MIN))))
            .or_else(|| best(|path| path.state != State::Gone))
    }

    /// Writes a packet for a path, if there is something for it.
    fn packet(
        &mut self,
        now: Instant,
        at: usize,
        is_carrier: bool,
        source: &mut impl Source,
        out: &mut Vec<u8>,
    ) -> bool {
        if self.paths[at].state == State::Gone || self.paths[at].number() >= PACKET_NUMBER_END {
            return false;
        }
        if self.mtu_probe(now, at, out) {
            return true;
        }
        let path = &self.paths[at];
        let is_challenged = path.challenge.is_some_and(|challenge| challenge.due <= now);
        let is_probed = path.wants_probe(now);
        let acks_due = self.paths.iter().enumerate().any(|(of, path)| {
            let is_here = of == at || (is_carrier && path.state != State::Up);
            is_here && path.received.ack_due().is_some_and(|due| due <= now)
        });
        let has_controls = is_carrier && !self.controls.is_empty();
        let has_holes = is_carrier && self.nack_at().is_some_and(|at| at <= now);
        let alone = is_challenged || is_probed || path.response.is_some() || acks_due || has_controls || has_holes;
        let has_datagram = self.datagram_at(now, at).is_some_and(|due| due <= now);
        let is_datagrams_turn = has_datagram && !(self.paths[at].was_datagram && self.next_active().is_some());
        let data = if is_datagrams_turn { None } else { self.chunk_source(now, at) };
        let path = &self.paths[at];
        if !alone && data.is_none() && !has_datagram {
            return false;
        }
        // A datagram that asks whether somebody is there has the size that is to pass.
        let size = usize::from(path.mtu());
        if !path.has_budget(size as u64) {
            return false;
        }
        let room = size - TAG_LEN;
        let Phase::Open { keys, sealed_since, .. } = &mut self.phase else { return false };
        let is_seen = self.paths.iter().any(|path| path.last_ack() > *sealed_since + Duration::from_secs(1));
        let before = keys.sealer.phase(false);
        let phase = keys.sealer.phase(is_seen);
        if phase != before {
            *sealed_since = now;
        }
        let header = Header { phase, connection: self.id, path: self.paths[at].id, number: self.paths[at].number() };
        header.put(out);
        let mut content = Content::default();
        let mut is_asking = false;
        if let Some(token) = self.paths[at].response.take() {
            Frame::Response(token).put(out);
            is_asking = true;
        }
        if is_challenged && let Some(challenge) = self.paths[at].challenge {
            Frame::Challenge(challenge.token).put(out);
            is_asking = true;
        }
        self.put_acks(now, at, room, out);
        if is_carrier {
            is_asking |= self.put_controls(room, &mut content, out);
            is_asking |= self.put_nack(now, room, out);
        }
        if is_probed {
            Frame::Ping.put(out);
            is_asking = true;
        }
        if let Some(from) = data {
            content.chunk = self.put_chunk(from, room, source, out);
            is_asking |= content.chunk.is_some();
            self.paths[at].was_datagram &= content.chunk.is_none();
        } else if has_datagram && self.put_datagrams(at, room, out) {
            is_asking = true;
            self.paths[at].was_datagram = true;
        }
        if out.len() == HEADER_LEN {
            out.clear();
            return false;
        }
        if is_challenged {
            out.resize(room.max(out.len()), 0);
        }
        let Phase::Open { keys, .. } = &mut self.phase else { return false };
        keys.sealer.seal(&header, out);
        let path = &mut self.paths[at];
        if is_probed {
            path.probed(now);
        }
        path.handle_sent(now, out.len() as u16, content, is_asking);
        if is_challenged {
            path.challenged(now, 0);
        }
        true
    }

    fn mtu_probe(&mut self, now: Instant, at: usize, out: &mut Vec<u8>) -> bool {
        let path = &mut self.paths[at];
        let Some(size) = path.wants_mtu_probe(now) else { return false };
        let Phase::Open { keys, .. } = &mut self.phase else { return false };
        let header =
            Header { phase: keys.sealer.phase(false), connection: self.id, path: path.id, number: path.number() };
        header.put(out);
        Frame::Ping.put(out);
        out.resize(usize::from(size) - TAG_LEN, 0);
        keys.sealer.seal(&header, out);
        path.handle_sent(now, size, Content { is_mtu_probe: true, ..Content::default() }, true);
        path.mtu_probed(now);
        true
    }

    /// What came, in a packet of the path `by`.
    fn put_acks(&mut self, now: Instant, by: usize, room: usize, out: &mut Vec<u8>) {
        for (of, path) in self.paths.iter_mut().enumerate() {
            let left = room.saturating_sub(out.len());
            let is_to_go = path.received.ack_due().is_some() || (of != by && path.received.is_to_repeat(now));
            if !is_to_go || left < 64 {
                continue;
            }
            let (delay, ranges) = path.received.to_acknowledge(now);
            put_ack(out, path.id, delay.as_micros(), ranges, left);
            path.received.acknowledged(of != by);
        }
    }

    fn put_controls(&mut self, room: usize, content: &mut Content, out: &mut Vec<u8>) -> bool {
        while out.len() + 32 <= room
            && let Some(control) = self.controls.pop_front()
        {
            match control {
                Control_::Credit { object } => {
                    let Some(entry) = self.objects.get(&object) else { continue };
                    Frame::Credit { object, limit: entry.into.limit }.put(out);
                }
                Control_::Reset { object, code } => Frame::Reset { object, code }.put(out),
                Control_::Status { path, status } => Frame::Status { path, status }.put(out),
            }
            content.controls.push(control);
        }
        !content.controls.is_empty()
    }

    /// Where an object should be there and does not go on, what it lacks.
    fn put_nack(&mut self, now: Instant, room: usize, out: &mut Vec<u8>) -> bool {
        if self.nack_at().is_none_or(|at| at > now) {
            return false;
        }
        (self.last_data, self.nacks) = (now, self.nacks + 1);
        let mut has_some = false;
        for id in &self.lacking {
            let left = room.saturating_sub(out.len());
            if let Some(entry) = self.objects.get(id).filter(|_| left >= 64) {
                put_holes(out, *id, entry.into.holes().iter().rev(), left);
                has_some = true;
            }
        }
        has_some
    }

    /// When what is lacking is told next.
    pub(super) fn nack_at(&self) -> Option<Instant> {
        let slowest = self.paths.iter().filter(|path| path.carries_data()).map(|path| path.rtt.timeout()).max()?;
        let wait = slowest.saturating_mul(2 << self.nacks.min(6));
        (!self.lacking.is_empty()).then(|| self.last_data + wait)
    }

    /// Those for paths that do not work any more go by any; those that waited for too long, and those that fit none, go nowhere.
    fn look_at_datagrams(&mut self, now: Instant) {
        if self.datagrams.is_empty() {
            return;
        }
        let paths = &self.paths;
        self.datagrams.retain_paths(|id| paths.iter().any(|path| path.id == id && path.carries_data()));
        let most: Vec<(PathId, usize)> = self.paths.iter().map(|path| (path.id, datagram_max(path))).collect();
        let all = self.datagram_max(None);
        let max =
            |id: Option<PathId>| id.map_or(all, |id| most.iter().find(|(one, _)| *one == id).map_or(0, |of| of.1));
        self.datagrams.handle_time(now, max);
    }

    /// When a path takes its next datagram: one of its own, or one for any that no other path has there sooner.
    pub(super) fn datagram_at(&self, now: Instant, at: usize) -> Option<Instant> {
        let (len, is_for_any) = self.datagrams.next(self.paths[at].id)?;
        let due = |at: usize| {
            let path = &self.paths[at];
            path.may_send_at().filter(|_| self.may_carry(at) && len <= datagram_max(path))
        };
        let arrives = |at: usize, due: Instant| due.max(now) + self.paths[at].arrives_after(datagram_len(len) as u64);
        let here = due(at)?;
        let is_sooner = |other: usize| {
            due(other).is_some_and(|due| other != at && (arrives(other, due), other) < (arrives(at, here), at))
        };
        (!is_for_any || !(0..self.paths.len()).any(is_sooner)).then_some(here)
    }

    /// Writes a path's datagrams, as many as there is room for.
    fn put_datagrams(&mut self, at: usize, room: usize, out: &mut Vec<u8>) -> bool {
        let (id, before) = (self.paths[at].id, out.len());
        while let Some((len, _)) = self.datagrams.next(id)
            && out.len() + datagram_len(len) <= room
            && let Some(bytes) = self.datagrams.pop(id)
        {
            Frame::Datagram(&bytes).put(out);
        }
        out.len() > before
    }

    /// Where a path's next bytes come from, if it may have some now.
    fn chunk_source(&mut self, now: Instant, at: usize) -> Option<From> {
        let path = &self.paths[at];
        let is_needed = path.wants_probe(now) && !self.paths.iter().any(Path::carries_data);
        if !is_needed && (!self.may_carry(at) || path.may_send_at().is_none_or(|at| at > now)) {
            return None;
        }
        if let Some(id) = self.next_active() {
            if !self.is_sooner_elsewhere(at) {
                return Some(From::Object(id));
            }
            self.paths[at].handle_nothing_to_send();
            return None;
        }
        let again = self.worth_sending_twice(now, at);
        if again.is_none() {
            self.paths[at].handle_nothing_to_send();
        }
        again.map(From::Again)
    }

    /// Whether a path is for data now: one that is for when no other works only then.
    pub(super) fn may_carry(&self, at: usize) -> bool {
        let path = &self.paths[at];
        path.carries_data()
            && (!path.is_backup() || !self.paths.iter().any(|other| other.carries_data() && !other.is_backup()))
    }

    /// Whether other paths have all that is left there before this one has its next packet there. Of the one that is soonest it is not
    /// so: it waits for nobody.
    pub(super) fn is_sooner_elsewhere(&self, at: usize) -> bool {
        let mut left = 0;
        for id in &self.active {
            let Some(entry) = self.objects.get(id).filter(|entry| entry.out.wants()) else { continue };
            let Some(of) = entry.out.left() else { return false };
            left += of;
        }
        let next = |path: &Path| path.arrives_after(u64::from(path.mtu()).min(left));
        let here = next(&self.paths[at]);
        let others = self.paths.iter().enumerate().filter(|(other, _)| *other != at && self.may_carry(*other));
        if others.clone().all(|(other, path)| (here, at) < (next(path), other)) {
            return false;
        }
        let until_then: u64 =
            others.map(|(_, other)| other.rate().bytes_in(here.saturating_sub(other.arrives_after(0))).as_u64()).sum();
        until_then >= left
    }

    /// A chunk that is under way on another path, and would be there sooner by this one.
    fn worth_sending_twice(&mut self, now: Instant, at: usize) -> Option<Chunk> {
        let path = &self.paths[at];
        // What is only a little sooner is not worth the bytes.
        let margin = path.rtt.variation().max(Duration::from_millis(2));
        let here = now + path.arrives_after(path.mtu().into()).saturating_add(margin);
        for other in self.paths.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other) {
            // Late ones are later still.
            let again = now + Duration::from_nanos(other.rtt.smoothed().as_nanos() / 2);
            for (chunk, arrives) in other.under_way() {
                let arrives = if arrives <= now { again } else { arrives };
                if arrives <= here {
                    continue;
                }
                if let Some(entry) = self.objects.get_mut(&chunk.object)
                    && !entry.out.is_reset
                    && entry.out.send_twice(chunk)
                {
                    // Its beginning may have come by another path, and is not to be had any more.
                    return entry.out.lacking(chunk);
                }
            }
        }
        None
    }

    fn put_chunk(&mut self, from: From, room: usize, source: &mut impl Source, out: &mut Vec<u8>) -> Option<Chunk> {
        let chunk = match from {
            From::Object(id) => {
                let entry = self.objects.get_mut(&id)?;
                let most = room.checked_sub(out.len() + data_len(id, entry.out.offset()))?;
                let chunk = entry.out.next(id, most as u64)?;
                // Each object has a packet in turn.
                self.active.rotate_left(1);
                chunk
            }
            From::Again(chunk) => {
                let most = room.checked_sub(out.len() + data_len(chunk.object, chunk.start))? as u64;
                let end = chunk.end.min(chunk.start + most);
                Chunk { end, is_last: chunk.is_last && end == chunk.end, ..chunk }
            }
        };
        put_data(out, chunk.object, chunk.start, chunk.is_last, None);
        let begin = out.len();
        out.resize(begin + (chunk.end - chunk.start) as usize, 0);
        source.read(chunk.object, chunk.start, &mut out[begin..]);
        Some(chunk)
    }
}

/// Bytes of a datagram that a packet of a path has room for beside an acknowledgement or two.
pub(super) fn datagram_max(path: &Path) -> usize {
    const BESIDE: usize = 16;
    usize::from(path.mtu()).saturating_sub(HEADER_LEN + TAG_LEN + BESIDE + 3)
}

/// Where a path's next bytes come from.
#[derive(Clone, Copy, Debug)]
enum From {
    Object(u64),
    Again(Chunk),
}
