//! The secret of the holdout's draw: made once per host, kept beside the controller's state.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{folder, random};

/// Where the seed of the daemon with this `state` is.
pub(crate) fn path(state: &Path) -> PathBuf {
    state.join("seed")
}

/// The seed in `state`, and what is wrong, in a sentence. A new one is drawn where there is none or where it is damaged: a
/// guessable one would let clients choose their side of the comparison.
///
/// # Errors
/// Where nothing random can be had.
pub(crate) fn load(state: &Path) -> io::Result<(u64, Option<String>)> {
    let path = path(state);
    let wrong = match fs::read(&path) {
        Ok(bytes) => match <[u8; 8]>::try_from(bytes.as_slice()) {
            Ok(bytes) => return Ok((u64::from_le_bytes(bytes), None)),
            Err(_) => Some(format!("it has {} bytes instead of 8", bytes.len())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(error.to_string()),
    };
    let bytes = random::bytes()?;
    let at = path.display();
    let said = match (save(&path, &bytes), wrong) {
        (Ok(()), None) => None,
        (Ok(()), Some(wrong)) => Some(format!("{at}: {wrong}: a new seed is there now, and clients are held out anew")),
        (Err(error), _) => {
            Some(format!("{at}: {error}: the seed is not kept, and clients are held out anew at the next start"))
        }
    };
    Ok((u64::from_le_bytes(bytes), said))
}

/// For its owner only; a crash leaves the old one or the new one.
fn save(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(state) = path.parent() {
        fs::create_dir_all(state)?;
    }
    folder::replace(path, 0o600, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let (seed, wrong) = load(&state).unwrap();
        assert_eq!(wrong, None);
        assert_eq!(load(&state).unwrap(), (seed, None));
        assert_ne!(load(dir.path()).unwrap().0, seed);
    }

    #[test]
    fn a_damaged_one_is_replaced_and_said() {
        let dir = tempfile::tempdir().unwrap();
        for damaged in [&b""[..], b"short", b"longer than it is"] {
            fs::write(path(dir.path()), damaged).unwrap();
            let (seed, wrong) = load(dir.path()).unwrap();
            assert_ne!(seed, 0);
            assert!(wrong.unwrap().contains("instead of 8"));
            assert_eq!(load(dir.path()).unwrap(), (seed, None));
        }
    }

    #[test]
    fn where_nothing_can_be_kept_it_is_random_all_the_same() {
        let nowhere = Path::new("/proc/weirgate");
        let ((one, wrong), (other, _)) = (load(nowhere).unwrap(), load(nowhere).unwrap());
        assert_ne!(one, other);
        assert!(wrong.unwrap().contains("/proc/weirgate/seed"));
    }
}
