//! The whole way of a record: exporter, Apache Kafka, an engine's Kafka table, its views.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use weirgate_sockets::progress::Progress;
use weirgate_sockets::record::{Direction, Origin, Record};
use weirgate_sockets::sample::{Arm, CcName, Field, Kind, Sample, mapped, state};
use weirgate_store::Anonymise;
use weirgate_store::clickhouse::{self, Source};
use weirgate_store::export::{Compression, Exporter, Form, Options, Security};
use weirgate_tune::{Config, Tallies, Tally};
use weirgate_units::{Bytes, Prefix, UnixTime};

use crate::server::{Server, Service, done};

/// How long anything may take on a busy machine; the engine asks Kafka now and then.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) const CONNECTIONS: u64 = 300;

fn exporter(broker: &Service, spool: &str, topic: &str, form: Form) -> Exporter {
    let options = Options {
        brokers: vec![broker.address.clone()],
        topic: topic.to_owned(),
        form,
        all_fields: true,
        compression: Compression::Zstd,
        security: Security::default(),
        spool: broker.folder.path().join(spool),
        spool_max: Bytes::new(100_000_000),
        interval: weirgate_units::Duration::from_millis(100),
        anonymise: Anonymise::Off,
    };
    let origin = Origin { host: "edge-7".into(), pop: "ams".into(), boot_id: "b0".into() };
    Exporter::open(&origin, options).unwrap()
}

