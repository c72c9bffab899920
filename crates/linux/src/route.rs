//! How an address is reached from here. Read first: rtnetlink(7).

use std::io;
use std::net::IpAddr;

use crate::netlink::{Netlink, attribute};

/// `RTM_GETROUTE`, and `RTM_NEWROUTE`, its answer.
const GET: u16 = 26;
const NEW: u16 = 24;
/// `RTA_DST`.
const DESTINATION: u16 = 1;
/// Where `struct rtmsg` says of which type a route is, and `RTN_UNICAST`: to another host, or to who is there on a link.
const TYPE_AT: usize = 7;
const UNICAST: u8 = 1;

/// Whether packets to `to` go to one other host: not to this one, by whichever of its addresses, nor to all on a link.
///
/// # Errors
/// There is no route, or the kernel cannot be asked.
pub fn is_elsewhere(to: IpAddr) -> io::Result<bool> {
    let (family, octets): (i32, Vec<u8>) = match to.to_canonical() {
        IpAddr::V4(to) => (libc::AF_INET, to.octets().to_vec()),
        IpAddr::V6(to) => (libc::AF_INET6, to.octets().to_vec()),
    };
    let mut request = vec![0; 12];
    (request[0], request[1]) = (family as u8, octets.len() as u8 * 8);
    attribute(&mut request, DESTINATION, &octets);
    let mut found = None;
    Netlink::open(None)?.get(GET, &request, &mut |kind, message| {
        found = message.get(TYPE_AT).copied().filter(|_| kind == NEW);
    })?;
    Ok(found == Some(UNICAST))
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
