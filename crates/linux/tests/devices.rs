//! The switch's turns with devices that are the test's own.
#![allow(clippy::disallowed_methods, reason = "the switch reads a real clock")]

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weirgate_linux::clock;
use weirgate_linux::dataplane::{Dataplane, Device, Impaired, Received, Sent};
use weirgate_port::{Chance, Impair, Packet, Settings, Wire};
use weirgate_switch::bridge::{Bridge, BridgeClass};
use weirgate_switch::class::Rule;
use weirgate_switch::frame::{Accounting, Mac};
use weirgate_switch::limits::{ClassSettings, LimitSettings, Mode};
use weirgate_units::{BitRate, Bytes, Duration};

/// What a test waits for at most, where it should not wait at all.
const PATIENCE: Duration = Duration::from_secs(20);

/// A port with queues of broadcasts, which never signal. It takes whatever is sent.
struct Queue {
    /// How many are to be read.
    left: Arc<AtomicU64>,
    address: u8,
    gone: bool,
    queues: usize,
    lost: u64,
}

impl Queue {
    fn new(address: u8, frames: u64) -> (Box<Self>, Arc<AtomicU64>) {
        let left = Arc::new(AtomicU64::new(frames));
        (Box::new(Self { left: Arc::clone(&left), address, gone: false, queues: 1, lost: 0 }), left)
    }
}

impl Device for Queue {
    fn queues(&self) -> usize {
        self.queues
    }

    fn queue_fd(&self, _: usize) -> Option<BorrowedFd<'_>> {
        None
    }

    fn receive(&mut self, queue: usize, packet: &mut Packet) -> io::Result<Received> {
        assert!(queue < self.queues, "queue {queue} of {}", self.queues);
        let Some(left) = self.left.load(Ordering::Relaxed).checked_sub(1) else { return Ok(Received::Empty) };
        self.left.store(left, Ordering::Relaxed);
        packet.buffer_mut()[..1_000].fill(0);
        packet.buffer_mut()[..6].fill(0xff);
        packet.buffer_mut()[6..14].copy_from_slice(&[2, 0, 0, 0, 0, self.address, 0x88, 0xb5]);
        packet.set_len(1_000);
        Ok(Received::Frame)
    }

    fn send(&mut self, _: &mut Packet) -> io::Result<Sent> {
        if self.gone { Err(io::ErrorKind::NotFound.into()) } else { Ok(Sent::Yes) }
    }

    fn lost(&mut self) -> u64 {
        self.lost
    }

    fn pushes_back(&self) -> bool {
        true
    }
}

/// For limits of up to `mbit`.
fn bridge(mbit: u64) -> Bridge {
    let rate = |n: u64| BitRate::from_bits_per_sec(n * 1_000_000);
    Bridge::new(clock::boottime(), rate(1), rate(mbit), Bytes::new(64 << 20), 1)
}

/// Paces all that comes by the first port.
fn pace(bridge: &mut Bridge, mbit: u64, burst: u64) {
    let rate = BitRate::from_bits_per_sec(mbit * 1_000_000);
    let settings = LimitSettings { rate, burst: Bytes::new(burst), mode: Mode::Pace };
    let limits = vec![bridge.add_limit(clock::boottime(), settings)];
    let queue = ClassSettings { codel: None, ..ClassSettings::default() };
    let class = bridge.add_class(&BridgeClass { limits, accounting: Accounting::default(), queue });
    bridge.set_rules(vec![Rule { port: Some(0), ..Rule::any(0, class) }], vec![]).expect("sound rules");
}

#[test]
fn a_queue_is_read_again_as_soon_as_its_backlog_is_gone() {
    let mut bridge = bridge(10_000);
    // A turn reads 64 frames: half of them wait for the burst to be there again, in 2.6 ms.
    pace(&mut bridge, 100, 32_000);
    let mut dataplane = Dataplane::new(bridge).expect("a switch");
    let (queue, left) = Queue::new(1, 1_000);
    let near = dataplane.add_port(queue, None, Bytes::new(10_000)).expect("nothing to wait for");
    let far = dataplane.add_port(Queue::new(2, 0).0, None, Bytes::new(10_000)).expect("nothing to wait for");
    dataplane.bridge_mut().join(near, far);

    let began = clock::boottime();
    while left.load(Ordering::Relaxed) > 0 {
        dataplane.turn(PATIENCE).expect("turns");
        // The next turn comes late and sends all that waits.
        std::thread::sleep(Duration::from_millis(5).to_std());
        let took = clock::boottime().saturating_since(began);
        assert!(took < PATIENCE, "it slept with frames to be read: {took}");
    }
}

