//! The current engine and an earlier one: messages in, by the views that Kafka's table feeds; replication only as far as it is read.

use crate::debian::{responses_are_counted, responses_have_their_connections};
use crate::message::{Message, Schema};
use crate::server::{Server, done, weirgate};

/// A minute of 2026.
const MINUTE: u64 = 1_795_291_200;

/// Statements of `weirgate store init --print`.
fn printed(args: &[&str]) -> Vec<String> {
    let text = done(&weirgate(&[&["store", "init", "--print"], args].concat()));
    text.split(";\n\n").filter(|statement| !statement.is_empty()).map(str::to_owned).collect()
}

/// The connection `cookie` of the network of `remote` as it closed, in its identity only.
fn close<'a>(schema: &'a Schema, cookie: u64, remote: std::net::Ipv6Addr, network_len: u64) -> Message<'a> {
    schema
        .message()
        .number("time", MINUTE * 1_000_000_000 + 5_123_456_789)
        .bytes("host", b"edge1")
        .bytes("boot_id", b"b")
        .bytes("kind", b"close")
        .number("sequence", 4)
        .number("cookie", cookie)
        .bytes("local_address", &"2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets())
        .bytes("remote_address", &remote.octets())
        .number("network_len", network_len)
}

/// Hands `bytes`, which hold messages in `format`, to what stands for Kafka's table.
fn deliver(server: &Server, format: &str, bytes: &[u8]) {
    let file = server.files().join(format!("messages.{format}"));
    std::fs::write(&file, bytes).unwrap();
    let columns = "SELECT arrayStringConcat(groupArray(concat(name, ' ', type)), ', ') FROM \
                   (SELECT name, type FROM system.columns WHERE database = 'weirgate' AND table = 'sockets_kafka' \
                   AND name NOT LIKE '\\_%' ORDER BY position) FORMAT TSVRaw";
    let columns = server.ask(columns);
    server.ask(&format!(
        "INSERT INTO weirgate.sockets_kafka SELECT * FROM file('{}', '{format}', '{}') \
         SETTINGS format_schema = 'weirgate/v1/sockets.proto:Socket'",
        file.display(),
        columns.trim().replace('\'', "\\'"),
    ));
}

/// Makes what `weirgate store init` makes, but for Kafka's tables: in place of each one that keeps nothing, with what Kafka's have by
/// themselves.
fn make_without_kafka(server: &Server, args: &[&str]) {
    for statement in printed(args) {
        let statement = match statement.split_once("\n)\nENGINE = Kafka\n") {
            Some((columns, _)) => format!(
                "{columns},\n_error String MATERIALIZED '',\n_raw_message String MATERIALIZED '',\n_topic String MATERIALIZED '',\n\
                 _partition UInt64 MATERIALIZED 0,\n_offset UInt64 MATERIALIZED 0\n)\nENGINE = Null"
            ),
            None => statement,
        };
        server.ask(&statement);
    }
}

#[test]
fn a_tally_without_a_sketch_is_put_aside() {
    Server::engines().iter().for_each(is_put_aside);
}

fn is_put_aside(server: &Server) {
    make_without_kafka(server, &["--kafka", "127.0.0.1:1", "--tallies", "t"]);
    for (cc, counts) in [("cubic", "[2, 1]"), ("bbr", "[2]")] {
        server.ask(&format!(
            "INSERT INTO weirgate.tallies_kafka (round, host, pop, network_address, network_len, cc, bins, counts, _topic, _offset) \
             SETTINGS insert_allow_materialized_columns = 1 VALUES \
             ({MINUTE}, 'edge1', 'ams', unhex('00000000000000000000FFFFC6336400'), 24, '{cc}', [7, 9], {counts}, 't', 41)"
        ));
    }
    server.ask(
        "INSERT INTO weirgate.tallies_kafka (_error, _raw_message, _topic) SETTINGS insert_allow_materialized_columns = 1 \
         VALUES ('torn', 'xyz', 't')",
    );
    assert_eq!(server.ask("SELECT network, cc, counts FROM weirgate.tallies"), "198.51.100.0/24\tcubic\t[2,1]\n");
    assert_eq!(
        server.ask("SELECT topic, offset, error, message FROM weirgate.sockets_kafka_errors ORDER BY offset"),
        "t\t0\ttorn\txyz\nt\t41\ta tally of 2 bins and 1 counts\tedge1  bbr [7,9] [2]\n"
    );
}

#[test]
fn messages_reach_the_tables_and_what_is_absent_is_null() {
    Server::engines().iter().for_each(messages_reach);
}

