//! The emulated network: two sides, paths with rates, delays, queues, losses and outages, and a clock that stands until something happens.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;

use weirgate_units::{BitRate, Bytes, Duration, Instant};

use crate::connection::{Connection, Event, Settings};
use crate::crypto::{self, Secret};
use crate::object::{Sink, Source};
use crate::ranges::Ranges;
use crate::wire::{ConnectionId, Datagram};

/// One direction of an emulated path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) rate: BitRate,
    /// One way.
    pub(super) delay: Duration,
    /// Bytes that wait at most.
    pub(super) queue: u64,
    /// Of a million datagrams.
    pub(super) lost: u64,
    /// More delay, at random, up to this.
    pub(super) jitter: Duration,
    /// Larger datagrams vanish.
    pub(super) mtu: usize,
    /// Nothing passes from the one time to the other.
    pub(super) outage: Option<(Instant, Instant)>,
    pub(super) doubled: u64,
}

pub(super) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(super) fn at(n: u64) -> Instant {
    Instant::ZERO + ms(n)
}

impl Link {
    /// Of so many Mbit/s and milliseconds there and back, with a queue of 50 ms.
    pub(super) fn of(mbit: u64, rtt_ms: u64) -> Self {
        let rate = BitRate::from_bits_per_sec(mbit * 1_000_000);
        Self {
            rate,
            delay: Duration::from_nanos(ms(rtt_ms).as_nanos() / 2),
            queue: rate.bytes_in(ms(50)).as_u64().max(15_000),
            lost: 0,
            jitter: Duration::ZERO,
            mtu: 1_500 - 28,
            outage: None,
            doubled: 0,
        }
    }

    pub(super) fn with_loss(self, per_mille: u64) -> Self {
        Self { lost: per_mille * 1_000, ..self }
    }
}

/// A side, and what it sends and has received.
pub(super) struct Side {
    pub(super) connection: Connection,
    pub(super) store: Store,
    pub(super) events: Vec<(Instant, Event)>,
}

/// Objects: the bytes of each are a function of where they are.
#[derive(Default)]
pub(super) struct Store {
    pub(super) received: BTreeMap<u64, Ranges>,
    /// When bytes came for the first time, and how many then.
    pub(super) arrivals: Vec<(Instant, u64)>,
    pub(super) datagrams: Vec<(Instant, Vec<u8>)>,
    pub(super) now: Instant,
}

pub(super) const fn byte(object: u64, offset: u64) -> u8 {
    ((offset ^ (offset >> 8) ^ (offset >> 16)).wrapping_mul(31) ^ object) as u8
}

impl Source for Store {
    fn read(&mut self, object: u64, offset: u64, out: &mut [u8]) {
        for (at, out) in out.iter_mut().enumerate() {
            *out = byte(object, offset + at as u64);
        }
    }
}

impl Sink for Store {
    fn write(&mut self, object: u64, offset: u64, bytes: &[u8]) {
        let new = self.received.entry(object).or_default().insert(offset..offset + bytes.len() as u64);
        assert_eq!(new, bytes.len() as u64, "they came before");
        for (at, is) in bytes.iter().enumerate() {
            assert_eq!(*is, byte(object, offset + at as u64), "object {object} at {}", offset + at as u64);
        }
        self.arrivals.push((self.now, new));
    }

    fn datagram(&mut self, bytes: &[u8]) {
        self.datagrams.push((self.now, bytes.to_vec()));
    }
}

/// What is under way: when it arrives, for whom, by which path, from where, and its bytes.
type Arrival = Reverse<(Instant, u64, usize, usize, Vec<u8>)>;

