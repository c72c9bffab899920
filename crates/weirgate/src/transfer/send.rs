//! The side that sends files.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use weirgate_linux::clock;
use weirgate_linux::transport::App;
use weirgate_spray::{Closed, Connection, Event, Sink, Source};
use weirgate_units::{Duration, Instant};

use super::manifest::{self, Line, Lines, Listed, TALK, Talk, VERSION};

/// Files whose bytes are sent at the same time, at most: many small ones fill the paths together.
const OPEN_MAX: usize = 64;

/// Bytes that are read at a time.
const BLOCK: usize = 256 << 10;

/// So many files that did not arrive are named.
const NAMED_MAX: usize = 10;

/// How often it is looked for hashes.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A transfer of files, from their side.
#[derive(Debug)]
pub struct Sending {
    files: Vec<(PathBuf, manifest::File)>,
    resumes: bool,
    talk: Talk,
    heard: Lines,
    /// What is sent now, by its file's number.
    open: Vec<Open>,
    /// The next file to be opened; `None`: the receiver has not said yet what it has.
    next: Option<usize>,
    /// Of each file, what the receiver has from before.
    have: Vec<Vec<(u64, u64)>>,
    hashes: Receiver<(usize, Result<String>)>,
    /// Of how many files the hash was said.
    hashed: usize,
    done: usize,
    /// Bytes of files that are in their places.
    done_bytes: u64,
    /// Why files are not.
    refused: Vec<String>,
    /// What was wrong with files here: the receiver only knows that they were changed.
    unread: BTreeMap<usize, String>,
    /// Whether the receiver has said that nothing more is to be done.
    is_over: bool,
    problem: Option<anyhow::Error>,
}

#[derive(Debug)]
struct Open {
    number: usize,
    /// `None`: it cannot be opened any more.
    file: Option<File>,
    /// What was read last, and from where.
    block: Vec<u8>,
    block_at: u64,
}

impl Sending {
    /// Of what [`manifest::list`] has found; it opens the first object of `connection`, and says what there is.
    ///
    /// # Errors
    /// Where it cannot be said, or no thread be started.
    pub fn begin(listed: Listed, resumes: bool, connection: &mut Connection) -> Result<Self> {
        let Listed { files, folders } = listed;
        let mut talk = Talk::default();
        let said: Vec<manifest::File> = files.iter().map(|(_, file)| file.clone()).collect();
        let len = talk.say(&Line::Files { version: VERSION, resume: resumes, files: said, folders })?;
        let opened = connection.open();
        debug_assert_eq!(opened, TALK);
        connection.provide(TALK, len, false);
        let (say, hashes) = channel();
        let all = files.clone();
        // Beside the transfer; it ends when nobody listens any more.
        thread::Builder::new().name("hash".into()).spawn(move || {
            for (number, (path, meta)) in all.iter().enumerate() {
                if say.send((number, hash(path, meta))).is_err() {
                    return;
                }
            }
        })?;
        let next = (!resumes).then_some(0);
        Ok(Self {
            files,
            resumes,
            talk,
            heard: Lines::default(),
            open: Vec::new(),
            next,
            have: Vec::new(),
            hashes,
            hashed: 0,
            done: 0,
            done_bytes: 0,
            refused: Vec::new(),
            unread: BTreeMap::new(),
            is_over: false,
            problem: None,
        })
    }

    /// All bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, file)| file.len).sum()
    }

    /// Of these, those that the receiver did not have from an earlier transfer.
    pub fn new_bytes(&self) -> u64 {
        let had = self.have.iter().flatten().map(|(start, end)| end.saturating_sub(*start)).sum();
        self.bytes().saturating_sub(had)
    }

    /// How many files there are.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Bytes that the receiver has, as far as it has said so.
    pub fn delivered(&self, connection: &Connection) -> u64 {
        let under_way: u64 = self.open.iter().map(|open| connection.acked(manifest::object(open.number))).sum();
        self.done_bytes + under_way
    }

    fn open_more(&mut self, connection: &mut Connection) -> Result<()> {
        while self.open.len() < OPEN_MAX
            && let Some(number) = self.next
            && let Some((path, meta)) = self.files.get(number)
        {
            let file = File::open(path).inspect_err(|problem| note(&mut self.unread, number, path, problem)).ok();
            let object = connection.open();
            debug_assert_eq!(object, manifest::object(number));
            for (start, end) in self.have.get(number).into_iter().flatten() {
                connection.skip(object, *start..(*end).min(meta.len));
            }
            connection.provide(object, meta.len, true);
            self.open.push(Open { number, file, block: Vec::new(), block_at: 0 });
            self.next = Some(number + 1);
        }
        Ok(())
    }

    fn handle_line(&mut self, connection: &mut Connection, line: Line) -> Result<()> {
        match line {
            Line::Have(have) if self.resumes && self.next.is_none() && have.len() == self.files.len() => {
                self.have = have;
                self.next = Some(0);
            }
            Line::Done { file } => {
                self.close(connection, file)?;
                self.done += 1;
                self.done_bytes += self.files[file].1.len;
            }
            Line::Refused { file, why } => {
                self.close(connection, file)?;
                let why_here = self.unread.remove(&file);
                let why = why_here.unwrap_or_else(|| format!("{}: {why}", self.files[file].1.path));
                self.refused.push(why);
            }
            Line::All if self.done + self.refused.len() == self.files.len() => self.is_over = true,
            other => bail!("the receiver says what it cannot: {other:?}"),
        }
        Ok(())
    }

    /// Nothing more of a file is to be sent.
    fn close(&mut self, connection: &mut Connection, file: usize) -> Result<()> {
        let at = self.open.iter().position(|open| open.number == file);
        self.open.swap_remove(at.context("a file that was not sent is said to be done")?);
        connection.forget(manifest::object(file));
        Ok(())
    }

    /// All is done: why it is not all that was to be.
    fn outcome(&self) -> Result<()> {
        let more = match self.refused.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let named = self.refused.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join("; ");
        ensure!(self.refused.is_empty(), "{} of {} files: {named}{more}", self.refused.len(), self.files.len());
        Ok(())
    }
}

