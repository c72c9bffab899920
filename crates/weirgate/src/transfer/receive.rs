//! The side that receives files.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use anyhow::{Context, Result, anyhow, bail, ensure};
use weirgate_linux::clock;
use weirgate_linux::transport::App;
use weirgate_spray::wire::VARINT_MAX;
use weirgate_spray::{Closed, Connection, Event, Public, Sink, Source};
use weirgate_units::{Duration, Instant};

use super::files::{self, Part, Placed, Refused};
use super::manifest::{self, Line, Lines, TALK, Talk, VERSION};

/// Bytes that may come before it is known what they are, of each object: until then they are kept in memory.
pub const CREDIT: u64 = 1 << 20;

/// Objects that the sender may have open: [`super::send`] has 64 files and one to talk.
pub const OBJECTS_MAX: usize = 128;

/// Bytes of all objects that are kept until it is known what they are.
const EARLY_MAX: usize = 64 << 20;

/// How often it is noted what is there.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// A file that somebody else writes is waited for: where that is this sender's own earlier transfer, which nobody has ended, it is over when
/// nothing has come of it for three seconds (`sessions`).
const LOCKED_MAX: Duration = Duration::from_secs(5);

/// A file that is done, for whoever wants to know.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Whose it was.
    pub peer: Public,
    /// Which one.
    pub file: manifest::File,
    /// Why it is not in its place.
    pub refused: Option<Refused>,
}

/// A transfer of files, from their new place's side.
#[derive(Debug)]
pub struct Receiving {
    root: Arc<OwnedFd>,
    heard: Lines,
    talk: Talk,
    files: Option<Vec<manifest::File>>,
    folders: Vec<manifest::Folder>,
    resumes: bool,
    syncs: bool,
    /// Files that come now.
    parts: BTreeMap<usize, Part>,
    /// Files that were in their places before.
    placed: BTreeMap<usize, Placed>,
    /// Files of which all is there, and of these, those all of which was hashed.
    whole: BTreeSet<usize>,
    hashed: BTreeSet<usize>,
    hashes: BTreeMap<usize, Option<String>>,
    /// What came before it was known what it is.
    early: Vec<(u64, u64, Vec<u8>)>,
    early_bytes: usize,
    /// Objects whose files are not begun: they are not named yet, or somebody else writes them, since then.
    opened: Vec<u64>,
    locked_since: Option<Instant>,
    done: usize,
    refused: usize,
    /// Whether nothing more is to be done.
    is_over: bool,
    news: Option<Sender<Finished>>,
    bytes: u64,
    saved: Instant,
    problem: Option<anyhow::Error>,
    /// Why it has ended.
    ended: Option<Closed>,
}

impl Receiving {
    /// Into a folder.
    pub fn new(root: Arc<OwnedFd>) -> Self {
        Self {
            root,
            heard: Lines::default(),
            talk: Talk::default(),
            files: None,
            folders: Vec::new(),
            resumes: false,
            syncs: false,
            parts: BTreeMap::new(),
            placed: BTreeMap::new(),
            whole: BTreeSet::new(),
            hashed: BTreeSet::new(),
            hashes: BTreeMap::new(),
            early: Vec::new(),
            early_bytes: 0,
            opened: Vec::new(),
            locked_since: None,
            done: 0,
            refused: 0,
            is_over: false,
            news: None,
            bytes: 0,
            saved: clock::monotonic(),
            problem: None,
            ended: None,
        }
    }

    /// Says of each file when it is done.
    #[must_use]
    pub fn with_news(mut self, news: Option<Sender<Finished>>) -> Self {
        self.news = news;
        self
    }

    /// Has files on the disk before they are said to be done.
    #[must_use]
    pub const fn with_sync(mut self, syncs: bool) -> Self {
        self.syncs = syncs;
        self
    }

    /// Bytes of all files that were named.
    pub fn total(&self) -> u64 {
        self.files.iter().flatten().map(|file| file.len).sum()
    }

    /// Files that are in their places, and all that were named.
    pub fn files(&self) -> (usize, usize) {
        (self.done, self.files.as_ref().map_or(0, Vec::len))
    }

    /// Bytes of files that came.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Why it has ended.
    pub const fn ended(&self) -> Option<&Closed> {
        self.ended.as_ref()
    }

    fn handle_line(&mut self, connection: &mut Connection, line: Line) -> Result<()> {
        match line {
            Line::Files { version, resume, files, folders } if self.files.is_none() => {
                ensure!(version == VERSION, "the sender speaks version {version}, and this is version {VERSION}");
                self.handle_folders(folders)?;
                self.handle_files(connection, resume, files)
            }
            Line::Hash { file, blake3 } => {
                self.hashes.insert(file, blake3);
                Ok(())
            }
            other => bail!("the sender says what it cannot: {other:?}"),
        }
    }

