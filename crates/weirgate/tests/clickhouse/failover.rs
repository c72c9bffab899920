//! Two controllers, one database, and an edge that asks both by HTTPS while data come in.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use weirgate_tune::Tallies;
use weirgate_tune::replay::Telemetry;
use weirgate_tune::synthetic::{Scenario, Synthetic};
use weirgate_units::UnixTime;

use crate::controller::Daemon;
use crate::rounds::{HOSTS, config, summed};
use crate::server::{Server, doctor, done, said, text, weirgate};

/// Seconds.
pub(crate) const ROUND: u64 = 10;
/// Rounds that are there at the beginning.
const BEFORE: u64 = 12;
const PATIENCE: Duration = Duration::from_secs(90);

#[test]
fn when_the_controller_dies_another_goes_on_and_the_edge_follows_it() {
    let Some(server) = Server::current() else { return };
    done(&server.init(&[]));
    the_other_goes_on([&server; 2]);
}

/// Two controllers, of which each asks one of `servers`, that have the same tables.
pub(crate) fn the_other_goes_on(servers: [&Server; 2]) {
    let [server, other] = servers;
    let dir = server.folder.path();
    certificates(dir);
    std::fs::write(dir.join("token"), "quite secret\n").unwrap();
    let key = done(&weirgate(&["controller", "key", "--key", &path(dir, "key")]));
    let mut data = Data::new();
    data.bring(server);

    let ports = free_ports();
    let [a, b] = [0, 1].map(|n| (ports[2 * n], ports[2 * n + 1]));
    let mut first = controller(dir, server, "a", a);
    wait(|| number(a.1, "weirgate_controller_policy_version{pop=\"ams\"}") > 0.0, "nothing is published");
    assert_eq!(number(a.1, "weirgate_controller_active"), 1.0);
    let _second = controller(dir, other, "b", b);
    wait(|| number(b.1, "weirgate_controller_policy_version{pop=\"ams\"}") > 0.0, "the other one's is not shown");
    assert_eq!(number(b.1, "weirgate_controller_active"), 0.0);
    assert!(dir.join("controller-b/controller/ams.memory").exists(), "what the first one knows is kept by the second");

    // One whose policies no edge would believe does not stand by.
    done(&weirgate(&["controller", "key", "--key", &path(dir, "stranger")]));
    let text_of_a = std::fs::read_to_string(dir.join("a.toml")).unwrap();
    let stranger = text_of_a.replace(&path(dir, "key"), &path(dir, "stranger")).replace("controller-a", "controller-c");
    std::fs::write(dir.join("c.toml"), stranger).unwrap();
    let once = weirgate(&["controller", "run", "--once", "-c", &path(dir, "c.toml")]);
    assert!(said(&once, 1).contains("has signed the policy of `ams` by another key"), "{}", said(&once, 1));

    // Who asks how.
    let ask = |port: u16, pop: &str, args: &[&str]| {
        let url = format!("https://localhost:{port}/v1/policy/{pop}");
        let ca = path(dir, "ca.pem");
        let out = path(dir, "answer");
        let print = "%{http_code} %header{etag}";
        let all = [&["-sS", "--noproxy", "*", "--cacert", &ca, "-o", &out, "-w", print], args, &[&url]].concat();
        text(&done(&Command::new("curl").args(all).output().unwrap()).into_bytes())
    };
    let token = ["-H", "Authorization: Bearer quite secret"];
    let [of_a, of_b] = [a.0, b.0].map(|port| ask(port, "ams", &token));
    assert!(of_a.starts_with("200 \""), "{of_a}");
    assert_eq!(of_a, of_b, "the second one has what the first has published");
    assert!(ask(a.0, "ams", &[]).starts_with("401"));
    assert!(ask(a.0, "ams", &["-H", "Authorization: Bearer quite secre"]).starts_with("401"));
    assert!(ask(a.0, "nowhere", &token).starts_with("404"));
    assert!(ask(a.0, "fra", &token).starts_with("404"), "there are no data of it");
    let has = format!("If-None-Match: \"x\", {}", &of_a[4..]);
    assert!(ask(b.0, "ams", &[&token[..], &["-H", &has]].concat()).starts_with("304"));
    assert_eq!(number(a.1, "weirgate_controller_answers_total{answer=\"refused\"}"), 3.0);

    let edge = Edge::start(dir, [a.0, b.0], key.trim());
    wait(|| edge.version().is_some(), "the edge obeys nothing");
    let before = edge.version().unwrap();
    first.kill();
    let begun = Instant::now();
    wait(
        || {
            data.bring(server);
            edge.version().is_some_and(|version| version > before + ROUND)
        },
        "the edge follows nobody",
    );
    println!("another controller's second policy was obeyed {:?} after the first one had died", begun.elapsed());
    // Of the two that the edge asks one is dead, which is known before somebody looks for it.
    assert_eq!(doctor(&edge.config, "fleet"), ["fails", "ok"]);
    let found = doctor(&path(dir, "b.toml"), "controller");
    assert!(found[..2] == ["ok", "ok"] && !found.contains(&"fails".to_owned()), "{found:?}");
    assert_eq!(number(b.1, "weirgate_controller_active"), 1.0);
    assert!(number(b.1, "weirgate_controller_epoch") > 1.0);
    assert!(edge.networks() > 5);
    let status = edge.status();
    assert_eq!(status.pointer("/fleet/refused/signature"), Some(&0.into()), "{status}");
    // What the first one knew was taken over, and not learnt again: all rounds but those since then were not asked for.
    let decided = number(b.1, "weirgate_controller_rounds_total{pop=\"ams\"}");
    assert!(decided < BEFORE as f64, "{decided}");

    // The first one comes back, and does not decide.
    let _first = controller(dir, server, "a", a);
    wait(|| number(a.1, "weirgate_controller_policy_version{pop=\"ams\"}") > before as f64, "it shows nothing newer");
    assert_eq!(number(a.1, "weirgate_controller_active"), 0.0);
    let reset = weirgate(&["controller", "reset", "fra", "-c", &path(dir, "a.toml")]);
    assert!(said(&reset, 2).contains("another controller runs with"), "{}", said(&reset, 2));
}

