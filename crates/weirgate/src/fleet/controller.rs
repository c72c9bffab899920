//! The fleet's controller: for each point of presence, each round that has ended is read and decided, and what was decided is
//! signed and published.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use rustix::fs::FlockOperation;
use weirgate_linux::clock;
use weirgate_sockets::sample::CcName;
use weirgate_store::clickhouse::standby::{memories, recall, remember, version};
use weirgate_store::clickhouse::{Round as Read, RoundError, unread};
use weirgate_tune::snapshot::Snapshot;
use weirgate_tune::{Controller, Host, Round, canary};
use weirgate_units::{Duration, UnixTime};

use super::board::Board;
use super::check::UNREAD_WITHIN;
use super::keys::Signer;
use super::memory::{self, Memory, Sealed};
use super::replace;
use super::rounds::Rounds;
use super::turn::Turn;
use crate::config::Config;
use crate::config::controller::Controller as Settings;

/// Rounds that passed while nobody decided are read after all, as far as a history goes back, and no more than this.
const CATCH_UP: u64 = 128;
/// After which time what failed is tried again, and data that are not there yet are asked for again.
const RETRY: Duration = Duration::from_secs(10);
/// How far a round's end may lie ahead of this clock, which is set back now and then.
const AHEAD: Duration = Duration::from_secs(5);

/// Decides for all points of presence.
pub(crate) struct Decider {
    means: Means,
    pops: Vec<Pop>,
    /// Whose turn it is; `None`: always ours.
    turn: Option<Turn>,
    /// What was said last of whether this one decides.
    said: Option<Standing>,
    /// The point of presence of which nothing is taken up, but its generation.
    forgotten: Option<String>,
    /// Held while the memory is ours.
    _lock: File,
}

/// What it takes to decide for any of them.
struct Means {
    rounds: Rounds,
    settings: Settings,
    config: weirgate_tune::Config,
    signer: Signer,
    host: Host,
    /// The folder of what is known of each.
    memory: PathBuf,
    board: Arc<Board>,
    /// Under which lease we decide; 1 without one, 0 where we do not.
    epoch: u64,
}

/// One point of presence.
struct Pop {
    name: String,
    controller: Controller,
    /// Of its snapshots.
    generation: u64,
    sealed: Option<Sealed>,
    /// Whether `sealed` is where edges find it.
    is_published: bool,
    /// The end of the last round that was decided.
    ended: Option<UnixTime>,
    /// The end of the last one that was passed over since then, for want of data.
    passed: Option<UnixTime>,
    /// Rounds until this one were asked for again, when it had data and those before it had not: they may have been late.
    again: Option<UnixTime>,
    /// The share of its edges that goes first, in parts per million: of those of the last round at least one.
    share_ppm: u32,
    not_before: UnixTime,
    /// Hosts of which the last decided round was; 0: not known.
    hosts: usize,
    /// The version under which the memory was taken from the database last.
    recalled: u64,
    /// Whether a round was decided that is not sealed yet.
    is_news: bool,
    /// Why what is kept of it cannot be used. Nothing is decided then, until there is something better.
    broken: Option<String>,
}

/// What became of a round of a point of presence.
pub(crate) struct Decided {
    /// When it ended.
    pub(crate) end: UnixTime,
    /// What it was decided from.
    pub(crate) read: Read,
    /// Of how many hosts the round before it was, where it is of fewer than half of them.
    pub(crate) hosts_before: Option<usize>,
    /// `None`: there were no data of it.
    pub(crate) round: Option<Round>,
    /// Whether nobody need be told that there were none: it is before all that is known, or was said before.
    pub(crate) is_known: bool,
    /// Why all networks on trial were given up, if they were.
    pub(crate) halted: Option<String>,
}

/// Whether this controller decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Active,
    /// It knows in a moment.
    Waits,
    /// That one decides.
    Standby(String),
}

/// Whether all edges have what may be chosen.
pub(super) fn edges_have(tune: &weirgate_tune::Config, settings: &Settings) -> Result<()> {
    match tune.unavailable(&settings.available).next() {
        Some(missing) => {
            bail!("[tune] chooses {missing}, which is not in [controller] available: every edge has to have it")
        }
        None => Ok(()),
    }
}

