//! The recording side: records in, Parquet files out.
//!
//! A Parquet file can be read only once its footer is written, so a file that stays open for an hour is an hour lost in
//! a crash. Therefore a file is closed every [`Options::interval`] (a minute), fsynced and renamed into its hour's
//! folder: a crash loses that minute and nothing else, and a reader never meets a half-written file under a finished
//! name. Sixty files per hour, each with a footer of 20 KB, are merged into few once the hour is over; a busy host's
//! files, already large, are left alone ([`Options::merge_up_to`]).
//!
//! Rejected: a write-ahead log of Arrow batches turned into Parquet later writes everything twice, the first time at
//! ten times the size. Footers written aside after each row group repair a torn file, but every other reader of Parquet
//! meets it torn until then.
//!
//! Two threads. [`Writer::append`] turns records into columns on the caller's thread and does no I/O; a thread of the
//! writer's own compresses and writes. Between them is a short queue: where the disk is slower than the records come,
//! `append` waits up to ten seconds once, and from then on gives rows up and counts them, so a stuck disk slows one
//! poll and stops none. All rows handed over end in exactly one of [`Status`]'s `written`, `lost` or `pending`.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use weirgate_sockets::record::{Origin, Record};
use weirgate_units::{Bytes, Duration, UnixTime};

use crate::anonymise::Anonymise;
use crate::columns::Encoder;
use crate::hour::Hour;
use crate::layout;
use crate::queue::{Message, Queue};
use crate::sink::Sink;

/// How the store is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// A file is closed after so long: what a crash can lose, and how late a query sees a record.
    pub interval: Duration,
    /// Files whose hour ended so long ago are deleted; `None` keeps them.
    pub age_max: Option<Duration>,
    /// The oldest files are deleted while all together are larger; `None` lets them grow. The file being written is not
    /// counted and the newest file always stays.
    pub size_max: Option<Bytes>,
    /// Nothing is written while the file system has less room than this: the store must not be what fills the disk.
    pub keep_free: Bytes,
    /// Records that cannot be written wait in memory, encoded, up to so much; then the oldest are given up.
    pub hold_up_to: Bytes,
    /// The files of a finished hour are merged into files of up to this size.
    pub merge_up_to: Bytes,
    /// Whether clients' addresses are stored whole.
    pub anonymise: Anonymise,
}

impl Default for Options {
    /// A minute; a week; 10 GB; 64 MB kept free (more than one interval of the busiest host); 8 MB held (about 200,000
    /// records); merged up to 64 MB; whole addresses.
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(60),
            age_max: Some(Duration::from_secs(7 * 86_400)),
            size_max: Some(Bytes::new(10_000_000_000)),
            keep_free: Bytes::new(64_000_000),
            hold_up_to: Bytes::new(8_000_000),
            merge_up_to: Bytes::new(64_000_000),
            anonymise: Anonymise::Off,
        }
    }
}

/// Why a store could not be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process records there.
    #[error("another Weirgate already records into {}: stop it, or choose another folder", .0.display())]
    Taken(PathBuf),
    /// The folder cannot be used.
    #[error("cannot use {} as a store: {source}; choose a folder that can be written", dir.display())]
    Folder {
        /// The folder.
        dir: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// What became of the records, as counted since the writer was opened. `appended` is always the sum of `written`,
/// `lost_disk`, `lost_slow` and `pending`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Records handed over.
    pub appended: u64,
    /// Records in finished, durable files.
    pub written: u64,
    /// Records lost because a file could not be written.
    pub lost_disk: u64,
    /// Records given up because the writing thread did not keep up.
    pub lost_slow: u64,
    /// Records in memory or in the file being written: what a crash would lose. More than an interval's where the disk
    /// has no room.
    pub pending: u64,
    /// Finished files written, and their bytes.
    pub files_written: u64,
    /// See `files_written`.
    pub bytes_written: u64,
    /// Files deleted by the age and size limits, and their bytes.
    pub files_removed: u64,
    /// See `files_removed`.
    pub bytes_removed: u64,
    /// Finished files in the store, and their bytes.
    pub files: u64,
    /// See `files`.
    pub bytes: u64,
    /// Why records wait in memory or are being lost, until a file is written again.
    pub trouble: Option<String>,
}

