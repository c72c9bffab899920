//! The kernel's table of connections: what it knows of each, and the end of some. Read first: conntrack(8),
//! `include/uapi/linux/netfilter/nfnetlink_conntrack.h`. Of zone 0 only.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::net::netlink::NETFILTER;
use weirgate_sockets::wire::frame::Attributes;

use crate::netlink::{Netlink, attribute, nested};

/// `NFNL_SUBSYS_CTNETLINK << 8` with `IPCTNL_MSG_CT_NEW`, `..._GET` and `..._DELETE`.
const NEW: u16 = 0x100;
const GET: u16 = 0x101;
const DELETE: u16 = 0x102;

/// Bytes of `struct nfgenmsg`.
const HEADER_LEN: usize = 4;

// Attributes, `CTA_...`.
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const PROTOINFO: u16 = 4;
const MARK: u16 = 8;
const MARK_MASK: u16 = 21;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;

/// One direction of a connection, as its packets say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// From where. A protocol without ports has port 0.
    pub source: SocketAddr,
    /// To where.
    pub destination: SocketAddr,
}

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow<'a> {
    /// Of who began it, before its addresses were translated.
    pub original: Tuple,
    /// Of the answers, as they come in.
    pub reply: Tuple,
    /// Over IP.
    pub protocol: u8,
    /// Its mark.
    pub mark: u32,
    /// Of TCP, `enum tcp_conntrack`; 0 of others.
    pub tcp_state: u8,
    /// By which [`Conntrack::remove`] finds it.
    pub key: &'a [u8],
}

/// TCP's number.
pub const TCP: u8 = 6;

/// The second segment of its beginning was not seen yet, `TCP_CONNTRACK_SYN_SENT`.
pub const SYN_SENT: u8 = 1;

impl Flow<'_> {
    /// Whether it is TCP's.
    pub const fn is_tcp(&self) -> bool {
        self.protocol == TCP
    }

    /// Whether it is a TCP connection that has begun and not ended: SYN_SENT to CLOSE_WAIT, and SYN_SENT2.
    pub const fn is_open_tcp(&self) -> bool {
        self.is_tcp() && matches!(self.tcp_state, 1..=5 | 9)
    }
}

/// The table of the network namespace in which this was opened.
#[derive(Debug)]
pub struct Conntrack(Netlink);

impl Conntrack {
    /// Opens it.
    ///
    /// # Errors
    /// Where there is no such netlink protocol.
    pub fn open() -> io::Result<Self> {
        Netlink::open(NETFILTER).map(Self)
    }

    /// Hands every connection to `each`; of those whose mark has these bits under this mask, where one is given. Entries that make no
    /// sense are passed over. Costs some 0.5 us for each connection there is, also for those that are not handed over.
    ///
    /// # Errors
    /// Where the kernel refuses: without CAP_NET_ADMIN, or without conntrack.
    pub fn flows(&mut self, mark: Option<[u32; 2]>, each: &mut dyn FnMut(&Flow<'_>)) -> io::Result<()> {
        let mut payload = header(0);
        if let Some([bits, mask]) = mark {
            attribute(&mut payload, MARK, &bits.to_be_bytes());
            attribute(&mut payload, MARK_MASK, &mask.to_be_bytes());
        }
        self.0.dump(GET, &payload, &mut |kind, message| {
            if let Some(flow) = (kind == NEW).then(|| parse(message)).flatten() {
                each(&flow);
            }
        })
    }

    /// Sets the bits of `mask` in a connection's mark to `bits`, by its [`Flow::key`]. False: it is gone already.
    ///
    /// # Errors
    /// As [`Self::flows`]'s.
    pub fn mark(&mut self, is_v4: bool, key: &[u8], [bits, mask]: [u32; 2]) -> io::Result<bool> {
        let mut payload = keyed(is_v4, key);
        attribute(&mut payload, MARK, &bits.to_be_bytes());
        attribute(&mut payload, MARK_MASK, &mask.to_be_bytes());
        // Without NLM_F_CREATE what is not there is not made.
        self.answered(NEW, &payload)
    }

    /// Forgets a connection, by its [`Flow::key`]: its next packet is a new one's. False: it is gone already.
    ///
    /// # Errors
    /// As [`Self::flows`]'s.
    pub fn remove(&mut self, is_v4: bool, key: &[u8]) -> io::Result<bool> {
        self.answered(DELETE, &keyed(is_v4, key))
    }

    fn answered(&mut self, kind: u16, payload: &[u8]) -> io::Result<bool> {
        match self.0.ask(kind, payload) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            done => done.map(|()| true),
        }
    }
}