fn default_cc(tune: &weirgate_tune::Config) -> CcName {
    tune.default_cc.or(CcName::new("cubic")).unwrap_or_default()
}

impl Decider {
    /// Takes up what an earlier one knew, but of the point of presence `forgotten`, of which what is kept may be damaged.
    ///
    /// # Errors
    /// What is wrong with the configuration, the key or what is kept.
    pub(crate) fn open(config: &Config, forgotten: Option<&str>) -> Result<Self> {
        let settings = config.decides.clone().context(
            "there is nobody to decide for: write [controller] with `clickhouse`, or `store`, and `pops` into the configuration",
        )?;
        if let Some(pop) = forgotten.filter(|pop| !settings.pops.iter().any(|known| known == pop)) {
            bail!("there is no point of presence `{pop}` in [controller] pops: {}", settings.pops.join(", "));
        }
        let tune = config.tune.controller.clone();
        edges_have(&tune, &settings)?;
        let signer = Signer::load(&settings.key)?;
        let memory = memory::folder(&config.host.state);
        for dir in [&memory, &settings.publish] {
            fs::create_dir_all(dir).with_context(|| format!("{}: cannot be made", dir.display()))?;
        }
        let lock = memory::lock(&memory);
        let lock = File::create(&lock).with_context(|| lock.display().to_string())?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .with_context(|| format!("another controller runs with {}", memory.display()))?;
        let rounds = Rounds::open(&settings.database, settings.lease)?;
        match rounds.check() {
            // It may come.
            Err(error @ RoundError::Server(_)) => tracing::warn!("{error}"),
            checked => checked?,
        }
        let host = Host { available_cc: settings.available.clone(), system_cc: Some(default_cc(&tune)) };
        let turn = match (settings.lease, rounds.server()) {
            (Some(length), Some((_, database))) => {
                Some(Turn::new(&config.host.name, database, &settings.pops, length)?)
            }
            _ => None,
        };
        let board = Arc::new(Board::new(&settings.pops));
        let means = Means { rounds, settings, config: tune, signer, host, memory, board, epoch: 0 };
        let load = |name: &String| match forgotten == Some(name.as_str()) {
            true => {
                let memory = Memory::load(&means.memory, name).ok().flatten().unwrap_or_default();
                Pop::with(name, &means, Some(Memory { generation: memory.generation, ..Memory::default() }))
            }
            false => Pop::load_or_break(name, &means),
        };
        let pops = means.settings.pops.iter().map(load).collect::<Result<Vec<_>>>()?;
        // With a lease others may know it.
        if turn.is_none()
            && let Some(why) = pops.iter().map(|pop| pop.broken.as_ref()).collect::<Option<Vec<_>>>()
        {
            bail!("{}", why.iter().map(|why| why.as_str()).collect::<Vec<_>>().join("; "));
        }
        Ok(Self { means, pops, turn, said: None, forgotten: forgotten.map(str::to_owned), _lock: lock })
    }

    /// The congestion control that edges are taken to use by themselves.
    pub(crate) fn default_cc(&self) -> CcName {
        default_cc(&self.means.config)
    }

    /// The public key that edges have to trust.
    pub(crate) fn public_key(&self) -> String {
        self.means.signer.public()
    }

    /// What can be seen of it from outside.
    pub(crate) fn board(&self) -> Arc<Board> {
        Arc::clone(&self.means.board)
    }

