//! Behaviour by example, then random interleavings against a world in which everything is known.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use weirgate_units::Bytes;

use super::*;
use crate::sample::{CcName, flag, mapped};

const NETNS: u32 = 4_026_531_840;
const INTERVAL: Duration = Duration::from_secs(10);

/// A connection of cookie `cookie` from 192.0.2.7:50000 to port 443 with `acked` bytes delivered.
fn sample(kind: Kind, cookie: u64, acked: u64) -> Sample {
    let mut sample = Sample {
        kind: kind as u8,
        state: state::ESTABLISHED,
        family: 4,
        cookie,
        local_port: 443,
        remote_port: 50_000,
        local: mapped(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1))),
        remote: mapped(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7))),
        netns: NETNS,
        cc: CcName::from_kernel(b"cubic"),
        bytes_acked: acked,
        bytes_sent: acked,
        busy_us: acked / 10,
        ..Sample::default()
    };
    for field in [Field::TcpInfo, Field::Cc, Field::DeliveryRate, Field::MinRttUs] {
        sample.set_given(field);
    }
    sample
}

fn poll(cookie: u64, acked: u64) -> Sample {
    sample(Kind::Poll, cookie, acked)
}

fn close(cookie: u64, acked: u64) -> Sample {
    sample(Kind::Close, cookie, acked)
}

fn listener(port: u16) -> Sample {
    Sample { local_port: port, remote_port: 0, state: state::LISTEN, ..poll(999_999, 0) }
}

/// A ledger whose first poll, of no connections, is over: what comes now is new.
fn running() -> (Ledger, Instant) {
    let mut ledger = Ledger::new(Options::default());
    let now = Instant::ZERO + INTERVAL;
    ledger.handle_poll_end(NETNS, now, &mut |_| {});
    (ledger, now)
}

/// A poll that shows `samples`; how it ended, and the progress of those that vanished.
fn whole_poll(ledger: &mut Ledger, now: &mut Instant, samples: &[Sample]) -> (PollEnd, Vec<Progress>) {
    for sample in samples {
        ledger.handle_sample(sample);
    }
    *now += INTERVAL;
    let mut progress = Vec::new();
    let end = ledger.handle_poll_end(NETNS, *now, &mut |p| progress.push(*p));
    assert!(ledger.is_valid());
    (end, progress)
}

fn round(ledger: &mut Ledger) -> Vec<Progress> {
    let mut progress = Vec::new();
    ledger.take_round(&mut |p| progress.push(*p));
    progress
}

#[test]
fn records_are_numbered_and_the_close_is_the_last() {
    let (mut ledger, mut now) = running();
    let first = ledger.handle_sample(&poll(1, 100)).unwrap();
    assert_eq!((first.sequence, first.first, first.last), (0, true, None));
    whole_poll(&mut ledger, &mut now, &[]);
    let second = ledger.handle_sample(&poll(1, 300)).unwrap();
    assert_eq!((second.sequence, second.first, second.last), (1, false, None));
    let last = ledger.handle_sample(&close(1, 350)).unwrap();
    assert_eq!((last.sequence, last.first), (2, false));
    let progress = last.last.unwrap();
    assert!(progress.closed);
    assert_eq!(progress.acked, Bytes::new(350), "no round was taken before");
    assert_eq!((ledger.connections(), ledger.counts().closes), (0, 1));
    assert!(round(&mut ledger).is_empty());
}

#[test]
fn a_round_has_one_progress_per_active_connection() {
    let (mut ledger, mut now) = running();
    whole_poll(&mut ledger, &mut now, &[poll(1, 100), poll(2, 200), poll(3, 0)]);
    let acked: Vec<_> = round(&mut ledger).iter().map(|p| p.acked.as_u64()).collect();
    assert_eq!(acked, [100, 200]);
    whole_poll(&mut ledger, &mut now, &[poll(1, 100), poll(2, 250), poll(3, 0)]);
    whole_poll(&mut ledger, &mut now, &[poll(1, 100), poll(2, 275), poll(3, 0)]);
    let progress = round(&mut ledger);
    assert_eq!(progress.len(), 1);
    assert_eq!((progress[0].acked, progress[0].closed), (Bytes::new(75), false));
    assert_eq!(progress[0].client, IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)));
    assert_eq!((progress[0].local_port, progress[0].cc.as_str()), (443, "cubic"));
}

