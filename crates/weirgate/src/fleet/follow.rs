//! An edge that obeys its fleet's controller: it looks where policies come from now and then, and takes what it may obey.
//!
//! What was obeyed last is kept beside this host's state: it is obeyed again after a restart for as long as it is alive, and nothing
//! older is ever obeyed. Where that file cannot be read, nothing older than what comes next is: that is said, and counted. Where nothing is
//! alive, nothing is treated. How long it lives is counted from when it came by the clock that
//! nobody sets, too, so that a civil clock that is set back prolongs nothing.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::SystemTime;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::OFlags;
use weirgate_tune::Policy;
use weirgate_tune::snapshot::{Held, Refused, SIZE_MAX, Snapshot};
use weirgate_units::{Duration, Instant, UnixTime};

use super::fetch::{self, News};
use super::keys::is_signed;
use super::{replace, topic};
use crate::config::fleet::{Fleet, Key, Origin};
use crate::config::{Host, Kafka};

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// What a file begins with that keeps what was obeyed.
const MAGIC: &[u8; 4] = b"WGH2";

/// The edge's side.
pub(crate) struct Follow {
    source: Source,
    trust: Vec<Key>,
    host: String,
    pop: String,
    /// The version of what was obeyed last, which outlives it, and what it was, as it came: one file, so that neither is older.
    kept: PathBuf,
    held: Held,
    obeyed: Option<Obeyed>,
    /// What was made in the future by a clock that is behind, as those of hosts without one of their own are at first, and what it has to be
    /// newer than. What has expired is not tried again: a clock that is set back would bring it to life.
    put_off: Option<(Held, Vec<u8>)>,
    /// When that was looked at last.
    looked: Instant,
    trouble: Option<String>,
    /// Who did not answer last, and why.
    unheard: String,
    /// Whether that is that nothing could be had, which an answer ends.
    is_unheard: bool,
    counts: Counts,
    /// The last policy that was handed out.
    given: Option<Policy>,
    /// Whether what is obeyed has changed since then.
    is_new: bool,
}

/// What time it is, by the civil clock and since the machine was started.
pub(crate) type Now = (UnixTime, Instant);

/// A snapshot that may be obeyed, and how it came.
struct Obeyed {
    snapshot: Snapshot,
    bytes: Vec<u8>,
    /// When its time is over by the clock that nobody sets.
    deadline: Instant,
}

/// What became of snapshots that came, since this daemon was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Obeyed.
    pub(crate) obeyed: u64,
    /// Refused, for each of [`WHYS`].
    pub(crate) refused: [u64; WHYS.len()],
    /// That expired before a newer one came.
    pub(crate) expired: u64,
    /// Times that a controller did not answer, or nothing could be had.
    pub(crate) failed: u64,
    /// 1 where it is not known what was obeyed before this daemon was started, though something was.
    pub(crate) forgotten: u64,
}

/// Why snapshots are refused.
pub(crate) const WHYS: [&str; 6] = ["damaged", "signature", "other_pop", "older", "expired", "future"];

enum Source {
    File {
        path: PathBuf,
        /// What it was like when it was looked at last: a clock's tick may be longer than the time between two of them.
        seen: Option<(SystemTime, u64, u64)>,
        looked: UnixTime,
    },
    /// Somebody who asks.
    Asking(Receiver<News>),
    /// Who asked has ended.
    Nowhere,
}

