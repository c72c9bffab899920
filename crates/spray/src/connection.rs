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

mod incoming;
mod outgoing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use weirgate_units::{BitRate, Duration, Instant};

use self::outgoing::datagram_max;
use crate::control::Algorithm;
use crate::crypto::{Called, HandshakeError, Initiator, Keys, Public, Secret};
use crate::datagrams::{DatagramCounts, DatagramError, Datagrams};
use crate::object::{Incoming, Outgoing};
use crate::path::{Challenge, Control_, Counts, Path, State};
use crate::wire::{ConnectionId, PathId, Status, VARINT_MAX};

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
    /// So has one after this whose first message nobody has answered.
    pub call_max: Duration,
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
            // Six calls on each path, the last of them after 7.75 s.
            call_max: Duration::from_secs(10),
            keep_alive: Duration::from_secs(1),
        }
    }
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The other side is there, and is who it should be.
    Connected,
    /// A path works: for the first time, from another address, or again after it was [down](Self::PathDown).
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
    /// Nobody has answered the first message.
    #[error(
        "nobody has answered: nobody listens there, or does not know this side's key, or has another one than was expected"
    )]
    Unanswered,
    /// Nothing came from the other side any more.
    #[error("nothing has come from the other side for too long, on any path")]
    Idle,
    /// It sent what it may not.
    #[error("the other side does not keep to the protocol: {0}")]
    Protocol(&'static str),
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
    /// Whether nothing is to be hoped of it for now: it is gone, or nothing came back for long. A path that is not up may be back soon.
    pub is_down: bool,
    /// Whether its address is no more.
    pub is_gone: bool,
    /// Its smoothed round-trip time; `None`: nothing was answered on it yet.
    pub rtt: Option<Duration>,
    /// The least one of late.
    pub rtt_min: Option<Duration>,
    /// What it delivers, as far as is known.
    pub rate: BitRate,
    /// Whether enough was sent on it that this says something.
    pub is_rate_known: bool,
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

    /// When the other side was heard last; until it was, when the connection began.
    pub const fn last_received(&self) -> Instant {
        self.last_received
    }

    /// For how long it goes on while nothing comes.
    pub const fn idle_max(&self) -> Duration {
        self.settings.idle_max
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

    /// Bytes that a datagram by a path may have, or by any of those that work, or may again; 0: there is none.
    pub fn datagram_max(&self, path: Option<PathId>) -> usize {
        let most = |wanted: fn(&Path) -> bool| {
            let paths = self.paths.iter().filter(|one| wanted(one) && path.is_none_or(|path| path == one.id));
            paths.map(datagram_max).max()
        };
        most(Path::carries_data).or_else(|| most(|path| path.state != State::Gone)).unwrap_or(0)
    }

    /// Whether nothing is to be hoped of a path for now.
    pub fn is_down(&self, path: PathId) -> bool {
        self.path_at(path).is_none_or(|at| self.paths[at].is_down())
    }

    /// For how long the oldest datagram has waited that is for this path alone: near [`WAIT_MAX`](crate::datagrams::WAIT_MAX) it has more
    /// of them than it takes.
    pub fn datagram_wait(&self, now: Instant, path: PathId) -> Duration {
        self.datagrams.wait(now, path)
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

    /// Another path, of the side that began the connection. `None`: there are [enough](PATHS_MAX), or it is the other side that adds paths.
    pub fn add_path(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) -> Option<PathId> {
        if !self.is_client || self.has_all_paths() {
            return None;
        }
        let at = match u8::try_from(self.paths.len()) {
            Ok(id) => self.push_path(now, PathId(id), (local, remote)),
            // All numbers are taken: that of a path that is gone, and was not heard of for longest.
            Err(_) => {
                let gone = self.paths.iter().enumerate().filter(|(_, path)| path.state == State::Gone);
                let at = gone.min_by_key(|(_, path)| path.last_ack()).map(|(at, _)| at)?;
                self.begin_again(now, at, (local, remote));
                at
            }
        };
        // Who calls may call.
        self.paths[at].handle_bytes(usize::MAX >> 8);
        Some(self.paths[at].id)
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
            is_down: path.is_down(),
            is_gone: path.state == State::Gone,
            rtt: path.rtt.is_known().then(|| path.rtt.smoothed()),
            rtt_min: path.rtt.is_known().then(|| path.rtt.min()),
            rate: path.rate(),
            is_rate_known: !path.is_starting(),
            in_flight: path.in_flight(),
            mtu: path.mtu(),
            counts: path.counts,
        })
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
        let mut next = Some(self.last_received + self.silence_max().0);
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
                sooner(path.received.ack_due().filter(|_| has_budget));
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
        let (silence_max, why) = self.silence_max();
        match &mut self.phase {
            Phase::Closing { until, .. } if *until <= now => self.phase = Phase::Closed,
            Phase::Closing { again, due, .. } => {
                if *again <= now {
                    (*again, *due) = (now + CLOSE_EVERY, self.paths.len());
                }
                return;
            }
            Phase::Closed => return,
            _ if now.saturating_since(self.last_received) >= silence_max => {
                self.phase = Phase::Closed;
                self.events.push_back(Event::Closed(why));
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

    /// After how much silence of the other side it ends, and why then.
    const fn silence_max(&self) -> (Duration, Closed) {
        match self.phase {
            Phase::Calling { .. } => (self.settings.call_max, Closed::Unanswered),
            _ => (self.settings.idle_max, Closed::Idle),
        }
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

    /// Whether there are as many as there may be; those that are gone do not count.
    fn has_all_paths(&self) -> bool {
        self.paths.iter().filter(|path| path.state != State::Gone).count() >= PATHS_MAX
    }

    fn path_at(&self, id: PathId) -> Option<usize> {
        self.paths.iter().position(|path| path.id == id)
    }

    /// A path, which the side that began the connection may add with this.
    fn path_of(&mut self, now: Instant, id: PathId, addresses: (SocketAddr, SocketAddr)) -> Option<usize> {
        if let Some(at) = self.path_at(id) {
            return Some(at);
        }
        (!self.is_client && !self.has_all_paths()).then(|| self.push_path(now, id, addresses))
    }

    fn push_path(&mut self, now: Instant, id: PathId, addresses: (SocketAddr, SocketAddr)) -> usize {
        let path = Path::new(now, id, addresses, self.settings.algorithm, self.settings.mtu_max);
        let at = self.paths.len();
        self.paths.push(path);
        self.ask_who_is_there(now, at);
        at
    }

    /// A path that was gone has other ends, and nothing is known of them.
    fn begin_again(&mut self, now: Instant, at: usize, addresses: (SocketAddr, SocketAddr)) {
        self.paths[at].begin_again(now, addresses, self.settings.algorithm, self.settings.mtu_max);
        self.ask_who_is_there(now, at);
    }

    fn ask_who_is_there(&mut self, now: Instant, at: usize) {
        let token = self.draw();
        self.paths[at].challenge = Some(Challenge { token, due: now, tries: 0 });
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

    /// A packet with these frames, as this side would seal it with this number; for whoever is allowed to speak, and lies.
    #[cfg(test)]
    pub(crate) fn forge(&mut self, path: PathId, number: u64, frames: &[u8]) -> Option<Vec<u8>> {
        let Phase::Open { keys, .. } = &mut self.phase else { return None };
        let header = crate::wire::Header { phase: keys.sealer.phase(false), connection: self.id, path, number };
        let mut out = Vec::new();
        header.put(&mut out);
        out.extend(frames);
        keys.sealer.seal(&header, &mut out);
        Some(out)
    }

    /// What always holds.
    pub fn is_valid(&self) -> bool {
        self.paths.iter().all(Path::is_valid)
            && self.datagrams.is_valid()
            && self.objects.values().all(|entry| entry.out.is_valid())
    }
}
