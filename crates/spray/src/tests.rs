//! Two sides over emulated paths, in virtual time.

mod hostile;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;

use proptest::prelude::*;
use weirgate_units::{BitRate, Bytes, Duration, Instant};

use crate::connection::{Closed, Connection, Event, Settings};
use crate::control::Algorithm;
use crate::crypto::{self, Secret};
use crate::object::{Sink, Source};
use crate::ranges::Ranges;
use crate::wire::{ConnectionId, Datagram, PathId, Status, init_message};

/// One direction of an emulated path.
#[derive(Clone, Copy, Debug)]
struct Link {
    rate: BitRate,
    /// One way.
    delay: Duration,
    /// Bytes that wait at most.
    queue: u64,
    /// Of a million datagrams.
    lost: u64,
    /// More delay, at random, up to this.
    jitter: Duration,
    /// Larger datagrams vanish.
    mtu: usize,
    /// Nothing passes from the one time to the other.
    outage: Option<(Instant, Instant)>,
    doubled: u64,
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(n: u64) -> Instant {
    Instant::ZERO + ms(n)
}

impl Link {
    /// Of so many Mbit/s and milliseconds there and back, with a queue of 50 ms.
    fn of(mbit: u64, rtt_ms: u64) -> Self {
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

    fn with_loss(self, per_mille: u64) -> Self {
        Self { lost: per_mille * 1_000, ..self }
    }
}

/// A side, and what it sends and has received.
struct Side {
    connection: Connection,
    store: Store,
    events: Vec<(Instant, Event)>,
}

/// Objects: the bytes of each are a function of where they are.
#[derive(Default)]
struct Store {
    received: BTreeMap<u64, Ranges>,
    /// When bytes came for the first time, and how many then.
    arrivals: Vec<(Instant, u64)>,
    datagrams: Vec<(Instant, Vec<u8>)>,
    now: Instant,
}

const fn byte(object: u64, offset: u64) -> u8 {
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

struct Net {
    now: Instant,
    links: Vec<[Link; 2]>,
    /// When each direction's queue is empty.
    busy: Vec<[Instant; 2]>,
    under_way: BinaryHeap<Arrival>,
    sides: [Side; 2],
    /// The second side has answered the first message.
    is_answered: bool,
    secret: Secret,
    settings: Settings,
    random: u64,
    sequence: u64,
    /// Bytes of first messages, and of answers to them.
    calls: u64,
    answers: u64,
    /// Datagrams that arrived, while it is listened: to whom, by which path.
    heard: Vec<(usize, usize, Vec<u8>)>,
    listens: bool,
    /// Addresses of the client that it has now: a NAT may give another one.
    ports: Vec<u16>,
    /// Bytes that came to the server from each of the client's addresses, and that it sent to each.
    passed: [BTreeMap<SocketAddr, u64>; 2],
}

fn client_address(path: usize, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, path as u8, 1], port))
}

fn server_address(path: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, path as u8, 2], 4_000))
}

