//! A connection: objects over all of its paths.
//!
//! Any path that has room takes what is to be sent next: what was lost first, then what was never sent. No path waits for another one, and
//! what arrives is written where it belongs. Near an object's end a path leaves what others have there sooner, and what is under way on
//! a slow path is sent once more on a fast one. A path's acknowledgements go back on it, and take those of all other paths along: a path
//! that is dead silences no other one.
//!
//! Ground rules:
//!
//! - No clock, no socket, no randomness but from the seed that it is given. `handle_*` in, `poll_*` out, `poll_at` says when to call again.
//! - Nothing is believed that was not opened by the connection's keys, but for the answer to its first message.
//! - A datagram that makes no sense ends the connection, if it was the other side's; otherwise it is dropped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use weirgate_units::{BitRate, Duration, Instant};

use crate::control::Algorithm;
use crate::crypto::{Called, HandshakeError, Initiator, Keys, Public, Secret};
use crate::datagrams::{DatagramCounts, DatagramError, Datagrams};
use crate::object::{Incoming, Outgoing, Sink, Source};
use crate::path::{Challenge, Chunk, Content, Control_, Counts, MTU_MIN, Path, Shown, State};
use crate::wire::{
    ConnectionId, Datagram, Frame, HEADER_LEN, Header, PACKET_NUMBER_END, PathId, Status, TAG_LEN, VARINT_MAX,
    data_len, datagram_len, init_message, put_ack, put_data, put_holes, put_init, put_reply,
};

/// Paths of a connection at most.
pub const PATHS_MAX: usize = 16;

/// What a connection is told.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How each path's congestion is controlled.
    pub algorithm: Algorithm,
    /// The largest datagram that is tried, in bytes of UDP payload.
    pub mtu_max: u16,
    /// Bytes of each object that the other side may send before it is [granted](Connection::grant) more.
    pub credit: u64,
    /// Objects that the other side may have open at a time.
    pub objects_max: usize,
    /// After so long without a datagram of the other side the connection has ended.
    pub idle_max: Duration,
    /// After so long without a packet a path is asked whether it still works.
    pub keep_alive: Duration,
}

/// For how long the other side is told that the connection has ended, unless it answers; and how often.
const CLOSE_FOR: Duration = Duration::from_millis(500);
const CLOSE_EVERY: Duration = Duration::from_millis(100);

impl Default for Settings {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::default(),
            mtu_max: 1_472,
            credit: VARINT_MAX,
            objects_max: 1_024,
            idle_max: Duration::from_secs(30),
            keep_alive: Duration::from_secs(1),
        }
    }
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The other side is there, and is who it should be.
    Connected,
    /// A path works; again, or for the first time.
    PathUp(PathId),
    /// Nothing has come back on a path for long.
    PathDown(PathId),
    /// The other side has opened an object.
    Opened(u64),
    /// All of an object has come.
    Complete(u64),
    /// The other side has all of an object.
    Delivered(u64),
    /// The other side sends no more of an object, or wants no more.
    Reset {
        /// Which one.
        object: u64,
        /// Why, between programs.
        code: u64,
    },
    /// The connection has ended.
    Closed(Closed),
}

/// Why a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// The other side has ended it.
    #[error("the other side has ended the connection: {reason} (code {code})")]
    ByPeer {
        /// Why, between programs.
        code: u64,
        /// Why, for people.
        reason: String,
    },
    /// This side has.
    #[error("this side has ended the connection")]
    Here,
    /// Nothing came from the other side.
    #[error("nothing has come from the other side for too long, on any path")]
    Idle,
    /// It sent what it may not.
    #[error("the other side does not keep to the protocol: {0}")]
    Protocol(&'static str),
    /// The answer to its first message was somebody else's all the time.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

/// A datagram to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// On which path.
    pub path: PathId,
    /// From where.
    pub local: SocketAddr,
    /// To where.
    pub remote: SocketAddr,
}