/// Waits until `count` are acknowledged.
fn sent(exporter: &mut Exporter, count: u64) {
    exporter.handle_tick(UnixTime::from_nanos(1_795_291_206_000_000_000));
    let patience = Instant::now() + PATIENCE;
    while exporter.status().acknowledged < count {
        assert!(Instant::now() < patience, "{:?}", exporter.status());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Record `sequence` of each connection.
pub(crate) fn send(broker: &Service, spool: &str, topic: &str, form: Form, sequence: u32) {
    let mut exporter = exporter(broker, spool, topic, form);
    for cookie in 0..CONNECTIONS {
        let address: IpAddr = match cookie % 3 {
            0 => format!("2001:db8:{:x}::7", cookie + 1).parse().unwrap(),
            _ => format!("198.51.{}.7", cookie % 100).parse().unwrap(),
        };
        let mut sample = Sample {
            kind: Kind::Close as u8,
            cookie,
            state: state::ESTABLISHED,
            remote: mapped(address),
            remote_port: 4_000,
            bytes_acked: 1_000,
            ..Sample::default()
        };
        sample.given = 1 << Field::BytesAcked as u32;
        exporter.append(&Record {
            sample: &sample,
            time: UnixTime::from_nanos(1_795_291_205_000_000_001),
            sequence,
            direction: Direction::Accepted,
            listener_port: 443,
            network: Prefix::client_network(address),
            asn: 0,
            delivery_rate_max: 0,
            country: [0; 2],
        });
    }
    sent(&mut exporter, CONNECTIONS);
}

/// Waits until `server` answers `sql` with `count`.
pub(crate) fn until(server: &Server, sql: &str, count: u64) {
    let patience = Instant::now() + PATIENCE;
    loop {
        let answer = server.ask(sql);
        if answer == format!("{count}\n") {
            return;
        }
        assert!(Instant::now() < patience, "{sql}: {answer}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn what_is_exported_arrives_in_both_forms() {
    let Some(server) = Server::current() else { return };
    let Some(broker) = Service::kafka() else { return };
    server.put_schemas();
    for (form, name) in [(Form::Delimited, "delimited"), (Form::Single, "single")] {
        send(&broker, name, name, form, 0);
        let args = ["--kafka", &broker.address, "--topic", name, "--form", name, "--database", name];
        done(&server.init(&args));
        until(&server, &format!("SELECT count() FROM {name}.sockets FINAL"), CONNECTIONS);
        assert_eq!(
            server.ask(&format!(
                "SELECT uniqExact(network), countIf(network LIKE '198.51.%.0/24'), countIf(network LIKE '2001:db8:%::/56'), \
                 uniqExact(cookie), sum(bytes_acked), countIf(rtt_us IS NULL), min(toUnixTimestamp64Nano(time)), any(pop), any(kind) \
                 FROM {name}.sockets FINAL"
            )),
            "200\t200\t100\t300\t300000\t300\t1795291205000000001\tams\tclose\n"
        );
        assert_eq!(
            server.ask(&format!("SELECT sum(closes), sum(bytes_acked) FROM {name}.networks_1m")),
            "300\t300000\n"
        );

        // What is no message is put aside and holds nothing up: what comes after it is read.
        server.ask(&format!(
            "CREATE TABLE {name}.torn (x String) ENGINE = Kafka SETTINGS kafka_broker_list = '{}', kafka_topic_list = '{name}', \
             kafka_group_name = 'torn', kafka_format = 'RawBLOB'",
            broker.address
        ));
        server.ask(&format!("INSERT INTO {name}.torn VALUES ('no message')"));
        send(&broker, name, name, form, 1);
        until(&server, &format!("SELECT count() FROM {name}.sockets FINAL"), 2 * CONNECTIONS);
        until(&server, &format!("SELECT countIf(message = 'no message') FROM {name}.sockets_kafka_errors"), 1);
        let asked = clickhouse::Server::new(&server.url, None, None).unwrap();
        let unread = clickhouse::unread(&asked, name, Duration::from_secs(600)).unwrap();
        assert!(
            matches!(&unread[..], [of] if of.topic == name && of.messages == 1 && !of.error.is_empty()),
            "{unread:?}"
        );
    }
}

#[test]
fn what_hosts_sum_up_arrives_and_is_read_back_as_it_was() {
    let Some(server) = Server::current() else { return };
    let Some(broker) = Service::kafka() else { return };
    server.put_schemas();
    let round = UnixTime::from_nanos(1_795_291_500_000_000_000);
    let config = Config::default();
    let mut tallies = Tallies::new(config.clone());
    for n in 1..=200_u64 {
        let client: IpAddr = match n % 3 {
            0 => format!("2001:db8:{:x}::7", n % 10).parse().unwrap(),
            _ => format!("198.51.100.{}", n % 50).parse().unwrap(),
        };
        tallies.handle_progress(&Progress {
            client,
            local_port: 443,
            direction: Direction::Accepted,
            cc: CcName::new(["cubic", "bbr"][n as usize % 2]).unwrap(),
            arm: [Arm::None, Arm::Treated, Arm::Holdout][n as usize % 3],
            acked: Bytes::new(n * 10_000),
            sent: Bytes::new(n * 10_100),
            retransmitted: Bytes::new(n * 100),
            busy: weirgate_units::Duration::from_millis(n % 7 * 100),
            rwnd_limited: weirgate_units::Duration::from_millis(n % 5 * 100),
            sndbuf_limited: weirgate_units::Duration::ZERO,
            delivery_rate: None,
            min_rtt: weirgate_units::Duration::from_millis(n % 4),
            closed: true,
        });
    }
    let mut expected = tallies.take();
    done(&server.init(&["--kafka", &broker.address, "--tallies", "t"]));
    let mut exporter = exporter(&broker, "tallies", "t", Form::Delimited);
    for tally in &expected {
        exporter.append_tally(tally, round, UnixTime::from_nanos(1_795_291_205_000_000_001));
    }
    sent(&mut exporter, expected.len() as u64);
    until(&server, "SELECT count() FROM weirgate.tallies FINAL", expected.len() as u64);
    let asked = clickhouse::Server::new(&server.url, None, None).unwrap();
    let mut read = Vec::new();
    let of = |pop, end, read: &mut Vec<Tally>| {
        clickhouse::round(&asked, "weirgate", Source::Tallies, (pop, end), &config, &mut |tally| read.push(tally))
            .unwrap()
    };
    let rows = expected.len() as u64;
    assert_eq!(
        of("ams", round, &mut read),
        clickhouse::Round { rows, hosts: vec!["edge-7".into()], ..clickhouse::Round::default() }
    );
    let key = |tally: &Tally| (tally.network, tally.arm as u8, tally.cc.as_str().to_owned());
    read.sort_by_key(key);
    expected.sort_by_key(key);
    assert_eq!(read, expected);
    let none = clickhouse::Round::default();
    assert_eq!([of("fra", round, &mut read), of("ams", round + config.round, &mut read)], [none.clone(), none]);
}
