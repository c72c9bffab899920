//! All uplinks of a host: what is known of each, which of them new flows go to, and what is to be done about it.
//!
//! Ground rules:
//!
//! - `handle_...` takes what was seen, `poll_act` says what is to be done, in its order, and `ruleset` what the kernel's rules are to be.
//! - IPv4 and IPv6 stand by themselves, each with its own targets: one may be dead where the other is well. A family that has no targets
//!   of its own stands as the other does.
//! - Flows of an uplink that fell silent are given up only where another one works: where none does, they lose nothing by waiting.
//! - What is decided is said with its reason. Weights follow what is measured in steps of a tenth, so that not every second makes an order
//!   anew.
//! - Work per call: uplinks times pools, times an order's slots where one has to be made.

mod order;

use std::collections::VecDeque;

use weirgate_balance::alike::{Alike, Measure};
use weirgate_units::{Duration, Instant, Prefix};

use self::order::{Candidate, Turns};
use super::health::{Ask, Health, State};
use super::marks::Marks;
use super::measure::{self, Direction, Measured, Sockets, Weight, weights};
use super::ruleset::{FlowRule, Order, RuledUplink, Ruleset};
use super::{Family, Kind, Place};

/// A silent uplink's flows are looked for so often once more: some began while the first ones were given up.
const GIVE_UP_TIMES: u32 = 3;
const GIVE_UP_EVERY: Duration = Duration::from_secs(1);
/// How often likeness and weights are judged.
const JUDGE_EVERY: Duration = Duration::from_secs(1);

/// What is configured of an uplink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UplinkSettings {
    pub(crate) name: String,
    pub(crate) device: String,
    pub(crate) measure: measure::Settings,
    pub(crate) is_backup: bool,
    /// Which medium, as a number.
    pub(crate) medium: Option<u32>,
    pub(crate) masquerade: bool,
    pub(crate) prefixes: Vec<Prefix>,
}

/// What is configured of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) marks: Marks,
    pub(crate) uplinks: Vec<UplinkSettings>,
    /// Rules with the uplinks of each.
    pub(crate) rules: Vec<(FlowRule, Vec<Place>)>,
    pub(crate) inside: Vec<Prefix>,
}

/// What is to be seen of an uplink's device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Site {
    /// Why nothing can go by it, in words.
    pub(crate) trouble: Option<String>,
    /// Whether there is a way for each family.
    pub(crate) families: [bool; 2],
    pub(crate) addresses: Vec<std::net::IpAddr>,
    pub(crate) near: Vec<Prefix>,
    /// Targets of each family that can be asked by it.
    pub(crate) targets: [usize; 2],
}

/// Packets and bytes, as a counter has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Counted {
    /// What came since the counter said `before`; all of it where it began anew.
    const fn since(self, before: Self) -> Self {
        if self.packets < before.packets || self.bytes < before.bytes {
            return self;
        }
        Self { packets: self.packets - before.packets, bytes: self.bytes - before.bytes }
    }

    const fn add(&mut self, more: Self) {
        self.packets += more.packets;
        self.bytes += more.bytes;
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// The kernel's rules are to be made anew.
    Rules,
    /// The next flows of these go elsewhere.
    Orders(Vec<(usize, Kind)>),
    /// The flows of an uplink are to be ended, those of a family.
    GiveUp(Place, Family),
    /// Those that have addresses which are no longer the uplink's.
    Leave(Place, Vec<std::net::IpAddr>),
    /// To be said; whether it is more than a detail.
    Say(String, bool),
}

/// An uplink and all that is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Uplink {
    pub(crate) settings: UplinkSettings,
    health: [Health; 2],
    pub(crate) measured: Measured,
    pub(crate) site: Site,
    pub(crate) is_drained: bool,
    /// Flows that it carries, by kind.
    pub(crate) flows: [u32; 4],
    /// What left by it for beyond its gateway, and what came from there.
    pub(crate) passed: [Counted; 2],
    /// The weight in force.
    pub(crate) weight: u64,
    counters: Option<[[Counted; 2]; 2]>,
    /// Whether its device was ever looked at.
    is_seen: bool,
    given_up: [Option<(u32, Instant)>; 2],
}

