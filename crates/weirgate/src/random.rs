//! The kernel's randomness.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// So many bytes that nobody can guess.
///
/// # Errors
/// Where the system has no randomness.
pub(crate) fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let len = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if len == N { Ok(bytes) } else { Err(io::Error::other("the system has no randomness")) }
}
