//! What is pinned, and how it is taken down: by this process, by a later one, by another version.
//!
//! The only knowledge needed of whoever made the pins is their names, and that `control` begins with the expiry.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use thiserror::Error;

use super::layout::SteerCounters;
use crate::netns::Netns;

/// The link that attaches the program to the cgroup.
pub(super) const PROGRAM: &str = "steer";
/// The iterator that brings open connections under the policy in force.
pub(super) const OPEN: &str = "open";
/// The iterator that puts every connection back.
pub(super) const SWEEP: &str = "sweep";
/// The map of what is known of each connection. The number grows when `struct wg_conn` changes.
pub(super) const CONNS: &str = "conns-1";
/// The map with expiry and settings.
pub(super) const CONTROL: &str = "control";
/// The link that keeps the congestion control `unpace` registered.
pub(super) const UNPACE: &str = "unpace";
/// The map of counters.
pub(super) const COUNTERS: &str = "counters";

/// What [`undo`] did.
#[derive(Debug, Default)]
pub struct Undone {
    /// Whether there was anything under the pin folder.
    pub found: bool,
    /// Connections put back to their own congestion control.
    pub sockets_reset: u64,
    /// Namespaces that could not be walked, with the reason. Their connections keep what they run on.
    pub unwalked: Vec<(String, io::Error)>,
}

/// Why pins could not be taken down; what could be, was.
#[derive(Debug, Error)]
pub enum UndoError {
    /// The BPF file system lets this user neither see nor make pins there; capabilities alone do not.
    #[error("{0}: permission denied: the BPF file system is root's (mode 0700), so pinning there takes root")]
    Denied(PathBuf),
    /// The folder cannot be read.
    #[error("{0} cannot be read: {1}")]
    Read(PathBuf, #[source] io::Error),
    /// The program cannot be detached.
    #[error("the program pinned at {0} cannot be detached: {1}")]
    Detach(PathBuf, #[source] libbpf_rs::Error),
    /// A pin cannot be removed.
    #[error("{0} cannot be removed: {1}; remove it as root")]
    Remove(PathBuf, #[source] io::Error),
}

/// Removes what [`super::Steering`] left in the kernel, whether or not its process lives and whichever version it was:
/// detaches the program, puts the connections of `namespaces` back, removes the pins. Nothing to do is no error.
pub fn undo(pin_dir: &Path, namespaces: &[Netns]) -> Result<Undone, UndoError> {
    take_down(pin_dir, namespaces, false)
}

/// As [`undo`]; with `keep_conns` what is known of the connections stays, for a program that is attached next.
pub(super) fn take_down(pin_dir: &Path, namespaces: &[Netns], keep_conns: bool) -> Result<Undone, UndoError> {
    match fs::read_dir(pin_dir) {
        Ok(_) => {}
        // Whether anything is there cannot be told.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(UndoError::Denied(pin_dir.to_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Undone::default()),
        Err(e) => return Err(UndoError::Read(pin_dir.to_owned(), e)),
    }
    let mut undone = Undone { found: true, ..Undone::default() };
    let program = pin_dir.join(PROGRAM);
    if program.exists() {
        // Detached first, though the expiry would do: a daemon that lives might renew it.
        let detached = Link::open(&program).and_then(|link| link.detach());
        detached.map_err(|e| UndoError::Detach(program.clone(), e))?;
    }
    if let Ok(control) = MapHandle::from_pinned_path(pin_dir.join(CONTROL)) {
        let mut page = vec![0; control.value_size() as usize];
        if let Ok(Some(was)) = control.lookup(&0u32.to_ne_bytes(), MapFlags::ANY) {
            page.copy_from_slice(&was);
        }
        page[..8].fill(0);
        let _expired = control.update(&0u32.to_ne_bytes(), &page, MapFlags::ANY);
    }
    let sweep = pin_dir.join(SWEEP);
    if sweep.exists() {
        let counters = MapHandle::from_pinned_path(pin_dir.join(COUNTERS)).ok();
        let reset = || counters.as_ref().and_then(|map| SteerCounters::read(map).ok()).unwrap_or_default().open_reset;
        let before = reset();
        for ns in namespaces {
            if let Err(e) = walk(&sweep, ns) {
                undone.unwalked.push((ns.name().to_owned(), e));
            }
        }
        undone.sockets_reset = reset() - before;
    }
    remove(pin_dir, keep_conns)?;
    Ok(undone)
}

/// Removes every pin, and the folder where nothing is left in it.
pub(super) fn remove(pin_dir: &Path, keep_conns: bool) -> Result<(), UndoError> {
    let entries = fs::read_dir(pin_dir).map_err(|e| UndoError::Read(pin_dir.to_owned(), e))?;
    let mut kept = false;
    for entry in entries.flatten() {
        if keep_conns && entry.file_name() == CONNS {
            kept = true;
        } else {
            fs::remove_file(entry.path()).map_err(|e| UndoError::Remove(entry.path(), e))?;
        }
    }
    if kept { Ok(()) } else { fs::remove_dir(pin_dir).map_err(|e| UndoError::Remove(pin_dir.to_owned(), e)) }
}

/// Makes the folder, and checks that kernel objects can be pinned there.
pub(super) fn make_dir(pin_dir: &Path) -> io::Result<()> {
    fs::create_dir_all(pin_dir)?;
    // include/uapi/linux/magic.h
    if rustix::fs::statfs(pin_dir)?.f_type == 0xcafe_4a11 {
        return Ok(());
    }
    fs::remove_dir(pin_dir)?;
    Err(io::Error::other("not on a bpffs"))
}

/// The map of connections that an earlier run left; a pin of another layout is removed.
pub(super) fn kept_conns(pin_dir: &Path, value_size: u32) -> Option<MapHandle> {
    let pin = pin_dir.join(CONNS);
    let kept = MapHandle::from_pinned_path(&pin).ok().filter(|map| map.value_size() == value_size);
    if kept.is_none() {
        let _absent = fs::remove_file(pin);
    }
    kept
}

/// Runs the iterator pinned at `pin` over every socket of `ns`.
pub(super) fn walk(pin: &Path, ns: &Netns) -> io::Result<()> {
    ns.within(|| {
        let mut iterator = File::open(pin)?;
        let mut nothing = [0; 64];
        loop {
            match iterator.read(&mut nothing) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                // After a million sockets without output the kernel asks to be called again.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock || e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    })?
}
