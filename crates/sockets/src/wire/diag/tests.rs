//! Bytes of a real kernel, the same as older kernels would send them, other people's parser, and garbage.

use netlink_packet_core::Parseable;
use netlink_packet_sock_diag::inet::InetResponse;
use netlink_packet_sock_diag::inet::nlas::Nla;
use proptest::collection::vec;
use proptest::prelude::*;
use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::sample::{flag, state};
use crate::wire::emit;
use crate::wire::frame::{Message, Messages, Reply};

/// What each message named in the file holds.
fn golden(name: &str) -> Vec<u8> {
    let file = include_str!("linux-6.18.hex");
    let (_, after) = file.split_once(&format!("\n{name}:\n")).expect("a name in the file");
    let hex: String = after.split("\n\n").next().unwrap_or_default().split_whitespace().collect();
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hexadecimal")).collect()
}

fn message(datagram: &[u8]) -> Message<'_> {
    let mut messages = Messages::new(datagram);
    let message = messages.next().unwrap().unwrap();
    assert!(messages.next().is_none());
    message
}

const CONTEXT: Context = Context { kind: Kind::Poll, time_ns: 42, netns: 150_153 };

fn parse(payload: &[u8]) -> Result<Sample, DiagError> {
    View::new(payload).and_then(|view| Sample::from_diag(&view, CONTEXT))
}

fn parsed(name: &str) -> Sample {
    let datagram = golden(name);
    let Ok(Reply::Socket(payload)) = message(&datagram).reply() else { panic!("not a socket: {datagram:?}") };
    parse(payload).unwrap()
}

#[test]
fn a_bbr_socket_is_read_as_ss_shows_it() {
    let s = parsed("v4-bbr");
    assert_eq!((s.local().to_string(), s.remote().to_string()), ("127.0.0.1:57995".into(), "127.0.0.1:47426".into()));
    assert_eq!((s.family, s.state, s.cookie, s.netns, s.time_ns), (4, state::ESTABLISHED, 0x1530, 150_153, 42));
    assert_eq!((s.cc.as_str(), s.mark, s.cgroup_id), ("bbr", 0x2a, 1));
    assert_eq!((s.rmem_alloc, s.rcvbuf, s.sndbuf, s.wmem_queued, s.backlog_drops), (0, 131_072, 3_939_840, 0, 0));
    assert_eq!((s.rto_us, s.rtt_us, s.rttvar_us, s.min_rtt_us), (204_000, 99, 145, 3));
    assert_eq!((s.snd_mss, s.snd_cwnd, s.snd_ssthresh), (65_483, 20, 8));
    assert_eq!((s.bytes_sent, s.bytes_acked, s.bytes_received, s.bytes_retrans), (1 << 20, 1 << 20, 3, 0));
    assert_eq!((s.segs_out, s.segs_in, s.data_segs_out, s.data_segs_in, s.delivered), (27, 15, 26, 1, 27));
    assert_eq!((s.bbr_bw * 8, s.bbr_min_rtt_us, s.bbr_pacing_gain, s.bbr_cwnd_gain), (349_242_645_848, 3, 256, 512));
    assert_eq!((s.pacing_rate * 8, s.delivery_rate().as_bits_per_sec()), (345_750_219_384, 13_096_600_000));
    assert_eq!(s.flags, flag::TIMESTAMPS | flag::SACK);
    let missing: u64 = !s.given & ((2 << Field::TcpInfo as u8) - 1);
    assert_eq!(missing, 0, "this kernel gives everything");
}

#[test]
fn an_ipv6_socket_and_a_mapped_one_are_told_apart() {
    let s = parsed("v6-reno");
    assert_eq!((s.local().to_string(), s.remote().to_string()), ("[::1]:40107".into(), "[::1]:41306".into()));
    assert_eq!((s.family, s.cc.as_str(), s.bytes_acked), (6, "reno", 300_000));
    assert!(!s.has(Field::Bbr) && s.bbr_bw == 0);

    let s = parsed("mapped");
    assert_eq!((s.local().to_string(), s.remote().to_string()), ("127.0.0.1:55193".into(), "127.0.0.1:49660".into()));
    assert_eq!((s.family, s.bytes_acked), (4, 100_000));
}

#[test]
fn a_listener_and_a_time_wait_socket_are_samples_too() {
    let s = parsed("listener");
    assert_eq!((s.state, s.local_port, s.remote_port, s.min_rtt_us), (state::LISTEN, 57_995, 0, 0));
    assert!(s.has(Field::TcpInfo));
    let s = parsed("time-wait");
    assert_eq!((s.state, s.remote().to_string()), (state::TIME_WAIT, "127.0.0.1:56656".into()));
    assert!(!s.has(Field::TcpInfo) && !s.has(Field::Cc) && s.bytes_acked == 0);
}

