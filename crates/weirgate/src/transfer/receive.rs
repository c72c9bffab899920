//! The side that receives files.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use weirgate_linux::clock;
use weirgate_linux::transport::App;
use weirgate_spray::wire::VARINT_MAX;
use weirgate_spray::{Closed, Connection, Event, Sink, Source};
use weirgate_units::{Duration, Instant};

use super::files::{self, Part, Placed};
use super::manifest::{self, Line, Lines, TALK, Talk, VERSION};

/// Bytes that may come before it is known what they are, of each object: until then they are kept in memory.
pub const CREDIT: u64 = 1 << 20;

/// Objects that the sender may have open: [`super::send`] has 64 files and one to talk.
pub const OBJECTS_MAX: usize = 128;

/// Bytes of all objects that are kept until it is known what they are.
const EARLY_MAX: usize = 64 << 20;

/// How often it is noted what is there.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// A transfer of files, from their new place's side.
#[derive(Debug)]
pub struct Receiving {
    root: Arc<OwnedFd>,
    heard: Lines,
    talk: Talk,
    files: Option<Vec<manifest::File>>,
    resumes: bool,
    /// Files that come now.
    parts: BTreeMap<usize, Part>,
    /// Files that were in their places before.
    placed: BTreeMap<usize, Placed>,
    /// Files of which all is there, and of these, those all of which was hashed.
    whole: BTreeSet<usize>,
    hashed: BTreeSet<usize>,
    hashes: BTreeMap<usize, String>,
    /// What came before it was known what it is.
    early: Vec<(u64, u64, Vec<u8>)>,
    early_bytes: usize,
    opened: Vec<u64>,
    done: usize,
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
            resumes: false,
            parts: BTreeMap::new(),
            placed: BTreeMap::new(),
            whole: BTreeSet::new(),
            hashed: BTreeSet::new(),
            hashes: BTreeMap::new(),
            early: Vec::new(),
            early_bytes: 0,
            opened: Vec::new(),
            done: 0,
            bytes: 0,
            saved: clock::monotonic(),
            problem: None,
            ended: None,
        }
    }

    /// Files that are in their places, and all that were named.
    pub fn files(&self) -> (usize, usize) {
        (self.done, self.files.as_ref().map_or(0, Vec::len))
    }

    /// Bytes that came.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Why it has ended.
    pub const fn ended(&self) -> Option<&Closed> {
        self.ended.as_ref()
    }

    fn handle_line(&mut self, connection: &mut Connection, line: Line) -> Result<()> {
        match line {
            Line::Files { version, resume, files } if self.files.is_none() => {
                ensure!(version == VERSION, "the sender speaks version {version}, and this is version {VERSION}");
                self.handle_files(connection, resume, files)
            }
            Line::Hash { file, blake3 } => {
                self.hashes.insert(file, blake3);
                Ok(())
            }
            other => bail!("the sender says what it cannot: {other:?}"),
        }
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
        for object in std::mem::take(&mut self.opened) {
            self.begin(connection, object)?;
        }
        for (object, offset, bytes) in std::mem::take(&mut self.early) {
            self.put(object, offset, &bytes)?;
        }
        self.early_bytes = 0;
        Ok(())
    }

    /// The sender has opened an object, and it is known which file that is.
    fn begin(&mut self, connection: &mut Connection, object: u64) -> Result<()> {
        let files = self.files.as_ref().context("no file was named")?;
        let number = manifest::file(object).filter(|number| *number < files.len());
        let number = number.context("bytes of a file that was not named")?;
        connection.grant(object, VARINT_MAX);
        let meta = &files[number];
        if self.resumes && files::in_place(&self.root, meta).is_some() {
            connection.resume(object, 0..meta.len);
            self.placed.insert(number, Placed::open(&self.root, meta)?);
            // Those by which the object was opened.
            self.early.retain(|(of, ..)| *of != object);
            return Ok(());
        }
        let part = Part::open(&self.root, meta, self.resumes)?;
        for range in part.have().iter() {
            connection.resume(object, range.clone());
        }
        self.parts.insert(number, part);
        Ok(())
    }

    fn put(&mut self, object: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let part = manifest::file(object).and_then(|number| self.parts.get_mut(&number));
        let Some(part) = part else {
            self.early_bytes += bytes.len();
            ensure!(self.early_bytes <= EARLY_MAX, "the sender names no files and sends their bytes");
            self.early.push((object, offset, bytes.to_vec()));
            return Ok(());
        };
        part.write(offset, bytes)
            .with_context(|| manifest::file(object).map_or_else(String::new, |file| self.name(file)))
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
            let hash = self.hashes.remove(&number).unwrap_or_default();
            if let Some(part) = self.parts.remove(&number) {
                part.finish(&hash)?;
            }
            if let Some(placed) = self.placed.remove(&number) {
                placed.finish(&hash)?;
            }
            self.done += 1;
            connection.forget(manifest::object(number));
            let len = self.talk.say(&Line::Done { file: number })?;
            connection.provide(TALK, len, false);
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

impl App for Receiving {
    type Error = anyhow::Error;

    fn handle_event(&mut self, connection: &mut Connection, event: Event) -> Result<()> {
        match event {
            Event::Opened(TALK) => connection.grant(TALK, VARINT_MAX),
            Event::Opened(object) if self.files.is_some() => self.begin(connection, object)?,
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
        while let Some(line) = self.heard.read()? {
            self.handle_line(connection, line)?;
        }
        // What came with the packet that opened its object was not known then.
        if self.files.is_some() && !self.early.is_empty() {
            self.early_bytes = 0;
            for (object, offset, bytes) in std::mem::take(&mut self.early) {
                self.put(object, offset, &bytes)?;
            }
        }
        self.hash_some()?;
        self.finish(connection)?;
        let now = clock::monotonic();
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
        self.bytes += bytes.len() as u64;
        let written = if object == TALK { self.heard.write(offset, bytes) } else { self.put(object, offset, bytes) };
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
