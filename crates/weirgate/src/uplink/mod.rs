//! Steering of new connections over unequal uplinks, as far as it can be thought through without a kernel: what is measured (`measure`),
//! which uplinks work (`health`), where the next flows go (`fleet`), and the rules that say so to the kernel (`ruleset`).
//!
//! Ground rules. Time is an argument, nothing here waits or opens anything: `daemon::uplinks` looks at the kernel, hands over what it saw
//! and does what it is told. A flow stays on the uplink that it began on; only what is new is steered.

pub(crate) mod fleet;
pub(crate) mod health;
pub(crate) mod measure;
pub(crate) mod ruleset;

pub(crate) use crate::config::uplinks::marks;

/// An uplink, by its place in the configuration.
pub(crate) type Place = usize;

/// The protocol family of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    pub(crate) const fn of(address: std::net::IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The other one.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }

    /// For people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// Flows that are counted apart: a name look-up is no TCP connection, and would take its place otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Transport {
    /// TCP connections.
    Tcp,
    /// UDP, and with it QUIC, and everything else.
    Other,
}

/// What has an order of its own: the flows of a family and a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Kind {
    /// Its family.
    pub(crate) family: Family,
    /// Its transport.
    pub(crate) transport: Transport,
}

impl Kind {
    /// All of them, each at its [`Self::index`].
    pub(crate) const ALL: [Self; 4] = [
        Self { family: Family::V4, transport: Transport::Tcp },
        Self { family: Family::V4, transport: Transport::Other },
        Self { family: Family::V6, transport: Transport::Tcp },
        Self { family: Family::V6, transport: Transport::Other },
    ];

    /// Its place in [`Self::ALL`].
    pub(crate) const fn index(self) -> usize {
        (self.family as usize) * 2 + self.transport as usize
    }

    /// In names of chains.
    pub(crate) const fn name(self) -> &'static str {
        match (self.family, self.transport) {
            (Family::V4, Transport::Tcp) => "tcp4",
            (Family::V4, Transport::Other) => "other4",
            (Family::V6, Transport::Tcp) => "tcp6",
            (Family::V6, Transport::Other) => "other6",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_stand_at_their_index() {
        assert!(Kind::ALL.iter().enumerate().all(|(at, kind)| kind.index() == at));
    }
}
