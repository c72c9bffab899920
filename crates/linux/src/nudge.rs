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

use crate::ask::{checksum, set_mark};

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
    let (mut packet, addresses) = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let addresses = [from.octets(), to.octets()].concat();
            // Length, identification and checksum are the kernel's work.
            let mut header = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, TCP, 0, 0];
            header.extend(&addresses);
            (header, addresses)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let addresses = [from.octets(), to.octets()].concat();
            let mut header = vec![0x60, 0, 0, 0, 0, TCP_LEN as u8, TCP, 64];
            header.extend(&addresses);
            (header, addresses)
        }
        _ => return None,
    };
    let mut pseudo = addresses;
    pseudo.extend([0, TCP, 0, TCP_LEN as u8]);
    let sum = !checksum(&pseudo, 0);
    let sum = checksum(&tcp, u32::from(sum));
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
            let addresses = if header == 20 { &packet[12..20] } else { &packet[8..40] };
            let pseudo = [addresses, &[0, TCP, 0, TCP_LEN as u8]].concat();
            // A receiver's sum over all, the checksum included, is 0.
            assert_eq!(checksum(&packet[header..], u32::from(!checksum(&pseudo, 0))), 0);
        }
        assert_eq!(packet("192.0.2.1:1".parse().unwrap(), "[::1]:1".parse().unwrap()), None);
    }
}