impl Net {
    fn new(settings: Settings, links: &[Link], seed: u64) -> Self {
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

    fn draw(&mut self, most: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % most
    }

    fn send(&mut self, from: usize, path: usize, datagram: &[u8]) {
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
    fn run(&mut self, until: Instant) {
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

    fn timer(&mut self, side: usize) -> Option<Instant> {
        (side == 0 || self.is_answered).then(|| self.sides[side].connection.poll_at(self.now)).flatten()
    }

    fn flush(&mut self) {
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

    fn deliver(&mut self, to: usize, path: usize, mut datagram: Vec<u8>) {
        if self.listens {
            self.heard.push((to, path, datagram.clone()));
        }
        if to == 1 && !self.is_answered {
            let Ok(Datagram::Init { connection, message, .. }) = Datagram::parse(&datagram) else { return };
            let message = init_message(message).unwrap();
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

    fn has(&self, side: usize, wanted: &Event) -> Option<Instant> {
        self.sides[side].events.iter().find(|(_, event)| event == wanted).map(|(when, _)| *when)
    }

    /// Sends one object of `len` bytes from the client: when its last byte came.
    fn transfer(&mut self, len: u64, until: Instant) -> Option<Instant> {
        let object = self.sides[0].connection.open();
        self.sides[0].connection.provide(object, len, true);
        self.run(until);
        let complete = self.has(1, &Event::Complete(object))?;
        assert_eq!(self.sides[1].store.received[&object].count(), len);
        assert!(self.has(0, &Event::Delivered(object)).is_some(), "it came and nobody knows");
        Some(complete)
    }

    /// Bytes that came between two times, in Mbit/s.
    fn goodput(&self, from: Instant, to: Instant) -> f64 {
        let arrivals = self.sides[1].store.arrivals.iter().filter(|(when, _)| (from..to).contains(when));
        arrivals.map(|(_, len)| *len).sum::<u64>() as f64 * 8.0 / 1e6 / to.saturating_since(from).as_secs_f64()
    }
}

/// Goodput of an endless transfer over these, from 5 s on, as a share of what they carry.
fn share(algorithm: Algorithm, links: &[Link], seed: u64) -> f64 {
    let settings = Settings { algorithm, ..Settings::default() };
    let mut net = Net::new(settings, links, seed);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 40, false);
    net.run(at(20_000));
    // Of 1,500 bytes 28 are of IP and UDP, and those of this protocol are its own.
    let sum: f64 = links.iter().map(|link| link.rate.as_bits_per_sec() as f64 / 1e6).sum();
    net.goodput(at(5_000), at(20_000)) / sum
}

#[test]
fn a_small_object_arrives_over_one_path() {
    let mut net = Net::new(Settings::default(), &[Link::of(10, 20)], 1);
    let done = net.transfer(100_000, at(5_000)).expect("it arrives");
    assert!(done < at(400), "{done:?}");
    assert!(net.has(0, &Event::Connected).is_some() && net.has(1, &Event::Connected).is_some());
    assert!(net.has(1, &Event::Opened(0)).is_some());
}

#[test]
fn a_few_bytes_after_a_silence_wait_for_no_other_path() {
    for links in [vec![Link::of(10_000, 0); 3], vec![Link::of(20, 30), Link::of(20, 30)], article()] {
        let mut net = Net::new(Settings::default(), &links, 2);
        for turn in 1..20 {
            net.run(at(turn * 700));
            let done = net.transfer(4, at(turn * 700 + 500)).expect("it arrives");
            assert!(done < at(turn * 700 + 60), "{done:?} in turn {turn}");
        }
    }
}

/// What a datagram of 1,500 bytes with all headers has of an object: the most that goodput can be.
const PAYLOAD: f64 = 0.952;

fn article() -> Vec<Link> {
    vec![Link::of(20, 30), Link::of(50, 20), Link::of(5, 35)]
}

/// Endless transfers fill these sets of paths: by the model all of them, by CUBIC those without losses.
fn steady() -> Vec<(&'static str, Vec<Link>, bool)> {
    let [five, wire, four] = article()[..] else { panic!("three paths") };
    let lte = Link { queue: BitRate::from_bits_per_sec(30_000_000).bytes_in(ms(300)).as_u64(), ..Link::of(30, 60) };
    let jitter = |link: Link| Link { jitter: ms(20), ..link };
    vec![
        ("the article's", article(), true),
        ("one", vec![wire], true),
        ("with losses", vec![five.with_loss(5), wire, four.with_loss(10)], false),
        ("fiber and LTE", vec![Link::of(300, 16), Link::of(30, 80).with_loss(5)], false),
        ("equal", vec![wire, wire], true),
        ("4:1", vec![Link::of(40, 20), Link::of(10, 40)], true),
        ("10:1", vec![Link::of(100, 10), Link::of(10, 60)], true),
        ("jitter", vec![jitter(five), jitter(wire)], true),
        ("a long queue", vec![lte, wire], true),
    ]
}

#[test]
fn all_paths_are_filled_however_unlike_they_are() {
    for (name, links, is_clean) in steady() {
        for algorithm in [Algorithm::Bbr, Algorithm::Cubic] {
            let share = share(algorithm, &links, 1) / PAYLOAD;
            let least = if algorithm == Algorithm::Bbr || is_clean { 0.98 } else { 0.8 };
            assert!(share > least, "{name} by {algorithm:?}: {share:.3} of what they carry");
        }
    }
}

#[test]
fn ten_megabytes_leave_a_slow_path_in_time() {
    let mut net = Net::new(Settings::default(), &article(), 3);
    net.run(at(200));
    let done = net.transfer(10_000_000, at(5_000)).expect("it arrives");
    let took = done.saturating_since(at(200));
    assert!(took < ms(1_250), "{took:?}, where 1,120 ms are the least there can be");
    let mut cold = Net::new(Settings::default(), &article(), 3);
    let done = cold.transfer(10_000_000, at(5_000)).expect("it arrives");
    assert!(done < at(1_300), "{done:?}");
}

#[test]
fn what_was_under_way_on_a_dead_path_goes_by_the_others_at_once() {
    let mut links = article();
    links[1].outage = Some((at(5_000), at(9_000)));
    let mut net = Net::new(Settings::default(), &links, 3);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 40, false);
    net.run(at(12_000));
    let left = PAYLOAD * 25.0;
    for from in (5_100..9_000).step_by(100) {
        let goodput = net.goodput(at(from), at(from + 100));
        assert!(goodput > 0.9 * left, "{goodput:.1} Mbit/s at {from} ms of {left:.1}");
    }
    let path = PathId(1);
    let down = net.has(0, &Event::PathDown(path)).expect("it is noticed");
    assert!(down < at(5_200), "{down:?}");
    // Everything that came in order at 5 s was there 200 ms later.
    let goodput = net.goodput(at(10_000), at(12_000));
    assert!(goodput > 0.9 * PAYLOAD * 75.0, "{goodput:.1} Mbit/s once it is back");
}

#[test]
fn what_the_last_questions_took_along_is_not_lost_with_a_path_that_stays_dead() {
    for (len, back) in (0..8).map(|n| (20_000_000 + n * 1_000_000, 1_150 + n * 70)) {
        let mut links = vec![Link::of(50, 20); 2];
        links[0].outage = Some((at(1_000), at(1 << 30)));
        links[1].outage = Some((at(1_000), at(back)));
        let mut net = Net::new(Settings::default(), &links, 3);
        assert!(net.transfer(len, at(20_000)).is_some_and(|done| done < at(6_500)), "back at {back} ms");
    }
}

#[test]
fn an_end_is_heard_by_whatever_path_works() {
    let mut links = article();
    links[0].outage = Some((at(1_000), at(1 << 30)));
    let mut net = Net::new(Settings::default(), &links, 3);
    net.run(at(1_010));
    net.sides[0].connection.close(at(1_010), 0, "done");
    net.run(at(1_100));
    assert!(net.has(1, &Event::Closed(Closed::ByPeer { code: 0, reason: "done".into() })).is_some());
    assert!(net.sides[0].connection.is_closed());
}

#[test]
fn a_path_that_becomes_faster_is_filled() {
    let mut net = Net::new(Settings::default(), &[Link { queue: 15_000, ..Link::of(5, 20) }], 3);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 40, false);
    net.run(at(5_000));
    net.links[0] = [Link::of(50, 20); 2];
    net.run(at(12_000));
    let goodput = net.goodput(at(9_000), at(12_000));
    assert!(goodput > 0.9 * PAYLOAD * 50.0, "{goodput:.1} Mbit/s");
}

#[test]
fn a_path_that_is_only_slow_or_uneven_is_never_down() {
    for (name, links, _) in steady() {
        let mut net = Net::new(Settings::default(), &links, 5);
        let object = net.sides[0].connection.open();
        net.sides[0].connection.provide(object, 1 << 40, false);
        net.run(at(10_000));
        for side in &net.sides {
            let downs = side.events.iter().filter(|(_, event)| matches!(event, Event::PathDown(_))).count();
            assert_eq!(downs, 0, "{name}: {:?}", side.events);
        }
    }
}

#[test]
fn a_side_that_did_not_look_for_a_while_takes_no_path_for_dead() {
    let long = Link { queue: BitRate::from_bits_per_sec(30_000_000).bytes_in(ms(300)).as_u64(), ..Link::of(30, 60) };
    for algorithm in [Algorithm::Bbr, Algorithm::Cubic] {
        let mut net = Net::new(Settings { algorithm, ..Settings::default() }, &[long, Link::of(50, 20)], 5);
        let object = net.sides[0].connection.open();
        net.sides[0].connection.provide(object, 1 << 40, false);
        for pause in 1..20 {
            net.run(at(2_000 + pause * 500));
            // What came meanwhile is there, and the time is looked at first.
            net.now += ms(pause * 10);
            let now = net.now;
            net.sides[0].connection.handle_timeout(now);
        }
        net.run(at(13_000));
        let downs: Vec<_> =
            net.sides[0].events.iter().filter(|(_, event)| matches!(event, Event::PathDown(_))).collect();
        assert!(downs.is_empty(), "{algorithm:?}: {downs:?}");
    }
}

#[test]
fn large_datagrams_are_sent_where_they_pass_and_no_more_when_they_do_not() {
    let mut net = Net::new(Settings::default(), &article()[..2], 4);
    net.links[0][0].mtu = 1_300;
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 40, false);
    net.run(at(8_000));
    let mtus = |net: &Net| net.sides[0].connection.paths().map(|path| path.mtu).collect::<Vec<u16>>();
    assert!((1_288..=1_300).contains(&mtus(&net)[0]) && mtus(&net)[1] == 1_472, "{:?}", mtus(&net));
    // A tunnel begins in the middle.
    net.links[1][0].mtu = 1_400;
    net.run(at(16_000));
    assert!((1_288..=1_300).contains(&mtus(&net)[0]) && (1_388..=1_400).contains(&mtus(&net)[1]), "{:?}", mtus(&net));
    let goodput = net.goodput(at(10_000), at(12_000));
    assert!(goodput > 0.9 * PAYLOAD * 70.0, "{goodput:.1} Mbit/s");
}

#[test]
fn paths_come_and_go_during_a_transfer() {
    let mut net = Net::new(Settings::default(), &article(), 6);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 40, false);
    net.run(at(2_000));
    net.sides[0].connection.set_status(at(2_000), PathId(1), Status::Gone);
    net.run(at(4_000));
    let goodput = net.goodput(at(3_000), at(4_000));
    assert!((0.9..1.02).contains(&(goodput / PAYLOAD / 25.0)), "{goodput:.1} Mbit/s on two");
    net.links.push([Link::of(50, 20); 2]);
    net.busy.push([at(4_000); 2]);
    net.ports.push(1_000);
    let added = net.sides[0].connection.add_path(at(4_000), client_address(3, 1_000), server_address(3));
    assert_eq!(added, Some(PathId(3)));
    net.run(at(6_000));
    let goodput = net.goodput(at(5_000), at(6_000));
    assert!(goodput > 0.95 * PAYLOAD * 75.0, "{goodput:.1} Mbit/s on three again");
}

#[test]
fn a_client_that_comes_from_another_address_goes_on() {
    let mut net = Net::new(Settings::default(), &article()[..2], 7);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 40, false);
    net.run(at(2_000));
    net.ports[1] = 2_000;
    net.run(at(4_000));
    let goodput = net.goodput(at(2_500), at(4_000));
    assert!(goodput > 0.9 * PAYLOAD * 70.0, "{goodput:.1} Mbit/s");
    let remote = net.sides[1].connection.paths().find(|path| path.path.0 == 1).map(|path| path.remote);
    assert_eq!(remote, Some(client_address(1, 2_000)));
}

