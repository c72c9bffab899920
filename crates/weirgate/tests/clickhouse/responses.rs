//! Decisions by an access log: responses, and the records of the connections that carried them.

use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use weirgate_sockets::sample::{Arm, CcName};
use weirgate_store::clickhouse::{self, Source};
use weirgate_tune::sketch::Sketch;
use weirgate_tune::{Config, Tally};
use weirgate_units::{Bytes, UnixTime};

use crate::rounds::text;
use crate::server::{Server, done};

/// The end of the last round that is over: such responses stay for two days.
fn end() -> u64 {
    static END: OnceLock<u64> = OnceLock::new();
    *END.get_or_init(|| UNIX_EPOCH.elapsed().unwrap().as_secs() / 300 * 300)
}

/// A record of the connection `cookie` of `client`, `before` its round's end.
fn record(cookie: u64, client: &str, port: u16, before: u64, more: &str) -> String {
    let network = format!("{}.0/24", client.rsplit_once('.').unwrap().0);
    format!(
        "{{\"time\":\"{}\",\"host\":\"edge-1\",\"pop\":\"ams\",\"boot_id\":\"b\",\"kind\":\"poll\",\"cookie\":{cookie},\"direction\":\"accepted\",\
         \"local_port\":443,\"remote_address\":\"{client}\",\"remote_port\":{port},\"network\":\"{network}\",{more}}}\n",
        text((end() - before) * 1_000_000_000),
    )
}

/// A line of the log.
fn line(client: &str, port: u16, before: u64, status: u16, bytes: u64, seconds: &str) -> String {
    format!(
        "{{\"msec\":\"{}.500\",\"hostname\":\"edge-1\",\"pop\":\"ams\",\"remote_addr\":\"{client}\",\"remote_port\":\"{port}\",\
         \"status\":\"{status}\",\"bytes_sent\":\"{bytes}\",\"request_time\":\"{seconds}\"}}\n",
        end() - before,
    )
}

#[test]
fn responses_vote_for_the_arm_of_their_connection() {
    Server::engines().iter().for_each(vote);
}

