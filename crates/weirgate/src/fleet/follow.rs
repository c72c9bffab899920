//! An edge that obeys its fleet's controller: it looks at the snapshot's file now and then, and takes what it may obey.
//!
//! What was obeyed last is kept beside this host's state: it is obeyed again after a restart for as long as it is alive, and nothing
//! older is ever obeyed. Where nothing is alive, nothing is treated.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use weirgate_tune::Policy;
use weirgate_tune::snapshot::{Held, Snapshot};
use weirgate_units::{Duration, UnixTime};

use super::controller::replace;
use super::keys::is_signed;
use crate::config::fleet::Fleet;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// The edge's side.
pub(crate) struct Follow {
    fleet: Fleet,
    host: String,
    pop: String,
    /// What was obeyed last, as it came, and its version, which outlives it.
    kept: PathBuf,
    held_file: PathBuf,
    held: Held,
    obeyed: Option<Snapshot>,
    /// What the file was like when it was looked at last: a clock's tick may be longer than the time between two of them.
    seen: Option<(SystemTime, u64, u64)>,
    looked: UnixTime,
    trouble: Option<String>,
    /// The last policy that was handed out.
    given: Option<Policy>,
}

impl Follow {
    /// Takes up what was obeyed last, if it is still alive.
    pub(crate) fn open(fleet: Fleet, host: &str, pop: &str, state: &Path, now: UnixTime) -> Self {
        let mut follow = Self {
            fleet,
            host: host.to_owned(),
            pop: pop.to_owned(),
            kept: state.join("policy.snapshot"),
            held_file: state.join("policy.held"),
            held: Held::default(),
            obeyed: None,
            seen: None,
            looked: UnixTime::default(),
            trouble: None,
            given: None,
        };
        if let Ok(bytes) = fs::read(&follow.kept)
            && let Ok(snapshot) = follow.check(Held::default(), &bytes, now)
        {
            follow.held = snapshot.held();
            follow.obeyed = Some(snapshot);
        }
        let text = fs::read_to_string(&follow.held_file).unwrap_or_default();
        let mut numbers = text.split_whitespace().filter_map(|number| number.parse().ok());
        if let (Some(version), Some(made)) = (numbers.next(), numbers.next())
            && version > follow.held.version
        {
            follow.held = Held { version, made: UnixTime::from_nanos(made) };
        }
        follow
    }

    /// To be called every second or so. The policy to obey from now on, where that is another than before.
    pub(crate) fn handle_time(&mut self, now: UnixTime) -> Option<Policy> {
        if now < self.looked || now.saturating_since(self.looked) >= LOOK {
            self.looked = now;
            self.look(now);
        }
        if self.obeyed.as_ref().is_some_and(|snapshot| !snapshot.is_alive(now)) {
            self.trouble = Some("the last policy has expired and no newer one has come: nothing is treated".into());
            self.obeyed = None;
        }
        let policy = self.obeyed.as_ref().map_or_else(Policy::default, |snapshot| snapshot.policy_for(&self.host));
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
    pub(crate) const fn obeyed(&self) -> Option<&Snapshot> {
        self.obeyed.as_ref()
    }

    /// The last policy that was handed out.
    pub(crate) const fn policy(&self) -> Option<&Policy> {
        self.given.as_ref()
    }

    fn look(&mut self, now: UnixTime) {
        let path = &self.fleet.policy;
        let seen = fs::metadata(path).and_then(|metadata| Ok((metadata.modified()?, metadata.len(), metadata.ino())));
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                self.trouble = Some(format!("{}: {error}", path.display()));
                self.seen = None;
                return;
            }
        };
        if self.seen == Some(seen) {
            return;
        }
        self.seen = Some(seen);
        let read = fs::read(path).map_err(|error| error.to_string());
        let checked = read.and_then(|bytes| {
            let snapshot = self.check(self.held, &bytes, now).map_err(|refused| refused.to_string())?;
            Ok((snapshot, bytes))
        });
        match checked {
            Ok((snapshot, bytes)) => {
                self.held = snapshot.held();
                let held = format!("{} {}\n", self.held.version, self.held.made.as_nanos());
                let kept = replace(&self.held_file, held.as_bytes()).and_then(|()| replace(&self.kept, &bytes));
                self.trouble =
                    kept.err().map(|error| format!("{error:#}: after a restart an older policy could be obeyed"));
                tracing::info!(
                    version = snapshot.version,
                    networks = snapshot.policy.networks.len(),
                    first = snapshot.first.1.len(),
                    "the fleet's policy is obeyed"
                );
                self.obeyed = Some(snapshot);
            }
            // The file as it is when this host starts again is what it obeys already.
            Err(_) if self.obeyed.as_ref().is_some_and(|obeyed| self.is(obeyed)) => self.trouble = None,
            Err(why) => {
                self.trouble =
                    Some(format!("{}: {why}; what was obeyed before is obeyed still", self.fleet.policy.display()))
            }
        }
    }

    /// Whether the file is of the snapshot that is obeyed.
    fn is(&self, obeyed: &Snapshot) -> bool {
        let read = fs::read(&self.fleet.policy);
        read.is_ok_and(|bytes| bytes.ends_with(&obeyed.to_bytes()))
    }

    fn check(&self, held: Held, bytes: &[u8], now: UnixTime) -> Result<Snapshot, weirgate_tune::snapshot::Refused> {
        held.check(bytes, &self.pop, now, |signed, signature| is_signed(&self.fleet.trust, signed, signature))
    }
}