#[test]
fn no_more_is_sent_than_was_granted() {
    let settings = Settings { credit: 100_000, ..Settings::default() };
    let mut net = Net::new(settings, &article(), 8);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1_000_000, true);
    net.run(at(1_000));
    assert_eq!(net.sides[1].store.received[&object].count(), 100_000);
    net.sides[1].connection.grant(object, 1_000_000);
    net.run(at(2_000));
    assert!(net.has(1, &Event::Complete(object)).is_some() && net.has(0, &Event::Delivered(object)).is_some());
}

#[test]
fn what_is_granted_before_the_first_bytes_counts() {
    let settings = Settings { credit: 100_000, ..Settings::default() };
    let mut net = Net::new(settings, &article(), 8);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.grant(object, 10_000_000);
    net.run(at(500));
    assert!(net.has(1, &Event::Opened(object)).is_some());
    net.sides[1].connection.provide(object, 1_000_000, true);
    net.run(at(2_000));
    assert!(net.has(0, &Event::Complete(object)).is_some());
    let other = net.sides[0].connection.open();
    net.sides[0].connection.reset(other, 3);
    net.run(at(2_500));
    assert!(net.has(1, &Event::Reset { object: other, code: 3 }).is_some());
}

#[test]
fn what_both_sides_have_from_before_is_not_sent() {
    let mut net = Net::new(Settings::default(), &article(), 9);
    net.run(at(200));
    // The number of an object is known beforehand.
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1, false);
    net.run(at(300));
    for have in [100_000..400_000, 500_000..900_000] {
        net.sides[0].connection.skip(object, have.clone());
        net.sides[1].connection.resume(object, have);
    }
    net.sides[0].connection.provide(object, 1_000_000, true);
    net.run(at(1_000));
    assert!(net.has(1, &Event::Complete(object)).is_some());
    assert_eq!(net.sides[1].store.received[&object].count(), 300_000);
}

