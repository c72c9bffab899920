//! What an uplink carries and how long its round trips take, from what passes.
//!
//! Ground rules:
//!
//! - Its capacity in a direction is the highest rate of a second that was seen there within the last ten minutes in which something passed:
//!   an idle night forgets nothing. It is no more than was asked of it, so an uplink that nobody filled may carry more; every uplink has a
//!   flow as soon as there are enough, and one that sends all it can fills it.
//! - While it is idle, a train of packets to a target and back says every ten minutes how fast the slower direction is, never on a metered
//!   uplink, and counts where no more than that has passed. It is short: a provider's token bucket of more than 19 kB lets it through
//!   at the line's own rate. So where something worth the name has passed it counts for four times that at most.
//! - Its weight is what was configured, or its capacity in the direction that the host's traffic has more of, at most its cap.
//! - Round-trip times are those of questions and of the host's own connections; the smallest is that of the last minute.

use std::collections::VecDeque;

use weirgate_units::{BitRate, Bytes, Duration, Instant};

/// Rates are of so long: less is a burst that a queue took, and more hides what is shorter.
const SLOT: Duration = Duration::from_secs(1);
/// The highest rate of each minute in which something passed is kept, for so many of them.
const MINUTES: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);
/// Seconds with less than this say nothing of what could pass.
const RATE_MIN: BitRate = BitRate::from_bits_per_sec(64_000);
/// The smallest round-trip time of each of these is kept, for a minute.
const RTT_SLOT: Duration = Duration::from_secs(10);
const RTT_SLOTS: u64 = 6;
/// Where seconds of this were seen, a train says no more than so many times the highest of them.
const TRAIN_BOUND_FROM: BitRate = BitRate::from_bits_per_sec(1_000_000);
const TRAIN_BOUND: u64 = 4;
/// Between two trains.
const TRAIN_EVERY: Duration = Duration::from_secs(600);

/// What the host's own TCP connections over an uplink say of it, those that are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sockets {
    /// How many.
    pub(crate) open: u64,
    /// The smallest round-trip time of any of them.
    pub(crate) min_rtt: Option<Duration>,
    /// The highest delivery rate of one that its application did not hold back.
    pub(crate) delivery: BitRate,
    /// Bytes that they sent since they began, and those that they sent again.
    pub(crate) sent: u64,
    /// Of these, again.
    pub(crate) resent: u64,
}

impl Sockets {
    /// Those of another one beside them.
    pub(crate) fn add(&mut self, other: Self) {
        self.open += other.open;
        self.min_rtt = self.min_rtt.into_iter().chain(other.min_rtt).min();
        self.delivery = self.delivery.max(other.delivery);
        self.sent += other.sent;
        self.resent += other.resent;
    }
}

/// An uplink's.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    settings: Settings,
    slot_since: Option<Instant>,
    slot: [u64; 2],
    /// Of the last second, up and down.
    rates: [BitRate; 2],
    /// By minutes in which something passed, the newest last.
    highest: VecDeque<(Instant, [BitRate; 2])>,
    train: Option<BitRate>,
    train_at: Option<Instant>,
    rtts: VecDeque<(u64, Duration)>,
    sockets: Sockets,
}

/// What the configuration says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Its weight; `None`: what is measured.
    pub(crate) weight: Option<u64>,
    /// It is given no more than this.
    pub(crate) cap: Option<BitRate>,
    /// What it carries costs money.
    pub(crate) is_metered: bool,
}

/// A direction, seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up = 0,
    Down = 1,
}

/// A weight, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    /// `None`: not known yet.
    pub(crate) value: Option<u64>,
    /// Why.
    pub(crate) why: &'static str,
}

impl Measured {
    pub(crate) const fn new(settings: Settings) -> Self {
        Self {
            settings,
            slot_since: None,
            slot: [0; 2],
            rates: [BitRate::ZERO; 2],
            highest: VecDeque::new(),
            train: None,
            train_at: None,
            rtts: VecDeque::new(),
            sockets: Sockets { open: 0, min_rtt: None, delivery: BitRate::ZERO, sent: 0, resent: 0 },
        }
    }