    fn handle_folders(&mut self, mut folders: Vec<manifest::Folder>) -> Result<()> {
        // Those that others lie in come first.
        folders.sort_by(|one, other| one.path.cmp(&other.path));
        for two in folders.windows(2) {
            ensure!(two[0].path != two[1].path, "{}: it is named twice", two[0].path);
        }
        folders.iter().try_for_each(|folder| files::make_folder(&self.root, folder))?;
        self.folders = folders;
        Ok(())
    }

    fn handle_files(&mut self, connection: &mut Connection, resume: bool, files: Vec<manifest::File>) -> Result<()> {
        let total: u64 = files.iter().map(|file| file.len).fold(0, u64::saturating_add);
        let mut there = 0;
        let mut have = Vec::new();
        let mut named = BTreeSet::new();
        for file in &files {
            ensure!(named.insert(file.relative()?), "{}: it is named twice", file.path);
            if resume {
                let ranges = files::before(&self.root, file)?;
                there += ranges.count();
                have.push(ranges.iter().map(|range| (range.start, range.end)).collect());
            }
        }
        files::has_room(&self.root, total.saturating_sub(there))?;
        if resume {
            let len = self.talk.say(&Line::Have(have))?;
            connection.provide(TALK, len, false);
        }
        (self.files, self.resumes) = (Some(files), resume);
        Ok(())
    }

    /// Begins files whose objects the sender has opened, and gives them what of them is here already.
    fn begin_opened(&mut self, now: Instant, connection: &mut Connection) -> Result<()> {
        for object in std::mem::take(&mut self.opened) {
            let Err(problem) = self.begin(connection, object) else { continue };
            if is_locked(&problem) {
                let since = *self.locked_since.get_or_insert(now);
                if now.saturating_since(since) > LOCKED_MAX {
                    return Err(problem);
                }
                self.opened.push(object);
            } else if let (Some(why), Some(number)) = (Refused::of(&problem), manifest::file(object)) {
                self.early.retain(|(of, ..)| *of != object);
                self.whole.remove(&number);
                self.end(connection, number, Some(why))?;
            } else {
                return Err(problem);
            }
        }
        if self.opened.is_empty() {
            self.locked_since = None;
        }
        let (ready, early): (Vec<_>, _) =
            std::mem::take(&mut self.early).into_iter().partition(|(object, ..)| self.part(*object).is_some());
        self.early_bytes = early.iter().map(|(.., bytes): &(u64, u64, Vec<u8>)| bytes.len()).sum();
        self.early = early;
        ready.into_iter().try_for_each(|(object, offset, bytes)| self.put(object, offset, &bytes))
    }

    fn part(&mut self, object: u64) -> Option<&mut Part> {
        self.parts.get_mut(&manifest::file(object)?)
    }

    /// The sender has opened an object, and it is known which file that is.
    fn begin(&mut self, connection: &mut Connection, object: u64) -> Result<()> {
        let files = self.files.as_ref().context("no file was named")?;
        let number = manifest::file(object).filter(|number| *number < files.len());
        let number = number.context("bytes of a file that was not named")?;
        let meta = &files[number];
        if self.resumes && files::in_place(&self.root, meta).is_some() {
            connection.grant(object, VARINT_MAX);
            connection.resume(object, 0..meta.len);
            self.placed.insert(number, Placed::open(&self.root, meta)?);
            // Those by which the object was opened.
            self.early.retain(|(of, ..)| *of != object);
            return Ok(());
        }
        let part = Part::open(&self.root, meta, self.resumes)?.with_sync(self.syncs.then(|| Arc::clone(&self.root)));
        connection.grant(object, VARINT_MAX);
        for range in part.have().iter() {
            connection.resume(object, range.clone());
        }
        self.parts.insert(number, part);
        Ok(())
    }

    fn put(&mut self, object: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let Some(part) = self.part(object) else {
            self.early_bytes += bytes.len();
            ensure!(self.early_bytes <= EARLY_MAX, "the sender names no files and sends their bytes");
            self.early.push((object, offset, bytes.to_vec()));
            return Ok(());
        };
        part.write(offset, bytes)
            .with_context(|| manifest::file(object).map_or_else(String::new, |file| self.name(file)))
    }

    /// Something is said that is none of what a sender says.
    fn unheard(&self, problem: anyhow::Error) -> anyhow::Error {
        match &self.files {
            None => anyhow!("no files are sent: here `weirgate receive` runs, and no tunnel ends"),
            Some(_) => problem,
        }
    }

    fn name(&self, number: usize) -> String {
        self.files.as_ref().and_then(|files| files.get(number)).map_or_else(String::new, |file| file.path.clone())
    }

    /// A file that is to be hashed before it can be put in its place.
    fn unhashed(&self) -> Option<usize> {
        let is_here = |number: &usize| self.parts.contains_key(number) || self.placed.contains_key(number);
        self.whole.iter().find(|number| !self.hashed.contains(number) && is_here(number)).copied()
    }

