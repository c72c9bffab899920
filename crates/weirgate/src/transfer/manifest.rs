//! What the two sides of a transfer say to each other: lines of JSON, in both directions of the connection's first object.
//!
//! The sender names all files in its first line. Each file's bytes are an object of its own: the first file's the second object, and so on.
//! Where it wants to go on with an earlier transfer it waits for what the receiver has. When it has read a file to its end it says its
//! hash; the receiver puts the file in its place if what it has written has the same, and says so, or why not. When all of them are
//! done, and folders have their modes, it says that, and the sender ends the connection.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

/// Of this release.
pub const VERSION: u32 = 1;

/// The first object, and what lies between two of one side's.
pub const TALK: u64 = 0;
const STEP: u64 = 2;

/// What a side may say in all: of a million files.
const LINES_MAX: usize = 256 << 20;

/// Bytes of a name beside which there is room for that of its part: 255 are the most (NAME_MAX).
pub const NAME_MAX: usize = 240;

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The sender's first one.
    Files {
        /// [`VERSION`].
        version: u32,
        /// Whether it waits for [`Have`](Self::Have).
        resume: bool,
        /// All of them.
        files: Vec<File>,
        /// All folders that they are in, and those that are empty.
        #[serde(default)]
        folders: Vec<Folder>,
    },
    /// The receiver's, of what it has of each file, in their order.
    Have(Vec<Vec<(u64, u64)>>),
    /// The sender's, of a file that was read to its end: BLAKE3, in hexadecimal digits.
    Hash {
        /// Which one, from 0.
        file: usize,
        /// Of all of its bytes; nothing where it is not what was named any more: it was changed, or cannot be read.
        blake3: Option<String>,
    },
    /// The receiver's: a file is in its place.
    Done {
        /// Which one, from 0.
        file: usize,
    },
    /// The receiver's: a file is not put in its place.
    Refused {
        /// Which one, from 0.
        file: usize,
        /// Why, for people.
        why: String,
    },
    /// The receiver's last one: of each file one of these two was said, and folders are as they should be.
    All,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Where it goes, below the receiver's folder.
    pub path: String,
    /// Bytes.
    pub len: u64,
    /// Permissions: the lower nine bits of its mode.
    pub mode: u32,
    /// When it was changed last, in nanoseconds of Unix time.
    pub modified: i64,
}

/// A folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    /// Where it goes, below the receiver's folder.
    pub path: String,
    /// Permissions: the lower nine bits of its mode.
    pub mode: u32,
}

/// The object that has a file's bytes.
pub const fn object(file: usize) -> u64 {
    TALK + STEP * (file as u64 + 1)
}

/// The file whose bytes an object has.
pub fn file(object: u64) -> Option<usize> {
    (object > TALK && object.is_multiple_of(STEP)).then(|| usize::try_from(object / STEP - 1).ok()).flatten()
}

impl File {
    /// Its place below a folder, if it is below it.
    ///
    /// # Errors
    /// It is not: an absolute path, or one that goes up.
    pub fn relative(&self) -> Result<PathBuf> {
        relative(&self.path)
    }
}

impl Folder {
    /// As a [file's](File::relative).
    ///
    /// # Errors
    /// As a file's.
    pub fn relative(&self) -> Result<PathBuf> {
        relative(&self.path)
    }
}

fn relative(text: &str) -> Result<PathBuf> {
    let path = Path::new(text);
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
    ensure!(is_below && !text.is_empty() && !text.contains('\0'), "{text:?} is no place below a folder");
    let is_part = |name: &str| {
        let name = name.strip_prefix('.').unwrap_or_default();
        ["part", "have", "new"].iter().any(|what| name.ends_with(&format!(".weirgate-{what}")))
    };
    ensure!(
        !text.split('/').any(is_part),
        "{text:?} has the name of a part of a file that is being received: take it away, or give it another name"
    );
    Ok(path.components().collect())
}

/// Bytes of lines that come in any order, and lines.
#[derive(Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
    have: weirgate_spray::ranges::Ranges,
    /// Of these, what was read as lines, and where none ends.
    read: usize,
    looked: usize,
}

