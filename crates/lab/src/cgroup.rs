//! Control groups of the experiments' own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A control group (version 2) that lasts as long as this value, and that its members have left before.
pub(crate) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Makes one below the root of the tree.
    pub(crate) fn create(name: &str) -> Result<Self> {
        let path = weirgate_linux::cgroup::root()?.join(name);
        fs::create_dir(&path).with_context(|| format!("cannot make the control group {}", path.display()))?;
        Ok(Self { path })
    }

    /// Its folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir(&self.path) {
            tracing::warn!("the control group {} stays: {e}", self.path.display());
        }
    }
}
