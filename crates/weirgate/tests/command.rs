//! The command as people and scripts meet it: what it refuses and how, what it prints, with which exit code.
#![allow(clippy::disallowed_methods, reason = "the command on the real system")]

use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

fn weirgate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weirgate")).args(args).output().expect("the binary runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A configuration in a directory of its own, which everything that is written goes to as well.
fn configured(sections: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    let text = format!("[host]\nstate = \"{at}/state\"\n[control]\nsocket = \"{at}/control.sock\"\n{sections}");
    let path = dir.path().join("weirgate.toml");
    std::fs::write(&path, text).unwrap();
    (dir, path.to_string_lossy().into_owned())
}

#[test]
fn a_wrong_configuration_is_refused_with_file_line_and_key() {
    let (_dir, path) = configured("[sockets]\nintervall = \"10 s\"\n[tune]\nswitch_after = \"100 Kb\"\n");
    for command in ["run", "doctor", "undo"] {
        let output = weirgate(&[command, "-c", &path]);
        assert_eq!(output.status.code(), Some(2), "{command}");
        let said = stderr(&output);
        assert!(
            said.contains(&format!("{path}:6: sockets.intervall: unknown key; did you mean `interval`?")),
            "{said}"
        );
        assert!(said.contains(&format!("{path}:8: tune.switch_after: `100 Kb`")), "{said}");
        assert!(said.contains("write `100 KB`"), "{said}");
    }
}

#[test]
fn what_can_hardly_be_meant_is_noted_and_no_failure() {
    let sound = "[http]\nlisten = \"127.0.0.1:0\"\n[store]\nenabled = false\n";
    let (_dir, path) = configured(sound);
    let before = weirgate(&["doctor", "-c", &path]);
    let odd = "[[limit]]\nname = \"forgotten\"\nrate = \"1.5 Mbit/s\"\n";
    let (_dir, path) = configured(&format!("{sound}{odd}"));
    let output = weirgate(&["doctor", "-c", &path]);
    assert_eq!(output.status.code(), before.status.code(), "{}", stdout(&output));
    let note = "note     configuration    line 9: limit: no class names `forgotten`";
    assert!(stdout(&output).contains(note), "{}", stdout(&output));
}

#[test]
fn bad_usage_exits_with_2() {
    assert_eq!(weirgate(&["no-such-command"]).status.code(), Some(2));
    assert_eq!(weirgate(&["query"]).status.code(), Some(2));
    assert_eq!(weirgate(&["tune", "explain", "192.0.2.1/24"]).status.code(), Some(2));
    let output = weirgate(&["lab", "run", "edgy"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("did you mean `edge`?"), "{}", stderr(&output));
    assert_eq!(weirgate(&["--help"]).status.code(), Some(0));
}

#[test]
fn a_missing_file_is_named() {
    let output = weirgate(&["run", "-c", "/nonexistent/weirgate.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/nonexistent/weirgate.toml cannot be read: No such file"), "{}", stderr(&output));
}

#[test]
fn a_taken_port_refuses_the_start_and_says_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (dir, path) = configured(&format!("[http]\nlisten = \"127.0.0.1:{port}\"\n"));
    let output = weirgate(&["run", "-c", &path]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("did not start") && said.contains(&format!("127.0.0.1:{port} is taken")), "{said}");
    assert!(said.contains("ss -tlnp"), "{said}");
    assert!(!dir.path().join("state").exists(), "a refused start leaves nothing behind");
}

#[test]
fn a_page_for_everybody_is_refused() {
    let (_dir, path) = configured("[http]\nlisten = \"0.0.0.0:7070\"\n");
    let output = weirgate(&["run", "-c", &path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("loopback"), "{}", stderr(&output));
}

#[test]
fn a_store_that_cannot_be_written_refuses_the_start() {
    let (_dir, path) = configured("[http]\nlisten = \"127.0.0.1:0\"\n[store]\ndir = \"/proc/weirgate\"\n");
    let output = weirgate(&["run", "-c", &path]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("/proc/weirgate"), "{}", stderr(&output));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weirgate"))
        .args(["query", "--schema"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    assert_eq!(said, "");
}

#[test]
fn nothing_to_undo_is_done() {
    let (_dir, path) = configured("");
    // What an experiment that was killed has left on this machine.
    weirgate(&["undo", "-c", &path]);
    for _ in 0..2 {
        let output = weirgate(&["undo", "-c", &path]);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "nothing to undo\n"));
    }
}

#[test]
fn another_boot_s_journal_is_settled_without_touching_anything() {
    let (dir, path) = configured("");
    let line = concat!(
        r#"{"version":1,"sequence":1,"time":0,"boot":"an earlier one","actor":{"name":"start","uid":0,"pid":1},"#,
        r#""object":{"kind":"mount","path":"/nonexistent/bpf"},"before":null,"after":"present"}"#,
        "\n",
        r#"{"version":1,"sequence":2,"ti"#
    );
    std::fs::create_dir(dir.path().join("state")).unwrap();
    std::fs::write(dir.path().join("state/journal.jsonl"), line).unwrap();
    let dry = weirgate(&["undo", "-c", &path, "--dry-run"]);
    assert!(
        stdout(&dry).contains("would undo the BPF file system on /nonexistent/bpf: nothing -> `present`"),
        "{}",
        stdout(&dry)
    );
    let output = weirgate(&["undo", "-c", &path]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("torn"), "{}", stderr(&output));
    assert!(stdout(&output).contains("nothing to undo: made before the last boot"), "{}", stdout(&output));
    assert_eq!(stdout(&weirgate(&["undo", "-c", &path])), "nothing to undo\n");
}

#[test]
fn without_a_daemon_the_way_to_start_one_is_named() {
    let (_dir, path) = configured("");
    let output = weirgate(&["tune", "status", "-c", &path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("weirgate run"), "{}", stderr(&output));
}

#[test]
fn a_replay_of_nothing_says_what_can_be_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_string_lossy().into_owned();
    for (what, said) in [(None, "--synthetic"), (Some("/nonexistent/store"), "/nonexistent/store")] {
        let output = weirgate(&[&["tune", "replay", "-o", &out][..], what.as_slice()].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
}

#[test]
fn a_replay_of_a_made_up_world_writes_table_and_plot() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let (_config, path) = configured("");
    let output = weirgate(&[
        "tune",
        "replay",
        "-c",
        &path,
        "--synthetic",
        "--networks",
        "60",
        "--rounds",
        "60",
        "--json",
        "--out",
        &out.to_string_lossy(),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["rounds"], 60);
    assert!(said["selections"].as_u64().unwrap() > 0, "lossy networks are found: {said}");
    let csv = std::fs::read_to_string(out.join("rounds.csv")).unwrap();
    assert_eq!(csv.lines().count(), 61);
    assert!(std::fs::read_to_string(out.join("new-networks.svg")).unwrap().contains("</svg>"));
}

#[test]
fn one_definition_gives_manual_and_completions() {
    let manual = stdout(&weirgate(&["man"]));
    for command in ["run", "doctor", "sockets", "tune", "lab", "query", "undo"] {
        assert!(manual.contains(command), "{command}");
    }
    assert!(stdout(&weirgate(&["completions", "bash"])).contains("weirgate"));
}