impl Lines {
    /// Bytes came.
    ///
    /// # Errors
    /// They are more than a side may say.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let at = usize::try_from(offset)?;
        let end = at + bytes.len();
        ensure!(end <= LINES_MAX, "the other side says more than {LINES_MAX} bytes about its files");
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(bytes);
        self.have.insert(offset..offset + bytes.len() as u64);
        Ok(())
    }

    /// The next line, if all of it is there.
    ///
    /// # Errors
    /// It is none.
    pub fn read(&mut self) -> Result<Option<Line>> {
        let end = self.have.first().filter(|first| first.start == 0).map_or(0, |first| first.end as usize);
        let from = self.looked.max(self.read);
        let Some(more) = self.bytes[from.min(end)..end].iter().position(|byte| *byte == b'\n') else {
            self.looked = end;
            return Ok(None);
        };
        let len = from + more - self.read;
        let line = &self.bytes[self.read..self.read + len];
        let read = serde_json::from_slice(line).with_context(|| {
            format!("a line that is none: {}", String::from_utf8_lossy(&line[..line.len().min(200)]))
        })?;
        self.read += len + 1;
        Ok(Some(read))
    }
}

/// Lines to be sent, which stay until the connection ends: they are few.
#[derive(Debug, Default)]
pub struct Talk {
    bytes: Vec<u8>,
}

impl Talk {
    /// Says a line: how many bytes there are now.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn say(&mut self, line: &Line) -> Result<u64> {
        serde_json::to_writer(&mut self.bytes, line)?;
        self.bytes.push(b'\n');
        Ok(self.bytes.len() as u64)
    }

    /// The bytes from an offset on.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        let at = offset as usize;
        if let Some(bytes) = self.bytes.get(at..at + out.len()) {
            out.copy_from_slice(bytes);
        }
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether nothing was said yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// What is to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Files, each with where it is here.
    pub files: Vec<(PathBuf, File)>,
    /// Folders, those that others lie in first.
    pub folders: Vec<Folder>,
}

/// Names all files and folders that `paths` mean: they, and what is below folders.
///
/// # Errors
/// One cannot be read, is neither a file nor a folder, or two would go to the same place.
pub fn list(paths: &[PathBuf]) -> Result<Listed> {
    let mut all = Listed::default();
    for path in paths {
        let name = path.canonicalize().with_context(|| path.display().to_string())?;
        let name = PathBuf::from(name.file_name().with_context(|| format!("{} has no name", path.display()))?);
        add(path, &name, &mut Vec::new(), &mut all)?;
    }
    // What is in folders of one name goes to one folder, which has the first one's mode.
    all.folders.sort_by(|one, other| one.path.cmp(&other.path));
    all.folders.dedup_by(|one, other| one.path == other.path);
    let folders = all.folders.iter().map(|folder| folder.path.as_str());
    let mut places: Vec<&str> = all.files.iter().map(|(_, file)| file.path.as_str()).chain(folders).collect();
    places.sort_unstable();
    if let Some(two) = places.windows(2).find(|two| two[0] == two[1]) {
        bail!("two of these files would both be {}", two[0]);
    }
    Ok(all)
}

/// A file, or a folder that lies in these, told by device and inode, and what is below it.
fn add(path: &Path, name: &Path, within: &mut Vec<(u64, u64)>, all: &mut Listed) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let meta = std::fs::metadata(path).with_context(|| path.display().to_string())?;
    let place = name.to_str().with_context(|| format!("{} has a name that is not UTF-8", path.display()))?;
    let (place, mode) = (place.to_owned(), meta.mode() & 0o777);
    relative(&place)?;
    if meta.is_dir() {
        let id = (meta.dev(), meta.ino());
        ensure!(!within.contains(&id), "{} is a link to a folder that it lies in", path.display());
        within.push(id);
        all.folders.push(Folder { path: place, mode });
        let mut entries: Vec<_> = std::fs::read_dir(path)
            .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
            .with_context(|| path.display().to_string())?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in &entries {
            add(&entry.path(), &name.join(entry.file_name()), within, all)?;
        }
        within.pop();
        return Ok(());
    }
    ensure!(meta.is_file(), "{} is neither a file nor a folder", path.display());
    all.files.push((path.to_owned(), File { path: place, len: meta.len(), mode, modified: modified(&meta) }));
    Ok(())
}

