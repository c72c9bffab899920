//! Whether an uplink works for a family: a state machine in virtual time.
//!
//! Ground rules:
//!
//! - What passes is the first evidence: packets that came back from beyond the gateway. As long as some do, nobody is asked but now and
//!   then, for the round-trip time.
//! - Where nothing passed for a while, one of the targets is asked. Where packets left and nothing came back, or the one asked did not
//!   answer, the uplink is *suspect*: it takes no new flow while another uplink works, and all targets are asked at once. When none of
//!   them has answered in time it is *silent*: its flows are given up.
//! - From the last packet that came back to that it takes less than a second with round-trip times up to 100 ms, unless the uplink is
//!   metered and idle: what is asked of those costs money, so an idle one is asked rarely.
//! - What comes is no proof that what leaves arrives: who was not acknowledged sends again. Where a question was missed, others are put
//!   until one is answered; after some seconds without any answer the uplink is silent, whatever comes. Where there is one target only, that
//!   may be the target's own trouble, and what comes counts.
//! - It comes back when its targets have answered for a while without a gap, longer the more often it has failed lately.

use std::collections::VecDeque;
use std::fmt;

use weirgate_units::{Duration, Instant};

/// An uplink of which nothing was heard for so long is asked: this, a target's patience and the others' are less than a second.
const ASK_IDLE: Duration = Duration::from_millis(350);
/// The same of a metered one: 84 bytes each way, 1.5 MB a day.
const ASK_IDLE_METERED: Duration = Duration::from_secs(10);
/// While something passes, one is asked all the same, for the round-trip time.
const ASK_BUSY: Duration = Duration::from_secs(15);
/// A silent one, and one that is coming back.
const ASK_SILENT: Duration = Duration::from_millis(500);
const ASK_SILENT_METERED: Duration = Duration::from_secs(5);

/// An answer is waited for three round-trip times, within these bounds. The lower one is what a host that was busy may take; with the upper
/// one a satellite's 600 ms are no silence.
const PATIENCE_MIN: Duration = Duration::from_millis(200);
const PATIENCE_MAX: Duration = Duration::from_secs(2);
/// Before any was measured.
const PATIENCE_UNKNOWN: Duration = Duration::from_millis(300);
/// Packets that left are given so long to bring something back: longer than a delayed acknowledgement (40 ms, at most 200 by RFC 9293).
const QUIET_MIN: Duration = Duration::from_millis(250);

/// Where what passes is one-way (a log, a stream), that is doubled each time, so often at most: idle ones are asked all the same.
const ONE_WAY_MAX: u32 = 8;
/// A target that has missed so many questions in a row is no longer asked alone.
const MISSES_MAX: u32 = 2;
/// After so many questions in a row without an answer, put [`ASK_SILENT`] apart, what comes is no sign of life any more; every target is
/// among them.
const ONE_SIDED: u32 = 6;

/// For how long answers have to come before an uplink is back; doubled for every failure not long after the one before.
const HOLD: Duration = Duration::from_secs(3);
const HOLD_MAX: Duration = Duration::from_secs(300);
/// After so long without a failure the count begins anew.
const FORGIVEN: Duration = Duration::from_secs(600);

/// A question that was not answered is kept so long: a late answer says that patience was too short.
const LATE: Duration = Duration::from_secs(5);

/// How an uplink stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It works.
    Up,
    /// It may not work: it is being asked.
    Suspect,
    /// Nothing comes back.
    Silent,
    /// It answers again, and has to go on for a while.
    Returning,
    /// There is no device, or no way by it.
    Down,
}

impl State {
    /// For people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Silent => "silent",
            Self::Returning => "returning",
            Self::Down => "down",
        }
    }

    /// The less, the better it stands.
    pub(crate) const fn rank(self) -> u8 {
        match self {
            Self::Up => 0,
            Self::Suspect => 1,
            Self::Returning => 2,
            Self::Silent => 3,
            Self::Down => 4,
        }
    }
}