fn keyed(is_v4: bool, key: &[u8]) -> Vec<u8> {
    let mut payload = header(if is_v4 { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 });
    nested(&mut payload, TUPLE_ORIGINAL, key);
    payload
}

fn header(family: u8) -> Vec<u8> {
    vec![family, 0, 0, 0]
}

fn parse(message: &[u8]) -> Option<Flow<'_>> {
    let (mut original, mut reply, mut mark, mut tcp_state) = (None, None, 0, 0);
    for attribute in Attributes::new(message.get(HEADER_LEN..)?) {
        match attribute.ok()? {
            (TUPLE_ORIGINAL, value) => original = Some((tuple(value)?, value)),
            (TUPLE_REPLY, value) => reply = Some(tuple(value)?.0),
            (MARK, value) => mark = u32::from_be_bytes(*value.first_chunk()?),
            // CTA_PROTOINFO_TCP, and CTA_PROTOINFO_TCP_STATE in it.
            (PROTOINFO, value) => {
                tcp_state = find(value, 1).and_then(|tcp| find(tcp, 1)?.first().copied()).unwrap_or(0)
            }
            _ => {}
        }
    }
    let ((original, protocol), key) = original?;
    Some(Flow { original, reply: reply?, protocol, mark, tcp_state, key })
}

fn tuple(value: &[u8]) -> Option<(Tuple, u8)> {
    let (ip, proto) = (find(value, TUPLE_IP)?, find(value, TUPLE_PROTO)?);
    let v4 = |kind| Some(IpAddr::from(Ipv4Addr::from(*find(ip, kind)?.first_chunk::<4>()?)));
    let v6 = |kind| Some(IpAddr::from(Ipv6Addr::from(*find(ip, kind)?.first_chunk::<16>()?)));
    let port = |kind| find(proto, kind).and_then(|port| Some(u16::from_be_bytes(*port.first_chunk()?))).unwrap_or(0);
    let source = SocketAddr::new(v4(1).or_else(|| v6(3))?, port(2));
    let destination = SocketAddr::new(v4(2).or_else(|| v6(4))?, port(3));
    Some((Tuple { source, destination }, *find(proto, 1)?.first()?))
}

/// The value of the first attribute of this type.
fn find(attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut found = Attributes::new(attributes).map_while(Result::ok).filter(|(kind, _)| *kind == wanted);
    found.next().map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(source: &[u8], destination: &[u8], kinds: [u16; 2], protocol: u8) -> Vec<u8> {
        let mut bytes = header(2);
        for tuple in [TUPLE_ORIGINAL, TUPLE_REPLY] {
            let (mut ip, mut proto, mut both) = (Vec::new(), Vec::new(), Vec::new());
            attribute(&mut ip, kinds[0], source);
            attribute(&mut ip, kinds[1], destination);
            attribute(&mut proto, 1, &[protocol]);
            attribute(&mut proto, 2, &1_000_u16.to_be_bytes());
            attribute(&mut proto, 3, &443_u16.to_be_bytes());
            nested(&mut both, TUPLE_IP, &ip);
            nested(&mut both, TUPLE_PROTO, &proto);
            nested(&mut bytes, tuple, &both);
        }
        attribute(&mut bytes, MARK, &0x0200_0001_u32.to_be_bytes());
        let (mut state, mut tcp) = (Vec::new(), Vec::new());
        attribute(&mut state, 1, &[3]);
        nested(&mut tcp, 1, &state);
        nested(&mut bytes, PROTOINFO, &tcp);
        bytes
    }

    #[test]
    fn an_entry_is_read() {
        let bytes = message(&[192, 0, 2, 1], &[198, 51, 100, 2], [1, 2], 6);
        let flow = parse(&bytes).unwrap();
        assert_eq!(flow.original.source, "192.0.2.1:1000".parse().unwrap());
        assert_eq!(flow.reply.destination, "198.51.100.2:443".parse().unwrap());
        assert_eq!((flow.protocol, flow.mark, flow.tcp_state), (6, 0x0200_0001, 3));
        assert!(flow.is_open_tcp());
        let bytes = message(&[1; 16], &[2; 16], [3, 4], 17);
        assert!(parse(&bytes).is_some_and(|flow| !flow.is_tcp() && flow.original.source.is_ipv6()));
    }

    #[test]
    fn what_is_cut_is_passed_over() {
        let bytes = message(&[192, 0, 2, 1], &[198, 51, 100, 2], [1, 2], 6);
        for len in 0..bytes.len() {
            // It may lack what is at its end; it must not be made up.
            assert!(parse(&bytes[..len]).is_none_or(|flow| flow.protocol == 6));
        }
    }
}
