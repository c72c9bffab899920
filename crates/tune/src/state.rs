//! The controller's memory as bytes, so that a restarted daemon goes on where it was.
//!
//! Little-endian, no alignment: `WGTU`, version (u16), length of the body (u64), body, checksum of the body (u64, against
//! torn files, not against an enemy). The body is written and read by the mirrored pairs below; every count is checked
//! against the bytes that are left, every value against what the controller relies on. A change of layout is a new
//! version, and an old one is refused: history is then gathered anew, nothing else is lost.

use weirgate_units::UnixTime;

use crate::book::{Book, Clients, Detail, Network};
use crate::bytes::{Damaged, Reader, Writer};
use crate::config::{Config, ConfigError, Metric, RULES_MAX};
use crate::controller::{Controller, Host};
use crate::decision::{Design, What, Why};
use crate::effect::{Cell, Effect};
use crate::history::History;
use crate::holdout::{Holdout, mix};
use crate::tally::ArmSum;
use crate::trial::{Block, Trial};

const MAGIC: &[u8; 4] = b"WGTU";
const VERSION: u16 = 2;
const HEADER: usize = 4 + 2 + 8;

/// Why saved bytes cannot be used. The remedy is the same for all: begin without history ([`Controller::new`]).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// They are something else.
    #[error("not a saved state: remove the file, history is gathered anew")]
    Magic,
    /// Another version of Weirgate wrote them.
    #[error(
        "saved by another version (layout {0}, this one reads {VERSION}): remove the file, history is gathered anew"
    )]
    Version(u16),
    /// They end too early, or go on too long.
    #[error("the saved state is {found} bytes long instead of {expected}: remove the file, history is gathered anew")]
    Length {
        /// What the header says, or what was needed at least.
        expected: u64,
        /// What there is.
        found: u64,
    },
    /// The checksum is another.
    #[error("the saved state is damaged (checksum): remove the file, history is gathered anew")]
    Checksum,
    /// A value is impossible.
    #[error("the saved state is damaged ({0}): remove the file, history is gathered anew")]
    Damaged(&'static str),
    /// It was gathered under settings that give its numbers another meaning.
    #[error("the saved state was gathered with another `{0}`: remove the file, or go back to that setting")]
    OtherSetting(&'static str),
    /// The configuration itself is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl From<Damaged> for LoadError {
    fn from(Damaged(what): Damaged) -> Self {
        Self::Damaged(what)
    }
}

impl Controller {
    /// Everything but the round in progress, as bytes for [`Controller::load`]. About 150 bytes per tracked network.
    pub fn save(&self) -> Vec<u8> {
        let mut w = Writer(Vec::with_capacity(HEADER + self.book.len() * 160 + 1_024));
        w.0.extend_from_slice(MAGIC);
        w.0.extend_from_slice(&VERSION.to_le_bytes());
        w.u64(0);
        w.controller(self);
        let (length, sum) = (w.0.len() - HEADER, checksum(&w.0[HEADER..]));
        w.0[6..HEADER].copy_from_slice(&(length as u64).to_le_bytes());
        w.u64(sum);
        w.0
    }

    /// The controller that was saved, under `config`. Rules find their history by name; networks whose rule is gone, or
    /// has another congestion control now, begin on the default. [`Controller::policy`] is what was in force, less those.
    pub fn load(config: Config, host: Host, bytes: &[u8]) -> Result<Self, LoadError> {
        if bytes.get(..4) != Some(MAGIC) {
            return Err(LoadError::Magic);
        }
        let mut header = Reader(&bytes[4..]);
        let version = header.u16()?;
        if version != VERSION {
            return Err(LoadError::Version(version));
        }
        let (length, found) = (header.u64()?, bytes.len() as u64);
        let expected = length.saturating_add(HEADER as u64 + 8);
        if expected != found {
            return Err(LoadError::Length { expected, found });
        }
        let (body, sum) = header.0.split_at(length as usize);
        if Reader(sum).u64()? != checksum(body) {
            return Err(LoadError::Checksum);
        }
        let mut reader = Reader(body);
        let controller = reader.controller(Self::new(config, host)?)?;
        match reader.0.is_empty() && controller.is_valid() {
            true => Ok(controller),
            false => Err(LoadError::Damaged("parts do not agree")),
        }
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(sum ^ u64::from_le_bytes(word))
    })
}