fn messages_reach(server: &Server) {
    let schema = Schema::load();
    server.put_schemas();
    make_without_kafka(server, &["--kafka", "127.0.0.1:1"]);

    let ipv4 = close(&schema, 7, "::ffff:198.51.100.7".parse().unwrap(), 24)
        .bytes("pop", b"ams")
        .number("netns", 4_026_531_840)
        .bytes("cc", b"cubic")
        .number("remote_port", 50_000)
        .number("bytes_sent", 1_100)
        .number("bytes_acked", 1_000)
        .number("bytes_retrans", 0)
        .number("busy_us", 4_000)
        .number("rtt_us", 20_000)
        .number("switched", 0)
        .number("app_limited", 1)
        .number("delivery_rate_max", 500);
    let heavy = ipv4.clone().number("cookie", 8).number("rtt_us", 40_000).number("weight", 3);
    let ipv6 = close(&schema, 9, "2001:db8:1:2::7".parse().unwrap(), 56);
    deliver(server, "Protobuf", &[&ipv4, &ipv4, &heavy].map(Message::delimited).concat());
    deliver(server, "ProtobufSingle", &ipv6.single());

    let shown = "SELECT cookie, toString(time), pop, network, toString(local_address), toString(remote_address), remote_port, netns, \
                 rtt_us, bytes_retrans, switched, app_limited, ecn, cc, arm, boot_time_ns, weight FROM weirgate.sockets FINAL ORDER BY cookie";
    assert_eq!(
        server.ask(shown),
        "7\t2026-11-21 20:00:05.123456789\tams\t198.51.100.0/24\t2001:db8::1\t::ffff:198.51.100.7\t50000\t4026531840\t20000\t0\tfalse\ttrue\t\\N\tcubic\t\\N\t\\N\t1\n\
         8\t2026-11-21 20:00:05.123456789\tams\t198.51.100.0/24\t2001:db8::1\t::ffff:198.51.100.7\t50000\t4026531840\t40000\t0\tfalse\ttrue\t\\N\tcubic\t\\N\t\\N\t3\n\
         9\t2026-11-21 20:00:05.123456789\t\t2001:db8:1::/56\t2001:db8::1\t2001:db8:1:2::7\t\\N\t0\t\\N\t\\N\t\\N\t\\N\t\\N\t\\N\t\\N\t\\N\t1\n"
    );
    // As documented: the copy is counted here.
    let minutes = "SELECT pop, network, toUnixTimestamp(minute), cc, arm, sum(closes), sum(bytes_sent), sum(bytes_acked), sum(busy_us), \
                   round(quantileTDigestWeightedMerge(0.9)(rtt_us)) FROM weirgate.networks_1m GROUP BY ALL ORDER BY network";
    let expected = "ams\t198.51.100.0/24\t1795291200\tcubic\t\t5\t5500\t5000\t20000\t40000\n\
                    \t2001:db8:1::/56\t1795291200\t\t\t1\t0\t0\t0\tnan\n";
    assert_eq!(server.ask(minutes), expected);
    server.ask("OPTIMIZE TABLE weirgate.networks_1m FINAL");
    assert_eq!(server.ask(minutes), expected, "merging changes nothing");

    server.ask(
        "INSERT INTO weirgate.sockets_kafka (_error, _raw_message, _topic, _partition, _offset) \
         SETTINGS insert_allow_materialized_columns = 1 VALUES ('torn', 'xyz', 'weirgate.sockets', 2, 41)",
    );
    assert_eq!(server.ask("SELECT count() FROM weirgate.sockets FINAL"), "3\n");
    let errors = server.ask("SELECT topic, partition, offset, error, message FROM weirgate.sockets_kafka_errors");
    assert_eq!(errors, "weirgate.sockets\t2\t41\ttorn\txyz\n");
}

#[test]
fn json_does_as_well_and_responses_are_counted() {
    Server::engines().iter().for_each(json_does);
}

fn json_does(server: &Server) {
    let first = done(&server.init(&[]));
    assert!(first.contains("applied  004_sockets_kafka_errors\n") && !first.contains("900"), "{first}");
    server.ask(
        "INSERT INTO weirgate.sockets SETTINGS date_time_input_format = 'best_effort' FORMAT JSONEachRow \
         {\"time\":\"2026-11-21T20:00:05.25Z\",\"kind\":\"close\",\"remote_address\":\"198.51.100.7\",\"network\":\"198.51.100.0/24\",\"bytes_acked\":10,\"switched\":true}",
    );
    assert_eq!(
        server.ask("SELECT toString(time), toString(remote_address), weight, switched, rtt_us FROM weirgate.sockets"),
        "2026-11-21 20:00:05.250000000\t::ffff:198.51.100.7\t1\ttrue\t\\N\n"
    );
    assert_eq!(server.ask("SELECT sum(closes), sum(bytes_acked) FROM weirgate.networks_1m"), "1\t10\n");
    responses_are_counted(server);
    responses_have_their_connections(server);
}

