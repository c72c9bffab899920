//! Decisions into the kernel: journalled first, then applied, renewed while the daemon lives, taken back when it stops.

use std::path::{Path, PathBuf};

use weirgate_linux::bpf::Steering;
use weirgate_linux::bpf::steer::{SteerCounters, SteerOptions};
use weirgate_linux::facts::holds_net_admin;
use weirgate_linux::route_cc::{self, RouteCc};
use weirgate_linux::{bpffs, clock};
use weirgate_tune::Policy;
use weirgate_units::{Duration, Instant};

use super::namespaces::Namespaces;
use super::sources;
use crate::config::{self, Config, Steer as Wanted};
use crate::journal::{self, Actor, Change, HostKernel, Journal, JournalError, Object, PRESENT};
use crate::view::api;

/// How often the policy's life is renewed, at most a third of it.
const RENEW: Duration = Duration::from_secs(10);

/// The applying half of `tune`. Holds nothing in the kernel until [`Steer::start`].
pub(crate) struct Steer {
    settings: config::Tune,
    sockets: config::Sockets,
    journal_path: PathBuf,
    active: Option<Active>,
    next_renew: Instant,
}

struct Active {
    means: Means,
    journal: Journal,
    why: String,
    applied: Option<Policy>,
    until: Instant,
    /// Namespaces whose connections the journal says are to be put back.
    recorded: Vec<PathBuf>,
}

enum Means {
    Bpf(Box<Steering>),
    Routes,
}

/// Why decisions cannot be applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SteerError {
    /// They cannot be written down.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The kernel program cannot be attached, and nothing else was allowed.
    #[error("[tune] steer = \"bpf\" cannot work here: {0}; `weirgate doctor` says what can")]
    Bpf(String),
    /// Nothing works.
    #[error("decisions cannot be applied here: by the kernel program: {bpf}; by routes: {routes}")]
    Neither {
        /// Why not by the program.
        bpf: String,
        /// Why not by routes.
        routes: String,
    },
    /// A policy was refused by the kernel.
    #[error("the policy cannot be applied: {0}; what was in force stays in force")]
    Apply(String),
}

