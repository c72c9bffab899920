//! The fleet's controller: for each point of presence, each round that has ended is read from ClickHouse and decided, and what was decided is
//! signed and published as a file, which is replaced as a whole.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::FlockOperation;
use weirgate_linux::clock;
use weirgate_sockets::sample::CcName;
use weirgate_store::clickhouse::{self, Server, Source};
use weirgate_tune::snapshot::Snapshot;
use weirgate_tune::{Controller, Host, Round};
use weirgate_units::UnixTime;

use super::keys::Signer;
use crate::config::Config;
use crate::config::fleet::{self, Controller as Settings};

/// Rounds that passed while nobody decided are read after all, as far as a history goes back, and no more than this.
const CATCH_UP: u64 = 128;

/// Decides for all points of presence.
pub(crate) struct Decider {
    means: Means,
    pops: Vec<Pop>,
    /// Held while the memory is ours.
    _lock: File,
}

/// What it takes to decide for any of them.
struct Means {
    server: Server,
    settings: Settings,
    config: weirgate_tune::Config,
    signer: Signer,
    host: Host,
    /// The folder of what is known of each.
    memory: PathBuf,
}

/// One point of presence.
struct Pop {
    name: String,
    controller: Controller,
    /// The end of the last round that was published.
    ended: Option<UnixTime>,
}

/// What became of a round of a point of presence.
pub(crate) struct Decided {
    pub(crate) pop: String,
    pub(crate) rows: u64,
    pub(crate) round: Round,
    /// Why all networks on trial were given up, if they were.
    pub(crate) halted: Option<String>,
}

impl Decider {
    /// Takes up what an earlier one knew.
    pub(crate) fn open(config: &Config, seed: u64) -> Result<Self> {
        let settings = config.decides.clone().context(
            "there is nobody to decide for: write [controller] with `clickhouse` and `pops` into the configuration",
        )?;
        let signer = Signer::load(&settings.key)?;
        let memory = config.host.state.join("controller");
        for dir in [&memory, &settings.publish] {
            fs::create_dir_all(dir).with_context(|| format!("{}: cannot be made", dir.display()))?;
        }
        let lock = memory.join("lock");
        let lock = File::create(&lock).with_context(|| lock.display().to_string())?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .with_context(|| format!("another controller runs with {}", memory.display()))?;
        let (user, password) = &settings.login;
        let password = password.as_deref().map(first_line).transpose()?;
        let server = Server::new(&settings.clickhouse, user.clone(), password)?;
        let tune = weirgate_tune::Config { seed, ..config.tune.controller.clone() };
        let available_cc = settings.available.iter().filter_map(|name| CcName::new(name)).collect();
        let host = Host { available_cc, system_cc: tune.default_cc.or(CcName::new("cubic")) };
        let pop = |name: &String| Pop::load(name, &memory, &tune, &host);
        let pops = settings.pops.iter().map(pop).collect::<Result<Vec<_>>>()?;
        Ok(Self { means: Means { server, settings, config: tune, signer, host, memory }, pops, _lock: lock })
    }

    /// The public key that edges have to trust.
    pub(crate) fn public_key(&self) -> String {
        self.means.signer.public()
    }

    /// Decides every round whose data are there, the oldest first, and publishes the last one; what became of each goes to `each`.
    ///
    /// # Errors
    /// The first of a point of presence that could not be decided or published, which is tried again the next time; the others are.
    pub(crate) fn decide(&mut self, each: &mut dyn FnMut(Decided)) -> Result<()> {
        let Self { means, pops, .. } = self;
        let mut failed = Ok(());
        for pop in pops {
            let done = pop.catch_up(means, each).with_context(|| format!("point of presence `{}`", pop.name));
            failed = failed.and(done);
        }
        failed
    }
}

