//! The way of a policy: a database with rounds in it, the controller, a snapshot, an edge.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weirgate_tune::Tallies;
use weirgate_tune::replay::Telemetry;
use weirgate_tune::synthetic::{Scenario, Synthetic};
use weirgate_units::UnixTime;

use crate::rounds::{HOSTS, config, summed};
use crate::server::{Server, Service, doctor, done, text, weirgate};

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

    /// By SIGTERM.
    pub(crate) fn ask_to_end(&self) {
        assert!(Command::new("kill").arg(self.0.id().to_string()).status().unwrap().success());
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A database in which a point of presence has rounds that have just ended.
fn database() -> Option<Server> {
    let server = Server::current()?;
    done(&server.init(&[]));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let start = UnixTime::from_nanos((now / ROUND - u64::from(ROUNDS)) * ROUND * 1_000_000_000);
    let round = weirgate_units::Duration::from_secs(ROUND);
    let scenario = Scenario { start, round, connections: 8, clients: 30, ..Scenario::mixed(60, ROUNDS, 11) };
    let mut world = Synthetic::new(scenario);
    let mut hosts: Vec<Tallies> =
        (0..HOSTS).map(|_| Tallies::new(weirgate_tune::Config { round, ..config() })).collect();
    let policy = weirgate_tune::Policy::default();
    loop {
        let mut connections = Vec::new();
        let Some(end) = world.next_round(&policy, &mut |progress| connections.push(*progress)) else { break };
        let rows = summed(&mut hosts, end, &connections);
        server.ask(&format!("INSERT INTO weirgate.tallies FORMAT JSONEachRow\n{rows}"));
    }
    Some(server)
}

/// The configuration of a controller that decides from it, with `more`.
fn controller(server: &Server, more: &str) -> String {
    let path = |name: &str| server.folder.path().join(name).display().to_string();
    let text = format!(
        "[host]\nstate = \"{}\"\n[tune]\nround = \"{ROUND} s\"\nwindow_rounds = 16\nknown_enter_min = 4\nknown_leave_min = 2\n\
         [controller]\nclickhouse = \"{}\"\npops = [\"ams\", \"fra\"]\nkey = \"{}\"\npublish = \"{}\"\nsettle = \"0 s\"\ncanary_share = \"100 %\"\n{more}",
        path("decider"),
        server.url,
        path("key"),
        path("published"),
    );
    std::fs::write(path("controller.toml"), text).unwrap();
    path("controller.toml")
}

/// What `weirgate tune status` says on the edge of `config`, as soon as it says what is looked for.
fn wait(config: &str, is_so: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    let begun = Instant::now();
    loop {
        let output = weirgate(&["tune", "status", "--json", "-c", config]);
        let status = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if is_so(&status) {
            return status;
        }
        assert!(begun.elapsed() < PATIENCE, "{status} {}", String::from_utf8_lossy(&output.stderr));
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Whether an edge obeys what was decided here.
fn obeys(status: &serde_json::Value) -> bool {
    let number = |pointer| status.pointer(pointer).and_then(serde_json::Value::as_u64);
    let version = number("/policy/fleet_version");
    number("/policy/networks") > Some(5) && version.is_some_and(|version| version.is_multiple_of(ROUND))
}

#[test]
fn a_round_of_few_hosts_is_said() {
    let Some(server) = database() else { return };
    let nth = |n: u32, of: &str| {
        server.ask(&format!(
            "INSERT INTO weirgate.tallies SELECT * REPLACE ('fra' AS pop) FROM weirgate.tallies WHERE {of} AND round = \
             (SELECT max(round) - {} FROM weirgate.tallies)",
            u64::from(n) * ROUND
        ));
    };
    nth(6, "pop = 'ams'");
    nth(5, "pop = 'ams' AND host = 'edge-0'");
    nth(4, "pop = 'ams' AND host = 'edge-0'");
    let controller = controller(&server, "");
    done(&weirgate(&["controller", "key", "-c", &controller]));
    let once = weirgate(&["controller", "run", "--once", "-c", &controller]);
    done(&once);
    let log = String::from_utf8_lossy(&once.stderr).into_owned();
    let said = log.lines().filter(|line| line.contains("the round before it was of")).collect::<Vec<_>>();
    assert!(said.len() == 1 && said[0].contains("it is of 1 hosts, the round before it was of 3"), "{log}");
}

#[test]
fn an_edge_obeys_what_was_decided_from_the_database() {
    let Some(server) = database() else { return };
    let dir = server.folder.path();
    let path = |name: &str| dir.join(name).display().to_string();
    let controller = controller(&server, "");
    let key = done(&weirgate(&["controller", "key", "-c", &controller]));
    let once = weirgate(&["controller", "run", "--once", "-c", &controller]);
    done(&once);
    let log = String::from_utf8_lossy(&once.stderr).into_owned();
    assert!(log.contains(key.trim()) && log.contains("published"), "{log}");
    assert!(!dir.join("published/fra.snapshot").exists(), "{log}");
    // Of rounds before all that is known nothing is said; of the last one, if it is not waited for still.
    assert!(log.matches("no data of this round have come").count() <= 1, "{log}");
    // What was decided is not decided again.
    let again = weirgate(&["controller", "run", "--once", "-c", &controller]);
    done(&again);
    let log = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!log.contains(" decided "), "{log}");

    // Of another point of presence, of a stranger, and then the right one.
    let edge = path("edge.toml");
    for (pop, trust, is_right) in
        [("fra", key.trim(), false), ("ams", &"ab".repeat(32), false), ("ams", key.trim(), true)]
    {
        let text = format!(
            "[host]\nname = \"edge-1\"\npop = \"{pop}\"\nstate = \"{}\"\n[http]\nlisten = \"off\"\n[control]\nsocket = \"{}\"\n\
             [store]\nenabled = false\n[fleet]\npolicy = \"{}\"\ntrust = [\"{trust}\"]\n",
            path(&format!("state-{pop}-{}", &trust[..4])),
            path("control.sock"),
            path("published/ams.snapshot"),
        );
        std::fs::write(&edge, text).unwrap();
        let _daemon = Daemon::start(&["run", "-c", &edge]);
        if is_right {
            wait(&edge, obeys);
            continue;
        }
        let status = wait(&edge, |status| status.to_string().contains("; nothing is treated"));
        assert_eq!(status.pointer("/policy/networks"), Some(&0.into()), "{status}");
        let why = if pop == "ams" { "/fleet/refused/signature" } else { "/fleet/refused/other_pop" };
        assert_eq!(status.pointer(why), Some(&1.into()), "{status}");
    }
    // What is forgotten is decided anew from the history that is there, and edges go back to it.
    done(&weirgate(&["controller", "reset", "ams", "-c", &controller]));
    let log = weirgate(&["controller", "run", "--once", "-c", &controller]);
    assert!(String::from_utf8_lossy(&log.stderr).contains(" decided "));
    assert!(
        String::from_utf8_lossy(&weirgate(&["controller", "reset", "x", "-c", &controller]).stderr)
            .contains("no point of presence `x`")
    );
}

#[test]
fn an_edge_obeys_what_comes_by_kafka() {
    let Some(server) = database() else { return };
    let Some(broker) = Service::kafka() else { return };
    let path = |name: &str| server.folder.path().join(name).display().to_string();
    let kafka = format!("[export.kafka]\nbrokers = [\"{}\"]\n", broker.address);
    let controller = controller(&server, &format!("topic = \"weirgate.policies\"\n{kafka}"));
    let key = done(&weirgate(&["controller", "key", "-c", &controller]));
    let sections = format!(
        "[host]\nname = \"edge-1\"\npop = \"ams\"\nstate = \"{}\"\n[http]\nlisten = \"off\"\n[control]\nsocket = \"{}\"\n\
         [store]\nenabled = false\n[fleet]\ntopic = \"weirgate.policies\"\ntrust = [\"{}\"]\n{kafka}",
        path("state"),
        path("control.sock"),
        key.trim(),
    );
    let edge = path("edge.toml");
    std::fs::write(&edge, sections).unwrap();
    // It waits for a topic that is made when something is published.
    let _daemon = Daemon::start(&["run", "-c", &edge]);
    wait(&edge, |status| status.to_string().contains("no topic `weirgate.policies` so far"));
    assert_eq!(doctor(&edge, "fleet"), ["note"]);
    assert!(doctor(&controller, "controller").contains(&"note".to_owned()));
    let once = weirgate(&["controller", "run", "--once", "-c", &controller]);
    done(&once);
    assert!(text(&once.stderr).contains("brokers have it"), "{}", text(&once.stderr));
    let status = wait(&edge, obeys);
    assert_eq!(doctor(&edge, "fleet"), ["ok"]);
    let nowhere = std::fs::read_to_string(&edge).unwrap().replace(&broker.address, "127.0.0.1:1");
    std::fs::write(path("nowhere.toml"), nowhere).unwrap();
    assert_eq!(doctor(&path("nowhere.toml"), "fleet"), ["fails"]);
    assert!(!status.to_string().contains("weirgate.policies"), "{status}");
}