/// The same socket as older kernels would send it: `struct tcp_info` as long as theirs.
#[test]
fn older_kernels_give_less_and_say_so() {
    use Field::*;
    let full = parsed("v4-bbr");
    let mut last = 0;
    // Length, a version that has it, a field that came with it.
    for (len, version, came) in [
        (104, "3.14", TcpInfo),
        (120, "3.15", PacingRate),
        (136, "4.1", BytesReceived),
        (144, "4.4", SegsIn),
        (160, "4.6", DataSegsOut),
        (168, "4.9", DeliveryRate),
        (192, "4.10", SndbufLimitedUs),
        (200, "4.18", DeliveredCe),
        (224, "4.19", ReordSeen),
        (232, "5.4", ReordSeen),
        (248, "6.7", ReordSeen),
        (280, "6.18", ReordSeen),
        (4000, "one to come", ReordSeen),
    ] {
        let mut payload = Vec::new();
        emit::socket(&mut payload, &full, len);
        let s = parse(&payload).unwrap();
        assert!(s.has(came), "{version} gives {came:?}");
        assert!(s.given.count_ones() >= last, "{version} gives no less than the one before");
        last = s.given.count_ones();
        assert_eq!((s.rtt_us, s.total_retrans, s.cc), (full.rtt_us, full.total_retrans, full.cc), "{version}");
        for (end, field) in crate::wire::tcp_info::ENDS {
            assert_eq!(s.has(*field), *end <= len, "{version}: {field:?}");
        }
        assert_eq!(s.bytes_sent, if len >= 216 { full.bytes_sent } else { 0 }, "{version}");
        assert_eq!(s.delivery_rate, if len >= 168 { full.delivery_rate } else { 0 }, "{version}");
    }
}

/// Every length between the versions': a field is whole or not there.
#[test]
fn a_length_that_no_kernel_has_gives_whole_fields_only() {
    let mut sample = parsed("v4-bbr");
    sample.bytes_retrans = u64::MAX;
    sample.busy_us = u64::MAX;
    for len in 104..=232 {
        let mut payload = Vec::new();
        emit::socket(&mut payload, &sample, len);
        let s = parse(&payload).unwrap();
        assert_eq!(s.bytes_retrans, if len >= 216 { u64::MAX } else { 0 }, "{len}");
        assert_eq!(s.busy_us, if len >= 176 { u64::MAX } else { 0 }, "{len}");
    }
}

#[test]
fn what_cannot_be_is_named() {
    let datagram = golden("v4-bbr");
    let payload = message(&datagram).payload;
    assert_eq!(parse(&payload[..71]).unwrap_err(), DiagError::Truncated { len: 71 });
    assert!(parse(&payload[..MESSAGE_LEN]).is_ok(), "a kernel that gives no attributes at all");

    let mut other_family = payload.to_vec();
    other_family[0] = 1;
    assert_eq!(parse(&other_family).unwrap_err(), DiagError::Family(1));

    for (kind, value, error) in [
        (attribute::INFO, 103, DiagError::TcpInfo(TcpInfoError { len: 103 })),
        (attribute::MARK, 3, DiagError::AttributeShort { kind: attribute::MARK, len: 3 }),
        (attribute::CGROUP_ID, 4, DiagError::AttributeShort { kind: attribute::CGROUP_ID, len: 4 }),
        (attribute::BBRINFO, 16, DiagError::AttributeShort { kind: attribute::BBRINFO, len: 16 }),
        (attribute::SKMEMINFO, 20, DiagError::AttributeShort { kind: attribute::SKMEMINFO, len: 20 }),
    ] {
        let mut bytes = payload[..MESSAGE_LEN].to_vec();
        emit::attribute(&mut bytes, kind, &vec![0; value]);
        assert_eq!(parse(&bytes).unwrap_err(), error);
    }
    let cut = parse(&payload[..payload.len() - 8]).unwrap_err();
    assert!(
        matches!(cut, DiagError::Attribute(AttributeError { kind: attribute::BBRINFO, len: 24, left: 16 })),
        "{cut}"
    );
}

/// Every prefix of a real message is read or refused, and what is read of it is the same.
#[test]
fn a_message_cut_anywhere_is_read_or_refused() {
    let datagram = golden("v4-bbr");
    let payload = message(&datagram).payload;
    for len in 0..payload.len() {
        if let Ok(s) = parse(&payload[..len]) {
            assert_eq!((s.cookie, s.local_port), (0x1530, 57_995));
        }
    }
}