/// The uplinks.
#[derive(Clone, Debug)]
pub(crate) struct Fleet {
    settings: Settings,
    uplinks: Vec<Uplink>,
    ruled: Vec<RuledUplink>,
    rules: Vec<FlowRule>,
    /// By pool: that of all uplinks, then those of the rules.
    turns: Vec<[Turns; 4]>,
    orders: Vec<Order>,
    alike: Alike,
    judged_at: Option<Instant>,
    acts: VecDeque<Act>,
}

impl Fleet {
    pub(crate) fn new(now: Instant, settings: Settings) -> Self {
        let uplink = |settings: &UplinkSettings| Uplink {
            health: Family::ALL.map(|_| Health::new(now, 1, settings.measure.is_metered, Err("not looked at yet"))),
            measured: Measured::new(settings.measure),
            settings: settings.clone(),
            site: Site::default(),
            is_drained: false,
            flows: [0; 4],
            passed: [Counted::default(); 2],
            weight: 1,
            counters: None,
            is_seen: false,
            given_up: [None; 2],
        };
        let uplinks: Vec<Uplink> = settings.uplinks.iter().map(uplink).collect();
        let mediums: Vec<Option<u32>> = settings.uplinks.iter().map(|uplink| uplink.medium).collect();
        let pools = settings.rules.len() + 1;
        let mut fleet = Self {
            rules: settings.rules.iter().map(|(rule, _)| rule.clone()).collect(),
            ruled: Vec::new(),
            uplinks,
            turns: vec![<[Turns; 4]>::default(); pools],
            orders: vec![Order::default(); pools],
            alike: Alike::new(&mediums),
            judged_at: None,
            acts: VecDeque::new(),
            settings,
        };
        fleet.judge(now);
        fleet.rule_anew();
        fleet
    }

    /// What is to be seen of an uplink's device now.
    pub(crate) fn handle_site(&mut self, now: Instant, place: Place, site: Site) {
        let uplink = &mut self.uplinks[place];
        if uplink.site == site && uplink.is_seen {
            return;
        }
        for (at, health) in uplink.health.iter_mut().enumerate() {
            let link = site.link(Family::ALL[at]);
            if !uplink.is_seen {
                *health = Health::new(now, site.targets[at], uplink.settings.measure.is_metered, link);
                continue;
            }
            if uplink.site.targets[at] != site.targets[at] {
                // What was asked may be nobody's by now.
                health.handle_targets(site.targets[at]);
            }
            health.handle_link(now, link);
        }
        if let Some(trouble) = site.trouble.as_ref().filter(|_| !uplink.is_seen) {
            self.acts.push_back(Act::Say(format!("uplink `{}`: down: {trouble}", uplink.settings.name), true));
        }
        uplink.is_seen = true;
        let left: Vec<_> = uplink.site.addresses.iter().filter(|own| !site.addresses.contains(own)).copied().collect();
        if !left.is_empty() && site.trouble.is_none() {
            self.acts.push_back(Act::Leave(place, left));
        }
        uplink.site = site;
        self.settle(now);
        self.rule_anew();
    }

    /// What the counters of an uplink say, by family: what left for beyond its gateway, and what came from there.
    pub(crate) fn handle_counters(&mut self, now: Instant, place: Place, counters: [[Counted; 2]; 2]) {
        let uplink = &mut self.uplinks[place];
        // What was counted before the first look is of an earlier daemon.
        let before = uplink.counters.replace(counters).unwrap_or(counters);
        let mut bytes = [0; 2];
        for (family, health) in uplink.health.iter_mut().enumerate() {
            let passed = [0, 1].map(|way| counters[family][way].since(before[family][way]));
            for (way, passed) in passed.into_iter().enumerate() {
                uplink.passed[way].add(passed);
                bytes[way] += passed.bytes;
            }
            health.handle_traffic(now, passed[0].packets, passed[1].packets);
        }
        uplink.measured.handle_bytes(now, bytes[0], bytes[1]);
        self.settle(now);
    }

    /// The flows of each uplink, by kind.
    pub(crate) fn handle_flows(&mut self, now: Instant, flows: &[[u32; 4]]) {
        for (uplink, flows) in self.uplinks.iter_mut().zip(flows) {
            uplink.flows = *flows;
        }
        self.settle(now);
        self.order();
    }