#[test]
fn both_sides_send_and_either_side_ends_it() {
    let mut net = Net::new(Settings::default(), &article(), 10);
    let there = net.sides[0].connection.open();
    net.sides[0].connection.provide(there, 3_000_000, true);
    net.run(at(100));
    let back = net.sides[1].connection.open();
    net.sides[1].connection.provide(back, 3_000_000, true);
    net.sides[1].connection.provide(there, 1_000_000, true);
    net.run(at(3_000));
    for (side, object) in [(0, there), (1, there), (0, back)] {
        assert!(net.has(side, &Event::Complete(object)).is_some(), "side {side}, object {object}");
    }
    let reset = net.sides[0].connection.open();
    net.sides[0].connection.provide(reset, 1 << 40, false);
    net.run(at(3_200));
    net.sides[1].connection.reset(reset, 42);
    net.run(at(3_400));
    assert!(net.has(0, &Event::Reset { object: reset, code: 42 }).is_some());
    let now = net.now;
    net.sides[0].connection.close(now, 7, "that is all");
    net.run(at(5_000));
    let closed = Closed::ByPeer { code: 7, reason: "that is all".into() };
    assert!(net.has(1, &Event::Closed(closed)).is_some());
    assert!(net.sides.iter().all(|side| side.connection.is_closed()));
}

