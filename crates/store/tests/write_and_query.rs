//! What is written is what is asked for.
#![allow(clippy::disallowed_methods, reason = "this room touches the world: clocks, files, threads are its work")]

mod common;

use common::{append, at, files, number, origin, record, sample};
use weirgate_sockets::record::Record;
use weirgate_sockets::sample::Sample;
use weirgate_store::schema::COLUMNS;
use weirgate_store::{Anonymise, Options, QueryError, Writer, query};
use weirgate_units::{Bytes, Duration, Prefix};

fn open(dir: &std::path::Path) -> Writer {
    Writer::open(dir, &origin(), Options { keep_free: Bytes::ZERO, ..Options::default() }).unwrap()
}

#[test]
fn every_record_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    append(&mut writer, 0, 5_000, at(0));
    let status = writer.close();
    assert_eq!((status.appended, status.written, status.pending), (5_000, 5_000, 0), "{status:?}");
    assert_eq!(number(dir.path(), "SELECT count(*) AS n FROM sockets"), 5_000);
    assert_eq!(
        number(dir.path(), "SELECT sum(bytes_acked) AS n FROM sockets"),
        (0..5_000u64).map(|n| 100_002 + n).sum::<u64>()
    );
}

#[test]
fn a_row_shows_every_column() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    append(&mut writer, 4, 1, at(1));
    append(&mut writer, 7, 1, at(2));
    writer.close();
    let table = query(dir.path(), "SELECT * FROM sockets ORDER BY time").unwrap();
    let mut json = Vec::new();
    table.write_json_lines(&mut json).unwrap();
    let text = String::from_utf8(json).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        r#"{"time":"2026-11-21T20:00:01Z","boot_time_ns":5000000004,"hour":"2026-11-21T20","host":"edge-7","#,
        r#""pop":"fra","boot_id":"5ad5f0a8-9d2f-4c6e-8f3b-2f1d1c0e9a77","kind":"poll","sequence":4,"#,
        r#""direction":"accepted","local_address":"2001:db8::1","local_port":443,"#,
        r#""remote_address":"2001:db8:0:5600::4","remote_port":1028,"listener_port":443,"#,
        r#""network":"2001:db8:0:5600::/56","asn":64500,"country":"DE","state":"ESTAB","cc":"bbr","#,
        r#""ca_state":"Loss","arm":"treated","switched":true,"app_limited":false,"ecn":false,"ecn_seen":false,"#,
        r#""timestamps":true,"sack":true,"delivery_rate_max":2000004,"cookie":1000004,"netns":4026531840,"cgroup_id":77,"mark":7004,"#,
        r#""policy_version":3,"bytes_sent":100005,"bytes_acked":100006,"bytes_retrans":107,"#,
        r#""bytes_received":108,"segs_out":125,"segs_in":126,"data_segs_out":127,"data_segs_in":128,"#,
        r#""total_retrans":129,"rtt_us":118,"rttvar_us":119,"min_rtt_us":120,"rto_us":121,"busy_us":111,"#,
        r#""rwnd_limited_us":112,"sndbuf_limited_us":113,"delivery_rate":1000009,"pacing_rate":1000010,"#,
        r#""snd_cwnd":123,"snd_ssthresh":124,"snd_mss":1448,"unacked":131,"lost":130,"retrans_out":132,"#,
        r#""reordering":133,"reord_seen":134,"dsack_dups":135,"delivered":136,"delivered_ce":137,"#,
        r#""notsent_bytes":138,"bbr_bw":114,"bbr_min_rtt_us":115,"bbr_pacing_gain":739,"bbr_cwnd_gain":512,"#,
        r#""rmem_alloc":139,"rcvbuf":140,"wmem_queued":141,"sndbuf":142,"backlog_drops":143}"#,
    ];
    assert_eq!(lines[0], expected.concat());
    // Odd: no database entry; 7: nothing told the direction; 7 % 3 = 1: treated.
    assert!(lines[1].contains(r#""sequence":7,"local_address":"203.0.113.9""#), "{}", lines[1]);
    assert!(lines[1].contains(r#""network":"192.0.2.0/24","state":"#), "{}", lines[1]);
}

#[test]
fn what_the_kernel_did_not_give_is_null() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    for n in 0..200 {
        let mut s = sample(n);
        // Each row lacks another field; the last rows lack all.
        s.given = if n < 26 { s.given & !(1 << n) } else { 0 };
        s.pacing_rate = if n == 0 { u64::MAX } else { s.pacing_rate };
        writer.append(&record(&s, n, at(0)));
    }
    writer.close();
    for (column, field) in [
        ("bytes_sent", 0),
        ("delivery_rate", 4),
        ("app_limited", 4),
        ("bbr_bw", 9),
        ("netns", 23),
        ("cc", 24),
        ("rtt_us", 25),
        ("ca_state", 25),
    ] {
        let sql = format!("SELECT count(*) AS n FROM sockets WHERE {column} IS NULL");
        assert_eq!(number(dir.path(), &sql), 1 + 174, "{column}");
        let sql = format!("SELECT sum(sequence) AS n FROM sockets WHERE {column} IS NULL AND sequence < 26");
        assert_eq!(number(dir.path(), &sql), field, "{column}");
    }
    assert_eq!(number(dir.path(), "SELECT count(*) AS n FROM sockets WHERE pacing_rate IS NULL"), 1 + 174 + 1);
    assert_eq!(number(dir.path(), "SELECT count(*) AS n FROM sockets WHERE rtt_us = 0"), 0);
}

#[test]
fn the_client_is_anonymous_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { anonymise: Anonymise::Client, keep_free: Bytes::ZERO, ..Options::default() };
    let mut writer = Writer::open(dir.path(), &origin(), options).unwrap();
    append(&mut writer, 0, 300, at(0));
    writer.close();
    let table = query(
        dir.path(),
        "SELECT DISTINCT local_address, local_port, remote_address, remote_port, network FROM sockets ORDER BY 1",
    )
    .unwrap();
    assert_eq!(
        table.to_text().unwrap(),
        "\
+---------------+------------+-------------------+-------------+----------------------+
| local_address | local_port | remote_address    | remote_port | network              |
+---------------+------------+-------------------+-------------+----------------------+
| 2001:db8::1   | 443        | 2001:db8:0:5600:: |             | 2001:db8:0:5600::/56 |
| 203.0.113.9   | 443        | 192.0.2.0         |             | 192.0.2.0/24         |
+---------------+------------+-------------------+-------------+----------------------+"
    );
}

#[test]
fn a_close_that_lost_its_address_keeps_its_network() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    let whole = sample(5);
    let lost = Sample { remote: [0; 16], remote_port: 0, ..whole };
    let known = record(&whole, 5, at(0));
    writer.append(&Record { sample: &lost, ..known });
    writer.close();
    let table = query(dir.path(), "SELECT network, remote_address, remote_port FROM sockets").unwrap();
    let text = table.to_text().unwrap();
    assert!(text.contains("| 192.0.2.0/24 | 192.0.2.0      |             |"), "{text}");
}

