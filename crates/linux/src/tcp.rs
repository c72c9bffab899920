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
    /// A listener takes connections to whatever address, where it may (`IP_TRANSPARENT`, with CAP_NET_ADMIN): for TPROXY.
    pub transparent: bool,
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
    if local.is_ipv6() {
        // An IPv4 address is another socket's.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    if options.transparent {
        let _who_may_not_needs_a_redirection = set_transparent(&socket, local.is_ipv4());
    }
    rustix::net::bind(&socket, &local)?;
    rustix::net::listen(&socket, 1_024)?;
    Ok(socket.into())
}

fn set_transparent(socket: &OwnedFd, is_ipv4: bool) -> io::Result<()> {
    let (level, name) =
        if is_ipv4 { (libc::SOL_IP, libc::IP_TRANSPARENT) } else { (libc::SOL_IPV6, libc::IPV6_TRANSPARENT) };
    let on: libc::c_int = 1;
    let len = size_of_val(&on) as libc::socklen_t;
    // SAFETY: the option's value is an int, which is there for the call and is read only.
    let code =
        unsafe { libc::setsockopt(std::os::fd::AsRawFd::as_raw_fd(socket), level, name, (&raw const on).cast(), len) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Begins to connect, from whatever address, with this firewall mark; the connection does not block, and is there when it has room to write.
///
/// # Errors
/// As socket(2)'s and connect(2)'s: there is no route. A mark takes CAP_NET_ADMIN.
pub fn begin_connecting(remote: SocketAddr, mark: Option<u32>) -> io::Result<TcpStream> {
    let family = if remote.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    mark.map_or(Ok(()), |mark| crate::ask::set_mark(socket.as_fd(), mark))?;
    match rustix::net::connect(&socket, &remote) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket.into()),
        Err(problem) => Err(problem.into()),
    }
}

/// Where a connection was to go that has been redirected to a listener of this host's (`SO_ORIGINAL_DST` of `linux/netfilter_ipv4.h` and
/// `netfilter_ipv6/ip6_tables.h`); one that came by TPROXY has that for its own address.
///
/// # Errors
/// As getsockname(2)'s.
pub fn original_destination(stream: &TcpStream) -> io::Result<SocketAddr> {
    const SO_ORIGINAL_DST: libc::c_int = 80;
    let local = stream.local_addr()?;
    let local = SocketAddr::new(local.ip().to_canonical(), local.port());
    // SAFETY: a sockaddr_storage is valid with all its bytes zero.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    let level = if local.is_ipv4() { libc::SOL_IP } else { libc::SOL_IPV6 };
    // SAFETY: the pointers are to live values of the length that is said, which nothing else uses during the call.
    let code = unsafe {
        libc::getsockopt(
            std::os::fd::AsRawFd::as_raw_fd(stream),
            level,
            SO_ORIGINAL_DST,
            (&raw mut storage).cast(),
            &raw mut len,
        )
    };
    // Where nothing was redirected the kernel knows nothing, or does not know the question.
    Ok(if code == 0 { address(&storage).unwrap_or(local) } else { local })
}

fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is one, which is shorter than the storage and needs no more alignment.
            let v4 = unsafe { &*std::ptr::from_ref(storage).cast::<libc::sockaddr_in>() };
            let ip = std::net::Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*std::ptr::from_ref(storage).cast::<libc::sockaddr_in6>() };
            let ip = std::net::Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddr::new(ip.into(), u16::from_be(v6.sin6_port)))
        }
        _ => None,
    }
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
            let options = Options { congestion: Some("reno"), device: Some("lo"), multipath, ..Options::default() };
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