impl Follow {
    /// Takes up what was obeyed last, if it is still alive.
    ///
    /// # Errors
    /// Nobody can be set to ask.
    pub(crate) fn open(fleet: Fleet, kafka: Option<&Kafka>, host: &Host, now: Now) -> Result<Self> {
        let Host { name: host, pop, state } = host;
        let source = match fleet.origin {
            Origin::File(path) => Source::File { path, seen: None, looked: UnixTime::default() },
            Origin::Controllers(controllers) => Source::Asking(fetch::from_controllers(controllers, pop)?),
            Origin::Topic(topic) => {
                Source::Asking(topic::subscribe(kafka.context("[export.kafka] names the brokers")?, &topic, pop)?)
            }
        };
        let mut follow = Self {
            source,
            trust: fleet.trust,
            host: host.clone(),
            pop: pop.clone(),
            kept: kept(state),
            held: Held::default(),
            obeyed: None,
            put_off: None,
            looked: now.1,
            trouble: None,
            unheard: String::new(),
            is_unheard: false,
            counts: Counts::default(),
            given: None,
            is_new: true,
        };
        match load(&follow.kept) {
            Ok(None) => {}
            Ok(Some((held, bytes))) => {
                follow.held = held;
                match follow.check(Held::default(), &bytes, now.0) {
                    Ok(snapshot) => follow.obeyed = Some(Obeyed::new(snapshot, bytes, now)),
                    Err(why) if is_early(&why) => follow.put_off = Some((Held::default(), bytes)),
                    Err(_) => {}
                }
            }
            Err(problem) => {
                let why =
                    format!("{problem:#}: which policy was obeyed is not known, and an older one may be obeyed now");
                tracing::error!("{why}");
                follow.trouble = Some(why);
                follow.counts.forgotten = 1;
            }
        }
        Ok(follow)
    }

    /// To be called every second or so. The policy to obey from now on, where that is another than before.
    pub(crate) fn handle_time(&mut self, now: Now) -> Option<Policy> {
        for news in self.look(now.0) {
            self.handle_news(news, now);
        }
        if self.put_off.is_some() && now.1.saturating_since(self.looked) >= LOOK {
            self.looked = now.1;
            self.try_again(now);
        }
        if self.obeyed.as_ref().is_some_and(|obeyed| !obeyed.is_alive(now)) {
            let why = "the last policy has expired and no newer one has come: nothing is treated";
            tracing::warn!("{why}");
            self.trouble = Some(why.into());
            self.counts.expired += 1;
            self.obeyed = None;
            self.is_new = true;
        }
        if !core::mem::take(&mut self.is_new) {
            return None;
        }
        let policy = self.obeyed.as_ref().map_or_else(Policy::default, |obeyed| obeyed.snapshot.policy_for(&self.host));
        let same = |given: &Policy| Policy { version: given.version, ..policy.clone() } == *given;
        if self.given.as_ref().is_some_and(same) {
            return None;
        }
        // Of this host's own count: edges that go first and others have different ones.
        let version = self.given.as_ref().map_or(1, |given| given.version.saturating_add(1));
        self.given = Some(Policy { version, ..policy });
        self.given.clone()
    }

    /// What is in the way of obeying, for people.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }

    /// What is obeyed; `None`: nothing is alive.
    pub(crate) fn obeyed(&self) -> Option<&Snapshot> {
        self.obeyed.as_ref().map(|obeyed| &obeyed.snapshot)
    }