    /// A question was answered.
    pub(crate) fn handle_answer(&mut self, now: Instant, place: Place, serial: u32) {
        let uplink = &mut self.uplinks[place];
        let (family, serial) = known_as(serial);
        if let Some(rtt) = uplink.health[family as usize].handle_answer(now, serial) {
            uplink.measured.handle_rtt(now, rtt);
        }
        self.settle(now);
    }

    /// What the host's own connections over an uplink say.
    pub(crate) fn handle_sockets(&mut self, now: Instant, place: Place, sockets: Sockets) {
        self.uplinks[place].measured.handle_sockets(now, sockets);
    }

    /// A train of packets came back at this rate.
    pub(crate) fn handle_train(&mut self, place: Place, rate: weirgate_units::BitRate) {
        self.uplinks[place].measured.handle_train(rate);
    }

    /// From now on an uplink takes no new flow, or does again.
    pub(crate) fn handle_drain(&mut self, place: Place, is_drained: bool) {
        let uplink = &mut self.uplinks[place];
        if uplink.is_drained != is_drained {
            uplink.is_drained = is_drained;
            let what = if is_drained { "takes no new flow: drained" } else { "takes flows again: resumed" };
            let said = format!("uplink `{}` {what}", uplink.settings.name);
            self.acts.push_back(Act::Say(said, true));
            self.order();
        }
    }

    /// Does what is due.
    pub(crate) fn handle_time(&mut self, now: Instant) {
        for health in self.uplinks.iter_mut().flat_map(|uplink| &mut uplink.health) {
            health.handle_time(now);
        }
        if self.judged_at.is_none_or(|at| now >= at + JUDGE_EVERY) {
            self.judge(now);
            self.order();
        }
        self.settle(now);
    }

