//! The control thread: one front end after the other, each until it goes.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, recv};
use vhost::vhost_user::{BackendReqHandler, Error, VhostUserBackendReqHandlerMut as _};

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

    /// From here on no front end is listened to, but for the end of a message.
    pub(super) fn tell(&self) {
        let _ = rustix::io::write(&self.told, &1_u64.to_ne_bytes());
    }

    /// Told before: a front end that comes after this is not listened to, one that came before is hung up on.
    pub(super) fn hang_up(&self) {
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
                Self::Peer(path) => connect(path),
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

/// Without waiting for room in a peer's backlog.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
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
        let (end, in_use) = converse(shared, stream, stop);
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

/// Does what one front end says, until it goes or says what cannot be, and forgets it; whether it left a ring in use.
fn converse(shared: &Arc<Shared>, stream: UnixStream, stop: &Stop) -> (Error, bool) {
    let clones = stream.set_nonblocking(false).and_then(|()| Ok((stream.try_clone()?, stream.try_clone()?)));
    let (clone, mut peeked) = match clones {
        Ok(clones) => clones,
        Err(e) => return (Error::SocketBroken(e), false),
    };
    *stop.current() = Some(clone);
    let control = Arc::new(Mutex::new(Control::new(Arc::clone(shared))));
    let mut handler = BackendReqHandler::from_stream(stream, Arc::clone(&control));
    let end = loop {
        if stop.is_told() {
            break Error::Disconnected;
        }
        let next = match take_enable(&mut peeked, &control) {
            Ok(false) => handler.handle_request(),
            Ok(true) => Ok(()),
            Err(e) => Err(e),
        };
        if let Err(e) = next {
            break e;
        }
    };
    *stop.current() = None;
    // Before the socket closes: see `Control::drop`.
    let mut in_use = false;
    for mut ring in shared.rings() {
        in_use |= ring.is_started();
        ring.reset();
    }
    (end, in_use)
}

/// `VHOST_USER_SET_VRING_ENABLE`.
const SET_VRING_ENABLE: u32 = 18;
/// Set in a message's flags where the sender waits for a word, and in that word.
const NEED_REPLY: u32 = 1 << 3;
const REPLY: u32 = 1 << 2;

/// Does the next message if it is `SET_VRING_ENABLE`, and says whether it was.
///
/// The vhost crate refuses that message before `SET_FEATURES`. QEMU (7.2) sends it for network cards as soon as it has seen that
/// the feature is offered, and again when the guest's driver is ready.
fn take_enable(stream: &mut UnixStream, control: &Mutex<Control>) -> Result<bool, Error> {
    let word = |bytes: &[u8], at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    // Header: request, flags, length. Body: ring, state.
    let mut message = [0; 20];
    let len = recv(&*stream, &mut message[..12], RecvFlags::PEEK).map_err(|e| Error::SocketBroken(e.into()))?.0;
    if len < 12 || word(&message, 0) != SET_VRING_ENABLE {
        // The crate waits for the rest, or hears that there is none.
        return Ok(false);
    }
    stream.read_exact(&mut message).map_err(Error::SocketBroken)?;
    let (flags, len, ring, state) = (word(&message, 4), word(&message, 8), word(&message, 12), word(&message, 16));
    if len != 8 || state > 1 {
        return Err(Error::InvalidMessage);
    }
    let mut control = control.lock().unwrap_or_else(PoisonError::into_inner);
    let result = control.set_vring_enable(ring, state == 1);
    if flags & NEED_REPLY != 0 && control.acknowledges() {
        let answer = [SET_VRING_ENABLE, 1 | REPLY, 8, u32::from(result.is_err()), 0].map(u32::to_ne_bytes);
        stream.write_all(answer.as_flattened()).map_err(Error::SocketBroken)?;
    }
    result.map(|()| true)
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