    /// So many bytes left and came since the last call.
    pub(crate) fn handle_bytes(&mut self, now: Instant, sent: u64, received: u64) {
        let since = *self.slot_since.get_or_insert(now);
        self.slot[0] += sent;
        self.slot[1] += received;
        let lasted = now.saturating_since(since);
        if lasted < SLOT {
            return;
        }
        self.rates = self.slot.map(|bytes| BitRate::of(Bytes::new(bytes), lasted).unwrap_or_default());
        (self.slot_since, self.slot) = (Some(now), [0; 2]);
        if self.rates.iter().all(|rate| *rate < RATE_MIN) {
            return;
        }
        match self.highest.back_mut() {
            Some((begun, highest)) if now.saturating_since(*begun) < MINUTE => {
                *highest = [highest[0].max(self.rates[0]), highest[1].max(self.rates[1])];
            }
            _ => {
                self.highest.push_back((now, self.rates));
                if self.highest.len() > MINUTES {
                    self.highest.pop_front();
                }
            }
        }
        debug_assert!(self.is_valid());
    }

    /// A round trip took so long.
    pub(crate) fn handle_rtt(&mut self, now: Instant, rtt: Duration) {
        let slot = now.as_nanos() / RTT_SLOT.as_nanos();
        match self.rtts.back_mut() {
            Some((known, least)) if *known == slot => *least = (*least).min(rtt),
            _ => self.rtts.push_back((slot, rtt)),
        }
        self.forget_rtts(now);
    }

    /// What its connections say; in place of what they said before.
    pub(crate) fn handle_sockets(&mut self, now: Instant, sockets: Sockets) {
        self.sockets = sockets;
        if let Some(rtt) = sockets.min_rtt {
            self.handle_rtt(now, rtt);
        }
    }

    /// A train of packets came back at this rate.
    pub(crate) const fn handle_train(&mut self, rate: BitRate) {
        self.train = Some(rate);
    }

    /// Whether a train is to be sent: hardly anything passes, none was sent for long, and it costs nothing. Then one is under way.
    pub(crate) fn poll_train(&mut self, now: Instant) -> bool {
        let is_due = self.train_at.is_none_or(|at| now.saturating_since(at) >= TRAIN_EVERY);
        let is_idle = self.rates.iter().all(|rate| *rate < RATE_MIN);
        let asks = is_due && is_idle && !self.settings.is_metered && self.settings.weight.is_none();
        if asks {
            // What the last one said is as old as that.
            (self.train_at, self.train) = (Some(now), None);
        }
        asks
    }

    /// What it carries in a direction, as far as was seen.
    pub(crate) fn capacity(&self, direction: Direction) -> Option<BitRate> {
        // A train is half of the answer where something has passed in the other direction only.
        self.seen(direction).into_iter().chain(self.train(direction)).max().filter(|rate| *rate >= RATE_MIN)
    }

    /// The most that passed in a second, or that one of its connections was delivered.
    fn seen(&self, direction: Direction) -> Option<BitRate> {
        let passed = self.highest.iter().map(|(_, highest)| highest[direction as usize]).max();
        let delivered = (direction == Direction::Up).then_some(self.sockets.delivery);
        passed.into_iter().chain(delivered).max()
    }

    /// What the last train says.
    fn train(&self, direction: Direction) -> Option<BitRate> {
        let bound = self
            .seen(direction)
            .filter(|seen| *seen >= TRAIN_BOUND_FROM)
            .map_or(u64::MAX, |seen| seen.as_bits_per_sec().saturating_mul(TRAIN_BOUND));
        self.train.map(|train| BitRate::from_bits_per_sec(train.as_bits_per_sec().min(bound)))
    }

    /// Bytes of the last second, up and down, as rates.
    pub(crate) const fn rates(&self) -> [BitRate; 2] {
        self.rates
    }