/// How a path is.
#[derive(Clone, Copy, Debug)]
pub struct PathReport {
    /// Which one.
    pub path: PathId,
    /// From where.
    pub local: SocketAddr,
    /// To where.
    pub remote: SocketAddr,
    /// Whether data is sent on it.
    pub is_up: bool,
    /// Its smoothed round-trip time.
    pub rtt: Duration,
    /// The least one of late.
    pub rtt_min: Duration,
    /// What it delivers, as far as is known.
    pub rate: BitRate,
    /// Bytes under way.
    pub in_flight: u64,
    /// The size of datagrams, in bytes of UDP payload.
    pub mtu: u16,
    /// What it carried.
    pub counts: Counts,
}

#[derive(Debug)]
enum Phase {
    /// The first message is sent on every path until it is answered.
    Calling {
        initiator: Box<Initiator>,
        message: Vec<u8>,
    },
    /// Keys are there.
    Open {
        keys: Keys,
        answer: Vec<u8>,
        sealed_since: Instant,
    },
    /// It ends: the other side is told now and then, and for each datagram that still comes, until it says so itself, or until then.
    Closing {
        keys: Box<Keys>,
        code: u64,
        reason: Vec<u8>,
        until: Instant,
        again: Instant,
        /// Datagrams that are to say so now, and the path of the next one.
        due: usize,
        next: usize,
        /// The other side has said it first: it is told once.
        is_answer: bool,
    },
    Closed,
}

#[derive(Debug)]
struct Object {
    out: Outgoing,
    into: Incoming,
    /// Whether it is among those that have something to send.
    is_active: bool,
}

impl Object {
    fn new(peer_credit: u64, credit: u64) -> Self {
        Self { out: Outgoing::new(peer_credit), into: Incoming::new(credit), is_active: false }
    }
}

/// One side of a connection.
#[derive(Debug)]
pub struct Connection {
    id: ConnectionId,
    settings: Settings,
    is_client: bool,
    peer: Public,
    phase: Phase,
    has_peer: bool,
    /// The caller's first message, of the side that answered it.
    called: Vec<u8>,
    paths: Vec<Path>,
    objects: BTreeMap<u64, Object>,
    /// Those that have something to send, in turn.
    active: VecDeque<u64>,
    /// Those of which something lacks that should be there.
    lacking: BTreeSet<u64>,
    next_object: u64,
    /// The other side's next object is this or a later one.
    peer_object: u64,
    peer_credit: u64,
    controls: VecDeque<Control_>,
    events: VecDeque<Event>,
    random: u64,
    last_received: Instant,
    /// The path that is looked at next.
    turn: usize,
    /// When data came last, or it was told what lacks; and how often that was told since data came.
    last_data: Instant,
    nacks: u32,
    datagrams: Datagrams,
    /// Whether the last packet that carried anything carried datagrams: they and objects take turns.
    was_datagram: bool,
}

/// What a side says with its first message: the credit of each object.
fn hello(settings: &Settings) -> [u8; 8] {
    settings.credit.min(VARINT_MAX).to_be_bytes()
}

fn credit(hello: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*hello.first_chunk()?).min(VARINT_MAX))
}

impl Connection {
    /// Begins with the side that `peer` names, on paths of local and remote addresses. `id` and `seed` are drawn at random.
    ///
    /// # Errors
    /// [`HandshakeError`], where a key is none.
    pub fn connect(
        now: Instant,
        settings: Settings,
        secret: &Secret,
        peer: Public,
        (id, seed): (ConnectionId, u64),
        paths: &[(SocketAddr, SocketAddr)],
    ) -> Result<Self, HandshakeError> {
        let (initiator, message) = Initiator::begin(id, secret, &peer, &hello(&settings))?;
        let phase = Phase::Calling { initiator: Box::new(initiator), message };
        let mut new = Self::new(now, settings, true, peer, (id, seed), phase);
        for (local, remote) in paths.iter().take(PATHS_MAX) {
            new.add_path(now, *local, *remote);
        }
        Ok(new)
    }

    /// What to answer a first message with, for [`crypto::answer`](crate::crypto::answer).
    pub fn hello(settings: &Settings) -> [u8; 8] {
        hello(settings)
    }

    /// The other side's end, of a first message that was answered.
    pub fn accept(now: Instant, settings: Settings, called: Called, (id, seed): (ConnectionId, u64)) -> Self {
        let Called { peer, message, hello, answer, keys } = called;
        let phase = Phase::Open { keys, answer, sealed_since: now };
        let mut new = Self::new(now, settings, false, peer, (id, seed), phase);
        new.peer_credit = credit(&hello).unwrap_or(0);
        new.called = message;
        new
    }