#[test]
fn a_connection_whose_paths_are_all_dead_ends_after_a_while() {
    let links = article().into_iter().map(|link| Link { outage: Some((at(1_000), at(1 << 30))), ..link });
    let mut net = Net::new(Settings::default(), &links.collect::<Vec<_>>(), 11);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 40, false);
    net.run(at(40_000));
    for side in 0..2 {
        let ended = net.has(side, &Event::Closed(Closed::Idle)).expect("it ends");
        assert!((at(31_000)..at(31_500)).contains(&ended), "{ended:?}");
    }
}

#[test]
fn a_call_that_nobody_answers_ends_sooner_and_says_what_may_be_wrong() {
    let links = article().into_iter().map(|link| Link { outage: Some((Instant::ZERO, at(1 << 30))), ..link });
    let mut net = Net::new(Settings::default(), &links.collect::<Vec<_>>(), 11);
    net.run(at(20_000));
    let ended = net.has(0, &Event::Closed(Closed::Unanswered)).expect("it ends");
    assert_eq!(ended, at(10_000));
    assert_eq!(net.calls, 3 * 6 * 1_200, "six calls on each of three paths");
    // Who has answered and is not heard any more is another matter.
    let mut net = Net::new(Settings::default(), &article(), 11);
    net.run(at(9_000));
    net.links.iter_mut().flatten().for_each(|link| link.outage = Some((at(9_000), at(1 << 30))));
    net.run(at(30_000));
    assert!(net.sides.iter().all(|side| !side.connection.is_closed()));
}

