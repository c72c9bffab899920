//! What is kept of a point of presence: what its controller knows, and the snapshot that came of it, in one piece, so that nobody ever
//! finds one without the other. It is written before the snapshot is published: whoever is killed in between publishes it when he is
//! started again.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use weirgate_units::UnixTime;

use super::replace;

const MAGIC: &[u8; 5] = b"WGCM\x02";

/// What is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// That of its snapshots: 0, or when it was begun anew last, in seconds since 1970.
    pub(super) generation: u64,
    /// The last snapshot, if there was one.
    pub(super) sealed: Option<Sealed>,
    /// The controller's own.
    pub(super) state: Vec<u8>,
}

/// A snapshot as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sealed {
    pub(super) version: u64,
    pub(super) until: UnixTime,
    pub(super) bytes: Vec<u8>,
}

/// The folder of memories of who keeps its state in `state`.
pub(super) fn folder(state: &Path) -> PathBuf {
    state.join("controller")
}

/// The file that a controller holds locked while the folder is its own.
pub(super) fn lock(folder: &Path) -> PathBuf {
    folder.join("lock")
}

impl Memory {
    /// What is kept of `pop` in the folder `memory`; `None` where nothing is.
    pub(super) fn load(folder: &Path, pop: &str) -> Result<Option<Self>> {
        let path = path(folder, pop);
        match fs::read(&path) {
            Ok(bytes) => Self::from_bytes(&bytes).with_context(|| path.display().to_string()).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    pub(super) fn save(&self, folder: &Path, pop: &str) -> Result<()> {
        replace(&path(folder, pop), 0o600, &self.to_bytes())
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Self { generation, sealed, state } = self;
        let (version, until, bytes) =
            sealed.as_ref().map_or((0, 0, &[][..]), |sealed| (sealed.version, sealed.until.as_nanos(), &sealed.bytes));
        let length = bytes.len() as u64;
        [
            &MAGIC[..],
            &generation.to_le_bytes(),
            &version.to_le_bytes(),
            &until.to_le_bytes(),
            &length.to_le_bytes(),
            bytes,
            state,
        ]
        .concat()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let read = || {
            let mut rest = bytes.strip_prefix(MAGIC)?;
            let mut number = || {
                let (number, after) = rest.split_first_chunk::<8>()?;
                rest = after;
                Some(u64::from_le_bytes(*number))
            };
            let (generation, version, until, length) = (number()?, number()?, number()?, number()?);
            let (sealed, state) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            let sealed = Sealed { version, until: UnixTime::from_nanos(until), bytes: sealed.to_vec() };
            let sealed = (length > 0).then_some(sealed);
            Some(Self { generation, sealed, state: state.to_vec() })
        };
        read().ok_or_else(|| {
            anyhow!("is damaged, or of another version of Weirgate: `weirgate controller reset POP` begins anew")
        })
    }
}

fn path(folder: &Path, pop: &str) -> PathBuf {
    folder.join(format!("{pop}.memory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Memory::load(dir.path(), "ams").unwrap(), None);
        let sealed = Sealed { version: 7, until: UnixTime::from_nanos(9), bytes: b"signed".to_vec() };
        for memory in [
            Memory::default(),
            Memory { generation: 9, sealed: Some(sealed.clone()), state: b"state".to_vec() },
            Memory { generation: 0, sealed: Some(sealed), state: vec![] },
        ] {
            memory.save(dir.path(), "ams").unwrap();
            assert_eq!(Memory::load(dir.path(), "ams").unwrap(), Some(memory.clone()));
            let bytes = memory.to_bytes();
            for cut in 0..bytes.len() - memory.state.len() {
                let said = Memory::from_bytes(&bytes[..cut]).unwrap_err().to_string();
                assert!(said.contains("weirgate controller reset"), "{said}");
            }
        }
    }
}
