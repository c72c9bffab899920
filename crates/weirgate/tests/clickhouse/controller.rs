//! The way of a policy: a database with rounds in it, the controller, a snapshot, an edge.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weirgate_tune::Tallies;
use weirgate_tune::replay::Telemetry;
use weirgate_tune::synthetic::{Scenario, Synthetic};
use weirgate_units::UnixTime;

use crate::rounds::{HOSTS, config, summed};
use crate::server::{Server, done, said, weirgate};

const ROUNDS: u32 = 12;
const ROUND: u64 = 60;
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that ends with the test.
pub(crate) struct Daemon(Child);

impl Daemon {
    /// `weirgate` with `args`.
    pub(crate) fn start(args: &[&str]) -> Self {
        let log = if std::env::var_os("WEIRGATE_TEST_LOG").is_some() { Stdio::inherit() } else { Stdio::null() };
        Self(Command::new(env!("CARGO_BIN_EXE_weirgate")).args(args).stderr(log).spawn().unwrap())
    }

    /// At once, as when its machine loses power.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn an_edge_obeys_what_was_decided_from_the_database() {
    let Some(server) = Server::engines().pop() else { return };
    done(&server.init(&[]));
    let dir = server.folder.path();
    let path = |name: &str| dir.join(name).display().to_string();

    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let start = UnixTime::from_nanos((now / ROUND - u64::from(ROUNDS)) * ROUND * 1_000_000_000);
    let round = weirgate_units::Duration::from_secs(ROUND);
    let scenario = Scenario { start, round, connections: 8, clients: 30, ..Scenario::mixed(60, ROUNDS, 11) };
    let mut world = Synthetic::new(scenario);
    let mut hosts: Vec<Tallies> = (0..HOSTS).map(|_| Tallies::new(config())).collect();
    let policy = weirgate_tune::Policy::default();
    loop {
        let mut connections = Vec::new();
        let Some(end) = world.next_round(&policy, &mut |progress| connections.push(*progress)) else { break };
        server.ask(&format!(
            "INSERT INTO weirgate.tallies FORMAT JSONEachRow\n{}",
            summed(&mut hosts, end, &connections)
        ));
    }

    let key = done(&weirgate(&["controller", "key", "--key", &path("key")]));
    let controller = path("controller.toml");
    let text = format!(
        "[host]\nstate = \"{}\"\n[tune]\nround = \"{ROUND} s\"\nwindow_rounds = 16\nknown_enter_min = 4\nknown_leave_min = 2\n\
         [controller]\nclickhouse = \"{}\"\npops = [\"ams\", \"fra\"]\nkey = \"{}\"\npublish = \"{}\"\nsettle = \"0 s\"\ncanary_share = \"100 %\"\n",
        path("decider"),
        server.url,
        path("key"),
        path("published"),
    );
    std::fs::write(&controller, text).unwrap();
    let once = weirgate(&["controller", "run", "--once", "-c", &controller]);
    done(&once);
    let log = String::from_utf8_lossy(&once.stderr).into_owned();
    assert!(log.contains(key.trim()) && log.contains("published"), "{log}");
    assert!(log.contains("no data of this round have come") && !dir.join("published/fra.snapshot").exists(), "{log}");
    // What was decided is not decided again.
    let again = weirgate(&["controller", "run", "--once", "-c", &controller]);
    done(&again);
    let log = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!log.contains(" decided "), "{log}");

    // Of another point of presence, of a stranger, and then the right one.
    let edge = path("edge.toml");
    let write = |pop: &str, trust: &str| {
        let text = format!(
            "[host]\nname = \"edge-1\"\npop = \"{pop}\"\nstate = \"{}\"\n[http]\nlisten = \"off\"\n[control]\nsocket = \"{}\"\n\
             [store]\nenabled = false\n[fleet]\npolicy = \"{}\"\ntrust = [\"{trust}\"]\n",
            path(&format!("state-{pop}-{}", &trust[..4])),
            path("control.sock"),
            path("published/ams.snapshot"),
        );
        std::fs::write(&edge, text).unwrap();
    };
    let status = || -> serde_json::Value {
        let patience = Instant::now() + PATIENCE;
        loop {
            let output = weirgate(&["tune", "status", "--json", "-c", &edge]);
            if output.status.success() {
                return serde_json::from_slice(&output.stdout).unwrap();
            }
            assert!(Instant::now() < patience, "{}", said(&output, 1));
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    for (pop, trust, obeys) in [("fra", key.trim(), false), ("ams", &"ab".repeat(32), false), ("ams", key.trim(), true)]
    {
        write(pop, trust);
        let _daemon = Daemon::start(&["run", "-c", &edge]);
        let patience = Instant::now() + PATIENCE;
        loop {
            let status = status();
            let problem = status.to_string().contains("; nothing is treated");
            let networks = status.pointer("/policy/networks").and_then(serde_json::Value::as_u64);
            let version = status.pointer("/policy/fleet_version").and_then(serde_json::Value::as_u64);
            if obeys && networks > Some(5) && version.is_some_and(|version| version.is_multiple_of(ROUND)) {
                break;
            }
            if !obeys && problem {
                assert_eq!((networks, version), (Some(0), None), "{status}");
                break;
            }
            assert!(Instant::now() < patience, "{pop} {trust}: {status}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}
