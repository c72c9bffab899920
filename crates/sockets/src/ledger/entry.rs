//! One account.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use hashbrown::HashMap;
use weirgate_units::{BitRate, Bytes, Duration};

use super::Seen;
use crate::progress::Progress;
use crate::record::Direction;
use crate::sample::{Arm, CcName, Field, Kind, Sample, flag, state};

/// What is kept of one connection between two samples: 160 bytes, so a new field wants a reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) cookie: u64,
    /// The totals of the last sample.
    last: Totals,
    /// The totals at the last [`Progress`].
    taken: Totals,
    /// Bytes per second, of the last sample since the last [`Progress`] that the application did not limit.
    delivery_rate: u64,
    /// The highest of those since the connection began; 0 where there was none.
    delivery_rate_max: u64,
    client: [u8; 16],
    /// Of the last record.
    pub(super) sequence: u32,
    /// Number of the last poll that showed it; 0 where none did.
    pub(super) seen: u32,
    min_rtt_us: u32,
    local_port: u16,
    remote_port: u16,
    cc: u8,
    arm: Arm,
    direction: Direction,
    pub(super) standing: Standing,
}

/// How sure it is that the connection is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The last whole poll showed it, or it is younger.
    Open,
    /// The last whole poll did not show it.
    Missing,
    /// Nor did the one after: counted as lost, kept for one more poll in case its close comes late.
    Vanished,
}

/// In `delivery_rate`: no sample.
const NO_RATE: u64 = u64::MAX;

/// Totals since the connection began. Bytes, and microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    acked: u64,
    sent: u64,
    retransmitted: u64,
    busy_us: u64,
    rwnd_limited_us: u64,
    sndbuf_limited_us: u64,
}

impl Entry {
    /// An account whose first record has `sequence`, shown by poll number `seen` (0: by none).
    pub(super) fn new(cookie: u64, sequence: u32, seen: u32) -> Self {
        Self {
            cookie,
            last: Totals::default(),
            taken: Totals::default(),
            delivery_rate: NO_RATE,
            delivery_rate_max: 0,
            client: [0; 16],
            sequence,
            seen,
            min_rtt_us: 0,
            local_port: 0,
            remote_port: 0,
            cc: 0,
            arm: Arm::None,
            direction: Direction::Unknown,
            standing: Standing::Open,
        }
    }

    /// Takes over what `sample` says.
    pub(super) fn enter(&mut self, sample: &Sample, names: &mut Names, listeners: &HashMap<u16, u32>) {
        let now = Totals {
            acked: sample.bytes_acked,
            sent: sample.bytes_sent,
            retransmitted: sample.bytes_retrans,
            busy_us: sample.busy_us,
            rwnd_limited_us: sample.rwnd_limited_us,
            sndbuf_limited_us: sample.sndbuf_limited_us,
        };
        // Totals never fall; a source that knows less than the one before (a field its kernel program lacks) says 0.
        self.last = self.last.max(now);
        if sample.has(Field::DeliveryRate) && sample.delivery_rate > 0 && !sample.is(flag::APP_LIMITED) {
            self.delivery_rate = sample.delivery_rate.min(NO_RATE - 1);
            self.delivery_rate_max = self.delivery_rate_max.max(self.delivery_rate);
        }
        if sample.has(Field::MinRttUs) && sample.min_rtt_us != 0 {
            let known = if self.min_rtt_us == 0 { u32::MAX } else { self.min_rtt_us };
            self.min_rtt_us = known.min(sample.min_rtt_us);
        }
        if sample.has(Field::Cc) || self.cc == 0 {
            self.cc = names.number(self.cc, sample.cc);
        }
        if sample.arm() != Arm::None || sample.kind() == Kind::Poll {
            self.arm = sample.arm();
        }
        // A socket that was disconnected has forgotten its peer.
        if sample.remote_port != 0 {
            self.client = sample.remote;
            self.local_port = sample.local_port;
            self.remote_port = sample.remote_port;
        }
        self.direction = match () {
            () if sample.is(flag::ACCEPTED) => Direction::Accepted,
            () if sample.is(flag::CONNECTED) => Direction::Connected,
            () if self.direction != Direction::Unknown => self.direction,
            // Only an active open sends a SYN first (RFC 9293, 3.5).
            () if sample.state == state::SYN_SENT => Direction::Connected,
            () if listeners.contains_key(&self.local_port) => Direction::Accepted,
            () => Direction::Unknown,
        };
    }