/// Why it stands so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Nothing speaks against it.
    Begun,
    /// Something came back.
    Heard,
    /// So many packets left, and nothing came back for so long.
    Unanswered(u64, Duration),
    /// A target did not answer within this.
    Missed(Duration),
    /// None of so many targets did, within this.
    NoneAnswers(usize, Duration),
    /// Something comes, and so many questions in a row were not answered.
    OneSided(u32),
    /// A target answers.
    Answers,
    /// It answered for so long.
    Held(Duration),
    /// In words: the link.
    Link(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begun => f.write_str("nothing speaks against it"),
            Self::Heard => f.write_str("something came back"),
            Self::Unanswered(packets, time) => {
                write!(f, "{packets} packets left, and nothing came back for {} ms", time.as_millis())
            }
            Self::Missed(time) => write!(f, "a target did not answer within {} ms", time.as_millis()),
            Self::NoneAnswers(1, time) => {
                write!(f, "its only target did not answer within {} ms", time.as_millis())
            }
            Self::NoneAnswers(targets, time) => {
                write!(f, "none of {targets} targets answered within {} ms", time.as_millis())
            }
            Self::OneSided(questions) => {
                write!(
                    f,
                    "packets come, but {questions} questions in a row were not answered: what leaves does not arrive"
                )
            }
            Self::Answers => f.write_str("a target answers again"),
            Self::Held(time) => write!(f, "it has answered for {} s", time.as_millis() / 1_000),
            Self::Link(why) => f.write_str(why),
        }
    }
}

/// A change of its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) from: State,
    pub(crate) to: State,
    pub(crate) why: Why,
}

/// A question to be put to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// Which, of the uplink's.
    pub(crate) target: usize,
    /// By which the answer is told.
    pub(crate) serial: u32,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    serial: u32,
    target: usize,
    at: Instant,
    is_missed: bool,
    /// Something came before its time was over: by itself it says nothing.
    is_excused: bool,
}

/// An uplink's.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    targets: usize,
    is_metered: bool,
    state: State,
    why: Why,
    since: Instant,
    srtt: Option<Duration>,
    /// When something last came back.
    heard_at: Instant,
    asked_at: Instant,
    /// Since when packets have left without anything coming back, and how many.
    unanswered: Option<(Instant, u64)>,
    asked: VecDeque<Asked>,
    /// Targets to be asked now.
    due: VecDeque<usize>,
    /// When the first question was put since it is suspect: only from then on it is waited for an answer.
    put_at: Option<Instant>,
    /// Whether all were asked a second time.
    is_repeated: bool,
    /// By target: questions in a row that it did not answer.
    misses: Vec<u32>,
    /// How often in a row packets left without anything coming back, and targets answered all the same: what passes is one-way.
    one_way: u32,
    missed_in_a_row: u32,
    /// Questions that were missed since a target last answered, whatever came meanwhile, and when the last one of them was put.
    missed_since_answer: (u32, Instant),
    next_target: usize,
    next_serial: u32,
    failures: u32,
    changes: VecDeque<Change>,
    /// Questions whose time is over, and those of them that nobody answered in time.
    counts: [u64; 2],
}

impl Health {
    /// Of an uplink with so many targets, one at least. It is up until something speaks against it, and is asked at once; or down where
    /// there is no link, for this reason.
    pub(crate) fn new(now: Instant, targets: usize, is_metered: bool, link: Result<(), &str>) -> Self {
        let (state, why) =
            link.map_or_else(|why| (State::Down, Why::Link(why.to_owned())), |()| (State::Up, Why::Begun));
        Self {
            targets: targets.max(1),
            is_metered,
            due: if state == State::Up { VecDeque::from([0]) } else { VecDeque::new() },
            state,
            why,
            since: now,
            srtt: None,
            heard_at: now,
            asked_at: now,
            unanswered: None,
            asked: VecDeque::new(),
            put_at: None,
            is_repeated: false,
            misses: vec![0; targets.max(1)],
            one_way: 0,
            missed_in_a_row: 0,
            missed_since_answer: (0, now),
            next_target: 0,
            next_serial: 0,
            failures: 0,
            changes: VecDeque::new(),
            counts: [0; 2],
        }
    }

    /// So many packets left by it for beyond its gateway, and came from there, since the last call.
    pub(crate) fn handle_traffic(&mut self, now: Instant, sent: u64, received: u64) {
        if received > 0 {
            self.one_way = 0;
            self.hear(now);
        } else if sent > 0 {
            let (_, packets) = self.unanswered.get_or_insert((now, 0));
            *packets += sent;
        }
        self.handle_time(now);
    }

    /// Whether its device is there and up and there is a way by it; why not, in words.
    pub(crate) fn handle_link(&mut self, now: Instant, link: Result<(), &str>) {
        match link {
            Err(why) if self.state != State::Down => {
                self.fail(now, State::Down, Why::Link(why.to_owned()));
                (self.asked, self.due) = (VecDeque::new(), VecDeque::new());
            }
            Ok(()) if self.state == State::Down => {
                self.go(now, State::Silent, Why::Link("its link is back, and nothing was heard by it yet".to_owned()));
                self.ask_next();
            }
            _ => {}
        }
    }

    /// From now on so many targets can be asked, one at least.
    pub(crate) fn handle_targets(&mut self, targets: usize) {
        self.targets = targets.max(1);
        self.misses = vec![0; self.targets];
        self.next_target %= self.targets;
        self.due.retain(|target| *target < targets.max(1));
    }

