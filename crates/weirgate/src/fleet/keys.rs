//! The controller's key pair: Ed25519 (RFC 8032).

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, ensure};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use weirgate_tune::snapshot::SIGNATURE;

use crate::config::fleet::Key;
use crate::random;

/// What signs, and from what it was made.
pub(crate) struct Signer(Ed25519KeyPair, [u8; 32]);

impl Signer {
    /// The key in `path`: 64 hexadecimal digits, which nobody else may read.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| match fs::metadata(path).map_err(|error| error.kind()) {
                Err(ErrorKind::NotFound) => {
                    format!("{}: no key: `weirgate controller key` makes one, with the same -c FILE", path.display())
                }
                _ => format!("{}: this key cannot be read", path.display()),
            })?;
        let mode = fs::metadata(path)?.mode();
        ensure!(mode & 0o077 == 0, "{}: others may read this key: chmod 600 it", path.display());
        let Key(seed) =
            text.trim().parse().map_err(|_| anyhow!("{}: a key has 64 hexadecimal digits", path.display()))?;
        Self::of(&seed)
    }

    /// The key in `path`, made where there is none.
    pub(crate) fn load_or_make(path: &Path) -> Result<Self> {
        match fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            _ => return Self::load(path),
        }
        let seed: [u8; 32] = random::bytes()?;
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            writeln!(file, "{}", hexadecimal(&seed))
        });
        written.with_context(|| format!("{}: no key can be made there", path.display()))?;
        Self::of(&seed)
    }

    fn of(seed: &[u8; 32]) -> Result<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| anyhow!("the key cannot be used"))?;
        Ok(Self(pair, *seed))
    }

    /// The seed of `pop`'s holdout. All controllers that have this key draw alike, and nobody else can tell it, nor one point of
    /// presence's from another's.
    pub(crate) fn seed(&self, pop: &str) -> u64 {
        let key = blake3::derive_key("weirgate 2026 seed of a point of presence's holdout", &self.1);
        let [a, b, c, d, e, f, g, h, ..] = *blake3::keyed_hash(&key, pop.as_bytes()).as_bytes();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// What others know it by.
    pub(crate) fn public(&self) -> String {
        hexadecimal(self.0.public_key().as_ref())
    }

    /// Whether this is a snapshot that this key has signed.
    pub(crate) fn has_signed(&self, snapshot: &[u8]) -> bool {
        let key: Option<Key> = self.0.public_key().as_ref().try_into().ok().map(Key);
        let parts = snapshot.split_first_chunk::<SIGNATURE>();
        key.zip(parts).is_some_and(|(key, (signature, signed))| is_signed(&[key], signed, signature))
    }

    pub(crate) fn sign(&self, bytes: &[u8]) -> [u8; SIGNATURE] {
        let mut signature = [0; SIGNATURE];
        signature.copy_from_slice(self.0.sign(bytes).as_ref());
        signature
    }
}

/// Whether one of `keys` has signed `bytes`.
pub(crate) fn is_signed(keys: &[Key], bytes: &[u8], signature: &[u8; SIGNATURE]) -> bool {
    keys.iter().any(|Key(key)| UnparsedPublicKey::new(&ED25519, key).verify(bytes, signature).is_ok())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, 7.1, test 2.
    #[test]
    fn signatures_are_those_of_the_rfc() {
        let key: Key = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb".parse().unwrap();
        let signer = Signer::of(&key.0).unwrap();
        assert_ne!(signer.seed("ams"), signer.seed("fra"));
        assert_eq!(signer.public(), "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
        let signature = signer.sign(&[0x72]);
        assert!(hexadecimal(&signature).starts_with("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8f"));
        let public = signer.public().parse().unwrap();
        assert!(is_signed(&[Key([7; 32]), public], &[0x72], &signature));
        assert!(!is_signed(&[public], &[0x73], &signature) && !is_signed(&[Key([7; 32])], &[0x72], &signature));
    }

    #[test]
    fn a_key_is_made_once_and_nobody_else_may_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weirgate/controller.key");
        assert!(Signer::load(&path).is_err());
        let made = Signer::load_or_make(&path).unwrap().public();
        assert_eq!(Signer::load_or_make(&path).unwrap().public(), made);
        let mode = |mode| fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        mode(0o644);
        assert!(Signer::load(&path).err().unwrap().to_string().contains("chmod 600"));
        mode(0o600);
        fs::write(&path, "short").unwrap();
        assert!(Signer::load_or_make(&path).err().unwrap().to_string().contains("64 hexadecimal digits"));
    }
}
