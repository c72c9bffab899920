//! Everything that is known about one network, for a person.

use core::fmt;

use weirgate_sockets::sample::CcName;
use weirgate_units::{BitRate, Prefix, UnixTime};

use crate::book::Network;
use crate::controller::{Controller, rate};
use crate::decision::{Decision, NetworkEffect};

/// The answer to `weirgate tune explain PREFIX`.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Which network.
    pub network: Prefix,
    /// Whether it is in the books; where not, nothing below says anything.
    pub tracked: bool,
    /// The congestion control it is selected for.
    pub selected: Option<CcName>,
    /// Whether that reaches its connections; else it is only shown.
    pub applied: bool,
    /// Round since which it is selected, or released.
    pub since: u32,
    /// The round before which it cannot be selected after a rollback; 0 where it may.
    pub barred_until: u32,
    /// What each rule sees, in the configuration's order.
    pub rules: Vec<RuleView>,
    /// Known rounds in the window.
    pub known: u32,
    /// Length of the window, in rounds.
    pub window: u32,
    /// The window's rounds, newest first.
    pub rounds: Vec<RoundView>,
    /// The last decision on it, and in which round it was taken.
    pub last: Option<(u32, Decision)>,
    /// The effect of its treatment, while selected.
    pub effect: Option<NetworkEffect>,
    /// Where it stands now, in a sentence.
    pub standing: String,
}

/// What one rule sees of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleView {
    /// The rule's name.
    pub name: String,
    /// Share of known rounds in the group.
    pub duty: f64,
    /// Changes in and out of the group per known round.
    pub flaps: f64,
}

/// One round of one network.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundView {
    /// Its number.
    pub round: u32,
    /// When it ended; zero where that is no longer known.
    pub time: UnixTime,
    /// Whether the network had enough votes.
    pub known: bool,
    /// Whether it was in each rule's group.
    pub groups: Vec<bool>,
    /// Untreated votes, and their median, where round-by-round detail is kept for this network.
    pub votes: Option<(u32, BitRate)>,
    /// The value below which a network was in the first worst group.
    pub threshold: Option<BitRate>,
}

fn votes(n: u32) -> String {
    format!("{n} vote{}", if n == 1 { "" } else { "s" })
}

/// Rounds that [`Explanation`]'s text shows; the value holds all.
const SHOWN: usize = 24;

impl Explanation {
    /// The rules' names, in the configuration's order.
    pub fn rule_names(&self) -> Vec<&str> {
        self.rules.iter().map(|rule| &*rule.name).collect()
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.tracked {
            return write!(f, "{}: not seen, or forgotten since: no connection of it voted lately", self.network);
        }
        match self.selected {
            Some(cc) if self.applied => writeln!(f, "{}: sent to with {cc} since round {}", self.network, self.since)?,
            Some(cc) => writeln!(
                f,
                "{}: would be sent to with {cc} since round {} (observe: nothing is applied)",
                self.network, self.since
            )?,
            None => writeln!(f, "{}: on the default", self.network)?,
        }
        writeln!(f, "  {}", self.standing)?;
        if let Some((round, decision)) = self.last {
            let why = decision.why.in_words(&self.rule_names());
            writeln!(f, "  last decision, round {round}: {}: {why}", decision.what)?;
        }
        for rule in &self.rules {
            let (duty, flaps) = (rule.duty * 100.0, rule.flaps * 100.0);
            let (known, window) = (self.known, self.window);
            writeln!(
                f,
                "  rule {}: duty {duty:.0} %, flaps {flaps:.0} %, {known} of {window} rounds known",
                rule.name
            )?;
        }
        if let Some(effect) = self.effect.as_ref().filter(|_| self.applied) {
            let share = |s: Option<f64>| s.map_or("-".to_owned(), |s| format!("{:.2} %", s * 100.0));
            match &effect.goodput {
                Some(e) => write!(f, "  effect ({:?}): {e}", effect.design)?,
                None => write!(f, "  effect ({:?}): not known yet, {} blocks", effect.design, effect.blocks)?,
            }
            let (treated, held) = (share(effect.retransmit_treated), share(effect.retransmit_holdout));
            writeln!(f, "; retransmitted {treated} treated, {held} held out")?;
        }
        if self.rounds.iter().any(|round| round.known) && self.rounds.iter().all(|round| round.votes.is_none()) {
            writeln!(f, "  its votes are not kept round by round: there are more networks than [tune] detail_max")?;
        }
        writeln!(f, "  {:>9} {:>6} {:>14} {:>14}  group", "round", "votes", "median", "threshold")?;
        for round in self.rounds.iter().take(SHOWN) {
            let rate = |r: Option<BitRate>| {
                r.map_or("-".to_owned(), |r| format!("{:.3} Mbit/s", r.as_bits_per_sec() as f64 / 1e6))
            };
            let votes = round.votes.map_or("-".to_owned(), |(n, _)| n.to_string());
            let (median, threshold) = (rate(round.votes.map(|(_, m)| m)), rate(round.threshold));
            let groups: Vec<&str> =
                self.rules.iter().zip(&round.groups).filter(|(_, g)| **g).map(|(r, _)| &*r.name).collect();
            let group = match (round.known, groups.is_empty()) {
                (false, _) => "?".to_owned(),
                (true, true) => "-".to_owned(),
                (true, false) => groups.join(", "),
            };
            writeln!(f, "  {:>9} {votes:>6} {median:>14} {threshold:>14}  {group}", round.round)?;
        }
        if self.rounds.iter().take(SHOWN).any(|round| !round.known) {
            writeln!(
                f,
                "  ?: not judged: it had fewer than [tune] votes_min votes, or fewer than networks_min networks had"
            )?;
        }
        Ok(())
    }
}