#[test]
fn what_happened_before_the_first_poll_is_nobodys_progress() {
    let mut ledger = Ledger::new(Options::default());
    let mut now = Instant::ZERO;
    whole_poll(&mut ledger, &mut now, &[poll(1, 1_000_000)]);
    assert!(round(&mut ledger).is_empty());
    whole_poll(&mut ledger, &mut now, &[poll(1, 1_000_010)]);
    assert_eq!(round(&mut ledger)[0].acked, Bytes::new(10));
}

#[test]
fn delivery_rate_and_round_trip_are_the_last_and_the_least() {
    let (mut ledger, mut now) = running();
    let seen = |acked, rate, flags, rtt| Sample { delivery_rate: rate, flags, min_rtt_us: rtt, ..poll(1, acked) };
    for sample in [seen(1, 1000, 0, 700), seen(2, 2000, 0, 500), seen(3, 50, flag::APP_LIMITED, 600)] {
        whole_poll(&mut ledger, &mut now, &[sample]);
    }
    let progress = round(&mut ledger)[0];
    assert_eq!(progress.delivery_rate.unwrap().as_bytes_per_sec(), 2000);
    assert_eq!(progress.min_rtt, Duration::from_micros(500));
    whole_poll(&mut ledger, &mut now, &[seen(4, 50, flag::APP_LIMITED, 600)]);
    assert_eq!(round(&mut ledger)[0].delivery_rate, None, "no sample of this round was free of the application");
    // Of the connection's life, whatever the rounds.
    let max = |ledger: &mut Ledger, sample: &Sample| ledger.handle_sample(sample).unwrap().delivery_rate_max;
    assert_eq!(max(&mut ledger, &seen(5, 9000, flag::APP_LIMITED, 600)), 2000);
    assert_eq!(max(&mut ledger, &Sample { delivery_rate: 3000, ..close(1, 6) }), 3000);
}

#[test]
fn a_connection_shorter_than_the_interval_is_kept_by_its_close() {
    let (mut ledger, _) = running();
    let seen = ledger.handle_sample(&close(1, 20_000)).unwrap();
    assert_eq!((seen.sequence, seen.first, seen.last.unwrap().acked), (0, true, Bytes::new(20_000)));
    assert_eq!((ledger.counts().closes_unpolled, ledger.counts().lost()), (1, 0));
}

#[test]
fn the_direction_comes_from_flags_or_state_or_a_listener() {
    let (mut ledger, mut now) = running();
    let mut direction = |sample: Sample| {
        let seen = ledger.handle_sample(&sample).unwrap();
        (seen.direction, seen.listener_port)
    };
    assert_eq!(direction(poll(1, 0)), (Direction::Unknown, 0));
    assert_eq!(direction(Sample { flags: flag::CONNECTED, ..poll(2, 0) }), (Direction::Connected, 0));
    assert_eq!(direction(Sample { flags: flag::ACCEPTED, ..poll(3, 0) }), (Direction::Accepted, 443));
    assert_eq!(direction(Sample { state: state::SYN_SENT, ..poll(4, 0) }), (Direction::Connected, 0));
    assert_eq!(ledger.handle_sample(&listener(443)), None);
    let accepted = ledger.handle_sample(&poll(5, 0)).unwrap();
    assert_eq!((accepted.direction, accepted.listener_port), (Direction::Accepted, 443));
    // Known once, known for ever; and what is known is not guessed again.
    whole_poll(&mut ledger, &mut now, &[]);
    whole_poll(&mut ledger, &mut now, &[]);
    assert_eq!(ledger.handle_sample(&close(5, 0)).unwrap().direction, Direction::Accepted);
    assert_eq!(ledger.handle_sample(&close(2, 0)).unwrap().direction, Direction::Connected);
    assert_eq!(ledger.handle_sample(&close(1, 0)).unwrap().direction, Direction::Unknown, "its listener came too late");
}

#[test]
fn a_close_that_waits_in_a_buffer_over_a_poll_is_not_lost() {
    let (mut ledger, mut now) = running();
    whole_poll(&mut ledger, &mut now, &[poll(1, 100)]);
    let (end, _) = whole_poll(&mut ledger, &mut now, &[]);
    assert_eq!(end, PollEnd { open: 0, missing: 1, vanished: 0 });
    let seen = ledger.handle_sample(&close(1, 150)).unwrap();
    assert_eq!((seen.sequence, seen.last.unwrap().acked), (1, Bytes::new(150)));
    let (end, _) = whole_poll(&mut ledger, &mut now, &[]);
    assert_eq!((end, ledger.counts().vanished), (PollEnd::default(), 0));
}

