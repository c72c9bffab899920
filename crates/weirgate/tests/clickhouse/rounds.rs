//! Decisions by way of the database: from single records, and from what hosts have summed up.

use weirgate_sockets::progress::Progress;
use weirgate_sockets::sample::{Arm, CcName};
use weirgate_store::clickhouse::{self, Source};
use weirgate_tune::replay::Telemetry;
use weirgate_tune::synthetic::{Scenario, Synthetic};
use weirgate_tune::{Config, Controller, Host, Tallies};
use weirgate_units::{Bytes, Duration, Prefix, UnixTime};

use crate::server::{Server, done};

const ROUNDS: u32 = 20;
pub(crate) const HOSTS: usize = 3;

pub(crate) fn config() -> Config {
    Config {
        window_rounds: 16,
        known_enter_min: 4,
        dwell_rounds: 2,
        epoch_rounds: 4,
        switchback_rounds: 2,
        seed: 5,
        ..Config::default()
    }
}

fn controller() -> Controller {
    let available_cc = ["cubic", "bbr"].map(|name| CcName::new(name).unwrap()).to_vec();
    let host = Host { system_cc: Some(available_cc[0]), available_cc };
    Controller::new(config(), host).unwrap()
}

/// A time as every engine reads it.
pub(crate) fn text(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

fn arm(arm: Arm) -> &'static str {
    ["", "treated", "holdout"][arm as usize]
}

/// The record of a connection that closed in the round. Every third one was there before, with a record of that.
fn records(n: usize, host: usize, end: UnixTime, progress: &Progress) -> String {
    let time = UnixTime::from_nanos(end.as_nanos() - 1_000_000_000 - n as u64);
    if n.is_multiple_of(3) {
        return record(n, host, time, progress);
    }
    let round = config().round.as_nanos();
    let before = Progress {
        acked: Bytes::new(n as u64 * 1_000),
        sent: Bytes::new(n as u64 * 1_001),
        retransmitted: Bytes::new(n as u64),
        busy: Duration::from_millis(n as u64),
        ..*progress
    };
    let total = Progress {
        acked: before.acked + progress.acked,
        sent: before.sent + progress.sent,
        retransmitted: before.retransmitted + progress.retransmitted,
        busy: before.busy.saturating_add(progress.busy),
        ..*progress
    };
    record(n, host, UnixTime::from_nanos(time.as_nanos() - round), &before) + &record(n, host, time, &total)
}

fn record(n: usize, host: usize, time: UnixTime, progress: &Progress) -> String {
    let network = Prefix::client_network(progress.client);
    format!(
        "{{\"time\":\"{}\",\"host\":\"edge-{host}\",\"pop\":\"ams\",\"boot_id\":\"b{host}\",\"kind\":\"close\",\"cookie\":{n},\
         \"direction\":\"accepted\",\"local_port\":443,\"remote_address\":\"{}\",\"remote_port\":4000,\"network\":\"{network}\",\"cc\":\"{}\",\"arm\":{},\
         \"bytes_acked\":{},\"bytes_sent\":{},\"bytes_retrans\":{},\"busy_us\":{},\"min_rtt_us\":{}}}\n",
        text(time.as_nanos()),
        progress.client,
        progress.cc,
        if progress.arm == Arm::None { "null".to_owned() } else { format!("\"{}\"", arm(progress.arm)) },
        progress.acked.as_u64(),
        progress.sent.as_u64(),
        progress.retransmitted.as_u64(),
        progress.busy.as_micros(),
        progress.min_rtt.as_micros(),
    )
}