impl Controller {
    /// Everything that is known about a client network; a longer prefix or an address is explained as the client network
    /// that holds it. O(window).
    pub fn explain(&self, prefix: Prefix) -> Explanation {
        let (config, round) = (&self.config, self.round);
        let window = config.window_rounds;
        let Some(network) = self.book.find(prefix).map(|slot| self.book.get(slot)) else {
            return Explanation {
                network: prefix,
                tracked: false,
                selected: None,
                applied: self.applied,
                since: 0,
                barred_until: 0,
                rules: Vec::new(),
                known: 0,
                window,
                rounds: Vec::new(),
                last: None,
                effect: None,
                standing: String::new(),
            };
        };
        let rules = config.rules.iter().enumerate().map(|(i, rule)| {
            let span = network.history.span(i, round, window);
            RuleView { name: rule.name.clone(), duty: span.duty, flaps: span.flaps }
        });
        let rounds = (0..window.min(round)).map(|back| self.round_view(network, round - back));
        let prefix = network.prefix;
        Explanation {
            network: prefix,
            tracked: true,
            selected: network.trial.as_ref().map(|t| t.cc),
            applied: self.applied,
            since: network.since,
            barred_until: if network.barred_until > round { network.barred_until } else { 0 },
            rules: rules.collect(),
            known: network.history.known(round, window),
            window,
            rounds: rounds.collect(),
            last: network.last.as_ref().map(|last| (last.0, Decision { network: prefix, what: last.1, why: last.2 })),
            effect: network.trial.as_ref().map(|t| t.report(prefix)),
            standing: self.standing(network),
        }
    }

    fn round_view(&self, network: &Network, round: u32) -> RoundView {
        let (known, groups) = network.history.at(round);
        let entry = self.thresholds.iter().rev().find(|t| t.0 == round);
        let threshold = entry.and_then(|t| t.2.into_iter().find(|t| t.is_finite()));
        RoundView {
            round,
            time: entry.map_or_else(UnixTime::default, |t| t.1),
            known,
            groups: (0..self.config.rules.len()).map(|i| groups >> i & 1 == 1).collect(),
            votes: network.detail.as_ref().and_then(|d| d.at(round)).map(|(n, median)| (n, rate(median))),
            threshold: threshold.map(rate),
        }
    }

    /// Which connections of the last round had no vote on their network, where any had none.
    fn without_a_vote(&self) -> String {
        match self.ignored.to_string() {
            none if none.is_empty() => none,
            ignored => format!(" (connections without one, of all networks: {ignored})"),
        }
    }

    /// Why a network is where it is now.
    fn standing(&self, network: &Network) -> String {
        let (config, round) = (&self.config, self.round);
        if let Some(trial) = &network.trial {
            let left = (network.since + config.dwell_rounds).saturating_sub(round);
            if let Some(tested) = trial.tested {
                let rounds = config.trial_rounds;
                return format!(
                    "selected; on trial at the edges that go first, with treated votes in {tested} of {rounds} rounds"
                );
            }
            return match (trial.on, left) {
                (false, _) => "selected; its switchback has it on the default for now".into(),
                (true, 0) => "selected; may be released when its duty falls or it flaps".into(),
                (true, left) => format!("selected; stays so for at least {left} rounds more"),
            };
        }
        if self.is_excluded(network.prefix) {
            return "never selected: the configuration excludes it".into();
        }
        if network.barred_until > round {
            return format!("barred for {} rounds more, after a rollback", network.barred_until - round);
        }
        if network.since > 0 && round - network.since < config.dwell_rounds {
            let left = config.dwell_rounds - (round - network.since);
            return format!("released; not considered again for {left} rounds more");
        }
        let known = network.history.known(round, config.window_rounds);
        if known < config.known_enter_min {
            let why = if round == 0 {
                "no round has ended yet".to_owned()
            } else if self.thresholds.back().is_none_or(|last| last.0 != round) {
                let (networks, votes) = (config.networks_min, votes(config.votes_min));
                format!(
                    "nothing was judged in round {round}, since fewer than {networks} networks had {votes} each{}",
                    self.without_a_vote()
                )
            } else if !network.history.at(round).0 {
                format!("in round {round} it had fewer than {}{}", votes(config.votes_min), self.without_a_vote())
            } else {
                "it was judged in the last round".to_owned()
            };
            let needed = config.known_enter_min;
            return format!("not selected: judged in {known} rounds of the window, {needed} are needed; {why}");
        }
        let reasons = config.rules.iter().enumerate().map(|(i, rule)| {
            let span = network.history.span(i, round, config.window_rounds);
            let (duty, flaps) = (span.duty * 100.0, span.flaps * 100.0);
            if !self.is_active(i) {
                format!("rule {} chooses what the host runs on anyway", rule.name)
            } else if span.duty < config.duty_enter {
                format!("duty {duty:.0} % for rule {} is below {:.0} %", rule.name, config.duty_enter * 100.0)
            } else if span.flaps > config.flap_enter_max {
                format!("flaps {flaps:.0} % for rule {} are above {:.0} %", rule.name, config.flap_enter_max * 100.0)
            } else {
                format!("rule {} would select it: deferred by a limit, or refused", rule.name)
            }
        });
        format!("not selected: {}", reasons.collect::<Vec<_>>().join("; "))
    }
}