    fn new(
        now: Instant,
        settings: Settings,
        is_client: bool,
        peer: Public,
        (id, seed): (ConnectionId, u64),
        phase: Phase,
    ) -> Self {
        Self {
            id,
            settings,
            is_client,
            peer,
            phase,
            has_peer: false,
            called: Vec::new(),
            paths: Vec::new(),
            objects: BTreeMap::new(),
            active: VecDeque::new(),
            lacking: BTreeSet::new(),
            next_object: u64::from(!is_client),
            peer_object: u64::from(is_client),
            peer_credit: 0,
            controls: VecDeque::new(),
            events: VecDeque::new(),
            random: seed,
            last_received: now,
            turn: 0,
            last_data: now,
            nacks: 0,
            datagrams: Datagrams::default(),
            was_datagram: false,
        }
    }

    /// Its name.
    pub const fn id(&self) -> ConnectionId {
        self.id
    }

    /// Who the other side is.
    pub const fn peer(&self) -> Public {
        self.peer
    }

    /// Whether the other side has shown that it has the connection's keys: whoever repeats its first message has not.
    pub const fn has_peer(&self) -> bool {
        self.has_peer
    }

    /// Whether it has ended.
    pub const fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    // Objects.

    /// Opens an object of this side's: its number. Whoever opens it and the other side can both send.
    pub fn open(&mut self) -> u64 {
        let id = self.next_object;
        self.next_object += 2;
        self.objects.insert(id, Object::new(self.peer_credit, self.settings.credit));
        id
    }

    /// An object has bytes up to `available` to be sent; `is_complete`: and no more will come. Nothing, if there is no such object.
    pub fn provide(&mut self, object: u64, available: u64, is_complete: bool) {
        if let Some(entry) = self.objects.get_mut(&object) {
            entry.out.provide(available.min(VARINT_MAX), is_complete);
            self.activate(object);
        }
    }

    /// The other side may send an object's bytes up to `limit`.
    pub fn grant(&mut self, object: u64, limit: u64) {
        if let Some(entry) = self.objects.get_mut(&object)
            && limit > entry.into.limit
        {
            entry.into.limit = limit.min(VARINT_MAX);
            self.control(Control_::Credit { object });
        }
    }

    /// Bytes of an object that are here from an earlier connection.
    pub fn resume(&mut self, object: u64, have: std::ops::Range<u64>) {
        if let Some(entry) = self.objects.get_mut(&object) {
            entry.into.handle_before(have);
            if entry.into.is_complete() && !std::mem::replace(&mut entry.into.is_done, true) {
                self.events.push_back(Event::Complete(object));
            }
            self.see_holes(object);
        }
    }

    /// Bytes of an object that the other side has from an earlier connection: they are not sent.
    pub fn skip(&mut self, object: u64, have: std::ops::Range<u64>) {
        if let Some(entry) = self.objects.get_mut(&object) {
            entry.out.handle_before(have);
        }
    }

    /// Sends no more of an object, and wants no more of it.
    pub fn reset(&mut self, object: u64, code: u64) {
        if let Some(entry) = self.objects.get_mut(&object) {
            entry.out.is_reset = true;
            entry.into.is_done = true;
            self.lacking.remove(&object);
            self.control(Control_::Reset { object, code: code.min(VARINT_MAX) });
        }
    }

    /// Everything before this offset of an object the other side has.
    pub fn acked_up_to(&self, object: u64) -> u64 {
        self.objects.get(&object).map_or(0, |entry| entry.out.acked_up_to())
    }

    /// Bytes of an object that the other side has.
    pub fn acked(&self, object: u64) -> u64 {
        self.objects.get(&object).map_or(0, |entry| entry.out.acked())
    }

    /// Forgets an object, of which nothing is to come or go any more.
    pub fn forget(&mut self, object: u64) {
        self.objects.remove(&object);
        self.lacking.remove(&object);
    }

    // Datagrams.

