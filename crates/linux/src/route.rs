//! How an address is reached from here. Read first: rtnetlink(7).

use std::io::{self, ErrorKind};
use std::net::IpAddr;

use weirgate_sockets::wire::frame::Attributes;

use crate::netlink::{Netlink, attribute};

/// `RTM_GETROUTE`, and `RTM_NEWROUTE`, its answer.
const GET: u16 = 26;
const NEW: u16 = 24;
/// `RTA_DST`, `RTA_SRC` and `RTA_OIF`.
const DESTINATION: u16 = 1;
const SOURCE: u16 = 2;
const INTERFACE: u16 = 4;
/// `struct rtmsg`.
const HEADER_LEN: usize = 12;
/// Where it says of which type a route is, and `RTN_UNICAST`: to another host, or to who is there on a link.
const TYPE_AT: usize = 7;
const UNICAST: u8 = 1;
/// Where it has the length of a source address, and flags; of these `RTM_F_FIB_MATCH`: what the routing tables have. Without it, of IPv4,
/// who has no route by a named interface counts as a neighbour there.
const SOURCE_LEN_AT: usize = 2;
const FLAGS_AT: usize = 8;
const FIB_MATCH: u32 = 0x2000;

/// Whether packets to `to` go to one other host: not to this one, by whichever of its addresses, nor to all on a link.
///
/// # Errors
/// There is no route, or the kernel cannot be asked.
pub fn is_elsewhere(to: IpAddr) -> io::Result<bool> {
    let mut found = None;
    Netlink::open(None)?.get(GET, &request(to), &mut |kind, message| {
        found = message.get(TYPE_AT).copied().filter(|_| kind == NEW);
    })?;
    Ok(found == Some(UNICAST))
}

/// Whether there is a route from an address of an interface by it to `to`.
///
/// # Errors
/// The kernel cannot be asked.
pub fn is_by(interface: u32, from: IpAddr, to: IpAddr) -> io::Result<bool> {
    // Who asks of IPv6 for an address as well is answered with a route by any interface, and who does not is not told of a table that is for
    // this address.
    Ok(has_route(interface, Some(from), to)? || (to.is_ipv6() && has_route(interface, None, to)?))
}

fn has_route(interface: u32, from: Option<IpAddr>, to: IpAddr) -> io::Result<bool> {
    let mut request = request(to);
    if to.is_ipv4() {
        request[FLAGS_AT..FLAGS_AT + 4].copy_from_slice(&FIB_MATCH.to_ne_bytes());
    }
    if let Some(from) = from.map(octets) {
        request[SOURCE_LEN_AT] = from.len() as u8 * 8;
        attribute(&mut request, SOURCE, &from);
    }
    attribute(&mut request, INTERFACE, &interface.to_ne_bytes());
    let mut is_other = false;
    let asked = Netlink::open(None)?.get(GET, &request, &mut |_, message| {
        let attributes = Attributes::new(message.get(HEADER_LEN..).unwrap_or_default());
        let mut by = attributes.flatten().filter(|(kind, _)| *kind == INTERFACE);
        is_other |= by.any(|(_, by)| by != interface.to_ne_bytes());
    });
    match asked {
        Ok(()) => Ok(!is_other),
        Err(problem) if matches!(problem.kind(), ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable) => {
            Ok(false)
        }
        Err(problem) => Err(problem),
    }
}

/// For the route to an address.
fn request(to: IpAddr) -> Vec<u8> {
    let to = octets(to.to_canonical());
    let family = if to.len() == 4 { libc::AF_INET } else { libc::AF_INET6 };
    let mut request = vec![0; HEADER_LEN];
    (request[0], request[1]) = (family as u8, to.len() as u8 * 8);
    attribute(&mut request, DESTINATION, &to);
    request
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_and_many_are_not_elsewhere() {
        for here in ["127.0.0.1", "127.0.0.2", "127.255.255.255", "::1", "::ffff:127.0.0.1", "224.0.0.1"] {
            assert!(!is_elsewhere(here.parse().unwrap()).unwrap_or(false), "{here}");
        }
    }
}
