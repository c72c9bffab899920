//! A model of the path: the rate at which it delivers, and its least round-trip time. Read first: draft-ietf-ccwg-bbr (BBR version 3);
//! Cardwell et al., BBR: Congestion-Based Congestion Control, ACM Queue 2016.
//!
//! Of version 3 this has the rate samples, the states, the bound on what is under way that comes from losses, and what makes up for
//! acknowledgements that come together. It has no response to ECN, which nobody marks on such paths.
//!
//! Losses that are not a full queue's are frequent on radio links: less than [`LOSS_MAX`] in a round says nothing here.

use weirgate_units::{BitRate, Duration, Instant};

use super::{Acked, INITIAL_WINDOW, LEAST_WINDOW, per, times};

/// Doubles the rate in each round trip: 4 ln 2.
const STARTUP_GAIN: f64 = 2.77;

/// Under way for each that the path takes: twice, for acknowledgements that are held back or come together.
const WINDOW_GAIN: f64 = 2.0;

/// Startup ends where three rounds bring less than a quarter more.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;

/// Looking for more, making up for that, and going on, one least round-trip time each.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

/// Rounds for which the highest rate counts.
const RATE_ROUNDS: u64 = 10;

/// More than this share of a round lost is a queue that is full.
const LOSS_MAX: f64 = 0.03;

/// What is left under way after such a round.
const LOSS_BETA: f64 = 0.85;

/// How often the queue is emptied to see the least round-trip time, if nothing else did; and for how long.
const PROBE_RTT_EVERY: Duration = Duration::from_secs(10);
const PROBE_RTT_FOR: Duration = Duration::from_millis(200);

/// Each path of a connection does it so much later than the one before: all at once would be heard.
const PROBE_RTT_APART: Duration = Duration::from_millis(700);

/// The state of one path.
#[derive(Debug)]
pub struct Bbr {
    mtu: u64,
    state: State,
    rates: MaxRate,
    rtt_min: Option<(Duration, Instant)>,
    /// How old that may become.
    rtt_age_max: Duration,
    round: Round,
    full: (BitRate, u32),
    /// At most under way, since more was lost.
    most: u64,
    extra: Extra,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Startup,
    Drain,
    /// At which of the cycle's steps, and since when.
    Cycle(usize, Instant),
    /// Until when; `None`: what is under way is still too much.
    ProbeRtt(Option<Instant>),
}

/// A round trip, in which losses are counted.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    number: u64,
    /// It ends with a packet that was sent when so much was delivered.
    ends_at: u64,
    lost: u64,
    delivered: u64,
    /// What was under way with the first loss.
    at_loss: u64,
}

/// The highest rate of the last rounds: three candidates, one after the other (Kathleen Nichols' algorithm, as in Linux' win_minmax).
#[derive(Clone, Copy, Debug, Default)]
struct MaxRate([(u64, BitRate); 3]);

impl MaxRate {
    fn update(&mut self, round: u64, rate: BitRate) {
        let [best, second, third] = &mut self.0;
        if rate >= best.1 || round.saturating_sub(third.0) > RATE_ROUNDS {
            self.0 = [(round, rate); 3];
            return;
        }
        if rate >= second.1 {
            (*second, *third) = ((round, rate), (round, rate));
        } else if rate >= third.1 {
            *third = (round, rate);
        }
        let age = round.saturating_sub(best.0);
        if age > RATE_ROUNDS {
            (*best, *second, *third) = (*second, *third, (round, rate));
            if round.saturating_sub(best.0) > RATE_ROUNDS {
                (*best, *second) = (*second, *third);
            }
        } else if second.0 == best.0 && age > RATE_ROUNDS / 4 {
            (*second, *third) = ((round, rate), (round, rate));
        } else if third.0 == second.0 && age > RATE_ROUNDS / 2 {
            *third = (round, rate);
        }
    }

    const fn highest(&self) -> BitRate {
        self.0[0].1
    }
}

