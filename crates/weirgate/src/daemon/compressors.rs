//! Processes that compress by `libweirgate_z.so`: what each counts in a file of its own, added up, and kept when it has ended.

use std::fs::{self, File, Permissions};
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use rustix::fs::OFlags;
use weirgate_deflate::count::{Made, Maker, Reason, Totals};
use weirgate_linux::clock;

use crate::folder;
use crate::view::api;

/// Files that are looked at; who has more processes than this compress sees no more of them until some have ended.
const FILES_MAX: usize = 65_536;

/// More than the file of a process has.
const BYTES_MAX: u64 = 4_096;

/// The folder of these files, which is there for as long as this value; and what those processes did that have ended, in a file that outlives
/// it. Between a daemon's end and the next one's start the folder has another name: processes go on counting in the files that they have, and
/// make no new ones.
#[derive(Debug)]
pub(crate) struct Compressors {
    folder: PathBuf,
    ended: Mutex<Ended>,
}

/// Of processes that have ended.
#[derive(Debug)]
struct Ended {
    file: PathBuf,
    totals: Totals,
    /// Whether it was told that the file cannot be written.
    told: bool,
}

impl Compressors {
    /// Makes the folder, beside the control socket, or takes the one that the last daemon has left. Whoever compresses may make a file
    /// there, and remove its own.
    pub(crate) fn open(control: &Path, state: &Path) -> anyhow::Result<Self> {
        let folder = control.with_file_name("deflate");
        if !folder.exists() {
            let _there_is_none = fs::rename(kept(&folder), &folder);
        }
        let made =
            fs::create_dir_all(&folder).and_then(|()| fs::set_permissions(&folder, Permissions::from_mode(0o1777)));
        made.with_context(|| format!("{}: counters of compressing processes have no place", folder.display()))?;
        Ok(Self { folder, ended: Mutex::new(Ended::open(state.join("deflate.json"))) })
    }

    /// What all have done: those that run, and those that have ended.
    pub(crate) fn look(&self) -> api::Deflate {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut all, mut over, mut processes) = (Totals::default(), Totals::default(), 0);
        let mut files = Vec::new();
        let now = clock::monotonic().as_nanos();
        for path in self.files() {
            // One that is just being made is no counters yet.
            let Some(totals) = read(&path) else { continue };
            if totals.is_awake(now) {
                all = all.and(&totals);
                processes += 1;
                continue;
            }
            let idle = Totals { instances: 0, ..totals };
            if totals.is_over(now) {
                over = over.and(&idle);
                files.push(path);
            } else {
                all = all.and(&idle);
            }
        }
        if !files.is_empty() {
            // First what outlives them: a daemon that dies in between counts some twice, and forgets none.
            ended.add(&over);
            for path in files {
                let _others_may_have = fs::remove_file(path);
            }
        }
        row(&all.and(&ended.totals), processes)
    }

    /// Those whose names processes may have drawn.
    fn files(&self) -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let is_drawn = |name: &[u8]| name.len() == 32 && name.iter().all(u8::is_ascii_hexdigit);
        let files = entries.filter(move |entry| is_drawn(entry.file_name().as_encoded_bytes()));
        files.map(|entry| entry.path()).take(FILES_MAX)
    }
}

impl Drop for Compressors {
    fn drop(&mut self) {
        // One without files is nobody's.
        if fs::remove_dir(&self.folder).is_err() {
            let _it_stays = fs::rename(&self.folder, kept(&self.folder));
        }
    }
}

/// Where the folder is while no daemon runs.
fn kept(folder: &Path) -> PathBuf {
    folder.with_file_name("deflate.kept")
}

impl Ended {
    fn open(file: PathBuf) -> Self {
        let totals = match fs::read(&file).map(|bytes| serde_json::from_slice::<api::Deflate>(&bytes)) {
            Ok(Ok(row)) => totals(&row),
            Ok(Err(error)) => {
                tracing::warn!("{}: {error}; what processes have compressed is counted anew", file.display());
                Totals::default()
            }
            // There was no daemon before.
            Err(_) => Totals::default(),
        };
        Self { file, totals, told: false }
    }

    fn add(&mut self, more: &Totals) {
        self.totals = self.totals.and(more);
        let text = serde_json::to_vec(&row(&self.totals, 0)).unwrap_or_default();
        if let Err(error) = folder::replace(&self.file, 0o666, &text)
            && !std::mem::replace(&mut self.told, true)
        {
            tracing::warn!("{}: {error}; what processes have compressed is forgotten at the end", self.file.display());
        }
    }
}

/// What a process says; it may say anything.
fn read(path: &Path) -> Option<Totals> {
    // A pipe would have the reader wait, and whoever made it may put it there at any time.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Totals::read(&bytes)
}

