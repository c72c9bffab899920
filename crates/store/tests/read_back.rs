//! A record that was written is the record that is read.
#![allow(clippy::disallowed_methods, reason = "this room touches the world: clocks, files, threads are its work")]

mod common;

use common::{append, at, origin, sample};
use proptest::prelude::*;
use weirgate_sockets::record::{Direction, Origin, Record};
use weirgate_sockets::sample::{CcName, Field, Sample, flag, mapped, state};
use weirgate_store::{Options, TimeRange, Writer, for_each_record};
use weirgate_units::{Bytes, Prefix, UnixTime};

/// All of a record, without its borrow.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    sample: String,
    time: UnixTime,
    sequence: u32,
    direction: Direction,
    listener_port: u16,
    delivery_rate_max: u64,
    network: Prefix,
    asn: u32,
    country: [u8; 2],
    origin: Origin,
}

fn keep(record: &Record<'_>, origin: &Origin) -> Kept {
    Kept {
        sample: format!("{:?}", record.sample),
        time: record.time,
        sequence: record.sequence,
        direction: record.direction,
        listener_port: record.listener_port,
        delivery_rate_max: record.delivery_rate_max,
        network: record.network,
        asn: record.asn,
        country: record.country,
        origin: origin.clone(),
    }
}

fn open(dir: &std::path::Path) -> Writer {
    Writer::open(dir, &origin(), Options { keep_free: Bytes::ZERO, ..Options::default() }).unwrap()
}

fn read(dir: &std::path::Path, range: TimeRange) -> Vec<Kept> {
    let mut found = Vec::new();
    let done = for_each_record(dir, range, &mut |record, origin| {
        found.push(keep(record, origin));
        true
    });
    let done = done.unwrap();
    assert!(done.warnings.is_empty() && done.records == found.len() as u64, "{done:?}");
    found
}

/// What a reader is promised to find of `sample`: see [`for_each_record`].
fn as_read(sample: &Sample, direction: Direction) -> Sample {
    let mut s = *sample;
    s.len = size_of::<Sample>() as u16;
    s.flags &= !(flag::ACCEPTED | flag::CONNECTED);
    s.flags |= match direction {
        Direction::Accepted => flag::ACCEPTED,
        Direction::Connected => flag::CONNECTED,
        Direction::Unknown => 0,
    };
    if s.state == state::NEW_SYN_RECV {
        s.state = state::SYN_RECV;
    }
    s.family = if s.remote().is_ipv4() { 4 } else { 6 };
    s
}

/// Samples as a kernel makes them: what is not given is zero.
fn samples() -> impl Strategy<Value = Sample> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>(), any::<u16>());
    let kinds = (0..=1u8, 0..=12u8, 0..=4u8, any::<u8>(), 0..=2u8, any::<u16>(), any::<u16>());
    let names = prop_oneof![Just("cubic".to_owned()), Just("bbr".to_owned()), "[a-z]{1,15}"];
    (numbers, kinds, names, any::<[u8; 16]>(), any::<bool>(), any::<u64>()).prop_map(|(n, k, name, ip, v4, given)| {
        let mut s = Sample {
            kind: k.0,
            state: k.1,
            ca_state: k.2,
            flags: k.3,
            arm: k.4,
            local_port: k.5,
            remote_port: k.6,
            local: ip,
            remote: if v4 { mapped([ip[0], ip[1], ip[2], ip[3]].into()) } else { ip },
            cookie: n.0,
            time_ns: n.1,
            policy_version: n.3,
            given: given & ((1 << 26) - 1),
            ..Sample::default()
        };
        if s.has(Field::Cc) {
            s.cc = CcName::new(&name).unwrap();
        }
        macro_rules! give {
            ($($field:ident: $($name:ident = $value:expr),*;)*) => {
                $(if s.has(Field::$field) { $(s.$name = $value;)* })*
            };
        }
        give! {
            BytesSent: bytes_sent = n.0;
            BytesAcked: bytes_acked = n.1;
            BytesRetrans: bytes_retrans = n.2;
            BytesReceived: bytes_received = n.0;
            DeliveryRate: delivery_rate = n.1;
            PacingRate: pacing_rate = n.2;
            BusyUs: busy_us = n.0;
            RwndLimitedUs: rwnd_limited_us = n.1;
            SndbufLimitedUs: sndbuf_limited_us = n.2;
            Bbr: bbr_bw = n.0, bbr_min_rtt_us = n.3, bbr_pacing_gain = n.5, bbr_cwnd_gain = n.5;
            MinRttUs: min_rtt_us = n.3;
            SegsOut: segs_out = n.4;
            SegsIn: segs_in = n.3;
            DataSegsOut: data_segs_out = n.4;
            DataSegsIn: data_segs_in = n.3;
            ReordSeen: reord_seen = n.4;
            DsackDups: dsack_dups = n.3;
            Delivered: delivered = n.4;
            DeliveredCe: delivered_ce = n.3;
            NotsentBytes: notsent_bytes = n.4;
            Memory: rmem_alloc = n.3, rcvbuf = n.4, wmem_queued = n.3, sndbuf = n.4, backlog_drops = n.3;
            Mark: mark = n.4;
            CgroupId: cgroup_id = n.2;
            Netns: netns = n.3;
            TcpInfo: rtt_us = n.3, rttvar_us = n.4, rto_us = n.3, snd_mss = n.4, snd_cwnd = n.3, snd_ssthresh = n.4,
                total_retrans = n.3, lost = n.4, unacked = n.3, retrans_out = n.4, reordering = n.3;
        }
        // What hangs on a field that is not given is not known either.
        if !s.has(Field::TcpInfo) {
            s.ca_state = 0;
            s.flags &= !(flag::TIMESTAMPS | flag::SACK | flag::ECN | flag::ECN_SEEN);
        }
        if !s.has(Field::DeliveryRate) {
            s.flags &= !flag::APP_LIMITED;
        }
        s
    })
}

