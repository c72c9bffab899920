//! What comes: datagrams of the other side, and what their frames say.

use std::net::SocketAddr;

use weirgate_units::Instant;

use super::{Closed, Connection, Event, Object, Phase, credit};
use crate::object::{Incoming, Sink};
use crate::path::{Challenge, Chunk, Control_, Path, Shown, State};
use crate::wire::{Cookie, Datagram, Frame, Header, PathId, Status};

impl Connection {
    /// A datagram came to `local` from `remote`; its bytes are of no more use then. What it brings of objects goes to `sink`.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        (local, remote): (SocketAddr, SocketAddr),
        datagram: &mut [u8],
        sink: &mut impl Sink,
    ) {
        match Datagram::parse(datagram) {
            // Whoever saw the connection's name can write it; the message is the caller's alone.
            Ok(Datagram::Init { connection, path, message, .. })
                if connection == self.id && !self.is_client && message == self.called =>
            {
                self.handle_init(now, path, (local, remote), datagram.len());
            }
            Ok(Datagram::Reply { connection, path, token, message }) if connection == self.id && self.is_client => {
                self.handle_reply(now, path, token, message);
            }
            Ok(Datagram::Retry { connection, path, cookie }) if connection == self.id => {
                self.handle_retry(now, path, cookie);
            }
            Ok(Datagram::Protected(header)) if header.connection == self.id => {
                self.handle_protected(now, (local, remote), &header, datagram, sink);
            }
            _ => {}
        }
        debug_assert!(self.is_valid());
    }

    fn handle_init(&mut self, now: Instant, id: PathId, addresses: (SocketAddr, SocketAddr), size: usize) {
        // Once keys are there new paths show that they have them: a first message can be repeated by whoever saw it.
        if !matches!(self.phase, Phase::Open { .. }) || (self.has_peer && self.path_at(id).is_none()) {
            return;
        }
        let Some(at) = self.path_of(now, id, addresses) else { return };
        let token = self.draw();
        let path = &mut self.paths[at];
        if path.state == State::Unproven && path.remote != addresses.1 {
            // The earlier one may have been somebody's who repeats what he sees.
            (path.local, path.remote) = addresses;
            let _it_is_unproven = path.doubt();
        }
        path.handle_bytes(size);
        path.was_called = true;
        let token = path.challenge.map_or(token, |challenge| challenge.token);
        if path.state == State::Unproven {
            path.challenge = Some(Challenge { token, due: now, tries: 0 });
        }
    }

    fn handle_reply(&mut self, now: Instant, id: PathId, token: u64, message: &[u8]) {
        let Some(at) = self.path_at(id) else { return };
        match &mut self.phase {
            Phase::Calling { initiator, .. } => {
                // Somebody else's answer is none: the true one may still come.
                let Ok((hello, keys)) = initiator.finish(message) else { return };
                let Some(credit) = credit(&hello) else { return };
                self.peer_credit = credit;
                for object in self.objects.values_mut() {
                    object.out.limit = object.out.limit.max(credit);
                }
                self.phase = Phase::Open { keys, answer: message.to_vec(), sealed_since: now };
                self.last_received = now;
                self.connected(now);
            }
            Phase::Open { answer, .. } if answer == message => {}
            _ => return,
        }
        self.paths[at].response = Some(token);
        if self.paths[at].prove(now) {
            self.events.push_back(Event::PathUp(id));
        }
    }

    /// The other side has more to do than to look at whatever comes: it is called again at once, with what it wants to see. It says that
    /// once of an address; who says it more often is another.
    fn handle_retry(&mut self, now: Instant, id: PathId, cookie: Cookie) {
        if let (Phase::Calling { .. }, Some(at)) = (&self.phase, self.path_at(id))
            && let path = &mut self.paths[at]
            && path.cookie == Cookie::default()
            && let Some(challenge) = &mut path.challenge
        {
            (path.cookie, challenge.due) = (cookie, now);
        }
    }

    fn connected(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.has_peer, true) {
            self.events.push_back(Event::Connected);
            self.last_received = now;
            let all: Vec<u64> = self.objects.keys().copied().collect();
            all.into_iter().for_each(|object| self.activate(object));
        }
    }

    fn handle_protected(
        &mut self,
        now: Instant,
        addresses: (SocketAddr, SocketAddr),
        header: &Header,
        datagram: &mut [u8],
        sink: &mut impl Sink,
    ) {
        if self.path_at(header.path).is_some_and(|at| self.paths[at].received.has(header.number)) {
            return;
        }
        let size = datagram.len();
        let keys = match &mut self.phase {
            Phase::Open { keys, .. } => keys,
            Phase::Closing { keys, .. } => keys,
            _ => return,
        };
        let Some(frames) = keys.opener.open(header, datagram) else { return };
        // From here on it is the other side that speaks.
        if let Phase::Closing { due, is_answer, .. } = &mut self.phase {
            let is_close = Frame::all(frames).any(|frame| matches!(frame, Ok(Frame::Close { .. })));
            match (is_close, *is_answer) {
                (false, _) => *due = (*due).max(1),
                // It is said on every path: who was told first answers still.
                (true, true) => {}
                (true, false) => self.phase = Phase::Closed,
            }
            return;
        }
        self.last_received = now;
        self.connected(now);
        let Some(at) = self.path_of(now, header.path, addresses) else { return };
        let path = &self.paths[at];
        if !self.is_client
            && path.state == State::Gone
            && path.received.is_newest(header.number)
            && Frame::all(frames).any(|frame| matches!(frame, Ok(Frame::Challenge(_))))
        {
            // Whoever was told that it is gone asks: it has its number from there, and nothing else.
            self.begin_again(now, at, addresses);
        }
        self.follow(now, at, header.number, addresses);
        self.paths[at].handle_bytes(size);
        let mut is_asking = false;
        for frame in Frame::all(frames) {
            let Ok(frame) = frame else {
                return self.end(
                    now,
                    1,
                    "a frame that makes no sense",
                    Closed::Protocol("a frame that makes no sense"),
                );
            };
            is_asking |= !matches!(frame, Frame::Ack(_) | Frame::Close { .. });
            if let Err(why) = self.handle_frame(now, at, &frame, sink) {
                return self.end(now, 1, why, Closed::Protocol(why));
            }
            if !matches!(self.phase, Phase::Open { .. }) {
                return;
            }
        }
        self.paths[at].handle_packet(now, header.number, size, is_asking);
    }

    /// The other side may come from another address: a NAT has forgotten it, or it has moved.
    fn follow(&mut self, now: Instant, at: usize, number: u64, (local, remote): (SocketAddr, SocketAddr)) {
        let path = &mut self.paths[at];
        if self.is_client || path.state == State::Gone || path.remote == remote || !path.received.is_newest(number) {
            return;
        }
        (path.local, path.remote) = (local, remote);
        let shown = path.doubt();
        self.ask_who_is_there(now, at);
        self.handle_shown(at, shown);
    }

    fn handle_frame(
        &mut self,
        now: Instant,
        at: usize,
        frame: &Frame<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), &'static str> {
        match *frame {
            Frame::Ping => {}
            Frame::Ack(ack) => {
                let Some(of) = self.path_at(ack.path) else { return Err("an acknowledgement of no path") };
                let shown = self.paths[of].handle_ack(now, &ack).ok_or("an acknowledgement of what was not sent")?;
                self.handle_shown(of, shown);
            }
            Frame::Data { object, offset, is_last, bytes } => {
                let Some(entry) = self.incoming(object)? else { return Ok(()) };
                let taken = entry.handle_data(offset, is_last, bytes, |at, new| sink.write(object, at, new));
                taken.map_err(|_| "bytes beyond what may be sent, or beyond their end")?;
                if entry.is_complete() && !std::mem::replace(&mut entry.is_done, true) {
                    self.events.push_back(Event::Complete(object));
                }
                self.see_holes(object);
                (self.last_data, self.nacks) = (now, 0);
            }
            Frame::Datagram(bytes) => {
                self.datagrams.counts.received += 1;
                sink.datagram(bytes);
            }
            Frame::Holes(holes) => {
                let under_way: Vec<Chunk> = self.paths.iter().flat_map(Path::chunks).collect();
                if let Some(entry) = self.objects.get_mut(&holes.object) {
                    entry.out.handle_holes(&holes, &under_way);
                    self.activate(holes.object);
                    self.delivered(holes.object);
                }
            }
            Frame::Credit { object, limit } => {
                // It may come before the bytes that open the object.
                self.incoming(object)?;
                if let Some(entry) = self.objects.get_mut(&object) {
                    entry.out.limit = entry.out.limit.max(limit);
                    self.activate(object);
                }
            }
            Frame::Reset { object, code } => {
                self.incoming(object)?;
                if let Some(entry) = self.objects.get_mut(&object)
                    && !std::mem::replace(&mut entry.out.is_reset, true)
                {
                    entry.into.is_done = true;
                    self.lacking.remove(&object);
                    self.events.push_back(Event::Reset { object, code });
                }
            }
            Frame::Challenge(token) => self.paths[at].response = Some(token),
            Frame::Response(token) => {
                let path = &mut self.paths[at];
                if path.challenge.is_some_and(|challenge| challenge.token == token) && path.prove(now) {
                    let id = path.id;
                    self.events.push_back(Event::PathUp(id));
                }
            }
            Frame::Status { path, status } => {
                if let Some(at) = self.path_at(path) {
                    self.paths[at].status.1 = status;
                    if status == Status::Gone {
                        let shown = self.paths[at].abandon(now);
                        self.handle_shown(at, shown);
                    }
                }
            }
            Frame::Close { code, reason } => {
                let reason = String::from_utf8_lossy(reason).into_owned();
                self.end(now, 0, "", Closed::ByPeer { code, reason });
                if let Phase::Closing { is_answer, .. } = &mut self.phase {
                    *is_answer = true;
                }
            }
        }
        Ok(())
    }

    /// The other side's direction of an object, which it may open with this. `None`: it is forgotten.
    fn incoming(&mut self, object: u64) -> Result<Option<&mut Incoming>, &'static str> {
        let is_theirs = object % 2 == u64::from(self.is_client);
        if is_theirs && object >= self.peer_object {
            // It opened those before, too, whose first bytes come by other paths.
            while self.peer_object <= object {
                if self.objects.len() >= self.settings.objects_max {
                    return Err("more objects than may be open");
                }
                let id = self.peer_object;
                self.objects.insert(id, Object::new(self.peer_credit, self.settings.credit));
                self.peer_object += 2;
                self.events.push_back(Event::Opened(id));
            }
        }
        if !is_theirs && object >= self.next_object {
            return Err("an object that was never opened");
        }
        Ok(self.objects.get_mut(&object).map(|entry| &mut entry.into))
    }

    pub(super) fn handle_shown(&mut self, at: usize, shown: Shown) {
        let id = self.paths[at].id;
        for content in shown.acked {
            if let Some(chunk) = content.chunk
                && let Some(entry) = self.objects.get_mut(&chunk.object)
            {
                entry.out.handle_acked(chunk);
                self.delivered(chunk.object);
            }
        }
        for content in shown.lost {
            if let Some(chunk) = content.chunk
                && let Some(entry) = self.objects.get_mut(&chunk.object)
            {
                entry.out.handle_lost(chunk);
                self.activate(chunk.object);
            }
            content.controls.into_iter().for_each(|control| self.control(control));
        }
        if shown.is_down {
            self.events.push_back(Event::PathDown(id));
        }
        if shown.is_up {
            self.events.push_back(Event::PathUp(id));
        }
    }

    fn delivered(&mut self, object: u64) {
        if let Some(entry) = self.objects.get_mut(&object)
            && entry.out.is_done()
            && !std::mem::replace(&mut entry.out.is_told, true)
        {
            self.events.push_back(Event::Delivered(object));
        }
    }

    pub(super) fn activate(&mut self, object: u64) {
        if let Some(entry) = self.objects.get_mut(&object)
            && entry.out.wants()
            && !std::mem::replace(&mut entry.is_active, true)
        {
            self.active.push_back(object);
        }
    }

    /// The object that is to send next.
    pub(super) fn next_active(&mut self) -> Option<u64> {
        while let Some(id) = self.active.front().copied() {
            match self.objects.get_mut(&id) {
                Some(entry) if entry.out.wants() => return Some(id),
                Some(entry) => entry.is_active = false,
                None => {}
            }
            self.active.pop_front();
        }
        None
    }

    pub(super) fn control(&mut self, control: Control_) {
        if !self.controls.contains(&control) {
            self.controls.push_back(control);
        }
    }
}
