//! One observation of one TCP socket: the value that every source yields and every reader takes.
//!
//! Read first: `include/uapi/linux/tcp.h` (`struct tcp_info`) for what the numbers are, `bpf/sample.h` for the layout,
//! which this type shares byte for byte with the kernel programs.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use weirgate_units::{BitRate, Duration};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A congestion control's name as the kernel keeps it: at most 15 bytes, the rest zero (`TCP_CA_NAME_MAX` is 16).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct CcName([u8; 16]);

/// What one socket looked like at one moment. All counters are totals since the connection began.
///
/// Fields that the kernel did not give are zero and their [`Field`] bit in `given` is clear.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of tcp_info(7) and bpf/sample.h; units are in the names")]
pub struct Sample {
    pub len: u16,
    pub kind: u8,
    pub state: u8,
    pub ca_state: u8,
    pub flags: u8,
    pub arm: u8,
    pub family: u8,
    pub local_port: u16,
    pub remote_port: u16,
    pub mark: u32,
    pub local: [u8; 16],
    pub remote: [u8; 16],
    pub cookie: u64,
    pub cgroup_id: u64,
    pub time_ns: u64,
    pub given: u64,
    pub netns: u32,
    pub policy_version: u32,
    pub cc: CcName,
    pub bytes_sent: u64,
    pub bytes_acked: u64,
    pub bytes_retrans: u64,
    pub bytes_received: u64,
    /// Bytes per second.
    pub delivery_rate: u64,
    /// Bytes per second; all ones is "no limit".
    pub pacing_rate: u64,
    pub busy_us: u64,
    pub rwnd_limited_us: u64,
    pub sndbuf_limited_us: u64,
    /// Bytes per second.
    pub bbr_bw: u64,
    pub bbr_min_rtt_us: u32,
    /// 256 is 1.0.
    pub bbr_pacing_gain: u16,
    pub bbr_cwnd_gain: u16,
    pub rtt_us: u32,
    pub rttvar_us: u32,
    pub min_rtt_us: u32,
    pub rto_us: u32,
    pub snd_mss: u32,
    pub snd_cwnd: u32,
    pub snd_ssthresh: u32,
    pub segs_out: u32,
    pub segs_in: u32,
    pub data_segs_out: u32,
    pub data_segs_in: u32,
    pub total_retrans: u32,
    pub lost: u32,
    pub unacked: u32,
    pub retrans_out: u32,
    pub reordering: u32,
    pub reord_seen: u32,
    pub dsack_dups: u32,
    pub delivered: u32,
    pub delivered_ce: u32,
    pub notsent_bytes: u32,
    pub rmem_alloc: u32,
    pub rcvbuf: u32,
    pub wmem_queued: u32,
    pub sndbuf: u32,
    pub backlog_drops: u32,
}

/// The fields that not every kernel gives, as bit numbers in [`Sample::given`]. The iterator sets them from the kernel's
/// BTF, the netlink parser from the length of `tcp_info` and the attributes present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "each names the field of `Sample` that it speaks of")]
pub enum Field {
    BytesSent = 0,
    BytesAcked,
    BytesRetrans,
    BytesReceived,
    DeliveryRate,
    PacingRate,
    BusyUs,
    RwndLimitedUs,
    SndbufLimitedUs,
    Bbr,
    MinRttUs,
    SegsOut,
    SegsIn,
    DataSegsOut,
    DataSegsIn,
    ReordSeen,
    DsackDups,
    Delivered,
    DeliveredCe,
    NotsentBytes,
    Memory,
    Mark,
    CgroupId,
    Netns,
    Cc,
    /// All of `struct tcp_info`: absent for sockets in SYN-RECV and TIME-WAIT.
    TcpInfo,
}

/// Bits of [`Sample::flags`]; see `enum wg_flag` in `bpf/sample.h`.
#[allow(missing_docs, reason = "documented beside their twins in bpf/sample.h")]
pub mod flag {
    pub const APP_LIMITED: u8 = 1 << 0;
    pub const TIMESTAMPS: u8 = 1 << 1;
    pub const SACK: u8 = 1 << 2;
    pub const ECN: u8 = 1 << 3;
    pub const ECN_SEEN: u8 = 1 << 4;
    pub const ACCEPTED: u8 = 1 << 5;
    pub const CONNECTED: u8 = 1 << 6;
    pub const SWITCHED: u8 = 1 << 7;
}

/// What made the observation; `enum wg_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The periodic look at every open socket.
    Poll = 0,
    /// The last state of a connection, taken as it closed.
    Close = 1,
}

