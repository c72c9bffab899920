use std::path::Path;

use proptest::prelude::*;
use prost_reflect::{DescriptorPool, DynamicMessage, Value};
use weirgate_sockets::record::{Direction, Origin, Record};
use weirgate_sockets::sample::{Arm, CcName, Field as Given, Sample, flag, state};
use weirgate_tune::sketch::Sketch;
use weirgate_tune::{ArmSum, Did, Metric, Terms};
use weirgate_units::{Duration, Prefix, UnixTime};

use super::*;
use crate::schema::{COLUMNS, Kind as ColumnKind};

fn origin() -> Origin {
    Origin { host: "edge-7".into(), pop: "ams".into(), boot_id: "b0".into() }
}

/// A sample of which the kernel gave everything.
fn full(seed: u64) -> Sample {
    let mut sample = Sample {
        state: state::ESTABLISHED,
        kind: 1,
        flags: flag::APP_LIMITED | flag::ECN | flag::SWITCHED,
        arm: 2,
        ca_state: 3,
        local_port: 443,
        remote_port: 50_000,
        local: weirgate_sockets::sample::mapped("192.0.2.1".parse().unwrap()),
        remote: weirgate_sockets::sample::mapped("198.51.100.9".parse().unwrap()),
        cookie: mix(seed),
        cc: CcName::new("bbr").unwrap(),
        time_ns: 77_000_000_000 + seed,
        bytes_sent: mix(seed) >> 20,
        bytes_acked: mix(seed) >> 21,
        rtt_us: 31_000,
        delivery_rate: 12_500_000,
        snd_cwnd: 40,
        netns: 4_026_531_840,
        ..Sample::default()
    };
    (0..=Given::TcpInfo as u8).for_each(|bit| sample.given |= 1 << bit);
    sample
}

fn record(sample: &Sample) -> Record<'_> {
    Record {
        sample,
        time: UnixTime::from_nanos(1_780_000_000_123_456_789),
        sequence: 3,
        direction: Direction::Accepted,
        listener_port: 443,
        network: Prefix::client_network("198.51.100.9".parse().unwrap()),
        asn: 64_500,
        delivery_rate_max: 13_000_000,
        country: *b"NL",
    }
}

/// A message type of a schema file, by another implementation of protobuf.
fn schema(file: &str, message: &str) -> prost_reflect::MessageDescriptor {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/proto");
    let files = protox::compile([format!("weirgate/v1/{file}.proto")], [folder]).unwrap();
    let pool = DescriptorPool::from_file_descriptor_set(files).unwrap();
    pool.get_message_by_name(&format!("weirgate.v1.{message}")).unwrap()
}

fn decode(bytes: &[u8]) -> DynamicMessage {
    let message = DynamicMessage::decode(schema("sockets", "Socket"), bytes).unwrap();
    assert_eq!(message.unknown_fields().count(), 0, "every field that was written is in the schema");
    message
}

fn encoded(record: &Record<'_>, weight: u32, is_lean: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let prefix = ProtobufEncoder::new(&origin(), Anonymise::Off, is_lean).push(record, weight, &mut bytes);
    assert!(prefix == 1 || prefix == 2);
    bytes.split_off(prefix)
}

#[test]
fn another_implementation_reads_every_field_with_its_type() {
    let sample = full(1);
    let message = decode(&encoded(&record(&sample), 4, false));
    for field in FIELDS {
        assert!(message.has_field_by_name(field.name), "{}", field.name);
        let value = message.get_field_by_name(field.name).unwrap();
        let column = COLUMNS.iter().find(|column| column.name == field.name);
        let fits = match (column.map(|column| column.kind), &*value) {
            (None | Some(ColumnKind::U8 | ColumnKind::U16 | ColumnKind::U32), Value::U32(_)) => true,
            (Some(ColumnKind::Time | ColumnKind::U64), Value::U64(_)) => true,
            (Some(ColumnKind::Text), Value::String(_)) => true,
            (Some(ColumnKind::Bool), Value::Bool(_)) => true,
            (Some(ColumnKind::Address), Value::Bytes(bytes)) => bytes.len() == 16,
            _ => false,
        };
        assert!(fits, "{}: {value:?}", field.name);
    }
    let get = |name: &str| message.get_field_by_name(name).unwrap().into_owned();
    assert_eq!(get("time"), Value::U64(1_780_000_000_123_456_789));
    assert_eq!(get("cookie"), Value::U64(sample.cookie));
    assert_eq!(get("bytes_sent"), Value::U64(sample.bytes_sent));
    assert_eq!(get("host"), Value::String("edge-7".into()));
    assert_eq!(get("kind"), Value::String("close".into()));
    assert_eq!(get("direction"), Value::String("accepted".into()));
    assert_eq!(get("cc"), Value::String("bbr".into()));
    assert_eq!(get("arm"), Value::String("holdout".into()));
    assert_eq!(get("ca_state"), Value::String("Recovery".into()));
    assert_eq!(get("country"), Value::String("NL".into()));
    assert_eq!(get("network_len"), Value::U32(24));
    assert_eq!(get("weight"), Value::U32(4));
    assert_eq!(get("ecn"), Value::Bool(true));
    assert_eq!(get("sack"), Value::Bool(false));
}

