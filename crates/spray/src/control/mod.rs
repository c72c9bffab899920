//! Congestion control of one path: how much may be under way, and how fast it is sent.
//!
//! Each path has its own: paths over different uplinks share no bottleneck that is known of, and one that is full says nothing about
//! another.

mod bbr;
mod cubic;

use weirgate_units::{BitRate, Duration, Instant};

use self::bbr::Bbr;
use self::cubic::Cubic;

/// Which one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// A model of the path, its rate and its least round-trip time: losses that are not a full queue's do not slow it down.
    #[default]
    Bbr,
    /// RFC 9438: what most of the Internet's TCP does.
    Cubic,
}

/// Packets that may be under way before anything is known of a path: more than TCP's 10 (RFC 6928), since they are paced.
pub const INITIAL_WINDOW: u64 = 32;

/// Packets that may always be under way.
const LEAST_WINDOW: u64 = 4;

/// Acknowledged data, and what it tells.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// When.
    pub now: Instant,
    /// Bytes that are newly acknowledged.
    pub bytes: u64,
    /// When the last one of these packets was sent.
    pub sent: Instant,
    /// Under way now, without these.
    pub in_flight: u64,
    /// The path's round-trip times.
    pub rtt: Duration,
    /// The least of late.
    pub rtt_min: Duration,
    /// Bytes that were delivered on this path so far, these included.
    pub delivered: u64,
    /// Of these, when the last of these packets was sent.
    pub delivered_then: u64,
    /// The rate at which they came, if the packets say.
    pub rate: Option<BitRate>,
    /// Whether the rate is only what there was to send.
    pub is_app_limited: bool,
}

/// One path's.
#[derive(Debug)]
pub enum Control {
    /// See [`Algorithm::Bbr`].
    Bbr(Bbr),
    /// See [`Algorithm::Cubic`].
    Cubic(Cubic),
}

impl Control {
    /// For packets of `mtu` bytes on a connection's path of this number.
    pub fn new(algorithm: Algorithm, mtu: u64, path: u8) -> Self {
        match algorithm {
            Algorithm::Bbr => Self::Bbr(Bbr::new(mtu, path)),
            Algorithm::Cubic => Self::Cubic(Cubic::new(mtu)),
        }
    }

    /// Data was acknowledged.
    pub fn handle_ack(&mut self, acked: &Acked) {
        match self {
            Self::Bbr(bbr) => bbr.handle_ack(acked),
            Self::Cubic(cubic) => cubic.handle_ack(acked),
        }
    }

    /// So many bytes were lost, the last of which was sent at `sent`; `in_flight`, without them, are under way.
    pub fn handle_loss(&mut self, now: Instant, bytes: u64, sent: Instant, in_flight: u64) {
        match self {
            Self::Bbr(bbr) => bbr.handle_loss(bytes, in_flight),
            Self::Cubic(cubic) => cubic.handle_loss(now, sent),
        }
    }

    /// What was called lost at last came: the last loss was none.
    pub fn handle_spurious_loss(&mut self, bytes: u64) {
        match self {
            Self::Bbr(bbr) => bbr.handle_spurious_loss(bytes),
            Self::Cubic(cubic) => cubic.handle_spurious_loss(),
        }
    }

    /// Bytes that may be under way.
    pub fn window(&self) -> u64 {
        match self {
            Self::Bbr(bbr) => bbr.window(),
            Self::Cubic(cubic) => cubic.window(),
        }
    }

    /// How fast to send, `rtt` being the smoothed one.
    pub fn pacing_rate(&self, rtt: Duration) -> BitRate {
        match self {
            Self::Bbr(bbr) => bbr.pacing_rate(rtt),
            Self::Cubic(cubic) => cubic.pacing_rate(rtt),
        }
    }

    /// What the path delivers, as far as that is known: for deciding which path has something there first.
    pub fn rate(&self, rtt: Duration) -> BitRate {
        match self {
            Self::Bbr(bbr) => bbr.rate().unwrap_or_else(|| per(bbr.window(), rtt)),
            Self::Cubic(cubic) => per(cubic.window(), rtt),
        }
    }

    /// Whether it is still finding out what the path delivers.
    pub fn is_starting(&self) -> bool {
        match self {
            Self::Bbr(bbr) => bbr.is_starting(),
            Self::Cubic(cubic) => cubic.is_starting(),
        }
    }

    /// The path's packets have another size now.
    pub fn set_mtu(&mut self, mtu: u64) {
        match self {
            Self::Bbr(bbr) => bbr.set_mtu(mtu),
            Self::Cubic(cubic) => cubic.set_mtu(mtu),
        }
    }
}

/// A window in each round trip.
fn per(window: u64, rtt: Duration) -> BitRate {
    let nanos = u128::from(rtt.as_nanos().max(1_000));
    let bits = u128::from(window) * 8_000_000_000 / nanos;
    BitRate::from_bits_per_sec(u64::try_from(bits).unwrap_or(u64::MAX))
}

/// A rate times a factor.
fn times(rate: BitRate, factor: f64) -> BitRate {
    BitRate::from_bits_per_sec((rate.as_bits_per_sec() as f64 * factor) as u64)
}