/// Connections that a fleet's hosts have summed up, as time passes.
pub(crate) struct Data {
    world: Synthetic,
    hosts: Vec<Tallies>,
    next: UnixTime,
}

impl Data {
    pub(crate) fn new() -> Self {
        let start = UnixTime::from_nanos((now() / ROUND - BEFORE) * ROUND * 1_000_000_000);
        let round = weirgate_units::Duration::from_secs(ROUND);
        let scenario = Scenario { start, round, connections: 8, clients: 30, ..Scenario::mixed(60, 60, 11) };
        let hosts = (0..HOSTS).map(|_| Tallies::new(weirgate_tune::Config { round, ..config() })).collect();
        Self { world: Synthetic::new(scenario), hosts, next: start + round }
    }

    /// Brings what has happened until now into the database.
    pub(crate) fn bring(&mut self, server: &Server) {
        while self.next.as_secs() <= now() {
            let mut connections = Vec::new();
            let policy = weirgate_tune::Policy::default();
            let end = self.world.next_round(&policy, &mut |progress| connections.push(*progress)).unwrap();
            let rows = summed(&mut self.hosts, end, &connections);
            server.ask(&format!("INSERT INTO weirgate.tallies FORMAT JSONEachRow\n{rows}"));
            self.next = end + weirgate_units::Duration::from_secs(ROUND);
        }
    }
}

struct Edge {
    config: String,
    _daemon: Daemon,
}

