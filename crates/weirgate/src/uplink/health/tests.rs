use proptest::prelude::*;

use super::*;

fn ms(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

/// An uplink behind which targets answer after `rtt_ms`, unless it is a black hole, and by which something passes or not.
struct World {
    health: Health,
    now_ms: u64,
    rtt_ms: u64,
    is_black_hole: bool,
    /// Packets in 10 ms.
    packets: u64,
    answers: Vec<(u64, u32)>,
    asked: Vec<u64>,
    states: Vec<(u64, State)>,
}

impl World {
    fn new(rtt_ms: u64, is_metered: bool) -> Self {
        let health = Health::new(ms(0), 3, is_metered, Ok(()));
        let (answers, asked, states) = (Vec::new(), Vec::new(), Vec::new());
        Self { health, now_ms: 0, rtt_ms, is_black_hole: false, packets: 0, answers, asked, states }
    }

    /// Time goes on, 10 ms at a time, as the daemon looks.
    fn run_until(&mut self, until_ms: u64) {
        while self.now_ms < until_ms {
            self.now_ms += 10;
            let now = ms(self.now_ms);
            let (due, later) = self.answers.iter().partition(|(at, _)| *at <= self.now_ms);
            self.answers = later;
            let due: Vec<(u64, u32)> = due;
            for (_, serial) in due.into_iter().filter(|_| !self.is_black_hole) {
                self.health.handle_answer(now, serial);
            }
            let received = if self.is_black_hole { 0 } else { self.packets };
            self.health.handle_traffic(now, self.packets, received);
            while let Some(ask) = self.health.poll_ask(now) {
                assert!(ask.target < 3);
                self.asked.push(self.now_ms);
                self.answers.push((self.now_ms + self.rtt_ms, ask.serial));
            }
            while let Some(change) = self.health.poll_change() {
                assert_ne!(change.from, change.to);
                self.states.push((self.now_ms, change.to));
            }
        }
    }

    fn state(&self) -> State {
        self.health.state().0
    }
}

#[test]
fn an_idle_uplink_is_asked_and_a_busy_one_hardly() {
    let mut idle = World::new(30, false);
    idle.run_until(10_000);
    assert_eq!((idle.state(), idle.states.len()), (State::Up, 0));
    assert!((20..=30).contains(&idle.asked.len()), "{}", idle.asked.len());
    let mut busy = World::new(30, false);
    busy.packets = 5;
    busy.run_until(60_000);
    assert!((3..=6).contains(&busy.asked.len()), "{:?}", busy.asked);
    let mut metered = World::new(30, true);
    metered.run_until(60_000);
    assert!((6..=8).contains(&metered.asked.len()), "{:?}", metered.asked);
    let rtt = idle.health.srtt().unwrap();
    assert_eq!(rtt, Duration::from_millis(30));
}

/// Whenever it becomes a black hole, idle or not: suspect, so that no new flow goes there, and silent, within a second.
#[test]
fn a_black_hole_is_found_within_a_second() {
    for rtt_ms in [10, 30, 80, 100] {
        for packets in [0, 1, 50] {
            for begin_ms in (20_000..20_500).step_by(50) {
                let mut world = World::new(rtt_ms, false);
                world.packets = packets;
                world.run_until(begin_ms);
                world.is_black_hole = true;
                world.run_until(begin_ms + 1_000);
                let [(suspect, State::Suspect), (silent, State::Silent)] = world.states[..] else {
                    panic!("{rtt_ms} ms, {packets} packets, at {begin_ms}: {:?}", world.states)
                };
                assert!(suspect - begin_ms <= 720 && silent - begin_ms <= 1_000, "{:?}", world.states);
            }
        }
    }
}

#[test]
fn one_target_that_does_not_answer_is_no_silence() {
    let mut world = World::new(30, false);
    for step in 1..2_000 {
        world.run_until(step * 10);
        // Every second question is lost.
        world.answers.retain(|(_, serial)| serial % 2 == 0);
    }
    assert!(world.states.iter().all(|(_, state)| matches!(state, State::Suspect | State::Up)), "{:?}", world.states);
    assert!(world.health.counts()[1] > 0);
}

#[test]
fn what_comes_is_no_proof_that_what_leaves_arrives() {
    let mut world = World::new(30, false);
    world.packets = 5;
    world.run_until(60_000);
    let begun = world.now_ms;
    // What others send again comes, and nothing that is sent arrives.
    while world.state() != State::Silent && world.now_ms < begun + 60_000 {
        world.run_until(world.now_ms + 10);
        world.answers.clear();
    }
    let took = world.now_ms - begun;
    assert!((2_000..20_000).contains(&took), "{took} ms: a question every 15 s, then six");
    assert!(world.health.state().1.to_string().starts_with("packets come, but 6 questions"));
    let back = world.now_ms;
    while world.state() != State::Up && world.now_ms < back + 60_000 {
        world.run_until(world.now_ms + 10);
    }
    assert!(world.now_ms - back < 10_000, "{} ms", world.now_ms - back);
}

#[test]
fn packets_that_need_no_answer_make_nobody_silent() {
    let mut world = World::new(30, false);
    // What leaves is one-way: only questions are answered.
    for step in 1..3_000 {
        world.run_until(step * 10);
        world.health.handle_traffic(ms(world.now_ms), 10, 0);
    }
    assert!(world.states.iter().all(|(_, state)| *state != State::Silent), "{:?}", world.states);
}

#[test]
fn it_comes_back_after_a_while_and_later_each_time() {
    let mut world = World::new(30, false);
    world.run_until(5_000);
    let mut waits = Vec::new();
    for round in 0..4 {
        world.is_black_hole = true;
        let begin = world.now_ms;
        world.run_until(begin + 3_000);
        assert_eq!(world.state(), State::Silent, "round {round}");
        world.is_black_hole = false;
        let back = world.now_ms;
        while world.state() != State::Up {
            world.run_until(world.now_ms + 10);
        }
        waits.push((world.now_ms - back) / 1_000);
    }
    assert_eq!(waits, [3, 6, 12, 24]);
    // Ten good minutes are forgiven.
    world.run_until(world.now_ms + 601_000);
    world.is_black_hole = true;
    world.run_until(world.now_ms + 2_000);
    world.is_black_hole = false;
    let back = world.now_ms;
    while world.state() != State::Up {
        world.run_until(world.now_ms + 10);
    }
    assert!(world.now_ms - back < 4_500, "{}", world.now_ms - back);
}

#[test]
fn a_link_that_goes_is_down_at_once_and_has_to_prove_itself() {
    let mut world = World::new(30, false);
    world.run_until(5_000);
    world.health.handle_link(ms(5_000), Err("no carrier"));
    assert_eq!(world.state(), State::Down);
    assert_eq!(world.health.state().1.to_string(), "no carrier");
    assert_eq!((world.health.poll_at(), world.health.poll_ask(ms(5_000))), (None, None));
    world.run_until(20_000);
    world.health.handle_link(ms(20_000), Ok(()));
    world.run_until(20_200);
    assert_eq!(world.state(), State::Returning);
    world.run_until(24_000);
    assert_eq!(world.state(), State::Up);
}

#[test]
fn a_satellite_is_slow_and_not_silent() {
    let mut world = World::new(600, false);
    world.run_until(60_000);
    assert_eq!(world.state(), State::Up, "{:?}", world.states);
    let states: Vec<State> = world.states.iter().filter(|(at, _)| *at > 10_000).map(|(_, state)| *state).collect();
    assert_eq!(states, [], "once its round trip is known");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// Whatever happens, it is asked at a bounded rate, knows when it has something to do, and ends up as the uplink is.
    #[test]
    fn it_follows_the_uplink(
        phases in proptest::collection::vec((any::<bool>(), 0_u64..20, 10_u64..8_000), 1..12), rtt_ms in 1_u64..150
    ) {
        let mut world = World::new(rtt_ms, false);
        for (is_black_hole, packets, last_ms) in phases {
            (world.is_black_hole, world.packets) = (is_black_hole, packets);
            world.run_until(world.now_ms + last_ms);
            prop_assert!(world.health.is_valid());
            prop_assert!(world.health.poll_at().is_some_and(|due| due <= ms(world.now_ms) + ASK_BUSY));
        }
        let questions = world.asked.len() as u64;
        prop_assert!(questions <= 10 + world.now_ms / 20, "{questions} in {} ms", world.now_ms);
        world.is_black_hole = true;
        world.run_until(world.now_ms + 6_000);
        prop_assert_eq!(world.state(), State::Silent);
        world.is_black_hole = false;
        world.run_until(world.now_ms + 310_000);
        prop_assert_eq!(world.state(), State::Up);
    }
}
