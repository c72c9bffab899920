//! A sample as a kernel would send it: for tests, fuzzing and synthetic telemetry. The inverse of
//! [`Sample::from_diag`](crate::sample::Sample::from_diag).

use zerocopy::IntoBytes;

use super::diag::{MESSAGE_LEN, attribute};
use super::family;
use super::frame::{HEADER_LEN, align};
use super::tcp_info::{LEN_MIN, TcpInfo};
use crate::sample::{Field, Sample};

/// Appends a netlink message of `kind` with its header.
pub fn message(buffer: &mut Vec<u8>, kind: u16, flags: u16, sequence: u32, payload: &[u8]) {
    buffer.extend(((HEADER_LEN + payload.len()) as u32).to_ne_bytes());
    buffer.extend(kind.to_ne_bytes());
    buffer.extend(flags.to_ne_bytes());
    buffer.extend(sequence.to_ne_bytes());
    buffer.extend(0u32.to_ne_bytes());
    buffer.extend(payload);
    pad(buffer);
}

/// Appends the payload of a socket's message: the fixed part, and an attribute for each thing that `sample` is given.
///
/// `tcp_info_len` is the length of `struct tcp_info` in the kernel imitated (104 to 280; cut and padded as needed).
pub fn socket(buffer: &mut Vec<u8>, sample: &Sample, tcp_info_len: usize) {
    let start = buffer.len();
    let is_v4 = sample.family == 4;
    buffer.extend([if is_v4 { family::INET } else { family::INET6 }, sample.state, 0, 0]);
    buffer.extend(sample.local_port.to_be_bytes());
    buffer.extend(sample.remote_port.to_be_bytes());
    for address in [&sample.local, &sample.remote] {
        if is_v4 {
            buffer.extend(&address[12..]);
            buffer.extend([0; 12]);
        } else {
            buffer.extend(address);
        }
    }
    buffer.extend(0u32.to_ne_bytes());
    buffer.extend((sample.cookie as u32).to_ne_bytes());
    buffer.extend(((sample.cookie >> 32) as u32).to_ne_bytes());
    buffer.extend([0; 20]);
    debug_assert_eq!(buffer.len() - start, MESSAGE_LEN);

    if sample.has(Field::Memory) {
        let words =
            [sample.rmem_alloc, sample.rcvbuf, 0, sample.sndbuf, 0, sample.wmem_queued, 0, 0, sample.backlog_drops];
        attribute(buffer, attribute::SKMEMINFO, words.as_bytes());
    }
    if sample.has(Field::Mark) {
        attribute(buffer, attribute::MARK, &sample.mark.to_ne_bytes());
    }
    if sample.has(Field::CgroupId) {
        attribute(buffer, attribute::CGROUP_ID, &sample.cgroup_id.to_ne_bytes());
    }
    if sample.has(Field::TcpInfo) {
        let info = TcpInfo::of(sample);
        let mut value = info.as_bytes().to_vec();
        value.resize(tcp_info_len.max(LEN_MIN), 0);
        attribute(buffer, attribute::INFO, &value);
    }
    if sample.has(Field::Cc) {
        let name = sample.cc.as_str().as_bytes();
        attribute(buffer, attribute::CONG, &[name, &[0]].concat());
    }
    if sample.has(Field::Bbr) {
        let words = [
            sample.bbr_bw as u32,
            (sample.bbr_bw >> 32) as u32,
            sample.bbr_min_rtt_us,
            sample.bbr_pacing_gain.into(),
            sample.bbr_cwnd_gain.into(),
        ];
        attribute(buffer, attribute::BBRINFO, words.as_bytes());
    }
}

/// Appends one attribute. `value` has at most 65,531 bytes.
pub fn attribute(buffer: &mut Vec<u8>, kind: u16, value: &[u8]) {
    buffer.extend(((4 + value.len()) as u16).to_ne_bytes());
    buffer.extend(kind.to_ne_bytes());
    buffer.extend(value);
    pad(buffer);
}

fn pad(buffer: &mut Vec<u8>) {
    buffer.resize(align(buffer.len()), 0);
}
