//! The end of a TCP connection of this host by its addresses (`ss -K`): its application is told at once. Read first: sock_diag(7),
//! `tcp_abort` in `net/ipv4/tcp.c`. Needs CONFIG_INET_DIAG_DESTROY and CAP_NET_ADMIN.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::SOCK_DIAG;

use weirgate_sockets::sample::state;

use crate::netlink::Netlink;

/// `SOCK_DIAG_BY_FAMILY` and `SOCK_DESTROY`.
const FIND: u16 = 20;
const DESTROY: u16 = 21;
/// `IPPROTO_TCP`.
const TCP: u8 = 6;

/// Ends connections of the network namespace in which it was opened.
#[derive(Debug)]
pub struct Killer(Netlink);

impl Killer {
    /// Opens it.
    ///
    /// # Errors
    /// Where the kernel has no sock_diag.
    pub fn open() -> io::Result<Self> {
        Netlink::open(SOCK_DIAG).map(Self)
    }

    /// Whether the kernel can end connections (CONFIG_INET_DIAG_DESTROY).
    ///
    /// # Errors
    /// Why not.
    pub fn check(&mut self) -> io::Result<()> {
        // Nobody has it.
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        match self.0.ask(DESTROY, &request(nobody, nobody, 0, NO_COOKIE)) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            done => done,
        }
    }

    /// Ends the connection from `local` to `remote`, also where it is bound to the interface of this index. False: this host has none such.
    /// Where there is none, the kernel finds who listens there instead, and would end that: it is asked first what it finds.
    ///
    /// # Errors
    /// Where the kernel refuses, or cannot (`EOPNOTSUPP`).
    pub fn kill(&mut self, local: SocketAddr, remote: SocketAddr, interface: u32) -> io::Result<bool> {
        let is_gone = |error: &io::Error| error.raw_os_error() == Some(libc::ENOENT);
        let mut found = None;
        let asked = self.0.get(FIND, &request(local, remote, interface, NO_COOKIE), &mut |_, message| {
            found = found.or_else(|| state_and_cookie(message));
        });
        match (asked, found) {
            (Err(error), _) if !is_gone(&error) => Err(error),
            (Err(_), _) | (_, None | Some((state::LISTEN, _))) => Ok(false),
            // It has ended, and is remembered for a while.
            (_, Some((state::TIME_WAIT, _))) => Ok(true),
            (_, Some((_, cookie))) => match self.0.ask(DESTROY, &request(local, remote, interface, cookie)) {
                Err(error) if is_gone(&error) => Ok(false),
                done => done.map(|()| true),
            },
        }
    }
}

/// `INET_DIAG_NOCOOKIE`: whatever its cookie.
const NO_COOKIE: [u8; 8] = [0xff; 8];

/// Of `struct inet_diag_msg`: the state, and what tells this socket from any later one of the same addresses.
fn state_and_cookie(message: &[u8]) -> Option<(u8, [u8; 8])> {
    Some((*message.get(1)?, *message.get(44..)?.first_chunk()?))
}

/// `struct inet_diag_req_v2`.
fn request(local: SocketAddr, remote: SocketAddr, interface: u32, cookie: [u8; 8]) -> Vec<u8> {
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut bytes = vec![family as u8, TCP, 0, 0];
    // In any state.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(remote.port().to_be_bytes());
    for address in [local.ip(), remote.ip()] {
        let mut words = [0; 16];
        match address {
            IpAddr::V4(address) => words[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => words = address.octets(),
        }
        bytes.extend(words);
    }
    bytes.extend(interface.to_ne_bytes());
    bytes.extend(cookie);
    bytes
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_request_is_as_long_as_the_kernel_s() {
        let [v4, v6] = ["192.0.2.1:1", "[2001:db8::1]:1"].map(|text| text.parse().unwrap());
        assert_eq!([v4, v6].map(|one| request(one, one, 0, NO_COOKIE).len()), [56; 2]);
    }

    #[test]
    fn a_connection_is_ended_and_its_application_told() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (local, remote) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
            let mut killer = Killer::open().unwrap();
            match killer.kill(local, remote, 0) {
                Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) => {
                    return println!("SKIPPED: {error}");
                }
                killed => assert!(killed.unwrap()),
            }
            assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionAborted);
            assert!(!killer.kill(local, remote, 0).unwrap(), "it is gone");
        }
    }

    #[test]
    fn who_listens_is_never_ended() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut killer = Killer::open().unwrap();
        // Of a connection that goes through this host, say, and not to it.
        let killed = killer.kill(([127, 0, 0, 1], port).into(), "192.0.2.1:50000".parse().unwrap(), 0);
        assert!(!killed.unwrap_or(false));
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert!(listener.accept().unwrap().1 == stream.local_addr().unwrap());
    }
}
