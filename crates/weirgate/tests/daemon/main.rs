//! The daemon on this kernel: real connections in a namespace of their own, the page, the control socket, SIGKILL and undo.
#![allow(clippy::disallowed_methods, reason = "real sockets on the real kernel")]

mod bad_ground;
mod ground;
mod limits;
mod ports;
mod uplinks;

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use ground::{Daemon, LEFT, PATIENCE, Space, ip, text, until};
use rustix::net::sockopt;

#[test]
fn it_observes_shows_stores_and_stops_in_order() {
    let Some(space) = Space::make() else { return };
    let mut daemon = Daemon::start(&space, "");
    let listener = space.listen();
    let (mut client, mut server) = space.connect(&listener);
    until("the page shows both ends of the connection", || daemon.json("/api/v1/status")["totals"]["connections"] == 2);
    // Once a poll has shown it, what it does is a vote, now and in a replay of the record. It takes some of the kernel's
    // ticks, in which busy time is counted.
    let sending = std::thread::spawn(move || {
        server.write_all(&[7; 300_000]).unwrap();
        server
    });
    std::thread::sleep(Duration::from_millis(100));
    client.read_exact(&mut [0; 300_000]).unwrap();
    let server = sending.join().unwrap();
    let networks = daemon.json("/api/v1/networks");
    assert_eq!(networks["networks"][0]["name"], "127.0.0.0/24", "{networks}");
    drop((client, server));
    until("the close is counted", || daemon.json("/api/v1/status")["totals"]["close_records"].as_u64() >= Some(2));
    let sockets = daemon.run(&["sockets", "--json"]);
    assert_eq!(sockets.status.code(), Some(0), "{}", text(&sockets.stderr));
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&sockets.stdout).unwrap()["status"]["facts"]["host"],
        "test"
    );
    assert_eq!(daemon.journal(), "", "observing changes nothing");
    let status = daemon.json("/api/v1/status");
    let system = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let notices = status["notices"].as_array().unwrap();
    assert_eq!(notices.len(), usize::from(system.trim() == "bbr"), "the rule chooses bbr: {status}");
    assert_eq!(status["problems"].as_array().map(Vec::len), Some(0), "{status}");
    let said = text(&daemon.run(&["tune", "status"]).stdout);
    assert!(said.contains("a network is judged in 24 rounds of 2 s before it is selected"), "{said}");

    assert_eq!(daemon.stop(), Some(0), "{}", daemon.log());
    let sql =
        "SELECT kind, count(DISTINCT cookie) AS n, max(bytes_acked) AS acked FROM sockets GROUP BY kind ORDER BY kind";
    let answer = daemon.run(&["query", "--json", sql]);
    assert_eq!(answer.status.code(), Some(0), "{}", text(&answer.stderr));
    let rows: Vec<serde_json::Value> =
        text(&answer.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let close = rows.iter().find(|row| row["kind"] == "close").unwrap_or_else(|| panic!("{rows:?}"));
    assert_eq!(close["n"], 2);
    assert!(close["acked"].as_u64().unwrap() >= 300_000, "{rows:?}");
    assert!(!daemon.dir.path().join("control.sock").exists() && !daemon.dir.path().join("http-address").exists());
    let store = daemon.dir.path().join("state/store");
    let replayed = daemon.dir.path().join("replayed");
    let args = ["tune", "replay", &store.to_string_lossy(), "--json", "--out", &replayed.to_string_lossy()];
    let answer = daemon.run(&args);
    assert_eq!(answer.status.code(), Some(0), "{}", text(&answer.stderr));
    let said: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert!(said["rounds"].as_u64() >= Some(1) && said["connections"].as_u64() >= Some(1), "{said}");
    assert!(said["votes"].as_u64() >= Some(1), "{said}");
    assert_eq!(said["default_cc"], system.trim());
    let mut hours = std::fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path());
    let hour = hours.find(|path| path.is_dir()).unwrap();
    let file = std::fs::read_dir(hour).unwrap().next().unwrap().unwrap().path();
    let args = ["tune", "replay", &file.to_string_lossy(), "--json", "--out", &replayed.to_string_lossy()];
    assert_eq!(daemon.run(&args).status.code(), Some(0), "one file is enough");
    let config = daemon.dir.path().join("weirgate.toml");
    let no_file = daemon.run(&["tune", "replay", &config.to_string_lossy(), "--out", &replayed.to_string_lossy()]);
    assert_eq!(no_file.status.code(), Some(2));
    assert!(text(&no_file.stderr).contains("torn or not Parquet"), "{}", text(&no_file.stderr));
    let wrong = daemon.run(&["query", "SELEKT"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
}

#[test]
fn sockets_are_shown_without_a_daemon() {
    let Some(space) = Space::make() else { return };
    let listener = space.listen();
    let ends = space.connect(&listener);
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("weirgate.toml");
    let text_of = |namespace: &str| format!("[http]\nlisten = \"off\"\n[sockets]\nnamespaces = [\"{namespace}\"]\n");
    std::fs::write(&config, text_of(&space.name)).unwrap();
    let sockets = || {
        Command::new(env!("CARGO_BIN_EXE_weirgate")).args(["sockets", "--json", "-c"]).arg(&config).output().unwrap()
    };
    let done = sockets();
    let look: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(look["source"].as_str().unwrap().starts_with("own polls"), "{look}");
    assert_eq!(look["status"]["totals"]["connections"], 2, "{look}");
    drop(ends);
    std::fs::write(&config, text_of("wg-nowhere")).unwrap();
    let look: serde_json::Value = serde_json::from_slice(&sockets().stdout).unwrap();
    assert!(look["status"]["problems"].to_string().contains("wg-nowhere cannot be opened"), "{look}");
}

#[test]
fn what_a_killed_daemon_applied_is_undone() {
    let Some(space) = Space::make() else { return };
    let listener = space.listen();
    let port = listener.local_addr().unwrap().port();
    let (_first_client, own) = space.connect(&listener);
    let system = sockopt::tcp_congestion(&own).unwrap();
    let other = if system == "reno" { "bbr" } else { "reno" };
    let sections = format!("mode = \"apply\"\nsteer = \"bpf\"\nserver_ports = [{port}]\ndefault_cc = \"{other}\"\n");
    let mut daemon = Daemon::start(&space, &sections);
    let (_client, server) = space.connect(&listener);
    until("new connections start on the configured default", || sockopt::tcp_congestion(&server).unwrap() == other);
    let status = daemon.run(&["tune", "status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((&status["mode"], &status["policy"]["applied"]), (&"apply".into(), &true.into()), "{status}");

    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    assert!(daemon.pins.exists(), "the kernel goes on without the daemon");
    let written = daemon.journal();
    let object = written.find("\"kind\":\"pins\"").expect("journalled");
    assert!(object < written.find("\"kind\":\"policy\"").expect("journalled"), "{written}");

    let undone = daemon.run(&["undo"]);
    assert_eq!(undone.status.code(), Some(0), "{}", text(&undone.stderr));
    assert!(text(&undone.stdout).contains(": undone"), "{}", text(&undone.stdout));
    assert_eq!(sockopt::tcp_congestion(&server).unwrap(), system, "{}", text(&undone.stdout));
    assert!(!daemon.pins.exists());
    assert_eq!(text(&daemon.run(&["undo"]).stdout), "nothing to undo\n", "once is enough");
    let (_client, after) = space.connect(&listener);
    assert_eq!(sockopt::tcp_congestion(&after).unwrap(), system);
}

#[test]
fn a_namespace_that_comes_later_is_steered_and_undone_and_no_other_is() {
    let Some(space) = Space::make() else { return };
    let late = format!("{}-late", space.name);
    let port = space.listen().local_addr().unwrap().port();
    let (_client, own) = space.connect(&space.listen());
    let system = sockopt::tcp_congestion(&own).unwrap();
    let other = if system == "reno" { "bbr" } else { "reno" };
    let sections = format!("mode = \"apply\"\nsteer = \"bpf\"\nserver_ports = [{port}]\ndefault_cc = \"{other}\"\n");
    let mut daemon = Daemon::start_in(&[&space.name, &late], &sections);
    let (late, unwanted) = (Space::named(&late), Space::make().unwrap());
    let (_late_client, late) = late.connect(&late.listen_on(port));
    let (_unwanted_client, unwanted) = unwanted.connect(&unwanted.listen_on(port));
    until("its connections are taken up", || sockopt::tcp_congestion(&late).unwrap() == other);
    assert_eq!(sockopt::tcp_congestion(&unwanted).unwrap(), system, "nobody asked for this one");

    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    let undone = daemon.run(&["undo"]);
    assert_eq!(undone.status.code(), Some(0), "{}", text(&undone.stderr));
    assert_eq!(sockopt::tcp_congestion(&late).unwrap(), system, "{}", text(&undone.stdout));
    assert_eq!(text(&daemon.run(&["undo"]).stdout), "nothing to undo\n", "once is enough");
}

#[test]
fn a_person_applies_and_clears_through_the_one_door() {
    let Some(space) = Space::make() else { return };
    let listener = space.listen();
    let port = listener.local_addr().unwrap().port();
    let (_client, own) = space.connect(&listener);
    let system = sockopt::tcp_congestion(&own).unwrap();
    let other = if system == "reno" { "bbr" } else { "reno" };
    let mut daemon =
        Daemon::start(&space, &format!("steer = \"bpf\"\nserver_ports = [{port}]\ndefault_cc = \"{other}\"\n"));
    assert!(!daemon.pins.exists());
    let applied = daemon.run(&["tune", "apply"]);
    assert_eq!(applied.status.code(), Some(0), "{}", text(&applied.stderr));
    assert!(text(&applied.stdout).contains("applied from now on"), "{}", text(&applied.stdout));
    let (_client, server) = space.connect(&listener);
    until("a new connection starts on the default", || sockopt::tcp_congestion(&server).unwrap() == other);
    assert!(daemon.journal().contains("\"name\":\"control\",\"uid\":0"), "{}", daemon.journal());
    assert!(daemon.log().contains("uid=0"), "who asked is logged: {}", daemon.log());

    let cleared = daemon.run(&["tune", "clear"]);
    assert_eq!(cleared.status.code(), Some(0), "{}", text(&cleared.stderr));
    assert_eq!(sockopt::tcp_congestion(&server).unwrap(), system);
    assert!(!daemon.pins.exists());
    assert_eq!(daemon.json("/api/v1/status")["facts"]["mode"], "observe");
    let explained = daemon.run(&["tune", "explain", "192.0.2.0/24"]);
    assert_eq!(explained.status.code(), Some(0), "{}", text(&explained.stderr));
    assert_eq!(daemon.stop(), Some(0), "{}", daemon.log());
    assert_eq!(text(&daemon.run(&["undo"]).stdout), "nothing to undo\n");
}

#[test]
fn a_restart_in_the_middle_of_a_round_forgets_nothing() {
    let Some(space) = Space::make() else { return };
    let listener = space.listen();
    let mut daemon = Daemon::start(&space, "");
    until("a round has ended", || !daemon.json("/api/v1/status")["round"].is_null());
    // In the next round, networks are met that the last one did not know.
    let ends = space.connect(&listener);
    until("the connection is seen", || daemon.json("/api/v1/status")["totals"]["connections"] == 2);
    drop(ends);
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(daemon.stop(), Some(0));
    daemon.start_again();
    assert!(!daemon.log().contains("history is gathered anew"), "{}", daemon.log());
}

#[test]
fn undo_removes_what_a_killed_experiment_left() {
    let Some(space) = Space::make() else { return };
    let daemon = Daemon::start(&space, "");
    let alone = LEFT.write().unwrap_or_else(PoisonError::into_inner);
    // No process has this number: pid_max is at most 4,194,304.
    let left = format!("wg-{}-0-edge", 4_194_305 + u64::from(std::process::id()));
    let lab = Space::named(&left);
    let said = text(&daemon.run_beside(&["undo", "--dry-run"]).stdout).to_owned();
    assert!(said.contains(&format!("{left}, left by an experiment that was killed: would be removed")), "{said}");
    let said = text(&daemon.run_beside(&["undo"]).stdout).to_owned();
    drop(alone);
    assert!(said.contains(&format!("{left}, left by an experiment that was killed: removed")), "{said}");
    assert!(!std::path::Path::new("/run/netns").join(&left).exists());
    drop(lab);
}

#[test]
fn undo_tells_a_running_daemon() {
    let Some(space) = Space::make() else { return };
    let port = space.listen().local_addr().unwrap().port();
    let mut daemon = Daemon::start(&space, &format!("mode = \"apply\"\nsteer = \"bpf\"\nserver_ports = [{port}]\n"));
    assert!(daemon.pins.exists());
    let undone = daemon.run(&["undo"]);
    assert_eq!(undone.status.code(), Some(0), "{}", text(&undone.stderr));
    assert!(text(&undone.stdout).contains("the running daemon took back"), "{}", text(&undone.stdout));
    assert!(!daemon.pins.exists());
    assert_eq!(daemon.json("/api/v1/status")["facts"]["mode"], "observe");
    assert_eq!(daemon.stop(), Some(0), "{}", daemon.log());
}

#[test]
fn routes_are_the_fall_back_and_are_undone_after_a_kill() {
    let Some(space) = Space::make() else { return };
    let table = 40_000 + std::process::id() % 10_000;
    let sections = format!("mode = \"apply\"\nsteer = \"routes\"\nserver_ports = [80]\nroute_table = {table}\n");
    let mut daemon = Daemon::start(&space, &sections);
    let status = daemon.json("/api/v1/status");
    assert_eq!(status["facts"]["steering"]["name"], "routes with congctl", "{status}");
    assert!(status["facts"]["steering"]["why"].as_str().unwrap().contains("cannot do"), "{status}");
    assert!(daemon.journal().contains(&format!("\"kind\":\"routes\",\"namespace\":\"/run/netns/{}\"", space.name)));
    // As a round would have left it: the rule, and a route of ours in the table (protocol 119).
    ip(&["-n", &space.name, "route", "add", "192.0.2.0/24", "dev", "lo", "table", &table.to_string(), "proto", "119"]);
    ip(&["-n", &space.name, "rule", "add", "table", &table.to_string(), "priority", "32700", "protocol", "119"]);
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    let undone = daemon.run(&["undo"]);
    assert_eq!(undone.status.code(), Some(0), "{}", text(&undone.stderr));
    assert!(text(&undone.stdout).contains("2 routes and rules removed"), "{}", text(&undone.stdout));
    assert_eq!(text(&daemon.run(&["undo"]).stdout), "nothing to undo\n");
}

#[test]
fn a_second_daemon_is_refused() {
    let Some(space) = Space::make() else { return };
    let daemon = Daemon::start(&space, "");
    let second = daemon.run(&["run"]);
    assert_eq!(second.status.code(), Some(2));
    assert!(text(&second.stderr).contains("another weirgate answers there"), "{}", text(&second.stderr));
    let config = std::fs::read_to_string(daemon.dir.path().join("weirgate.toml")).unwrap();
    let elsewhere = daemon.dir.path().join("second.toml");
    let page = std::fs::read_to_string(daemon.dir.path().join("http-address")).unwrap();
    std::fs::write(&elsewhere, config.replace("127.0.0.1:0", page.trim())).unwrap();
    let second = Command::new(env!("CARGO_BIN_EXE_weirgate")).args(["run", "-c"]).arg(&elsewhere).output().unwrap();
    assert!(text(&second.stderr).contains("another weirgate answers there"), "not that its port is taken: {second:?}");
    std::fs::write(&elsewhere, config.replace("control.sock", "second.sock")).unwrap();
    let second = Command::new(env!("CARGO_BIN_EXE_weirgate")).args(["run", "-c"]).arg(elsewhere).output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(text(&second.stderr).contains("another weirgate keeps its state"), "{}", text(&second.stderr));
    assert_eq!(daemon.json("/api/v1/status")["facts"]["host"], "test", "the first is not disturbed");
}

#[test]
fn without_privileges_it_does_what_it_can_and_says_so() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: privileges can be given up by root only");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    rustix::fs::chown(dir.path(), Some(rustix::fs::Uid::from_raw(65_534)), None).unwrap();
    let path = dir.path().join("weirgate.toml");
    std::fs::write(
        &path,
        format!(
            "[host]\nstate = \"{at}/state\"\n[control]\nsocket = \"{at}/control.sock\"\n[http]\nlisten = \"127.0.0.1:0\"\n"
        ),
    )
    .unwrap();
    let started = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(env!("CARGO_BIN_EXE_weirgate"))
        .args(["run", "-c"])
        .arg(&path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        println!("SKIPPED: no setpriv here (util-linux)");
        return;
    };
    let began = Instant::now();
    while !dir.path().join("http-address").exists() {
        if let Some(status) = child.try_wait().unwrap() {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            if status.code() == Some(127) || status.code() == Some(126) {
                println!("SKIPPED: another user cannot run the test's binary: {said}");
                return;
            }
            panic!("{status}: {said}");
        }
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("inet_diag netlink: the iterator does not work here"), "{said}");
    assert!(said.contains("the sockops program does not work here"), "{said}");
}
