//! What ClickHouse makes of records beside what a host's ledger and tallies make of the samples that they are of.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weirgate_sockets::ledger::{Ledger, Options as Bounds};
use weirgate_sockets::record::{Direction, Origin, Record};
use weirgate_sockets::sample::{CcName, Field, Kind, Sample, flag, mapped, state};
use weirgate_store::clickhouse::{self, Source};
use weirgate_store::{Anonymise, Options, Writer, query_each, write_json_lines};
use weirgate_tune::sketch::LAST;
use weirgate_tune::{Config, Metric, Tallies, Tally};
use weirgate_units::{Bytes, Duration, Instant, Prefix, UnixTime};

use crate::server::{Server, done};

/// A round's begin.
const START: u64 = 1_795_291_200;
const ROUNDS: u64 = 5;
/// In a round.
const POLLS: u64 = 5;
const POLL_SECS: u64 = 60;
const CONNECTIONS: u64 = 60;
/// As it writes its records, and without its clients' addresses.
const POPS: [(&str, Anonymise); 2] = [("ams", Anonymise::Off), ("fra", Anonymise::Client)];
const NETNS: u32 = 4_026_531_840;

fn config(metric: Metric) -> Config {
    Config { metric, server_ports: vec![443], ..Config::default() }
}

/// One connection of a host: `n` says how it behaves.
struct Connection {
    n: u64,
    opens: u64,
    sample: Sample,
}

impl Connection {
    fn new(n: u64, host: u64) -> Self {
        let cookie = host * 1_000 + n + 1;
        // Whose last bits are the cookie's, which stand in for them where they were taken away.
        let client: IpAddr = match n % 4 {
            0 => Ipv6Addr::from_bits(0x2001_0db8_0000_0100 << 64 | u128::from(cookie)).into(),
            network => Ipv4Addr::new(198, 51, network as u8, cookie as u8).into(),
        };
        let sample = Sample {
            state: state::ESTABLISHED,
            flags: if n % 13 == 6 { flag::CONNECTED } else { flag::ACCEPTED },
            local: mapped([192, 0, 2, 1].into()),
            local_port: if n % 14 == 3 { 8_080 } else { 443 },
            remote: mapped(client),
            remote_port: 4_000,
            cookie,
            netns: NETNS,
            cc: CcName::new(["cubic", "bbr"][n as usize % 2]).unwrap(),
            arm: (n % 3) as u8,
            ..Sample::default()
        };
        Self { n, opens: n % 7, sample }
    }

    /// When it closes; `true`: no poll ever showed it.
    fn closes(&self) -> (u64, bool) {
        if self.n % 10 == 9 { (self.opens, true) } else { (self.opens + 5 + self.n % 31, false) }
    }

    /// Whether nothing happens on it in the round of poll `poll`, as in every third one.
    fn is_idle(&self, poll: u64) -> bool {
        (poll / POLLS + self.n).is_multiple_of(3) && poll != self.opens
    }

    /// What poll `poll` shows of it, or its close after that.
    fn look(&mut self, poll: u64, kind: Kind, time: UnixTime) -> Sample {
        let n = self.n;
        let is_idle = self.is_idle(poll);
        let one = &mut self.sample;
        (one.kind, one.time_ns) = (kind as u8, time.as_nanos());
        if !is_idle && kind == Kind::Poll || n % 10 == 9 {
            one.bytes_acked += (n % 5 + 1) * 30_000 + poll;
            one.bytes_sent += (n % 5 + 1) * 31_000;
            one.bytes_retrans += n;
            one.busy_us += if n % 17 == 8 { 0 } else { (n % 6 + 1) * 10_000 + n };
            one.rwnd_limited_us += (n % 4) * 5_000;
            one.sndbuf_limited_us += (n % 3) * 3_000;
            one.delivery_rate = (n + 1) * 10_000 + poll;
            one.min_rtt_us = if n % 5 == 2 { 0 } else { 20_000 - poll as u32 };
        }
        if n == 20 && poll == self.opens {
            // Faster than any bin.
            (one.bytes_acked, one.busy_us, one.rwnd_limited_us, one.sndbuf_limited_us) = (1_000_000_000_000, 1, 0, 0);
        }
        let mut seen = *one;
        // Some are never again limited by the network after the round in which they open.
        let is_slow = n % 11 == 5 && poll / POLLS != self.opens / POLLS;
        seen.flags |= if is_slow || (poll + n) % 3 == 1 { flag::APP_LIMITED } else { 0 };
        let fields = [
            Field::TcpInfo,
            Field::BytesAcked,
            Field::BytesSent,
            Field::BytesRetrans,
            Field::BusyUs,
            Field::RwndLimitedUs,
            Field::SndbufLimitedUs,
            Field::DeliveryRate,
            Field::MinRttUs,
            Field::Cc,
            Field::Netns,
        ];
        fields.into_iter().for_each(|field| seen.set_given(field));
        let mut lacks = |field: Field| seen.given &= !(1 << field as u64);
        match n % 9 {
            // A source that knows less than the one before, for a round.
            4 if poll / POLLS % 2 == 1 => {
                [Field::BusyUs, Field::DeliveryRate, Field::MinRttUs].into_iter().for_each(&mut lacks);
                (seen.busy_us, seen.delivery_rate, seen.min_rtt_us) = (0, 0, 0);
            }
            5 if kind == Kind::Close => {
                lacks(Field::Cc);
                seen.cc = CcName::default();
            }
            _ => {}
        }
        // Nobody knows yet who opened it.
        if n % 13 == 7 && poll < self.opens + 3 {
            seen.flags &= !flag::ACCEPTED;
        }
        if kind == Kind::Close && n % 4 == 1 {
            seen.arm = 0;
        }
        // An end that sent a reset.
        if kind == Kind::Close && n % 6 == 2 && n % 10 != 9 {
            (seen.remote, seen.remote_port) = ([0; 16], 0);
        }
        seen
    }
}