    /// Until when, by the clock that nobody sets.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.obeyed.as_ref().map(|obeyed| obeyed.deadline)
    }

    /// What became of what came.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    /// The last policy that was handed out.
    pub(crate) const fn policy(&self) -> Option<&Policy> {
        self.given.as_ref()
    }

    /// What is new where policies come from.
    fn look(&mut self, now: UnixTime) -> Vec<News> {
        match &mut self.source {
            Source::Asking(news) => {
                let mut all = Vec::new();
                loop {
                    match news.try_recv() {
                        Ok(one) => all.push(one),
                        Err(TryRecvError::Empty) => return all,
                        Err(TryRecvError::Disconnected) => {
                            all.push(News::Trouble("nobody asks any more: restart the daemon; see the log".into()));
                            self.source = Source::Nowhere;
                            return all;
                        }
                    }
                }
            }
            Source::Nowhere => vec![],
            Source::File { path, seen, looked } => {
                if now >= *looked && now.saturating_since(*looked) < LOOK {
                    return vec![];
                }
                *looked = now;
                let read = read(path, seen);
                if read.is_err() {
                    *seen = None;
                }
                match read {
                    Ok(None) => vec![],
                    Ok(Some(bytes)) => vec![News::Snapshot(bytes)],
                    Err(error) => vec![News::Trouble(format!("{}: {error:#}", path.display()))],
                }
            }
        }
    }

    /// Nothing can be had.
    fn handle_silence(&mut self, why: String) {
        self.trouble = Some(why);
        self.is_unheard = true;
    }

    /// The clock may be right by now.
    fn try_again(&mut self, now: Now) {
        let Some((held, bytes)) = self.put_off.take() else { return };
        match self.check(held, &bytes, now.0) {
            Ok(snapshot) => self.obey(Obeyed::new(snapshot, bytes, now)),
            Err(why) if is_early(&why) => self.put_off = Some((held, bytes)),
            Err(_) => {}
        }
    }

    fn handle_news(&mut self, news: News, now: Now) {
        let bytes = match news {
            News::Snapshot(bytes) => bytes,
            News::Same => {
                // Who asked before in vain has been answered. What was refused is refused still.
                if core::mem::take(&mut self.is_unheard) && self.obeyed.is_some() {
                    self.trouble = None;
                }
                return;
            }
            News::Unheard(why) => {
                self.counts.failed += 1;
                if self.unheard != why {
                    tracing::warn!("{why}");
                    self.unheard = why;
                }
                return;
            }
            // Each of them was counted, and said.
            News::Nobody(why) => return self.handle_silence(why),
            News::Trouble(why) => {
                self.counts.failed += 1;
                if !self.is_unheard {
                    tracing::warn!("fleet: {why}");
                }
                return self.handle_silence(why);
            }
        };
        self.is_unheard = false;
        // As it is when this host starts again, for example.
        if self.obeyed.as_ref().is_some_and(|obeyed| obeyed.bytes == bytes) {
            self.trouble = None;
            return;
        }
        match self.check(self.held, &bytes, now.0) {
            Ok(snapshot) => self.obey(Obeyed::new(snapshot, bytes, now)),
            Err(why) => {
                if is_early(&why) {
                    self.put_off = Some((self.held, bytes));
                }
                self.counts.refused[place(&why)] += 1;
                let still =
                    if self.obeyed.is_some() { "what was obeyed before is obeyed still" } else { "nothing is treated" };
                let from = match &self.source {
                    Source::File { path, .. } => format!("{}: ", path.display()),
                    Source::Asking(_) | Source::Nowhere => String::new(),
                };
                let why = format!("{from}{why}; {still}");
                tracing::warn!("a policy is refused: {why}");
                self.trouble = Some(why);
            }
        }
    }

    fn obey(&mut self, new: Obeyed) {
        let snapshot = &new.snapshot;
        self.held = snapshot.held();
        self.put_off = None;
        let numbers = [self.held.generation, self.held.version].map(u64::to_le_bytes);
        let kept = replace(&self.kept, 0o600, &[&MAGIC[..], numbers.as_flattened(), &new.bytes].concat());
        self.trouble = kept.err().map(|error| format!("{error:#}: after a restart an older policy could be obeyed"));
        tracing::info!(
            version = snapshot.version,
            networks = snapshot.policy.networks.len(),
            first = snapshot.first.1.len(),
            "the fleet's policy is taken"
        );
        self.counts.obeyed += 1;
        self.obeyed = Some(new);
        self.is_new = true;
    }

    fn check(&self, held: Held, bytes: &[u8], now: UnixTime) -> Result<Snapshot, Refused> {
        held.check(bytes, &self.pop, now, |signed, signature| is_signed(&self.trust, signed, signature))
    }
}

impl Obeyed {
    fn new(snapshot: Snapshot, bytes: Vec<u8>, (now, since_boot): Now) -> Self {
        let deadline = since_boot + snapshot.until.saturating_since(now);
        Self { snapshot, bytes, deadline }
    }

    fn is_alive(&self, (now, since_boot): Now) -> bool {
        self.snapshot.is_alive(now) && since_boot < self.deadline
    }
}

/// Whether it may be obeyed later.
const fn is_early(why: &Refused) -> bool {
    matches!(why, Refused::Future(_))
}

/// The place of a reason in [`WHYS`].
const fn place(why: &Refused) -> usize {
    match why {
        Refused::Damaged(_) => 0,
        Refused::Signature => 1,
        Refused::OtherPop(_) => 2,
        Refused::Older { .. } => 3,
        Refused::Expired(_) => 4,
        Refused::Future(_) => 5,
    }
}

