use super::*;
use crate::uplink::Family;

fn ms(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

const TCP: Kind = Kind::ALL[0];

fn uplink(name: &str) -> UplinkSettings {
    UplinkSettings { name: name.into(), device: format!("{name}0"), masquerade: true, ..UplinkSettings::default() }
}

fn site() -> Site {
    Site { trouble: None, families: [true, false], addresses: Vec::new(), near: Vec::new(), targets: [3, 0] }
}

/// A host whose daemon looks every 50 ms, and a make-believe kernel that does what it is told.
struct World {
    fleet: Fleet,
    now_ms: u64,
    /// By uplink: whether nothing comes back, and packets in 50 ms.
    is_black_hole: Vec<bool>,
    packets: Vec<u64>,
    counters: Vec<[[Counted; 2]; 2]>,
    flows: Vec<u32>,
    turn: usize,
    answers: Vec<(u64, Place, u32)>,
    order: Vec<Place>,
    said: Vec<String>,
    /// By family: only its answers are missing.
    is_deaf: Vec<[bool; 2]>,
    given_up: Vec<(u64, Place)>,
    rules: u32,
}

impl World {
    fn new(settings: Settings) -> Self {
        let len = settings.uplinks.len();
        let mut world = Self {
            fleet: Fleet::new(ms(0), settings),
            now_ms: 0,
            is_black_hole: vec![false; len],
            packets: vec![0; len],
            counters: vec![[[Counted::default(); 2]; 2]; len],
            flows: vec![0; len],
            turn: 0,
            answers: Vec::new(),
            order: Vec::new(),
            said: Vec::new(),
            is_deaf: vec![[false; 2]; len],
            given_up: Vec::new(),
            rules: 0,
        };
        (0..len).for_each(|place| world.fleet.handle_site(ms(0), place, site()));
        world.act();
        world
    }

    fn of(names: &[&str]) -> Self {
        Self::new(Settings { uplinks: names.iter().map(|name| uplink(name)).collect(), ..Settings::default() })
    }

    fn run_until(&mut self, until_ms: u64) {
        while self.now_ms < until_ms {
            self.now_ms += 50;
            let now = ms(self.now_ms);
            let (due, later): (Vec<_>, Vec<_>) = self.answers.iter().partition(|(at, ..)| *at <= self.now_ms);
            self.answers = later;
            for (_, place, serial) in due {
                if !self.is_black_hole[place] {
                    self.fleet.handle_answer(now, place, serial);
                }
            }
            for place in 0..self.packets.len() {
                let packets = self.packets[place];
                let passed = [packets, if self.is_black_hole[place] { 0 } else { packets }];
                for (counter, packets) in self.counters[place][0].iter_mut().zip(passed) {
                    counter.add(Counted { packets, bytes: packets * 1_000 });
                }
                self.fleet.handle_counters(now, place, self.counters[place]);
            }
            if self.now_ms.is_multiple_of(250) {
                let flows: Vec<[u32; 4]> = self.flows.iter().map(|flows| [*flows, 0, 0, 0]).collect();
                self.fleet.handle_flows(now, &flows);
            }
            self.fleet.handle_time(now);
            while let Some((place, family, ask)) = self.fleet.poll_ask(now) {
                if !self.is_deaf[place][family as usize] {
                    self.answers.push((self.now_ms + 20, place, ask.serial));
                }
            }
            self.act();
        }
    }

    fn act(&mut self) {
        while let Some(act) = self.fleet.poll_act() {
            match act {
                Act::Rules => {
                    self.rules += 1;
                    self.take_order();
                }
                Act::Orders(changed) if changed.contains(&(0, TCP)) => self.take_order(),
                Act::Orders(_) => {}
                Act::GiveUp(place, _) => {
                    self.given_up.push((self.now_ms, place));
                    self.flows[place] = 0;
                }
                Act::Leave(place, _) => self.given_up.push((self.now_ms, place)),
                Act::Say(said, true) => self.said.push(said),
                Act::Say(..) => {}
            }
        }
    }

    fn take_order(&mut self) {
        (self.order, self.turn) = (self.fleet.ruleset().orders[0][TCP.index()].clone(), 0);
    }

    /// A flow begins; where it goes.
    fn begin(&mut self) -> Place {
        let place = self.order[self.turn % self.order.len()];
        self.turn += 1;
        self.flows[place] += 1;
        place
    }
}

#[test]
fn flows_that_begin_at_once_are_spread_and_later_ones_make_up_for_what_ended() {
    let mut settings = Settings { uplinks: ["a", "b", "c"].map(uplink).to_vec(), ..Settings::default() };
    for (uplink, weight) in settings.uplinks.iter_mut().zip([20, 50, 5]) {
        uplink.measure.weight = Some(weight);
    }
    let mut world = World::new(settings);
    for _ in 0..20 {
        world.begin();
    }
    assert_eq!(world.flows, [5, 14, 1]);
    world.run_until(1_000);
    world.flows = vec![1, 14, 0];
    world.run_until(2_000);
    let next: Vec<Place> = (0..6).map(|_| world.begin()).collect();
    assert_eq!(next, [2, 0, 0, 0, 0, 0], "who has none, who has too few");
}

#[test]
fn a_black_hole_takes_no_new_flow_within_a_second_and_gives_up_its_own() {
    let mut world = World::of(&["a", "b"]);
    world.packets = vec![20, 20];
    for _ in 0..6 {
        world.begin();
    }
    world.run_until(10_000);
    world.is_black_hole[0] = true;
    let mut last = 0;
    while world.now_ms < 13_000 {
        world.run_until(world.now_ms + 50);
        if world.begin() == 0 {
            last = world.now_ms - 10_000;
        }
    }
    assert!(last <= 700, "{last} ms");
    let times: Vec<u64> = world.given_up.iter().map(|(at, place)| at - 10_000 - 100_000 * *place as u64).collect();
    assert!(times.len() == 3 && times[0] <= 1_000 && times[1] == times[0] + 1_000, "{times:?}");
    assert_eq!(world.fleet.ruleset().uplinks[0].is_given_up, [true, false]);
    let silent = world.said.iter().find(|said| said.contains("-> silent")).unwrap();
    assert!(silent.starts_with("uplink `a`: suspect -> silent: none of 3 targets answered within "), "{silent}");
    world.is_black_hole[0] = false;
    world.run_until(20_000);
    assert_eq!(world.fleet.ruleset().uplinks[0].is_given_up, [false; 2]);
    assert!(world.order[..2].contains(&0), "it has none");
}

#[test]
fn where_nothing_works_nothing_is_given_up() {
    let mut world = World::of(&["a", "b"]);
    world.packets = vec![20, 20];
    world.run_until(5_000);
    world.is_black_hole = vec![true, true];
    world.run_until(15_000);
    assert!(world.order.is_empty(), "the main routing table has them");
    // Suspicion of the second came a moment after that of the first, which was still taken for working.
    assert!(world.given_up.is_empty(), "{:?}", world.given_up);
    world.is_black_hole[1] = false;
    world.run_until(25_000);
    assert!(world.order.iter().all(|place| *place == 1) && !world.order.is_empty());
    assert_eq!(world.given_up.iter().map(|(_, place)| *place).collect::<Vec<_>>(), [0, 0, 0]);
}

#[test]
fn drained_ones_and_backups_wait() {
    let mut settings = Settings { uplinks: ["a", "b", "c"].map(uplink).to_vec(), ..Settings::default() };
    settings.uplinks[2].is_backup = true;
    settings.rules = vec![(FlowRule { is_strict: true, ..FlowRule::default() }, vec![1])];
    let mut world = World::new(settings);
    world.run_until(1_000);
    assert!(!world.order.contains(&2));
    world.fleet.handle_drain(1, true);
    world.act();
    assert!(world.order.iter().all(|place| *place == 0));
    assert!(world.fleet.ruleset().orders[1][TCP.index()].is_empty());
    world.fleet.handle_drain(0, true);
    world.act();
    assert!(world.order.iter().all(|place| *place == 2) && !world.order.is_empty());
    world.fleet.handle_drain(1, false);
    world.act();
    assert!(world.order.iter().all(|place| *place == 1));
    assert!(!world.fleet.ruleset().orders[1][TCP.index()].is_empty());
    let drained = "uplink `b` takes no new flow: drained";
    assert_eq!((world.said[0].as_str(), world.said.len()), (drained, 3));
}

#[test]
fn an_uplink_without_a_way_for_a_family_gets_none_of_its_flows() {
    let mut world = World::of(&["a", "b"]);
    let both = Site { families: [true, true], targets: [3, 2], ..site() };
    world.fleet.handle_site(ms(0), 1, both);
    world.run_until(5_000);
    let order = |kind: Kind| world.fleet.ruleset().orders[0][kind.index()].clone();
    let tcp6 = Kind { family: Family::V6, ..TCP };
    assert!(!order(tcp6).is_empty() && order(tcp6).iter().all(|place| *place == 1) && order(TCP).contains(&0));
    let gone =
        Site { trouble: Some("there is no device `b0`".into()), families: [false; 2], targets: [0; 2], ..site() };
    world.fleet.handle_site(ms(5_050), 1, gone);
    world.act();
    assert!(world.fleet.ruleset().orders[0][tcp6.index()].is_empty());
    assert!(world.said.iter().any(|said| said == "uplink `b`: up -> down: there is no device `b0`"));
}

#[test]
fn a_family_that_is_dead_by_an_uplink_goes_by_another_one_and_the_other_family_stays() {
    let mut world = World::of(&["a", "b"]);
    for place in 0..2 {
        world.fleet.handle_site(ms(0), place, Site { families: [true, true], targets: [3, 2], ..site() });
    }
    world.run_until(10_000);
    let order = |world: &World, family: Family| {
        world.fleet.ruleset().orders[0][Kind { family, ..TCP }.index()]
            .iter()
            .copied()
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(Family::ALL.map(|family| order(&world, family).len()), [2, 2]);
    world.is_deaf[0][1] = true;
    world.run_until(11_000);
    assert_eq!(order(&world, Family::V4).len(), 2);
    assert_eq!(order(&world, Family::V6).into_iter().collect::<Vec<_>>(), [1]);
    world.run_until(12_000);
    assert_eq!(world.fleet.ruleset().uplinks[0].is_given_up, [false, true]);
    let said = "uplink `a`, IPv6: suspect -> silent: none of 2 targets answered within ";
    assert!(world.said.iter().any(|line| line.starts_with(said)), "{:?}", world.said);
    assert_eq!(world.fleet.uplinks()[0].state(), State::Up);
    world.is_deaf[0][1] = false;
    world.run_until(20_000);
    assert_eq!(order(&world, Family::V6).len(), 2);
}

#[test]
fn a_family_without_targets_stands_as_the_other_does() {
    let mut world = World::of(&["a", "b"]);
    world.fleet.handle_site(ms(0), 0, Site { families: [true, true], ..site() });
    world.run_until(5_000);
    let is_by = |world: &World| !world.fleet.ruleset().orders[0][Kind { family: Family::V6, ..TCP }.index()].is_empty();
    assert!(is_by(&world));
    world.is_black_hole[0] = true;
    world.run_until(7_000);
    assert!(!is_by(&world));
    assert_eq!(world.fleet.uplinks()[0].state_of(Family::V6), State::Silent);
}

#[test]
fn weights_follow_what_passes_in_steps() {
    let mut world = World::of(&["a", "b"]);
    world.packets = vec![250, 50];
    world.run_until(5_000);
    let weights: Vec<u64> = world.fleet.uplinks().iter().map(|uplink| uplink.weight / 1_000_000).collect();
    assert_eq!(weights, [40, 8]);
    // A little more is no reason to change anything.
    world.packets = vec![260, 50];
    world.run_until(10_000);
    assert_eq!(world.fleet.uplinks()[0].weight / 1_000_000, 40);
    world.packets = vec![300, 50];
    world.run_until(15_000);
    assert_eq!(world.fleet.uplinks()[0].weight / 1_000_000, 48);
    assert_eq!(world.rules, 1, "orders are all that changed since the devices were seen");
}

#[test]
fn uplinks_that_carry_the_same_are_alike_after_a_minute() {
    let mut world = World::of(&["a", "b"]);
    world.packets = vec![250, 240];
    world.run_until(58_000);
    assert_eq!(world.fleet.classes(), [0, 1]);
    world.run_until(70_000);
    assert_eq!(world.fleet.classes(), [0, 0]);
    let said = world.said.last().unwrap();
    assert!(
        said.starts_with("uplinks `a` and `b` are alike (classes 0 and 0): for a minute their rates were"),
        "{said}"
    );
}

#[test]
fn counters_that_begin_anew_are_no_flood() {
    let counted = |packets| Counted { packets, bytes: packets * 100 };
    let mut world = World::of(&["a"]);
    for (packets, passed) in [(1_000, 0), (1_500, 500), (10, 510)] {
        world.fleet.handle_counters(ms(0), 0, [[counted(packets); 2], [Counted::default(); 2]]);
        assert_eq!(world.fleet.uplinks()[0].passed[0].packets, passed);
    }
}