/// Records into a store. One per folder; dropping it closes it.
pub struct Writer {
    encoder: Encoder,
    appended: u64,
    options: Options,
    queue: Arc<Queue>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The hour of the batch that is growing, and its end in nanoseconds, which is what each record is compared with.
    hour: Option<Hour>,
    hour_end: UnixTime,
    /// When the interval began: the first tick after the last one.
    since: Option<UnixTime>,
    /// Held while the folder is ours.
    _lock: File,
}

impl Writer {
    /// Opens the store in `dir`, which is made where it does not exist, and clears away what a crash left unfinished.
    pub fn open(dir: &Path, origin: &Origin, options: Options) -> Result<Self, OpenError> {
        let folder = |source| OpenError::Folder { dir: dir.to_owned(), source };
        // Clients' addresses are not for every user of the host; what is there keeps the mode that somebody gave it.
        fs::DirBuilder::new().recursive(true).mode(0o750).create(dir).map_err(folder)?;
        let lock = File::create(dir.join(".lock")).map_err(folder)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(OpenError::Taken(dir.to_owned())),
            Err(fs::TryLockError::Error(e)) => return Err(folder(e)),
        }
        let listing = layout::list(dir).map_err(folder)?;
        for path in &listing.unfinished {
            tracing::warn!(path = %path.display(), "a run ended while it wrote this file; its last interval is lost");
            fs::remove_file(path).map_err(folder)?;
        }
        for path in &listing.superseded {
            fs::remove_file(path).map_err(folder)?;
        }
        let shared = Arc::new(Shared::default());
        let queue = Arc::new(Queue::default());
        let sink = Sink::new(dir.to_owned(), options.clone(), listing, Arc::clone(&shared));
        let read = Arc::clone(&queue);
        let thread =
            std::thread::Builder::new().name("store".to_owned()).spawn(move || sink.run(&read)).map_err(folder)?;
        Ok(Self {
            encoder: Encoder::new(origin, options.anonymise),
            appended: 0,
            options,
            queue,
            shared,
            thread: Some(thread),
            hour: None,
            hour_end: UnixTime::default(),
            since: None,
            _lock: lock,
        })
    }

    /// Takes `record`. No I/O and no allocation but once in 2,048 records, when the batch is handed over; there it
    /// waits up to ten seconds where the disk is behind. A record that is lost later is counted in [`Writer::status`].
    ///
    /// A record of a later hour than the last begins that hour's file. One of an earlier hour (a close that was
    /// reported late, a clock set back) goes to the file that is open.
    pub fn append(&mut self, record: &Record<'_>) {
        if record.time >= self.hour_end || self.hour.is_none() {
            self.hand_over();
            let hour = Hour::of(record.time);
            self.hour = Some(hour);
            self.hour_end = hour.end();
        }
        // One writer, so a plain store counts without a locked instruction.
        self.appended += 1;
        self.shared.appended.store(self.appended, Ordering::Relaxed);
        if self.encoder.push(record) {
            self.hand_over();
        }
    }

    /// To be called every second or so: closes the file where its interval is over, and applies the limits of age and
    /// size.
    pub fn handle_tick(&mut self, now: UnixTime) {
        let since = *self.since.get_or_insert(now);
        // A clock that was set back would hold the file open for as long as it was set back by.
        if now.saturating_since(since) >= self.options.interval || now < since {
            self.rotate(now);
        }
    }

    /// Closes the file now and waits until all is done that was begun.
    pub fn flush(&mut self, now: UnixTime) {
        self.rotate(now);
        let (done, wait) = std::sync::mpsc::channel();
        if self.queue.push(Message::Sync(done)) {
            // An error means that the thread has ended, which the status tells.
            let _ = wait.recv();
        }
    }

    /// What became of the records so far.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Writes what is left, closes the file and says what became of everything.
    pub fn close(mut self) -> Status {
        self.end();
        self.status()
    }

    fn rotate(&mut self, now: UnixTime) {
        self.hand_over();
        self.hour = None;
        self.since = Some(now);
        self.queue.push(Message::Rotate(now));
    }

    fn hand_over(&mut self) {
        let (Some(hour), Some(batch)) = (self.hour, self.encoder.take()) else { return };
        let rows = batch.num_rows() as u64;
        if !self.queue.push_batch(hour, batch) {
            self.shared.lost_slow.fetch_add(rows, Ordering::Relaxed);
            self.shared.trouble(Trouble::Loses, &"the disk does not keep up");
        }
    }

    fn end(&mut self) {
        self.hand_over();
        self.queue.push(Message::Close);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            self.shared.trouble(Trouble::Loses, &"the store's thread ended by a fault of its own; see the log");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end();
        }
    }
}