impl Writer {
    fn f32(&mut self, n: f32) {
        self.u32(n.to_bits());
    }

    fn controller(&mut self, c: &Controller) {
        self.u64(c.config.round.as_nanos());
        self.u8(c.config.network_len_v4);
        self.u8(c.config.network_len_v6);
        self.u8(c.config.metric as u8);
        self.u32(c.config.epoch_rounds);
        self.u32(c.round);
        self.u64(c.time.as_nanos());
        self.u32(c.policy.version);
        self.u64(c.policy.holdout.seed);
        self.u32(c.policy.holdout.epoch);
        self.u32(c.policy.holdout.share_ppm);
        self.u8(c.config.rules.len() as u8);
        for rule in &c.config.rules {
            self.text(&rule.name);
        }
        self.u32(c.thresholds.len() as u32);
        for (round, time, values) in &c.thresholds {
            self.u32(*round);
            self.u64(time.as_nanos());
            values.iter().for_each(|v| self.f32(*v));
        }
        self.u32(c.retired.len() as u32);
        for (round, cell) in &c.retired {
            self.u32(*round);
            self.cell(*cell);
        }
        self.u32(c.book.len() as u32);
        for (_, network) in c.book.iter() {
            self.network(network, c.round);
        }
    }

    fn network(&mut self, n: &Network, round: u32) {
        self.prefix(n.prefix);
        // What the open round counted is not saved: to the reader the network was seen in the last one at the latest.
        self.u32(n.seen.min(round));
        self.u32(n.since);
        self.u32(n.barred_until);
        self.u32(n.clients.epoch);
        self.u64(n.clients.now);
        self.u64(n.clients.before);
        let (known, member, round) = n.history.parts();
        known.iter().chain(member.iter().flatten()).for_each(|w| self.u64(*w));
        self.u32(round);
        self.u8(u8::from(n.trial.is_some()) | u8::from(n.detail.is_some()) << 1 | u8::from(n.last.is_some()) << 2);
        if let Some(trial) = &n.trial {
            self.trial(trial);
        }
        if let Some(detail) = &n.detail {
            self.u8(detail.rounds.len() as u8);
            for (round, votes, median) in &detail.rounds {
                self.u32(*round);
                self.u32(*votes);
                self.f32(*median);
            }
        }
        if let Some(last) = &n.last {
            self.u32(last.0);
            self.what(last.1);
            self.why(last.2);
        }
    }

    fn trial(&mut self, t: &Trial) {
        self.u8(t.rule);
        self.text(t.cc.as_str());
        self.u8(u8::from(t.design == Design::Switchback) | u8::from(t.on) << 1 | u8::from(t.tested.is_some()) << 2);
        self.u32(t.tested.unwrap_or(0));
        self.u32(t.turned);
        self.u32(t.block);
        for arm in &t.open {
            self.u32(arm.votes);
            self.u64(arm.log.to_bits());
            self.u64(arm.sent);
            self.u64(arm.retransmitted);
        }
        self.u32(t.blocks.len() as u32);
        for block in &t.blocks {
            self.cell(block.cell);
            self.f32(block.loss_treated);
            self.f32(block.loss_held);
        }
        self.u8(u8::from(t.effect.is_some()));
        if let Some((reported, rollback)) = t.effect {
            self.effect(reported);
            self.effect(rollback);
        }
    }

    fn cell(&mut self, c: Cell) {
        self.f32(c.d);
        self.f32(c.w);
    }

    fn effect(&mut self, e: Effect) {
        [e.ratio, e.low, e.high, e.level].into_iter().for_each(|x| self.f32(x));
        self.u32(e.blocks);
    }

