//! `weirgate tune replay` over a store that was written as the daemon writes it.
#![allow(clippy::disallowed_methods, reason = "the command on real files")]

use std::path::Path;
use std::process::Command;

use weirgate_sockets::record::{Direction, Origin, Record};
use weirgate_sockets::sample::{CcName, Field, Kind, Sample, flag, mapped, state};
use weirgate_store::{Anonymise, Options, Writer};
use weirgate_units::{Prefix, UnixTime};

/// Rounds of 10 s, two polls each, of six client networks with four connections each; the last network is slow.
const CONFIG: &str = "[tune]\nround = \"10 s\"\nwindow_rounds = 8\nknown_enter_min = 4\nvotes_min = 3\n";
const ROUNDS: u64 = 12;

fn write_store(dir: &Path, cc: &str, anonymise: Anonymise) {
    let origin = Origin { host: "h".into(), pop: String::new(), boot_id: "b".into() };
    let mut writer = Writer::open(dir, &origin, Options { anonymise, ..Options::default() }).unwrap();
    for poll in 0..ROUNDS * 2 {
        let time = UnixTime::from_nanos((1_795_291_200 + poll * 5) * 1_000_000_000);
        for connection in 0..24u64 {
            let network = connection / 4;
            let remote = [198, 18, network as u8, connection as u8 + 1].into();
            let acked = 1_000_000 * (poll + 1);
            let mut sample = Sample {
                kind: Kind::Poll as u8,
                state: state::ESTABLISHED,
                flags: flag::ACCEPTED,
                family: 4,
                local_port: 443,
                remote_port: 4_000,
                local: mapped([192, 0, 2, 1].into()),
                remote: mapped(remote),
                cookie: connection + 1,
                netns: 1,
                time_ns: time.as_nanos(),
                cc: CcName::new(cc).unwrap(),
                bytes_acked: acked,
                busy_us: if network == 5 { acked } else { acked / 10 },
                ..Sample::default()
            };
            for field in [Field::TcpInfo, Field::BytesAcked, Field::BusyUs, Field::Cc, Field::Netns] {
                sample.set_given(field);
            }
            writer.append(&Record {
                sample: &sample,
                time,
                sequence: poll as u32,
                direction: Direction::Accepted,
                listener_port: 443,
                network: Prefix::client_network(remote),
                asn: 0,
                delivery_rate_max: 0,
                country: [0; 2],
            });
        }
    }
    assert_eq!(writer.close().written, ROUNDS * 2 * 24);
}

/// What a replay of such a store says, and its `rounds.csv`.
fn replayed(cc: &str, anonymise: Anonymise, more: &str) -> (serde_json::Value, String) {
    let dir = tempfile::tempdir().unwrap();
    let (store, out, config) = (dir.path().join("store"), dir.path().join("out"), dir.path().join("weirgate.toml"));
    write_store(&store, cc, anonymise);
    std::fs::write(&config, format!("{CONFIG}{more}")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    command.args(["tune", "replay", "--json"]).arg(&store).arg("--out").arg(&out).arg("-c").arg(&config);
    let done = command.output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    (serde_json::from_slice(&done.stdout).unwrap(), std::fs::read_to_string(out.join("rounds.csv")).unwrap())
}

#[test]
fn the_default_is_what_most_untreated_connections_ran_on() {
    let (said, csv) = replayed("cubic", Anonymise::Off, "");
    assert_eq!((&said["default_cc"], &said["selections"]), (&"cubic".into(), &1.into()), "{said}\n{csv}");
    // One vote for each connection and round.
    assert_eq!(said["votes"], ROUNDS * 24, "{said}\n{csv}");
    // A rule that chooses what the host ran on selects nothing, though everybody votes.
    let (said, csv) = replayed("bbr", Anonymise::Off, "");
    assert_eq!((&said["default_cc"], &said["selections"]), (&"bbr".into(), &0.into()), "{said}\n{csv}");
    assert_eq!(said["votes"], ROUNDS * 24, "{said}\n{csv}");
    // What is configured wins over what is recorded.
    let (said, csv) = replayed("cubic", Anonymise::Off, "default_cc = \"reno\"\n");
    assert_eq!((&said["default_cc"], &said["votes"]), (&"reno".into(), &0.into()), "{said}\n{csv}");
}

#[test]
fn an_anonymised_store_decides_as_the_whole_one() {
    let (_, whole) = replayed("cubic", Anonymise::Off, "");
    let (said, anonymous) = replayed("cubic", Anonymise::Client, "");
    assert_eq!(anonymous, whole, "{said}");
}