/// What a host counts, and what it writes of the same samples.
struct Host {
    ledger: Ledger,
    tallies: [Tallies; 2],
    writers: Vec<Writer>,
    connections: Vec<Connection>,
}

impl Host {
    fn new(number: u64, dir: &std::path::Path) -> Self {
        let open = |(pop, anonymise): (&str, Anonymise)| {
            let origin = Origin { host: format!("edge-{number}"), pop: pop.into(), boot_id: format!("b{number}") };
            let options = Options { keep_free: Bytes::ZERO, anonymise, ..Options::default() };
            Writer::open(&dir.join(format!("{pop}-{number}")), &origin, options).unwrap()
        };
        let mut ledger = Ledger::new(Bounds::default());
        // It has been there for a while.
        ledger.handle_poll_end(NETNS, Instant::from_nanos(START), &mut |_| {});
        Self {
            ledger,
            tallies: [Metric::Goodput, Metric::DeliveryRate].map(|metric| Tallies::new(config(metric))),
            writers: POPS.map(open).into(),
            connections: (0..CONNECTIONS).map(|n| Connection::new(n, number)).collect(),
        }
    }

    fn handle_poll(&mut self, poll: u64) {
        let at = |secs: u64, n: u64| UnixTime::from_nanos((START + poll * POLL_SECS + secs) * 1_000_000_000 + n);
        let mut closes = Vec::new();
        for n in 0..self.connections.len() {
            let (closing, is_unpolled) = self.connections[n].closes();
            if poll >= self.connections[n].opens && poll <= closing && !is_unpolled {
                let sample = self.connections[n].look(poll, Kind::Poll, at(20, n as u64));
                // What a spool that fills does not take: there is nothing between two rounds then.
                let is_lost = n % 7 == 3 && self.connections[n].is_idle(poll);
                self.enter(&sample, !is_lost);
            }
            if poll == closing {
                closes.push(self.connections[n].look(poll, Kind::Close, at(27, n as u64)));
            }
        }
        let Self { ledger, tallies, .. } = self;
        ledger.handle_poll_end(NETNS, Instant::from_nanos(at(21, 0).as_nanos()), &mut |progress| {
            tallies.iter_mut().for_each(|tallies| tallies.handle_progress(progress));
        });
        closes.iter().for_each(|sample| self.enter(sample, true));
    }

    fn enter(&mut self, sample: &Sample, is_written: bool) {
        let Some(seen) = self.ledger.handle_sample(sample) else { return };
        let record = Record {
            sample,
            time: UnixTime::from_nanos(sample.time_ns),
            sequence: seen.sequence,
            direction: seen.direction,
            listener_port: seen.listener_port,
            network: Prefix::client_network(seen.remote.ip()),
            asn: 0,
            delivery_rate_max: seen.delivery_rate_max,
            country: [0; 2],
        };
        assert!(record.direction != Direction::Connected || sample.is(flag::CONNECTED));
        self.writers.iter_mut().filter(|_| is_written).for_each(|writer| writer.append(&record));
        if let Some(progress) = &seen.last {
            self.tallies.iter_mut().for_each(|tallies| tallies.handle_progress(progress));
        }
    }