#[test]
fn a_server_answers_no_more_than_three_times_what_comes() {
    let mut net = Net::new(Settings::default(), &article()[..1], 12);
    // The client's address is forged: nothing reaches it.
    net.links[0][1].outage = Some((Instant::ZERO, at(1 << 30)));
    net.run(at(20_000));
    let sent: Vec<_> = net.sides[0].connection.paths().map(|path| path.counts).collect();
    assert_eq!(sent[0].packets_in, 0);
    let counts = net.sides[1].connection.paths().next().map(|path| path.counts).unwrap();
    assert_eq!((counts.packets_out, counts.packets_in), (0, 0), "nothing but answers to the first message");
    assert!(net.answers <= 3 * net.calls, "{} bytes for {}", net.answers, net.calls);
}

#[test]
fn an_address_that_a_client_comes_from_is_sent_no_more_than_three_times_what_came_until_it_answers() {
    let mut net = Net::new(Settings::default(), &article()[..1], 15);
    net.run(at(100));
    let object = net.sides[1].connection.open();
    net.sides[1].connection.provide(object, 1 << 40, false);
    net.run(at(2_000));
    // Somebody on the way has put another address, whose host does not answer, into what the client sends.
    net.ports[0] = 2_000;
    net.links[0][1].outage = Some((at(2_000), at(1 << 30)));
    net.run(at(12_000));
    let [came, sent] = net.passed.each_ref().map(|of| of.get(&client_address(0, 2_000)).copied().unwrap_or(0));
    assert!(came > 0 && sent > 0 && sent <= 3 * came, "{sent} bytes for {came}");
    let before = net.passed[1][&client_address(0, 1_000)];
    assert!(before > 3_000_000, "it was sending: {before} bytes");
}

#[test]
fn datagrams_of_strangers_change_nothing() {
    let mut net = Net::new(Settings::default(), &article(), 13);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 2_000_000, true);
    net.listens = true;
    net.run(at(200));
    let heard = std::mem::take(&mut net.heard);
    net.listens = false;
    assert!(heard.len() > 300);
    for (to, path, datagram) in heard {
        // As it was; cut; with a bit changed; from another path; with a phase that was not begun.
        let mut changed = vec![datagram.clone(), datagram[..datagram.len() / 2].to_vec()];
        for at in [0, 1, 9, 12, 20] {
            let mut other = datagram.clone();
            let len = other.len();
            other[at % len] ^= 1;
            changed.push(other);
        }
        for datagram in changed {
            net.deliver(to, path, datagram);
        }
    }
    net.run(at(3_000));
    assert!(net.has(1, &Event::Complete(object)).is_some() && net.has(0, &Event::Delivered(object)).is_some());
    assert!(net.sides.iter().all(|side| !side.events.iter().any(|(_, event)| matches!(event, Event::Closed(_)))));
}