    /// When [`Self::handle_time`] has something to do.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        let health = self.uplinks.iter().flat_map(|uplink| &uplink.health).filter_map(Health::poll_at);
        health.chain(self.judged_at.map(|at| at + JUDGE_EVERY)).min()
    }

    /// A question to be put to one of an uplink's targets of a family.
    pub(crate) fn poll_ask(&mut self, now: Instant) -> Option<(Place, Family, Ask)> {
        self.uplinks.iter_mut().enumerate().find_map(|(place, uplink)| {
            let asks = uplink.health.iter_mut().zip(Family::ALL);
            let (ask, family) = asks.filter_map(|(health, family)| Some((health.poll_ask(now)?, family))).next()?;
            Some((place, family, Ask { serial: told_as(family, ask.serial), ..ask }))
        })
    }

    /// An uplink by which a train of packets is to be sent.
    pub(crate) fn poll_train(&mut self, now: Instant) -> Option<Place> {
        let is_up = |uplink: &Uplink| uplink.state() == State::Up && uplink.srtt().is_some();
        self.uplinks.iter_mut().position(|uplink| is_up(uplink) && uplink.measured.poll_train(now))
    }

    /// What is to be done next.
    pub(crate) fn poll_act(&mut self) -> Option<Act> {
        self.acts.pop_front()
    }

    /// The rules as they are to be.
    pub(crate) fn ruleset(&self) -> Ruleset<'_> {
        Ruleset {
            marks: self.settings.marks,
            uplinks: &self.ruled,
            rules: &self.rules,
            orders: &self.orders,
            inside: &self.settings.inside,
        }
    }

    pub(crate) fn uplinks(&self) -> &[Uplink] {
        &self.uplinks
    }

    pub(crate) const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The likeness of the uplinks: each one's class.
    pub(crate) fn classes(&self) -> &[u32] {
        self.alike.classes()
    }

    /// What an uplink's weight would be now, and why.
    pub(crate) fn weight(&self, place: Place) -> Weight {
        self.uplinks[place].measured.weight(self.direction())
    }

    /// The direction that the host's traffic has more of.
    pub(crate) fn direction(&self) -> Direction {
        let sum = |way: usize| self.uplinks.iter().map(|uplink| u128::from(uplink.passed[way].bytes)).sum::<u128>();
        if sum(0) > sum(1) { Direction::Up } else { Direction::Down }
    }

    /// Takes up what changed of anybody's state.
    fn settle(&mut self, now: Instant) {
        let mut is_changed = false;
        for uplink in &mut self.uplinks {
            let both =
                [0, 1].map(|family| std::iter::from_fn(|| uplink.health[family].poll_change()).collect::<Vec<_>>());
            is_changed |= both.iter().any(|changes| !changes.is_empty());
            // What is true of all that it carries is said once, and without its family; so is what is said of IPv4 where there is no IPv6.
            let is_of_both = both[0] == both[1];
            let has_v6 = uplink.health[Family::V6 as usize].state().0 != State::Down || !both[1].is_empty();
            let changes = Family::ALL.into_iter().zip(&both).take(if is_of_both { 1 } else { 2 });
            for (family, change) in changes.flat_map(|(family, all)| all.iter().map(move |change| (family, change))) {
                let (from, to) = (change.from.name(), change.to.name());
                let of = if is_of_both || !has_v6 { String::new() } else { format!(", {}", family.name()) };
                let said = format!("uplink `{}`{of}: {from} -> {to}: {}", uplink.settings.name, change.why);
                let is_detail = |state| matches!(state, State::Up | State::Suspect);
                self.acts.push_back(Act::Say(said, !(is_detail(change.from) && is_detail(change.to))));
            }
        }
        if is_changed {
            self.order();
        }
        self.give_up(now);
    }

    /// Has the flows of uplinks that do not work ended, where another one does.
    fn give_up(&mut self, now: Instant) {
        let mut is_new = false;
        for family in Family::ALL {
            let works = self.uplinks.iter().any(|uplink| uplink.state_of(family) == State::Up);
            for (place, uplink) in self.uplinks.iter_mut().enumerate() {
                let was_heard = uplink.health_of(family).srtt().is_some();
                let state = uplink.state_of(family);
                let given_up = &mut uplink.given_up[family as usize];
                match state {
                    // One that was never heard may have targets that it does not reach.
                    State::Silent if !was_heard => {}
                    // A family that it never had has no flows.
                    State::Down if !was_heard && uplink.site.trouble.is_none() => {}
                    State::Silent | State::Down if works => {
                        let (times, at) = given_up.unwrap_or((0, now));
                        if times < GIVE_UP_TIMES && now >= at {
                            is_new |= times == 0;
                            *given_up = Some((times + 1, now + GIVE_UP_EVERY));
                            self.acts.push_back(Act::GiveUp(place, family));
                        }
                    }
                    State::Up | State::Returning => is_new |= given_up.take().is_some(),
                    _ => {}
                }
            }
        }
        if is_new {
            self.rule_anew();
        }
    }

    /// Weights and likeness.
    fn judge(&mut self, now: Instant) {
        self.judged_at = Some(now);
        let direction = self.direction();
        let wanted: Vec<Weight> = self.uplinks.iter().map(|uplink| uplink.measured.weight(direction)).collect();
        for (uplink, (weight, reason)) in self.uplinks.iter_mut().zip(weights(&wanted).into_iter().zip(&wanted)) {
            let was = uplink.weight;
            if was.abs_diff(weight) > was / 10 {
                uplink.weight = weight;
                let said = format!("uplink `{}`: weight {was} -> {weight}: {}", uplink.settings.name, reason.why);
                self.acts.push_back(Act::Say(said, false));
            }
        }
        for (place, uplink) in self.uplinks.iter().enumerate() {
            let (rate, min_rtt) = (uplink.measured.capacity(direction), uplink.measured.min_rtt(now));
            self.alike.handle_measure(now, place, Measure { rate, min_rtt });
        }
        while let Some(change) = self.alike.poll_change() {
            let [one, other] = change.pair.map(|place| &self.uplinks[place].settings.name);
            let are = if change.is_alike { "are alike" } else { "are no longer alike" };
            let class = self.alike.classes();
            let said = format!(
                "uplinks `{one}` and `{other}` {are} (classes {} and {}): {}",
                class[change.pair[0]], class[change.pair[1]], change.why
            );
            self.acts.push_back(Act::Say(said, true));
        }
    }

    /// Makes the orders anew that do no longer.
    fn order(&mut self) {
        let candidates: Vec<Candidate> = self.uplinks.iter().map(Uplink::candidate).collect();
        let all: Vec<Place> = (0..self.uplinks.len()).collect();
        let pools = std::iter::once(&all).chain(self.settings.rules.iter().map(|(_, pool)| pool));
        let mut changed = Vec::new();
        for (pool, uplinks) in pools.enumerate() {
            for kind in Kind::ALL {
                let fresh = Turns::new(&candidates, uplinks, kind);
                let turns = &mut self.turns[pool][kind.index()];
                if !turns.does_for(&fresh) {
                    self.orders[pool][kind.index()].clone_from(&fresh.order);
                    *turns = fresh;
                    changed.push((pool, kind));
                }
            }
        }
        if changed.is_empty() {
            return;
        }
        match self.acts.back_mut() {
            Some(Act::Rules) => {}
            Some(Act::Orders(known)) => {
                changed.retain(|one| !known.contains(one));
                known.extend(changed);
            }
            _ => self.acts.push_back(Act::Orders(changed)),
        }
    }

    fn rule_anew(&mut self) {
        self.order();
        self.ruled = self.uplinks.iter().map(Uplink::ruled).collect();
        // What is to be done about orders is done by that as well.
        self.acts.retain(|act| !matches!(act, Act::Orders(_) | Act::Rules));
        self.acts.push_front(Act::Rules);
    }
}

