//! Debian's ClickHouse 18.16: plain tables, JSON in.

use crate::server::{Server, done, said, weirgate};

/// Records as `weirgate query --json` writes them; the third is the first once more.
const SOCKETS: &str = r#"INSERT INTO weirgate.sockets FORMAT JSONEachRow
{"time":1795291205,"host":"edge1","pop":"ams","boot_id":"b","kind":"close","sequence":4,"local_address":"192.0.2.1","remote_address":"198.51.100.7","network":"198.51.100.0/24","cookie":7,"netns":4026531840,"cc":"cubic","bytes_sent":1100,"bytes_acked":1000,"bytes_retrans":100,"busy_us":4000,"rtt_us":20000,"switched":false,"delivery_rate_max":500}
{"time":1795291206,"host":"edge1","pop":"ams","boot_id":"b","kind":"close","sequence":1,"local_address":"192.0.2.1","remote_address":"198.51.100.9","network":"198.51.100.0/24","cookie":9,"netns":4026531840,"cc":"cubic","bytes_sent":10,"bytes_acked":10,"bytes_retrans":0,"busy_us":null,"rtt_us":40000,"weight":3}
{"time":1795291205,"host":"edge1","pop":"ams","boot_id":"b","kind":"close","sequence":4,"local_address":"192.0.2.1","remote_address":"198.51.100.7","network":"198.51.100.0/24","cookie":7,"netns":4026531840,"cc":"bbr","arm":"treated","bytes_acked":1,"rtt_us":1000,"delivery_rate_max":700}
{"time":1795291205,"host":"edge1","pop":"ams","boot_id":"b","kind":"poll","sequence":0,"local_address":"2001:db8::1","remote_address":"2001:db8:1:2::7","network":"2001:db8:1::/56","cookie":11}
"#;

/// Lines of an access log. Three are of one network, two of them large; the last one has no address.
const LINES: &str = r#"INSERT INTO weirgate.responses_nginx FORMAT JSONEachRow
{"msec":"1795291205.250","hostname":"edge1","pop":"ams","remote_addr":"198.51.100.7","status":"200","bytes_sent":"1000000","request_time":"2.000"}
{"msec":"1795291206.250","hostname":"edge1","pop":"ams","remote_addr":"198.51.100.8","status":"200","bytes_sent":"200000","request_time":"0.400"}
{"msec":"1795291207.000","hostname":"edge1","pop":"ams","remote_addr":"198.51.100.8","status":"404","bytes_sent":"500","request_time":"0.000"}
{"msec":"1795291208.000","hostname":"edge1","pop":"ams","remote_addr":"2001:db8:1:2::7","status":"200","bytes_sent":"300000","request_time":"0.300"}
{"msec":"1795291209.000","hostname":"edge1","pop":"ams","remote_addr":"::ffff:203.0.113.5","status":"200","bytes_sent":"1","request_time":"0.001"}
{"msec":"1795291210.000","hostname":"edge1","pop":"ams","remote_addr":"unix:","status":"200","bytes_sent":"1","request_time":"0.001"}
"#;

/// What comes of [`LINES`], the same on every server.
pub(crate) fn responses_are_counted(server: &Server) {
    server.ask(LINES);
    assert_eq!(
        server.ask("SELECT network, status, bytes, duration_us, goodput FROM weirgate.responses ORDER BY time"),
        "198.51.100.0/24\t200\t1000000\t2000000\t500000\n\
         198.51.100.0/24\t200\t200000\t400000\t500000\n\
         198.51.100.0/24\t404\t500\t0\t\\N\n\
         2001:db8:1::/56\t200\t300000\t300000\t1000000\n\
         203.0.113.0/24\t200\t1\t1000\t1000\n\
         \t200\t1\t1000\t1000\n"
    );
    assert_eq!(
        server.ask(
            "SELECT network, toUnixTimestamp(minute), sum(responses), sum(bytes_sent), sum(duration_us), sum(large), \
             round(quantileTDigestMerge(0.5)(goodput)) FROM weirgate.responses_1m WHERE network != '' \
             GROUP BY network, minute HAVING sum(large) > 0 ORDER BY network"
        ),
        "198.51.100.0/24\t1795291200\t3\t1200500\t2400000\t2\t500000\n2001:db8:1::/56\t1795291200\t1\t300000\t300000\t1\t1000000\n"
    );
}