/// What the policy in force had in mind for the connection; `enum wg_arm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Arm {
    /// Its network is not selected.
    #[default]
    None = 0,
    /// Its network is selected and its client is treated.
    Treated = 1,
    /// Its network is selected and its client is kept on the default, for comparison.
    Holdout = 2,
}

/// TCP states by their kernel numbers, `include/net/tcp_states.h`.
#[allow(missing_docs, reason = "RFC 9293 names")]
pub mod state {
    pub const ESTABLISHED: u8 = 1;
    pub const SYN_SENT: u8 = 2;
    pub const SYN_RECV: u8 = 3;
    pub const FIN_WAIT1: u8 = 4;
    pub const FIN_WAIT2: u8 = 5;
    pub const TIME_WAIT: u8 = 6;
    pub const CLOSE: u8 = 7;
    pub const CLOSE_WAIT: u8 = 8;
    pub const LAST_ACK: u8 = 9;
    pub const LISTEN: u8 = 10;
    pub const CLOSING: u8 = 11;
    pub const NEW_SYN_RECV: u8 = 12;

    /// The state's name as `ss` prints it, `"?"` for a number that no kernel has yet.
    pub fn name(state: u8) -> &'static str {
        const NAMES: [&str; 13] = [
            "?",
            "ESTAB",
            "SYN-SENT",
            "SYN-RECV",
            "FIN-WAIT-1",
            "FIN-WAIT-2",
            "TIME-WAIT",
            "UNCONN",
            "CLOSE-WAIT",
            "LAST-ACK",
            "LISTEN",
            "CLOSING",
            "SYN-RECV",
        ];
        NAMES.get(state as usize).copied().unwrap_or("?")
    }
}

impl Sample {
    /// Whether the kernel gave `field`.
    pub const fn has(&self, field: Field) -> bool {
        self.given >> field as u8 & 1 == 1
    }

    /// Notes that the kernel gave `field`.
    pub const fn set_given(&mut self, field: Field) {
        self.given |= 1 << field as u8;
    }

    /// Whether all of `bits` (see [`flag`]) are set.
    pub const fn is(&self, bits: u8) -> bool {
        self.flags & bits == bits
    }

    /// What made this observation.
    pub const fn kind(&self) -> Kind {
        if self.kind == Kind::Close as u8 { Kind::Close } else { Kind::Poll }
    }

    /// What the policy had in mind for the connection; unknown numbers count as none.
    pub const fn arm(&self) -> Arm {
        match self.arm {
            1 => Arm::Treated,
            2 => Arm::Holdout,
            _ => Arm::None,
        }
    }

    /// The local end; IPv4 where the connection is, however the socket was opened.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(address(&self.local), self.local_port)
    }

    /// The remote end; IPv4 where the connection is.
    pub fn remote(&self) -> SocketAddr {
        SocketAddr::new(address(&self.remote), self.remote_port)
    }

    /// The rate of the last delivery-rate sample (`draft-cheng-iccrg-delivery-rate-estimation`).
    pub const fn delivery_rate(&self) -> BitRate {
        BitRate::from_bytes_per_sec(self.delivery_rate)
    }

    /// Time during which data was outstanding.
    pub const fn busy(&self) -> Duration {
        Duration::from_micros(self.busy_us)
    }
}

fn address(bytes: &[u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(*bytes)).to_canonical()
}

/// `address` as it stands in a [`Sample`]: IPv4 mapped into IPv6.
pub fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

impl CcName {
    /// The name, if it is 1 to 15 bytes of printable ASCII without spaces.
    pub fn new(name: &str) -> Option<Self> {
        let ok = (1..=15).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
        ok.then(|| Self::from_kernel(name.as_bytes()))
    }

    /// The name in a kernel buffer: up to the first zero, cut at 15 bytes.
    pub fn from_kernel(bytes: &[u8]) -> Self {
        let mut name = [0; 16];
        for (to, from) in name[..15].iter_mut().zip(bytes.iter().take_while(|b| **b != 0)) {
            *to = *from;
        }
        Self(name)
    }

    /// The name; empty where it is unknown or, against the kernel's custom, not ASCII.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(self.name()).unwrap_or("")
    }

    /// The bytes of [`Self::as_str`].
    #[inline]
    pub fn name(&self) -> &[u8] {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(16);
        let name = &self.0[..len];
        if name.is_ascii() { name } else { &[] }
    }

    /// The sixteen bytes, zero-padded.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl core::fmt::Debug for CcName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl core::fmt::Display for CcName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.as_str())
    }
}