#[test]
fn however_many_ports_flood_all_is_handed_out_before_more_is_read() {
    let mut dataplane = Dataplane::new(bridge(10_000)).expect("a switch");
    for address in 0..8 {
        let (queue, _) = Queue::new(address, 1_000);
        dataplane.add_port(queue, None, Bytes::new(1 << 20)).expect("nothing to wait for");
    }
    for turn in 1..=3 {
        dataplane.turn(Duration::ZERO).expect("turns");
        let counters = dataplane.bridge().counters();
        assert!(counters.received >= turn * 8, "{counters:?}");
        assert_eq!(counters.sent, 7 * counters.received, "{counters:?}");
    }
}

#[test]
fn what_comes_to_an_idle_switch_leaves_at_its_instant_and_the_switch_rests_then() {
    // Two of four frames may leave at the next tick, within 100 us, the others 800 us later each.
    let mut bridge = bridge(10);
    pace(&mut bridge, 10, 2_000);
    let coalesce = Duration::from_secs(2);
    let mut dataplane = Dataplane::new(bridge).expect("a switch").coalescing(coalesce);
    let near = dataplane.add_port(Queue::new(1, 4).0, None, Bytes::new(10_000)).expect("nothing to wait for");
    let far = dataplane.add_port(Queue::new(2, 0).0, None, Bytes::new(10_000)).expect("nothing to wait for");
    dataplane.bridge_mut().join(near, far);

    let began = clock::boottime();
    let (mut first, mut at_once) = (None, 0);
    while dataplane.port(far).0.sent < 4 {
        let turn = clock::boottime().saturating_since(began);
        at_once += u32::from(turn < coalesce);
        dataplane.turn(Duration::from_millis(10)).expect("turns");
        if dataplane.port(far).0.sent > 0 {
            first.get_or_insert(turn);
        }
    }
    assert!(first.is_some_and(|turn| turn < coalesce), "it waited for the switch to have rested");
    assert!(at_once <= 2, "{at_once} turns without a rest");
}

#[test]
fn a_switch_that_polls_neither_sleeps_nor_rests_and_sends_what_waits_at_its_instant() {
    // Two of four frames may leave at once, the others 800 us later each.
    let mut bridge = bridge(10);
    pace(&mut bridge, 10, 2_000);
    let mut dataplane = Dataplane::new(bridge).expect("a switch").polling();
    let near = dataplane.add_port(Queue::new(1, 4).0, None, Bytes::new(10_000)).expect("nothing to wait for");
    let far = dataplane.add_port(Queue::new(2, 0).0, None, Bytes::new(10_000)).expect("nothing to wait for");
    dataplane.bridge_mut().join(near, far);
    let began = clock::boottime();
    while dataplane.port(far).0.sent < 4 {
        dataplane.turn(PATIENCE).expect("turns");
    }
    let took = clock::boottime().saturating_since(began);
    assert!(took >= Duration::from_micros(1_500) && took < PATIENCE, "{took}");
    // Nor with nothing to do at all.
    let began = clock::boottime();
    for _ in 0..100 {
        dataplane.turn(PATIENCE).expect("turns");
    }
    assert!(clock::boottime().saturating_since(began) < PATIENCE);
}

#[test]
fn a_device_that_is_gone_with_frames_to_be_read_keeps_nobody_awake() {
    let mut dataplane = Dataplane::new(bridge(10)).expect("a switch");
    let (mut queue, _) = Queue::new(1, u64::MAX);
    queue.gone = true;
    dataplane.add_port(queue, None, Bytes::new(10_000)).expect("nothing to wait for");
    dataplane.add_port(Queue::new(2, 1).0, None, Bytes::new(10_000)).expect("nothing to wait for");
    // One to be sent it, one to see that it is gone.
    for _ in 0..2 {
        dataplane.turn(Duration::ZERO).expect("turns");
    }
    let (began, patience) = (clock::boottime(), Duration::from_millis(100));
    dataplane.turn(patience).expect("turns");
    assert!(clock::boottime().saturating_since(began) >= patience, "it has nothing to do");
}