/// What each host has summed up, a minute before the round's end and at it.
pub(crate) fn summed(hosts: &mut [Tallies], end: UnixTime, connections: &[Progress]) -> String {
    let mut rows = String::new();
    for (minute, part) in connections.chunks(connections.len().div_ceil(2).max(1)).enumerate() {
        for (n, progress) in part.iter().enumerate() {
            hosts[n % HOSTS].handle_progress(progress);
        }
        for (host, tallies) in hosts.iter_mut().enumerate() {
            for tally in tallies.take() {
                let did = &tally.did;
                let (bins, counts): (Vec<u16>, Vec<u32>) = tally.fit.bins().iter().copied().unzip();
                rows += &format!(
                    "{{\"round\":{},\"time\":\"{}\",\"host\":\"edge-{host}\",\"pop\":\"ams\",\"boot_id\":\"b{host}\",\"network\":\"{}\",\
                     \"arm\":\"{}\",\"cc\":\"{}\",\"connections\":{},\"acked\":{},\"clients\":{},\"small\":{},\"no_metric\":{},\
                     \"limited\":{},\"votes\":{},\"log\":{},\"sent\":{},\"retransmitted\":{},\"rtts\":{},\"rtt_us\":{},\
                     \"bins\":{bins:?},\"counts\":{counts:?},\"round_length\":{},\"metric\":\"{}\"}}\n",
                    end.as_secs(),
                    text(end.as_nanos() - 60_000_000_000 + minute as u64),
                    tally.network,
                    arm(tally.arm),
                    tally.cc,
                    did.connections,
                    did.acked.as_u64(),
                    did.clients,
                    did.small,
                    did.no_metric,
                    did.limited,
                    did.arm.votes,
                    did.arm.log,
                    did.arm.sent,
                    did.arm.retransmitted,
                    did.arm.rtts,
                    did.arm.rtt_us,
                    tally.terms.round.as_millis() / 1_000,
                    tally.terms.metric.name(),
                );
            }
        }
    }
    rows
}

#[test]
fn records_and_tallies_decide_the_same() {
    Server::engines().iter().for_each(decide_the_same);
}

fn decide_the_same(server: &Server) {
    done(&server.init(&[]));
    let asked = clickhouse::Server::new(&server.url, None, None).unwrap();
    // Rounds end where rounds end everywhere.
    let start = UnixTime::from_nanos(1_795_291_200_000_000_000);
    let scenario = Scenario { start, connections: 8, clients: 30, ..Scenario::mixed(60, ROUNDS, 11) };
    let mut world = Synthetic::new(scenario);
    let (mut exact, mut from) = (controller(), [Source::Records, Source::Tallies].map(|source| (source, controller())));
    let mut hosts: Vec<Tallies> = (0..HOSTS).map(|_| Tallies::new(config())).collect();
    let mut cookie = 0;
    let mut decisions = 0;
    loop {
        let mut connections = Vec::new();
        let policy = exact.policy().clone();
        let Some(end) = world.next_round(&policy, &mut |progress| connections.push(*progress)) else { break };
        let records = connections.iter().map(|progress| {
            cookie += 1;
            records(cookie, cookie % HOSTS, end, progress)
        });
        let records: String = records.collect();
        server.ask(&format!("INSERT INTO weirgate.sockets FORMAT JSONEachRow\n{records}"));
        let rows = summed(&mut hosts, end, &connections);
        // Twice, as Kafka may deliver it.
        for _ in 0..2 {
            server.ask(&format!("INSERT INTO weirgate.tallies FORMAT JSONEachRow\n{rows}"));
        }
        connections.iter().for_each(|progress| exact.handle_progress(progress));
        let exact = exact.end_round(end, Some(end));
        decisions += exact.decisions.len();
        for (source, controller) in &mut from {
            clickhouse::round(&asked, "weirgate", *source, ("ams", end), &config(), &mut |tally| {
                controller.handle_tally(&tally);
            })
            .unwrap();
            let round = controller.end_round(end, Some(end));
            assert_eq!(round.decisions, exact.decisions, "{source:?}, round {}", exact.number);
            let votes = [&round.stats, &exact.stats].map(|stats| (stats.connections, stats.votes(), stats.ignored));
            assert_eq!(votes[0], votes[1], "{source:?}, round {}", exact.number);
        }
    }
    assert!(decisions > 10, "{decisions} decisions");
}