fn row(totals: &Totals, processes: u64) -> api::Deflate {
    let made = Maker::ALL.into_iter().zip(&totals.made);
    let why = Reason::ALL.into_iter().zip(&totals.reasons);
    api::Deflate {
        now_ms: 0,
        processes,
        instances: totals.instances,
        engines: made
            .map(|(maker, made)| api::Engine {
                name: maker.name().to_owned(),
                bodies: made.bodies,
                bytes_in: made.bytes_in,
                bytes_out: made.bytes_out,
                us: made.nanos / 1_000,
            })
            .collect(),
        fallbacks: why.map(|(why, count)| api::Fallback { reason: why.name().to_owned(), count: *count }).collect(),
    }
}

/// What such a row says, by names: another release may have others.
fn totals(row: &api::Deflate) -> Totals {
    let made = Maker::ALL.map(|maker| {
        let of = row.engines.iter().find(|engine| engine.name == maker.name());
        of.map_or_else(Made::default, |engine| Made {
            bodies: engine.bodies,
            bytes_in: engine.bytes_in,
            bytes_out: engine.bytes_out,
            nanos: engine.us.saturating_mul(1_000),
        })
    });
    let reasons = Reason::ALL.map(|why| {
        let of = row.fallbacks.iter().find(|fallback| fallback.reason == why.name());
        of.map_or(0, |fallback| fallback.count)
    });
    Totals { made, reasons, ..Totals::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as a process writes it: the counters' bytes, of which the first word is of bodies of the first engine, and the last one when
    /// it lived.
    fn count(folder: &Path, name: &str, bodies: u64, alive: u64) {
        let mut bytes = vec![0; size_of::<weirgate_deflate::Counters>()];
        let last = bytes.len() - 8;
        bytes[..8].copy_from_slice(&0x7767_6465_666c_7404_u64.to_ne_bytes());
        bytes[8..16].copy_from_slice(&bodies.to_ne_bytes());
        bytes[last..].copy_from_slice(&alive.to_ne_bytes());
        fs::write(folder.join(name), bytes).unwrap();
    }

    #[test]
    fn who_has_ended_is_not_forgotten_and_nonsense_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let control = dir.path().join("control.sock");
        let compressors = Compressors::open(&control, dir.path()).unwrap();
        let folder = dir.path().join("deflate");
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o7777, 0o1777);
        let now = clock::monotonic().as_nanos();
        let [lives, ended, killed, idle, nonsense, link] = [0, 1, 2, 3, 4, 5].map(|n| format!("{n:032x}"));
        count(&folder, &lives, 3, now);
        count(&folder, &ended, 4, 1);
        count(&folder, &killed, 20, now + 2 * 3_600_000_000_000);
        count(&folder, &idle, 100, now + 2 * 60_000_000_000);
        count(&folder, "not a process", 5, now);
        fs::write(folder.join(&nonsense), b"nonsense").unwrap();
        std::os::unix::fs::symlink(folder.join(&ended), folder.join(&link)).unwrap();
        for _ in 0..2 {
            let seen = compressors.look();
            assert_eq!((seen.processes, seen.engines[0].bodies, seen.engines[0].name.as_str()), (1, 127, "zlib"));
        }
        assert!(!folder.join(ended).exists() && !folder.join(killed).exists() && folder.join(idle).exists());
        count(&folder, &lives, 10, now);
        assert_eq!(compressors.look().engines[0].bodies, 134);
        fs::remove_file(folder.join("not a process")).unwrap();
        // The next daemon finds who lives, and has counted meanwhile, and knows of those that have ended.
        drop(compressors);
        assert!(!folder.exists(), "nobody makes new files");
        count(&kept(&folder), &lives, 11, now);
        let compressors = Compressors::open(&control, dir.path()).unwrap();
        assert_eq!(compressors.look().engines[0].bodies, 135);
        count(&folder, &lives, 12, 1);
        assert_eq!(compressors.look().engines[0].bodies, 136);
        // One that was killed as well.
        std::mem::forget(compressors);
        let compressors = Compressors::open(&control, dir.path()).unwrap();
        assert_eq!((compressors.look().processes, compressors.look().engines[0].bodies), (0, 136));
        for path in compressors.files() {
            fs::remove_file(path).unwrap();
        }
        drop(compressors);
        assert!(!folder.exists() && !kept(&folder).exists(), "nobody is left who counts");
    }

    #[test]
    fn what_was_written_of_those_that_have_ended_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut ended = Ended::open(dir.path().join("deflate.json"));
        let mut more = Totals::default();
        more.made[3] = Made { bodies: 1, bytes_in: 2, bytes_out: 3, nanos: 4_000 };
        more.reasons[5] = 6;
        ended.add(&more);
        ended.add(&more);
        let mut read = Ended::open(ended.file.clone());
        assert_eq!(read.totals, more.and(&more));
        fs::write(&read.file, b"nonsense").unwrap();
        assert_eq!(Ended::open(read.file.clone()).totals, Totals::default());
        // Where there is no place for it, it is known as long as the daemon runs.
        read.file = dir.path().join("none").join("deflate.json");
        read.add(&more);
        assert_eq!((read.totals.reasons[5], read.told), (18, true));
    }
}
