//! `weirgate controller`: decides for a fleet.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use weirgate_sockets::sample::CcName;
use weirgate_units::Duration;

use super::output::Output;
use super::{Common, Failure, log};
use crate::fabric::run::interruption;
use crate::fleet::controller::{Decided, Decider, Standing};
use crate::fleet::keys::Signer;
use crate::fleet::{serve, topic};

/// How often it is looked whether a round's data are there, and for signals.
const LOOK: Duration = Duration::from_secs(1);

/// How long an end may take.
const FAREWELL: Duration = Duration::from_secs(15);

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Read each round from ClickHouse, decide for every point of presence, sign and publish; until it is told to end
    Run(Run),
    /// Print the public key that edges trust; a key is made where there is none
    Key(Key),
    /// Forget what is known of a point of presence, after this clock was ahead or its books were lost; edges go back to what is decided then
    Reset(Reset),
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
    #[command(flatten)]
    common: Common,
    /// The file of the secret key; default: what `[controller] key` says
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Reset {
    #[command(flatten)]
    common: Common,
    /// The point of presence
    #[arg(value_name = "POP")]
    pop: String,
}

impl Command {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        match self {
            Self::Run(run) => run.run(),
            Self::Key(key) => key.run(out),
            Self::Reset(reset) => reset.run(out),
        }
    }
}

impl Key {
    fn run(self, out: &mut Output) -> Result<(), Failure> {
        let path = match self.key {
            Some(path) => path,
            None => self
                .common
                .load()?
                .decides
                .map_or_else(|| crate::config::controller::KEY.into(), |settings| settings.key),
        };
        Ok(out.line(&Signer::load_or_make(&path)?.public())?)
    }
}

impl Run {
    fn run(self) -> Result<(), Failure> {
        let config = self.common.load()?;
        log();
        // Each edge holds a connection.
        super::allow_files();
        let mut decider = Decider::open(&config, None).map_err(Failure::Usage)?;
        let topic = config.decides.as_ref().and_then(|settings| settings.topic.as_ref()).zip(config.kafka.as_ref());
        let sender = topic.map(|(name, kafka)| topic::Sender::new(kafka, name, decider.board()));
        let mut sender = sender.transpose().map_err(Failure::Usage)?;
        let mut serving = None;
        if let (Some(settings), false) = (&config.decides, self.once) {
            serving = Some(serve::start(settings, &decider.board()).map_err(Failure::Usage)?);
            sender.take().map_or(Ok(()), topic::Sender::start)?;
        }
        let is_ended = interruption().context("signals cannot be caught")?;
        tracing::info!("edges have to trust {}", decider.public_key());
        end_in_time(Arc::clone(&is_ended));
        let default_cc = decider.default_cc();
        let mut unknown = String::new();
        while !is_ended.load(Ordering::Relaxed) {
            let mut failed = None;
            let standing = decider.handle_time(&mut |pop, decided| match decided {
                Ok(decided) => say(pop, &decided, default_cc),
                Err(error) => {
                    tracing::warn!(pop, "{error:#}; tried again in a while");
                    failed = Some(error.context(format!("point of presence `{pop}`")));
                }
            });
            match standing {
                Err(error) if self.once => return Err(error.into()),
                Err(error) => {
                    let said = format!("whose turn it is cannot be known, so nothing is decided: {error:#}");
                    if unknown != said {
                        tracing::warn!("{said}");
                    }
                    unknown = said;
                }
                Ok(Standing::Standby(other)) if self.once => {
                    return Err(anyhow!("{other} decides: nothing is decided here").into());
                }
                Ok(Standing::Active) if self.once => {
                    sender.as_mut().map_or(Ok(()), topic::Sender::send)?;
                    decider.close()?;
                    return failed.map_or(Ok(()), |error| Err(error.into()));
                }
                Ok(_) => unknown.clear(),
            }
            sleep(LOOK.to_std());
        }
        let closed = decider.close();
        if let Some(serving) = serving {
            serving.end();
        }
        Ok(closed?)
    }
}

/// Who is told to end while the database does not answer does not wait for it: all that is needed is kept before it is published.
fn end_in_time(is_ended: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        while !is_ended.load(Ordering::Relaxed) {
            sleep(LOOK.to_std());
        }
        sleep(FAREWELL.to_std());
        tracing::warn!(
            "the end was not waited for any longer: does the database answer? The lease, if there is one, runs out by itself"
        );
        std::process::exit(1);
    });
}

impl Reset {
    fn run(self, out: &mut Output) -> Result<(), Failure> {
        let config = self.common.load()?;
        let mut decider = Decider::open(&config, Some(&self.pop)).map_err(Failure::Usage)?;
        loop {
            match decider.take_turn()? {
                Standing::Active => break,
                Standing::Standby(other) => {
                    return Err(anyhow!("{other} decides: stop it first, and any other controller").into());
                }
                Standing::Waits => sleep(LOOK.to_std()),
            }
        }
        decider.reset(&self.pop)?;
        decider.close()?;
        Ok(out.line(&format!("what was known of {} is forgotten: the next controller begins anew", self.pop))?)
    }
}

/// `default_cc` is what edges are taken to use by themselves.
fn say(pop: &str, decided: &Decided, default_cc: CcName) {
    let Decided { end, read, hosts_before, round, is_known, halted } = decided;
    let end = end.as_secs();
    if *is_known {
        tracing::debug!(pop, round = end, "no data");
        return;
    }
    let Some(round) = round else {
        tracing::warn!(
            pop,
            round = end,
            "no data of this round have come: nothing is decided, and nothing is published. Do edges with this [host] pop send what \
             [controller] source reads?"
        );
        return;
    };
    let stats = &round.stats;
    tracing::info!(
        pop,
        round = end,
        hosts = read.hosts.len(),
        rows = read.rows,
        connections = stats.connections,
        votes = stats.votes(),
        known = stats.networks_known,
        selected = stats.selected,
        "decided"
    );
    if let Some(before) = hosts_before {
        tracing::warn!(
            pop,
            "it is of {} hosts, the round before it was of {before}: do the others export?",
            read.hosts.len()
        );
    }
    let foreign = stats.ignored.foreign();
    if foreign.count() > 0 {
        tracing::warn!(pop, "connections that are not counted: {foreign}; give all edges this controller's [tune]");
    }
    for decision in &round.decisions {
        tracing::info!(pop, "{}: {}", decision.network, decision.what);
    }
    if stats.connections > 0 && stats.votes() == 0 {
        tracing::warn!(
            pop,
            "no connection voted: {}. The edges' default is taken to be {default_cc}; [tune] default_cc says another",
            stats.ignored
        );
    }
    if let Some(refusal) = &round.refusal {
        tracing::warn!(pop, "this round's policy was refused, the one before stays: {refusal}");
    }
    if let Some(halted) = halted {
        tracing::warn!(pop, "{halted}");
    }
}