fn vote(server: &Server) {
    done(&server.init(&[]));
    let (treated, held_out, limited) = ("198.51.100.7", "198.51.100.8", "203.0.113.5");
    let totals = "\"bytes_acked\":9000000,\"bytes_sent\":9100000,\"bytes_retrans\":1000,\"busy_us\":4000000,\"min_rtt_us\":20000";
    let records = [
        record(
            1,
            treated,
            4_001,
            400,
            "\"arm\":\"treated\",\"cc\":\"cubic\",\"bytes_acked\":1000000,\"bytes_sent\":1000000",
        ),
        record(1, treated, 4_001, 10, &format!("\"sequence\":1,\"arm\":\"treated\",\"cc\":\"bbr\",{totals}")),
        record(2, held_out, 4_002, 20, &format!("\"arm\":\"holdout\",\"cc\":\"cubic\",{totals}")),
        record(3, limited, 4_003, 30, &format!("\"cc\":\"cubic\",\"rwnd_limited_us\":3000000,{totals},\"weight\":2")),
        // Without responses, and without anything done in the round.
        record(4, held_out, 4_004, 20, &format!("\"arm\":\"holdout\",\"cc\":\"cubic\",{totals}")),
        record(5, treated, 4_005, 400, &format!("\"arm\":\"treated\",\"cc\":\"bbr\",{totals}")),
        record(5, treated, 4_005, 10, &format!("\"sequence\":1,\"arm\":\"treated\",\"cc\":\"bbr\",{totals}")),
    ];
    server.ask(&format!("INSERT INTO weirgate.sockets FORMAT JSONEachRow {}", records.concat()));
    let lines = [
        line(treated, 4_001, 200, 200, 1_000_000, "1.000"),
        line(treated, 4_001, 100, 206, 2_000_000, "0.500"),
        line(treated, 4_001, 90, 200, 5_000, "0.100"),
        line(held_out, 4_002, 80, 200, 1_000_000, "2.000"),
        line(held_out, 4_002, 70, 200, 200_000, "0.000"),
        line(held_out, 4_002, 60, 500, 900_000, "1.000"),
        line(limited, 4_003, 50, 200, 1_000_000, "1.000"),
        // Of a connection that nobody knows, one that did nothing, and of other rounds.
        line(treated, 4_999, 40, 200, 1_000_000, "1.000"),
        line(treated, 4_005, 40, 200, 1_000_000, "1.000"),
        line(treated, 4_001, 301, 200, 1_000_000, "1.000"),
        line(treated, 4_001, 0, 200, 1_000_000, "1.000"),
    ];
    server.ask(&format!("INSERT INTO weirgate.responses_nginx_port FORMAT JSONEachRow {}", lines.concat()));

    let asked = clickhouse::Server::new(&server.url, None, None).unwrap();
    let of = |pop, end: u64, read: &mut Vec<Tally>| {
        let end = UnixTime::from_nanos(end * 1_000_000_000);
        let each = &mut |tally| read.push(tally);
        clickhouse::round(&asked, "weirgate", Source::Responses, (pop, end), &Config::default(), each).unwrap()
    };
    let mut read = Vec::new();
    assert_eq!(
        of("ams", end(), &mut read),
        clickhouse::Round { rows: 3, skipped: 0, hosts: vec!["edge-1".into()], unmatched: 2 }
    );
    read.sort_by_key(|tally| (tally.network, tally.arm as u8));
    let sketch = |votes: &[f64]| {
        let mut sketch = Sketch::default();
        votes.iter().for_each(|vote| sketch.add(*vote));
        sketch
    };
    let mut expected = read.clone();
    for (tally, (network, arm, cc, connections, acked, counts, votes, sent)) in expected.iter_mut().zip([
        ("198.51.100.0/24", Arm::Treated, "bbr", 3, 3_005_000, [1, 0, 0], &[8e6, 32e6][..], (8_100_000, 1_000, 1)),
        ("198.51.100.0/24", Arm::Holdout, "cubic", 2, 1_200_000, [0, 1, 0], &[4e6][..], (9_100_000, 1_000, 1)),
        ("203.0.113.0/24", Arm::None, "cubic", 2, 2_000_000, [0, 0, 2], &[8e6, 8e6][..], (18_200_000, 2_000, 2)),
    ]) {
        (tally.network, tally.arm, tally.cc) = (network.parse().unwrap(), arm, CcName::new(cc).unwrap());
        (tally.did.connections, tally.did.acked) = (connections, Bytes::new(acked));
        [tally.did.small, tally.did.no_metric, tally.did.limited] = counts;
        tally.fit = if counts[2] > 0 { Sketch::default() } else { sketch(votes) };
        let sums = &mut tally.did.arm;
        (sums.sent, sums.retransmitted, sums.rtts) = sent;
        (sums.votes, sums.rtt_us) = (votes.len() as u32, u64::from(sums.rtts) * 20_000);
        let log: f64 = votes.iter().map(|vote| vote.ln()).sum();
        assert!((sums.log - log).abs() < 1e-9 * log, "{} {log}", sums.log);
        assert_eq!(tally.did.clients.count_ones(), 1);
    }
    assert_eq!(read, expected);
    let none = clickhouse::Round::default();
    assert_eq!([of("fra", end(), &mut read), of("ams", end() + 900, &mut read)], [none.clone(), none]);
}

#[test]
fn what_no_host_sends_is_counted_and_holds_nothing_up() {
    Server::engines().iter().for_each(holds_nothing_up);
}

fn holds_nothing_up(server: &Server) {
    done(&server.init(&[]));
    let end = end();
    let row = |network: &str, arm: &str, cc: &str| {
        format!(
            "{{\"round\":{end},\"time\":\"{}\",\"host\":\"edge-1\",\"pop\":\"ams\",\"network\":\"{network}\",\"arm\":\"{arm}\",\"cc\":\"{cc}\",\
             \"connections\":1,\"votes\":1,\"bins\":[700],\"counts\":[1]}}\n",
            text(end * 1_000_000_000)
        )
    };
    let rows = [
        row("198.51.100.0/24", "", "cubic"),
        row("198.51.100.0/24", "", ""),
        row("198.51.100.0/24", "other", "cubic"),
        row("", "", "cubic"),
        row("203.0.113.0/24", "", "a name of two words"),
    ];
    server.ask(&format!("INSERT INTO weirgate.tallies FORMAT JSONEachRow {}", rows.concat()));
    let asked = clickhouse::Server::new(&server.url, None, None).unwrap();
    let mut read: Vec<String> = Vec::new();
    let of = ("ams", UnixTime::from_nanos(end * 1_000_000_000));
    let round = clickhouse::round(&asked, "weirgate", Source::Tallies, of, &Config::default(), &mut |tally| {
        read.push(tally.cc.as_str().to_owned());
    });
    assert_eq!(round.unwrap(), clickhouse::Round { rows: 2, skipped: 3, hosts: vec!["edge-1".into()], unmatched: 0 });
    read.sort();
    assert_eq!(read, ["", "cubic"]);
}
