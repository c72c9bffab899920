//! Every change to the kernel, written down before it is made.
//!
//! One JSON object per line, each synced to the disk before the change: `version`, `sequence`, `time`, `boot`, `actor`,
//! `object` (what is changed, with a `kind`), `before` and `after` (null: not there). A line with `undoes` in place of an
//! `object` says that the change of that sequence number is undone.
//!
//! Ground rules. Only the daemon appends changes, and it applies nothing that could not be written. Only [`undo`] (the
//! command, or the daemon as it stops) marks them undone. A reader takes what it understands: a torn last line is the
//! crash it was written for, unknown fields are a newer version's, and an unknown kind of object is reported, not guessed.

mod kernel;
mod undo;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

pub use kernel::HostKernel;
pub(crate) use kernel::sysctl;
pub use undo::{Kernel, KernelError, Outcome, Undone, undo};

/// The version of the format that this program writes. Raised when a reader of the old one would undo wrongly.
pub const VERSION: u32 = 1;

/// A journal larger than this, with nothing left to undo, is started afresh (the old one is kept as `.1`): a year of
/// rounds that change ten networks each is about 60 MB.
const LEN_MAX: u64 = 64 << 20;

/// What [`Change::after`] says of an object that is only there or not.
pub const PRESENT: &str = "present";

/// A thing in the kernel that can be changed and put back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Object {
    /// A directory of pinned programs, links and maps, attached to a cgroup. Taking it back sweeps the connections first.
    Pins {
        /// The directory on the BPF file system.
        dir: PathBuf,
        /// Network namespaces, by path, whose connections the programs may have changed; empty is the daemon's own.
        namespaces: Vec<PathBuf>,
    },
    /// The policy in the pinned maps: it goes when they go.
    Policy {
        /// The directory on the BPF file system.
        dir: PathBuf,
    },
    /// A BPF file system, where none was mounted. It stays where somebody else has pinned something in it since.
    Mount {
        /// The folder it is on.
        path: PathBuf,
    },
    /// Routes that name a congestion control, in a table of their own, and the rule that leads there.
    Routes {
        /// The network namespace's path; empty is the daemon's own.
        namespace: PathBuf,
        /// The routing table.
        table: u32,
        /// The rule's priority.
        priority: u32,
    },
    /// A table of nftables' family `inet`, with all that is in it.
    NftTable {
        /// The network namespace's path; empty is the daemon's own.
        namespace: PathBuf,
        /// Its name.
        table: String,
    },
    /// Routing tables by which firewall marks lead to uplinks, and the rules that lead to them.
    Ways {
        /// The network namespace's path; empty is the daemon's own.
        namespace: PathBuf,
        /// The first of the tables.
        table: u32,
        /// The first of the rules' priorities.
        priority: u32,
    },
    /// A setting of the kernel, below /proc/sys.
    Sysctl {
        /// The network namespace's path; empty is the daemon's own.
        namespace: PathBuf,
        /// Its path there, as `net/ipv4/conf/eth0/rp_filter`.
        key: String,
    },
    /// An object of a kind that this version does not know.
    #[serde(other)]
    Unknown,
}

impl Object {
    /// Whether it is for the steering of new connections over uplinks; otherwise it is for that of congestion control.
    pub const fn is_of_uplinks(&self) -> bool {
        matches!(self, Self::NftTable { .. } | Self::Ways { .. } | Self::Sysctl { .. })
    }
}

/// Who made a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// What it was: `round`, `start`, `stop` of the daemon itself, or `control` for a request through the socket.
    pub name: String,
    /// The user, by the kernel's word (SO_PEERCRED), or the daemon's own.
    pub uid: u32,
    /// The process.
    pub pid: u32,
}

impl Actor {
    /// The daemon itself, at `name`.
    pub fn own(name: &str) -> Self {
        Self { name: name.to_owned(), uid: rustix::process::geteuid().as_raw(), pid: std::process::id() }
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What is changed.
    pub object: Object,
    /// What it was; `None`: it was not there.
    pub before: Option<String>,
    /// What it is made to be; `None`: removed.
    pub after: Option<String>,
}

/// A change as it stands in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// [`VERSION`] of the writer.
    pub version: u32,
    /// Counts the lines of one journal, from 1.
    pub sequence: u64,
    /// Nanoseconds since 1970, for people; order is by `sequence`.
    pub time: u64,
    /// `/proc/sys/kernel/random/boot_id` when it was written: nothing in a kernel outlives it.
    pub boot: String,
    /// By whom.
    pub actor: Actor,
    /// The change.
    #[serde(flatten)]
    pub change: Change,
}

#[derive(Serialize, Deserialize)]
struct Mark {
    version: u32,
    sequence: u64,
    time: u64,
    undoes: u64,
    outcome: String,
}

/// Why the journal cannot be used. Nothing may be changed then.
#[derive(Debug, thiserror::Error)]
#[error("the journal {path}: {source}; nothing is changed that cannot be written down: {advice}")]
pub struct JournalError {
    path: PathBuf,
    source: io::Error,
    advice: &'static str,
}

/// The journal, open for writing. Several may be open at once: each counts on from the others.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    boot: String,
    sequence: u64,
    /// Of the file, as this one knows it.
    len: u64,
}

/// What a journal says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Changes that are not undone, oldest first; of the policies in one place the last, which replaced the others.
    pub open: Vec<Entry>,
    /// Changes that are, or that a later policy replaced.
    pub closed: usize,
    /// Whether the last line is torn: the crash came while it was written, so its change was never made.
    pub torn: bool,
    /// Lines that say nothing to this version, as their numbers.
    pub unreadable: Vec<usize>,
    sequence: u64,
}