    /// Sends bytes once, by `path`, or by whichever has them there first. They wait for congestion control for
    /// [`WAIT_MAX`](crate::datagrams::WAIT_MAX) at most.
    ///
    /// # Errors
    /// They are more than [`Self::datagram_max`].
    pub fn send_datagram(&mut self, now: Instant, path: Option<PathId>, bytes: &[u8]) -> Result<(), DatagramError> {
        let path = path.filter(|path| self.path_at(*path).is_some_and(|at| self.paths[at].carries_data()));
        let max = self.datagram_max(path);
        if bytes.len() > max {
            return Err(DatagramError::TooLong { max });
        }
        self.datagrams.push(now, path, bytes);
        Ok(())
    }

    /// Bytes that a datagram by a path may have, or by any of those that work; 0: by none.
    pub fn datagram_max(&self, path: Option<PathId>) -> usize {
        let works = self.paths.iter().filter(|one| one.carries_data() && path.is_none_or(|path| path == one.id));
        works.map(datagram_max).max().unwrap_or(0)
    }

    /// What became of datagrams.
    pub const fn datagrams(&self) -> DatagramCounts {
        self.datagrams.counts
    }

    /// Whether something lacks of what should be there.
    fn see_holes(&mut self, object: u64) {
        let into = self.objects.get(&object).map(|entry| &entry.into);
        if into.is_some_and(|into| !into.is_done && !into.holes_are_empty()) {
            self.lacking.insert(object);
        } else {
            self.lacking.remove(&object);
        }
    }

    /// Ends the connection.
    pub fn close(&mut self, now: Instant, code: u64, reason: &str) {
        self.end(now, code, reason, Closed::Here);
    }

    // Paths.

    /// Another path, of the side that began the connection. `None`: there are enough, or it is the other side that adds paths.
    pub fn add_path(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) -> Option<PathId> {
        if !self.is_client || self.has_all_paths() {
            return None;
        }
        let id = PathId(u8::try_from(self.paths.len()).ok()?);
        let token = self.draw();
        let mut path = Path::new(now, id, (local, remote), self.settings.algorithm, self.settings.mtu_max);
        path.challenge = Some(Challenge { token, due: now, tries: 0 });
        // Who calls may call.
        path.handle_bytes(usize::MAX >> 8);
        self.paths.push(path);
        Some(id)
    }

    /// How a path is to be used from now on; [`Status::Gone`]: its address is no more.
    pub fn set_status(&mut self, now: Instant, path: PathId, status: Status) {
        let Some(at) = self.path_at(path) else { return };
        self.paths[at].status.0 = status;
        if status == Status::Gone {
            let shown = self.paths[at].abandon(now);
            self.handle_shown(at, shown);
        }
        self.control(Control_::Status { path, status });
    }

