//! Kernel-program bytes to [`Sample`]. Read first: `bpf/sample.h`, which promises that fields are appended, never moved.
//!
//! A daemon may meet a program of another version (pinned by an older one, or a newer one put back): a shorter record
//! leaves the fields it lacks zero and not [given](Sample::given), a longer one loses its tail. Nothing here panics.

use core::mem::{offset_of, size_of};

use zerocopy::{FromZeros, IntoBytes};

use crate::sample::{Field, Sample};

/// Bytes that every record has: all of its identity, up to and with the congestion control's name.
pub const RECORD_LEN_MIN: usize = offset_of!(Sample, bytes_sent);

/// Why bytes are not a record of the kernel programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The buffer ends inside the record: read on and try again with more.
    #[error("the record says it is {len} bytes long and {left} are left: the read was cut short")]
    Truncated {
        /// What the record's first field says, or 2 where not even that was whole.
        len: usize,
        /// What the buffer holds.
        left: usize,
    },
    /// The record is shorter than any version's: the bytes are something else.
    #[error(
        "a record of {len} bytes is shorter than {RECORD_LEN_MIN}: the pinned program is not Weirgate's; run `weirgate undo`"
    )]
    TooShort {
        /// What the record's first field says.
        len: usize,
    },
}

/// The optional fields and where each ends: a record that ends before does not give it.
const ENDS: &[(Field, usize)] = &[
    (Field::BytesSent, end(offset_of!(Sample, bytes_sent), 8)),
    (Field::BytesAcked, end(offset_of!(Sample, bytes_acked), 8)),
    (Field::BytesRetrans, end(offset_of!(Sample, bytes_retrans), 8)),
    (Field::BytesReceived, end(offset_of!(Sample, bytes_received), 8)),
    (Field::DeliveryRate, end(offset_of!(Sample, delivery_rate), 8)),
    (Field::PacingRate, end(offset_of!(Sample, pacing_rate), 8)),
    (Field::BusyUs, end(offset_of!(Sample, busy_us), 8)),
    (Field::RwndLimitedUs, end(offset_of!(Sample, rwnd_limited_us), 8)),
    (Field::SndbufLimitedUs, end(offset_of!(Sample, sndbuf_limited_us), 8)),
    (Field::Bbr, end(offset_of!(Sample, bbr_cwnd_gain), 2)),
    (Field::MinRttUs, end(offset_of!(Sample, min_rtt_us), 4)),
    (Field::SegsOut, end(offset_of!(Sample, segs_out), 4)),
    (Field::SegsIn, end(offset_of!(Sample, segs_in), 4)),
    (Field::DataSegsOut, end(offset_of!(Sample, data_segs_out), 4)),
    (Field::DataSegsIn, end(offset_of!(Sample, data_segs_in), 4)),
    (Field::ReordSeen, end(offset_of!(Sample, reord_seen), 4)),
    (Field::DsackDups, end(offset_of!(Sample, dsack_dups), 4)),
    (Field::Delivered, end(offset_of!(Sample, delivered), 4)),
    (Field::DeliveredCe, end(offset_of!(Sample, delivered_ce), 4)),
    (Field::NotsentBytes, end(offset_of!(Sample, notsent_bytes), 4)),
    (Field::Memory, end(offset_of!(Sample, backlog_drops), 4)),
    // The last field of the oldest `struct tcp_info` in this layout.
    (Field::TcpInfo, end(offset_of!(Sample, reordering), 4)),
];

const fn end(offset: usize, len: usize) -> usize {
    offset + len
}