#[test]
fn rows_stay_for_another_time() {
    Server::engines().iter().for_each(stays);
}

fn stays(server: &Server) {
    done(&server.init(&["--ttl", "7 d"]));
    let days =
        "SELECT count() FROM system.tables WHERE database = 'weirgate' AND engine_full LIKE '%toIntervalDay(DAYS)%'";
    let staying = |days_of: &str| server.ask(&days.replace("DAYS", days_of));
    // What could not be read stays for a week whatever is said.
    assert_eq!((staying("7"), staying("30")), ("6\n".to_owned(), "0\n".to_owned()));
    let as_it_is = done(&weirgate(&["store", "init", "--url", &server.url]));
    assert!(as_it_is.contains("nothing to do: all 8 files"), "rows stay as long as before: {as_it_is}");
    let longer = done(&server.init(&["--ttl", "60 d"]));
    assert!(
        longer.contains("rows stay for 60 d in sockets, networks_1m, responses, responses_1m, tallies from now on"),
        "{longer}"
    );
    assert_eq!((staying("7"), staying("60")), ("1\n".to_owned(), "5\n".to_owned()));
    assert!(done(&server.init(&["--ttl", "60 d"])).contains("nothing to do"));
}

#[test]
fn what_somebody_has_dropped_is_made_again() {
    let Some(server) = Server::current() else { return };
    done(&server.init(&[]));
    for table in ["tallies", "networks_1m_mv"] {
        server.ask(&format!("DROP TABLE weirgate.{table} SYNC"));
    }
    let again = done(&server.init(&[]));
    assert!(
        again.contains("remade   networks_1m_mv, tallies: somebody had dropped") && !again.contains("applied"),
        "{again}"
    );
    // With all its columns, of later files, too.
    assert_eq!(server.ask("SELECT count() FROM weirgate.tallies WHERE round_length > 0 AND metric = ''"), "0\n");
    assert!(done(&server.init(&[])).contains("nothing to do"));
}

#[test]
fn another_kafka_is_taken_and_the_same_left_alone() {
    let Some(server) = Server::current() else { return };
    // Nobody is there, which is nobody's business as long as nothing is read.
    let with = |brokers: &str| done(&server.init(&["--kafka", brokers, "--topic", "its.own"]));
    let made = with("127.0.0.1:1");
    assert!(made.contains("applied  900_sockets_kafka\n"), "{made}");
    assert!(
        made.contains("does not find weirgate/v1/sockets.proto in its folder") && made.contains("store proto"),
        "{made}"
    );
    server.put_schemas();
    assert!(with("127.0.0.1:1").contains("nothing to do: all 9 files"));
    let again = with("127.0.0.1:2");
    assert!(again.contains("applied  900_sockets_kafka\n") && !again.contains("001"), "{again}");
    let table = server.ask(
        "SELECT engine_full FROM system.tables WHERE database = 'weirgate' AND name = 'sockets_kafka' FORMAT TSVRaw",
    );
    assert!(table.contains("127.0.0.1:2") && table.contains("'its.own'"), "{table}");
    let unasked = done(&server.init(&[]));
    assert!(
        unasked.contains("left     sockets_kafka as it is"),
        "it stays where nobody asks for it, which is said: {unasked}"
    );
    assert!(unasked.contains("nothing to do") && !unasked.contains("tallies_kafka"), "{unasked}");
}

#[test]
fn the_replicated_form_is_read() {
    let engines = Server::engines();
    let statements = printed(&["--cluster", "{cluster}", "--kafka", "kafka1:9092,kafka2:9092", "--form", "single"]);
    assert_eq!(statements.iter().filter(|statement| statement.contains("ENGINE = Replicated")).count(), 10);
    for statement in statements {
        let is_record = statement.starts_with("INSERT");
        assert!(is_record || statement.contains(" ON CLUSTER '{cluster}'"), "{statement}");
        engines.iter().for_each(|server| drop(server.ask(&format!("EXPLAIN AST {statement}"))));
    }
}