#[cfg(test)]
mod tests {
    use weirgate_sockets::sample::CcName;

    use super::*;
    use crate::fleet::keys::Signer;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// A fleet of one controller and one edge, and time as it is told.
    struct Ground {
        folder: tempfile::TempDir,
        signer: Signer,
        now: UnixTime,
    }

    impl Ground {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let signer = Signer::load_or_make(&folder.path().join("key")).unwrap();
            Self { folder, signer, now: UnixTime::from_nanos(1_800_000_000_000_000_000) }
        }

        fn edge(&self) -> Follow {
            let trust = vec![self.signer.public().parse().unwrap()];
            let fleet = Fleet { policy: self.folder.path().join("ams.snapshot"), trust };
            Follow::open(fleet, "edge-1", "ams", self.folder.path(), self.now)
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
                goes_back: false,
                policy: Policy { networks, ..Policy::default() },
                first: (0, vec![]),
            }
        }

        fn publish(&self, snapshot: &Snapshot, signer: &Signer) {
            let bytes = snapshot.seal(|bytes| signer.sign(bytes));
            replace(&self.folder.path().join("ams.snapshot"), &bytes).unwrap();
        }

        /// Ten seconds later.
        fn look(&mut self, edge: &mut Follow) -> Option<usize> {
            self.now = self.now + Duration::from_secs(10);
            edge.handle_time(self.now).map(|policy| policy.networks.len())
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
        ground.now = ground.now + HOUR;
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
        for (bytes, why) in
            [(forged, "not signed"), (torn, "not signed"), (again, "is older than 6"), (fra, "point of presence `fra`")]
        {
            replace(&path, &bytes).unwrap();
            assert_eq!(ground.look(&mut edge), None, "{why}");
            let said = edge.trouble().unwrap();
            assert!(said.contains(why) && said.contains("is obeyed still"), "{said}");
            assert_eq!(edge.obeyed().unwrap().version, 6);
        }
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
        assert!(edge.trouble().unwrap().contains("is older than 6"));
        drop(edge);
        std::fs::remove_file(ground.folder.path().join("ams.snapshot")).unwrap();
        let mut edge = ground.edge();
        assert_eq!(ground.look(&mut edge), Some(2));
        drop(edge);
        // Expired meanwhile: nothing is treated, and the older one, which lives longer, is refused all the same.
        ground.publish(&Snapshot { until: old.until + HOUR + HOUR, ..old }, &ground.signer);
        ground.now = ground.now + HOUR;
        let mut edge = ground.edge();
        assert_eq!(ground.look(&mut edge), Some(0));
        assert!(edge.trouble().unwrap().contains("is older than 6"), "{:?}", edge.trouble());
    }
}