#[test]
fn a_connection_whose_end_nobody_reported_is_counted_and_its_last_known_progress_kept() {
    let (mut ledger, mut now) = running();
    whole_poll(&mut ledger, &mut now, &[poll(1, 100), poll(2, 5)]);
    round(&mut ledger);
    whole_poll(&mut ledger, &mut now, &[poll(1, 130), poll(2, 5)]);
    whole_poll(&mut ledger, &mut now, &[poll(2, 5)]);
    let (end, progress) = whole_poll(&mut ledger, &mut now, &[poll(2, 5)]);
    assert_eq!(end, PollEnd { open: 1, missing: 0, vanished: 1 });
    assert_eq!((progress.len(), progress[0].acked, progress[0].closed), (1, Bytes::new(30), true));
    assert_eq!(ledger.counts().lost(), 1);
}

#[test]
fn a_close_that_comes_after_it_was_given_up_is_matched() {
    for polls_without in [2, 3, 4] {
        let (mut ledger, mut now) = running();
        whole_poll(&mut ledger, &mut now, &[poll(1, 100)]);
        for _ in 0..polls_without {
            whole_poll(&mut ledger, &mut now, &[]);
        }
        assert_eq!(ledger.counts().lost(), 1);
        let seen = ledger.handle_sample(&close(1, 150)).unwrap();
        assert_eq!((seen.sequence, seen.first), (1, false), "{polls_without}");
        let counts = ledger.counts();
        assert_eq!((counts.lost(), counts.vanished, counts.closes_unpolled), (0, 1, 0), "{polls_without}");
        let late = seen.last.map(|p| p.acked);
        // Once the account is gone, what it had counted is too: better a little too little than twice.
        assert_eq!(late, (polls_without == 2).then_some(Bytes::new(50)), "{polls_without}");
        assert_eq!(ledger.handle_sample(&close(1, 150)), None, "and then it is closed");
    }
}

#[test]
fn a_poll_that_left_one_out_makes_no_new_connection() {
    let (mut ledger, mut now) = running();
    whole_poll(&mut ledger, &mut now, &[poll(1, 100)]);
    whole_poll(&mut ledger, &mut now, &[]);
    whole_poll(&mut ledger, &mut now, &[poll(1, 200)]);
    assert_eq!((ledger.counts().skipped, ledger.counts().opened, ledger.counts().vanished), (1, 1, 0));
    assert_eq!(round(&mut ledger)[0].acked, Bytes::new(200));
}

#[test]
fn a_poll_that_broke_off_declares_nobody_missing() {
    let (mut ledger, mut now) = running();
    whole_poll(&mut ledger, &mut now, &[poll(1, 100), poll(2, 100)]);
    for _ in 0..3 {
        ledger.handle_sample(&poll(2, 100));
        ledger.handle_poll_failed(NETNS);
    }
    let (end, _) = whole_poll(&mut ledger, &mut now, &[poll(1, 100), poll(2, 100)]);
    assert_eq!(end, PollEnd { open: 2, missing: 0, vanished: 0 });
}

#[test]
fn second_reports_are_dropped_and_counted() {
    let (mut ledger, _) = running();
    ledger.handle_sample(&poll(1, 100));
    assert_eq!(ledger.handle_sample(&poll(1, 100)), None);
    ledger.handle_sample(&close(1, 100));
    assert_eq!(ledger.handle_sample(&close(1, 100)), None, "sockops and the destroy announcement both tell");
    assert_eq!(ledger.handle_sample(&poll(1, 90)), None, "read before the close, handled after");
    let counts = ledger.counts();
    assert_eq!((counts.polls_repeated, counts.closes_repeated, counts.polls_after_close), (1, 1, 1));
    assert_eq!((counts.opened, counts.closes), (1, 1));
}

#[test]
fn what_is_no_connection_has_no_account() {
    let (mut ledger, _) = running();
    let mini = |s: u8| Sample { state: s, given: 0, ..poll(5, 0) };
    for pseudo in [
        mini(state::TIME_WAIT),
        mini(state::FIN_WAIT2),
        mini(state::SYN_RECV),
        mini(state::NEW_SYN_RECV),
        Sample { remote_port: 0, ..close(6, 0) },
    ] {
        assert_eq!(ledger.handle_sample(&pseudo), None);
    }
    assert_eq!(ledger.handle_sample(&poll(0, 0)), None);
    assert_eq!((ledger.counts().pseudo, ledger.counts().without_identity, ledger.connections()), (5, 1, 0));
}