/// Lines with the client's port: twice one connection, once with its address written otherwise; a request by a Unix socket has none.
const LINES_WITH_PORT: &str = r#"INSERT INTO weirgate.responses_nginx_port FORMAT JSONEachRow
{"msec":"MINUTE5.250","hostname":"edge1","pop":"fra","remote_addr":"198.51.100.7","remote_port":"50000","status":"200","bytes_sent":"1000000","request_time":"2.000"}
{"msec":"MINUTE6.000","hostname":"edge1","pop":"fra","remote_addr":"::ffff:198.51.100.7","remote_port":"50000","status":"200","bytes_sent":"200000","request_time":"0.400"}
{"msec":"MINUTE7.000","hostname":"edge1","pop":"fra","remote_addr":"2001:db8:1:2::7","remote_port":"50001","status":"404","bytes_sent":"500","request_time":"0.000"}
{"msec":"MINUTE8.000","hostname":"edge1","pop":"fra","remote_addr":"unix:","remote_port":"","status":"200","bytes_sent":"1","request_time":"0.001"}
"#;

/// What comes of [`LINES_WITH_PORT`], the same on every server: all that comes of others, and the connection of each.
pub(crate) fn responses_have_their_connections(server: &Server) {
    // Those with a connection stay for two days; all but the last digit of the beginning of a minute.
    let minute = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() / 60 * 6;
    server.ask(&LINES_WITH_PORT.replace("MINUTE", &minute.to_string()));
    assert_eq!(
        server.ask(
            "SELECT network, count(), sum(bytes), sum(duration_us), max(goodput) FROM weirgate.responses WHERE pop = 'fra' GROUP BY network ORDER BY network"
        ),
        "\t1\t1\t1000\t1000\n198.51.100.0/24\t2\t1200000\t2400000\t500000\n2001:db8:1::/56\t1\t500\t0\t\\N\n"
    );
    assert_eq!(server.ask("SELECT sum(responses), sum(large) FROM weirgate.responses_1m WHERE pop = 'fra'"), "4\t2\n");
    assert_eq!(
        server.ask(
            "SELECT toUnixTimestamp(time), host, connection = sipHash64('::ffff:198.51.100.7 50000'), connection = sipHash64('2001:db8:1:2::7 50001'), \
             status, bytes, duration_us FROM weirgate.responses_of_connections WHERE pop = 'fra' ORDER BY time"
        ),
        format!(
            "{minute}5\tedge1\t1\t0\t200\t1000000\t2000000\n{minute}6\tedge1\t1\t0\t200\t200000\t400000\n\
             {minute}7\tedge1\t0\t1\t404\t500\t0\n"
        )
    );
}