    /// Hashes a step of one file.
    fn hash_some(&mut self) -> Result<()> {
        if let Some(number) = self.unhashed() {
            let is_whole = self.parts.get(&number).is_none_or(Part::is_whole);
            ensure!(is_whole, "{}: its end came, and not all of it", self.name(number));
            let part = self.parts.get_mut(&number).map(Part::hash_some);
            let placed = || self.placed.get_mut(&number).map(Placed::hash_some);
            if part.or_else(placed).transpose().with_context(|| self.name(number))? == Some(true) {
                self.hashed.insert(number);
            }
        } else if let Some(part) = self.parts.values_mut().find(|part| part.wants_hashing()) {
            part.hash_some()?;
        }
        Ok(())
    }

    /// Puts files in their places of which all is there and was hashed, and of which the sender has said the hash.
    fn finish(&mut self, connection: &mut Connection) -> Result<()> {
        let ready: Vec<usize> = self.hashed.iter().copied().filter(|number| self.hashes.contains_key(number)).collect();
        for number in ready {
            self.whole.remove(&number);
            self.hashed.remove(&number);
            let hash = self.hashes.remove(&number).flatten();
            let part = self.parts.remove(&number).map(|part| part.finish(hash.as_deref())).transpose()?;
            let placed = self.placed.remove(&number).map(|placed| placed.finish(hash.as_deref()));
            self.end(connection, number, part.or(placed).and_then(Result::err))?;
        }
        let is_over = self.files.as_ref().is_some_and(|files| self.done + self.refused == files.len());
        if is_over && !std::mem::replace(&mut self.is_over, true) {
            // The inner ones first: through the outer ones there may be no way then.
            self.folders.iter().rev().try_for_each(|folder| files::finish_folder(&self.root, folder))?;
            let len = self.talk.say(&Line::All)?;
            connection.provide(TALK, len, false);
        }
        Ok(())
    }

    /// A file is in its place, or will not be.
    fn end(&mut self, connection: &mut Connection, number: usize, refused: Option<Refused>) -> Result<()> {
        connection.forget(manifest::object(number));
        let line = match &refused {
            None => Line::Done { file: number },
            Some(why) => Line::Refused { file: number, why: why.to_string() },
        };
        *(if refused.is_none() { &mut self.done } else { &mut self.refused }) += 1;
        let len = self.talk.say(&line)?;
        connection.provide(TALK, len, false);
        if let (Some(news), Some(files)) = (&self.news, &self.files) {
            let finished = Finished { peer: connection.peer(), file: files[number].clone(), refused };
            let _nobody_listens = news.send(finished);
        }
        Ok(())
    }

    /// Notes what is there, for a transfer that goes on with it.
    pub fn save(&mut self) {
        for part in self.parts.values_mut() {
            // It is for later: now the transfer goes on.
            let _less_is_there_then = part.save();
        }
    }
}

/// Whether somebody else writes a file.
fn is_locked(problem: &anyhow::Error) -> bool {
    problem.downcast_ref().is_some_and(|problem: &io::Error| problem.kind() == io::ErrorKind::WouldBlock)
}

impl App for Receiving {
    type Error = anyhow::Error;

    fn handle_event(&mut self, connection: &mut Connection, event: Event) -> Result<()> {
        match event {
            Event::Opened(TALK) => connection.grant(TALK, VARINT_MAX),
            Event::Opened(object) => self.opened.push(object),
            Event::Complete(object) => {
                self.whole.extend(manifest::file(object));
            }
            Event::Closed(why) => {
                self.save();
                self.ended = Some(why);
            }
            Event::Reset { .. } => bail!("the sender sends no more of a file"),
            _ => {}
        }
        Ok(())
    }

    fn advance(&mut self, connection: &mut Connection) -> Result<()> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        while let Some(line) = self.heard.read().map_err(|problem| self.unheard(problem))? {
            self.handle_line(connection, line)?;
        }
        let now = clock::monotonic();
        if self.files.is_some() && !(self.opened.is_empty() && self.early.is_empty()) {
            self.begin_opened(now, connection)?;
        }
        self.hash_some()?;
        self.finish(connection)?;
        if now.saturating_since(self.saved) >= SAVE_EVERY {
            self.saved = now;
            self.save();
        }
        Ok(())
    }

    fn poll_at(&self) -> Option<Instant> {
        // What is there is hashed while nothing else is to be done.
        self.unhashed().map(|_| clock::monotonic())
    }
}

impl Source for Receiving {
    fn read(&mut self, object: u64, offset: u64, out: &mut [u8]) {
        if object == TALK {
            self.talk.read(offset, out);
        }
    }
}

impl Sink for Receiving {
    fn write(&mut self, object: u64, offset: u64, bytes: &[u8]) {
        let written = if object == TALK {
            self.heard.write(offset, bytes)
        } else {
            self.bytes += bytes.len() as u64;
            self.put(object, offset, bytes)
        };
        if let Err(problem) = written {
            self.problem.get_or_insert_with(|| anyhow!(problem));
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.save();
    }
}
