//! A netlink socket that asks and waits: requests that are acknowledged, and dumps. Read first: netlink(7).

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use weirgate_sockets::wire::frame::{HEADER_LEN, Messages, TYPE_DONE, TYPE_ERROR};

/// A request (`NLM_F_REQUEST`).
const REQUEST: u16 = 0x1;
/// One that is to be acknowledged (`NLM_F_ACK`).
const ACKNOWLEDGE: u16 = 0x4;
/// One for all there is (`NLM_F_DUMP`).
const DUMP: u16 = 0x300;
/// An attribute that holds others (`NLA_F_NESTED`).
const NESTED: u16 = 0x8000;

/// The kernel fills no more than 32 KiB per receive call (`netlink_dump` in `net/netlink/af_netlink.c`).
const BUFFER_LEN: usize = 32 << 10;

/// The kernel answers within microseconds; one that takes this long has stopped.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// A socket, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Of this protocol, as `rustix::net::netlink` names them; `None`: routing's (`NETLINK_ROUTE`, 0).
    pub(crate) fn open(protocol: impl Into<Option<Protocol>>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol.into())?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
        Ok(Self { socket, sequence: 0, request: Vec::new(), buffer: vec![0; BUFFER_LEN] })
    }

    /// Has something done, and waits until it is.
    ///
    /// # Errors
    /// What the kernel refused it with.
    pub(crate) fn ask(&mut self, kind: u16, payload: &[u8]) -> io::Result<()> {
        self.get(kind, payload, &mut |_, _| ())
    }

    /// Asks for one thing, which is handed to `each`, with its type.
    ///
    /// # Errors
    /// What the kernel refused it with.
    pub(crate) fn get(&mut self, kind: u16, payload: &[u8], each: &mut dyn FnMut(u16, &[u8])) -> io::Result<()> {
        self.send(kind, REQUEST | ACKNOWLEDGE, payload)?;
        self.receive(each)
    }

    /// Hands each message of what there is to `each`, with its type.
    ///
    /// # Errors
    /// What the kernel refused it with; what was handed over before is good.
    pub(crate) fn dump(&mut self, kind: u16, payload: &[u8], each: &mut dyn FnMut(u16, &[u8])) -> io::Result<()> {
        self.send(kind, REQUEST | DUMP, payload)?;
        self.receive(each)
    }

    fn send(&mut self, kind: u16, flags: u16, payload: &[u8]) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = &mut self.request;
        request.clear();
        request.extend(((HEADER_LEN + payload.len()) as u32).to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend(flags.to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        request.extend(0u32.to_ne_bytes());
        request.extend(payload);
        retry(|| send(&self.socket, &self.request, SendFlags::empty()))?;
        Ok(())
    }

    fn receive(&mut self, each: &mut dyn FnMut(u16, &[u8])) -> io::Result<()> {
        loop {
            let (len, _) = match retry(|| recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())) {
                Ok(received) => received,
                // Something is missing, what follows is good.
                Err(Errno::NOBUFS) => continue,
                Err(error) => return Err(error.into()),
            };
            for message in Messages::new(&self.buffer[..len]) {
                let message = message.map_err(io::Error::other)?;
                // The rest of an answer that nobody waited for.
                if message.sequence != self.sequence {
                    continue;
                }
                match message.kind {
                    TYPE_DONE | TYPE_ERROR => {
                        let errno = message.payload.first_chunk::<4>().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
                        return if errno < 0 { Err(io::Error::from_raw_os_error(-errno)) } else { Ok(()) };
                    }
                    kind => each(kind, message.payload),
                }
            }
        }
    }
}

/// Appends an attribute.
pub(crate) fn attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    to.extend(((4 + value.len()) as u16).to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// Appends an attribute of attributes.
pub(crate) fn nested(to: &mut Vec<u8>, kind: u16, attributes: &[u8]) {
    attribute(to, kind | NESTED, attributes);
}

/// Calls again where a signal came in between.
fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}