    fn what(&mut self, what: What) {
        let (tag, cc) = match what {
            What::Select(cc) => (0, Some(cc)),
            What::Release => (1, None),
            What::RollBack => (2, None),
            What::Defer => (3, None),
            What::Refuse => (4, None),
            What::Pause => (5, None),
            What::Resume(cc) => (6, Some(cc)),
            What::CompareInTime => (7, None),
            What::CompareWithHoldout => (8, None),
        };
        self.u8(tag);
        if let Some(cc) = cc {
            self.text(cc.as_str());
        }
    }

    fn why(&mut self, why: Why) {
        match why {
            Why::Consistent { rule, duty, flaps, known } => {
                self.u8(0);
                self.u8(rule);
                self.f32(duty);
                self.f32(flaps);
                self.u32(known);
            }
            Why::Recovered { duty, known } => {
                self.u8(1);
                self.f32(duty);
                self.u32(known);
            }
            Why::Flapping { flaps, known } => {
                self.u8(2);
                self.f32(flaps);
                self.u32(known);
            }
            Why::Worse { effect } => {
                self.u8(3);
                self.effect(effect);
            }
            Why::Idle { rounds } => {
                self.u8(4);
                self.u32(rounds);
            }
            Why::RuleIdle => self.u8(5),
            Why::Excluded => self.u8(6),
            Why::Admin => self.u8(7),
            Why::ChangeLimit => self.u8(8),
            Why::SizeLimit => self.u8(9),
            Why::Refused => self.u8(10),
            Why::Turn { block } => {
                self.u8(11);
                self.u32(block);
            }
            Why::Clients(n) => {
                self.u8(12);
                self.u32(n);
            }
            Why::Harm { effect } => {
                self.u8(13);
                self.effect(effect);
            }
            Why::Untested { tested, rounds } => {
                self.u8(14);
                self.u32(tested);
                self.u32(rounds);
            }
        }
    }
}

type Read<T> = Result<T, LoadError>;

