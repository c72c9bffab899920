//! What a port of the switch is made of.

use std::io;
use std::os::fd::BorrowedFd;

use weirgate_port::{Offload, Packet};
use weirgate_units::Instant;

use crate::tap::{HEADER, Tap};

/// A device whose frames the switch reads and writes. Only the thread that switches calls it.
pub trait Device: Send {
    /// How many queues there are to read from.
    fn queues(&self) -> usize;

    /// What becomes readable when a queue has something, to be waited for edge-triggered; `None`: it is to be asked, or there is no
    /// such queue.
    fn queue_fd(&self, queue: usize) -> Option<BorrowedFd<'_>>;

    /// Reads the next frame of `queue` into `packet`, which has room for the longest one.
    ///
    /// # Errors
    /// Where the device is gone ([`io::ErrorKind::NotFound`]), or cannot be read any more.
    fn receive(&mut self, queue: usize, packet: &mut Packet) -> io::Result<Received>;

    /// Sends a frame, or says that there is no room now.
    ///
    /// # Errors
    /// Where the device will not have it, or is gone ([`io::ErrorKind::NotFound`]).
    fn send(&mut self, packet: &mut Packet) -> io::Result<Sent>;

    /// Whether a queue that is not read holds back who fills it, and does not just drop.
    fn pushes_back(&self) -> bool;

    /// Sends off what [`send`](Self::send) has put together, where that is not done frame by frame, and tells senders that their
    /// held packets are gone. Called after each turn's sending.
    ///
    /// # Errors
    /// Where the device will not have it.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Frames that it dropped before they were read, or after it had taken them to be sent, since the start, where somebody counts them.
    fn lost(&mut self) -> u64 {
        0
    }

    /// Divides it among `parts` threads, at least one: each part reads some of the queues and none that another reads, and sends by
    /// one of its own where it has one.
    ///
    /// # Errors
    /// Where the process has too many files open, or it cannot be divided, which is so unless it says otherwise.
    fn split(self: Box<Self>, _parts: usize) -> io::Result<Vec<Box<dyn Device>>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this device is for one thread"))
    }

    /// Does what has become due.
    ///
    /// # Errors
    /// Where the device will not have it.
    fn handle_time(&mut self, _now: Instant) -> io::Result<()> {
        Ok(())
    }

    /// When to call [`handle_time`](Self::handle_time); `None`: nothing will be due.
    fn poll_at(&self) -> Option<Instant> {
        None
    }
}

/// What came of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A frame.
    Frame,
    /// Nothing is there now.
    Empty,
    /// A frame whose header cannot be relied on. It is gone; there may be another.
    Malformed,
}

/// What came of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is sent.
    Yes,
    /// The device has no room; offer it again.
    Full,
}

/// Whether a device's error says that it is gone for good.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// What a TAP's file says when its device was removed, in words.
fn in_words(tap: &Tap, error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(libc::EBADFD) {
        return io::Error::new(io::ErrorKind::NotFound, format!("the TAP device `{}` is gone", tap.name()));
    }
    error
}

impl Device for Tap {
    fn queues(&self) -> usize {
        Tap::queues(self)
    }

    fn queue_fd(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        (queue < Tap::queues(self)).then(|| Tap::queue_fd(self, queue))
    }

    fn receive(&mut self, queue: usize, packet: &mut Packet) -> io::Result<Received> {
        let mut header = [0; HEADER];
        let received = Tap::receive(self, queue, &mut header, packet.buffer_mut());
        let Some(len) = received.map_err(|error| in_words(self, error))? else {
            return Ok(Received::Empty);
        };
        packet.set_len(len);
        match Offload::from_bytes(&header, len) {
            Ok(offload) => packet.set_offload(offload),
            Err(_) => return Ok(Received::Malformed),
        }
        Ok(Received::Frame)
    }

    fn send(&mut self, packet: &mut Packet) -> io::Result<Sent> {
        match Tap::send(self, &packet.offload().to_bytes(0), packet.bytes()) {
            Ok(()) => Ok(Sent::Yes),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(Sent::Full),
            Err(e) => Err(in_words(self, e)),
        }
    }

    fn split(self: Box<Self>, parts: usize) -> io::Result<Vec<Box<dyn Device>>> {
        let parts = Tap::split(*self, parts)?;
        Ok(parts.into_iter().map(|part| Box::new(part) as Box<dyn Device>).collect())
    }

    /// Its driver drops what its queue has no room for.
    fn pushes_back(&self) -> bool {
        false
    }
}
