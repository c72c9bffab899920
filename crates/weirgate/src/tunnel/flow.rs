//! One TCP connection, and the object that carries its bytes.

use std::io::{self, ErrorKind, IoSlice, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use super::buffer::{Kept, Ordered};

/// Pieces that are written in one call.
const PIECES: usize = 64;

/// A TCP connection of this host's, whose other end is at the tunnel's.
#[derive(Debug, Default)]
pub struct Flow {
    /// `None`: it is not known yet where it is to go.
    stream: Option<TcpStream>,
    is_connecting: bool,
    /// Whether the kernel may have something, or room: until it said that it has not.
    is_readable: bool,
    is_writable: bool,
    /// What the program has said, and whether that was all.
    pub(super) out: Kept,
    pub(super) has_all: bool,
    /// What the other side's program has said, and whether that was all.
    pub(super) into: Ordered,
    pub(super) is_whole: bool,
    is_shut: bool,
    /// Whether the other side has all that was said here.
    pub(super) is_delivered: bool,
    /// Bytes up to here the other side was allowed to send.
    pub(super) granted: u64,
}

impl Flow {
    /// Of a connection that is there, or, where it `is_connecting`, will be once there is room to write. It does not block.
    pub fn new(stream: TcpStream, is_connecting: bool) -> Self {
        let mut new = Self::default();
        new.begin(stream, is_connecting);
        new
    }

    /// The connection of a flow that had none.
    pub fn begin(&mut self, stream: TcpStream, is_connecting: bool) {
        (self.is_readable, self.is_writable) = (!is_connecting, !is_connecting);
        (self.stream, self.is_connecting) = (Some(stream), is_connecting);
    }

    /// Its connection, if it has one.
    pub const fn stream(&self) -> Option<&TcpStream> {
        self.stream.as_ref()
    }

    /// The kernel has said that something has happened.
    pub const fn handle_ready(&mut self) {
        (self.is_readable, self.is_writable) = (true, true);
    }

    /// Reads what the program has said, up to `most` bytes that the other side may not have.
    ///
    /// # Errors
    /// The connection was broken.
    pub fn read(&mut self, most: usize, scratch: &mut [u8]) -> io::Result<()> {
        let Some(stream) = self.stream.as_mut().filter(|_| !self.is_connecting) else { return Ok(()) };
        while self.is_readable && !self.has_all && self.out.len() < most {
            match stream.read(scratch) {
                Ok(0) => self.has_all = true,
                Ok(len) => self.out.push(&scratch[..len]),
                Err(problem) if problem.kind() == ErrorKind::WouldBlock => self.is_readable = false,
                Err(problem) if problem.kind() == ErrorKind::Interrupted => {}
                Err(problem) => return Err(problem),
            }
        }
        Ok(())
    }

    /// Writes what the other side's program has said, as far as it is there in order.
    ///
    /// # Errors
    /// The connection was broken, or was never made.
    pub fn write(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        if self.is_connecting && self.is_writable {
            stream.take_error()?.map_or(Ok(()), Err)?;
            // It may have been somebody else's wake-up.
            match stream.peer_addr() {
                Ok(_) => self.is_connecting = false,
                Err(problem) if problem.kind() == ErrorKind::NotConnected => self.is_writable = false,
                Err(problem) => return Err(problem),
            }
        }
        if !self.is_connecting {
            // Whoever has said all, and is written nothing to, may be gone all the same.
            stream.take_error()?.map_or(Ok(()), Err)?;
        }
        while self.is_writable && !self.is_connecting {
            let pieces: Vec<IoSlice<'_>> = self.into.ready().take(PIECES).map(IoSlice::new).collect();
            if pieces.is_empty() {
                break;
            }
            match stream.write_vectored(&pieces) {
                Ok(len) => self.into.consume(len),
                Err(problem) if problem.kind() == ErrorKind::WouldBlock => self.is_writable = false,
                Err(problem) if problem.kind() == ErrorKind::Interrupted => {}
                Err(problem) => return Err(problem),
            }
        }
        if self.is_whole && self.into.is_empty() && !self.is_connecting && !std::mem::replace(&mut self.is_shut, true) {
            // Whoever has closed it altogether hears it no more.
            let _is_over = stream.shutdown(Shutdown::Write);
        }
        Ok(())
    }

    /// Whether both directions have come to their ends.
    pub const fn is_over(&self) -> bool {
        self.is_shut && self.has_all && self.is_delivered
    }

    /// Breaks the connection off, as the other side's was.
    pub fn break_off(self) {
        if let Some(stream) = self.stream {
            // Closing sends a reset then.
            let _it_closes_anyway = rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO));
        }
    }
}