fn any_link() -> impl Strategy<Value = Link> {
    let outage = prop::option::of((0_u64..3_000, 1_u64..3_000));
    (1_u64..100, 1_u64..200, 0_u64..200, 0_u64..50, 5_u64..300, (1_228_usize..1_500, outage), 0_u64..300_000).prop_map(
        |(mbit, rtt, per_mille, jitter, queue_ms, (mtu, outage), doubled)| {
            let link = Link::of(mbit, rtt).with_loss(per_mille);
            Link {
                jitter: ms(jitter),
                queue: link.rate.bytes_in(ms(queue_ms)).as_u64().max(15_000),
                mtu,
                outage: outage.map(|(from, len)| (at(from), at(from + len))),
                doubled,
                ..link
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Losses of up to 20 %, outages, packets that overtake and come twice, sizes that do not pass, clocks that jump.
    #[test]
    fn everything_arrives_whatever_the_paths_do(
        links in prop::collection::vec(any_link(), 1..4),
        lens in prop::collection::vec((any::<bool>(), 0_u64..300_000), 1..6),
        seed in any::<u64>(),
        cubic in any::<bool>(),
        jump in prop::option::of(1_u64..20_000),
    ) {
        let algorithm = if cubic { Algorithm::Cubic } else { Algorithm::Bbr };
        let patience = Duration::from_secs(60);
        let settings = Settings { algorithm, idle_max: patience, call_max: patience, ..Settings::default() };
        let mut net = Net::new(settings, &links, seed);
        let mut wanted = Vec::new();
        for (is_back, len) in lens {
            if is_back {
                net.run(net.now + ms(500));
            }
            // Before there is another side, there is nobody who could send.
            let side = usize::from(is_back && net.is_answered);
            let object = net.sides[side].connection.open();
            net.sides[side].connection.provide(object, len, true);
            wanted.push((side, object, len));
            // Datagrams of any length, by any path: each comes once, or not.
            for (at, path) in [None, Some(PathId(0)), Some(PathId(9))].into_iter().enumerate() {
                let (now, bytes) = (net.now, vec![at as u8; (len as usize / 7 + at * 500) % 1_500]);
                let _too_long = net.sides[side].connection.send_datagram(now, path, &bytes);
            }
        }
        if let Some(jump) = jump {
            net.run(net.now + ms(300));
            net.now += ms(jump);
        }
        net.run(net.now + Duration::from_secs(120));
        for (side, object, len) in wanted {
            let got = net.sides[1 - side].store.received.get(&object).map_or(0, Ranges::count);
            prop_assert_eq!(got, len, "object {} of side {}: {:?}", object, side, net.sides[1 - side].events);
            prop_assert!(net.has(1 - side, &Event::Complete(object)).is_some());
            prop_assert!(net.has(side, &Event::Delivered(object)).is_some(), "{:?}", net.sides[side].events);
        }
    }
}

/// Sends datagrams of `len` bytes, one each `every_us`, for so many milliseconds; each begins with its number.
fn send_datagrams(net: &mut Net, path: Option<PathId>, len: usize, every_us: u64, lasts_ms: u64) -> u64 {
    let begun = net.now;
    let count = lasts_ms * 1_000 / every_us;
    for number in 0..count {
        net.run(begun + Duration::from_micros(number * every_us));
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.resize(len, 0xda);
        let now = net.now;
        net.sides[0].connection.send_datagram(now, path, &bytes).expect("a path works");
    }
    count
}

fn numbers(net: &Net) -> Vec<u64> {
    let came = net.sides[1].store.datagrams.iter();
    came.map(|(_, bytes)| u64::from_be_bytes(*bytes.first_chunk().unwrap())).collect()
}

#[test]
fn datagrams_of_a_path_keep_their_order_and_those_for_any_have_the_sum() {
    let mut net = Net::new(Settings::default(), &article(), 3);
    net.run(at(1_000));
    // 4 Mbit/s by the slowest path of 5.
    let count = send_datagrams(&mut net, Some(PathId(2)), 1_000, 2_000, 2_000);
    let until = net.now + ms(500);
    net.run(until);
    assert_eq!(numbers(&net), (0..count).collect::<Vec<_>>());
    assert!(net.sides[0].connection.paths().nth(2).unwrap().counts.packets_out > count);
    // 60 Mbit/s of 75 by all, once congestion control knows what they carry.
    net.sides[1].store.datagrams.clear();
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 20_000_000, true);
    let until = net.now + ms(5_000);
    net.run(until);
    let count = send_datagrams(&mut net, None, 1_250, 167, 3_000);
    let until = net.now + ms(500);
    net.run(until);
    let mut came = numbers(&net);
    assert!(came.windows(2).any(|two| two[0] > two[1]), "by several paths");
    came.sort_unstable();
    came.dedup();
    assert_eq!(came.len(), net.sides[1].store.datagrams.len(), "each once");
    assert!(
        came.len() as u64 > count * 95 / 100,
        "{} of {count}: {:?}",
        came.len(),
        net.sides[0].connection.datagrams()
    );
}

#[test]
fn datagrams_and_objects_take_turns() {
    let mut net = Net::new(Settings::default(), &[Link::of(10, 20)], 4);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 30, false);
    net.run(at(3_000));
    // As much as the path carries, once more.
    let before = net.now;
    let count = send_datagrams(&mut net, None, 1_250, 1_000, 4_000);
    let (share, now) = (net.goodput(before, net.now), net.now);
    let came = numbers(&net).len() as u64;
    assert!(share > 3.0 && came * 100 > count * 30, "object {share} Mbit/s, {came} of {count} datagrams");
    let counts = net.sides[0].connection.datagrams();
    assert!(counts.sent + counts.dropped <= count && counts.sent + counts.dropped + 150 > count, "{counts:?}");
    let waited = numbers(&net).last().map(|last| now.saturating_since(before + ms(*last)));
    assert!(waited.is_some_and(|waited| waited < ms(250)), "{waited:?}");
}

/// However paths take turns with each other, on each of them datagrams and objects do.
#[test]
fn datagrams_of_every_path_have_their_turn_beside_an_object() {
    let mut net = Net::new(Settings::default(), &[Link::of(10, 20), Link::of(10, 20)], 7);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 40, false);
    net.run(at(3_000));
    let begun = net.now;
    for number in 0..2_000_u64 {
        net.run(begun + ms(number));
        let (now, path) = (net.now, PathId((number % 2) as u8));
        net.sides[0].connection.send_datagram(now, Some(path), &number.to_be_bytes()).unwrap();
    }
    let until = net.now + ms(300);
    net.run(until);
    let came = numbers(&net);
    let odd = came.iter().filter(|number| **number % 2 == 1).count();
    assert!(came.len() > 1_980 && odd > 980, "{} of 2,000, {odd} of them by the second path", came.len());
}