    /// Decides every round whose data are there, the oldest first, and publishes the last one; what became of each, or why it could not
    /// be, goes to `each` with the point of presence's name. What failed is tried again. To be called every second or so.
    ///
    /// # Errors
    /// It cannot be known whether it is our turn.
    pub(crate) fn handle_time(&mut self, each: &mut dyn FnMut(&str, Result<Decided>)) -> Result<Standing> {
        let mut has_read = false;
        for at in 0..self.pops.len() {
            let began = Instant::now();
            loop {
                // Each round takes time, and the turn has to be kept meanwhile.
                let standing = self.take_turn().inspect_err(|_| self.means.board.count_turn_failure())?;
                if standing != Standing::Active {
                    return Ok(standing);
                }
                let Self { means, pops, .. } = self;
                let pop = &mut pops[at];
                let failed = match pop.advance(means) {
                    Ok(Some(decided)) => {
                        each(&pop.name, Ok(decided));
                        has_read = true;
                        continue;
                    }
                    Ok(None) => pop.finish(means, began).err(),
                    Err(error) => Some(error),
                };
                if let Some(error) = failed {
                    means.board.count(&pop.name, |numbers| numbers.failed += 1);
                    pop.not_before = clock::unix() + RETRY;
                    each(&pop.name, Err(error));
                }
                break;
            }
        }
        if has_read {
            self.means.look_for_unread();
        }
        Ok(Standing::Active)
    }

    /// Forgets what is known of `pop`, which this was opened for; its next policy, of a generation of its own, follows those of higher
    /// versions.
    ///
    /// # Errors
    /// It cannot be forgotten here, or in the database.
    pub(crate) fn reset(&mut self, pop: &str) -> Result<()> {
        let Self { means, pops, .. } = self;
        let pop = pops.iter_mut().find(|known| known.name == pop).context("opened for another point of presence")?;
        let generation = clock::unix().as_secs().max(pop.generation + 1);
        *pop = Pop::with(&pop.name, means, Some(Memory { generation, ..Memory::default() }))?;
        pop.save(means)
    }

    /// Lets another one decide.
    pub(crate) fn close(mut self) -> Result<()> {
        match (&mut self.turn, self.means.rounds.server()) {
            (Some(turn), Some((server, _))) => turn.give_back(server),
            _ => Ok(()),
        }
    }

    /// Whose turn it is. Who comes to decide takes up what the one before knew; who does not shows what the other publishes.
    pub(crate) fn take_turn(&mut self) -> Result<Standing> {
        let Self { means, pops, turn, forgotten, .. } = self;
        let (Some(turn), Some((server, database))) = (turn, means.rounds.server()) else {
            means.set_epoch(1);
            return Ok(Standing::Active);
        };
        let epoch = turn.handle_time(server).unwrap_or_else(|error| {
            tracing::debug!("{error:#}");
            None
        });
        means.board.set_until(turn.until());
        if epoch == Some(means.epoch) {
            return Ok(Standing::Active);
        }
        // Not ours while it is not known what the one before has left.
        means.epoch = 0;
        means.board.set_epoch(0);
        for (name, version) in memories(server, database)? {
            let Some(pop) = pops.iter_mut().find(|pop| pop.name == name && pop.recalled < version) else { continue };
            let Some(recalled) = recall(server, database, &name)? else { continue };
            let memory = Memory::from_bytes(&recalled);
            if forgotten.as_ref() == Some(&name) {
                pop.generation = pop.generation.max(memory.map_or(0, |memory| memory.generation));
                pop.recalled = version;
                continue;
            }
            let memory = match memory {
                Ok(memory) => memory,
                Err(error) => {
                    pop.break_off(version, &error);
                    continue;
                }
            };
            let sealed = memory.sealed.as_ref().filter(|sealed| sealed.until > clock::unix());
            if sealed.is_some_and(|sealed| !means.signer.has_signed(&sealed.bytes)) {
                bail!(
                    "another controller has signed the policy of `{name}` by another key, and edges may obey it still: give all \
                     controllers the same [controller] key; a new one can be used once that policy has expired"
                );
            }
            match Pop::with(&name, means, Some(memory.clone())) {
                Ok(taken_up) => {
                    // What cannot be saved later is not decided, and then this is what is known.
                    memory.save(&means.memory, &name)?;
                    *pop = Pop { recalled: version, ..taken_up };
                    pop.publish(means)?;
                }
                Err(error) => pop.break_off(version, &error),
            }
        }
        means.set_epoch(epoch.unwrap_or(0));
        let standing = match (epoch, turn.other()) {
            (Some(_), _) => Standing::Active,
            (None, Some(other)) => Standing::Standby(other.to_owned()),
            (None, None) => Standing::Waits,
        };
        if self.said.as_ref() != Some(&standing) {
            standing.say();
            self.said = Some(standing.clone());
        }
        Ok(standing)
    }
}