/// Of a file that cannot be read the receiver gets whatever; its hash is what counts.
fn note(unread: &mut BTreeMap<usize, String>, number: usize, path: &Path, problem: &dyn std::fmt::Display) {
    unread.entry(number).or_insert_with(|| format!("{}: {problem}", path.display()));
}

impl App for Sending {
    type Error = anyhow::Error;

    fn handle_event(&mut self, _: &mut Connection, event: Event) -> Result<()> {
        match event {
            Event::Closed(Closed::Here) => Ok(()),
            Event::Closed(why) => Err(anyhow!(why)),
            Event::Reset { object: TALK, .. } => {
                bail!("the other side takes no files: does `weirgate receive` run there?")
            }
            Event::Reset { .. } => bail!("the receiver wants no more of a file"),
            _ => Ok(()),
        }
    }

    fn advance(&mut self, connection: &mut Connection) -> Result<()> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        while let Some(line) = self.heard.read()? {
            self.handle_line(connection, line)?;
        }
        for (file, blake3) in self.hashes.try_iter() {
            let blake3 = blake3.map_err(|problem| {
                self.unread.entry(file).or_insert_with(|| format!("{problem:#}"));
            });
            let len = self.talk.say(&Line::Hash { file, blake3: blake3.ok() })?;
            connection.provide(TALK, len, false);
            self.hashed += 1;
        }
        self.open_more(connection)?;
        if self.is_over && !connection.is_closed() {
            self.outcome()?;
            connection.close(clock::monotonic(), 0, "all files are in their places");
        }
        Ok(())
    }

    fn poll_at(&self) -> Option<Instant> {
        // Hashes come from a thread of their own.
        (self.hashed < self.files.len()).then(|| clock::monotonic() + LOOK_EVERY)
    }
}

impl Source for Sending {
    fn read(&mut self, object: u64, offset: u64, out: &mut [u8]) {
        if object == TALK {
            return self.talk.read(offset, out);
        }
        let number = manifest::file(object);
        let Some(open) = self.open.iter_mut().find(|open| Some(open.number) == number) else { return };
        if let Err(problem) = open.read(offset, out) {
            let problem = format!("it was cut, or cannot be read any more: {problem}");
            note(&mut self.unread, open.number, &self.files[open.number].0, &problem);
        }
    }
}

impl Open {
    /// From what was read last, if it is there.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        let within = |open: &Self| {
            let at = usize::try_from(offset.checked_sub(open.block_at)?).ok()?;
            open.block.get(at..at + out.len()).map(|_| at)
        };
        if within(self).is_none() {
            let Some(file) = &self.file else { return Err(std::io::ErrorKind::NotFound.into()) };
            // What is sent again is not read ahead.
            if offset < self.block_at {
                return file.read_exact_at(out, offset);
            }
            self.block.resize(BLOCK.max(out.len()), 0);
            let mut len = 0;
            while len < self.block.len() {
                match file.read_at(&mut self.block[len..], offset + len as u64)? {
                    0 => break,
                    more => len += more,
                }
            }
            self.block.truncate(len);
            self.block_at = offset;
        }
        let at = within(self).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(&self.block[at..at + out.len()]);
        Ok(())
    }
}

impl Sink for Sending {
    fn write(&mut self, object: u64, offset: u64, bytes: &[u8]) {
        let heard = if object == TALK { self.heard.write(offset, bytes) } else { Ok(()) };
        if let Err(problem) = heard {
            self.problem.get_or_insert(problem);
        }
    }
}

/// A file's hash, if it is what was named, before and after.
fn hash(path: &Path, listed: &manifest::File) -> Result<String> {
    let named = || path.display().to_string();
    let mut hasher = blake3::Hasher::new();
    let file = File::open(path).with_context(named)?;
    let before = file.metadata().with_context(named)?;
    hasher.update_reader(&file).with_context(named)?;
    let after = std::fs::metadata(path).with_context(named)?;
    let of = |meta: &std::fs::Metadata| (meta.len(), manifest::modified(meta), meta.ino());
    let is_same =
        of(&before) == of(&after) && (listed.len, listed.modified) == (before.len(), manifest::modified(&before));
    ensure!(is_same, "{}: it was changed while it was sent; send it again", path.display());
    Ok(hasher.finalize().to_hex().to_string())
}