#[test]
fn a_datagram_that_is_lost_stays_lost_and_one_of_a_dead_path_goes_by_another() {
    let mut net = Net::new(Settings::default(), &[Link::of(20, 20).with_loss(50), Link::of(20, 30)], 5);
    net.run(at(500));
    let count = send_datagrams(&mut net, Some(PathId(0)), 500, 1_000, 2_000);
    let until = net.now + ms(500);
    net.run(until);
    let came = numbers(&net).len() as u64;
    assert!(came < count && came > count * 90 / 100, "{came} of {count}");
    net.sides[1].store.datagrams.clear();
    let now = net.now;
    net.links[0].iter_mut().for_each(|link| link.outage = Some((now, now + ms(60_000))));
    let count = send_datagrams(&mut net, Some(PathId(0)), 500, 1_000, 2_000);
    let until = net.now + ms(500);
    net.run(until);
    let came = numbers(&net);
    assert!(came.len() as u64 > count * 85 / 100 && came.last() == Some(&(count - 1)), "{} of {count}", came.len());
}

#[test]
fn a_datagram_that_fits_nowhere_is_refused() {
    let mut net = Net::new(Settings::default(), &[Link::of(20, 20), Link { mtu: 1_300, ..Link::of(20, 30) }], 6);
    net.run(at(8_000));
    let connection = &mut net.sides[0].connection;
    let [all, small] = [None, Some(PathId(1))].map(|path| connection.datagram_max(path));
    assert!(all > 1_400 && (1_220..1_260).contains(&small), "{all} {small}");
    let refused = connection.send_datagram(at(8_000), Some(PathId(1)), &[0; 1_400]);
    assert_eq!(refused.unwrap_err().to_string(), format!("a datagram may have {small} bytes here"));
    for _ in 0..20 {
        connection.send_datagram(at(8_000), None, &[0; 1_400]).unwrap();
    }
    net.run(at(9_000));
    assert_eq!(net.sides[1].store.datagrams.len(), 20);
}