#[test]
fn files_follow_the_interval_and_the_hour() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    for second in (3_480..3_720).step_by(10) {
        writer.handle_tick(at(second));
        append(&mut writer, second, 10, at(second));
    }
    let status = writer.close();
    assert_eq!((status.appended, status.written), (240, 240));
    // 58, 59, 00 and 01 past the hour: a minute each, and the change of the hour falls on a minute.
    let names: Vec<_> =
        files(dir.path()).iter().map(|f| f.strip_prefix(dir.path()).unwrap().display().to_string()).collect();
    assert_eq!(
        names,
        [
            "hour=2026-11-21T20/part-00000001.parquet",
            "hour=2026-11-21T20/part-00000002.parquet",
            "hour=2026-11-21T21/part-00000003.parquet",
            "hour=2026-11-21T21/part-00000004.parquet",
        ]
    );
    assert_eq!(number(dir.path(), "SELECT count(*) AS n FROM sockets WHERE hour = '2026-11-21T21'"), 120);
    assert_eq!(number(dir.path(), "SELECT count(*) AS n FROM sockets WHERE hour > '2026-11-21T21'"), 0);
    assert_eq!(number(dir.path(), "SELECT count(*) AS n FROM sockets WHERE time >= '2026-11-21T21:01:00Z'"), 60);
}

#[test]
fn an_hour_that_is_over_becomes_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    for minute in 0..65 {
        append(&mut writer, minute * 100, 100, at(minute * 60));
        writer.flush(at(minute * 60 + 59));
    }
    let names: Vec<_> = files(dir.path()).iter().map(|f| f.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(names[0], "part-00000001-00000060.parquet");
    assert_eq!(names.len(), 1 + 5);
    let status = writer.close();
    assert_eq!(status.written, 6_500);
    assert_eq!(status.files, 6);
    assert_eq!(number(dir.path(), "SELECT count(*) AS n FROM sockets"), 6_500);
    assert_eq!(number(dir.path(), "SELECT count(DISTINCT cookie) AS n FROM sockets"), 6_500);
}

