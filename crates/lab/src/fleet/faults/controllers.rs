//! Faults of two controllers that share a lease and answer an edge by HTTPS.

use std::fs;
use std::path::Path;

use anyhow::Result;
use rustix::process::{Signal, kill_process};
use weirgate_linux::clock;

use super::policies::HISTORY;
use super::{Fleet, POP, ROUND_S, SHORT_S, WINDOW_ROUNDS, tune};
use crate::daemon::Daemon;
use crate::fleet::controller::{Running, command, number};
use crate::fleet::ground::until;
use crate::process::free_port;

/// For how long a controller that is not heard of keeps the other from deciding.
const LEASE_S: u64 = 5;

impl Fleet<'_> {
    /// One is stopped past its lease and goes on; one is killed; then both are.
    pub(super) fn two_controllers(&mut self) -> Result<()> {
        self.rounds()?;
        let mut filled = clock::unix().as_secs() / ROUND_S * ROUND_S;
        let dir = self.ground.path("controllers");
        fs::create_dir_all(&dir)?;
        fs::write(dir.join("token"), "the fleet's\n")?;
        self.ground.certificates(&dir)?;
        let public = self.ground.weirgate(&["controller", "key", "--key", &dir.join("key").display().to_string()])?.0;
        let first = Serving::start(self, &dir, "first")?;
        until("a controller publishes a policy", || Ok(first.version()? > 0.0))?;
        let second = Serving::start(self, &dir, "second")?;
        until("the other controller shows what is published", || Ok(second.version()? > 0.0))?;
        let edge =
            Daemon::start(&self.ground.weirgate, &dir.join("edge"), &edge(&dir, [&first, &second], public.trim()))?;
        let obeyed = || -> Result<f64> { Ok(number(&edge.fetch("/metrics")?, "fleet_policy_version").unwrap_or(0.0)) };
        until("the edge obeys a policy by HTTPS", || Ok(obeyed()? > 0.0))?;

        if self.size.away_s >= SHORT_S {
            self.one_is_stopped([&first, &second], &obeyed, &mut filled)?;
        }
        // The one that does not decide is left.
        let (active, other) = if first.is_active()? { (first, second) } else { (second, first) };
        let (from, before) = (clock::unix(), obeyed()?);
        drop(active);
        until("the edge obeys the one that is left", || {
            self.bring(&mut filled)?;
            Ok(obeyed()? > before)
        })?;
        let is_told = other.is_active()?;
        self.note("the controller that decides is killed", from, "weirgate_controller_active", is_told);
        let is_theirs = until("the edge obeys what that one hands out", || Ok(obeyed()? == other.version()?)).is_ok();
        self.policy("the other one's", is_theirs);

        let (from, before) = (clock::unix(), obeyed()?);
        let failures = |metrics: &str| number(metrics, "fleet_failures_total");
        let failed = failures(&edge.fetch("/metrics")?);
        drop(other);
        let told = until("the edge says that no controller answers", || {
            let metrics = edge.fetch("/metrics")?;
            Ok(failures(&metrics) > failed && number(&metrics, "problems") > Some(0.0))
        });
        self.note("both are killed", from, "weirgate_fleet_failures_total, weirgate_problems", told.is_ok());
        self.policy("the last one", obeyed()? == before);
        Ok(())
    }

    /// The one that decides stops, past its lease, and goes on.
    fn one_is_stopped(
        &mut self,
        [first, second]: [&Serving; 2],
        obeyed: &dyn Fn() -> Result<f64>,
        filled: &mut u64,
    ) -> Result<()> {
        let (from, before) = (clock::unix(), obeyed()?);
        first.signal(Signal::STOP)?;
        let mut newest = before;
        let mut goes_back = false;
        let mut look = || -> Result<f64> {
            let now = obeyed()?;
            goes_back |= now < newest;
            newest = newest.max(now);
            Ok(now)
        };
        until("the other controller decides", || {
            self.bring(filled)?;
            look()?;
            Ok(second.is_active()? && second.version()? > before)
        })?;
        first.signal(Signal::CONT)?;
        until("the edge obeys the other controller", || {
            self.bring(filled)?;
            Ok(look()? > before && !first.is_active()?)
        })?;
        let is_told = second.running.number("controller_epoch")? > 1.0 && first.version()? >= newest;
        self.note(
            "two controllers at once: one is stopped past its lease, and goes on",
            from,
            "weirgate_controller_active, weirgate_controller_epoch",
            is_told,
        );
        self.policy("never an older one", !goes_back);
        Ok(())
    }

    /// Brings the rounds that have ended since `filled` into the engine.
    pub(super) fn bring(&self, filled: &mut u64) -> Result<()> {
        while *filled + ROUND_S <= clock::unix().as_secs() {
            *filled += ROUND_S;
            self.fill(HISTORY, *filled)?;
        }
        Ok(())
    }
}

/// One that answers edges.
struct Serving {
    running: Running,
    listen: u16,
}

impl Serving {
    fn start(fleet: &Fleet, dir: &Path, name: &str) -> Result<Self> {
        let (listen, metrics) = (free_port()?, free_port()?);
        let shown = dir.display();
        let text = format!(
            "[host]\nname = \"{name}\"\nstate = \"{shown}/{name}\"\n[tune]\n{}\n[controller]\nclickhouse = \"{}\"\npops = [\"{POP}\"]\n\
             key = \"{shown}/key\"\nsettle = \"0 s\"\ncanary_share = \"100 %\"\nlease = \"{LEASE_S} s\"\n\
             listen = \"127.0.0.1:{listen}\"\nmetrics = \"127.0.0.1:{metrics}\"\ncertificate = \"{shown}/server.crt\"\n\
             certificate_key = \"{shown}/server.key\"\ntoken_file = \"{shown}/token\"\n",
            tune(WINDOW_ROUNDS),
            fleet.engine()?.url,
        );
        let config = dir.join(name).with_extension("toml");
        fs::write(&config, text)?;
        let log = dir.join(name).with_extension("log");
        let running = Running::start(command(&fleet.ground.weirgate, &config), log, metrics)?;
        Ok(Self { running, listen })
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.running.id(), signal)?)
    }

    fn is_active(&self) -> Result<bool> {
        Ok(self.running.number("controller_active")? > 0.0)
    }

    /// Of the policy that it hands out.
    fn version(&self) -> Result<f64> {
        self.running.number(&format!("controller_policy_version{{pop=\"{POP}\"}}"))
    }
}

/// The rest of the configuration of an edge that asks both.
fn edge(dir: &Path, controllers: [&Serving; 2], public: &str) -> String {
    let shown = dir.display();
    let [first, second] = controllers.map(|controller| format!("\"https://localhost:{}\"", controller.listen));
    format!(
        "[fleet]\ntrust = [\"{public}\"]\ncontrollers = [{first}, {second}]\nca = \"{shown}/ca.pem\"\ntoken_file = \"{shown}/token\"\n"
    )
}
