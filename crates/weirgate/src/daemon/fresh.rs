//! What a start makes on the disk, so that one that is refused leaves nothing that was not there.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::journal;

/// Files and folders that a start made. They go with the value, unless the daemon came to run: see [`Self::keep`].
#[derive(Debug)]
pub(crate) struct Fresh {
    /// In the order they were made.
    made: Vec<PathBuf>,
    journal: PathBuf,
    /// The lock on the state: given up after what it guards is gone, so that nobody else's files are removed.
    lock: Option<File>,
}

/// Those of some files, and of the folders above them, that are not there.
#[derive(Debug)]
pub(crate) struct Missing(Vec<PathBuf>);

impl Missing {
    /// To be called before any of `files` is made.
    pub(crate) fn of(files: &[PathBuf]) -> Self {
        let mut missing = Vec::new();
        for file in files {
            let absent = file.ancestors().take_while(|path| path.symlink_metadata().is_err());
            let mut absent: Vec<&Path> = absent.filter(|path| !path.as_os_str().is_empty()).collect();
            absent.reverse();
            missing.extend(absent.into_iter().map(Path::to_owned));
        }
        Self(missing)
    }
}

impl Fresh {
    pub(crate) fn new(config: &Config) -> Self {
        Self { made: Vec::new(), journal: config.journal(), lock: None }
    }

    /// What was missing is this start's.
    pub(crate) fn own(&mut self, missing: Missing) {
        self.made.extend(missing.0);
    }

    /// Keeps `lock` until everything is removed.
    pub(crate) fn hold(&mut self, lock: Option<File>) {
        self.lock = lock;
    }

    /// The daemon runs: everything stays.
    pub(crate) fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        for path in self.made.drain(..).rev() {
            // What could not be taken back is what `weirgate undo` will need.
            let needed = path == self.journal && !journal::read(&path).is_ok_and(|journal| journal.is_settled());
            if !needed {
                // Not made after all, or a folder that somebody else has put something into.
                let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Surroundings;

    fn made_in(dir: &Path) -> Fresh {
        let around = Surroundings { host: "test".into(), state: dir.join("a/state"), run: dir.join("run") };
        let mut fresh = Fresh::new(&Config::defaults(&around));
        let files = [dir.join("a/state/lock"), dir.join("a/state/journal.jsonl"), dir.join("run/never-made")];
        fresh.own(Missing::of(&files));
        fs::create_dir_all(dir.join("a/state")).unwrap();
        fs::create_dir(dir.join("run")).unwrap();
        fs::write(&files[0], "").unwrap();
        fs::write(&files[1], "").unwrap();
        fresh
    }

    #[test]
    fn what_was_not_there_goes_and_what_was_stays() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        drop(made_in(dir.path()));
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["a"]);
        assert_eq!(fs::read_dir(dir.path().join("a")).unwrap().count(), 0);
    }

    #[test]
    fn what_somebody_else_put_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let fresh = made_in(dir.path());
        fs::write(dir.path().join("a/state/theirs"), "").unwrap();
        drop(fresh);
        assert!(dir.path().join("a/state/theirs").exists() && !dir.path().join("a/state/lock").exists());
    }

    #[test]
    fn a_journal_that_undo_needs_stays() {
        let dir = tempfile::tempdir().unwrap();
        let fresh = made_in(dir.path());
        let path = dir.path().join("a/state/journal.jsonl");
        fs::write(&path, "what only a newer version reads\n").unwrap();
        drop(fresh);
        assert!(path.exists());
    }

    #[test]
    fn of_a_daemon_that_runs_everything_stays() {
        let dir = tempfile::tempdir().unwrap();
        made_in(dir.path()).keep();
        assert!(dir.path().join("a/state/lock").exists() && dir.path().join("run").exists());
    }
}