#[test]
fn limits_of_age_and_size_delete_the_oldest_files() {
    let dir = tempfile::tempdir().unwrap();
    let options =
        Options { age_max: Some(Duration::from_secs(2 * 3600)), keep_free: Bytes::ZERO, ..Options::default() };
    let mut writer = Writer::open(dir.path(), &origin(), options).unwrap();
    for hour in 0..6 {
        append(&mut writer, hour * 10, 10, at(hour * 3600));
        writer.flush(at(hour * 3600 + 60));
    }
    // At 01:01 the next day: 20 ended at 21, 21 at 22, 22 at 23, all two hours ago or more.
    assert_eq!(number(dir.path(), "SELECT count(*) AS n FROM sockets"), 30);
    let status = writer.close();
    assert_eq!((status.files_removed, status.files), (3, 3));
    assert!(!dir.path().join("hour=2026-11-21T20").exists());

    let size = std::fs::metadata(&files(dir.path())[0]).unwrap().len();
    let options = Options {
        size_max: Some(Bytes::new(size * 5 / 2)),
        age_max: None,
        keep_free: Bytes::ZERO,
        ..Options::default()
    };
    let mut writer = Writer::open(dir.path(), &origin(), options).unwrap();
    append(&mut writer, 100, 10, at(6 * 3600));
    writer.flush(at(6 * 3600 + 60));
    let status = writer.close();
    assert_eq!((status.files_removed, status.files), (2, 2), "{status:?}");
    assert!(status.bytes <= size * 5 / 2);
}

#[test]
fn a_folder_has_one_writer() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    let error = Writer::open(dir.path(), &origin(), Options::default()).err().unwrap();
    assert!(error.to_string().contains("already records into"), "{error}");
    drop(first);
    open(dir.path());
}

#[test]
fn nothing_to_ask_and_nothing_to_read_are_said_clearly() {
    let dir = tempfile::tempdir().unwrap();
    let error = query(&dir.path().join("none"), "SELECT 1").unwrap_err();
    assert!(matches!(error, QueryError::NoStore(_)), "{error}");
    let error = query(dir.path(), "SELECT 1").unwrap_err();
    assert!(matches!(error, QueryError::Empty { .. }), "{error}");

    let mut writer = open(dir.path());
    append(&mut writer, 0, 10, at(0));
    writer.close();
    for (sql, part) in [
        ("SELECT rtt FROM sockets", "rtt"),
        ("SELEC 1", "SELEC"),
        ("SELECT * FROM nothing", "there is no table `nothing`: the table is `sockets`"),
        ("DROP TABLE sockets", "DDL"),
        ("CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '/etc'", "DDL"),
        ("COPY (SELECT 1) TO '/tmp/x.parquet'", "DML"),
        ("SET datafusion.execution.batch_size = 1", "Statement"),
        ("", "No SQL"),
    ] {
        let error = query(dir.path(), sql).unwrap_err();
        assert!(matches!(error, QueryError::Sql(_)) && error.to_string().contains(part), "{sql}: {error}");
        assert!(!error.to_string().contains("ParserError"), "{sql}: {error}");
    }
}

#[test]
fn the_types_that_the_schema_shows_are_sql_s() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    append(&mut writer, 0, 10, at(0));
    writer.close();
    for column in COLUMNS.iter() {
        let (name, kind) = (column.name, column.kind.name());
        let sql = format!("SELECT count(*) AS n FROM sockets WHERE CAST({name} AS {kind}) = {name} OR {name} IS NULL");
        assert_eq!(number(dir.path(), &sql), 10, "{name} {kind}");
    }
}

#[test]
fn networks_are_compared_in_one_statement() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    append(&mut writer, 0, 1_000, at(0));
    writer.close();
    let sql = "SELECT network, cc, count(*) AS n, approx_percentile_cont(rtt_us, 0.5) AS rtt, \
               date_bin(INTERVAL '5 minutes', min(time)) AS since FROM sockets WHERE kind = 'close' \
               GROUP BY network, cc ORDER BY 1, 2";
    let table = query(dir.path(), sql).unwrap();
    assert_eq!(table.rows(), 6, "{}", table.to_text().unwrap());
    assert_eq!(Prefix::client_network("192.0.2.1".parse().unwrap()).to_string(), "192.0.2.0/24");
}
