//! Keys on disk: this host's own, and others'.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use weirgate_spray::{Public, Secret};

/// Where this user's key is: below /etc for root, and below the home folder for others.
///
/// # Errors
/// There is no home folder.
pub fn place() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok("/etc/weirgate/key".into());
    }
    let home = std::env::var_os("HOME").context("HOME says no folder: name the key's file with --key")?;
    Ok(Path::new(&home).join(".config/weirgate/key"))
}

/// The key in a file, which is made where there is none.
///
/// # Errors
/// It cannot be read or made, is no key, or others may read it.
pub fn own(path: &Path) -> Result<Secret> {
    match fs::read_to_string(path) {
        Ok(text) => {
            let mode = fs::metadata(path)?.mode();
            ensure!(mode & 0o077 == 0, "{}: others may read this key: chmod 600 it", path.display());
            // Secret and public keys are written alike.
            let bytes: Public = text.trim().parse().with_context(|| path.display().to_string())?;
            Ok(Secret::from_bytes(bytes.0))
        }
        Err(problem) if problem.kind() == ErrorKind::NotFound => make(path),
        Err(problem) => Err(problem).with_context(|| path.display().to_string()),
    }
}

fn make(path: &Path) -> Result<Secret> {
    let secret = Secret::generate();
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{}", Public(*secret.as_bytes()))
    });
    written.with_context(|| format!("{}: no key can be made there", path.display()))?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_nobody_else_may_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weirgate/key");
        let made = own(&path).unwrap().public();
        assert_eq!(own(&path).unwrap().public(), made);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(own(&path).unwrap_err().to_string().ends_with("others may read this key: chmod 600 it"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "no key").unwrap();
        assert!(format!("{:#}", own(&path).unwrap_err()).ends_with("a key has 64 hexadecimal digits"));
    }
}