#[test]
fn a_close_that_forgot_its_peer_is_known_by_its_cookie() {
    let (mut ledger, mut now) = running();
    whole_poll(&mut ledger, &mut now, &[poll(1, 100)]);
    let reset = Sample { remote_port: 0, remote: [0; 16], bytes_acked: 0, bytes_sent: 0, busy_us: 0, ..close(1, 0) };
    let seen = ledger.handle_sample(&reset).unwrap();
    assert_eq!(seen.remote.to_string(), "192.0.2.7:50000");
    assert_eq!(seen.last.unwrap().acked, Bytes::new(100));
    assert_eq!((ledger.counts().closes, ledger.counts().pseudo), (1, 0));
}

#[test]
fn a_namespace_that_goes_takes_its_connections_along() {
    let (mut ledger, mut now) = running();
    whole_poll(&mut ledger, &mut now, &[poll(1, 100), Sample { netns: 1, ..poll(1, 7) }]);
    assert_eq!(ledger.connections(), 2, "the same cookie in two namespaces is two connections");
    let mut progress = Vec::new();
    ledger.handle_namespace_gone(NETNS, &mut |p| progress.push(p.acked.as_u64()));
    assert_eq!((progress, ledger.connections(), ledger.counts().lost()), (vec![100], 1, 1));
    assert!(ledger.is_valid());
}

#[test]
fn past_its_bound_it_still_makes_records() {
    let mut ledger = Ledger::new(Options { connections_max: 2, ..Options::default() });
    let mut now = Instant::ZERO;
    whole_poll(&mut ledger, &mut now, &[poll(1, 1), poll(2, 1), poll(3, 1)]);
    assert_eq!((ledger.connections(), ledger.counts().untracked), (2, 1));
    for cookie in 10..1000 {
        assert!(ledger.handle_sample(&close(cookie, 1)).is_some());
        assert!(ledger.is_valid());
    }
}

#[test]
fn the_memory_of_closes_is_bounded_and_forgets() {
    let (mut ledger, mut now) = running();
    let at = |now: Instant, cookie| Sample { time_ns: now.as_nanos(), ..close(cookie, 1) };
    let mut peak = 0;
    for cookie in 1..200_000 {
        // 5,000 closes a second.
        now += Duration::from_micros(200);
        ledger.handle_sample(&at(now, cookie));
        peak = peak.max(ledger.heap_bytes());
    }
    assert!(peak < 8_000_000, "{peak} bytes for 40 s of 5,000 closes a second");
    now += Duration::from_secs(60);
    ledger.handle_sample(&at(now, 1_000_000));
    assert!(ledger.handle_sample(&at(now, 1)).is_some(), "forgotten");
    now += Duration::from_secs(60);
    ledger.handle_sample(&at(now, 1_000_001));
    assert!(ledger.heap_bytes() < 500_000, "{}", ledger.heap_bytes());
}

#[test]
fn a_hundred_thousand_connections_fit_in_20_mb() {
    let (mut ledger, mut now) = running();
    let polls: Vec<_> = (1..=100_000).map(|cookie| poll(cookie, 1)).collect();
    let mut peak = 0;
    for sample in &polls {
        ledger.handle_sample(sample);
        peak = peak.max(ledger.heap_bytes());
    }
    let (end, _) = whole_poll(&mut ledger, &mut now, &[]);
    assert_eq!(end.open, 100_000);
    assert!(peak < 20_000_000, "{peak} bytes");
}

/// What can happen to the connections of a host, in an order of its own.
#[derive(Clone, Debug)]
enum Event {
    Open,
    /// The connection (by number, of those open) delivers more.
    Deliver(usize, u64),
    /// It closes; whether its record reaches the ring buffer.
    Close(usize, bool),
    /// What waits in the ring buffer is read.
    Drain,
    /// The last close record comes again, by another source.
    RepeatClose,
    /// All is polled; the connections by these numbers are left out by the kernel's walk.
    Poll(Vec<usize>),
    /// A poll that breaks off after so many.
    BrokenPoll(usize),
    /// A poll during which a connection closes, its close being handled before its sample.
    RacingPoll(usize),
    Round,
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Open),
        6 => (any::<usize>(), 1u64..1000).prop_map(|(i, n)| Event::Deliver(i, n)),
        3 => (any::<usize>(), proptest::bool::weighted(0.8)).prop_map(|(i, reported)| Event::Close(i, reported)),
        3 => Just(Event::Drain),
        1 => Just(Event::RepeatClose),
        5 => vec(any::<usize>(), 0..2).prop_map(Event::Poll),
        1 => any::<usize>().prop_map(Event::BrokenPoll),
        1 => any::<usize>().prop_map(Event::RacingPoll),
        2 => Just(Event::Round),
    ]
}

