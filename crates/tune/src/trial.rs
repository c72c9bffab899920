//! A selected network's comparison: two arms, blocks of time, and what they come to.
//!
//! With enough clients the arms run side by side (a holdout), and a block is an epoch, at whose end the holdout is drawn
//! again. With few clients the whole network alternates (a switchback): a block pair is one cycle of
//! [`Config::switchback_every`] blocks, one of them on the default at a drawn place, so that no rhythm of the day is
//! taken for an effect. Cycles of different networks are shifted against each other, so that they do not turn together.

use std::collections::VecDeque;

use weirgate_sockets::sample::CcName;
use weirgate_units::{Bytes, Prefix};

use crate::config::Config;
use crate::decision::{Design, Loss, NetworkEffect};
use crate::effect::{self, Bootstrap, Cell, Effect};
use crate::holdout::mix;
use crate::tally::ArmSum;

/// A closed block of one network.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Block {
    pub(crate) cell: Cell,
    /// Share of bytes sent again, treated; not a number where nothing was sent.
    pub(crate) loss_treated: f32,
    pub(crate) loss_held: f32,
}

/// A selected network's comparison.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trial {
    /// Index of the rule that selected it.
    pub(crate) rule: u8,
    pub(crate) cc: CcName,
    pub(crate) design: Design,
    /// Rounds with treated votes while only the first edges treat it; `None`: all do.
    pub(crate) tested: Option<u32>,
    /// Whether it is in the policy: always, but for a switchback's turn on the default.
    pub(crate) on: bool,
    /// The first round of the present turn or of the selection, for the washout.
    pub(crate) turned: u32,
    /// The open block: treated, held out.
    pub(crate) open: [ArmSum; 2],
    /// Number of the open block, see [`Trial::block`].
    pub(crate) block: u32,
    /// Closed blocks, oldest first.
    pub(crate) blocks: VecDeque<Block>,
    /// At the level of reports, and of rollbacks.
    pub(crate) effect: Option<(Effect, Effect)>,
}

impl ArmSum {
    pub(crate) fn loss(&self) -> Loss {
        Loss { sent: Bytes::new(self.sent), retransmitted: Bytes::new(self.retransmitted) }
    }

    fn loss_share(&self) -> f32 {
        self.loss().share().map_or(f32::NAN, |s| s as f32)
    }
}

impl Trial {
    pub(crate) fn new(rule: u8, cc: CcName, design: Design, round: u32, prefix: Prefix, config: &Config) -> Self {
        let mut trial = Self {
            rule,
            cc,
            design,
            tested: (config.trial_rounds > 0).then_some(0),
            on: true,
            turned: round,
            open: [ArmSum::default(); 2],
            block: 0,
            blocks: VecDeque::new(),
            effect: None,
        };
        trial.block = trial.block_of(round, prefix, config);
        trial
    }

    /// The number of the block that `round` belongs to: its epoch, or the switchback's cycle.
    pub(crate) fn block_of(&self, round: u32, prefix: Prefix, config: &Config) -> u32 {
        match self.design {
            Design::Holdout => round / config.epoch_rounds,
            Design::Switchback => turn(round, prefix, config).0,
        }
    }

    /// Whether the network is to be in the policy in `round`.
    pub(crate) fn is_on_in(&self, round: u32, prefix: Prefix, config: &Config) -> bool {
        match self.design {
            Design::Holdout => true,
            Design::Switchback => {
                let (cycle, place) = turn(round, prefix, config);
                place != (draw(prefix, config.seed, cycle) % u64::from(config.switchback_every)) as u32
            }
        }
    }

    /// Whether `round`'s votes are mixed: the holdout was just drawn, or the network just turned.
    pub(crate) fn is_washout(&self, round: u32, config: &Config) -> bool {
        let epoch = self.design == Design::Holdout && round % config.epoch_rounds < config.washout_rounds;
        epoch || round.saturating_sub(self.turned) < config.washout_rounds
    }

    /// Closes the open block where `round`, which is about to begin, belongs to another. Returns whether there is one more
    /// now: both arms had votes. O(blocks x resamples) at the end of a block.
    pub(crate) fn end_block(&mut self, round: u32, prefix: Prefix, config: &Config) -> bool {
        let next = self.block_of(round, prefix, config);
        if next == self.block {
            return false;
        }
        self.block = next;
        let [treated, held] = core::mem::take(&mut self.open);
        let w = effect::weight(treated.votes, held.votes);
        if w == 0.0 {
            return false;
        }
        let mean = |a: &ArmSum| a.log / f64::from(a.votes);
        let cell = Cell { d: (mean(&treated) - mean(&held)) as f32, w };
        let block = Block { cell, loss_treated: treated.loss_share(), loss_held: held.loss_share() };
        if self.blocks.len() >= config.effect_blocks as usize {
            self.blocks.pop_front();
        }
        self.blocks.push_back(block);
        self.estimate(draw(prefix, config.seed, next), config);
        true
    }

    /// Draws the intervals again from the closed blocks.
    pub(crate) fn estimate(&mut self, seed: u64, config: &Config) {
        let cells: Vec<Cell> = self.blocks.iter().map(|b| b.cell).collect();
        self.effect = Bootstrap::new(&cells, config.resamples, seed)
            .map(|b| (b.interval(config.level), b.interval(config.rollback_level)));
    }

    /// Begins anew with another design: blocks of one are not compared with blocks of the other.
    pub(crate) fn redesign(&mut self, design: Design, round: u32, prefix: Prefix, config: &Config) {
        *self =
            Self { on: self.on, tested: self.tested, ..Self::new(self.rule, self.cc, design, round, prefix, config) };
    }

    pub(crate) fn report(&self, network: Prefix) -> NetworkEffect {
        let mean = |of: fn(&Block) -> f32| {
            let shares: Vec<f32> = self.blocks.iter().map(of).filter(|s| s.is_finite()).collect();
            (!shares.is_empty()).then(|| f64::from(shares.iter().sum::<f32>()) / shares.len() as f64)
        };
        NetworkEffect {
            network,
            cc: self.cc,
            design: self.design,
            goodput: self.effect.map(|(e, _)| e),
            retransmit_treated: mean(|b| b.loss_treated),
            retransmit_holdout: mean(|b| b.loss_held),
            blocks: self.blocks.len() as u32,
        }
    }
}

/// (cycle, place in the cycle) of a switchback in `round`.
fn turn(round: u32, prefix: Prefix, config: &Config) -> (u32, u32) {
    let cycle = config.switchback_rounds * config.switchback_every;
    let at = u64::from(round) + draw(prefix, config.seed, u32::MAX) % u64::from(cycle);
    ((at / u64::from(cycle)) as u32, (at % u64::from(cycle)) as u32 / config.switchback_rounds)
}

/// A number drawn for one network and one block.
fn draw(prefix: Prefix, seed: u64, block: u32) -> u64 {
    let bits = match prefix.address() {
        core::net::IpAddr::V4(a) => u128::from(a.to_bits()),
        core::net::IpAddr::V6(a) => a.to_bits(),
    };
    mix(mix(mix(seed ^ u64::from(block)) ^ (bits >> 64) as u64) ^ bits as u64)
}