impl Pop {
    fn load(name: &str, memory: &Path, config: &weirgate_tune::Config, host: &Host) -> Result<Self> {
        let path = memory_of(memory, name);
        let controller = match fs::read(&path) {
            Ok(bytes) => Controller::load(config.clone(), host.clone(), &bytes)
                .with_context(|| format!("{}: what is known of `{name}`", path.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Controller::new(config.clone(), host.clone())?
            }
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        let (number, ended) = controller.round();
        Ok(Self { name: name.to_owned(), controller, ended: (number > 0).then_some(ended) })
    }

    fn catch_up(&mut self, means: &Means, each: &mut dyn FnMut(Decided)) -> Result<()> {
        let mut is_news = false;
        while self.next_end(&means.config, clock::unix()) + means.settings.settle <= clock::unix() {
            each(self.decide(means)?);
            is_news = true;
        }
        if is_news { self.publish(means) } else { Ok(()) }
    }

    /// The end of the next round to decide: the one after the last, but no longer ago than what a history holds. Who knows nothing begins
    /// with the history that is there.
    fn next_end(&self, config: &weirgate_tune::Config, now: UnixTime) -> UnixTime {
        let round = config.round.as_nanos();
        let last = now.as_nanos() / round;
        let ended = self.ended.map_or(0, |ended| ended.as_nanos() / round);
        let oldest = last.saturating_sub(u64::from(config.window_rounds).min(CATCH_UP));
        UnixTime::from_nanos((ended + 1).max(oldest).saturating_mul(round))
    }

    fn decide(&mut self, Means { server, settings, config, host, memory, .. }: &Means) -> Result<Decided> {
        let end = self.next_end(config, clock::unix());
        let source = match settings.source {
            fleet::Source::Tallies => Source::Tallies,
            fleet::Source::Records => Source::Records,
        };
        let controller = &mut self.controller;
        let read = clickhouse::round(server, &settings.database, source, (&self.name, end), config, &mut |tally| {
            controller.handle_tally(&tally);
        });
        let rows = match read {
            Ok(rows) => rows,
            Err(error) => {
                // What was counted of a round that broke off is forgotten, with those that were not published yet.
                *self = Self::load(&self.name, memory, config, host)?;
                return Err(error.into());
            }
        };
        let round = controller.end_round(end, (rows > 0).then_some(end));
        let halted = controller.halt_trial(settings.canary.1);
        let halted = halted.map(|(effect, ..)| format!("all networks on trial are given up: together {effect}"));
        self.ended = Some(end);
        Ok(Decided { pop: self.name.clone(), rows, round, halted })
    }

    /// Publishes what was decided last, and only then saves what is known.
    fn publish(&mut self, means: &Means) -> Result<()> {
        let Means { settings, signer, memory, .. } = means;
        let (share_ppm, trial) = settings.canary;
        let (policy, first) = self.controller.in_parts(trial);
        let snapshot = Snapshot {
            pop: self.name.clone(),
            version: self.ended.unwrap_or_default().as_secs(),
            made: clock::unix(),
            until: clock::unix() + settings.life,
            goes_back: false,
            policy,
            first: (share_ppm, first),
        };
        let (networks, first) = (snapshot.policy.networks.len(), snapshot.first.1.len());
        let path = settings.publish.join(format!("{}.snapshot", self.name));
        let written = replace(&path, &snapshot.seal(|bytes| signer.sign(bytes)))
            .and_then(|()| replace(&memory_of(memory, &self.name), &self.controller.save()));
        if let Err(error) = written {
            *self = Self::load(&self.name, memory, &means.config, &means.host)?;
            return Err(error);
        }
        tracing::info!(pop = self.name, version = snapshot.version, networks, first, "published");
        Ok(())
    }
}

fn memory_of(memory: &Path, pop: &str) -> PathBuf {
    memory.join(format!("{pop}.state"))
}

/// Writes `bytes` in the place of `path`, all or nothing.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = path.with_extension("new");
    let write = || {
        let mut file = File::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().with_context(|| format!("{}: cannot be written", path.display()))
}

fn first_line(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("[controller] password_file: {}", path.display()))?;
    let line = text.lines().next().unwrap_or_default();
    ensure!(!line.is_empty(), "[controller] password_file: {}: its first line is empty", path.display());
    Ok(line.to_owned())
}
