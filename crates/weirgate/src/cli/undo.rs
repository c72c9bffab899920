//! `weirgate undo`: takes back whatever the journal says was done.

use clap::Args;

use super::output::Output;
use super::{Common, Failure};
use crate::config::Config;
use crate::control::{CallError, Request, call};
use crate::journal::{self, HostKernel, Journal, Object, Outcome};

#[derive(Debug, Args)]
pub(super) struct Undo {
    #[command(flatten)]
    common: Common,
    /// Only say what would be undone
    #[arg(long)]
    dry_run: bool,
    /// Print JSON, one object per change
    #[arg(long)]
    json: bool,
}

impl Undo {
    /// A daemon that runs takes its own changes back, so that it knows of it and does not make them again.
    fn tell_daemon(&self, config: &Config, out: &mut Output) -> Result<(), Failure> {
        // One of an earlier version, or none, says so below.
        if let Ok(answer) = call(&config.control, &Request::UplinkClear)
            && answer["steered"] == true
            && !self.json
        {
            out.line("the running daemon steers new connections no longer, until it is started again")?;
        }
        match call(&config.control, &Request::TuneClear) {
            Ok(_) if self.json => Ok(()),
            Ok(_) => {
                let said = "the running daemon took back what it had applied, and only shows its decisions from now on";
                Ok(out.line(said)?)
            }
            Err(CallError::Nobody { .. } | CallError::Denied { .. }) => Ok(()),
            // It runs and does not answer: the journal is what undo was made for.
            Err(error) => {
                say!("weirgate: {error}");
                Ok(())
            }
        }
    }

    /// What labs that were killed left behind, and what runs there. True: there was something.
    fn sweep_labs(&self, out: &mut Output) -> Result<bool, Failure> {
        let left = weirgate_lab::net::left_behind();
        // Nobody else's lab could have made any.
        if !rustix::process::geteuid().is_root() {
            return Ok(false);
        }
        if !self.dry_run {
            weirgate_lab::net::sweep()?;
        }
        for name in &left {
            if self.json {
                out.json(&serde_json::json!({ "object": { "kind": "lab namespace", "name": name } }))?;
            } else {
                let removed = if self.dry_run { "would be removed" } else { "removed" };
                out.line(&format!("namespace {name}, left by an experiment that was killed: {removed}"))?;
            }
        }
        Ok(!left.is_empty())
    }

    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        let config = self.common.load()?;
        let path = config.journal();
        let reading = journal::read(&path)?;
        if reading.torn {
            say!("weirgate: the journal ends in a torn line: the change it was to announce was never made");
        }
        if !reading.unreadable.is_empty() {
            say!(
                "weirgate: {}: lines {:?} say nothing to this version: a newer one may have to undo them",
                path.display(),
                reading.unreadable
            );
        }
        let swept = self.sweep_labs(out)?;
        if self.dry_run {
            for entry in reading.open.iter().rev() {
                if self.json {
                    out.json(entry)?;
                } else {
                    out.line(&format!(
                        "would undo {} (made by {}, uid {})",
                        entry.change, entry.actor.name, entry.actor.uid
                    ))?;
                }
            }
            return Ok(());
        }
        self.tell_daemon(&config, out)?;
        // What it took back itself, it has marked.
        let reading = journal::read(&path)?;
        if reading.open.is_empty() {
            if !self.json && !swept {
                out.line("nothing to undo")?;
            }
            if !rustix::process::geteuid().is_root() {
                let at = path.display();
                say!(
                    "weirgate: that is what {at} says; what root's daemon did is in its own journal: run this as root"
                );
            }
            return Ok(());
        }
        let boot = journal::boot_id()?;
        let mut kernel = HostKernel::default();
        let undone = journal::undo(&reading.open, &boot, &mut kernel);
        let mut journal = Journal::open(&path)?;
        let mut failed = 0;
        let mut policies = 0;
        for one in &undone {
            if one.outcome.is_settled() {
                journal.mark(one.sequence, &one.outcome.to_string())?;
            } else {
                failed += 1;
            }
            if self.json {
                out.json(&serde_json::json!({
                    "sequence": one.sequence,
                    "object": one.change.object,
                    "before": one.change.before,
                    "after": one.change.after,
                    "outcome": match one.outcome {
                        Outcome::Undone => "undone",
                        Outcome::Gone(_) => "gone",
                        Outcome::Left(_) => "left",
                        Outcome::With(_) => "with",
                        Outcome::Failed(_) => "failed",
                    },
                    "said": one.outcome.to_string(),
                }))?;
            } else if matches!(one.change.object, Object::Policy { .. }) {
                policies += 1;
            } else {
                out.line(&format!("{}: {}", one.change.object, one.outcome))?;
            }
        }
        if !self.json {
            for note in &kernel.notes {
                out.line(&format!("  {note}"))?;
            }
            if policies > 0 {
                out.line("the policy went with the maps it was in")?;
            }
        }
        if failed > 0 {
            let why = format!("{failed} changes are not undone; they stay in {}", path.display());
            return Err(Failure::Work(anyhow::anyhow!(why)));
        }
        Ok(())
    }
}
