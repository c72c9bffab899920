//! UDP sockets that carry many datagrams in a call, each from an address and an interface of one's own. See udp(7), UDP_SEGMENT and
//! UDP_GRO; ip(7), IP_PKTINFO. The calls are quinn-udp's.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};

/// Bytes that wait in a socket, each way, if the system allows as much: some milliseconds of 10 Gbit/s.
const BUFFER: usize = 4 << 20;

/// A receive of one call: 64 KB, which is the most that the kernel joins.
const RECEIVE: usize = 64 << 10;

/// A socket.
#[derive(Debug)]
pub struct Udp {
    socket: UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
}

/// Room for what one call receives, to be used again.
#[derive(Debug)]
pub struct Room {
    bytes: Vec<u8>,
    meta: [RecvMeta; BATCH_SIZE],
}

impl Default for Room {
    fn default() -> Self {
        Self { bytes: vec![0; RECEIVE * BATCH_SIZE], meta: [RecvMeta::default(); BATCH_SIZE] }
    }
}

impl Udp {
    /// Bound to `local`, whose port 0 is one that the system chooses; with `device`, what is sent goes by that interface, whatever the
    /// routing table says, and only what comes by it is received.
    ///
    /// # Errors
    /// As bind(2)'s, and as SO_BINDTODEVICE's: `ENODEV` where there is no such interface.
    pub fn bind(local: SocketAddr, device: Option<&str>) -> io::Result<Self> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
        let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        if local.is_ipv6() {
            // An IPv4 address is another socket's.
            sockopt::set_ipv6_v6only(&fd, true)?;
        }
        if let Some(device) = device {
            bind_to_device(fd.as_fd(), device)?;
        }
        rustix::net::bind(&fd, &local)?;
        let socket = UdpSocket::from(fd);
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        for set in [UdpSocketState::set_send_buffer_size, UdpSocketState::set_recv_buffer_size] {
            // It is cut to what the system allows.
            set(&state, UdpSockRef::from(&socket), BUFFER)?;
        }
        let local = socket.local_addr()?;
        Ok(Self { socket, state, local })
    }

    /// Where it is bound.
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Datagrams of equal size, but for the last one, that go in one call at most.
    pub fn datagrams_max(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends `bytes` as datagrams of `each` bytes, the last of which may be shorter, to `remote`; from `local`, where the socket is
    /// bound to none.
    ///
    /// # Errors
    /// `WouldBlock`, where the socket is full; as sendmsg(2)'s. What the path does not carry is dropped as the network would.
    pub fn send(&self, local: IpAddr, remote: SocketAddr, bytes: &[u8], each: usize) -> io::Result<()> {
        let transmit = Transmit {
            destination: remote,
            ecn: None,
            contents: bytes,
            segment_size: (bytes.len() > each).then_some(each),
            src_ip: self.local.ip().is_unspecified().then_some(local),
        };
        self.state.try_send(UdpSockRef::from(&self.socket), &transmit)
    }

    /// Receives what is there, up to a batch: hands over each datagram, to which address it came and from where.
    ///
    /// # Errors
    /// `WouldBlock`, where there is nothing; as recvmsg(2)'s.
    pub fn receive(&self, room: &mut Room, mut each: impl FnMut(SocketAddr, SocketAddr, &mut [u8])) -> io::Result<()> {
        let Room { bytes, meta } = room;
        let mut slices = bytes.chunks_mut(RECEIVE).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| slices.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        let count = self.state.recv(UdpSockRef::from(&self.socket), &mut slices, meta)?;
        for (slice, meta) in slices.iter_mut().zip(&meta[..count]) {
            // Nobody can answer from or to these.
            if meta.addr.port() == 0 || meta.dst_ip.is_some_and(|ip| ip.is_multicast()) {
                continue;
            }
            let ip = meta.dst_ip.filter(|_| self.local.ip().is_unspecified()).unwrap_or_else(|| self.local.ip());
            let local = SocketAddr::new(ip, self.local.port());
            for datagram in slice[..meta.len].chunks_mut(meta.stride.max(1)) {
                each(local, meta.addr, datagram);
            }
        }
        Ok(())
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

pub(crate) fn bind_to_device(fd: BorrowedFd<'_>, device: &str) -> io::Result<()> {
    let len = libc::socklen_t::try_from(device.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the name's bytes are there for the call, and are read only.
    let code = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.as_ptr().cast(), len)
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(any: &str, one: &str) -> (Udp, Udp) {
        (Udp::bind(any.parse().unwrap(), None).unwrap(), Udp::bind(one.parse().unwrap(), None).unwrap())
    }

    #[test]
    fn datagrams_of_one_call_arrive_one_by_one_with_their_addresses() {
        for (any, one) in [("0.0.0.0:0", "127.0.0.2:0"), ("[::]:0", "[::1]:0")] {
            let (server, client) = pair(any, one);
            let ip = if client.local().is_ipv4() { "127.0.0.3" } else { "::1" }.parse().unwrap();
            let to = SocketAddr::new(ip, server.local().port());
            client.send(client.local().ip(), to, b"aaaabbbbcc", 4).unwrap();
            let mut room = Room::default();
            let mut seen = Vec::new();
            while seen.len() < 3 {
                let received = server.receive(&mut room, |local, remote, datagram| {
                    assert_eq!((local, remote), (to, client.local()));
                    seen.push(datagram.to_vec());
                });
                if let Err(problem) = received {
                    assert_eq!(problem.kind(), io::ErrorKind::WouldBlock);
                }
            }
            assert_eq!(seen, [&b"aaaa"[..], b"bbbb", b"cc"]);
            // Back from the address that was asked.
            server.send(ip, client.local(), b"hi", 2).unwrap();
            let mut from = None;
            while from.is_none() {
                let _ = client.receive(&mut room, |_, remote, _| from = Some(remote));
            }
            assert_eq!(from, Some(to));
        }
    }

    #[test]
    fn an_interface_that_is_not_there_is_told() {
        let problem = Udp::bind("127.0.0.1:0".parse().unwrap(), Some("nowhere0")).unwrap_err();
        assert_eq!(problem.raw_os_error(), Some(libc::ENODEV));
        assert!(Udp::bind("127.0.0.1:0".parse().unwrap(), Some("lo")).is_ok());
    }
}