impl Standing {
    fn say(&self) {
        match self {
            Self::Active => tracing::info!("this controller decides"),
            Self::Waits => tracing::info!("no controller decides; this one may in a moment"),
            Self::Standby(other) => {
                tracing::info!("{other} decides; this controller does when that one is not heard of")
            }
        }
    }
}

impl Means {
    fn set_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.board.set_epoch(epoch);
    }

    /// Shows what the database could not read of Kafka's messages. Where that cannot be known, what was shown stays.
    fn look_for_unread(&self) {
        let Some((server, database)) = self.rounds.server() else { return };
        match unread(server, database, UNREAD_WITHIN) {
            Ok(found) => self.board.set_unread(found.into_iter().map(|of| (of.topic, of.messages)).collect()),
            Err(error) => tracing::debug!("{database}: {error}"),
        }
    }
}

impl Pop {
    /// Nothing is decided until another controller has left something that can be used: what it left under `recalled` cannot.
    fn break_off(&mut self, recalled: u64, why: &anyhow::Error) {
        let name = &self.name;
        self.broken = Some(format!(
            "what another controller knew of point of presence `{name}` cannot be used (`weirgate controller reset {name}` begins anew): {why:#}"
        ));
        self.recalled = recalled;
    }

    /// As it was left.
    fn load(name: &str, means: &Means) -> Result<Self> {
        let memory = Memory::load(&means.memory, name);
        let pop = memory.and_then(|memory| Self::with(name, means, memory));
        pop.with_context(|| {
            format!("what is known of point of presence `{name}` cannot be used (`weirgate controller reset {name}` begins anew)")
        })
    }

    /// As it was left; where that cannot be used, what says so.
    fn load_or_break(name: &str, means: &Means) -> Result<Self> {
        match Self::load(name, means) {
            Ok(pop) => Ok(pop),
            Err(error) => Ok(Self { broken: Some(format!("{error:#}")), ..Self::with(name, means, None)? }),
        }
    }

    /// With what is known of it, if anything is.
    fn with(name: &str, means: &Means, memory: Option<Memory>) -> Result<Self> {
        // Each has a seed of its own: who reads one policy knows nothing of another's arms.
        let trial_rounds = means.settings.canary.1;
        let config = weirgate_tune::Config { seed: means.signer.seed(name), trial_rounds, ..means.config.clone() };
        let Memory { generation, sealed, state } = memory.unwrap_or_default();
        let controller = match state.is_empty() {
            true => Controller::new(config, means.host.clone())?,
            false => Controller::load(config, means.host.clone(), &state)?,
        };
        let (number, ended) = controller.round();
        Ok(Self {
            name: name.to_owned(),
            is_published: sealed.is_none(),
            ended: (number > 0).then_some(ended),
            passed: None,
            again: None,
            share_ppm: means.settings.canary.0,
            not_before: UnixTime::default(),
            hosts: 0,
            recalled: 0,
            is_news: false,
            broken: None,
            controller,
            generation,
            sealed,
        })
    }

    /// Decides the next round whose data are there; `None`: none is left.
    fn advance(&mut self, means: &Means) -> Result<Option<Decided>> {
        let now = clock::unix();
        if now < self.not_before && self.not_before <= now + RETRY {
            return Ok(None);
        }
        if let Some(why) = &self.broken {
            bail!("{why}");
        }
        if let Some(ended) = self.ended.filter(|ended| *ended > now + AHEAD) {
            bail!(
                "its last round ended {} from now: was this clock ahead? Nothing is decided until then; `weirgate controller \
                 reset {}` begins anew",
                ended.saturating_since(now),
                self.name
            );
        }
        if !self.is_published {
            self.publish(means)?;
        }
        if self.next_end(&means.config, now) + means.settings.settle > now {
            return Ok(None);
        }
        let decided = self.decide(means)?;
        self.is_news |= decided.as_ref().is_some_and(|decided| decided.round.is_some());
        Ok(decided)
    }