/// What comes acknowledged beyond the rate, in a burst.
#[derive(Clone, Copy, Debug, Default)]
struct Extra {
    since: Option<Instant>,
    acked: u64,
    /// The most of the last rounds and of those before: two halves of a window.
    most: [(u64, u64); 2],
}

impl Bbr {
    pub(super) fn new(mtu: u64, turn: u8) -> Self {
        Self {
            mtu,
            state: State::Startup,
            rates: MaxRate::default(),
            rtt_min: None,
            rtt_age_max: PROBE_RTT_EVERY.saturating_add(PROBE_RTT_APART.saturating_mul(turn.into())),
            round: Round::default(),
            full: (BitRate::ZERO, 0),
            most: u64::MAX,
            extra: Extra::default(),
        }
    }

    pub(super) fn handle_ack(&mut self, acked: &Acked) {
        let ends = acked.delivered_then >= self.round.ends_at;
        self.round.delivered += acked.bytes;
        if let Some(rate) = acked.rate
            && (!acked.is_app_limited || rate >= self.rates.highest())
        {
            self.rates.update(self.round.number, rate);
        }
        self.see_extra(acked);
        let is_stale = self.see_rtt(acked);
        if ends {
            self.end_round(acked);
        }
        self.go_on(acked, ends, is_stale);
    }

    /// Whether the least round-trip time was not seen for too long.
    fn see_rtt(&mut self, acked: &Acked) -> bool {
        let is_old = self.rtt_min.is_some_and(|(_, at)| acked.now.saturating_since(at) > self.rtt_age_max);
        if is_old || self.rtt_min.is_none_or(|(min, _)| acked.rtt <= min) {
            self.rtt_min = Some((acked.rtt, acked.now));
        }
        is_old
    }

    fn see_extra(&mut self, acked: &Acked) {
        let extra = &mut self.extra;
        let since = *extra.since.get_or_insert(acked.now);
        let expected = self.rates.highest().bytes_in(acked.now.saturating_since(since)).as_u64();
        if extra.acked <= expected {
            (extra.since, extra.acked) = (Some(acked.now), 0);
        }
        extra.acked += acked.bytes;
        let more = extra.acked.saturating_sub(if extra.since == Some(since) { expected } else { 0 });
        let half = self.round.number / RATE_ROUNDS;
        if extra.most[0].0 != half {
            extra.most = [(half, 0), extra.most[0]];
        }
        extra.most[0].1 = extra.most[0].1.max(more);
    }

    fn end_round(&mut self, acked: &Acked) {
        let Round { lost, delivered, at_loss, .. } = self.round;
        let is_full = lost as f64 > LOSS_MAX * (lost + delivered) as f64 && lost > LEAST_WINDOW * self.mtu;
        if is_full {
            let kept = (at_loss as f64 * LOSS_BETA).max(self.product(1.0) as f64);
            self.most = (kept as u64).max(LEAST_WINDOW * self.mtu);
        } else if self.most != u64::MAX && acked.in_flight + acked.bytes + self.mtu > self.most {
            // All of it was used, and none was lost.
            self.most += (self.most / 8).max(self.mtu);
        }
        let rate = self.rates.highest();
        if self.state == State::Startup && !acked.is_app_limited {
            if rate >= times(self.full.0, FULL_GROWTH) {
                self.full = (rate, 0);
            } else {
                self.full.1 += 1;
            }
            if is_full {
                self.full.1 = FULL_ROUNDS;
            }
        }
        self.round = Round { number: self.round.number + 1, ends_at: acked.delivered, ..Round::default() };
    }