/// Counters that both threads write.
#[derive(Default)]
pub(crate) struct Shared {
    appended: AtomicU64,
    written: AtomicU64,
    lost_disk: AtomicU64,
    lost_slow: AtomicU64,
    files_written: AtomicU64,
    bytes_written: AtomicU64,
    files_removed: AtomicU64,
    bytes_removed: AtomicU64,
    files: AtomicU64,
    bytes: AtomicU64,
    trouble: Mutex<Option<(Trouble, String)>>,
}

impl Shared {
    pub(crate) fn wrote(&self, rows: u64, bytes: u64) {
        self.written.fetch_add(rows, Ordering::Relaxed);
        self.files_written.fetch_add(1, Ordering::Relaxed);
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
        if self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            tracing::info!("the store writes again");
        }
    }

    pub(crate) fn lose_to_disk(&self, rows: u64) {
        self.lost_disk.fetch_add(rows, Ordering::Relaxed);
    }

    pub(crate) fn removed(&self, bytes: u64) {
        self.files_removed.fetch_add(1, Ordering::Relaxed);
        self.bytes_removed.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn holds(&self, files: u64, bytes: u64) {
        self.files.store(files, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Notes why records cannot be written; logs what that means for them once, until a file is written again.
    pub(crate) fn trouble(&self, what: Trouble, why: &dyn core::fmt::Display) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let known = trouble.as_ref().map(|(what, _)| *what);
        let what = known.map_or(what, |known| known.max(what));
        if known != Some(what) {
            tracing::warn!("{what}: {why}");
        }
        *trouble = Some((what, why.to_string()));
    }

    /// Records that waited are given up, for the reason they waited for.
    pub(crate) fn loses(&self) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((what @ Trouble::Holds, why)) = trouble.as_mut() {
            *what = Trouble::Loses;
            tracing::warn!("{what}: {why}");
        }
    }

    fn status(&self) -> Status {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        // The ends before the beginning, so that `pending` is never negative while both threads count.
        let (written, lost_disk, lost_slow) = (read(&self.written), read(&self.lost_disk), read(&self.lost_slow));
        let appended = read(&self.appended).max(written + lost_disk + lost_slow);
        Status {
            appended,
            written,
            lost_disk,
            lost_slow,
            pending: appended - written - lost_disk - lost_slow,
            files_written: read(&self.files_written),
            bytes_written: read(&self.bytes_written),
            files_removed: read(&self.files_removed),
            bytes_removed: read(&self.bytes_removed),
            files: read(&self.files),
            bytes: read(&self.bytes),
            trouble: self.why(),
        }
    }

    fn why(&self) -> Option<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.as_ref().map(|(what, why)| format!("{what}: {why}"))
    }
}

/// What becomes of records that cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// They wait in memory.
    Holds,
    /// They are lost, all or some.
    Loses,
}

impl core::fmt::Display for Trouble {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Holds => "the store cannot write; records wait in memory",
            Self::Loses => "the store loses records",
        })
    }
}