    fn end_round(&mut self) -> [Vec<Tally>; 2] {
        let Self { ledger, tallies, .. } = self;
        ledger.take_round(&mut |progress| tallies.iter_mut().for_each(|tallies| tallies.handle_progress(progress)));
        tallies.each_mut().map(Tallies::take)
    }
}

/// One for each network, arm and congestion control, in their order.
fn together(all: impl IntoIterator<Item = Tally>) -> Vec<Tally> {
    let mut all: Vec<Tally> = all.into_iter().collect();
    all.sort_by_key(|tally| (tally.network, tally.arm as u8, tally.cc.as_str().to_owned()));
    all.dedup_by(|next, first| {
        let is_same = (next.network, next.arm, next.cc) == (first.network, first.arm, first.cc);
        if is_same {
            first.did.add(&next.did);
            first.fit.merge(&next.fit);
        }
        is_same
    });
    all
}

#[test]
fn records_are_counted_as_hosts_count_connections() {
    Server::engines().iter().for_each(are_counted);
}

fn are_counted(server: &Server) {
    done(&server.init(&[]));
    let dir = tempfile::tempdir().unwrap();
    let mut hosts: Vec<Host> = (1..=2).map(|number| Host::new(number, dir.path())).collect();
    let mut expected = Vec::new();
    for round in 0..ROUNDS {
        for poll in round * POLLS..(round + 1) * POLLS {
            hosts.iter_mut().for_each(|host| host.handle_poll(poll));
        }
        let [goodput, rate]: [Vec<Tally>; 2] = hosts.iter_mut().fold([vec![], vec![]], |[mut a, mut b], host| {
            let [more_a, more_b] = host.end_round();
            a.extend(more_a);
            b.extend(more_b);
            [a, b]
        });
        expected.push([together(goodput), together(rate)]);
    }
    for writer in hosts.into_iter().flat_map(|host| host.writers) {
        assert_eq!(writer.close().pending, 0);
    }
    let mut rows = Vec::new();
    for folder in std::fs::read_dir(dir.path()).unwrap() {
        query_each(&folder.unwrap().path(), "SELECT * FROM sockets", &mut |batch| {
            write_json_lines(batch, &mut rows).map(|()| true)
        })
        .unwrap();
    }
    // Twice, as Kafka may deliver it.
    for _ in 0..2 {
        server.ask(&format!(
            "INSERT INTO weirgate.sockets SETTINGS date_time_input_format = 'best_effort', input_format_skip_unknown_fields = 1 \
             FORMAT JSONEachRow {}",
            String::from_utf8_lossy(&rows)
        ));
    }
    let asked = clickhouse::Server::new(&server.url, None, None).unwrap();
    let (mut seen, mut fits, mut is_capped) = (weirgate_tune::Did::default(), 0, false);
    for (round, expected) in (1..).zip(&expected) {
        let end = UnixTime::from_nanos(START * 1_000_000_000) + Duration::from_secs(round * POLLS * POLL_SECS);
        for (metric, expected) in [Metric::Goodput, Metric::DeliveryRate].into_iter().zip(expected) {
            for (pop, _) in POPS {
                let mut read = Vec::new();
                let of = (pop, end);
                let found = clickhouse::round(&asked, "weirgate", Source::Records, of, &config(metric), &mut |tally| {
                    read.push(tally);
                });
                let rows = expected.len() as u64;
                let found = found.unwrap();
                assert_eq!((found.rows, found.skipped, found.hosts.len()), (rows, 0, 2));
                let mut read = together(read);
                for (read, expected) in read.iter_mut().zip(expected) {
                    let (a, b) = (read.did.arm.log, expected.did.arm.log);
                    assert!((a - b).abs() <= 1e-9 * b.abs(), "{a} {b}");
                    read.did.arm.log = b;
                    assert_eq!(read, expected, "{pop}, {metric:?}, round {round}");
                    seen.add(&read.did);
                    fits += read.fit.len();
                    is_capped |= read.fit.bins().last().is_some_and(|(bin, _)| *bin == LAST);
                }
                assert_eq!(read.len(), expected.len(), "{pop}, {metric:?}, round {round}");
            }
        }
    }
    // All kinds of them were there.
    let kinds = [seen.small, seen.no_metric, seen.limited, seen.arm.votes.into(), fits, seen.arm.rtts.into()];
    assert!(is_capped && kinds.iter().all(|count| *count > 20), "{seen:?}");
}
