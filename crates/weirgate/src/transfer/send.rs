//! The side that sends files.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use weirgate_linux::clock;
use weirgate_linux::transport::App;
use weirgate_spray::{Closed, Connection, Event, Sink, Source};
use weirgate_units::{Duration, Instant};

use super::manifest::{self, Line, Lines, TALK, Talk, VERSION};

/// Files whose bytes are sent at the same time, at most: many small ones fill the paths together.
const OPEN_MAX: usize = 64;

/// Bytes that are read at a time.
const BLOCK: usize = 256 << 10;

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
    problem: Option<anyhow::Error>,
}

#[derive(Debug)]
struct Open {
    number: usize,
    file: File,
    /// What was read last, and from where.
    block: Vec<u8>,
    block_at: u64,
}

impl Sending {
    /// Of what [`manifest::list`] has found; it opens the first object of `connection`, and says what there is.
    ///
    /// # Errors
    /// Where it cannot be said, or no thread be started.
    pub fn begin(files: Vec<(PathBuf, manifest::File)>, resumes: bool, connection: &mut Connection) -> Result<Self> {
        let mut talk = Talk::default();
        let said: Vec<manifest::File> = files.iter().map(|(_, file)| file.clone()).collect();
        let len = talk.say(&Line::Files { version: VERSION, resume: resumes, files: said })?;
        let opened = connection.open();
        debug_assert_eq!(opened, TALK);
        connection.provide(TALK, len, false);
        let (say, hashes) = channel();
        let all: Vec<PathBuf> = files.iter().map(|(path, _)| path.clone()).collect();
        // Beside the transfer; it ends when nobody listens any more.
        thread::Builder::new().name("hash".into()).spawn(move || {
            for (number, path) in all.iter().enumerate() {
                if say.send((number, hash(path))).is_err() {
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
            problem: None,
        })
    }

    /// All bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, file)| file.len).sum()
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

    /// Whether all files are in their places.
    pub fn is_done(&self) -> bool {
        self.done == self.files.len()
    }

    fn open_more(&mut self, connection: &mut Connection) -> Result<()> {
        while self.open.len() < OPEN_MAX
            && let Some(number) = self.next
            && let Some((path, meta)) = self.files.get(number)
        {
            let file = File::open(path).with_context(|| path.display().to_string())?;
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
                let at = self.open.iter().position(|open| open.number == file);
                let open = self.open.swap_remove(at.context("a file that was not sent is said to be there")?);
                connection.forget(manifest::object(open.number));
                self.done += 1;
                self.done_bytes += self.files[file].1.len;
            }
            other => bail!("the receiver says what it cannot: {other:?}"),
        }
        Ok(())
    }
}

impl App for Sending {
    type Error = anyhow::Error;

    fn handle_event(&mut self, _: &mut Connection, event: Event) -> Result<()> {
        match event {
            Event::Closed(Closed::Here) => Ok(()),
            Event::Closed(why) => Err(anyhow!(why)),
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
            let len = self.talk.say(&Line::Hash { file, blake3: blake3? })?;
            connection.provide(TALK, len, false);
            self.hashed += 1;
        }
        self.open_more(connection)?;
        if self.is_done() && !connection.is_closed() {
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
        if let Err(problem) = open.read(offset, out)
            && self.problem.is_none()
        {
            let name = self.files[open.number].0.display().to_string();
            self.problem = Some(anyhow!(problem).context(format!("{name}: it was cut, or cannot be read any more")));
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
            // What is sent again is not read ahead.
            if offset < self.block_at {
                return self.file.read_exact_at(out, offset);
            }
            self.block.resize(BLOCK.max(out.len()), 0);
            let mut len = 0;
            while len < self.block.len() {
                match self.file.read_at(&mut self.block[len..], offset + len as u64)? {
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

/// A file's hash, if it is the same before and after.
fn hash(path: &PathBuf) -> Result<String> {
    let named = || path.display().to_string();
    let mut hasher = blake3::Hasher::new();
    let file = File::open(path).with_context(named)?;
    let before = file.metadata().with_context(named)?;
    hasher.update_reader(&file).with_context(named)?;
    let after = std::fs::metadata(path).with_context(named)?;
    let of = |meta: &std::fs::Metadata| (meta.len(), meta.mtime(), meta.mtime_nsec(), meta.ino());
    anyhow::ensure!(of(&before) == of(&after), "{}: it was changed while it was read", path.display());
    Ok(hasher.finalize().to_hex().to_string())
}