pub(super) struct Net {
    pub(super) now: Instant,
    pub(super) links: Vec<[Link; 2]>,
    /// When each direction's queue is empty.
    pub(super) busy: Vec<[Instant; 2]>,
    pub(super) under_way: BinaryHeap<Arrival>,
    pub(super) sides: [Side; 2],
    /// The second side has answered the first message.
    pub(super) is_answered: bool,
    pub(super) secret: Secret,
    pub(super) settings: Settings,
    pub(super) random: u64,
    pub(super) sequence: u64,
    /// Bytes of first messages, and of answers to them.
    pub(super) calls: u64,
    pub(super) answers: u64,
    /// Datagrams that arrived, while it is listened: to whom, by which path.
    pub(super) heard: Vec<(usize, usize, Vec<u8>)>,
    pub(super) listens: bool,
    /// Addresses of the client that it has now: a NAT may give another one.
    pub(super) ports: Vec<u16>,
    /// Bytes that came to the server from each of the client's addresses, and that it sent to each.
    pub(super) passed: [BTreeMap<SocketAddr, u64>; 2],
}

pub(super) fn client_address(path: usize, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, path as u8, 1], port))
}

pub(super) fn server_address(path: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, path as u8, 2], 4_000))
}

impl Net {
    pub(super) fn new(settings: Settings, links: &[Link], seed: u64) -> Self {
        let (mine, theirs) = (Secret::from_bytes([7; 32]), Secret::from_bytes([9; 32]));
        let addresses: Vec<_> =
            (0..links.len()).map(|path| (client_address(path, 1_000), server_address(path))).collect();
        let id = ConnectionId(seed ^ 0x55);
        let connection =
            Connection::connect(Instant::ZERO, settings, &mine, theirs.public(), (id, seed), &addresses).unwrap();
        // Stands there until the first message comes.
        let spare = Connection::connect(Instant::ZERO, settings, &theirs, mine.public(), (id, seed), &[]).unwrap();
        let side = |connection| Side { connection, store: Store::default(), events: Vec::new() };
        Self {
            now: Instant::ZERO,
            links: links.iter().map(|link| [*link; 2]).collect(),
            busy: vec![[Instant::ZERO; 2]; links.len()],
            under_way: BinaryHeap::new(),
            sides: [side(connection), side(spare)],
            is_answered: false,
            secret: theirs,
            settings,
            random: seed | 1,
            sequence: 0,
            calls: 0,
            answers: 0,
            heard: Vec::new(),
            listens: false,
            ports: vec![1_000; links.len()],
            passed: Default::default(),
        }
    }

    pub(super) fn draw(&mut self, most: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % most
    }

    pub(super) fn send(&mut self, from: usize, path: usize, datagram: &[u8]) {
        match Datagram::parse(datagram) {
            Ok(Datagram::Init { .. }) => self.calls += datagram.len() as u64,
            Ok(Datagram::Reply { .. }) => self.answers += datagram.len() as u64,
            _ => {}
        }
        let link = self.links[path][from];
        let is_out = link.outage.is_some_and(|(from, to)| (from..to).contains(&self.now));
        let busy = self.busy[path][from].max(self.now);
        let waiting = link.rate.bytes_in(busy.saturating_since(self.now)).as_u64();
        let size = datagram.len() as u64 + 28;
        let is_lost = self.draw(1_000_000) < link.lost;
        if is_out || datagram.len() > link.mtu || waiting + size > link.queue {
            return;
        }
        let gone = busy + link.rate.time_for(Bytes::new(size));
        self.busy[path][from] = gone;
        if is_lost {
            return;
        }
        let jitter = Duration::from_nanos(self.draw(link.jitter.as_nanos().max(1)));
        let copies = 1 + usize::from(self.draw(1_000_000) < link.doubled);
        for copy in 0..copies {
            let arrives = gone + link.delay + jitter + ms(copy as u64);
            self.sequence += 1;
            self.under_way.push(Reverse((arrives, self.sequence, 1 - from, path, datagram.to_vec())));
        }
    }

