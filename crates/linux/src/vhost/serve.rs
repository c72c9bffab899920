//! The control thread: one front end after the other, each until it goes.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use vhost::vhost_user::{BackendReqHandler, Error};

use super::control::Control;
use super::shared::Shared;
use super::{Role, VhostError};

/// How long to wait before the next try to connect.
const CONNECT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// Where front ends come from.
pub(super) enum Source {
    Listener(UnixListener, PathBuf),
    Peer(PathBuf),
}

/// Ends the control thread, whatever it waits for.
pub(super) struct Stop {
    told: OwnedFd,
    /// The front end that is being served: it may leave us waiting for the rest of a message.
    current: Mutex<Option<UnixStream>>,
}

impl Stop {
    pub(super) fn new() -> io::Result<Self> {
        let told = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { told, current: Mutex::new(None) })
    }

    pub(super) fn now(&self) {
        // Told first: a front end that comes after this is not listened to, one that came before is hung up on.
        let _ = rustix::io::write(&self.told, &1_u64.to_ne_bytes());
        if let Some(stream) = &*self.current() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn is_told(&self) -> bool {
        self.told_within(&Timespec { tv_sec: 0, tv_nsec: 0 })
    }

    fn told_within(&self, time: &Timespec) -> bool {
        wait(&[self.told.as_fd()], Some(time))
    }

    fn current(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    fn next(&self, stop: &Stop) -> Option<UnixStream> {
        loop {
            let stream = match self {
                Self::Listener(listener, _) => {
                    wait(&[listener.as_fd(), stop.told.as_fd()], None);
                    listener.accept().map(|(stream, _)| stream)
                }
                Self::Peer(path) => UnixStream::connect(path),
            };
            if stop.is_told() {
                return None;
            }
            match stream {
                Ok(stream) => return Some(stream),
                // The other end is not there yet, or this process has too many files: not for ever.
                Err(_) if stop.told_within(&CONNECT_PAUSE) => return None,
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

/// Serves until it is told to stop.
pub(super) fn run(shared: &Arc<Shared>, source: &Source, stop: &Stop) {
    while let Some(stream) = source.next(stop) {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let end = converse(shared, stream, stop);
        let mut in_use = false;
        for mut ring in shared.rings() {
            in_use |= ring.is_started();
            ring.reset();
        }
        if stop.is_told() {
            return;
        }
        let counter = match end {
            Error::Disconnected | Error::SocketBroken(_) => in_use.then_some(&shared.vanished),
            wrong => {
                tracing::warn!("a vhost-user front end was disconnected: {wrong}");
                Some(&shared.protocol_errors)
            }
        };
        counter.map(|counter| counter.fetch_add(1, Ordering::Relaxed));
        shared.changed();
        // One that hangs up at once must not take the processor.
        if matches!(source, Source::Peer(_)) && stop.told_within(&CONNECT_PAUSE) {
            return;
        }
    }
}

/// Does what one front end says, until it goes or says what cannot be.
fn converse(shared: &Arc<Shared>, stream: UnixStream, stop: &Stop) -> Error {
    match stream.set_nonblocking(false).and_then(|()| stream.try_clone()) {
        Ok(clone) => *stop.current() = Some(clone),
        Err(e) => return Error::SocketBroken(e),
    }
    let control = Arc::new(Mutex::new(Control::new(Arc::clone(shared))));
    let mut handler = BackendReqHandler::from_stream(stream, control);
    let end = loop {
        if stop.is_told() {
            break Error::Disconnected;
        }
        if let Err(e) = handler.handle_request() {
            break e;
        }
    };
    *stop.current() = None;
    end
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