    /// All paths, and how each is.
    pub fn paths(&self) -> impl Iterator<Item = PathReport> + '_ {
        self.paths.iter().map(|path| PathReport {
            path: path.id,
            local: path.local,
            remote: path.remote,
            is_up: path.carries_data(),
            rtt: path.rtt.smoothed(),
            rtt_min: path.rtt.min(),
            rate: path.rate(),
            in_flight: path.in_flight(),
            mtu: path.mtu(),
            counts: path.counts,
        })
    }

    // What comes.

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
            Ok(Datagram::Init { connection, path, message })
                if connection == self.id && !self.is_client && init_message(message) == Some(&self.called) =>
            {
                self.handle_init(now, path, (local, remote), datagram.len());
            }
            Ok(Datagram::Reply { connection, path, token, message }) if connection == self.id && self.is_client => {
                self.handle_reply(now, path, token, message);
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
        if self.path_at(header.path).is_some_and(|at| self.paths[at].has_received(header.number)) {
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
        if let Phase::Closing { due, .. } = &mut self.phase {
            if Frame::all(frames).any(|frame| matches!(frame, Ok(Frame::Close { .. }))) {
                self.phase = Phase::Closed;
            } else {
                *due = (*due).max(1);
            }
            return;
        }
        self.last_received = now;
        self.connected(now);
        let Some(at) = self.path_of(now, header.path, addresses) else { return };
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
        let token = self.draw();
        let path = &mut self.paths[at];
        if self.is_client || path.state == State::Gone || path.remote == remote || !path.is_newest(number) {
            return;
        }
        (path.local, path.remote) = (local, remote);
        let shown = path.doubt();
        path.challenge = Some(Challenge { token, due: now, tries: 0 });
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

    fn handle_shown(&mut self, at: usize, shown: Shown) {
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

    fn activate(&mut self, object: u64) {
        if let Some(entry) = self.objects.get_mut(&object)
            && entry.out.wants()
            && !std::mem::replace(&mut entry.is_active, true)
        {
            self.active.push_back(object);
        }
    }

    /// The object that is to send next.
    fn next_active(&mut self) -> Option<u64> {
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

    fn control(&mut self, control: Control_) {
        if !self.controls.contains(&control) {
            self.controls.push_back(control);
        }
    }

    // What goes.

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
        put_init(out, self.id, self.paths[at].id, message);
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
    fn carrier(&self) -> Option<usize> {
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
            is_here && path.ack_due.is_some_and(|due| due <= now)
        });
        let has_controls = is_carrier && !self.controls.is_empty();
        let has_holes = is_carrier && self.nack_at().is_some_and(|at| at <= now);
        let alone = is_challenged || is_probed || path.response.is_some() || acks_due || has_controls || has_holes;
        let has_datagram = self.datagram_at(now, at).is_some_and(|due| due <= now);
        let is_datagrams_turn = has_datagram && !(self.was_datagram && self.next_active().is_some());
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
            self.was_datagram &= content.chunk.is_none();
        } else if has_datagram && self.put_datagrams(at, room, out) {
            (is_asking, self.was_datagram) = (true, true);
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
            let is_to_go = path.ack_due.is_some() || (of != by && path.is_to_repeat(now));
            if !is_to_go || left < 64 {
                continue;
            }
            let (delay, ranges) = path.to_acknowledge(now);
            put_ack(out, path.id, delay.as_micros(), ranges, left);
            path.acknowledged(of != by);
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
    fn nack_at(&self) -> Option<Instant> {
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
        let carries = |id: PathId| paths.iter().any(|path| path.id == id && path.carries_data());
        self.datagrams.retain_paths(carries);
        let max = |id: Option<PathId>| {
            let of = paths.iter().filter(|path| id.is_none_or(|id| id == path.id));
            of.map(datagram_max).max().unwrap_or(0)
        };
        self.datagrams.handle_time(now, max);
    }

    /// When a path takes its next datagram: one of its own, or one for any that no other path has there sooner.
    fn datagram_at(&self, now: Instant, at: usize) -> Option<Instant> {
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
    fn may_carry(&self, at: usize) -> bool {
        let path = &self.paths[at];
        path.carries_data()
            && (!path.is_backup() || !self.paths.iter().any(|other| other.carries_data() && !other.is_backup()))
    }

    /// Whether other paths have all that is left there before this one has its next packet there. Of the one that is soonest it is not
    /// so: it waits for nobody.
    fn is_sooner_elsewhere(&self, at: usize) -> bool {
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

    // Time.

    /// When [`handle_timeout`](Self::handle_timeout) and [`poll_transmit`](Self::poll_transmit) are to be called next, if nothing happens
    /// before; `None`: never.
    pub fn poll_at(&mut self, now: Instant) -> Option<Instant> {
        if let Phase::Closing { until, again, due, .. } = &self.phase {
            return Some(if *due > 0 { now } else { *until.min(again) });
        }
        if self.is_closed() {
            return None;
        }
        let mut next = Some(self.last_received + self.settings.idle_max);
        let mut sooner = |at: Option<Instant>| {
            if let Some(at) = at {
                next = Some(next.map_or(at, |next: Instant| next.min(at)));
            }
        };
        for at in 0..self.paths.len() {
            let path = &self.paths[at];
            if path.state == State::Gone {
                continue;
            }
            // Without a budget it waits for what comes.
            let has_budget = path.has_budget(path.mtu().into());
            sooner(path.challenge.map(|challenge| challenge.due).filter(|_| has_budget));
            if self.has_peer {
                sooner(path.poll_at());
                sooner(path.ack_due.filter(|_| has_budget));
                sooner(path.mtu_probe_at());
                sooner(path.keep_alive_at(self.settings.keep_alive));
                sooner((path.response.is_some() && has_budget).then_some(now));
                if self.may_carry(at) {
                    let wants = !self.active.is_empty() && !self.is_sooner_elsewhere(at);
                    sooner(self.paths[at].may_send_at().filter(|_| wants));
                    sooner(self.datagram_at(now, at));
                }
            }
        }
        sooner(self.datagrams.poll_at().filter(|_| self.has_peer));
        // Where nothing may be sent, it waits for what comes.
        let can_carry = |at: usize| self.paths[at].has_budget(self.paths[at].mtu().into());
        if self.has_peer && self.carrier().is_some_and(can_carry) {
            sooner(self.nack_at());
            sooner((!self.controls.is_empty()).then_some(now));
        }
        next
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Closing { until, .. } if *until <= now => self.phase = Phase::Closed,
            Phase::Closing { again, due, .. } => {
                if *again <= now {
                    (*again, *due) = (now + CLOSE_EVERY, self.paths.len());
                }
                return;
            }
            Phase::Closed => return,
            _ if now.saturating_since(self.last_received) >= self.settings.idle_max => {
                self.phase = Phase::Closed;
                self.events.push_back(Event::Closed(Closed::Idle));
                return;
            }
            _ => {}
        }
        for at in 0..self.paths.len() {
            if self.paths[at].state == State::Gone {
                continue;
            }
            let others = self.paths.iter().enumerate().filter(|(other, path)| *other != at && path.state == State::Up);
            let heard = others.map(|(_, path)| path.last_ack()).max();
            let shown = self.paths[at].handle_timeout(now, heard);
            self.handle_shown(at, shown);
            if self.has_peer && self.paths[at].keep_alive_at(self.settings.keep_alive).is_some_and(|due| due <= now) {
                self.paths[at].ask(now);
            }
        }
        debug_assert!(self.is_valid());
    }

    /// What has happened since the last call.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn end(&mut self, now: Instant, code: u64, reason: &str, why: Closed) {
        let reason = reason.as_bytes()[..reason.len().min(512)].to_vec();
        let (until, again) = (now + CLOSE_FOR, now + CLOSE_EVERY);
        self.phase = match std::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Open { keys, .. } => {
                let (keys, code) = (Box::new(keys), code.min(VARINT_MAX));
                Phase::Closing { keys, code, reason, until, again, due: self.paths.len(), next: 0, is_answer: false }
            }
            Phase::Calling { .. } => Phase::Closed,
            other @ (Phase::Closing { .. } | Phase::Closed) => {
                self.phase = other;
                return;
            }
        };
        self.events.push_back(Event::Closed(why));
    }

    /// Whether there are as many as there may be; those that are gone do not count, but for the room that they take.
    fn has_all_paths(&self) -> bool {
        let used = self.paths.iter().filter(|path| path.state != State::Gone).count();
        used >= PATHS_MAX || self.paths.len() > usize::from(u8::MAX)
    }

    fn path_at(&self, id: PathId) -> Option<usize> {
        self.paths.iter().position(|path| path.id == id)
    }

    /// A path, which the side that began the connection may add with this.
    fn path_of(&mut self, now: Instant, id: PathId, addresses: (SocketAddr, SocketAddr)) -> Option<usize> {
        if let Some(at) = self.path_at(id) {
            return Some(at);
        }
        if self.is_client || self.has_all_paths() {
            return None;
        }
        let token = self.draw();
        let mut path = Path::new(now, id, addresses, self.settings.algorithm, self.settings.mtu_max);
        path.challenge = Some(Challenge { token, due: now, tries: 0 });
        self.paths.push(path);
        Some(self.paths.len() - 1)
    }

    /// splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014): tokens that nobody on another path can guess,
    /// of a seed that nobody knows.
    const fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// What always holds.
    pub fn is_valid(&self) -> bool {
        self.paths.iter().all(Path::is_valid) && self.datagrams.is_valid() && self.objects.values().all(|entry| entry.out.is_valid())
    }
}

/// Bytes of a datagram that a packet of a path has room for beside an acknowledgement or two.
fn datagram_max(path: &Path) -> usize {
    const BESIDE: usize = 16;
    usize::from(path.mtu()).saturating_sub(HEADER_LEN + TAG_LEN + BESIDE + 3)
}

/// Where a path's next bytes come from.
#[derive(Clone, Copy, Debug)]
enum From {
    Object(u64),
    Again(Chunk),
}
