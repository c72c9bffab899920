//! `weirgate controller`: decides for a fleet.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread::sleep;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use weirgate_linux::clock;
use weirgate_units::Duration;

use super::output::Output;
use super::{Common, Failure, log};
use crate::daemon::seed;
use crate::fabric::run::interruption;
use crate::fleet::controller::{Decided, Decider};
use crate::fleet::keys::Signer;

/// How often it is looked whether a round's data are there, and for signals.
const LOOK: Duration = Duration::from_secs(1);
/// After which time what failed is tried again.
const RETRY: Duration = Duration::from_secs(10);

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Read each round from ClickHouse, decide for every point of presence, sign and publish; until it is told to end
    Run(Run),
    /// Print the public key that edges trust; a key is made where there is none
    Key(Key),
}

#[derive(Debug, Args)]
pub(super) struct Run {
    #[command(flatten)]
    common: Common,
    /// Decide the rounds whose data are there, and end
    #[arg(long)]
    once: bool,
}

#[derive(Debug, Args)]
pub(super) struct Key {
    /// The file of the secret key
    #[arg(long, value_name = "FILE", default_value = "/etc/weirgate/controller.key")]
    key: PathBuf,
}

impl Command {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        match self {
            Self::Run(run) => run.run(),
            Self::Key(key) => Ok(out.line(&Signer::load_or_make(&key.key)?.public())?),
        }
    }
}

impl Run {
    fn run(self) -> Result<(), Failure> {
        let config = self.common.load()?;
        log();
        let (seed, wrong) = seed::load(&config.host.state).context("the holdout's seed cannot be drawn")?;
        if let Some(wrong) = wrong {
            tracing::warn!("{wrong}");
        }
        let mut decider = Decider::open(&config, seed).map_err(Failure::Usage)?;
        let is_ended = interruption().context("signals cannot be caught")?;
        tracing::info!("edges have to trust {}", decider.public_key());
        let mut not_before = clock::unix();
        while !is_ended.load(Ordering::Relaxed) {
            if clock::unix() >= not_before {
                let decided = decider.decide(&mut |decided| say(&decided));
                if self.once {
                    return Ok(decided?);
                }
                if let Err(error) = decided {
                    tracing::warn!("{error:#}; tried again in {RETRY}");
                    not_before = clock::unix() + RETRY;
                }
            }
            sleep(LOOK.to_std());
        }
        Ok(())
    }
}

fn say(decided: &Decided) {
    let Decided { pop, rows, round, halted } = decided;
    let stats = &round.stats;
    tracing::info!(
        pop,
        round = round.time.as_secs(),
        rows,
        connections = stats.connections,
        votes = stats.votes(),
        known = stats.networks_known,
        selected = stats.selected,
        "decided"
    );
    for decision in &round.decisions {
        tracing::info!(pop, "{}: {}", decision.network, decision.what);
    }
    if let Some(refusal) = &round.refusal {
        tracing::warn!(pop, "this round's policy was refused: {refusal}");
    }
    if let Some(halted) = halted {
        tracing::warn!(pop, "{halted}");
    }
}