#[test]
fn its_tables_take_json_and_add_up() {
    let Some(server) = Server::debian() else { return };
    let first = done(&server.init(&[]));
    assert!(first.starts_with("ClickHouse 18.16.1 at http://127.0.0.1:"), "{first}");
    assert!(first.ends_with("applied  001_sockets\napplied  002_networks_1m\napplied  003_responses\napplied  006_responses_of_connections\n"), "{first}");
    let again = done(&server.init(&[]));
    assert!(again.ends_with("nothing to do: all 4 files were applied before\n"), "{again}");
    let json: serde_json::Value = serde_json::from_str(&done(&server.init(&["--json"]))).unwrap();
    assert_eq!((&json["dialect"], &json["kept"]), (&"18.16".into(), &4.into()), "{json}");

    server.ask(SOCKETS);
    assert_eq!(
        server.ask("SELECT count(), uniqExact(cookie) FROM weirgate.sockets FINAL"),
        "3\t3\n",
        "one was there twice"
    );
    let known = server.ask(
        "SELECT rtt_us, busy_us, switched, bytes_retrans FROM weirgate.sockets WHERE cookie IN (9, 11) ORDER BY cookie",
    );
    assert_eq!(known, "40000\t\\N\t\\N\t0\n\\N\t\\N\t\\N\t\\N\n", "NULL is not known, 0 is");
    let minutes = "SELECT network, toUnixTimestamp(minute), cc, arm, sum(closes), sum(bytes_sent), sum(bytes_acked), sum(bytes_retrans), \
                   sum(busy_us), round(quantileTDigestWeightedMerge(0.5)(rtt_us)), round(quantileTDigestWeightedMerge(0.5)(delivery_rate_max)) \
                   FROM weirgate.networks_1m GROUP BY network, minute, cc, arm ORDER BY cc DESC";
    let expected = "198.51.100.0/24\t1795291200\tcubic\t\t4\t1130\t1030\t100\t4000\t35000\t500\n\
                    198.51.100.0/24\t1795291200\tbbr\ttreated\t1\t0\t1\t0\t0\t1000\t700\n";
    assert_eq!(server.ask(minutes), expected);
    server.ask("OPTIMIZE TABLE weirgate.networks_1m FINAL");
    assert_eq!(server.ask(minutes), expected, "merging changes nothing");
    responses_are_counted(&server);
    responses_have_their_connections(&server);
}

#[test]
fn two_at_once_make_the_same_tables() {
    let Some(server) = Server::debian() else { return };
    let outputs: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| server.init(&["--database", "twice"]))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    outputs.iter().for_each(|output| drop(done(output)));
    assert_eq!(server.ask("SELECT uniqExact(number), uniqExact(checksum) FROM twice.migrations"), "4\t4\n");
    assert!(done(&server.init(&["--database", "twice"])).contains("nothing to do"));
}

#[test]
fn what_cannot_be_done_is_said_with_what_to_do() {
    let Some(server) = Server::debian() else { return };
    let kafka = said(&server.init(&["--kafka", "kafka:9092"]), 2);
    assert!(
        kafka.contains("before 23.10 cannot read these messages from Kafka") && kafka.contains("insert JSON"),
        "{kafka}"
    );
    assert!(said(&server.init(&["--ttl", "7 d"]), 2).contains("leave --ttl out"));
    assert!(said(&server.init(&["--database", "a.b"]), 2).contains("is no name for a database"));
    assert_eq!(server.ask("SHOW DATABASES"), "default\nsystem\n", "nothing was made");

    let password = server.folder.path().join("wrong");
    std::fs::write(&password, "guess\n").unwrap();
    let refused = said(&server.init(&["--user", "default", "--password-file", &password.to_string_lossy()]), 1);
    assert!(refused.contains("refuses user `default` or the password"), "{refused}");
    assert!(said(&server.init(&["--user", "nobody"]), 1).contains("refuses user `nobody`"));
    let missing = server.folder.path().join("missing");
    assert!(said(&server.init(&["--password-file", &missing.to_string_lossy()]), 2).contains("missing: No such file"));

    done(&server.init(&[]));
    server
        .ask("INSERT INTO weirgate.migrations (number, name, checksum, applied_at) VALUES (4, '004_more', 'x', now())");
    assert!(said(&server.init(&[]), 1).contains("newer Weirgate, which applied `004_more`"));
    done(&server.init(&["--database", "other"]));
    server.ask("INSERT INTO other.migrations (number, name, checksum, applied_at) VALUES (2, '002_networks_1m', 'x', now() + 60)");
    assert!(said(&server.init(&["--database", "other"]), 1).contains("another `002_networks_1m` (checksum x, here "));

    let url = server.url.clone();
    drop(server);
    let away = said(&weirgate(&["store", "init", "--url", &url]), 1);
    assert!(away.contains(&format!("no ClickHouse answers at {url}")) && away.contains("is it running"), "{away}");
    assert!(said(&weirgate(&["store", "init", "--url", "127.0.0.1"]), 2).contains("write http://HOST:8123"));
}