impl Reading {
    /// Whether nothing is left to undo, not even by a newer version.
    pub const fn is_settled(&self) -> bool {
        self.open.is_empty() && self.unreadable.is_empty()
    }
}

/// Reads the journal at `path`; a missing one is empty.
pub fn read(path: &Path) -> Result<Reading, JournalError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(parse(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Reading::default()),
        Err(error) => Err(JournalError::new(path, error)),
    }
}

impl Journal {
    /// Opens the journal at `path` to append to it, and makes it and its directory where they are missing, for their
    /// owner only. A torn last line is ended, so that the next one stands alone.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        Self::open_io(path).map_err(|error| JournalError::new(path, error))
    }

    fn open_io(path: &Path) -> io::Result<Self> {
        if let Some(dir) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let reading = parse(&bytes);
        if bytes.len() as u64 > LEN_MAX && reading.open.is_empty() {
            std::fs::rename(path, path.with_extension("jsonl.1"))?;
            file = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(path)?;
        } else if bytes.last().is_some_and(|byte| *byte != b'\n') {
            file.seek(SeekFrom::End(0))?;
            file.write_all(b"\n")?;
        }
        if let Some(dir) = path.parent() {
            // The file's name must survive a crash as well.
            File::open(dir)?.sync_all()?;
        }
        let (boot, len) = (boot_id()?, file.metadata()?.len());
        Ok(Self { path: path.to_owned(), file, boot, sequence: reading.sequence, len })
    }

    /// Writes `change` down and waits for the disk. Only after `Ok` may the change be made.
    pub fn record(&mut self, actor: &Actor, change: Change) -> Result<u64, JournalError> {
        let (boot, actor) = (self.boot.clone(), actor.clone());
        self.append(|sequence| Entry { version: VERSION, sequence, time: now(), boot, actor, change })
    }

    /// Writes down that the change `undoes` is undone, or needs no undoing, because of `outcome`.
    pub fn mark(&mut self, undoes: u64, outcome: &str) -> Result<(), JournalError> {
        let outcome = outcome.to_owned();
        self.append(|sequence| Mark { version: VERSION, sequence, time: now(), undoes, outcome }).map(drop)
    }

    /// Appends a line with the next number, which it returns.
    fn append<T: Serialize>(&mut self, line: impl FnOnce(u64) -> T) -> Result<u64, JournalError> {
        // Until the end of this call nobody else appends.
        let locked = flock(&self.file, FlockOperation::LockExclusive).map_err(io::Error::from);
        let appended = locked.and_then(|()| self.append_io(line));
        let _ = flock(&self.file, FlockOperation::Unlock);
        appended.map_err(|error| JournalError::new(&self.path, error))
    }

    fn append_io<T: Serialize>(&mut self, line: impl FnOnce(u64) -> T) -> io::Result<u64> {
        let whole = self.file.metadata()?.len();
        if whole != self.len {
            // Somebody else appended.
            let mut bytes = Vec::new();
            self.file.seek(SeekFrom::Start(0))?;
            self.file.read_to_end(&mut bytes)?;
            self.sequence = self.sequence.max(parse(&bytes).sequence);
        }
        let sequence = self.sequence + 1;
        let mut text = serde_json::to_vec(&line(sequence))?;
        text.push(b'\n');
        if let Err(error) = self.file.write_all(&text).and_then(|()| self.file.sync_data()) {
            // A full disk takes a part of a line: take it back, so that the next line is not spoilt.
            let _ = self.file.set_len(whole);
            return Err(error);
        }
        (self.sequence, self.len) = (sequence, whole + text.len() as u64);
        Ok(sequence)
    }
}

impl JournalError {
    fn new(path: &Path, source: io::Error) -> Self {
        let advice = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space on its disk",
            io::ErrorKind::PermissionDenied => "run as root, or set [host] state to a directory you can write",
            io::ErrorKind::ReadOnlyFilesystem => "set [host] state to a directory on a disk that can be written",
            _ => "see that its directory exists and can be written",
        };
        Self { path: path.to_owned(), source, advice }
    }
}

/// `/proc/sys/kernel/random/boot_id`.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// A line holds an entry or a mark; a newer version's may hold neither.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Entry(Entry),
    Mark(Mark),
}

fn parse(bytes: &[u8]) -> Reading {
    let mut reading = Reading::default();
    let mut entries: Vec<Entry> = Vec::new();
    let complete = bytes.last().is_none_or(|byte| *byte == b'\n');
    let count = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    for (number, line) in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).enumerate() {
        let last = number + 1 == count;
        match serde_json::from_slice(line) {
            Ok(Line::Entry(entry)) => {
                reading.sequence = reading.sequence.max(entry.sequence);
                if let Object::Policy { .. } = entry.change.object {
                    // Written over the one before, in the same maps.
                    let before = entries.len();
                    entries.retain(|earlier| earlier.change.object != entry.change.object);
                    reading.closed += before - entries.len();
                }
                entries.push(entry);
            }
            Ok(Line::Mark(mark)) => {
                reading.sequence = reading.sequence.max(mark.sequence);
                let before = entries.len();
                entries.retain(|entry| entry.sequence != mark.undoes);
                reading.closed += before - entries.len();
            }
            Err(_) if last && !complete => reading.torn = true,
            Err(_) => reading.unreadable.push(number + 1),
        }
    }
    reading.open = entries;
    reading
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
