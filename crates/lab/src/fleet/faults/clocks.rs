//! Faults of clocks: of a controller and of an edge whose clocks are ahead, by the library of faketime(1).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use weirgate_linux::clock;
use weirgate_tune::snapshot::SKEW_MAX;

use super::{Fleet, POP, tune};
use crate::daemon::Daemon;
use crate::fleet::controller::{Controller, number};
use crate::fleet::ground::until;

/// More than edges let pass.
const CONTROLLER_AHEAD_S: u64 = SKEW_MAX.as_secs() * 3;
/// Longer than any policy here may be obeyed.
const EDGE_AHEAD_S: u64 = 3_600;
/// Where Debian has it.
fn library() -> PathBuf {
    format!("/usr/lib/{}-linux-gnu/faketime/libfaketimeMT.so.1", std::env::consts::ARCH).into()
}

impl Fleet<'_> {
    /// A controller whose clock is ahead decides.
    pub(super) fn controller_is_ahead(&mut self) -> Result<()> {
        self.rounds()?;
        let (good, _) = self.decide()?;
        let from = clock::unix();
        let key = self.ground.path("controller-ahead/key");
        fs::create_dir_all(key.parent().context("a file is in a folder")?)?;
        fs::copy(self.decider.key(), &key)?;
        let program = self.ahead("ahead-controller", CONTROLLER_AHEAD_S)?;
        // What there is lies further back for it than for others.
        let one = Controller::new(self.ground, "controller-ahead", &self.engine()?.url, &[POP.to_owned()])?
            .with(&tune(128), "canary_share = \"100 %\"\n")
            .by(program);
        one.run(0)?;
        let networks = self.metric("policy_networks")?;
        let refused = self.is_refused("future", &fs::read(one.published().join("lab.snapshot"))?)?;
        let obeyed = self.metric("fleet_policy_version")? == Some(good.version as f64)
            && self.metric("policy_networks")? == networks;
        self.note(
            "a controller's clock is 15 min ahead",
            from,
            "weirgate_fleet_policies_total by outcome, weirgate_problems",
            refused,
        );
        self.policy("the last good one", obeyed);
        Ok(())
    }

    /// An edge whose clock is ahead finds a policy that is alive for others.
    pub(super) fn edge_is_ahead(&mut self) -> Result<()> {
        let from = clock::unix();
        let dir = self.ground.path("edge-ahead");
        let sections =
            format!("[fleet]\npolicy = \"{}\"\ntrust = [\"{}\"]\n", self.policy.display(), self.decider.public_key);
        let edge = Daemon::start(&self.ahead("ahead-edge", EDGE_AHEAD_S)?, &dir, &sections)?;
        let is_told = until("the edge says that the policy has expired", || {
            let metrics = edge.fetch("/metrics")?;
            Ok(number(&metrics, "fleet_policies_total{outcome=\"expired\"}") > Some(0.0)
                && number(&metrics, "problems") > Some(0.0))
        });
        let version = number(&edge.fetch("/metrics")?, "fleet_policy_version");
        self.note(
            "an edge's clock is an hour ahead",
            from,
            "weirgate_fleet_policies_total by outcome, weirgate_problems",
            is_told.is_ok(),
        );
        self.policy("none", version.is_none());
        Ok(())
    }

    /// `weirgate` with a clock that is so many seconds ahead.
    fn ahead(&self, name: &str, seconds: u64) -> Result<PathBuf> {
        let library = library();
        ensure!(library.exists(), "no {}: run `make setup`", library.display());
        let path = self.ground.path(name);
        let text = format!(
            "#!/bin/sh\nexec env LD_PRELOAD={} FAKETIME=+{seconds} FAKETIME_DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1 '{}' \"$@\"\n",
            library.display(),
            self.ground.weirgate.display()
        );
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }
}