/// A connection as the world knows it.
#[derive(Clone, Debug, Default)]
struct Truth {
    delivered: u64,
    /// Delivered when the ledger first heard of it, if that was before the first whole poll; else 0.
    base: u64,
    /// Delivered as the ledger was last told.
    told: u64,
    heard_of: bool,
    polled: bool,
    /// Whole polls since the last that showed it, while the ledger had not been told of its close.
    absent: u32,
    /// The ledger gave its account up before it heard of it again: progress may be short.
    given_up: bool,
    close_told: bool,
}

#[derive(Debug, Default)]
struct World {
    truths: BTreeMap<u64, Truth>,
    open: Vec<u64>,
    ring: Vec<u64>,
    last_closed: Option<u64>,
    whole_polls: u32,
    now: Instant,
    /// By connection: progress added up, sequences of its records.
    progress: BTreeMap<u64, u64>,
    records: BTreeMap<u64, Vec<u32>>,
}

impl World {
    /// The cookie is in the client's address, so that progress can be told apart.
    fn sample(&self, kind: Kind, cookie: u64) -> Sample {
        let mut s = sample(kind, cookie, self.truths[&cookie].delivered);
        s.remote = mapped(IpAddr::V4(Ipv4Addr::from_bits(cookie as u32)));
        s.time_ns = self.now.as_nanos();
        s
    }

    fn tell(&mut self, ledger: &mut Ledger, sample: &Sample) {
        let truth = self.truths.get_mut(&sample.cookie).unwrap();
        let seen = ledger.handle_sample(sample);
        if truth.close_told {
            assert_eq!(seen, None, "a closed connection makes no more records");
            return;
        }
        let seen = seen.expect("a record");
        if !truth.heard_of && self.whole_polls == 0 {
            truth.base = sample.bytes_acked;
        }
        // An account is dropped at the third poll that does not show it.
        truth.given_up |= truth.absent >= 3;
        truth.heard_of = true;
        truth.absent = 0;
        truth.told = sample.bytes_acked;
        match sample.kind() {
            Kind::Poll => truth.polled = true,
            Kind::Close => truth.close_told = true,
        }
        self.records.entry(sample.cookie).or_default().push(seen.sequence);
        if let Some(progress) = seen.last {
            assert!(progress.closed);
            add(&mut self.progress, &progress);
        }
    }

    fn poll(&mut self, ledger: &mut Ledger, left_out: &BTreeSet<u64>) {
        for cookie in self.open.clone() {
            if !left_out.contains(&cookie) {
                let sample = self.sample(Kind::Poll, cookie);
                self.tell(ledger, &sample);
            }
        }
        self.end_poll(ledger, left_out);
    }

    fn end_poll(&mut self, ledger: &mut Ledger, left_out: &BTreeSet<u64>) {
        for (cookie, truth) in &mut self.truths {
            let shown = self.open.contains(cookie) && !left_out.contains(cookie);
            if truth.polled && !truth.close_told && !shown {
                truth.absent += 1;
            }
        }
        self.now += INTERVAL;
        self.whole_polls += 1;
        let progress = &mut self.progress;
        ledger.handle_poll_end(NETNS, self.now, &mut |p| add(progress, p));
        // A close record waits for no longer than the ledger remembers.
        if self.ring.iter().any(|cookie| self.fades(*cookie)) {
            self.happen(&Event::Drain, ledger);
        }
    }

    /// Given up three polls ago or more, so that the next may be one too many: the memory lasts two intervals.
    fn fades(&self, cookie: u64) -> bool {
        self.truths[&cookie].absent >= 4
    }