    fn go_on(&mut self, acked: &Acked, ends: bool, is_stale: bool) {
        if is_stale && !matches!(self.state, State::ProbeRtt(_) | State::Startup) {
            self.state = State::ProbeRtt(None);
        }
        let least = self.rtt_min.map_or(acked.rtt, |(min, _)| min);
        match self.state {
            State::Startup if ends && self.full.1 >= FULL_ROUNDS => self.state = State::Drain,
            State::Startup => {}
            State::Drain if acked.in_flight <= self.product(1.0) => self.state = State::Cycle(2, acked.now),
            State::Drain => {}
            State::Cycle(step, since) => {
                let is_over = acked.now.saturating_since(since) > least;
                let gain = CYCLE[step];
                let next = if gain > 1.0 {
                    // Until the path is really asked for more, or has lost some.
                    is_over
                        && (acked.in_flight + acked.bytes + self.mtu > self.product(gain).min(self.most)
                            || self.round.lost > 0)
                } else if gain < 1.0 {
                    is_over || acked.in_flight <= self.product(1.0)
                } else {
                    is_over
                };
                if next {
                    self.state = State::Cycle((step + 1) % CYCLE.len(), acked.now);
                }
            }
            State::ProbeRtt(None) if acked.in_flight <= self.product(0.5).max(LEAST_WINDOW * self.mtu) => {
                self.state = State::ProbeRtt(Some(acked.now + PROBE_RTT_FOR.max(least)));
            }
            State::ProbeRtt(Some(until)) if acked.now >= until => {
                self.rtt_min = self.rtt_min.map(|(min, _)| (min, acked.now));
                self.state = State::Cycle(2, acked.now);
            }
            State::ProbeRtt(_) => {}
        }
    }

    pub(super) fn handle_loss(&mut self, bytes: u64, in_flight: u64) {
        if self.round.lost == 0 {
            self.round.at_loss = in_flight + bytes;
        }
        self.round.lost += bytes;
    }

    pub(super) const fn handle_spurious_loss(&mut self, bytes: u64) {
        self.round.lost = self.round.lost.saturating_sub(bytes);
    }

    /// What the path takes: its rate times its least round-trip time, times `gain`.
    fn product(&self, gain: f64) -> u64 {
        let Some((least, _)) = self.rtt_min else { return INITIAL_WINDOW * self.mtu };
        if self.rates.highest() == BitRate::ZERO {
            return INITIAL_WINDOW * self.mtu;
        }
        (self.rates.highest().bytes_in(least).as_u64() as f64 * gain) as u64
    }

    pub(super) fn window(&self) -> u64 {
        let extra = self.extra.most[0].1.max(self.extra.most[1].1);
        let least = LEAST_WINDOW * self.mtu;
        let window = match self.state {
            State::Startup | State::Drain => (self.product(STARTUP_GAIN) + extra).max(INITIAL_WINDOW * self.mtu),
            // Three packets more, for what both sides cut and hold back.
            State::Cycle(..) => self.product(WINDOW_GAIN) + extra + 3 * self.mtu,
            State::ProbeRtt(_) => self.product(0.5),
        };
        window.min(self.most).max(least)
    }

    pub(super) fn pacing_rate(&self, rtt: Duration) -> BitRate {
        let gain = match self.state {
            State::Startup => STARTUP_GAIN,
            State::Drain => 1.0 / STARTUP_GAIN,
            State::Cycle(step, _) => CYCLE[step],
            State::ProbeRtt(_) => 1.0,
        };
        match self.rate() {
            Some(rate) => times(rate, gain),
            None => times(per(INITIAL_WINDOW * self.mtu, rtt), gain),
        }
    }

    /// `None`: not known yet.
    pub(super) fn rate(&self) -> Option<BitRate> {
        let rate = self.rates.highest();
        (rate > BitRate::ZERO).then_some(rate)
    }

    pub(super) fn is_starting(&self) -> bool {
        self.state == State::Startup
    }

    pub(super) const fn set_mtu(&mut self, mtu: u64) {
        self.mtu = mtu;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbit(n: u64) -> BitRate {
        BitRate::from_bits_per_sec(n * 1_000_000)
    }

    #[test]
    fn the_highest_rate_of_the_last_rounds_counts() {
        let mut rates = MaxRate::default();
        for (round, rate) in [(0, 10), (1, 50), (2, 20), (9, 30)] {
            rates.update(round, mbit(rate));
        }
        assert_eq!(rates.highest(), mbit(50));
        rates.update(12, mbit(20));
        assert_eq!(rates.highest(), mbit(30));
        rates.update(30, mbit(5));
        assert_eq!(rates.highest(), mbit(5));
    }
}
