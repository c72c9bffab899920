//! The control thread: one front end after the other, each until it goes.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use vhost::vhost_user::{BackendReqHandler, Error};

use super::control::Control;
use super::shared::Shared;
use super::{Role, VhostError};

/// How long a front end may be in the middle of a message before it is taken for dead. QEMU sends each in one write.
const MESSAGE_TIME_MAX: Duration = Duration::from_secs(1);

/// How long to wait before the next try to connect.
const CONNECT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// Where front ends come from.
pub(super) enum Source {
    Listener(UnixListener, PathBuf),
    Peer(PathBuf),
}

/// How a front end's time ended.
enum End {
    Gone,
    Wrong(Error),
    Stop,
}

impl Source {
    /// Begins to listen, in place of a socket that a killed process left behind.
    pub(super) fn open(path: &Path, role: Role) -> Result<Self, VhostError> {
        if role == Role::Connect {
            return Ok(Self::Peer(path.to_owned()));
        }
        let failed = |source| VhostError::Listen { path: path.to_owned(), source };
        let listener = match UnixListener::bind(path) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => match UnixStream::connect(path) {
                Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(failed)?;
                    UnixListener::bind(path).map_err(failed)?
                }
                _ => return Err(VhostError::InUse(path.to_owned())),
            },
            other => other.map_err(failed)?,
        };
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self::Listener(listener, path.to_owned()))
    }

    /// The next front end; `None` when it is time to stop.
    fn next(&self, stop: &OwnedFd) -> Option<UnixStream> {
        loop {
            let stream = match self {
                Self::Listener(listener, _) => {
                    wait(&[listener.as_fd(), stop.as_fd()], None);
                    listener.accept().map(|(stream, _)| stream)
                }
                Self::Peer(path) => UnixStream::connect(path),
            };
            if wait(&[stop.as_fd()], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
                return None;
            }
            match stream {
                Ok(stream) => return Some(stream),
                // The other end is not there yet, or this process has too many files: not for ever.
                Err(_) if wait(&[stop.as_fd()], Some(&CONNECT_PAUSE)) => return None,
                Err(_) => {}
            }
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Self::Listener(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Serves until `stop` is readable.
pub(super) fn run(shared: &Arc<Shared>, source: &Source, stop: &OwnedFd) {
    while let Some(stream) = source.next(stop) {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let end = converse(shared, stream, stop);
        let mut in_use = false;
        for mut ring in shared.rings() {
            in_use |= ring.is_started();
            ring.reset();
        }
        shared.changed();
        match end {
            End::Gone if in_use => {
                shared.vanished.fetch_add(1, Ordering::Relaxed);
            }
            End::Gone => {}
            End::Wrong(e) => {
                shared.protocol_errors.fetch_add(1, Ordering::Relaxed);
                tracing::warn!("a vhost-user front end was disconnected: {e}");
            }
            End::Stop => return,
        }
        // One that is refused at once and comes back at once must not take the processor.
        if matches!(source, Source::Peer(_)) && wait(&[stop.as_fd()], Some(&CONNECT_PAUSE)) {
            return;
        }
    }
}

/// Does what one front end says.
fn converse(shared: &Arc<Shared>, stream: UnixStream, stop: &OwnedFd) -> End {
    let watched = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_read_timeout(Some(MESSAGE_TIME_MAX)))
        .and_then(|()| stream.set_write_timeout(Some(MESSAGE_TIME_MAX)))
        .and_then(|()| stream.try_clone());
    let Ok(watched) = watched else { return End::Gone };
    let control = Arc::new(Mutex::new(Control::new(Arc::clone(shared))));
    let mut handler = BackendReqHandler::from_stream(stream, control);
    loop {
        wait(&[watched.as_fd(), stop.as_fd()], None);
        if wait(&[stop.as_fd()], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            return End::Stop;
        }
        match handler.handle_request() {
            Ok(()) => {}
            Err(Error::Disconnected | Error::SocketBroken(_)) => return End::Gone,
            Err(e) => return End::Wrong(e),
        }
    }
}

/// Waits until one of the files is readable, and says whether one is; false after `timeout`.
fn wait(files: &[std::os::fd::BorrowedFd<'_>], timeout: Option<&Timespec>) -> bool {
    let mut files: Vec<_> = files.iter().map(|file| PollFd::from_borrowed_fd(*file, PollFlags::IN)).collect();
    loop {
        match poll(&mut files, timeout) {
            Err(Errno::INTR) => {}
            Ok(ready) => return ready > 0,
            Err(_) => return false,
        }
    }
}