    /// Until nothing more is to be done, or then.
    pub(super) fn run(&mut self, until: Instant) {
        let mut stands = (self.now, 0);
        loop {
            stands = if stands.0 == self.now { (self.now, stands.1 + 1) } else { (self.now, 0) };
            assert!(
                stands.1 < 10_000,
                "time stands still at {:?}: {:?}",
                self.now,
                self.sides.each_ref().map(|side| &side.connection)
            );
            self.flush();
            let timers = [0, 1].map(|side| self.timer(side));
            let arrival = self.under_way.peek().map(|Reverse((when, ..))| *when);
            let Some(next) = [arrival, timers[0], timers[1]].into_iter().flatten().min().filter(|next| *next <= until)
            else {
                self.now = until;
                return;
            };
            self.now = self.now.max(next);
            while let Some(Reverse((when, ..))) = self.under_way.peek()
                && *when <= self.now
            {
                let Some(Reverse((_, _, to, path, datagram))) = self.under_way.pop() else { break };
                self.deliver(to, path, datagram);
            }
            for side in 0..2 {
                if self.timer(side).is_some_and(|when| when <= self.now) {
                    self.sides[side].connection.handle_timeout(self.now);
                }
            }
        }
    }

    pub(super) fn timer(&mut self, side: usize) -> Option<Instant> {
        (side == 0 || self.is_answered).then(|| self.sides[side].connection.poll_at(self.now)).flatten()
    }

    pub(super) fn flush(&mut self) {
        let mut out = Vec::new();
        for side in 0..2 {
            if side == 1 && !self.is_answered {
                continue;
            }
            let mut count = 0;
            while let Some(transmit) = {
                let Side { connection, store, .. } = &mut self.sides[side];
                connection.poll_transmit(self.now, store, &mut out)
            } {
                let path = usize::from(transmit.path.0);
                if side == 1 {
                    *self.passed[1].entry(transmit.remote).or_default() += out.len() as u64;
                }
                self.send(side, path, &out.clone());
                count += 1;
                assert!(count < 100_000, "it never stops sending at {:?}", self.now);
            }
            while let Some(event) = self.sides[side].connection.poll_event() {
                self.sides[side].events.push((self.now, event));
            }
        }
    }

    pub(super) fn deliver(&mut self, to: usize, path: usize, mut datagram: Vec<u8>) {
        if self.listens {
            self.heard.push((to, path, datagram.clone()));
        }
        if to == 1 && !self.is_answered {
            let Ok(Datagram::Init { connection, message, .. }) = Datagram::parse(&datagram) else { return };
            let hello = Connection::hello(&self.settings);
            let called = crypto::answer(connection, &self.secret, message, &hello, |_| true).unwrap();
            self.sides[1].connection = Connection::accept(self.now, self.settings, called, (connection, 99));
            self.is_answered = true;
        }
        let client = client_address(path, self.ports[path]);
        if to == 1 {
            *self.passed[0].entry(client).or_default() += datagram.len() as u64;
        }
        let addresses = if to == 1 { (server_address(path), client) } else { (client, server_address(path)) };
        let Side { connection, store, .. } = &mut self.sides[to];
        store.now = self.now;
        connection.handle_datagram(self.now, addresses, &mut datagram, store);
    }

    pub(super) fn has(&self, side: usize, wanted: &Event) -> Option<Instant> {
        self.sides[side].events.iter().find(|(_, event)| event == wanted).map(|(when, _)| *when)
    }

    /// Sends one object of `len` bytes from the client: when its last byte came.
    pub(super) fn transfer(&mut self, len: u64, until: Instant) -> Option<Instant> {
        let object = self.sides[0].connection.open();
        self.sides[0].connection.provide(object, len, true);
        self.run(until);
        let complete = self.has(1, &Event::Complete(object))?;
        assert_eq!(self.sides[1].store.received[&object].count(), len);
        assert!(self.has(0, &Event::Delivered(object)).is_some(), "it came and nobody knows");
        Some(complete)
    }

    /// Bytes that came between two times, in Mbit/s.
    pub(super) fn goodput(&self, from: Instant, to: Instant) -> f64 {
        let arrivals = self.sides[1].store.arrivals.iter().filter(|(when, _)| (from..to).contains(when));
        arrivals.map(|(_, len)| *len).sum::<u64>() as f64 * 8.0 / 1e6 / to.saturating_since(from).as_secs_f64()
    }
}

/// What a datagram of 1,500 bytes with all headers has of an object: the most that goodput can be.
pub(super) const PAYLOAD: f64 = 0.952;

pub(super) fn article() -> Vec<Link> {
    vec![Link::of(20, 30), Link::of(50, 20), Link::of(5, 35)]
}