impl Reader<'_> {
    fn f32(&mut self) -> Read<f32> {
        Ok(f32::from_bits(self.u32()?))
    }

    fn finite(&mut self) -> Read<f32> {
        Some(self.f32()?).filter(|x| x.is_finite()).ok_or(LoadError::Damaged("a number"))
    }

    /// A round that is not later than `last`.
    fn round(&mut self, last: u32) -> Read<u32> {
        Some(self.u32()?).filter(|r| *r <= last).ok_or(LoadError::Damaged("a round"))
    }

    fn controller(&mut self, mut c: Controller) -> Read<Controller> {
        let same = |ok: bool, name| if ok { Ok(()) } else { Err(LoadError::OtherSetting(name)) };
        same(self.u64()? == c.config.round.as_nanos(), "round")?;
        same(self.u8()? == c.config.network_len_v4, "network_len_v4")?;
        same(self.u8()? == c.config.network_len_v6, "network_len_v6")?;
        let metric = match self.u8()? {
            0 => Metric::Goodput,
            _ => Metric::DeliveryRate,
        };
        same(metric == c.config.metric, "metric")?;
        same(self.u32()? == c.config.epoch_rounds, "epoch_rounds")?;
        c.round = self.round(u32::MAX / 2)?;
        c.time = UnixTime::from_nanos(self.u64()?);
        let version = self.u32()?;
        let holdout = Holdout { seed: self.u64()?, epoch: self.u32()?, share_ppm: self.u32()? };
        let mut rules = Vec::new();
        for _ in 0..self.u8()?.min(RULES_MAX as u8) {
            let name = self.text()?;
            rules.push(c.config.rules.iter().position(|r| r.name == name));
        }
        for _ in 0..self.count(12 + 4 * RULES_MAX)? {
            let (round, time) = (self.round(c.round)?, UnixTime::from_nanos(self.u64()?));
            let mut of = [f32::NAN; RULES_MAX];
            for i in 0..RULES_MAX {
                let value = self.f32()?;
                if let Some(Some(to)) = rules.get(i) {
                    of[*to] = value;
                }
            }
            c.thresholds.push_back((round, time, of));
        }
        for _ in 0..self.count(12)? {
            let entry = (self.round(c.round)?, self.cell()?);
            c.retired.push_back(entry);
        }
        let mut dropped = false;
        c.book = Book::new(&c.config);
        for _ in 0..self.count(100)? {
            let network = self.network(&mut c, &rules, &mut dropped)?;
            let (prefix, selected) = (network.prefix, network.trial.is_some());
            if !c.book.insert(network) {
                return Err(LoadError::Damaged("a network twice, or more than networks_max"));
            }
            if let Some(slot) = c.book.find(prefix).filter(|_| selected) {
                c.selected.insert(prefix, slot);
            }
        }
        c.policy.version = version;
        let policy = c.policy_after(&[]);
        c.policy.networks = policy.networks;
        c.policy.holdout = holdout;
        c.policy.version = version.saturating_add(u32::from(dropped));
        Ok(c)
    }

    fn network(&mut self, c: &mut Controller, rules: &[Option<usize>], dropped: &mut bool) -> Read<Network> {
        let mut n = Network::new(self.prefix()?);
        n.seen = self.round(c.round)?;
        n.since = self.round(c.round)?;
        n.barred_until = self.u32()?;
        n.clients = Clients { epoch: self.u32()?, now: self.u64()?, before: self.u64()? };
        let known = [self.u64()?, self.u64()?];
        let mut member = [[0; 2]; RULES_MAX];
        for i in 0..RULES_MAX {
            let bits = [self.u64()?, self.u64()?];
            if let Some(Some(to)) = rules.get(i) {
                member[*to] = bits;
            }
        }
        n.history = History::from_parts(known, member, self.round(c.round)?);
        let flags = self.u8()?;
        if flags & 1 != 0 {
            let mut trial = self.trial(c.round, &c.config)?;
            let rule = rules.get(usize::from(trial.rule)).copied().flatten();
            match rule.filter(|r| c.config.rules[*r].cc == trial.cc) {
                Some(rule) => {
                    trial.rule = rule as u8;
                    n.trial = Some(Box::new(trial));
                }
                None => {
                    *dropped = true;
                    c.retired.extend(trial.blocks.iter().map(|b| (c.round, b.cell)));
                    n.last = Some(Box::new((c.round, What::Release, Why::RuleIdle)));
                }
            }
        }
        if flags & 2 != 0 {
            let mut detail = Detail::new(c.config.window_rounds);
            for _ in 0..self.u8()? {
                let (round, votes, median) = (self.round(c.round)?, self.u32()?, self.finite()?);
                if detail.at_place_of(round) < round {
                    detail.set(round, votes, median);
                }
            }
            n.detail = Some(Box::new(detail));
        }
        if flags & 4 != 0 {
            let last = (self.round(c.round)?, self.what()?, self.why()?);
            n.last.get_or_insert(Box::new(last));
        }
        Ok(n)
    }

    fn trial(&mut self, last: u32, config: &Config) -> Read<Trial> {
        let (rule, cc, flags) = (self.u8()?, self.cc()?, self.u8()?);
        let design = if flags & 1 != 0 { Design::Switchback } else { Design::Holdout };
        let tested = Some(self.round(last)?).filter(|_| flags & 4 != 0 && config.trial_rounds > 0);
        let (turned, block) = (self.round(last + 1)?, self.u32()?);
        let mut open = [ArmSum::default(); 2];
        for arm in &mut open {
            arm.votes = self.u32()?;
            arm.log = f64::from_bits(self.u64()?);
            (arm.sent, arm.retransmitted) = (self.u64()?, self.u64()?);
            if !arm.log.is_finite() {
                return Err(LoadError::Damaged("a sum"));
            }
        }
        let on = flags & 2 != 0;
        let mut trial =
            Trial { rule, cc, design, tested, on, turned, open, block, blocks: Default::default(), effect: None };
        for _ in 0..self.count(16)? {
            trial.blocks.push_back(Block { cell: self.cell()?, loss_treated: self.f32()?, loss_held: self.f32()? });
        }
        while trial.blocks.len() > config.effect_blocks as usize {
            trial.blocks.pop_front();
        }
        if self.u8()? != 0 {
            trial.effect = Some((self.effect()?, self.effect()?));
        }
        Ok(trial)
    }

    fn cell(&mut self) -> Read<Cell> {
        let cell = Cell { d: self.finite()?, w: self.finite()? };
        Some(cell).filter(|c| c.w > 0.0).ok_or(LoadError::Damaged("a weight"))
    }

    fn effect(&mut self) -> Read<Effect> {
        let (ratio, low, high, level) = (self.finite()?, self.finite()?, self.finite()?, self.finite()?);
        Ok(Effect { ratio, low, high, level, blocks: self.u32()? })
    }

    fn what(&mut self) -> Read<What> {
        Ok(match self.u8()? {
            0 => What::Select(self.cc()?),
            1 => What::Release,
            2 => What::RollBack,
            3 => What::Defer,
            4 => What::Refuse,
            5 => What::Pause,
            6 => What::Resume(self.cc()?),
            7 => What::CompareInTime,
            8 => What::CompareWithHoldout,
            _ => return Err(LoadError::Damaged("a decision")),
        })
    }

    fn why(&mut self) -> Read<Why> {
        Ok(match self.u8()? {
            0 => Why::Consistent { rule: self.u8()?, duty: self.f32()?, flaps: self.f32()?, known: self.u32()? },
            1 => Why::Recovered { duty: self.f32()?, known: self.u32()? },
            2 => Why::Flapping { flaps: self.f32()?, known: self.u32()? },
            3 => Why::Worse { effect: self.effect()? },
            4 => Why::Idle { rounds: self.u32()? },
            5 => Why::RuleIdle,
            6 => Why::Excluded,
            7 => Why::Admin,
            8 => Why::ChangeLimit,
            9 => Why::SizeLimit,
            10 => Why::Refused,
            11 => Why::Turn { block: self.u32()? },
            12 => Why::Clients(self.u32()?),
            13 => Why::Harm { effect: self.effect()? },
            14 => Why::Untested { tested: self.u32()?, rounds: self.u32()? },
            _ => return Err(LoadError::Damaged("a reason")),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use weirgate_sockets::sample::CcName;

    use super::*;
    use crate::replay::{Telemetry, replay};
    use crate::synthetic::{Scenario, Synthetic};

    fn config() -> Config {
        Config { window_rounds: 16, known_enter_min: 4, epoch_rounds: 2, switchback_rounds: 2, ..Config::default() }
    }

    fn world(rounds: u32) -> Synthetic {
        Synthetic::new(Scenario { connections: 6, ..Scenario::mixed(30, rounds, 1) })
    }

    fn host() -> Host {
        let available_cc = vec![CcName::from_kernel(b"cubic"), CcName::from_kernel(b"bbr")];
        Host { system_cc: Some(available_cc[0]), available_cc }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Bytes that pass the checksum and were still not written by `save`: an error, or a controller that works.
        #[test]
        fn impossible_values_are_refused_or_harmless(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
            static SAVED: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
            let mut bytes = SAVED
                .get_or_init(|| {
                    let mut controller = Controller::new(config(), host()).unwrap();
                    replay(&mut controller, &mut world(20), &mut |_, _| true);
                    controller.save()
                })
                .clone();
            let end = bytes.len() - 8;
            for (at, to) in changes {
                bytes[HEADER + at.index(end - HEADER)] = to;
            }
            let sum = checksum(&bytes[HEADER..end]);
            bytes[end..].copy_from_slice(&sum.to_le_bytes());
            if let Ok(mut controller) = Controller::load(config(), host(), &bytes) {
                let policy = controller.policy().clone();
                let time = controller.round().1;
                for n in 1..4 {
                    world(3).next_round(&policy, &mut |p| controller.handle_progress(p));
                    let now = time + config().round.saturating_mul(n);
                    let round = controller.end_round(now, Some(now));
                    prop_assert!(controller.is_valid());
                    for decision in &round.decisions {
                        let _ = controller.explain(decision.network).to_string();
                    }
                }
            }
        }
    }
}
