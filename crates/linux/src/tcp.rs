//! TCP connections from an address, an interface and with a congestion control of one's own; and multipath ones (MPTCP, RFC 8684). See
//! tcp(7), socket(7), and the kernel's Documentation/networking/mptcp.rst.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, sockopt};

/// `IPPROTO_MPTCP`.
const MPTCP: u32 = 262;

/// How a connection is made, or listened for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// By name; `None`: the system's.
    pub congestion: Option<&'a str>,
    /// The interface that it goes by.
    pub device: Option<&'a str>,
    /// Over several paths, which the system has as endpoints (`ip mptcp endpoint`).
    pub multipath: bool,
}

/// Connects from `local`, whose port 0 is one that the system chooses.
///
/// # Errors
/// As socket(2)'s, bind(2)'s and connect(2)'s; there is no such congestion control or interface.
pub fn connect(local: SocketAddr, remote: SocketAddr, options: &Options<'_>) -> io::Result<TcpStream> {
    let socket = socket(local, options)?;
    rustix::net::bind(&socket, &local)?;
    rustix::net::connect(&socket, &remote)?;
    Ok(socket.into())
}

/// Listens at `local`.
///
/// # Errors
/// As [`connect`]'s.
pub fn listen(local: SocketAddr, options: &Options<'_>) -> io::Result<TcpListener> {
    let socket = socket(local, options)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &local)?;
    rustix::net::listen(&socket, 1_024)?;
    Ok(socket.into())
}

fn socket(local: SocketAddr, options: &Options<'_>) -> io::Result<OwnedFd> {
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let protocol = options.multipath.then(|| std::num::NonZeroU32::new(MPTCP).map(Protocol::from_raw)).flatten();
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, protocol)?;
    if let Some(device) = options.device {
        crate::udp::bind_to_device(socket.as_fd(), device)?;
    }
    if let Some(congestion) = options.congestion {
        sockopt::set_tcp_congestion(&socket, congestion)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn a_connection_is_from_where_it_should_be() {
        for multipath in [false, true] {
            let options = Options { congestion: Some("reno"), device: Some("lo"), multipath };
            let listener = listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
            let remote = listener.local_addr().unwrap();
            let mut client = connect("127.0.0.5:0".parse().unwrap(), remote, &options).unwrap();
            client.write_all(b"hello").unwrap();
            drop(client);
            let (mut server, from) = listener.accept().unwrap();
            let mut text = String::new();
            server.read_to_string(&mut text).unwrap();
            assert_eq!((from.ip().to_string().as_str(), text.as_str()), ("127.0.0.5", "hello"));
        }
        let options = Options { congestion: Some("none_such"), ..Options::default() };
        assert!(listen("127.0.0.1:0".parse().unwrap(), &options).is_err());
    }
}
