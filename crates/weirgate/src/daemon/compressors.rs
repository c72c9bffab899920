//! Processes that compress by `libweirgate_z.so`: what each counts in a file of its own, added up, and kept when it has ended.

use std::fs::{self, File, Permissions};
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use rustix::fs::OFlags;
use weirgate_deflate::count::{Maker, Reason, Totals};
use weirgate_linux::clock;

use crate::view::api;

/// Files that are looked at; who has more processes than this compress sees no more of them until some have ended.
const FILES_MAX: usize = 65_536;

/// More than the file of a process has.
const BYTES_MAX: u64 = 4_096;

/// The folder of these files, which is there for as long as this value.
#[derive(Debug)]
pub(crate) struct Compressors {
    folder: PathBuf,
    /// Of processes that have ended.
    ended: Mutex<Totals>,
}

impl Compressors {
    /// Makes the folder, beside the control socket. Whoever compresses may make a file there, and remove its own.
    pub(crate) fn open(control: &Path) -> anyhow::Result<Self> {
        let folder = control.with_file_name("deflate");
        let made =
            fs::create_dir_all(&folder).and_then(|()| fs::set_permissions(&folder, Permissions::from_mode(0o1777)));
        made.with_context(|| format!("{}: counters of compressing processes have no place", folder.display()))?;
        Ok(Self { folder, ended: Mutex::default() })
    }

    /// What all have done since this value was made: those that run, and those that have ended.
    pub(crate) fn look(&self) -> api::Deflate {
        let mut ended = self.ended();
        let (mut all, mut processes) = (Totals::default(), 0);
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
            if totals.is_over(now) && fs::remove_file(&path).is_ok() {
                *ended = ended.and(&idle);
            } else {
                all = all.and(&idle);
            }
        }
        row(&all.and(&ended), processes)
    }

    fn ended(&self) -> MutexGuard<'_, Totals> {
        // Sums of numbers are whole whoever panicked.
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
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
        for path in self.files() {
            let _ = fs::remove_file(path);
        }
        let _ = fs::remove_dir(&self.folder);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as a process writes it: the counters' bytes, of which the first word is of bodies of the first engine, and the last one when
    /// it lived.
    fn count(folder: &Path, name: &str, bodies: u64, alive: u64) {
        let mut bytes = vec![0; size_of::<weirgate_deflate::Counters>()];
        let last = bytes.len() - 8;
        bytes[..8].copy_from_slice(&0x7767_6465_666c_7403_u64.to_ne_bytes());
        bytes[8..16].copy_from_slice(&bodies.to_ne_bytes());
        bytes[last..].copy_from_slice(&alive.to_ne_bytes());
        fs::write(folder.join(name), bytes).unwrap();
    }

    #[test]
    fn who_has_ended_is_not_forgotten_and_nonsense_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let compressors = Compressors::open(&dir.path().join("control.sock")).unwrap();
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
        drop(compressors);
        assert!(!folder.exists());
    }
}
