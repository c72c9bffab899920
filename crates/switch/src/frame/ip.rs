//! What IP and transport headers say, as values. Read first: RFC 791 section 3.1, RFC 8200 section 3, RFC 9293 section 3.1.

use core::net::IpAddr;

/// What an IP header and the one behind it say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// Where it begins in the frame.
    pub offset: u16,
    /// From where.
    pub source: IpAddr,
    /// To where.
    pub destination: IpAddr,
    /// The differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// The protocol over IP, behind all extension headers that could be gone through.
    pub protocol: u8,
    /// The header's length with options or extension headers, in bytes.
    pub header_len: u16,
    /// The packet's length by its header, that header included, in bytes: at most 65,575.
    pub total_len: u32,
    /// Whether it is a part of a datagram.
    pub fragment: Fragment,
    /// The header behind.
    pub transport: Transport,
}

/// Explicit congestion notification (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// The sender does not understand it.
    NotEct,
    /// ECN-capable transport, 01: what a low-latency sender uses (RFC 9331).
    Ect1,
    /// ECN-capable transport, 10.
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// By the last two bits of a traffic class.
    pub(super) const fn of(traffic_class: u8) -> Self {
        match traffic_class & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// Whether an IP packet is a part of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// It is a whole one.
    Whole,
    /// The first part, with the transport header.
    First,
    /// A later one, without.
    Later,
}

/// The header behind the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp {
        /// The source port.
        source: u16,
        /// The destination port.
        destination: u16,
        /// The header's length with options, 20 to 60 bytes.
        header_len: u16,
        /// The flags.
        flags: TcpFlags,
    },
    /// UDP.
    Udp {
        /// The source port.
        source: u16,
        /// The destination port.
        destination: u16,
    },
    /// Another protocol, or the later part of a datagram.
    Other,
}

/// The flags of a TCP header, as they stand in its 14th byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No more data.
    pub const FIN: u8 = 0x01;
    /// A connection begins.
    pub const SYN: u8 = 0x02;
    /// It is broken off.
    pub const RST: u8 = 0x04;
    /// To be handed up at once.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 0x10;
    /// Congestion window reduced (RFC 3168).
    pub const CWR: u8 = 0x80;

    /// Whether any of `flags` is set.
    pub const fn any(self, flags: u8) -> bool {
        self.0 & flags != 0
    }
}

impl Ip {
    /// Where the transport header begins in the frame.
    pub const fn transport_offset(&self) -> usize {
        self.offset as usize + self.header_len as usize
    }

    /// The ports by which it is told to which flow it belongs; 0 where there are none.
    pub(super) const fn flow_ports(&self) -> (u16, u16) {
        match (self.fragment, self.transport.ports()) {
            (Fragment::Whole, Some(ports)) => ports,
            _ => (0, 0),
        }
    }

    /// All headers from the IP header to the payload, in bytes.
    pub const fn headers_len(&self) -> u32 {
        self.header_len as u32 + self.transport.header_len() as u32
    }

    /// What is behind the transport header by the IP header's length, in bytes.
    pub const fn payload_len(&self) -> u32 {
        self.total_len - self.headers_len()
    }
}

impl Transport {
    /// Source and destination port; `None` where there are none.
    pub const fn ports(&self) -> Option<(u16, u16)> {
        match *self {
            Self::Tcp { source, destination, .. } | Self::Udp { source, destination } => Some((source, destination)),
            Self::Other => None,
        }
    }

    /// The header's length in bytes; 0 where it is another protocol's.
    pub const fn header_len(&self) -> u16 {
        match *self {
            Self::Tcp { header_len, .. } => header_len,
            Self::Udp { .. } => 8,
            Self::Other => 0,
        }
    }
}
