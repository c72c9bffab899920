//! `weirgate fabric` as people and scripts meet it.
#![allow(clippy::disallowed_methods, reason = "the command on the real system")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const SMALL: &str = "[topology]\nspines = 2\nleaves = 2\nhosts = 4\ncore = \"20 Gbit/s\"\n[workload]\nsizes = \"20 KB\"\nload = 0.5\n\
                     [run]\nwarm_up = \"100 us\"\nflows = 300\n";

fn command(args: &[&str], at: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    command.arg("fabric").args(args).current_dir(at).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn fabric(args: &[&str], at: &Path) -> Output {
    command(args, at).output().expect("the binary runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A folder with a small scenario.
fn ground() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("small.toml"), SMALL).unwrap();
    folder
}

/// Ctrl-C, as soon as `is_time`.
fn interrupt(mut child: Child, is_time: impl Fn(&Child) -> bool) -> Output {
    let began = Instant::now();
    while !is_time(&child) {
        assert!(began.elapsed() < Duration::from_secs(100), "it is never time");
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait_with_output().unwrap()
}

/// Whether it has had a second of processor time, which its first flows take little of.
fn has_worked(child: &Child) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    // proc(5): the 14th field is `utime`, in hundredths of a second; the second one, in brackets, may have spaces.
    let after_name = stat.rsplit_once(')').unwrap().1;
    after_name.split_whitespace().nth(11).unwrap().parse::<u64>().unwrap() >= 100
}

fn json_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    files.sort();
    files
}

#[test]
fn a_run_says_what_came_of_it() {
    let ground = ground();
    let output = fabric(&["run", "small.toml", "--seed", "7", "--flows", "flows.csv", "--out", "out"], ground.path());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.starts_with("drill(2,1), seed 7: 300 of 300 flows"), "{said}");
    for line in ["completion time", "p99.9 ", "n/a", "hop ", "up 0", "duplicate ACKs", "uplinks ", "digest "] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let flows = fs::read_to_string(ground.path().join("flows.csv")).unwrap();
    assert_eq!(flows.lines().count(), 301);
    let outcome: Value = serde_json::from_slice(&fs::read(ground.path().join("out/outcome.json")).unwrap()).unwrap();
    assert!(said.contains(outcome["digest"].as_str().unwrap()));
    let again = fabric(&["run", "small.toml", "--set", "seed=7", "--json"], ground.path());
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(
        (&again["digest"], &again["times"], &again["ended"]),
        (&outcome["digest"], &outcome["times"], &"finished".into())
    );
    assert_eq!((&again["times"]["fct_us"]["p99"], again["times"]["flows"].as_u64()), (&Value::Null, Some(300)));
}

#[test]
fn the_same_flows_begin_whatever_the_balancer() {
    let ground = ground();
    let starts = |scheme: &str| {
        let set = format!("balance.scheme={scheme}");
        let output =
            fabric(&["run", "small.toml", "--set", &set, "--set", "run.flows=500", "--flows", "f.csv"], ground.path());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let flows = fs::read_to_string(ground.path().join("f.csv")).unwrap();
        flows.lines().skip(1).map(|line| line.splitn(5, ',').take(4).collect::<Vec<_>>().join(",")).collect::<Vec<_>>()
    };
    let ecmp = starts("ecmp");
    assert_eq!((ecmp.len(), &ecmp), (500, &starts("rr")));
}

#[test]
fn what_is_wrong_is_said_before_anything_is_run() {
    let ground = ground();
    let refused = |args: &[&str], said: &str| {
        let output = fabric(args, ground.path());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{args:?}: {}", stderr(&output));
    };
    refused(&["run", "none.toml"], "none.toml: No such file");
    refused(
        &["run", "small.toml", "--set", "balance.scheme=dril"],
        "small.toml: balance.scheme: there is no scheme called `dril`; did you mean `drill`?",
    );
    refused(&["run", "small.toml", "--set", "load"], "write balance.scheme=ecmp");
    refused(
        &["run", "small.toml", "--seed", "1", "--set", "seed=2"],
        "seed: is set twice on the command line: leave one of them out",
    );
    refused(&["run", "small.toml", "--set", "workload.load=1.5"], "workload.load: must be a number of 0 to 1");
    refused(&["sweep", "small.toml", "--vary", "balance.scheme=ecmp,dril"], "did you mean `drill`?");
    refused(&["sweep", "small.toml", "--shard", "5/4"], "write 1/4, 2/4, 3/4 or 4/4");
    refused(&["sweep", "small.toml", "--seeds", "0"], "0 is not in 1..=10000");
    refused(&["merge", "none"], "none: No such file");
    refused(&["figure", "fig6", "fig99"], "there is no figure called `fig99`");
    assert!(json_files(&ground.path().join("sweep-out")).is_empty());
}

