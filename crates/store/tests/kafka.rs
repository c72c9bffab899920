//! The exporter and a real broker: Apache Kafka, started by `scripts/services.sh`.
#![allow(clippy::disallowed_methods, reason = "a real broker on loopback, by the real clock")]

mod broker;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, Value};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use weirgate_sockets::record::{Direction, Origin, Record};
use weirgate_sockets::sample::{Sample, mapped, state};
use weirgate_store::Anonymise;
use weirgate_store::export::{CheckError, Compression, Exporter, Form, Options, Status, check};
use weirgate_units::{Bytes, Prefix, UnixTime};

use crate::broker::Broker;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

impl Broker {
    /// By TLS, with a name and a password.
    fn options(&self, topic: &str, spool: PathBuf) -> Options {
        Options {
            brokers: vec![self.env("KAFKA_TLS")],
            topic: topic.to_owned(),
            form: Form::Delimited,
            all_fields: false,
            compression: Compression::Zstd,
            security: self.security(),
            spool,
            spool_max: Bytes::new(100_000_000),
            interval: weirgate_units::Duration::from_millis(100),
            anonymise: Anonymise::Off,
        }
    }

    /// Every record of `topic`, by whose it is, in the order of its partition: until there are `count` and no more for a while.
    fn records(&self, topic: &str, count: usize, form: Form) -> HashMap<String, Vec<(u64, u64)>> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", self.env("KAFKA"))
            .set("group.id", "test")
            .set("auto.offset.reset", "earliest")
            .set("enable.auto.commit", "false")
            .create()
            .unwrap();
        consumer.subscribe(&[topic]).unwrap();
        let socket = socket();
        let mut found: HashMap<String, Vec<(u64, u64)>> = HashMap::new();
        let (until, mut quiet) = (Instant::now() + PATIENCE, None);
        loop {
            let sum: usize = found.values().map(Vec::len).sum();
            if sum >= count {
                // More would be repeated ones.
                let quiet = *quiet.get_or_insert_with(Instant::now);
                if quiet.elapsed() > Duration::from_secs(1) {
                    return found;
                }
            }
            assert!(Instant::now() < until, "{sum} of {count} records came");
            let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
            let Ok(message) = message else { continue };
            let key = String::from_utf8(message.key().unwrap().to_vec()).unwrap();
            let mut payload = message.payload().unwrap();
            while !payload.is_empty() {
                let mut length = payload.len();
                if form == Form::Delimited {
                    length = varint(&mut payload);
                }
                let (one, rest) = payload.split_at(length);
                payload = rest;
                let one = DynamicMessage::decode(socket.clone(), one).unwrap();
                let number = |name: &str| match &*one.get_field_by_name(name).unwrap() {
                    Value::U64(number) => *number,
                    Value::U32(number) => u64::from(*number),
                    other => panic!("{name}: {other:?}"),
                };
                found.entry(key.clone()).or_default().push((number("cookie"), number("sequence")));
            }
        }
    }
}