    /// Seals and publishes what was decided.
    fn finish(&mut self, means: &Means, began: Instant) -> Result<()> {
        if !core::mem::take(&mut self.is_news) {
            return Ok(());
        }
        self.seal(means)?;
        means.board.count(&self.name, |numbers| numbers.took_s = began.elapsed().as_secs_f64());
        self.publish(means)
    }

    /// The end of the next round to decide: the one after the last, but no longer ago than what a history holds. Who knows nothing begins
    /// with the history that is there.
    fn next_end(&self, config: &weirgate_tune::Config, now: UnixTime) -> UnixTime {
        let round = config.round.as_nanos();
        let last = now.as_nanos() / round;
        let ended = self.passed.max(self.ended).map_or(0, |ended| ended.as_nanos() / round);
        let oldest = last.saturating_sub(u64::from(config.window_rounds).min(CATCH_UP));
        UnixTime::from_nanos((ended + 1).max(oldest).saturating_mul(round))
    }

    /// Decides the next round; `None`: its data may yet come.
    fn decide(&mut self, means: &Means) -> Result<Option<Decided>> {
        let Means { rounds, settings, config, board, .. } = means;
        let end = self.next_end(config, clock::unix());
        // All of it before anything is counted: a round that breaks off is asked for again.
        let (tallies, read) = rounds.read(&self.name, end, config)?;
        let hosts_before = Some(self.hosts).filter(|before| read.hosts.len() * 2 < *before);
        let patience = Duration::from_nanos(config.round.as_nanos() / 2);
        if (tallies.is_empty() || hosts_before.is_some()) && clock::unix() < end + settings.settle + patience {
            self.not_before = clock::unix() + RETRY;
            return Ok(None);
        }
        board.count(&self.name, |numbers| {
            numbers.skipped += read.skipped;
            numbers.unmatched += read.unmatched;
        });
        if tallies.is_empty() {
            // As if nobody had been there to decide: what was published last lives on until its time is over.
            self.passed = Some(end);
            // Who begins looks back as far as a history goes, and finds that there was nothing yet.
            let is_before_all = self.controller.round().0 == 0 && end + config.round + settings.settle <= clock::unix();
            let is_known = is_before_all || self.again >= Some(end);
            if !is_known {
                board.count(&self.name, |numbers| numbers.empty += 1);
            }
            return Ok(Some(Decided { end, read, hosts_before, round: None, is_known, halted: None }));
        }
        if self.ended.is_some() && self.passed > self.ended && self.again < Some(end) {
            // Where the database was away, or Kafka behind, data come in order: what was passed over may be there by now.
            (self.passed, self.again) = (None, Some(end));
            return self.decide(means);
        }
        self.share_ppm = canary::share_of(read.hosts.iter().map(String::as_str), settings.canary.0);
        tallies.iter().for_each(|tally| self.controller.handle_tally(tally));
        let round = self.controller.end_round(end, Some(end));
        let halted = round.halted.map(|effect| format!("all networks on trial are given up: together {effect}"));
        (self.ended, self.passed) = (Some(end), None);
        board.count(&self.name, |numbers| {
            numbers.decided += 1;
            numbers.halted += u64::from(halted.is_some());
            numbers.refused += u64::from(round.refusal.is_some());
            numbers.foreign += round.stats.ignored.foreign().count();
            numbers.partial += u64::from(hosts_before.is_some());
            (numbers.ended, numbers.rows, numbers.hosts) = (end, read.rows, read.hosts.len() as u64);
            (numbers.connections, numbers.votes) = (round.stats.connections, round.stats.votes());
        });
        self.hosts = read.hosts.len();
        Ok(Some(Decided { end, read, hosts_before, round: Some(round), is_known: false, halted }))
    }