#[test]
fn a_run_that_does_not_drain_says_so() {
    let ground = ground();
    let partial = |sets: &[&str], why: &str| {
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let output = fabric(&["run", "small.toml"].into_iter().chain(sets).collect::<Vec<_>>(), ground.path());
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
        assert!(stdout(&output).contains("PARTIAL (out of time)"), "{}", stdout(&output));
        output
    };
    let elephants =
        ["workload.kind=stride", "workload.stride=4", "workload.bytes=10 MB", "workload.sizes=", "workload.load="];
    let elephants = [&elephants[..], &["run.warm_up=", "run.flows=", "run.time=1 ms"]].concat();
    let output = partial(&elephants, "so this is partial: what is to be sent takes longer: give it more time");
    assert!(stderr(&output).contains("after 1 ms of simulated time ([run] time) 0 of "), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("PARTIAL (out of time): flows that wait for a timer have not ended and are missing")
    );
    // Nothing to drain: flows that never begin, or not yet.
    partial(&["run.time=200 us"], " of 300 flows began after the warm-up: give it more time, or ask for fewer flows");
    let idle = ["workload.load=1e-9", "run.time=1 s", "switch.sample_every=1 ms"];
    let output = partial(&idle, "0 were under way, so this is partial: 0 of 300 flows began after the warm-up");
    assert!(!stderr(&output).contains("drain") && !stdout(&output).contains("timer have"), "{}", stderr(&output));
    fs::write(ground.path().join("trace.csv"), "1,0,4,1000\n2000000,0,4,1000\n").unwrap();
    let trace = ["workload.kind=trace", "workload.file=trace.csv", "workload.sizes=", "workload.load="];
    let late = [&trace[..], &["run.warm_up=", "run.time=1 s", "switch.sample_every=1 ms"]].concat();
    partial(&late, "1 of the trace's 2 flows begin later: give it more time");
    // Two leaves without a way between them, from the middle of the run on, and for good.
    let links = "failures.links=[\"leaf0 - spine0\", \"leaf0 - spine1\"]";
    let cut = [links, "failures.at=300 us", "run.time=5 ms"];
    let output =
        partial(&cut, "there is no way from host0 to host4 while leaf0 - spine0, leaf0 - spine1 are down, and flows");
    assert!(!stderr(&output).contains("drain") && stdout(&output).contains("no way       for "), "{}", stderr(&output));
    let closed = |kind: &str, more: &[&str]| {
        let kind = format!("workload.kind={kind}");
        let set = [&[kind.as_str(), "workload.sizes=", "workload.load="][..], more].concat();
        let set = set.iter().flat_map(|set| ["--set", set]);
        let output = fabric(&["run", "small.toml"].into_iter().chain(set).collect::<Vec<_>>(), ground.path());
        assert_eq!(output.status.code(), Some(1));
        stderr(&output)
    };
    let said = closed("ring", &["run.warm_up=10 s"]);
    assert!(said.contains("no flow began after the warm-up of 10 s"), "{said}");
    // Of how many, where there are not as many as are asked for, and where nobody knows.
    let soon = ["run.flows=", "run.warm_up=", "run.time=50 us"];
    let said = closed("ring", &soon);
    assert!(said.contains(" of 112 flows had ended"), "8 hosts, 14 steps: {said}");
    let said = closed("permutation", &[&soon[..], &["workload.mice=1 KB"]].concat());
    assert!(said.contains("simulated time ([run] time) 0 flows had ended"), "{said}");
}

#[test]
fn an_interrupted_run_shows_what_it_has() {
    let ground = ground();
    let child =
        command(&["run", "small.toml", "--set", "run.flows=1000000000", "--json"], ground.path()).spawn().unwrap();
    let output = interrupt(child, has_worked);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("interrupted after "), "{}", stderr(&output));
    assert!(stderr(&output).contains("so this is partial: "), "{}", stderr(&output));
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outcome["ended"], "interrupted");
    assert!(outcome["flows"]["finished"].as_u64().unwrap() > 0, "{outcome}");
    let child = command(&["run", "small.toml", "--set", "run.flows=1000000000"], ground.path()).spawn().unwrap();
    let said = stdout(&interrupt(child, has_worked));
    let biased = "PARTIAL (interrupted): flows that wait for a timer have not ended and are missing, so means and quantiles are too low";
    assert!(said.contains(biased), "{said}");
}