fn varint(bytes: &mut &[u8]) -> usize {
    let mut number = 0;
    for shift in 0.. {
        let (byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        number |= usize::from(byte & 0x7f) << (7 * shift);
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}

fn socket() -> MessageDescriptor {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/proto");
    let files = protox::compile(["weirgate/v1/sockets.proto"], [folder]).unwrap();
    DescriptorPool::from_file_descriptor_set(files).unwrap().get_message_by_name("weirgate.v1.Socket").unwrap()
}

fn origin() -> Origin {
    Origin { host: "edge-7".into(), pop: "ams".into(), boot_id: "b0".into() }
}

/// Hands over record `sequence` of each of `connections`, in networks of ten.
fn append(exporter: &mut Exporter, connections: u64, sequence: u32) {
    for cookie in 0..connections {
        let address = std::net::Ipv4Addr::from_bits(0x0a00_0001 + ((cookie as u32 / 10) << 8) + cookie as u32 % 10);
        let sample = Sample {
            cookie,
            state: state::ESTABLISHED,
            remote: mapped(address.into()),
            remote_port: 4_000,
            ..Sample::default()
        };
        exporter.append(&Record {
            sample: &sample,
            time: UnixTime::from_nanos(1_780_000_000_000_000_000),
            sequence,
            direction: Direction::Accepted,
            listener_port: 443,
            network: Prefix::client_network(address.into()),
            asn: 0,
            delivery_rate_max: 0,
            country: [0; 2],
        });
    }
    exporter.handle_tick(UnixTime::from_nanos(1_780_000_001_000_000_000));
}

fn until(exporter: &Exporter, what: &str, is_so: impl Fn(&Status) -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !is_so(&exporter.status()) {
        assert!(Instant::now() < patience, "{what}: {:?}", exporter.status());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Each connection's records are there once, and in their order.
fn whole(found: &HashMap<String, Vec<(u64, u64)>>, connections: u64, sequences: u64) {
    assert_eq!(found.len() as u64, connections / 10);
    for cookie in 0..connections {
        let key = format!("ams|10.{}.{}.0/24", (cookie / 10) >> 8, (cookie / 10) & 255);
        let own: Vec<u64> = found[&key].iter().filter(|record| record.0 == cookie).map(|record| record.1).collect();
        assert_eq!(own, (0..sequences).collect::<Vec<_>>(), "{key}, connection {cookie}");
    }
}

#[test]
fn what_a_broker_that_is_killed_did_not_acknowledge_comes_later_once_and_in_order() {
    let Some(broker) = Broker::start() else { return };
    let spool = broker.folder.path().join("spool");
    let options = broker.options("weirgate.sockets", spool.clone());
    let mut exporter = Exporter::open(&origin(), options.clone()).unwrap();
    append(&mut exporter, 1_000, 0);
    until(&exporter, "the first records", |status| status.acknowledged == 1_000 && status.spool_batches == 0);
    assert!(check(&options).is_ok_and(|partitions| partitions > 0));
    // Under way, and while nobody is there.
    append(&mut exporter, 1_000, 1);
    broker.script("kill");
    append(&mut exporter, 1_000, 2);
    until(&exporter, "what is in the way", |status| status.trouble.is_some() && status.spool_batches > 0);
    assert!(matches!(check(&options), Err(CheckError::Away(_))));
    broker.script("start");
    append(&mut exporter, 1_000, 3);
    until(&exporter, "all of them", |status| status.acknowledged == 4_000 && status.spool_batches == 0);
    let status = exporter.close();
    assert_eq!((status.lost, status.sampled_out, status.waiting, status.trouble), (0, 0, 0, None));
    whole(&broker.records("weirgate.sockets", 4_000, Form::Delimited), 1_000, 4);

    // What a daemon leaves behind, the next one sends; each record in a message of its own.
    let options = Options { topic: "single".into(), form: Form::Single, ..broker.options("single", spool) };
    broker.script("kill");
    let mut exporter = Exporter::open(&origin(), options.clone()).unwrap();
    append(&mut exporter, 500, 0);
    let status = exporter.close();
    assert_eq!((status.waiting, status.acknowledged), (500, 0));
    broker.script("start");
    let mut exporter = Exporter::open(&origin(), options).unwrap();
    append(&mut exporter, 500, 1);
    until(&exporter, "what was left and what came", |status| status.acknowledged == 1_000);
    assert_eq!((exporter.close().found, 500), (500, 500));
    whole(&broker.records("single", 1_000, Form::Single), 500, 2);
}

#[test]
fn a_wrong_password_is_said_and_costs_nothing() {
    let Some(broker) = Broker::start() else { return };
    let mut options = broker.options("weirgate.sockets", broker.folder.path().join("spool"));
    let right = options.clone();
    options.security.sasl.as_mut().unwrap().password = "wrong".into();
    let mut exporter = Exporter::open(&origin(), options).unwrap();
    append(&mut exporter, 100, 0);
    let said =
        |status: &Status| status.trouble.as_ref().is_some_and(|why| why.to_lowercase().contains("authentication"));
    until(&exporter, "it is said", said);
    assert_eq!(exporter.close().waiting, 100);
    let exporter = Exporter::open(&origin(), right).unwrap();
    until(&exporter, "it is sent", |status| status.acknowledged == 100);
}