impl Site {
    /// Whether a family can be asked by it; why not, in words.
    fn link(&self, family: Family) -> Result<(), &str> {
        match &self.trouble {
            Some(trouble) => Err(trouble),
            None if !self.families[family as usize] => Err("there is no address or no default route for it"),
            None if self.targets[family as usize] == 0 => Err("none of the `targets` is of it"),
            None => Ok(()),
        }
    }

    /// The family whose targets say how this one stands: its own, or the other where it has none.
    const fn asked_for(&self, family: Family) -> Family {
        let other = family.other();
        if self.targets[family as usize] == 0 && self.targets[other as usize] > 0 { other } else { family }
    }
}

impl Uplink {
    /// What is known of a family.
    pub(crate) const fn health_of(&self, family: Family) -> &Health {
        &self.health[self.site.asked_for(family) as usize]
    }

    /// How it stands for a family.
    pub(crate) fn state_of(&self, family: Family) -> State {
        if self.site.families[family as usize] { self.health_of(family).state().0 } else { State::Down }
    }

    /// The family that does best by it.
    pub(crate) fn best(&self) -> Family {
        let [v4, v6] = Family::ALL.map(|family| self.state_of(family).rank());
        // Where there is no way at all, both say why.
        if v6 < v4 { Family::V6 } else { Family::V4 }
    }

    /// How it stands for that.
    pub(crate) fn state(&self) -> State {
        self.state_of(self.best())
    }

    /// The smoothed round-trip time of that.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.health_of(self.best()).srtt()
    }

    /// Questions whose time is over, and those of them that nobody answered in time.
    pub(crate) fn counts(&self) -> [u64; 2] {
        let [v4, v6] = &self.health;
        [0, 1].map(|what| v4.counts()[what] + v6.counts()[what])
    }

    fn candidate(&self) -> Candidate {
        Candidate {
            states: Family::ALL.map(|family| self.state_of(family)),
            is_backup: self.settings.is_backup,
            is_drained: self.is_drained,
            weight: self.weight,
            flows: self.flows,
        }
    }

    fn ruled(&self) -> RuledUplink {
        RuledUplink {
            device: self.settings.device.clone(),
            addresses: self.site.addresses.clone(),
            near: self.site.near.clone(),
            prefixes: self.settings.prefixes.clone(),
            masquerade: self.settings.masquerade,
            is_given_up: self.given_up.map(|given_up| given_up.is_some()),
        }
    }
}

/// The serial that a family's question is told by outside: each family counts for itself.
const fn told_as(family: Family, serial: u32) -> u32 {
    serial << 1 | family as u32
}

/// Whose question it is, and its serial there.
const fn known_as(told: u32) -> (Family, u32) {
    (if told & 1 == 0 { Family::V4 } else { Family::V6 }, told >> 1)
}

#[cfg(test)]
mod tests;