    /// Its share of the new flows, where the host's traffic goes mainly in this direction.
    pub(crate) fn weight(&self, direction: Direction) -> Weight {
        let Settings { weight, cap, .. } = self.settings;
        let train = self.train(direction).map(BitRate::as_bits_per_sec);
        let capacity = self.capacity(direction).map(BitRate::as_bits_per_sec);
        let cap = cap.map(BitRate::as_bits_per_sec);
        match (weight, capacity, cap) {
            (Some(weight), ..) => Weight { value: Some(weight), why: "as configured" },
            (None, Some(capacity), Some(cap)) if cap < capacity => Weight { value: Some(cap), why: "its cap" },
            (None, None, Some(cap)) => Weight { value: Some(cap), why: "its cap: nothing has passed yet" },
            (None, Some(rate), _) if train == Some(rate) => {
                Weight { value: Some(rate), why: "a train of packets came back at this rate" }
            }
            (None, Some(rate), _) => Weight { value: Some(rate), why: "the most that passed in a second lately" },
            (None, None, None) => Weight { value: None, why: "nothing has passed yet: the mean of the others" },
        }
    }

    /// The smallest round-trip time of the last minute.
    pub(crate) fn min_rtt(&self, now: Instant) -> Option<Duration> {
        let slot = now.as_nanos() / RTT_SLOT.as_nanos();
        self.rtts.iter().filter(|(known, _)| known + RTT_SLOTS > slot).map(|(_, least)| *least).min()
    }

    /// What its connections said last.
    pub(crate) const fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Whether what it remembers is bounded and in order.
    pub(crate) fn is_valid(&self) -> bool {
        let sorted = self.highest.iter().zip(self.highest.iter().skip(1)).all(|(one, next)| one.0 < next.0);
        sorted && self.highest.len() <= MINUTES && self.rtts.len() as u64 <= RTT_SLOTS + 1
    }

    fn forget_rtts(&mut self, now: Instant) {
        let slot = now.as_nanos() / RTT_SLOT.as_nanos();
        while self.rtts.front().is_some_and(|(known, _)| known + RTT_SLOTS <= slot) {
            self.rtts.pop_front();
        }
    }
}

