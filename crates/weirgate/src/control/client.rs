//! The command line's side of the door.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{LINE_MAX, Reply, Request};

/// A round over many networks, or a sweep of many connections, may hold the daemon's loop for some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a daemon did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No daemon listens there.
    #[error("no weirgate answers at {path}: start one with `weirgate run`, or name its configuration with -c")]
    Nobody {
        /// The socket's path.
        path: PathBuf,
    },
    /// The socket is somebody else's.
    #[error("{path}: permission denied: run as the user that the daemon runs as, most often root")]
    Denied {
        /// The socket's path.
        path: PathBuf,
    },
    /// The call broke off.
    #[error("{path}: {source}")]
    Io {
        /// The socket's path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The daemon refused, in its own words.
    #[error("{0}")]
    Refused(String),
}

/// Asks the daemon at `path` and waits for its answer, at most a minute.
pub fn call(path: &Path, request: &Request) -> Result<serde_json::Value, CallError> {
    match exchange(path, request) {
        Ok(Reply::Ok(value)) => Ok(value),
        Ok(Reply::Error(why)) => Err(CallError::Refused(why)),
        Err(source) => Err(match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => CallError::Nobody { path: path.to_owned() },
            io::ErrorKind::PermissionDenied => CallError::Denied { path: path.to_owned() },
            _ => CallError::Io { path: path.to_owned(), source },
        }),
    }
}

fn exchange(path: &Path, request: &Request) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_vec(request)?;
    text.push(b'\n');
    stream.write_all(&text)?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_MAX)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}