#[test]
fn what_is_not_known_is_absent() {
    let sample = Sample { cookie: 9, state: state::TIME_WAIT, ..Sample::default() };
    let bare = Record {
        direction: Direction::Unknown,
        listener_port: 0,
        asn: 0,
        delivery_rate_max: 0,
        country: [0; 2],
        ..record(&sample)
    };
    let message = decode(&encoded(&bare, 1, false));
    let present: Vec<&str> =
        FIELDS.iter().map(|field| field.name).filter(|name| message.has_field_by_name(name)).collect();
    let always = [
        "time",
        "cookie",
        "sequence",
        "remote_address",
        "host",
        "pop",
        "boot_id",
        "kind",
        "local_address",
        "network_len",
        "state",
    ];
    assert_eq!(present, [&always[..], &["switched", "policy_version", "boot_time_ns"]].concat());
}

#[test]
fn the_lean_fields_are_sent_unless_all_are_asked_for() {
    let sample = full(1);
    let message = decode(&encoded(&record(&sample), 2, true));
    for field in FIELDS {
        assert_eq!(message.has_field_by_name(field.name), field.is_lean, "{}", field.name);
    }
}

#[test]
fn an_anonymised_record_does_not_name_its_client() {
    let sample = full(1);
    let mut bytes = Vec::new();
    let prefix = ProtobufEncoder::new(&origin(), Anonymise::Client, true).push(&record(&sample), 1, &mut bytes);
    let message = decode(&bytes[prefix..]);
    let address = weirgate_sockets::sample::mapped("198.51.100.0".parse().unwrap());
    assert_eq!(
        message.get_field_by_name("remote_address").unwrap().into_owned(),
        Value::Bytes(address.to_vec().into())
    );
    assert!(!message.has_field_by_name("remote_port"));
}

#[test]
fn another_implementation_reads_a_tally() {
    let mut fit = Sketch::default();
    [1e6, 1e6, 5e9].into_iter().for_each(|vote| fit.add(vote));
    let arm = ArmSum { votes: 4, rtts: 5, rtt_us: 150_000, log: 58.5, sent: 7_000_000, retransmitted: 9 };
    let did = Did {
        connections: 6,
        acked: Bytes::new(6_999_991),
        clients: 1 << 63 | 5,
        small: 1,
        no_metric: 1,
        limited: 1,
        arm,
    };
    let network = Prefix::client_network("198.51.100.9".parse().unwrap());
    let terms = Terms { round: Duration::from_secs(300), metric: Metric::DeliveryRate };
    let tally = Tally { network, arm: Arm::Holdout, cc: CcName::new("bbr").unwrap(), did, fit: fit.clone(), terms };
    let [round, time] = [1_780_000_200_000_000_000, 1_780_000_123_456_789_012].map(UnixTime::from_nanos);
    let mut bytes = Vec::new();
    let prefix = TallyEncoder::new(&origin()).push(&tally, round, time, &mut bytes);
    let message = DynamicMessage::decode(schema("tallies", "Tally"), &bytes[prefix..]).unwrap();
    assert_eq!(message.unknown_fields().count(), 0);
    let get = |name: &str| message.get_field_by_name(name).unwrap().into_owned();
    let text = |text: &str| Value::String(text.to_owned());
    let address = weirgate_sockets::sample::mapped("198.51.100.0".parse().unwrap());
    let (bins, counts): (Vec<u16>, Vec<u32>) = fit.bins().iter().copied().unzip();
    assert_eq!(counts, [2, 1]);
    for (name, value) in [
        ("time", Value::U64(time.as_nanos())),
        ("round", Value::U64(1_780_000_200)),
        ("network_address", Value::Bytes(address.to_vec().into())),
        ("network_len", Value::U32(24)),
        ("arm", text("holdout")),
        ("cc", text("bbr")),
        ("connections", Value::U64(6)),
        ("acked", Value::U64(6_999_991)),
        ("clients", Value::U64(1 << 63 | 5)),
        ("small", Value::U64(1)),
        ("no_metric", Value::U64(1)),
        ("limited", Value::U64(1)),
        ("votes", Value::U32(4)),
        ("log", Value::F64(58.5)),
        ("sent", Value::U64(7_000_000)),
        ("retransmitted", Value::U64(9)),
        ("rtts", Value::U32(5)),
        ("rtt_us", Value::U64(150_000)),
        ("bins", Value::List(bins.into_iter().map(|bin| Value::U32(bin.into())).collect())),
        ("round_length", Value::U32(300)),
        ("metric", text("delivery_rate")),
        ("counts", Value::List(counts.into_iter().map(Value::U32).collect())),
        ("host", text("edge-7")),
        ("pop", text("ams")),
        ("boot_id", text("b0")),
    ] {
        assert_eq!(get(name), value, "{name}");
    }
}