    /// Signs what is in force, and keeps it with what is known.
    fn seal(&mut self, means: &Means) -> Result<()> {
        let (policy, first) = self.controller.in_parts();
        let now = clock::unix();
        let snapshot = Snapshot {
            pop: self.name.clone(),
            version: self.ended.unwrap_or_default().as_secs(),
            made: now,
            until: now + means.settings.life,
            generation: self.generation,
            policy,
            first: (self.share_ppm, first),
        };
        let bytes = snapshot.seal(|bytes| means.signer.sign(bytes));
        self.sealed = Some(Sealed { version: snapshot.version, until: snapshot.until, bytes });
        self.is_published = false;
        means.board.count(&self.name, |numbers| {
            numbers.networks = snapshot.policy.networks.len() as u64;
            numbers.on_trial = snapshot.first.1.len() as u64;
        });
        self.save(means).inspect_err(|_| self.forget_unsaved(means))
    }

    /// Where what was decided could not be kept, it was not decided.
    fn forget_unsaved(&mut self, means: &Means) {
        match Self::load(&self.name, means) {
            Ok(kept) => *self = kept,
            Err(error) => tracing::error!(pop = self.name, "{error:#}"),
        }
    }

    fn save(&mut self, means: &Means) -> Result<()> {
        let (generation, sealed, state) = (self.generation, self.sealed.clone(), self.controller.save());
        let memory = Memory { generation, sealed, state };
        if let (Some(_), Some((server, database))) = (means.settings.lease, means.rounds.server()) {
            let version = version(means.epoch, self.ended.unwrap_or_default());
            remember(server, database, (&self.name, version), &memory.to_bytes())?;
            self.recalled = version;
        }
        memory.save(&means.memory, &self.name)
    }

    /// Puts what was signed last where edges find it.
    fn publish(&mut self, means: &Means) -> Result<()> {
        let Some(sealed) = &self.sealed else { return Ok(()) };
        means.board.publish(&self.name, sealed);
        replace(&means.settings.publish.join(format!("{}.snapshot", self.name)), 0o644, &sealed.bytes)?;
        self.is_published = true;
        let what = if means.epoch > 0 { "published" } else { "handed on: another controller has published it" };
        tracing::info!(pop = self.name, version = sealed.version, bytes = sealed.bytes.len(), "{what}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Surroundings;

    #[test]
    fn what_is_damaged_of_one_point_of_presence_stops_that_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        Signer::load_or_make(&path("key")).unwrap();
        std::fs::create_dir_all(path("store")).unwrap();
        let text = format!(
            "[controller]\nstore = \"{}\"\npops = [\"ams\", \"fra\"]\nkey = \"{}\"\n",
            path("store").display(),
            path("key").display()
        );
        let around = Surroundings { host: "h".into(), state: path("state"), run: path("run") };
        let config = Config::from_text(&text, &around).unwrap();
        let memory = |pop: &str| path("state/controller").join(format!("{pop}.memory"));
        drop(Decider::open(&config, None).unwrap());

        std::fs::write(memory("ams"), b"damaged").unwrap();
        let mut decider = Decider::open(&config, None).unwrap();
        let mut failed = Vec::new();
        let standing = decider.handle_time(&mut |pop, decided| {
            if let Err(error) = decided {
                failed.push((pop.to_owned(), format!("{error:#}")));
            }
        });
        assert_eq!(standing.unwrap(), Standing::Active);
        assert!(
            matches!(&failed[..], [(pop, why)] if pop == "ams" && why.contains("weirgate controller reset ams")),
            "{failed:?}"
        );
        drop(decider);

        std::fs::write(memory("fra"), b"damaged").unwrap();
        let why = Decider::open(&config, None).err().unwrap().to_string();
        assert!(why.contains("`ams`") && why.contains("`fra`"), "{why}");
        assert!(Decider::open(&config, Some("nowhere")).is_err());
        let mut decider = Decider::open(&config, Some("ams")).unwrap();
        assert_eq!(decider.take_turn().unwrap(), Standing::Active);
        decider.reset("ams").unwrap();
        drop(decider);
        assert!(Decider::open(&config, None).is_ok());
    }
}