impl Steer {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            settings: config.tune.clone(),
            sockets: config.sockets.clone(),
            journal_path: config.journal(),
            active: None,
            next_renew: Instant::ZERO,
        }
    }

    /// Takes back what an earlier daemon that was killed left behind; what was done, for the log.
    pub(crate) fn undo_earlier(&self) -> Result<Vec<String>, JournalError> {
        let reading = journal::read(&self.journal_path)?;
        if reading.open.is_empty() {
            return Ok(Vec::new());
        }
        let mut journal = Journal::open(&self.journal_path)?;
        Ok(undo_all(&mut journal, &reading.open))
    }

    /// Attaches what applies policies. Nothing is changed for any connection before [`Self::apply`].
    pub(crate) fn start(&mut self, actor: &Actor, namespaces: &Namespaces) -> Result<(), SteerError> {
        if self.active.is_some() {
            return Ok(());
        }
        let mut journal = Journal::open(&self.journal_path)?;
        match self.means(&mut journal, actor, namespaces) {
            Ok((means, why)) => {
                let recorded = namespaces.files();
                self.active = Some(Active { means, journal, why, applied: None, until: Instant::ZERO, recorded });
                Ok(())
            }
            Err(error) => {
                say(self.take_back(&mut journal));
                Err(error)
            }
        }
    }

    /// The best means that works here and is allowed, and why it is this one.
    fn means(
        &self,
        journal: &mut Journal,
        actor: &Actor,
        namespaces: &Namespaces,
    ) -> Result<(Means, String), SteerError> {
        let wanted = self.settings.steer;
        if wanted == Wanted::Routes {
            record_routes(self.settings.routes, journal, actor, &namespaces.files())?;
            return Ok((Means::Routes, "the configuration says so".to_owned()));
        }
        match self.attach(journal, actor, namespaces)? {
            Ok(steering) => {
                if let Some(error) = steering.paces_on() {
                    tracing::warn!("{error}");
                }
                Ok((Means::Bpf(Box::new(steering)), "the kernel and these privileges allow it".to_owned()))
            }
            Err(bpf) if wanted == Wanted::Bpf => Err(SteerError::Bpf(bpf)),
            Err(bpf) if !holds_net_admin() => {
                let routes = "it takes CAP_NET_ADMIN, which this process lacks: run as root".into();
                Err(SteerError::Neither { bpf, routes })
            }
            Err(bpf) => {
                record_routes(self.settings.routes, journal, actor, &namespaces.files())?;
                Ok((Means::Routes, format!("the kernel program does not work here: {bpf}")))
            }
        }
    }

    /// Puts `policy` in force; what there is to say about it.
    pub(crate) fn apply(
        &mut self,
        actor: &Actor,
        policy: &Policy,
        namespaces: &Namespaces,
    ) -> Result<Vec<String>, SteerError> {
        let until = self.until();
        self.record_namespaces(namespaces)?;
        let Some(active) = &mut self.active else { return Ok(Vec::new()) };
        let change = Change {
            object: Object::Policy { dir: self.settings.pins.clone() },
            before: active.applied.as_ref().map(|policy| format!("version {}", policy.version)),
            after: Some(describe(active.applied.as_ref(), policy)),
        };
        active.journal.record(actor, change)?;
        let mut notes = Vec::new();
        match &mut active.means {
            Means::Bpf(steering) => {
                let fail = |error: weirgate_linux::bpf::steer::ApplyError| SteerError::Apply(error.to_string());
                let applied = steering.apply(policy, namespaces.open()).map_err(fail)?;
                steering.renew(until);
                active.until = until;
                if applied.sockets_unreached > 0 {
                    notes.push(format!(
                        "{} open connections stay as they are: this kernel cannot take them up (Linux 6.12 can)",
                        applied.sockets_unreached
                    ));
                }
                notes.extend(applied.unwalked.into_iter().map(|(name, error)| {
                    format!("the open connections of namespace `{name}` could not be looked at: {error}")
                }));
            }
            Means::Routes => {
                for ns in namespaces.open() {
                    let applied =
                        self.settings.routes.apply(policy, ns).map_err(|error| SteerError::Apply(error.to_string()))?;
                    notes.extend(applied.skipped.iter().map(|(network, why)| format!("{network} has no route: {why}")));
                }
            }
        }
        active.applied = Some(policy.clone());
        Ok(notes)
    }

    /// Renews the policy's life where that is due. An error is of applying the policy again after it had expired.
    pub(crate) fn handle_time(
        &mut self,
        actor: &Actor,
        now: Instant,
        namespaces: &Namespaces,
    ) -> Result<(), SteerError> {
        if now < self.next_renew {
            return Ok(());
        }
        self.next_renew = now + RENEW.min(Duration::from_nanos(self.settings.life.as_nanos() / 3));
        let until = self.until();
        let Some(active) = &mut self.active else { return Ok(()) };
        let (Means::Bpf(steering), Some(policy)) = (&active.means, active.applied.clone()) else { return Ok(()) };
        let expired = steering.renew(until);
        active.until = until;
        if expired {
            tracing::warn!("the policy had expired before it was renewed; it is applied again");
            self.apply(actor, &policy, namespaces)?;
        }
        Ok(())
    }

    /// Sends connections back that nothing was sent on since a switched response; to be called with every poll.
    pub(crate) fn settle(&mut self, namespaces: &Namespaces) {
        if let Err(error) = self.record_namespaces(namespaces) {
            // What cannot be written down is not changed.
            tracing::warn!("connections of new namespaces are not steered: {error}");
            return;
        }
        let Some(Active { means: Means::Bpf(steering), applied: Some(_), .. }) = &self.active else { return };
        for (name, error) in steering.settle(namespaces.open()) {
            tracing::debug!("the connections of namespace `{name}` could not be looked at: {error}");
        }
    }

    /// When [`Self::handle_time`] has something to do.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        self.active.as_ref().map(|_| self.next_renew)
    }

    /// Takes everything back; what was done, in sentences.
    pub(crate) fn stop(&mut self) -> Result<Vec<String>, JournalError> {
        let Some(Active { means, mut journal, .. }) = self.active.take() else { return Ok(Vec::new()) };
        // Undo goes by the pins, like that of any other process.
        drop(means);
        self.take_back(&mut journal)
    }

    /// As [`Self::stop`], with what was done in the log.
    pub(crate) fn end(&mut self) {
        say(self.stop());
    }

    fn take_back(&self, journal: &mut Journal) -> Result<Vec<String>, JournalError> {
        // What is of uplinks is somebody else's.
        let own = || -> Result<Vec<journal::Entry>, JournalError> {
            let open = journal::read(&self.journal_path)?.open;
            Ok(open.into_iter().filter(|entry| !entry.change.object.is_of_uplinks()).collect())
        };
        let mut said = undo_all(journal, &own()?);
        let left = own()?.len();
        if left > 0 {
            said.push(format!("{left} changes are not taken back: run `weirgate undo`"));
        }
        Ok(said)
    }

    /// The map of connections, for the sense to share.
    pub(crate) fn conns(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        match self.active.as_ref().map(|active| &active.means) {
            Some(Means::Bpf(steering)) => Some(steering.conns()),
            _ => None,
        }
    }

    /// What the kernel program counted.
    pub(crate) fn counters(&self) -> Option<SteerCounters> {
        match self.active.as_ref().map(|active| &active.means) {
            Some(Means::Bpf(steering)) => steering.counters().ok(),
            _ => None,
        }
    }

    /// For people: by what means, and why.
    pub(crate) fn source(&self) -> api::Source {
        let (name, why, counted) = match &self.active {
            None => ("none", "decisions are shown only".to_owned(), false),
            Some(Active { means: Means::Bpf(_), why, .. }) => ("sockops program", why.clone(), true),
            Some(Active { means: Means::Routes, why, .. }) => {
                ("routes with congctl", format!("{why}. What they cannot do: {}", route_cc::LIMITS.join("; ")), false)
            }
        };
        api::Source { name: name.to_owned(), why, counted }
    }

    /// Whether policies are applied, and until when the kernel keeps the present one without us.
    pub(crate) fn standing(&self) -> (bool, Option<Instant>) {
        let until = self.active.as_ref().filter(|active| matches!(active.means, Means::Bpf(_))).map(|a| a.until);
        (self.active.is_some(), until.filter(|until| *until > Instant::ZERO))
    }

    fn attach(
        &self,
        journal: &mut Journal,
        actor: &Actor,
        namespaces: &Namespaces,
    ) -> Result<Result<Steering, String>, JournalError> {
        let cgroup = match sources::cgroup_of(&self.sockets) {
            Ok(cgroup) => cgroup,
            Err(why) => return Ok(Err(why)),
        };
        if let Err(why) = self.mount_bpffs(journal, actor)? {
            return Ok(Err(why));
        }
        let options = SteerOptions {
            pin_dir: self.settings.pins.clone(),
            cgroup,
            server_ports: self.settings.controller.server_ports.clone(),
            networks_max: self.settings.controller.limits.networks_max,
        };
        let object = Object::Pins { dir: options.pin_dir.clone(), namespaces: namespaces.files() };
        let change = Change { object, before: None, after: Some(PRESENT.to_owned()) };
        journal.record(actor, change)?;
        match Steering::attach(&options, namespaces.open()) {
            Ok(steering) => Ok(Ok(steering)),
            Err(error) => {
                // It keeps its map of connections for a next attempt, and there is none.
                for said in self.take_back(journal)? {
                    tracing::debug!("{said}");
                }
                Ok(Err(error.to_string()))
            }
        }
    }

    /// Sees to it that programs can be pinned where that is configured.
    fn mount_bpffs(&self, journal: &mut Journal, actor: &Actor) -> Result<Result<(), String>, JournalError> {
        let path = Path::new(bpffs::DEFAULT);
        if !self.settings.pins.starts_with(path) || bpffs::is_mounted(path) {
            return Ok(Ok(()));
        }
        let object = Object::Mount { path: path.to_owned() };
        let sequence = journal.record(actor, Change { object, before: None, after: Some(PRESENT.to_owned()) })?;
        match bpffs::ensure(path) {
            Ok(true) => {}
            Ok(false) => journal.mark(sequence, "not made: somebody else did")?,
            Err(error) => {
                journal.mark(sequence, "not made: the kernel refused")?;
                return Ok(Err(error.to_string()));
            }
        }
        Ok(Ok(()))
    }

    /// Writes down namespaces that are new before anything is changed in them.
    fn record_namespaces(&mut self, namespaces: &Namespaces) -> Result<(), JournalError> {
        let Some(active) = &mut self.active else { return Ok(()) };
        let files = namespaces.files();
        if files.iter().all(|file| active.recorded.contains(file)) {
            return Ok(());
        }
        let actor = Actor::own("namespaces");
        let known = active.recorded.len();
        let mut all = active.recorded.clone();
        all.extend(files.into_iter().filter(|file| !active.recorded.contains(file)));
        match active.means {
            Means::Bpf(_) => {
                let object = Object::Pins { dir: self.settings.pins.clone(), namespaces: all.clone() };
                active.journal.record(&actor, Change { object, before: None, after: Some(PRESENT.to_owned()) })?;
            }
            Means::Routes => record_routes(self.settings.routes, &mut active.journal, &actor, &all[known..])?,
        }
        active.recorded = all;
        Ok(())
    }

    fn until(&self) -> Instant {
        clock::boottime() + self.settings.life
    }
}