/// What the host knows of the policy that it obeyed last; nothing, where it has obeyed none.
///
/// # Errors
/// It has, and that cannot be read.
pub(super) fn held(host: &Host) -> Result<Held> {
    Ok(load(&kept(&host.state))?.map_or_else(Held::default, |(held, _)| held))
}

/// The file that holds that, of a host that keeps its state in `state`.
fn kept(state: &Path) -> PathBuf {
    state.join("policy.kept")
}

/// What is kept in a file; `None`: there is none.
fn load(path: &Path) -> Result<Option<(Held, Vec<u8>)>> {
    let kept = match fs::read(path) {
        Ok(kept) => kept,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    let (held, bytes) = split(&kept).with_context(|| format!("{}: is damaged", path.display()))?;
    Ok(Some((held, bytes.to_vec())))
}

/// The two parts of what is kept.
fn split(kept: &[u8]) -> Option<(Held, &[u8])> {
    let (generation, rest) = kept.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
    let (version, bytes) = rest.split_first_chunk::<8>()?;
    let [generation, version] = [generation, version].map(|bytes| u64::from_le_bytes(*bytes));
    Some((Held { generation, version }, bytes))
}

/// What is in the file at `path`, where that is another than was `seen` there.
fn read(path: &Path, seen: &mut Option<(SystemTime, u64, u64)>) -> Result<Option<Vec<u8>>> {
    // A pipe would be waited for.
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    let metadata = file.metadata()?;
    ensure!(metadata.is_file(), "is no file");
    let now = (metadata.modified()?, metadata.len(), metadata.ino());
    if *seen == Some(now) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(SIZE_MAX.as_u64() + 1).read_to_end(&mut bytes).context("cannot be read")?;
    *seen = Some(now);
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use weirgate_sockets::sample::CcName;
    use weirgate_tune::snapshot::SIGNATURE;

    use super::*;
    use crate::fleet::keys::Signer;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// A fleet of one controller and one edge, and time as it is told.
    struct Ground {
        folder: tempfile::TempDir,
        signer: Signer,
        now: UnixTime,
        since_boot: Instant,
    }

    impl Ground {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let signer = Signer::load_or_make(&folder.path().join("key")).unwrap();
            let now = UnixTime::from_nanos(1_800_000_000_000_000_000);
            Self { folder, signer, now, since_boot: Instant::from_nanos(60_000_000_000) }
        }

        fn time(&self) -> Now {
            (self.now, self.since_boot)
        }

        fn pass(&mut self, time: Duration) {
            (self.now, self.since_boot) = (self.now + time, self.since_boot + time);
        }

        fn edge(&self) -> Follow {
            let trust = vec![self.signer.public().parse().unwrap()];
            let fleet = Fleet { origin: Origin::File(self.folder.path().join("ams.snapshot")), trust };
            let host = Host { name: "edge-1".into(), pop: "ams".into(), state: self.folder.path().to_owned() };
            Follow::open(fleet, None, &host, self.time()).unwrap()
        }

        /// A snapshot that selects `networks`, each a number.
        fn snapshot(&self, version: u64, networks: &[u8]) -> Snapshot {
            let cc = CcName::new("bbr").unwrap();
            let networks = networks.iter().map(|n| (format!("10.0.{n}.0/24").parse().unwrap(), cc)).collect();
            Snapshot {
                pop: "ams".to_owned(),
                version,
                made: self.now,
                until: self.now + HOUR,
                generation: 0,
                policy: Policy { networks, ..Policy::default() },
                first: (0, vec![]),
            }
        }

        fn publish(&self, snapshot: &Snapshot, signer: &Signer) {
            let bytes = snapshot.seal(|bytes| signer.sign(bytes));
            replace(&self.folder.path().join("ams.snapshot"), 0o644, &bytes).unwrap();
        }

        /// Ten seconds later.
        fn look(&mut self, edge: &mut Follow) -> Option<usize> {
            self.pass(Duration::from_secs(10));
            edge.handle_time(self.time()).map(|policy| policy.networks.len())
        }
    }

    #[test]
    fn what_is_signed_is_obeyed_until_it_expires() {
        let mut ground = Ground::new();
        let mut edge = ground.edge();
        assert_eq!(ground.look(&mut edge), Some(0), "nothing is treated");
        assert!(edge.trouble().unwrap().contains("No such file"));
        ground.publish(&ground.snapshot(1, &[1, 2]), &ground.signer);
        assert_eq!((ground.look(&mut edge), edge.trouble()), (Some(2), None));
        assert_eq!(ground.look(&mut edge), None);
        ground.publish(&ground.snapshot(2, &[1, 2, 3]), &ground.signer);
        assert_eq!(ground.look(&mut edge), Some(3));
        assert_eq!(edge.policy().unwrap().version, 3, "counted by the edge");
        ground.pass(HOUR);
        assert_eq!(ground.look(&mut edge), Some(0));
        assert!(edge.trouble().unwrap().contains("has expired") && edge.obeyed().is_none());
        ground.publish(&ground.snapshot(3, &[4]), &ground.signer);
        assert_eq!((ground.look(&mut edge), edge.trouble()), (Some(1), None));
    }

    #[test]
    fn what_is_forged_old_or_torn_changes_nothing() {
        let mut ground = Ground::new();
        let mut edge = ground.edge();
        let old = ground.snapshot(5, &[1]);
        ground.publish(&old, &ground.signer);
        assert_eq!(ground.look(&mut edge), Some(1));
        ground.publish(&ground.snapshot(6, &[1, 2]), &ground.signer);
        assert_eq!(ground.look(&mut edge), Some(2));
        let other = tempfile::tempdir().unwrap();
        let stranger = Signer::load_or_make(&other.path().join("key")).unwrap();
        let path = ground.folder.path().join("ams.snapshot");
        let forged = ground.snapshot(7, &[1, 2, 3, 4]).seal(|bytes| stranger.sign(bytes));
        let torn = ground.snapshot(8, &[9]).seal(|bytes| ground.signer.sign(bytes))[..90].to_vec();
        let again = old.seal(|bytes| ground.signer.sign(bytes));
        let fra = Snapshot { pop: "fra".to_owned(), ..ground.snapshot(9, &[9]) };
        let fra = fra.seal(|bytes| ground.signer.sign(bytes));
        for (bytes, why) in [
            (forged, "not signed"),
            (torn, "not signed"),
            (again, "is not newer than 6"),
            (fra, "point of presence `fra`"),
        ] {
            replace(&path, 0o644, &bytes).unwrap();
            assert_eq!(ground.look(&mut edge), None, "{why}");
            let said = edge.trouble().unwrap();
            assert!(said.contains(why) && said.contains("is obeyed still"), "{said}");
            assert_eq!(edge.obeyed().unwrap().version, 6);
        }
    }

    #[test]
    fn what_is_refused_is_said_until_something_better_comes() {
        let mut ground = Ground::new();
        ground.publish(&ground.snapshot(6, &[1, 2, 3]), &ground.signer);
        let mut edge = ground.edge();
        assert_eq!(ground.look(&mut edge), Some(3));
        let now = ground.time();
        edge.handle_news(News::Trouble("nobody answers".into()), now);
        edge.handle_news(News::Same, now);
        assert_eq!(edge.trouble(), None);
        let forged = ground.snapshot(7, &[1]).seal(|_| [0; SIGNATURE]);
        edge.handle_news(News::Snapshot(forged), now);
        edge.handle_news(News::Same, now);
        edge.handle_news(News::Unheard("one of two does not answer".into()), now);
        assert!(edge.trouble().unwrap().contains("not signed"), "{:?}", edge.trouble());
        assert_eq!(edge.counts().failed, 2);
        let good = ground.snapshot(8, &[1]).seal(|bytes| ground.signer.sign(bytes));
        edge.handle_news(News::Snapshot(good), now);
        assert_eq!(edge.trouble(), None);
    }

    #[test]
    fn a_restart_obeys_what_was_obeyed_and_nothing_older() {
        let mut ground = Ground::new();
        let old = ground.snapshot(5, &[1]);
        ground.publish(&ground.snapshot(6, &[1, 2]), &ground.signer);
        let mut edge = ground.edge();
        assert_eq!(ground.look(&mut edge), Some(2));
        drop(edge);
        // The file is what it was, then somebody puts an older one there, then it is gone.
        let mut edge = ground.edge();
        assert_eq!((ground.look(&mut edge), edge.trouble()), (Some(2), None));
        drop(edge);
        ground.publish(&old, &ground.signer);
        let mut edge = ground.edge();
        assert_eq!(ground.look(&mut edge), Some(2));
        assert!(edge.trouble().unwrap().contains("is not newer than 6"));
        drop(edge);
        std::fs::remove_file(ground.folder.path().join("ams.snapshot")).unwrap();
        let mut edge = ground.edge();
        assert_eq!(ground.look(&mut edge), Some(2));
        drop(edge);
        // Expired meanwhile: nothing is treated, and the older one, which lives longer, is refused all the same.
        ground.publish(&Snapshot { until: old.until + HOUR + HOUR, ..old }, &ground.signer);
        ground.pass(HOUR);
        let mut edge = ground.edge();
        assert_eq!(ground.look(&mut edge), Some(0));
        assert!(edge.trouble().unwrap().contains("is not newer than 6"), "{:?}", edge.trouble());
    }

    #[test]
    fn that_it_is_not_known_what_was_obeyed_is_said_and_counted() {
        let mut ground = Ground::new();
        let kept = ground.folder.path().join("policy.kept");
        assert_eq!((ground.edge().trouble(), ground.edge().counts().forgotten), (None, 0));
        ground.publish(&ground.snapshot(6, &[1, 2]), &ground.signer);
        assert_eq!(ground.look(&mut ground.edge()), Some(2));
        std::fs::write(&kept, "x").unwrap();
        std::fs::remove_file(ground.folder.path().join("ams.snapshot")).unwrap();
        let edge = ground.edge();
        assert!(edge.trouble().unwrap().contains("policy.kept: is damaged: which policy was obeyed is not known"));
        assert_eq!(edge.counts().forgotten, 1);
        std::fs::remove_file(&kept).unwrap();
        std::fs::create_dir(&kept).unwrap();
        assert!(ground.edge().trouble().unwrap().contains("Is a directory"));
    }

    #[test]
    fn a_clock_that_is_set_back_prolongs_nothing() {
        let mut ground = Ground::new();
        ground.publish(&ground.snapshot(1, &[1, 2]), &ground.signer);
        let mut edge = ground.edge();
        assert_eq!(ground.look(&mut edge), Some(2));
        ground.now = UnixTime::from_nanos(ground.now.as_nanos() - HOUR.as_nanos());
        assert_eq!(ground.look(&mut edge), None);
        ground.pass(HOUR);
        assert_eq!(ground.look(&mut edge), Some(0), "its hour is over, whatever the civil clock says");
    }

    #[test]
    fn what_a_clock_that_is_behind_was_in_the_way_of_is_obeyed_when_it_is_right() {
        let mut ground = Ground::new();
        let right = ground.now;
        ground.publish(&ground.snapshot(1, &[1, 2]), &ground.signer);
        ground.now = UnixTime::default();
        let mut edge = ground.edge();
        assert_eq!((ground.look(&mut edge), edge.obeyed().is_none()), (Some(0), true));
        // The file does not change, and is not read again.
        ground.now = right;
        assert_eq!((ground.look(&mut edge), edge.trouble()), (Some(2), None));
        // Kept, it is the same after a restart, without a word from anybody.
        std::fs::remove_file(ground.folder.path().join("ams.snapshot")).unwrap();
        ground.now = UnixTime::default();
        let mut edge = ground.edge();
        assert_eq!(ground.look(&mut edge), Some(0));
        ground.now = right;
        assert_eq!(ground.look(&mut edge), Some(2));
        // What had expired when the host was started is not brought to life by a clock that is set back then.
        ground.now = right + HOUR + HOUR;
        let mut edge = ground.edge();
        assert_eq!(ground.look(&mut edge), Some(0));
        ground.now = right;
        assert_eq!(ground.look(&mut edge), None);
        assert!(edge.obeyed().is_none());
    }
}