#[test]
fn the_other_parser_agrees_on_the_real_bytes() {
    for name in ["listener", "v4-bbr", "v6-reno", "mapped"] {
        let datagram = golden(name);
        let payload = message(&datagram).payload;
        let theirs = InetResponse::parse(payload).unwrap();
        let ours = parsed(name);
        let id = &theirs.header.socket_id;
        assert_eq!((ours.local_port, ours.remote_port), (id.source_port, id.destination_port));
        assert_eq!(ours.local().ip(), id.source_address.to_canonical());
        assert_eq!(ours.cookie.to_ne_bytes(), id.cookie);
        assert_eq!(ours.state, theirs.header.state);
        let mut seen = 0;
        for nla in &theirs.nlas {
            match nla {
                Nla::TcpInfo(info) => {
                    assert_eq!((ours.rtt_us, ours.rttvar_us, ours.rto_us), (info.rtt, info.rttvar, info.rto));
                    assert_eq!((ours.snd_cwnd, ours.snd_ssthresh), (info.snd_cwnd, info.snd_ssthresh));
                    assert_eq!((ours.bytes_acked, ours.bytes_received), (info.bytes_acked, info.bytes_received));
                    assert_eq!((ours.bytes_sent, ours.delivery_rate), (info.bytes_sent, info.delivery_rate));
                    assert_eq!((ours.busy_us, ours.reord_seen), (info.busy_time, info.reord_seen));
                    seen += 1;
                }
                Nla::Congestion(name) => {
                    assert_eq!(ours.cc.as_str(), name);
                    seen += 1;
                }
                _ => {}
            }
        }
        assert_eq!(seen, 2, "{name}");
    }
}

/// A sample as a kernel could give it: what is not given is zero.
fn samples() -> impl Strategy<Value = Sample> {
    (vec(any::<u8>(), size_of::<Sample>()), any::<bool>(), "[a-z]{1,15}", any::<bool>()).prop_map(
        |(bytes, v4, name, bbr)| {
            let mut s = Sample::new_zeroed();
            s.as_mut_bytes().copy_from_slice(&bytes);
            s.len = size_of::<Sample>() as u16;
            (s.kind, s.time_ns, s.netns) = (Kind::Poll as u8, CONTEXT.time_ns, CONTEXT.netns);
            (s.arm, s.policy_version) = (0, 0);
            s.flags &= flag::APP_LIMITED | flag::TIMESTAMPS | flag::SACK | flag::ECN | flag::ECN_SEEN;
            s.family = if v4 { 4 } else { 6 };
            if v4 {
                s.local[..12].copy_from_slice(&MAPPED);
                s.remote[..12].copy_from_slice(&MAPPED);
            }
            s.cc = CcName::from_kernel(name.as_bytes());
            s.given = (2 << Field::TcpInfo as u8) - 1;
            s.min_rtt_us &= 0xffff;
            s.bbr_min_rtt_us &= 0xffff;
            if !bbr {
                s.given &= !(1 << Field::Bbr as u8);
                (s.bbr_bw, s.bbr_min_rtt_us, s.bbr_pacing_gain, s.bbr_cwnd_gain) = (0, 0, 0, 0);
            }
            s
        },
    )
}

proptest! {
    #[test]
    fn a_sample_comes_back_from_its_bytes(sample in samples(), len in 224usize..400) {
        let mut payload = Vec::new();
        emit::socket(&mut payload, &sample, len);
        let parsed = parse(&payload).unwrap();
        prop_assert_eq!(parsed.as_bytes(), sample.as_bytes());
    }

    #[test]
    fn no_bytes_are_too_strange(bytes in vec(any::<u8>(), 0..600)) {
        for message in Messages::new(&bytes) {
            if let Ok(Ok(Reply::Socket(payload))) = message.map(|m| m.reply()) {
                let _ = parse(payload);
            }
        }
        let _ = parse(&bytes);
    }

    #[test]
    fn real_bytes_with_some_changed_are_read_or_refused(
        changes in vec((0usize..480, any::<u8>()), 1..8),
        cut in 0usize..480,
    ) {
        let mut datagram = golden("v4-bbr");
        for (at, byte) in changes {
            datagram[at] = byte;
        }
        for message in Messages::new(&datagram[..cut]) {
            if let Ok(Ok(Reply::Socket(payload))) = message.map(|m| m.reply()) {
                let _ = parse(payload);
            }
        }
        let _ = parse(&datagram[16..]);
    }
}
