//! A TCP segment that makes its receiver say where it is in its connection. Read first: RFC 9293, section 3.10.7.4; raw(7).
//!
//! A router can reset a forwarded connection only with the sequence number that the host behind it expects, which it learns from that
//! host's next segment. A host that only receives sends none when nothing comes any more. An acknowledgement that is far out of its window
//! makes it answer at once with one of its own, which the router's rules then answer with a reset. The segment is said to come from the
//! connection's other end.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with};

use weirgate_switch::frame::checksum::Sum;

use crate::ask::set_mark;

const TCP: u8 = 6;
const TCP_LEN: usize = 20;
/// ACK.
const FLAGS: u8 = 0x10;

/// Sends such segments.
#[derive(Debug)]
pub struct Nudger {
    mark: u32,
    /// For IPv4 and IPv6, each made when it is needed.
    sockets: [Option<OwnedFd>; 2],
}

impl Nudger {
    /// One whose packets have this firewall mark: connection tracking would take them for a connection of their own, so a rule has to keep
    /// them from it.
    pub const fn new(mark: u32) -> Self {
        Self { mark, sockets: [None, None] }
    }

    /// Nudges `host`, which has a connection to `remote`.
    ///
    /// # Errors
    /// As the system's: there is no way to the host. It takes CAP_NET_RAW.
    pub fn nudge(&mut self, host: SocketAddr, remote: SocketAddr) -> io::Result<()> {
        let at = usize::from(host.is_ipv6());
        if self.sockets[at].is_none() {
            let family = [AddressFamily::INET, AddressFamily::INET6][at];
            let socket = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::RAW))?;
            set_mark(socket.as_fd(), self.mark)?;
            self.sockets[at] = Some(socket);
        }
        let Some(socket) = &self.sockets[at] else { return Ok(()) };
        let packet = packet(remote, host).ok_or(io::ErrorKind::InvalidInput)?;
        sendto(socket, &packet, SendFlags::empty(), &SocketAddr::new(host.ip(), 0))?;
        Ok(())
    }
}

/// A bare acknowledgement from one end to the other; `None` where they are of two families.
fn packet(from: SocketAddr, to: SocketAddr) -> Option<Vec<u8>> {
    let mut tcp = Vec::with_capacity(TCP_LEN);
    tcp.extend(from.port().to_be_bytes());
    tcp.extend(to.port().to_be_bytes());
    // Any number: it is outside a window of gigabytes in all cases but one of some thousand, and then it is old.
    tcp.extend([0; 8]);
    tcp.extend([(TCP_LEN as u8 / 4) << 4, FLAGS]);
    // Window, checksum, urgent pointer.
    tcp.extend([0; 6]);
    let mut packet = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            // Length, identification and checksum are the kernel's work.
            let header = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, TCP, 0, 0];
            [&header[..], &from.octets(), &to.octets()].concat()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = [0x60, 0, 0, 0, 0, TCP_LEN as u8, TCP, 64];
            [&header[..], &from.octets(), &to.octets()].concat()
        }
        _ => return None,
    };
    let sum = Sum::default().pseudo_header(from.ip(), to.ip(), TCP, TCP_LEN as u32).bytes(&tcp).checksum();
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    packet.extend(tcp);
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_s_checksum_is_right() {
        for (from, to, header) in
            [("192.0.2.1:443", "198.51.100.2:40000", 20), ("[2001:db8::1]:443", "[2001:db8::2]:40000", 40)]
        {
            let packet = packet(from.parse().unwrap(), to.parse().unwrap()).unwrap();
            assert_eq!(packet.len(), header + TCP_LEN);
            // By hand: one's complement, 16 bits at a time, over addresses, protocol and length, and all of the segment.
            let addresses = if header == 20 { &packet[12..20] } else { &packet[8..40] };
            let all = [addresses, &[0, TCP, 0, TCP_LEN as u8], &packet[header..]].concat();
            let sum: u32 = all.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
            assert_eq!((sum >> 16) + (sum & 0xffff), 0xffff, "the checksum included");
        }
        assert_eq!(packet("192.0.2.1:1".parse().unwrap(), "[::1]:1".parse().unwrap()), None);
    }
}