fn record_routes(
    routes: RouteCc,
    journal: &mut Journal,
    actor: &Actor,
    namespaces: &[PathBuf],
) -> Result<(), JournalError> {
    for namespace in namespaces {
        let object = Object::Routes { namespace: namespace.clone(), table: routes.table, priority: routes.priority };
        journal.record(actor, Change { object, before: None, after: Some(PRESENT.to_owned()) })?;
    }
    Ok(())
}

/// A start that is refused after [`Steer::start`] leaves nothing in the kernel.
impl Drop for Steer {
    fn drop(&mut self) {
        self.end();
    }
}

fn say(done: Result<Vec<String>, JournalError>) {
    match done {
        Ok(said) => said.iter().for_each(|line| tracing::info!("{line}")),
        Err(error) => tracing::error!("{error}; run `weirgate undo`"),
    }
}

/// Undoes `entries` and marks them; what was done, in sentences.
pub(crate) fn undo_all(journal: &mut Journal, entries: &[journal::Entry]) -> Vec<String> {
    let mut kernel = HostKernel::default();
    let boot = journal::boot_id().unwrap_or_default();
    let undone = journal::undo(entries, &boot, &mut kernel);
    let mut said = Vec::new();
    for one in undone {
        if one.outcome.is_settled()
            && let Err(error) = journal.mark(one.sequence, &one.outcome.to_string())
        {
            said.push(error.to_string());
        }
        // A policy goes with the maps it is in: one line for all of them is enough.
        if !matches!(one.change.object, Object::Policy { .. }) {
            said.push(format!("{}: {}", one.change.object, one.outcome));
        }
    }
    said.extend(kernel.notes);
    said
}

/// A policy in words: what differs from the one before.
fn describe(before: Option<&Policy>, after: &Policy) -> String {
    let empty = Vec::new();
    let old = before.map_or(&empty, |policy| &policy.networks);
    let is_new = |entry: &&(weirgate_units::Prefix, _)| {
        old.binary_search_by_key(&entry.0, |(p, _)| *p).map(|at| old[at]) != Ok(**entry)
    };
    let is_gone =
        |entry: &&(weirgate_units::Prefix, _)| after.networks.binary_search_by_key(&entry.0, |(p, _)| *p).is_err();
    let mut text = format!("version {}: {} networks", after.version, after.networks.len());
    for (network, cc) in after.networks.iter().filter(is_new) {
        text.push_str(&format!(", +{network} {cc}"));
    }
    for (network, _) in old.iter().filter(is_gone) {
        text.push_str(&format!(", -{network}"));
    }
    if let Some(default_cc) = after.default_cc {
        text.push_str(&format!(", default {default_cc}"));
    }
    text
}
