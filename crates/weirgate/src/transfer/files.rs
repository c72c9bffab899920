//! A file that is received: written in any order beside its place, and put there when it is whole and right.
//!
//! Beside `NAME` there are `.NAME.weirgate-part`, its bytes, and `.NAME.weirgate-have`, which of them are there: so that a transfer goes on
//! after either side was killed. What the second one says is only believed in so far as the whole file's hash is right in the end.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Timespec, Timestamps};
use rustix::io::Errno;
use weirgate_spray::ranges::Ranges;

use super::manifest;

/// Bytes that are read again at a time, to hash them.
const HASH_STEP: usize = 1 << 20;

/// A file that is not whole yet.
#[derive(Debug)]
pub struct Part {
    folder: OwnedFd,
    name: OsString,
    file: Locked,
    meta: manifest::File,
    have: Ranges,
    hashing: Hashing,
    /// Whether more is there than was noted.
    is_dirty: bool,
    /// Below which folder it is, where it is to be on the disk before anything is said of it.
    synced: Option<Arc<OwnedFd>>,
}

/// A file that only this value writes to. The lock goes with it: where it only went with the file, it would last until a process that
/// is forked meanwhile executes its program.
#[derive(Debug)]
struct Locked(File);

impl Locked {
    fn new(file: File) -> io::Result<Self> {
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self(file))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _it_was_locked = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// A hash that is made step by step: of a long file it takes longer than anybody waits for a sign of life.
#[derive(Debug, Default)]
struct Hashing {
    /// Of the bytes before this offset.
    hasher: blake3::Hasher,
    hashed: u64,
}

impl Hashing {
    /// The next step of a file's bytes before `end`; whether there are no more.
    fn step(&mut self, file: &File, end: u64) -> io::Result<bool> {
        let len = usize::try_from(end.saturating_sub(self.hashed)).unwrap_or(usize::MAX).min(HASH_STEP);
        if len > 0 {
            let mut bytes = vec![0; len];
            file.read_exact_at(&mut bytes, self.hashed)?;
            self.hasher.update(&bytes);
            self.hashed += len as u64;
        }
        Ok(self.hashed >= end)
    }

    fn is(&self, wanted: Option<&str>) -> bool {
        wanted.is_some_and(|wanted| self.hasher.finalize().to_hex().as_str() == wanted)
    }
}

/// Why a file is not put in its place, which is no matter of the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// What came has not the hash that the sender has said, or it has said none.
    #[error(
        "what was sent is not what the sender's file is now: it was changed meanwhile, or an earlier part of it was; send it again"
    )]
    Changed,
    /// What was there has not.
    #[error("there is another file of the same length and time: send it without --resume")]
    Other,
    /// Something else is in its place, or it may not be written there.
    #[error("it cannot be put in its place at the receiver: {0}")]
    Place(String),
}

impl Refused {
    /// Whether what goes wrong as a file is begun is a matter of this file alone.
    pub fn of(problem: &anyhow::Error) -> Option<Self> {
        use Errno as E;
        let why = problem.root_cause().downcast_ref::<Errno>()?;
        let its_own = [E::ISDIR, E::NOTDIR, E::ACCESS, E::PERM, E::LOOP, E::NAMETOOLONG, E::EXIST, E::NOTEMPTY];
        its_own.contains(why).then(|| Self::Place(io::Error::from(*why).to_string()))
    }
}

/// A file that was in its place before.
#[derive(Debug)]
pub struct Placed {
    file: File,
    meta: manifest::File,
    hashing: Hashing,
}

impl Placed {
    /// A file of this length and time.
    ///
    /// # Errors
    /// It is not there any more.
    pub fn open(root: &OwnedFd, meta: &manifest::File) -> Result<Self> {
        let file = in_place(root, meta).with_context(|| format!("{}: it was taken away meanwhile", meta.path))?;
        Ok(Self { file, meta: meta.clone(), hashing: Hashing::default() })
    }

    /// Hashes some of it; whether that was the last.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn hash_some(&mut self) -> io::Result<bool> {
        self.hashing.step(&self.file, self.meta.len)
    }

    /// Whether it, all of which was hashed, is what is sent.
    pub fn finish(self, wanted: Option<&str>) -> Result<(), Refused> {
        if self.hashing.is(wanted) { Ok(()) } else { Err(Refused::Other) }
    }
}