#[test]
fn a_sweep_goes_on_where_it_was_interrupted() {
    let ground = ground();
    let args =
        ["sweep", "small.toml", "--vary", "balance.scheme=ecmp,drill", "--seeds", "6", "--set", "run.flows=2000"];
    let child = command(&[&args[..], &["--threads", "1"]].concat(), ground.path()).spawn().unwrap();
    let out = ground.path().join("sweep-out");
    let output = interrupt(child, |_| json_files(&out).len() >= 2);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains(" of 12 runs, 1 at once, about ") && said.contains("the same command goes on"), "{said}");
    let there = json_files(&out);
    assert!((2..12).contains(&there.len()), "{there:?}");
    let before: Vec<_> = there.iter().map(|path| fs::metadata(path).unwrap().modified().unwrap()).collect();
    let output = fabric(&args, ground.path());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains(&format!(
        "{} runs made in sweep-out, {} had been there",
        12 - there.len(),
        there.len()
    )));
    let after: Vec<_> = there.iter().map(|path| fs::metadata(path).unwrap().modified().unwrap()).collect();
    assert_eq!(before, after, "what was there is not run again");
    let table = stdout(&output);
    let lines: Vec<&str> = table.lines().collect();
    let starts = |line: &str, cells: [&str; 2]| line.split_whitespace().take(2).eq(cells);
    assert!(starts(lines[0], ["balance.scheme", "seeds"]) && lines[0].contains("mean FCT us"), "{table}");
    assert!(starts(lines[1], ["ecmp", "6"]) && starts(lines[2], ["drill", "6"]), "{table}");
    assert_eq!(fs::read_to_string(out.join("cells.csv")).unwrap().lines().count(), 13);
    // Shards, in folders of their own, are the same.
    for shard in ["1/2", "2/2"] {
        let folder = shard.replace('/', "-of-");
        let output = fabric(&[&args[..], &["--shard", shard, "--out", &folder]].concat(), ground.path());
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), ""), "{}", stderr(&output));
    }
    let half = fabric(&["merge", "2-of-2"], ground.path());
    assert_eq!((half.status.code(), stdout(&half).is_empty()), (Some(1), false), "{}", stderr(&half));
    assert!(stderr(&half).contains("6 of 12 runs are missing: the table is of the others"), "{}", stderr(&half));
    let merged = fabric(&["merge", "1-of-2", "2-of-2", "--csv", "all.csv"], ground.path());
    assert_eq!((merged.status.code(), stderr(&merged).as_str()), (Some(0), ""));
    assert_eq!(stdout(&merged).lines().take(3).collect::<Vec<_>>(), lines[..3]);
    let json = fabric(&["merge", "sweep-out", "--json"], ground.path());
    let rows: Vec<Value> = stdout(&json).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows[1]["vary"][0], serde_json::json!(["balance.scheme", "drill"]));
    assert!(rows[1]["measures"]["fct_mean_us"]["ratio"]["interval"][1].as_f64().unwrap() > 0.0);
    // Another scenario does not go into the folder of this one.
    let other = fabric(&["sweep", "small.toml", "--vary", "balance.scheme=ecmp,drill"], ground.path());
    assert_eq!(other.status.code(), Some(2));
    assert!(stderr(&other).contains("is of another scenario"), "{}", stderr(&other));
    assert_eq!(json_files(&out).len(), 12);
}

#[test]
fn what_there_is_is_listed() {
    let text = stdout(&fabric(&["list"], Path::new(".")));
    for name in ["drill", "facebook_hadoop", "fat-tree", "all-to-all"] {
        assert!(text.contains(name), "{text}");
    }
    let json = stdout(&fabric(&["list", "--json"], Path::new(".")));
    assert!(json.lines().all(|line| serde_json::from_str::<Value>(line).is_ok_and(|row| row["about"].is_string())));
}

#[test]
fn vectors_are_written_and_counted() {
    let ground = tempfile::tempdir().unwrap();
    let at = ground.path();
    let switch = ["vectors", "switch", "--ports", "8", "--decisions", "500", "--seed", "7", "--out", "a.bin"];
    let counted = fabric(&[&switch[..], &["--json"]].concat(), at);
    assert_eq!(counted.status.code(), Some(0), "{}", stderr(&counted));
    let summary: Value = serde_json::from_slice(&counted.stdout).unwrap();
    let words = fs::metadata(at.join("a.bin")).unwrap().len() / 8;
    assert_eq!(summary["decisions"].as_u64(), Some(500));
    // One generator of three words for the two ports that are drawn; ten words for each clock.
    assert_eq!(summary["clocks"].as_u64(), Some((words - 3) / 10));

    let components = fabric(&["vectors", "components", "--flows", "100", "--out", "b.bin"], at);
    assert_eq!((components.status.code(), stderr(&components).as_str()), (Some(0), ""));
    assert_eq!(stdout(&components), "100 flows and their components, in 105 clocks\n");
    assert_eq!(fs::metadata(at.join("b.bin")).unwrap().len(), 105 * 6 * 8);

    // More ports than the hardware can have; a folder that is not there.
    assert_eq!(fabric(&["vectors", "switch", "--ports", "65", "--out", "c.bin"], at).status.code(), Some(2));
    let nowhere = fabric(&["vectors", "components", "--out", "nowhere/d.bin"], at);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(stderr(&nowhere).contains("nowhere/d.bin"), "{}", stderr(&nowhere));
}
