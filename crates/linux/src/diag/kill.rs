//! The end of a TCP connection of this host by its addresses (`ss -K`): its application is told at once. Read first: sock_diag(7),
//! `tcp_abort` in `net/ipv4/tcp.c`. Needs CONFIG_INET_DIAG_DESTROY and CAP_NET_ADMIN.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::SOCK_DIAG;

use crate::netlink::Netlink;

/// `SOCK_DESTROY`.
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

    /// Ends the connection from `local` to `remote`, also where it is bound to the interface of this index. False: this host has none such.
    ///
    /// # Errors
    /// Where the kernel refuses, or cannot (`EOPNOTSUPP`).
    pub fn kill(&mut self, local: SocketAddr, remote: SocketAddr, interface: u32) -> io::Result<bool> {
        match self.0.ask(DESTROY, &request(local, remote, interface)) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            done => done.map(|()| true),
        }
    }
}

/// `struct inet_diag_req_v2`.
fn request(local: SocketAddr, remote: SocketAddr, interface: u32) -> Vec<u8> {
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
    // INET_DIAG_NOCOOKIE: whatever its cookie.
    bytes.extend(u64::MAX.to_ne_bytes());
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
        assert_eq!([request(v4, v4, 0).len(), request(v6, v6, 0).len()], [56; 2]);
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
}