impl Edge {
    fn start(dir: &Path, ports: [u16; 2], key: &str) -> Self {
        let text = format!(
            "[host]\nname = \"edge-1\"\npop = \"ams\"\nstate = \"{}\"\n[http]\nlisten = \"off\"\n[control]\nsocket = \"{}\"\n\
             [store]\nenabled = false\n[fleet]\ntrust = [\"{key}\"]\ncontrollers = [\"https://localhost:{}\", \
             \"https://localhost:{}\"]\nca = \"{}\"\ntoken_file = \"{}\"\n",
            path(dir, "edge"),
            path(dir, "edge.sock"),
            ports[0],
            ports[1],
            path(dir, "ca.pem"),
            path(dir, "token"),
        );
        let config = path(dir, "edge.toml");
        std::fs::write(&config, text).unwrap();
        let _daemon = Daemon::start(&["run", "-c", &config]);
        Self { config, _daemon }
    }

    fn status(&self) -> serde_json::Value {
        let Output { status, stdout, .. } = weirgate(&["tune", "status", "--json", "-c", &self.config]);
        if status.success() { serde_json::from_slice(&stdout).unwrap() } else { serde_json::Value::Null }
    }

    fn version(&self) -> Option<u64> {
        self.status().pointer("/policy/fleet_version").and_then(serde_json::Value::as_u64)
    }

    fn networks(&self) -> u64 {
        self.status().pointer("/policy/networks").and_then(serde_json::Value::as_u64).unwrap_or(0)
    }
}

/// A controller that serves edges at the first of `ports`, and its numbers at the other.
pub(crate) fn controller(dir: &Path, server: &Server, name: &str, ports: (u16, u16)) -> Daemon {
    let config = path(dir, &format!("{name}.toml"));
    std::fs::write(&config, settings(dir, server, name, ports)).unwrap();
    Daemon::start(&["controller", "run", "-c", &config])
}

/// Its configuration.
pub(crate) fn settings(dir: &Path, server: &Server, name: &str, ports: (u16, u16)) -> String {
    format!(
        "[host]\nname = \"{name}\"\nstate = \"{}\"\n[tune]\nround = \"{ROUND} s\"\nwindow_rounds = 16\nknown_enter_min = 4\n\
         known_leave_min = 2\n[controller]\nclickhouse = \"{}\"\npops = [\"ams\", \"fra\"]\nkey = \"{}\"\nsettle = \"0 s\"\n\
         canary_share = \"100 %\"\nlease = \"5 s\"\nlife = \"60 s\"\nlisten = \"127.0.0.1:{}\"\nmetrics = \"127.0.0.1:{}\"\n\
         certificate = \"{}\"\ncertificate_key = \"{}\"\ntoken_file = \"{}\"\n",
        path(dir, &format!("controller-{name}")),
        server.url,
        path(dir, "key"),
        ports.0,
        ports.1,
        path(dir, "server.crt"),
        path(dir, "server.key"),
        path(dir, "token"),
    )
}

/// An authority, and the certificate of a server that it has signed.
pub(crate) fn certificates(dir: &Path) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services/certificates.sh");
    done(&Command::new("sh").arg(script).arg(dir).output().unwrap());
}

pub(crate) fn path(dir: &Path, name: &str) -> String {
    dir.join(name).display().to_string()
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

pub(crate) fn free_ports() -> [u16; 4] {
    let listeners = [(); 4].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// The value of a metric of the controller at `port`; below zero where there is none.
pub(crate) fn number(port: u16, series: &str) -> f64 {
    let url = format!("http://127.0.0.1:{port}/metrics");
    let output = Command::new("curl").args(["-sS", "--noproxy", "*", &url]).output().unwrap();
    let value = |line: &str| line.strip_prefix(series)?.trim().parse().ok();
    text(&output.stdout).lines().find_map(value).unwrap_or(-1.0)
}

pub(crate) fn wait(mut is_so: impl FnMut() -> bool, otherwise: &str) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{otherwise}");
        std::thread::sleep(Duration::from_millis(300));
    }
}