impl Part {
    /// Begins a file below `root`, or, where it `resumes`, goes on with what is there of one of the same length and time. Makes folders on
    /// the way; goes through no symbolic link.
    ///
    /// # Errors
    /// Its place is none, or cannot be written to.
    pub fn open(root: &OwnedFd, meta: &manifest::File, resumes: bool) -> Result<Self> {
        let path = meta.relative()?;
        let named = || path.display().to_string();
        let folder = folder(root, path.parent().unwrap_or(Path::new(""))).with_context(named)?;
        let name = path.file_name().with_context(named)?.to_owned();
        let there = rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW);
        if there.is_ok_and(|there| FileType::from_raw_mode(there.st_mode) == FileType::Directory) {
            return Err(Errno::ISDIR).with_context(named);
        }
        let (have, flags) = match resumes.then(|| note(&folder, &name, meta)).flatten() {
            Some(have) => (have, OFlags::CREATE),
            None => {
                // Of an earlier transfer, whose bytes are gone.
                let _is_not_there = rustix::fs::unlinkat(&folder, beside(&name, "have"), AtFlags::empty());
                (Ranges::new(), OFlags::CREATE)
            }
        };
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file =
            rustix::fs::openat(&folder, beside(&name, "part"), flags, Mode::RUSR | Mode::WUSR).with_context(named)?;
        let file = Locked::new(file.into()).with_context(|| format!("{}: another transfer writes it", named()))?;
        if have.is_empty() && file.0.metadata().with_context(named)?.len() > 0 {
            // ext4 writes a file out as it is closed that was cut to nothing before, which takes a while.
            file.0.set_len(0).with_context(named)?;
        }
        file.0.set_len(meta.len).with_context(named)?;
        Ok(Self {
            folder,
            name,
            file,
            meta: meta.clone(),
            have,
            hashing: Hashing::default(),
            is_dirty: false,
            synced: None,
        })
    }

    /// Has what is noted or put in its place below this folder, which it was opened below, on the disk first: it outlives a power failure.
    #[must_use]
    pub fn with_sync(self, root: Option<Arc<OwnedFd>>) -> Self {
        Self { synced: root, ..self }
    }

    /// What is there.
    pub const fn have(&self) -> &Ranges {
        &self.have
    }

    /// Writes bytes where they belong.
    ///
    /// # Errors
    /// As pwrite(2)'s; `InvalidInput`: beyond the file's end.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let range = offset..offset + bytes.len() as u64;
        if range.end > self.meta.len {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.file.0.write_all_at(bytes, offset)?;
        self.have.insert(range);
        self.is_dirty = true;
        Ok(())
    }

    /// Hashes some of what is there from the beginning on; whether that was all.
    ///
    /// # Errors
    /// It cannot be read again.
    pub fn hash_some(&mut self) -> io::Result<bool> {
        let end = self.hashable();
        Ok(self.hashing.step(&self.file.0, end)? && end == self.meta.len)
    }

    /// Where the bytes end that are there from the beginning on.
    fn hashable(&self) -> u64 {
        self.have.first().filter(|first| first.start == 0).map_or(0, |first| first.end)
    }

    /// Whether so much came since the last piece was hashed that one more is worth it.
    pub fn wants_hashing(&self) -> bool {
        self.hashable() >= self.hashing.hashed + HASH_STEP as u64
    }

    /// Whether all of it is there.
    pub fn is_whole(&self) -> bool {
        self.have.covers(&(0..self.meta.len))
    }

    /// Notes what is there, for a transfer that goes on with it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.is_dirty) || self.is_whole() && self.hashing.hashed == self.meta.len {
            return Ok(());
        }
        let have: Vec<(u64, u64)> = self.have.iter().map(|range| (range.start, range.end)).collect();
        let text = serde_json::to_vec(&(self.meta.len, self.meta.modified, have))?;
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let (new, place) = (beside(&self.name, "new"), beside(&self.name, "have"));
        if self.synced.is_some() {
            rustix::fs::fdatasync(&self.file.0)?;
        }
        let file = File::from(rustix::fs::openat(&self.folder, &new, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all_at(&text, 0)?;
        if self.synced.is_some() {
            file.sync_data()?;
        }
        Ok(rustix::fs::renameat(&self.folder, &new, &self.folder, &place)?)
    }

    /// Puts it in its place, if it is whole and has this hash; else what is there is thrown away. One that is
    /// synced is on the disk then, and so is its name.
    ///
    /// # Errors
    /// It cannot be put there.
    pub fn finish(mut self, wanted: Option<&str>) -> Result<Result<(), Refused>> {
        ensure!(self.is_whole(), "{}: its end came, and not all of it", self.meta.path);
        while !self.hash_some().with_context(|| self.meta.path.clone())? {}
        let Self { folder, name, file, meta, hashing, synced, .. } = self;
        let named = || meta.path.clone();
        if !hashing.is(wanted) {
            for what in ["part", "have"] {
                let _is_not_there = rustix::fs::unlinkat(&folder, beside(&name, what), AtFlags::empty());
            }
            return Ok(Err(Refused::Changed));
        }
        rustix::fs::fchmod(&file.0, Mode::from_raw_mode(meta.mode & 0o777)).with_context(named)?;
        let modified = Timespec {
            tv_sec: meta.modified.div_euclid(1_000_000_000),
            tv_nsec: meta.modified.rem_euclid(1_000_000_000) as _,
        };
        let times = Timestamps { last_access: modified, last_modification: modified };
        rustix::fs::futimens(&file.0, &times).with_context(named)?;
        if synced.is_some() {
            rustix::fs::fsync(&file.0).with_context(named)?;
        }
        rustix::fs::renameat(&folder, beside(&name, "part"), &folder, &name).with_context(named)?;
        if let Some(root) = synced {
            sync_folders(&root, &meta).with_context(named)?;
        }
        let _is_not_there = rustix::fs::unlinkat(&folder, beside(&name, "have"), AtFlags::empty());
        Ok(Ok(()))
    }
}

