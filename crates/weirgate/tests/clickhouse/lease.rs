//! A controller whose database hangs, or is late, or has much to catch up with.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::controller::Daemon;
use crate::failover::{Data, ROUND, certificates, controller, free_ports, number, path, settings, wait};
use crate::server::{Server, done, weirgate};

/// What a controller is asked to end within, though its database does not answer.
const FAREWELL: Duration = Duration::from_secs(25);

/// A server, and a folder that has what controllers need.
fn ground() -> Option<Server> {
    let server = Server::current()?;
    done(&server.init(&[]));
    let dir = server.folder.path();
    certificates(dir);
    std::fs::write(dir.join("token"), "quite secret\n").unwrap();
    done(&weirgate(&["controller", "key", "--key", &path(dir, "key")]));
    Some(server)
}

fn signal(server: &Server, signal: &str) {
    let pid = std::fs::read_to_string(server.folder.path().join("current/pid")).unwrap();
    assert!(Command::new("kill").args([signal, pid.trim()]).status().unwrap().success());
}

#[test]
fn who_cannot_know_whether_it_is_its_turn_does_not_decide_and_ends_when_told_to() {
    let Some(server) = ground() else { return };
    let [listen, metrics, ..] = free_ports();
    let mut one = controller(server.folder.path(), &server, "a", (listen, metrics));
    let is_active = || number(metrics, "weirgate_controller_active");
    wait(|| is_active() == 1.0, "it does not decide");
    signal(&server, "-STOP");
    wait(|| is_active() == 0.0, "it decides though nobody can tell whether it may");
    wait(|| number(metrics, "weirgate_controller_turn_failures_total") > 0.0, "nothing shows why");
    signal(&server, "-CONT");
    wait(|| is_active() == 1.0, "it does not decide again");
    signal(&server, "-STOP");
    let begun = Instant::now();
    one.ask_to_end();
    wait(|| one.has_ended(), "it does not end");
    signal(&server, "-CONT");
    assert!(begun.elapsed() < FAREWELL, "it ended after {:?}", begun.elapsed());
}

#[test]
fn who_catches_up_keeps_the_lease_meanwhile() {
    let Some(server) = ground() else { return };
    let dir = server.folder.path();
    Data::new().bring(&server);
    // Points of presence without data, and then one with: its policy ends the catching up.
    let pops: Vec<String> = (0..5).map(|n| format!("\"pop-{n}\"")).chain(["\"ams\"".to_owned()]).collect();
    let many = |name: &str, ports: (u16, u16)| {
        let config = path(dir, &format!("{name}.toml"));
        let text = settings(dir, &server, name, ports);
        let text = text.replace("pops = [\"ams\", \"fra\"]", &format!("pops = [{}]", pops.join(", ")));
        std::fs::write(&config, text.replace("window_rounds = 16", "window_rounds = 128")).unwrap();
        Daemon::start(&["controller", "run", "-c", &config])
    };
    let [a, metrics_of_a, b, metrics_of_b] = free_ports();
    let _first = many("a", (a, metrics_of_a));
    wait(|| number(metrics_of_a, "weirgate_controller_active") == 1.0, "the first one does not decide");
    let begun = Instant::now();
    let _second = many("b", (b, metrics_of_b));
    wait(
        || {
            assert!(number(metrics_of_b, "weirgate_controller_active") <= 0.0, "two decide");
            number(metrics_of_a, "weirgate_controller_policy_version{pop=\"ams\"}") > 0.0
        },
        "it does not catch up",
    );
    println!("caught up with {} rounds within {:?}", 128 * pops.len(), begun.elapsed());
    assert_eq!(number(metrics_of_a, "weirgate_controller_epoch"), 1.0, "the lease was lost in between");
    assert_eq!(number(metrics_of_a, "weirgate_controller_active"), 1.0);
}

#[test]
fn rounds_whose_data_are_late_are_decided_when_they_come() {
    let Some(server) = ground() else { return };
    let [listen, metrics, ..] = free_ports();
    let mut data = Data::new();
    data.bring(&server);
    server.ask(
        "INSERT INTO weirgate.sockets_kafka_errors (topic, error, message) VALUES ('of.records', 'torn', 'half a rec')",
    );
    let _one = controller(server.folder.path(), &server, "a", (listen, metrics));
    let of = |what: &str| number(metrics, &format!("weirgate_controller_{what}{{pop=\"ams\"}}"));
    // How many rounds were decided, and the end of the last one.
    let decided = || loop {
        let (ended, rounds) = (of("round_end_timestamp_seconds"), of("rounds_total"));
        if of("round_end_timestamp_seconds") == ended {
            return (rounds, ended);
        }
    };
    wait(|| of("policy_version") > 0.0, "nothing is published");
    let unread = "weirgate_controller_unread_messages{topic=\"of.records\"}";
    wait(|| number(metrics, unread) == 1.0, "nothing shows that a message could not be read");
    let before = decided();
    wait(|| of("empty_rounds_total") >= 2.0, "what does not come is not missed");
    wait(
        || {
            data.bring(&server);
            decided().1 > before.1 + 3.0 * ROUND as f64
        },
        "nothing is decided any more",
    );
    let after = decided();
    assert_eq!(after.0 - before.0, (after.1 - before.1) / ROUND as f64, "some were passed over");
}

#[test]
fn what_another_left_and_cannot_be_used_stops_one_point_of_presence_until_it_is_reset() {
    let Some(server) = ground() else { return };
    let dir = server.folder.path();
    let mut data = Data::new();
    data.bring(&server);
    let ports = free_ports();
    let version = |port| number(port, "weirgate_controller_policy_version{pop=\"ams\"}");
    {
        let mut one = controller(dir, &server, "a", (ports[0], ports[1]));
        wait(|| version(ports[1]) > 0.0, "nothing is published");
        one.ask_to_end();
        wait(|| one.has_ended(), "it does not end");
    }
    // Of its numbers, the other one says, some mean something else.
    let config = path(dir, "b.toml");
    let text = settings(dir, &server, "b", (ports[2], ports[3]));
    std::fs::write(&config, text.replace("window_rounds", "epoch_rounds = 60\nwindow_rounds")).unwrap();
    {
        let mut other = Daemon::start(&["controller", "run", "-c", &config]);
        let failures = |pop| number(ports[3], &format!("weirgate_controller_failures_total{{pop=\"{pop}\"}}"));
        wait(|| failures("ams") > 0.0, "it does not say that it cannot use it");
        assert_eq!((number(ports[3], "weirgate_controller_active"), failures("fra")), (1.0, 0.0), "the others go on");
        assert_eq!(number(ports[3], "weirgate_controller_turn_failures_total"), 0.0);
        other.ask_to_end();
        wait(|| other.has_ended(), "it does not end");
    }
    done(&weirgate(&["controller", "reset", "ams", "-c", &config]));
    let _other = Daemon::start(&["controller", "run", "-c", &config]);
    data.bring(&server);
    wait(|| version(ports[3]) > 0.0, "it does not begin anew");
}
