//! `struct tcp_info`, read by its length. Read first: `include/uapi/linux/tcp.h`, and its history: the struct only ever
//! grew at its end, so that its length tells which fields a kernel has. 104 bytes since 2.6.10, 144 in 4.4, 192 in 4.10,
//! 224 in 4.19, 232 in 5.4, 248 in 6.7, 280 in 6.18.

use core::mem::offset_of;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::sample::{Field, Sample, flag};

/// Bytes that every kernel since 2.6.10 gives.
pub const LEN_MIN: usize = offset_of!(TcpInfo, pacing_rate);

/// The attribute is shorter than any kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tcp_info of {len} bytes is shorter than the {LEN_MIN} that every kernel since 2.6.10 gives")]
pub struct TcpInfoError {
    /// Its length.
    pub len: usize,
}

/// The struct up to the last field that a [`Sample`] has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct TcpInfo {
    pub(super) state: u8,
    pub(super) ca_state: u8,
    pub(super) retransmits: u8,
    pub(super) probes: u8,
    pub(super) backoff: u8,
    pub(super) options: u8,
    pub(super) wscale: u8,
    pub(super) app_limited: u8,
    pub(super) rto: u32,
    pub(super) ato: u32,
    pub(super) snd_mss: u32,
    pub(super) rcv_mss: u32,
    pub(super) unacked: u32,
    pub(super) sacked: u32,
    pub(super) lost: u32,
    pub(super) retrans: u32,
    pub(super) fackets: u32,
    pub(super) last_data_sent: u32,
    pub(super) last_ack_sent: u32,
    pub(super) last_data_recv: u32,
    pub(super) last_ack_recv: u32,
    pub(super) pmtu: u32,
    pub(super) rcv_ssthresh: u32,
    pub(super) rtt: u32,
    pub(super) rttvar: u32,
    pub(super) snd_ssthresh: u32,
    pub(super) snd_cwnd: u32,
    pub(super) advmss: u32,
    pub(super) reordering: u32,
    pub(super) rcv_rtt: u32,
    pub(super) rcv_space: u32,
    pub(super) total_retrans: u32,
    pub(super) pacing_rate: u64,
    pub(super) max_pacing_rate: u64,
    pub(super) bytes_acked: u64,
    pub(super) bytes_received: u64,
    pub(super) segs_out: u32,
    pub(super) segs_in: u32,
    pub(super) notsent_bytes: u32,
    pub(super) min_rtt: u32,
    pub(super) data_segs_in: u32,
    pub(super) data_segs_out: u32,
    pub(super) delivery_rate: u64,
    pub(super) busy_time: u64,
    pub(super) rwnd_limited: u64,
    pub(super) sndbuf_limited: u64,
    pub(super) delivered: u32,
    pub(super) delivered_ce: u32,
    pub(super) bytes_sent: u64,
    pub(super) bytes_retrans: u64,
    pub(super) dsack_dups: u32,
    pub(super) reord_seen: u32,
}

/// Where each optional field ends, in the struct's order: `(end, what a kernel that reaches it gives)`.
pub(super) const ENDS: &[(usize, Field)] = &[
    (offset_of!(TcpInfo, pacing_rate) + 8, Field::PacingRate),
    (offset_of!(TcpInfo, bytes_acked) + 8, Field::BytesAcked),
    (offset_of!(TcpInfo, bytes_received) + 8, Field::BytesReceived),
    (offset_of!(TcpInfo, segs_out) + 4, Field::SegsOut),
    (offset_of!(TcpInfo, segs_in) + 4, Field::SegsIn),
    (offset_of!(TcpInfo, notsent_bytes) + 4, Field::NotsentBytes),
    (offset_of!(TcpInfo, min_rtt) + 4, Field::MinRttUs),
    (offset_of!(TcpInfo, data_segs_in) + 4, Field::DataSegsIn),
    (offset_of!(TcpInfo, data_segs_out) + 4, Field::DataSegsOut),
    (offset_of!(TcpInfo, delivery_rate) + 8, Field::DeliveryRate),
    (offset_of!(TcpInfo, busy_time) + 8, Field::BusyUs),
    (offset_of!(TcpInfo, rwnd_limited) + 8, Field::RwndLimitedUs),
    (offset_of!(TcpInfo, sndbuf_limited) + 8, Field::SndbufLimitedUs),
    (offset_of!(TcpInfo, delivered) + 4, Field::Delivered),
    (offset_of!(TcpInfo, delivered_ce) + 4, Field::DeliveredCe),
    (offset_of!(TcpInfo, bytes_sent) + 8, Field::BytesSent),
    (offset_of!(TcpInfo, bytes_retrans) + 8, Field::BytesRetrans),
    (offset_of!(TcpInfo, dsack_dups) + 4, Field::DsackDups),
    (offset_of!(TcpInfo, reord_seen) + 4, Field::ReordSeen),
];

/// The first bit of a C bit-field is the lowest on little-endian machines, the highest on the others.
const APP_LIMITED: u8 = if cfg!(target_endian = "little") { 1 } else { 0x80 };

/// Bits of `tcpi_options`, and what a [`Sample`] calls them.
const OPTIONS: [(u8, u8); 4] = [(1, flag::TIMESTAMPS), (2, flag::SACK), (8, flag::ECN), (16, flag::ECN_SEEN)];