/// Makes a folder below `root` that is to be filled; one that is there can be from now on, if it is this user's.
///
/// # Errors
/// Its place is none, or it cannot be made.
pub fn make_folder(root: &OwnedFd, meta: &manifest::Folder) -> Result<()> {
    let path = meta.relative()?;
    let named = || path.display().to_string();
    let within = folder(root, path.parent().unwrap_or(Path::new(""))).with_context(named)?;
    let name = path.file_name().with_context(named)?;
    // Nobody is to look into it while it is filled who may not when it is.
    match rustix::fs::mkdirat(&within, name, Mode::from_raw_mode((meta.mode & 0o777) | OWNER)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(problem) => return Err(problem).with_context(named),
    }
    let made = folder(root, &path).with_context(named)?;
    let mode = rustix::fs::fstat(&made).with_context(named)?.st_mode & 0o7777;
    if mode & OWNER != OWNER {
        // Where it is another's, what is put into it says so.
        let _is_anothers = set_mode(&made, mode | OWNER);
    }
    Ok(())
}

/// Has the folders of a file, up to `root`, on the disk: they may be new.
fn sync_folders(root: &OwnedFd, meta: &manifest::File) -> Result<()> {
    let path = meta.relative()?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    for folder in path.ancestors().skip(1) {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        rustix::fs::fsync(rustix::fs::openat2(root, folder, flags, Mode::empty(), resolve)?)?;
    }
    Ok(())
}

/// What the owner of a folder needs to fill it.
const OWNER: u32 = 0o700;

/// Gives a folder the mode that it is to have.
///
/// # Errors
/// It is not there any more, or is another user's.
pub fn finish_folder(root: &OwnedFd, meta: &manifest::Folder) -> Result<()> {
    let made = folder(root, &meta.relative()?).with_context(|| meta.path.clone())?;
    let before = rustix::fs::fstat(&made).with_context(|| meta.path.clone())?.st_mode & 0o7777;
    // Whose group new files are of is a matter of this side's.
    let wanted = (before & 0o7000) | (meta.mode & 0o777);
    if wanted != before {
        set_mode(&made, wanted).with_context(|| format!("{}: its mode cannot be set", meta.path))?;
    }
    Ok(())
}

/// Of a folder that is only held: one that its owner may not read can be, and is not opened otherwise.
fn set_mode(folder: &OwnedFd, mode: u32) -> rustix::io::Result<()> {
    use std::os::fd::AsRawFd as _;
    rustix::fs::chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), Mode::from_raw_mode(mode))
}