    /// The question of this serial was answered. The round-trip time, if the question is known.
    pub(crate) fn handle_answer(&mut self, now: Instant, serial: u32) -> Option<Duration> {
        let place = self.asked.iter().position(|asked| asked.serial == serial)?;
        let asked = self.asked.remove(place)?;
        let rtt = now.saturating_since(asked.at);
        self.handle_rtt(rtt);
        if !asked.is_missed {
            self.counts[0] += 1;
        }
        (self.missed_in_a_row, self.missed_since_answer.0) = (0, 0);
        if let Some(misses) = self.misses.get_mut(asked.target) {
            *misses = 0;
        }
        if self.state == State::Suspect && matches!(self.why, Why::Unanswered(..)) {
            self.one_way = (self.one_way + 1).min(ONE_WAY_MAX);
        }
        if self.state == State::Silent {
            self.go(now, State::Returning, Why::Answers);
        }
        self.hear(now);
        self.handle_time(now);
        Some(rtt)
    }

    /// A round-trip time, of a question or of a connection.
    pub(crate) fn handle_rtt(&mut self, rtt: Duration) {
        let smoothed = |srtt: Duration| Duration::from_nanos(srtt.as_nanos() / 8 * 7 + rtt.as_nanos() / 8);
        self.srtt = Some(self.srtt.map_or(rtt, smoothed));
    }

    /// Does what is due.
    pub(crate) fn handle_time(&mut self, now: Instant) {
        self.miss(now);
        let age = now.saturating_since(self.since);
        let patience = self.patience();
        match self.state {
            State::Up | State::Suspect if self.is_one_sided() => {
                self.fail(now, State::Silent, Why::OneSided(self.missed_since_answer.0));
            }
            State::Up => {
                if let Some((since, packets)) = self.unanswered
                    && now.saturating_since(since) >= self.quiet()
                {
                    self.suspect(now, Why::Unanswered(packets, now.saturating_since(since)));
                } else if self.missed_in_a_row > 0 {
                    self.suspect(now, Why::Missed(patience));
                } else if now >= self.ask_at() {
                    self.ask_next();
                }
                if age >= FORGIVEN {
                    self.failures = 0;
                }
            }
            State::Suspect => {
                let waited = self.put_at.map_or(Duration::ZERO, |put| now.saturating_since(put));
                if waited >= patience {
                    self.fail(now, State::Silent, Why::NoneAnswers(self.targets, patience));
                } else if !self.is_repeated && waited >= Duration::from_nanos(patience.as_nanos() / 2) {
                    self.is_repeated = true;
                    self.due = (0..self.targets).collect();
                }
            }
            State::Returning if self.missed_in_a_row > 1 => {
                self.fail(now, State::Silent, Why::Missed(patience));
            }
            State::Returning if age >= self.hold() => {
                self.go(now, State::Up, Why::Held(age));
            }
            State::Silent | State::Returning => {
                if now >= self.ask_at() {
                    self.ask_next();
                }
            }
            State::Down => {}
        }
        debug_assert!(self.is_valid());
    }

