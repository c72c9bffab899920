//! The secret of the holdout's draw: made once per host, kept beside the controller's state.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where the seed of the daemon with this `state` is.
pub(crate) fn path(state: &Path) -> PathBuf {
    state.join("seed")
}

/// The seed in `state`, made if there is none.
pub(crate) fn load(state: &Path) -> io::Result<u64> {
    let path = path(state);
    let mut bytes = [0; 8];
    match File::open(&path) {
        Ok(mut file) => file.read_exact(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            File::open("/dev/urandom")?.read_exact(&mut bytes)?;
            std::fs::create_dir_all(state)?;
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
        }
        Err(error) => return Err(error),
    }
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let seed = load(&state).unwrap();
        assert_eq!(load(&state).unwrap(), seed);
        assert_ne!(load(dir.path()).unwrap(), seed);
    }
}
