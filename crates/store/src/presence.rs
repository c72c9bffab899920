//! What of a record is shown, and which of its values are known: the same for files and for what is sent elsewhere.

use weirgate_sockets::record::{Direction, Record};
use weirgate_sockets::sample::{Arm, Sample, mapped};

use crate::anonymise::Anonymise;

/// Where each column finds its null bits: bits of a row's word, the kernel's own ([`Sample::given`]) first.
pub(crate) mod validity {
    use weirgate_sockets::sample::{Field, flag};

    /// Never NULL.
    pub(crate) const ALWAYS: u32 = 64;
    pub(crate) const BYTES_SENT: u32 = Field::BytesSent as u32;
    pub(crate) const BYTES_ACKED: u32 = Field::BytesAcked as u32;
    pub(crate) const BYTES_RETRANS: u32 = Field::BytesRetrans as u32;
    pub(crate) const BYTES_RECEIVED: u32 = Field::BytesReceived as u32;
    pub(crate) const DELIVERY_RATE: u32 = Field::DeliveryRate as u32;
    pub(crate) const PACING_RATE: u32 = Field::PacingRate as u32;
    pub(crate) const BUSY_US: u32 = Field::BusyUs as u32;
    pub(crate) const RWND_LIMITED_US: u32 = Field::RwndLimitedUs as u32;
    pub(crate) const SNDBUF_LIMITED_US: u32 = Field::SndbufLimitedUs as u32;
    pub(crate) const BBR: u32 = Field::Bbr as u32;
    pub(crate) const MIN_RTT_US: u32 = Field::MinRttUs as u32;
    pub(crate) const SEGS_OUT: u32 = Field::SegsOut as u32;
    pub(crate) const SEGS_IN: u32 = Field::SegsIn as u32;
    pub(crate) const DATA_SEGS_OUT: u32 = Field::DataSegsOut as u32;
    pub(crate) const DATA_SEGS_IN: u32 = Field::DataSegsIn as u32;
    pub(crate) const REORD_SEEN: u32 = Field::ReordSeen as u32;
    pub(crate) const DSACK_DUPS: u32 = Field::DsackDups as u32;
    pub(crate) const DELIVERED: u32 = Field::Delivered as u32;
    pub(crate) const DELIVERED_CE: u32 = Field::DeliveredCe as u32;
    pub(crate) const NOTSENT_BYTES: u32 = Field::NotsentBytes as u32;
    pub(crate) const MEMORY: u32 = Field::Memory as u32;
    pub(crate) const MARK: u32 = Field::Mark as u32;
    pub(crate) const CGROUP_ID: u32 = Field::CgroupId as u32;
    pub(crate) const NETNS: u32 = Field::Netns as u32;
    pub(crate) const CC: u32 = Field::Cc as u32;
    pub(crate) const TCP_INFO: u32 = Field::TcpInfo as u32;
    /// The kernel's bits end here: a `Field` beyond it needs the bits below moved.
    pub(crate) const KERNEL_BITS: u32 = 32;

    pub(crate) const FLAGS: u32 = KERNEL_BITS;
    pub(crate) const APP_LIMITED: u32 = FLAGS + flag::APP_LIMITED.trailing_zeros();
    pub(crate) const TIMESTAMPS: u32 = FLAGS + flag::TIMESTAMPS.trailing_zeros();
    pub(crate) const SACK: u32 = FLAGS + flag::SACK.trailing_zeros();
    pub(crate) const ECN: u32 = FLAGS + flag::ECN.trailing_zeros();
    pub(crate) const ECN_SEEN: u32 = FLAGS + flag::ECN_SEEN.trailing_zeros();
    pub(crate) const SWITCHED: u32 = FLAGS + flag::SWITCHED.trailing_zeros();

    pub(crate) const DIRECTION: u32 = FLAGS + 8;
    pub(crate) const ARM: u32 = FLAGS + 9;
    pub(crate) const LOCAL_PORT: u32 = FLAGS + 10;
    pub(crate) const REMOTE_PORT: u32 = FLAGS + 11;
    pub(crate) const LISTENER_PORT: u32 = FLAGS + 12;
    pub(crate) const ASN: u32 = FLAGS + 13;
    pub(crate) const COUNTRY: u32 = FLAGS + 14;
    pub(crate) const CC_KNOWN: u32 = FLAGS + 15;
    pub(crate) const DELIVERY_RATE_MAX: u32 = FLAGS + 16;
}
use validity::*;

/// Whether [`present`] would leave the record's sample as it is: so it is of most, and no copy is made.
pub(crate) fn is_shown_as_it_is(record: &Record<'_>, anonymise: Anonymise) -> bool {
    anonymise == Anonymise::Off && record.sample.remote_port != 0
}

/// Makes `sample`, a copy of the record's, what may be written of it.
pub(crate) fn present(record: &Record<'_>, anonymise: Anonymise, sample: &mut Sample) {
    // An end that sent a reset may be reported without its address, while its network is remembered: what is
    // written of the network is its length, so it needs the bits.
    if sample.remote_port == 0 && !record.network.contains(sample.remote().ip()) {
        sample.remote = mapped(record.network.address());
    }
    anonymise.apply(record.direction, record.network.len(), sample);
}

/// All that is true or false about a record that is written with `sample`, the null bits included.
pub(crate) fn bits(record: &Record<'_>, sample: &Sample, cc_known: bool, country_known: bool) -> u64 {
    let set = |bit: u32, on: bool| u64::from(on) << bit;
    sample.given & ((1 << KERNEL_BITS) - 1)
        | u64::from(sample.flags) << FLAGS
        | set(DIRECTION, record.direction != Direction::Unknown)
        | set(ARM, sample.arm() != Arm::None)
        | set(LOCAL_PORT, sample.local_port != 0)
        | set(REMOTE_PORT, sample.remote_port != 0)
        | set(LISTENER_PORT, record.listener_port != 0)
        | set(ASN, record.asn != 0)
        | set(DELIVERY_RATE_MAX, record.delivery_rate_max != 0)
        | set(COUNTRY, country_known)
        | set(CC_KNOWN, cc_known && sample.given >> CC & 1 == 1)
}
