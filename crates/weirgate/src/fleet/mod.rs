//! Policies for a fleet: [`keys`] sign them and say whose they are, the [`controller`] decides them from a database's [`rounds`] and
//! publishes them (a file, HTTPS, a topic), and an edge [`follow`]s them.
//!
//! The order of things: read a round, decide, sign, save what was learnt and what was signed in one piece, and only then publish. Whoever is
//! killed before he has saved decides the same round again, from the same data and the same memory; whoever is killed after that
//! publishes what he has saved.

mod board;
pub(crate) mod check;
pub(crate) mod controller;
mod fetch;
pub(crate) mod follow;
pub(crate) mod keys;
mod memory;
mod rounds;
pub(crate) mod serve;
mod tls;
pub(crate) mod topic;
mod turn;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::folder;

/// Writes `bytes` in the place of `path`, all or nothing, for those that `mode` says.
fn replace(path: &Path, mode: u32, bytes: &[u8]) -> Result<()> {
    folder::replace(path, mode, bytes).with_context(|| format!("{}: cannot be written", path.display()))
}

/// The first line of a file that holds a secret, which the configuration calls `key`.
fn secret(key: &str, path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("{key}: {}", path.display()))?;
    let line = text.lines().next().unwrap_or_default().trim();
    ensure!(!line.is_empty(), "{key}: {}: its first line is empty", path.display());
    Ok(line.to_owned())
}