/// Whether a file system has room for so many bytes more.
///
/// # Errors
/// It has not.
pub fn has_room(root: &OwnedFd, wanted: u64) -> Result<()> {
    let free = rustix::fs::fstatvfs(root).map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize))?;
    ensure!(wanted <= free, "{wanted} bytes are to be received, and there is room for {free}");
    Ok(())
}

/// A file's namesake beside it; of a name that leaves no room for more, its hash's.
fn beside(name: &OsString, what: &str) -> OsString {
    let mut beside = OsString::from(".");
    if name.len() > manifest::NAME_MAX {
        beside.push(blake3::hash(name.as_encoded_bytes()).to_hex().as_str());
    } else {
        beside.push(name);
    }
    beside.push(".weirgate-");
    beside.push(what);
    beside
}

/// A folder below `root`, made where it is not there.
fn folder(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let mut at = root.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
    for part in path.components() {
        match rustix::fs::mkdirat(&at, part.as_os_str(), Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(problem) => return Err(problem),
        }
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        at = rustix::fs::openat2(&at, part.as_os_str(), flags, Mode::empty(), resolve)?;
    }
    Ok(at)
}

/// What is there of a file from before: its noted part, or all of it where it is in its place, with the same length and time.
///
/// # Errors
/// Its place is none.
pub fn before(root: &OwnedFd, meta: &manifest::File) -> Result<Ranges> {
    let path = meta.relative()?;
    let mut all = Ranges::new();
    if in_place(root, meta).is_some() {
        all.insert(0..meta.len);
        return Ok(all);
    }
    let folder = folder(root, path.parent().unwrap_or(Path::new(""))).with_context(|| path.display().to_string())?;
    let name = path.file_name().with_context(|| path.display().to_string())?.to_owned();
    Ok(note(&folder, &name, meta).unwrap_or_default())
}

/// A file that is in its place, with the length and the time that are wanted.
pub fn in_place(root: &OwnedFd, meta: &manifest::File) -> Option<File> {
    // A pipe would have the opener wait.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = rustix::fs::openat2(root, meta.relative().ok()?, flags, Mode::empty(), resolve).ok().map(File::from)?;
    let stat = rustix::fs::fstat(&file).ok().filter(|stat| FileType::from_raw_mode(stat.st_mode).is_file())?;
    let modified = stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as i64);
    (stat.st_size as u64 == meta.len && modified == meta.modified).then_some(file)
}

/// What was noted of a file of the same length and time, if its part is still there.
fn note(folder: &OwnedFd, name: &OsString, meta: &manifest::File) -> Option<Ranges> {
    let read = |what: &str| {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(folder, beside(name, what), flags, Mode::empty()).ok().map(File::from)
    };
    let (part, noted) = (read("part")?, read("have")?);
    let (len, modified, have): (u64, i64, Vec<(u64, u64)>) = serde_json::from_reader(noted).ok()?;
    if (len, modified) != (meta.len, meta.modified) || part.metadata().ok()?.len() != len {
        return None;
    }
    let mut ranges = Ranges::new();
    for (start, end) in have {
        ranges.insert(clamped(start..end, len));
    }
    Some(ranges)
}