impl Sample {
    /// Reads the record at the start of `bytes`, whatever their alignment. Returns it and the bytes it took, by which
    /// the next one is found. One copy of at most 296 bytes.
    ///
    /// # Errors
    /// [`DecodeError`]: the buffer ends too early, or holds something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<(Self, usize), DecodeError> {
        let left = bytes.len();
        let Some(&[low, high]) = bytes.first_chunk::<2>() else {
            return Err(DecodeError::Truncated { len: 2, left });
        };
        let len = usize::from(u16::from_ne_bytes([low, high]));
        if len < RECORD_LEN_MIN {
            return Err(DecodeError::TooShort { len });
        }
        let Some(record) = bytes.get(..len) else {
            return Err(DecodeError::Truncated { len, left });
        };
        let mut sample = Self::new_zeroed();
        if len >= size_of::<Self>() {
            sample.as_mut_bytes().copy_from_slice(&record[..size_of::<Self>()]);
        } else {
            sample.fill_from_short(record);
        }
        Ok((sample, len))
    }

    /// Fields are whole or absent: what is cut in the middle is zero like what is missing.
    #[cold]
    fn fill_from_short(&mut self, record: &[u8]) {
        // Every field ends on a multiple of four but the two halves of the BBR gains and the first sixteen bytes, which
        // are always there; the eight-byte fields are cleared below where only half came.
        let whole = record.len() & !3;
        self.as_mut_bytes()[..whole].copy_from_slice(&record[..whole]);
        let half = whole & 7 != 0 && whole < offset_of!(Sample, bbr_min_rtt_us);
        if half {
            self.as_mut_bytes()[whole - 4..whole].fill(0);
        }
        for &(field, end) in ENDS {
            if record.len() < end {
                self.given &= !(1 << field as u8);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample::CcName;

    fn full() -> Sample {
        let mut sample = Sample { cookie: 7, given: u64::MAX, cc: CcName::from_kernel(b"cubic"), ..Sample::default() };
        sample.as_mut_bytes()[RECORD_LEN_MIN..].fill(0xa5);
        sample.len = size_of::<Sample>() as u16;
        sample
    }

    #[test]
    fn a_record_of_this_version_is_read_as_it_is() {
        let sample = full();
        let (read, taken) = Sample::from_bytes(sample.as_bytes()).unwrap();
        assert_eq!(read.as_bytes(), sample.as_bytes());
        assert_eq!(taken, size_of::<Sample>());
    }

    #[test]
    fn a_longer_record_loses_its_tail_and_says_where_the_next_begins() {
        let mut sample = full();
        sample.len += 24;
        let mut bytes = sample.as_bytes().to_vec();
        bytes.extend([9; 24]);
        bytes.extend(full().as_bytes());
        let (read, taken) = Sample::from_bytes(&bytes).unwrap();
        assert_eq!(read.backlog_drops, sample.backlog_drops);
        let (next, _) = Sample::from_bytes(&bytes[taken..]).unwrap();
        assert_eq!(next.as_bytes(), full().as_bytes());
    }

    #[test]
    fn a_shorter_record_gives_whole_fields_only() {
        for len in RECORD_LEN_MIN..size_of::<Sample>() {
            let mut sample = full();
            sample.len = len as u16;
            let (read, taken) = Sample::from_bytes(&sample.as_bytes()[..len]).unwrap();
            assert_eq!(taken, len);
            assert_eq!((read.cookie, read.cc.as_str()), (7, "cubic"));
            for &(field, end) in ENDS {
                assert_eq!(read.has(field), end <= len, "{field:?} at {len} bytes");
            }
            for (value, end) in [
                (read.bytes_acked, end(offset_of!(Sample, bytes_acked), 8)),
                (read.bbr_bw, end(offset_of!(Sample, bbr_bw), 8)),
                (read.rtt_us.into(), end(offset_of!(Sample, rtt_us), 4)),
                (read.unacked.into(), end(offset_of!(Sample, unacked), 4)),
            ] {
                assert_eq!(value != 0, end <= len, "at {len} bytes");
            }
        }
    }

    #[test]
    fn what_is_not_a_record_is_refused() {
        assert_eq!(Sample::from_bytes(&[]).unwrap_err(), DecodeError::Truncated { len: 2, left: 0 });
        assert_eq!(Sample::from_bytes(&[0; 400]).unwrap_err(), DecodeError::TooShort { len: 0 });
        let sample = full();
        assert_eq!(
            Sample::from_bytes(&sample.as_bytes()[..200]).unwrap_err(),
            DecodeError::Truncated { len: size_of::<Sample>(), left: 200 }
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            if let Ok((_, taken)) = Sample::from_bytes(&bytes) {
                prop_assert!((RECORD_LEN_MIN..=bytes.len()).contains(&taken));
            }
        }
    }
}