    /// What the caller is told of the sample just entered.
    pub(super) fn seen_as(&self, first: bool, last: Option<Progress>) -> Seen {
        let listener_port = if self.direction == Direction::Accepted { self.local_port } else { 0 };
        let remote = SocketAddr::new(self.client(), self.remote_port);
        Seen {
            sequence: self.sequence,
            direction: self.direction,
            listener_port,
            first,
            remote,
            delivery_rate_max: self.delivery_rate_max,
            last,
        }
    }

    /// What it did since this was last called; `None` where that is nothing.
    pub(super) fn take_progress(&mut self, names: &Names, closed: bool) -> Option<Progress> {
        if self.last == self.taken {
            return None;
        }
        let rate = core::mem::replace(&mut self.delivery_rate, NO_RATE);
        let (last, taken) = (self.last, core::mem::replace(&mut self.taken, self.last));
        Some(Progress {
            client: self.client(),
            local_port: self.local_port,
            direction: self.direction,
            cc: names.name(self.cc),
            arm: self.arm,
            acked: Bytes::new(last.acked - taken.acked),
            sent: Bytes::new(last.sent - taken.sent),
            retransmitted: Bytes::new(last.retransmitted - taken.retransmitted),
            busy: Duration::from_micros(last.busy_us - taken.busy_us),
            rwnd_limited: Duration::from_micros(last.rwnd_limited_us - taken.rwnd_limited_us),
            sndbuf_limited: Duration::from_micros(last.sndbuf_limited_us - taken.sndbuf_limited_us),
            delivery_rate: (rate != NO_RATE).then(|| BitRate::from_bytes_per_sec(rate)),
            min_rtt: Duration::from_micros(self.min_rtt_us.into()),
            closed,
        })
    }

    /// Begins to count here: what it did until now happened over an unknown time.
    pub(super) fn forget_progress(&mut self) {
        self.taken = self.last;
        self.delivery_rate = NO_RATE;
    }

    fn client(&self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from(self.client)).to_canonical()
    }

    pub(super) fn is_valid(&self, poll: u32) -> bool {
        let missing_though_shown = self.standing != Standing::Open && self.seen == poll;
        self.taken.max(self.last) == self.last && self.seen <= poll && !missing_though_shown
    }
}

impl Totals {
    fn max(self, other: Self) -> Self {
        Self {
            acked: self.acked.max(other.acked),
            sent: self.sent.max(other.sent),
            retransmitted: self.retransmitted.max(other.retransmitted),
            busy_us: self.busy_us.max(other.busy_us),
            rwnd_limited_us: self.rwnd_limited_us.max(other.rwnd_limited_us),
            sndbuf_limited_us: self.sndbuf_limited_us.max(other.sndbuf_limited_us),
        }
    }
}

/// Names of congestion controls as one byte. A kernel has about twenty; past 255 the rest are nameless.
#[derive(Debug)]
pub(super) struct Names(Vec<CcName>);

impl Default for Names {
    /// Number 0 is the empty name.
    fn default() -> Self {
        Self(vec![CcName::default()])
    }
}

impl Names {
    /// The number of `name`, which was `likely` before.
    fn number(&mut self, likely: u8, name: CcName) -> u8 {
        if self.0[usize::from(likely)] == name {
            return likely;
        }
        let known = self.0.iter().position(|n| *n == name);
        let number = known.unwrap_or_else(|| {
            if self.0.len() > usize::from(u8::MAX) {
                return 0;
            }
            self.0.push(name);
            self.0.len() - 1
        });
        number as u8
    }

    fn name(&self, number: u8) -> CcName {
        self.0[usize::from(number)]
    }
}

const _: () = assert!(size_of::<Entry>() == 160, "see the ledger's memory bound");