fn clamped(range: Range<u64>, len: u64) -> Range<u64> {
    range.start.min(len)..range.end.min(len)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    fn root(dir: &Path) -> OwnedFd {
        File::open(dir).unwrap().into()
    }

    fn meta(path: &str, len: u64) -> manifest::File {
        manifest::File { path: path.into(), len, mode: 0o640, modified: 1_700_000_000_123_456_789 }
    }

    fn hash(bytes: &[u8]) -> String {
        blake3::hash(bytes).to_hex().to_string()
    }

    #[test]
    fn a_file_is_in_its_place_when_it_is_whole_and_right() {
        let dir = tempfile::tempdir().unwrap();
        let mut part = Part::open(&root(dir.path()), &meta("a/b/c", 6), false).unwrap();
        part.write(3, b"def").unwrap();
        assert!(!part.is_whole() && !dir.path().join("a/b/c").exists());
        part.write(0, b"abc").unwrap();
        assert!(part.write(6, b"g").is_err());
        part.finish(Some(&hash(b"abcdef"))).unwrap().unwrap();
        let placed = std::fs::metadata(dir.path().join("a/b/c")).unwrap();
        assert_eq!(
            (placed.len(), placed.mode() & 0o777, placed.mtime(), placed.mtime_nsec()),
            (6, 0o640, 1_700_000_000, 123_456_789)
        );
        assert_eq!(std::fs::read_dir(dir.path().join("a/b")).unwrap().count(), 1, "nothing else is left");
        let below = root(dir.path());
        let mut part = Part::open(&below, &meta("e/f", 3), false).unwrap().with_sync(Some(below.into()));
        part.write(0, b"ab").unwrap();
        part.save().unwrap();
        part.write(2, b"c").unwrap();
        part.finish(Some(&hash(b"abc"))).unwrap().unwrap();
        assert_eq!(std::fs::read(dir.path().join("e/f")).unwrap(), b"abc");
        std::fs::remove_dir_all(dir.path().join("e")).unwrap();
        let mut part = Part::open(&root(dir.path()), &meta("d", 3), false).unwrap();
        part.write(0, b"abc").unwrap();
        assert_eq!(part.finish(Some(&hash(b"abd"))).unwrap(), Err(Refused::Changed));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_there_is_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let mut part = Part::open(&root(dir.path()), &meta("f", 9), false).unwrap();
        part.write(0, b"abc").unwrap();
        part.write(6, b"ghi").unwrap();
        part.save().unwrap();
        drop(part);
        let mut part = Part::open(&root(dir.path()), &meta("f", 9), true).unwrap();
        assert!(part.have().iter().cloned().eq([0..3, 6..9]));
        part.write(3, b"def").unwrap();
        part.finish(Some(&hash(b"abcdefghi"))).unwrap().unwrap();
        // Another time, or nothing noted: from the beginning.
        let mut part = Part::open(&root(dir.path()), &meta("g", 9), true).unwrap();
        part.write(0, b"abc").unwrap();
        part.save().unwrap();
        let second = Part::open(&root(dir.path()), &meta("g", 9), true).unwrap_err();
        assert!(second.to_string().contains("another transfer writes it"), "{second:#}");
        drop(part);
        let other = manifest::File { modified: 5, ..meta("g", 9) };
        assert!(Part::open(&root(dir.path()), &other, true).unwrap().have().is_empty());
    }

    #[test]
    fn a_folder_can_be_filled_and_then_has_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let of = |path: &str, mode| manifest::Folder { path: path.into(), mode };
        let mode = |path: &str| std::fs::metadata(dir.path().join(path)).unwrap().mode() & 0o7777;
        let folders = [of("a", 0o500), of("a/b", 0o750), of("a/b/c", 0o055)];
        for _ in 0..2 {
            for folder in &folders {
                make_folder(&root(dir.path()), folder).unwrap();
                assert_eq!(mode(&folder.path) & OWNER, OWNER);
            }
            for folder in folders.iter().rev() {
                finish_folder(&root(dir.path()), folder).unwrap();
            }
            assert_eq!([mode("a"), mode("a/b"), mode("a/b/c")], [0o500, 0o750, 0o055]);
        }
        // What this side has set besides stays.
        std::fs::set_permissions(dir.path().join("a/b"), std::os::unix::fs::PermissionsExt::from_mode(0o2700)).unwrap();
        finish_folder(&root(dir.path()), &folders[1]).unwrap();
        assert_eq!(mode("a/b"), 0o2750);
        symlink("/", dir.path().join("link")).unwrap();
        for path in ["link", "link/etc", "../x", "/tmp"] {
            assert!(make_folder(&root(dir.path()), &of(path, 0o755)).is_err(), "{path}");
            assert!(finish_folder(&root(dir.path()), &of(path, 0o755)).is_err(), "{path}");
        }
    }

    #[test]
    fn no_link_leads_out_of_the_folder() {
        let (dir, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(out.path(), dir.path().join("link")).unwrap();
        symlink(out.path().join("x"), dir.path().join(".f.weirgate-part")).unwrap();
        for path in ["link/f", "../f", "f"] {
            assert!(Part::open(&root(dir.path()), &meta(path, 1), false).is_err(), "{path}");
        }
        assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
        assert!(has_room(&root(dir.path()), 1).is_ok() && has_room(&root(dir.path()), u64::MAX).is_err());
    }
}