proptest! {
    #[test]
    fn numbers_of_any_size_come_through(a: u64, b: u64, c: u32, seed: u64) {
        let sample = Sample { bytes_sent: a, busy_us: b, snd_ssthresh: c, ..full(seed) };
        let message = decode(&encoded(&record(&sample), 1, false));
        prop_assert_eq!(message.get_field_by_name("bytes_sent").unwrap().into_owned(), Value::U64(a));
        prop_assert_eq!(message.get_field_by_name("busy_us").unwrap().into_owned(), Value::U64(b));
        prop_assert_eq!(message.get_field_by_name("snd_ssthresh").unwrap().into_owned(), Value::U32(c));
    }
}

#[test]
fn a_spool_that_fills_is_stretched() {
    let at = |share: f64| weight((share * 1e6) as u64, 1_000_000);
    assert_eq!([0.0, 0.49, 0.5, 0.74, 0.75, 0.875, 0.99].map(at), [1, 1, 2, 2, 4, 8, 64]);
    assert_eq!(at(1.0), 256);
}

/// Nobody listens at the broker's address.
fn away(folder: &Path, spool_max: u64) -> Options {
    Options {
        brokers: vec!["127.0.0.1:1".into()],
        topic: "weirgate.sockets".into(),
        form: Form::Delimited,
        all_fields: false,
        compression: Compression::Zstd,
        security: Security::default(),
        spool: folder.to_owned(),
        spool_max: Bytes::new(spool_max),
        interval: Duration::from_millis(100),
        anonymise: Anonymise::Off,
    }
}

#[test]
fn while_brokers_are_away_records_wait_are_left_out_and_are_lost_and_all_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    // A batch of 2,000 records is 330 to 400 KB.
    let mut exporter = Exporter::open(&origin(), away(folder.path(), 4_000_000)).unwrap();
    let mut appended = 0;
    for round in 0..40u64 {
        for n in 0..2_000u64 {
            let sample = full(n * 1_000 + round);
            exporter.append(&record(&sample));
            appended += 1;
        }
        exporter.handle_tick(UnixTime::from_nanos(1_780_000_001_000_000_000));
        // Until it has been stored, what waits is as it was.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let status = exporter.close();
    assert_eq!(status.appended, appended);
    assert_eq!(status.acknowledged, 0);
    assert!(status.sampled_out > 0 && status.waiting > 0, "{status:?}");
    assert_eq!(status.sampled_out + status.waiting + status.lost, appended);
    assert!(status.weight > 1 && status.spool_bytes <= 4_000_000, "{status:?}");
    let left = status.waiting;
    let again = Exporter::open(&origin(), away(folder.path(), 4_000_000)).unwrap();
    assert_eq!((again.status().found, again.status().waiting), (left, left));
    assert!(matches!(Exporter::open(&origin(), away(folder.path(), 4_000_000)), Err(SpoolError::Taken(_))));
}