/// The weights of all uplinks: who has none yet is given the mean of those that have, or all the same.
pub(crate) fn weights(of: &[Weight]) -> Vec<u64> {
    let known: Vec<u64> = of.iter().filter_map(|weight| weight.value).collect();
    let sum: u128 = known.iter().map(|weight| u128::from(*weight)).sum();
    let mean = sum.checked_div(known.len() as u128).map_or(1, |mean| mean as u64);
    of.iter().map(|weight| weight.value.unwrap_or(mean).max(1)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    const fn mbit(n: u64) -> BitRate {
        BitRate::from_bits_per_sec(n * 1_000_000)
    }

    /// So many Mbit/s up and down for so many seconds from `from` on, looked at every 100 ms.
    fn pass(measured: &mut Measured, from_s: u64, secs: u64, up: u64, down: u64) {
        for look in 0..=secs * 10 {
            let passed = |rate: u64| if look == 0 { 0 } else { rate * 1_000_000 / 80 };
            measured.handle_bytes(at(from_s * 1_000 + look * 100), passed(up), passed(down));
        }
    }

    #[test]
    fn the_most_that_passed_is_what_it_carries() {
        let mut measured = Measured::new(Settings::default());
        assert_eq!(measured.weight(Direction::Down).value, None);
        pass(&mut measured, 0, 5, 2, 20);
        pass(&mut measured, 10, 5, 1, 50);
        pass(&mut measured, 20, 5, 4, 10);
        assert_eq!(measured.capacity(Direction::Down), Some(mbit(50)));
        assert_eq!(measured.capacity(Direction::Up), Some(mbit(4)));
        assert_eq!(measured.rates(), [mbit(4), mbit(10)]);
        assert_eq!(measured.weight(Direction::Down).value, Some(50_000_000));
        // A night in which nothing passes, and ten minutes in which little does.
        pass(&mut measured, 40_000, 5, 1, 5);
        assert_eq!(measured.capacity(Direction::Down), Some(mbit(50)));
        for minute in 0..10 {
            pass(&mut measured, 50_000 + minute * 61, 5, 1, 5);
        }
        assert_eq!(measured.capacity(Direction::Down), Some(mbit(5)));
    }

    #[test]
    fn caps_and_configured_weights_come_first() {
        let cap = Settings { cap: Some(mbit(10)), ..Settings::default() };
        let mut measured = Measured::new(cap);
        assert_eq!(measured.weight(Direction::Down).value, Some(10_000_000));
        pass(&mut measured, 0, 5, 2, 20);
        assert_eq!(measured.weight(Direction::Down), Weight { value: Some(10_000_000), why: "its cap" });
        assert_eq!(measured.weight(Direction::Up).value, Some(2_000_000));
        let mut fixed = Measured::new(Settings { weight: Some(3), ..cap });
        pass(&mut fixed, 0, 5, 2, 20);
        assert_eq!(fixed.weight(Direction::Up), Weight { value: Some(3), why: "as configured" });
    }

    #[test]
    fn a_train_is_for_who_is_idle_and_is_forgotten() {
        let mut measured = Measured::new(Settings::default());
        assert!(measured.poll_train(at(0)) && !measured.poll_train(at(1_000)));
        measured.handle_train(mbit(30));
        assert_eq!(measured.weight(Direction::Up).value, Some(30_000_000));
        assert!(measured.poll_train(at(600_000)), "ten minutes later");
        pass(&mut measured, 700, 5, 40, 40);
        assert_eq!(measured.weight(Direction::Up).value, Some(40_000_000));
        assert!(!measured.poll_train(at(706_000)), "something passes");
        measured.handle_train(mbit(150));
        assert_eq!(measured.weight(Direction::Up).value, Some(150_000_000));
        measured.handle_train(mbit(1_000));
        assert_eq!(
            measured.weight(Direction::Up).value,
            Some(160_000_000),
            "a token bucket's burst at the line's rate"
        );
        measured.handle_bytes(at(2_000_000), 0, 0);
        assert!(measured.poll_train(at(2_000_000)), "what it said is old");
        assert_eq!(measured.weight(Direction::Up).value, Some(40_000_000));
        assert!(!Measured::new(Settings { is_metered: true, ..Settings::default() }).poll_train(at(0)));
        assert!(!Measured::new(Settings { weight: Some(1), ..Settings::default() }).poll_train(at(0)));
    }

    #[test]
    fn the_smallest_round_trip_of_a_minute() {
        let mut measured = Measured::new(Settings::default());
        for (secs, rtt) in [(0, 50), (5, 20), (30, 40), (59, 45)] {
            measured.handle_rtt(at(secs * 1_000), Duration::from_millis(rtt));
        }
        let min = |secs: u64| measured.min_rtt(at(secs * 1_000)).map(|rtt| rtt.as_millis());
        assert_eq!([59, 60, 89, 90, 109, 110].map(min), [Some(20), Some(40), Some(40), Some(45), Some(45), None]);
    }

    #[test]
    fn who_is_unknown_is_like_the_others() {
        let weight = |value| Weight { value, why: "" };
        assert_eq!(weights(&[weight(None), weight(Some(20)), weight(Some(50))]), [35, 20, 50]);
        assert_eq!(weights(&[weight(None), weight(None)]), [1, 1]);
        assert_eq!(weights(&[weight(Some(0))]), [1]);
        assert_eq!(weights(&[]), [0; 0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_passes_it_is_valid(
            looks in proptest::collection::vec((1_u64..100_000, 0_u64..1 << 40, 0_u64..1 << 40, 0_u64..1 << 40), 1..200)
        ) {
            let (mut measured, mut now) = (Measured::new(Settings::default()), 0);
            for (ms, sent, received, rtt) in looks {
                now += ms;
                measured.handle_bytes(at(now), sent, received);
                measured.handle_rtt(at(now), Duration::from_nanos(rtt));
                prop_assert!(measured.is_valid());
                prop_assert!(measured.min_rtt(at(now)).is_some());
            }
        }
    }
}