/// When a file was changed last, in nanoseconds of Unix time.
pub fn modified(meta: &std::fs::Metadata) -> i64 {
    use std::os::unix::fs::MetadataExt as _;
    meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> File {
        File { path: path.into(), len: 1, mode: 0o644, modified: 0 }
    }

    #[test]
    fn lines_are_read_when_all_of_them_is_there() {
        let (mut talk, mut lines) = (Talk::default(), Lines::default());
        let folders = vec![Folder { path: "a".into(), mode: 0o750 }];
        let said = [Line::Files { version: 1, resume: true, files: vec![of("a/b")], folders }, Line::Done { file: 3 }];
        for line in &said {
            talk.say(line).unwrap();
        }
        let mut bytes = vec![0; talk.len() as usize];
        talk.read(0, &mut bytes);
        let (first, second) = bytes.split_at(30);
        lines.write(30, second).unwrap();
        assert_eq!(lines.read().unwrap(), None);
        lines.write(0, first).unwrap();
        for line in said {
            assert_eq!(lines.read().unwrap(), Some(line));
        }
        assert_eq!(lines.read().unwrap(), None);
        lines.write(talk.len(), b"nonsense\n").unwrap();
        assert!(lines.read().unwrap_err().to_string().starts_with("a line that is none: nonsense"));
        assert!(lines.write(LINES_MAX as u64, b"x").is_err());
    }

    #[test]
    fn objects_are_files_in_their_order() {
        assert_eq!([object(0), object(1)], [2, 4]);
        assert_eq!([file(0), file(2), file(4), file(3)], [None, Some(0), Some(1), None]);
    }

    #[test]
    fn places_are_below_the_folder() {
        assert_eq!(of("a/b").relative().unwrap(), Path::new("a/b"));
        for path in
            ["", "/etc/passwd", "../a", "a/../../b", "a\0b", ".", "./a", "a/.b.weirgate-part", ".b.weirgate-have"]
        {
            assert!(of(path).relative().is_err(), "{path:?}");
        }
        assert!(of(".weirgate-part").relative().is_ok() && of("a.weirgate-new").relative().is_ok());
    }

    #[test]
    fn folders_are_walked_through_and_nothing_is_overwritten_by_its_namesake() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(root.join("b"), b"12").unwrap();
        std::fs::write(root.join("sub/a"), b"123").unwrap();
        std::fs::create_dir_all(root.join("sub/empty")).unwrap();
        let names = |all: Listed| all.files.into_iter().map(|(_, file)| (file.path, file.len)).collect::<Vec<_>>();
        let folders = |all: Listed| all.folders.into_iter().map(|folder| folder.path).collect::<Vec<_>>();
        let wanted = [("root/b".to_owned(), 2), ("root/sub/a".to_owned(), 3)];
        assert_eq!(names(list(std::slice::from_ref(&root)).unwrap()), wanted);
        assert_eq!(folders(list(std::slice::from_ref(&root)).unwrap()), ["root", "root/sub", "root/sub/empty"]);
        assert_eq!(names(list(&[root.join("sub/../b")]).unwrap()), [("b".to_owned(), 2)]);
        let twice = list(&[root.join("b"), root.join("b")]).unwrap_err();
        assert_eq!(twice.to_string(), "two of these files would both be b");
        // Two folders of one name are one; a file and a folder are not.
        std::fs::create_dir_all(dir.path().join("other/sub/more")).unwrap();
        let both = list(&[root.join("sub"), dir.path().join("other/sub")]).unwrap();
        assert_eq!(folders(both), ["sub", "sub/empty", "sub/more"]);
        std::fs::write(dir.path().join("other/b"), b"").unwrap();
        std::fs::create_dir_all(dir.path().join("third/b")).unwrap();
        let mixed = list(&[dir.path().join("third/b"), dir.path().join("other/b")]).unwrap_err();
        assert_eq!(mixed.to_string(), "two of these files would both be b");
        assert!(list(&[root.join("missing")]).is_err());
        std::os::unix::fs::symlink(&root, root.join("sub/up")).unwrap();
        let round = list(std::slice::from_ref(&root)).unwrap_err().to_string();
        assert!(round.ends_with("sub/up is a link to a folder that it lies in"), "{round}");
        assert!(list(&[PathBuf::from("/dev/null")]).unwrap_err().to_string().contains("neither a file nor a folder"));
    }
}