    /// When [`Self::handle_time`] has something to do.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        let patience = self.patience();
        let put_at = self.put_at.unwrap_or(self.since);
        let missing = self.asked.iter().filter(|asked| !asked.is_missed).map(|asked| asked.at + patience).min();
        let own = match self.state {
            State::Down => return None,
            State::Up => {
                let quiet = self.unanswered.map(|(since, _)| since + self.quiet());
                quiet.into_iter().chain([self.ask_at()]).min()
            }
            State::Suspect if !self.is_repeated => Some(put_at + Duration::from_nanos(patience.as_nanos() / 2)),
            State::Suspect => Some(put_at + patience),
            State::Returning => Some(self.ask_at().min(self.since + self.hold())),
            State::Silent => Some(self.ask_at()),
        };
        missing.into_iter().chain(own).min()
    }

    /// What is to be asked now; to be called until there is nothing more.
    pub(crate) fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        let target = self.due.pop_front()?;
        self.next_serial = self.next_serial.wrapping_add(1);
        let serial = self.next_serial;
        self.asked.push_back(Asked { serial, target, at: now, is_missed: false, is_excused: false });
        self.asked_at = now;
        self.put_at.get_or_insert(now);
        Some(Ask { target, serial })
    }

    /// How its state changed; to be called until there is nothing more.
    pub(crate) fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// How it stands, why, and since when.
    pub(crate) const fn state(&self) -> (State, &Why, Instant) {
        (self.state, &self.why, self.since)
    }

    /// The smoothed round-trip time.
    pub(crate) const fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// Questions whose time is over, and those of them that nobody answered in time.
    pub(crate) const fn counts(&self) -> [u64; 2] {
        self.counts
    }

    /// Whether what it remembers is bounded and fits its state.
    pub(crate) fn is_valid(&self) -> bool {
        let bounded = self.due.len() <= self.targets && self.asked.len() <= 64 + 2 * self.targets;
        bounded
            && self.misses.len() == self.targets
            && self.next_target < self.targets
            && (self.state != State::Down || self.due.is_empty())
    }

    fn hear(&mut self, now: Instant) {
        (self.heard_at, self.unanswered) = (now, None);
        match self.state {
            State::Suspect => {
                self.go(now, State::Up, Why::Heard);
                // What else was asked may be answered or not.
                self.asked.iter_mut().for_each(|asked| asked.is_excused = true);
                self.due.clear();
            }
            // What passes is no proof of both ways: it is asked at once.
            State::Silent if self.due.is_empty() && now >= self.asked_at + PATIENCE_MIN => self.ask_next(),
            _ => {}
        }
        self.missed_in_a_row = 0;
    }

    fn suspect(&mut self, now: Instant, why: Why) {
        self.go(now, State::Suspect, why);
        self.put_at = None;
        self.due = (0..self.targets).collect();
        self.is_repeated = false;
    }

    fn fail(&mut self, now: Instant, to: State, why: Why) {
        self.failures = self.failures.saturating_add(1);
        self.go(now, to, why);
    }

    fn go(&mut self, now: Instant, to: State, why: Why) {
        let change = Change { from: self.state, to, why: why.clone() };
        self.changes.push_back(change);
        (self.state, self.why, self.since) = (to, why, now);
        (self.unanswered, self.missed_in_a_row) = (None, 0);
    }

    fn ask_next(&mut self) {
        if self.due.is_empty() {
            // Who never answers is asked with the others only, when it comes to that.
            let turns = (0..self.targets).map(|step| (self.next_target + step) % self.targets);
            let next = turns.clone().find(|target| self.misses[*target] < MISSES_MAX).unwrap_or(self.next_target);
            self.due.push_back(next);
            self.next_target = (next + 1) % self.targets;
        }
    }

    fn miss(&mut self, now: Instant) {
        let patience = self.patience();
        for asked in self.asked.iter_mut().filter(|asked| !asked.is_missed && now >= asked.at + patience) {
            asked.is_missed = true;
            if let Some(misses) = self.misses.get_mut(asked.target) {
                *misses += 1;
            }
            self.counts[0] += 1;
            self.counts[1] += 1;
            self.missed_in_a_row += u32::from(!asked.is_excused);
            // Those that were put together were lost together.
            let (missed, last) = self.missed_since_answer;
            if missed == 0 || asked.at >= last + ASK_SILENT {
                self.missed_since_answer = (missed.saturating_add(1), asked.at);
            }
        }
        while self.asked.front().is_some_and(|asked| asked.is_missed && now >= asked.at + LATE) || self.asked.len() > 64
        {
            self.asked.pop_front();
        }
    }

    /// Whether what comes is all there is: its targets have answered before, and do not any more.
    fn is_one_sided(&self) -> bool {
        let enough = ONE_SIDED.max(self.targets as u32);
        self.targets > 1 && self.srtt.is_some() && self.missed_since_answer.0 >= enough
    }

    fn patience(&self) -> Duration {
        let three = self.srtt.map_or(PATIENCE_UNKNOWN, |srtt| srtt.saturating_mul(3));
        three.clamp(PATIENCE_MIN, PATIENCE_MAX)
    }

    fn quiet(&self) -> Duration {
        self.patience().max(QUIET_MIN).saturating_mul(1 << self.one_way)
    }

    /// When a target is asked next, if nothing comes back meanwhile.
    fn ask_at(&self) -> Instant {
        let silent = if self.is_metered { ASK_SILENT_METERED } else { ASK_SILENT };
        match self.state {
            State::Up => {
                let idle = if self.is_metered { ASK_IDLE_METERED } else { ASK_IDLE };
                let by_idle = self.heard_at.max(self.asked_at) + idle;
                if self.missed_since_answer.0 > 0 && self.targets > 1 {
                    by_idle.min(self.asked_at + silent)
                } else if self.is_metered {
                    by_idle
                } else {
                    by_idle.min(self.asked_at + ASK_BUSY)
                }
            }
            _ => self.asked_at + silent,
        }
    }

    fn hold(&self) -> Duration {
        let doubled = 1_u64.checked_shl(self.failures.saturating_sub(1)).unwrap_or(u64::MAX);
        HOLD.saturating_mul(doubled).min(HOLD_MAX)
    }
}

#[cfg(test)]
mod tests;