fn record_of(sample: &Sample, n: u32) -> Record<'_> {
    let ip = sample.remote().ip();
    Record {
        sample,
        time: at(60 + u64::from(n)),
        sequence: n,
        direction: [Direction::Unknown, Direction::Accepted, Direction::Connected][n as usize % 3],
        listener_port: if n.is_multiple_of(2) { 0 } else { 8_443 },
        delivery_rate_max: if n.is_multiple_of(3) { 0 } else { 1_000 + u64::from(n) },
        network: if n.is_multiple_of(5) { Prefix::of(ip, 20) } else { Prefix::client_network(ip) },
        asn: n % 4,
        country: [*b"DE", *b"ZW", [0, 0]][n as usize % 3],
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_record_comes_back(samples in proptest::collection::vec(samples(), 1..200)) {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = open(dir.path());
        let mut expected = Vec::new();
        for (n, sample) in samples.iter().enumerate() {
            let record = record_of(sample, n as u32);
            writer.append(&record);
            let read = as_read(sample, record.direction);
            expected.push(keep(&Record { sample: &read, ..record }, &origin()));
        }
        writer.close();
        let found = read(dir.path(), TimeRange::ALL);
        prop_assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
fn every_field_of_a_sample_has_a_column() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    append(&mut writer, 1, 200, at(0));
    writer.close();
    for found in read(dir.path(), TimeRange::ALL) {
        // The helper's sample gives each field another value, so that none is stored in another's place.
        let n = u64::from(found.sequence);
        assert_eq!(found.sample, format!("{:?}", as_read(&sample(n), found.direction)));
    }
}

#[test]
fn order_and_range_are_kept_over_files_and_row_groups() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    for minute in 0..90 {
        append(&mut writer, minute * 1_000, 1_000, at(minute * 60));
        writer.handle_tick(at(minute * 60 + 59));
    }
    writer.close();
    let all = read(dir.path(), TimeRange::ALL);
    assert_eq!(all.len(), 90_000);
    assert!(all.iter().enumerate().all(|(n, r)| r.sequence == n as u32));
    let some = read(dir.path(), TimeRange { from: at(30 * 60), to: at(61 * 60) });
    assert_eq!((some.len(), some[0].sequence, some[some.len() - 1].sequence), (31_000, 30_000, 60_999));
    assert!(read(dir.path(), TimeRange { from: at(90 * 60), to: at(400 * 60) }).is_empty());

    let mut seen = 0;
    let done = for_each_record(dir.path(), TimeRange::ALL, &mut |_, _| {
        seen += 1;
        seen < 10
    });
    assert_eq!((seen, done.unwrap().records), (10, 10));
}

#[test]
fn two_hosts_in_one_store_keep_their_names() {
    let dir = tempfile::tempdir().unwrap();
    for host in ["edge-1", "edge-2"] {
        let origin = Origin { host: host.to_owned(), pop: String::new(), ..origin() };
        let options = Options { keep_free: Bytes::ZERO, ..Options::default() };
        let mut writer = Writer::open(dir.path(), &origin, options).unwrap();
        append(&mut writer, 0, 3, at(0));
        // The hour is over: both files become one.
        writer.flush(at(3_700));
        writer.close();
    }
    assert_eq!(common::files(dir.path()).len(), 1);
    let found = read(dir.path(), TimeRange::ALL);
    let hosts: Vec<&str> = found.iter().map(|r| r.origin.host.as_str()).collect();
    assert_eq!(hosts, ["edge-1", "edge-1", "edge-1", "edge-2", "edge-2", "edge-2"]);
    assert!(found.iter().all(|r| r.origin.pop.is_empty() && r.origin.boot_id == origin().boot_id));
}

#[test]
fn many_names_of_congestion_controls_fit() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    for n in 0..1_000u64 {
        let s = Sample { cc: CcName::new(&format!("cc{}", n % 300)).unwrap(), ..sample(n) };
        writer.append(&common::record(&s, n, at(0)));
    }
    writer.close();
    let found = read(dir.path(), TimeRange::ALL);
    // 255 have a place; the names after them read as not given.
    assert_eq!(found.iter().filter(|r| r.sample.contains("cc: \"\"")).count(), 3 * 45);
    assert!(found[254].sample.contains("cc: \"cc254\"") && found[999].sample.contains("cc: \"cc99\""));
}