/// Reads the attribute into `sample`: its fields, their `given` bits, and the flags; the state is the message's.
///
/// # Errors
/// [`TcpInfoError`], and `sample` is as it was.
pub fn read(bytes: &[u8], sample: &mut Sample) -> Result<(), TcpInfoError> {
    if bytes.len() < LEN_MIN {
        return Err(TcpInfoError { len: bytes.len() });
    }
    let (info, given) = TcpInfo::from_prefix(bytes);
    sample.given |= given | 1 << Field::TcpInfo as u8;
    sample.ca_state = info.ca_state;
    for (option, bit) in OPTIONS {
        if info.options & option != 0 {
            sample.flags |= bit;
        }
    }
    // Older kernels have a zero here (padding before 4.9).
    if info.app_limited & APP_LIMITED != 0 {
        sample.flags |= flag::APP_LIMITED;
    }
    sample.rto_us = info.rto;
    sample.snd_mss = info.snd_mss;
    sample.unacked = info.unacked;
    sample.lost = info.lost;
    sample.retrans_out = info.retrans;
    sample.rtt_us = info.rtt;
    sample.rttvar_us = info.rttvar;
    sample.snd_ssthresh = info.snd_ssthresh;
    sample.snd_cwnd = info.snd_cwnd;
    sample.reordering = info.reordering;
    sample.total_retrans = info.total_retrans;
    sample.pacing_rate = info.pacing_rate;
    sample.bytes_acked = info.bytes_acked;
    sample.bytes_received = info.bytes_received;
    sample.segs_out = info.segs_out;
    sample.segs_in = info.segs_in;
    sample.notsent_bytes = info.notsent_bytes;
    sample.min_rtt_us = measured(info.min_rtt);
    sample.data_segs_in = info.data_segs_in;
    sample.data_segs_out = info.data_segs_out;
    sample.delivery_rate = info.delivery_rate;
    sample.busy_us = info.busy_time;
    sample.rwnd_limited_us = info.rwnd_limited;
    sample.sndbuf_limited_us = info.sndbuf_limited;
    sample.delivered = info.delivered;
    sample.delivered_ce = info.delivered_ce;
    sample.bytes_sent = info.bytes_sent;
    sample.bytes_retrans = info.bytes_retrans;
    sample.dsack_dups = info.dsack_dups;
    sample.reord_seen = info.reord_seen;
    Ok(())
}

/// A smallest round-trip time; the kernel says all ones where it has none yet, a sample 0.
pub(super) const fn measured(rtt_us: u32) -> u32 {
    if rtt_us == u32::MAX { 0 } else { rtt_us }
}

impl TcpInfo {
    /// The struct with what `bytes` hold of it, the rest zero, and the `given` bits of what is whole.
    fn from_prefix(bytes: &[u8]) -> (Self, u64) {
        const ALL: u64 = given_to(size_of::<TcpInfo>());
        if let Ok((info, _)) = Self::read_from_prefix(bytes) {
            return (info, ALL);
        }
        // A field that was cut in the middle is not there at all.
        let whole = ENDS.iter().map(|(end, _)| *end).take_while(|end| *end <= bytes.len()).last().unwrap_or(LEN_MIN);
        let mut info = Self::new_zeroed();
        info.as_mut_bytes()[..whole].copy_from_slice(&bytes[..whole]);
        (info, given_to(whole))
    }

    /// What is given of `sample`, as the kernel would write it. Fields that a sample has no room for are zero.
    pub(super) fn of(sample: &Sample) -> Self {
        let option = |(option, bit): (u8, u8)| if sample.is(bit) { option } else { 0 };
        Self {
            state: sample.state,
            ca_state: sample.ca_state,
            options: OPTIONS.map(option).iter().sum(),
            app_limited: if sample.is(flag::APP_LIMITED) { APP_LIMITED } else { 0 },
            rto: sample.rto_us,
            snd_mss: sample.snd_mss,
            unacked: sample.unacked,
            lost: sample.lost,
            retrans: sample.retrans_out,
            rtt: sample.rtt_us,
            rttvar: sample.rttvar_us,
            snd_ssthresh: sample.snd_ssthresh,
            snd_cwnd: sample.snd_cwnd,
            reordering: sample.reordering,
            total_retrans: sample.total_retrans,
            pacing_rate: sample.pacing_rate,
            bytes_acked: sample.bytes_acked,
            bytes_received: sample.bytes_received,
            segs_out: sample.segs_out,
            segs_in: sample.segs_in,
            notsent_bytes: sample.notsent_bytes,
            min_rtt: sample.min_rtt_us,
            data_segs_in: sample.data_segs_in,
            data_segs_out: sample.data_segs_out,
            delivery_rate: sample.delivery_rate,
            busy_time: sample.busy_us,
            rwnd_limited: sample.rwnd_limited_us,
            sndbuf_limited: sample.sndbuf_limited_us,
            delivered: sample.delivered,
            delivered_ce: sample.delivered_ce,
            bytes_sent: sample.bytes_sent,
            bytes_retrans: sample.bytes_retrans,
            dsack_dups: sample.dsack_dups,
            reord_seen: sample.reord_seen,
            ..Self::new_zeroed()
        }
    }
}

/// The `given` bits of a struct that ends at `len`.
const fn given_to(len: usize) -> u64 {
    let (mut given, mut i) = (0, 0);
    while i < ENDS.len() && ENDS[i].0 <= len {
        given |= 1 << ENDS[i].1 as u8;
        i += 1;
    }
    given
}

const _: () = assert!(size_of::<TcpInfo>() == 224 && LEN_MIN == 104, "as include/uapi/linux/tcp.h has it");