    fn happen(&mut self, event: &Event, ledger: &mut Ledger) {
        let pick = |open: &[u64], i: usize| (!open.is_empty()).then(|| i % open.len());
        match event {
            Event::Open => {
                let cookie = self.truths.len() as u64 + 1;
                self.truths.insert(cookie, Truth::default());
                self.open.push(cookie);
            }
            Event::Deliver(i, n) => {
                if let Some(i) = pick(&self.open, *i) {
                    self.truths.get_mut(&self.open[i]).unwrap().delivered += n;
                }
            }
            Event::Close(i, reported) => {
                if let Some(i) = pick(&self.open, *i) {
                    let cookie = self.open.remove(i);
                    if *reported {
                        self.ring.push(cookie);
                    }
                }
            }
            Event::Drain => {
                for cookie in core::mem::take(&mut self.ring) {
                    let sample = self.sample(Kind::Close, cookie);
                    self.tell(ledger, &sample);
                    self.last_closed = Some(cookie);
                }
            }
            Event::RepeatClose => {
                // Straight after the first, well inside the memory of closes.
                self.happen(&Event::Drain, ledger);
                if let Some(cookie) = self.last_closed.take() {
                    let sample = self.sample(Kind::Close, cookie);
                    self.tell(ledger, &sample);
                }
            }
            Event::Poll(left_out) => {
                self.last_closed = None;
                let left_out = left_out.iter().filter_map(|i| pick(&self.open, *i).map(|i| self.open[i]));
                let left_out = left_out.filter(|cookie| !self.fades(*cookie)).collect();
                self.poll(ledger, &left_out);
            }
            Event::BrokenPoll(count) => {
                if let Some(count) = pick(&self.open, *count) {
                    for cookie in self.open.clone().into_iter().take(count) {
                        let sample = self.sample(Kind::Poll, cookie);
                        self.tell(ledger, &sample);
                    }
                }
                ledger.handle_poll_failed(NETNS);
            }
            Event::RacingPoll(i) => {
                if let Some(i) = pick(&self.open, *i) {
                    let read_early = self.sample(Kind::Poll, self.open[i]);
                    self.ring.push(self.open.remove(i));
                    self.happen(&Event::Drain, ledger);
                    self.tell(ledger, &read_early);
                    self.last_closed = None;
                    self.poll(ledger, &BTreeSet::new());
                }
            }
            Event::Round => {
                let progress = &mut self.progress;
                ledger.take_round(&mut |p| add(progress, p));
            }
        }
    }
}

fn add(progress: &mut BTreeMap<u64, u64>, p: &Progress) {
    let IpAddr::V4(client) = p.client else { panic!("the client's address was lost") };
    *progress.entry(client.to_bits().into()).or_default() += p.acked.as_u64();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_byte_is_counted_once_and_every_loss_is_known(events in vec(events(), 0..120)) {
        let mut ledger = Ledger::new(Options::default());
        let mut world = World { now: Instant::ZERO + INTERVAL, ..World::default() };
        for event in &events {
            world.happen(event, &mut ledger);
            prop_assert!(ledger.is_valid(), "after {event:?}");
        }
        // The ring is read, every open connection is seen, and who will not come back is given up.
        world.happen(&Event::Drain, &mut ledger);
        for _ in 0..3 {
            world.happen(&Event::Poll(Vec::new()), &mut ledger);
        }
        world.happen(&Event::Round, &mut ledger);

        let mut lost = 0;
        for (cookie, truth) in &world.truths {
            let progress = world.progress.get(cookie).copied().unwrap_or(0);
            let expected = truth.told - truth.base;
            if truth.given_up {
                prop_assert!(progress <= expected, "{cookie}: {progress} of {expected}");
            } else {
                prop_assert_eq!(progress, expected, "{}: {:?}", cookie, truth);
            }
            let records = world.records.get(cookie).cloned().unwrap_or_default();
            prop_assert_eq!(&records, &(0..records.len() as u32).collect::<Vec<_>>(), "{}", cookie);
            lost += u64::from(truth.polled && !truth.close_told && !world.open.contains(cookie));
        }
        let count = |f: &dyn Fn(&Truth) -> bool| world.truths.values().filter(|t| f(t)).count() as u64;
        let counts = ledger.counts();
        prop_assert_eq!(counts.lost(), lost);
        prop_assert_eq!(counts.closes, count(&|t| t.close_told));
        prop_assert_eq!(counts.closes_unpolled, count(&|t| t.close_told && !t.polled));
        prop_assert_eq!(counts.opened, count(&|t| t.polled));
        prop_assert_eq!(u64::from(ledger.connections()), world.open.len() as u64);
    }
}