#[test]
fn a_port_goes_on_with_another_device_of_more_queues_or_fewer() {
    let mut dataplane = Dataplane::new(bridge(10_000)).expect("a switch");
    let (mut first, _) = Queue::new(1, 10);
    (first.queues, first.lost) = (3, 5);
    let port = dataplane.add_port(first, None, Bytes::new(10_000)).expect("nothing to wait for");
    let other = dataplane.add_port(Queue::new(2, 0).0, None, Bytes::new(10_000)).expect("nothing to wait for");
    dataplane.turn(Duration::ZERO).expect("turns");
    assert_eq!((dataplane.port(port).0.received, dataplane.port(port).0.lost), (10, 5));

    dataplane.let_go(port, io::ErrorKind::NotFound.into());
    assert_eq!(dataplane.failed(port).map(io::Error::kind), Some(io::ErrorKind::NotFound));
    // What is sent to it meanwhile is counted.
    let (sender, _) = Queue::new(2, 4);
    dataplane.attach(other, sender).expect("nothing to wait for");
    dataplane.turn(Duration::ZERO).expect("turns");
    assert_eq!(dataplane.port(port).0.refused, 4);

    for (queues, received) in [(1, 17), (4, 24)] {
        let (mut next, left) = Queue::new(1, 7);
        (next.queues, next.lost) = (queues, 1);
        dataplane.attach(port, next).expect("nothing to wait for");
        assert!(dataplane.failed(port).is_none());
        dataplane.turn(Duration::ZERO).expect("turns");
        assert_eq!((left.load(Ordering::Relaxed), dataplane.port(port).0.received), (0, received));
        assert_eq!(dataplane.port(other).0.sent, received, "broadcasts");
    }
    let counters = dataplane.port(port).0;
    assert_eq!((counters.lost, counters.refused), (5 + 1 + 1, 4));
}

#[test]
fn what_the_switch_will_not_forward_is_counted_by_the_port_that_it_came_from() {
    let mut dataplane = Dataplane::new(bridge(10_000)).expect("a switch");
    let near = dataplane.add_port(Queue::new(1, 3).0, None, Bytes::new(10_000)).expect("nothing to wait for");
    let far = dataplane.add_port(Queue::new(2, 5).0, None, Bytes::new(10_000)).expect("nothing to wait for");
    // So the first one's frames cannot be.
    dataplane.bridge_mut().set_address(Mac([2, 0, 0, 0, 0, 1]), far).expect("there is room");
    dataplane.turn(Duration::ZERO).expect("turns");
    let mut counted = |port| {
        let counters = dataplane.port(port).0;
        (counters.received, counters.filtered, counters.sent)
    };
    assert_eq!((counted(near), counted(far)), ((3, 3, 5), (5, 0, 0)));
}

#[test]
fn what_a_fault_drops_is_counted_and_so_is_what_its_device_will_not_have() {
    const FRAMES: u64 = 100;
    let through = |settings: Settings, gone: bool| {
        let mut dataplane = Dataplane::new(bridge(10_000)).expect("a switch");
        let (queue, left) = Queue::new(1, FRAMES);
        let near = dataplane.add_port(queue, None, Bytes::new(10_000)).expect("nothing to wait for");
        let mut far = Queue::new(2, 0).0;
        far.gone = gone;
        let far = Impaired::new(*far, Impair::new(clock::boottime(), settings, 1, Wire::new()));
        let far = dataplane.add_port(Box::new(far), None, Bytes::new(10_000)).expect("nothing to wait for");
        dataplane.bridge_mut().join(near, far);
        let until = clock::boottime() + PATIENCE;
        while left.load(Ordering::Relaxed) > 0 || dataplane.port(far).0.sent + dataplane.port(far).0.refused < FRAMES {
            dataplane.turn(Duration::from_millis(1)).expect("turns");
            assert!(clock::boottime() < until, "{:?}", dataplane.port(far));
        }
        let (counters, failed) = dataplane.port(far);
        (counters.sent, counters.lost, failed.is_some())
    };
    let perfect = Settings::default();
    assert_eq!(through(perfect, false), (FRAMES, 0, false));
    assert_eq!(through(Settings { loss: Chance::from_ppm(1_000_000), ..perfect }, false), (FRAMES, FRAMES, false));
    assert_eq!(through(Settings { outage: true, ..perfect }, false), (FRAMES, FRAMES, false));
    // It is let go with the first frame; what comes after that is refused.
    let (sent, lost, failed) = through(perfect, true);
    assert!(failed && lost > 0 && lost <= sent && sent < FRAMES, "{sent} {lost}");
}
