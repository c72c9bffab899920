//! Files over all paths, as people send them: the command on both sides, over several addresses of the loopback.
#![allow(clippy::disallowed_methods, reason = "the command on the real system")]

mod keys;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use keys::{key, text, weirgate};

/// A folder with the keys of both sides, what is sent, and where it goes.
struct Bench {
    dir: tempfile::TempDir,
    sender: String,
    receiver: String,
}

/// A receiver; ended with this value.
struct Receiver {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
    address: String,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("in")).unwrap();
        let [sender, receiver] = ["sender.key", "receiver.key"].map(|name| key(&dir.path().join(name)));
        Self { dir, sender, receiver }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn receive(&self, allow: &str, more: &[&str]) -> Receiver {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let any = ["0.0.0.0", "[::]"].map(|any| format!("{any}:{port}"));
        let mut command = weirgate(&["receive", "--allow", allow, "--listen", &any[0], "--listen", &any[1]]);
        command.args(more).arg("--key").arg(self.path("receiver.key")).arg(self.path("in"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.starts_with(&format!("key {}, listening on", self.receiver)), "{line}");
        Receiver { child, said, address }
    }

    fn send(&self, to: &Receiver, files: &[&Path], more: &[&str]) -> Command {
        let mut command = weirgate(&["send", "--peer", &self.receiver]);
        command.args(["--from", "127.0.0.2", "--from", "127.0.0.3", "--from", "127.0.0.4"]);
        command.args(more).arg("--key").arg(self.path("sender.key")).args(files).arg(&to.address);
        command
    }

    fn sent(&self, to: &Receiver, files: &[&Path], more: &[&str]) -> Output {
        self.send(to, files, more).output().unwrap()
    }
}

impl Receiver {
    fn rest(mut self) -> String {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        rest
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _has_ended = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes that do not repeat.
fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| byte()).collect()
}

#[test]
fn a_folder_arrives_as_it_is_over_three_paths() {
    let bench = Bench::new();
    let tree = bench.path("tree");
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    for (at, (name, len)) in [("a", 0), ("b", 1), ("deep/c", 100_000), ("deep/er/d", 8_000_000)].into_iter().enumerate()
    {
        fs::write(tree.join(name), bytes(len, at as u64)).unwrap();
    }
    for n in 0..300 {
        fs::write(tree.join(format!("deep/{n}")), bytes(n * 10, n as u64)).unwrap();
    }
    fs::set_permissions(tree.join("a"), fs::Permissions::from_mode(0o640)).unwrap();
    let receiver = bench.receive(&bench.sender, &["--once"]);
    let output = bench.sent(&receiver, &[&tree], &["--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["files"], 304);
    let paths = said["paths"].as_array().unwrap();
    assert!(paths.len() == 3 && paths.iter().all(|path| path["bytes_out"].as_u64() > Some(100_000)), "{said}");
    let rest = receiver.rest();
    assert!(rest.starts_with("304 of 304 files, "), "{rest}");
    let same = Command::new("diff").arg("-r").arg(&tree).arg(bench.path("in/tree")).output().unwrap();
    assert!(same.status.success(), "{}", text(&same.stdout));
    let (from, to) = (fs::metadata(tree.join("a")).unwrap(), fs::metadata(bench.path("in/tree/a")).unwrap());
    assert_eq!((from.mode(), from.mtime(), from.mtime_nsec()), (to.mode(), to.mtime(), to.mtime_nsec()));
}

#[test]
fn a_transfer_whose_receiver_was_killed_goes_on_where_it_was() {
    let bench = Bench::new();
    let (file, len) = (bench.path("large"), 400_000_000);
    fs::write(&file, bytes(len, 1)).unwrap();
    let mut receiver = bench.receive(&bench.sender, &[]);
    let mut sending = bench.send(&receiver, &[&file], &[]).stderr(Stdio::piped()).spawn().unwrap();
    let have = bench.path("in/.large.weirgate-have");
    while !have.exists() {
        assert!(sending.try_wait().unwrap().is_none(), "it is over before anything was noted");
        thread::sleep(Duration::from_millis(5));
    }
    receiver.child.kill().unwrap();
    sending.kill().unwrap();
    sending.wait().unwrap();
    assert!(!bench.path("in/large").exists());
    let receiver = bench.receive(&bench.sender, &["--once"]);
    let output = bench.sent(&receiver, &[&file], &["--resume"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rest = receiver.rest();
    let came: usize = rest.split_whitespace().nth(4).unwrap().parse().unwrap();
    assert!(came > 0 && came < len, "{came} bytes of {len} came again: {rest}");
    assert!(fs::read(&file).unwrap() == fs::read(bench.path("in/large")).unwrap());
    // Once more: nothing is to be sent.
    let receiver = bench.receive(&bench.sender, &["--once"]);
    assert!(bench.sent(&receiver, &[&file], &["--resume"]).status.success());
    let rest = receiver.rest();
    let came: usize = rest.split_whitespace().nth(4).unwrap().parse().unwrap();
    assert!(came < 2_000, "what is said, and a datagram: {rest}");
}

#[test]
fn a_file_arrives_over_ipv6_and_a_part_of_another_transfer_is_not_written_to() {
    let bench = Bench::new();
    let file = bench.path("six");
    fs::write(&file, bytes(3_000_000, 6)).unwrap();
    let mut receiver = bench.receive(&bench.sender, &["--once"]);
    receiver.address = receiver.address.replace("127.0.0.1", "[::1]");
    let send = |receiver: &Receiver| {
        let mut command = weirgate(&["send", "--peer", &bench.receiver, "--from", "::1", "--key"]);
        command.arg(bench.path("sender.key")).arg(&file).arg(&receiver.address).output().unwrap()
    };
    let output = send(&receiver);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read(&file).unwrap() == fs::read(bench.path("in/six")).unwrap());
    assert!(receiver.child.wait().unwrap().success());
    // Somebody else writes it now.
    let part = fs::File::create(bench.path("in/.six.weirgate-part")).unwrap();
    rustix::fs::flock(&part, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let mut receiver = bench.receive(&bench.sender, &["--once"]);
    let output = bench.sent(&receiver, &[&file], &[]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("another transfer writes it"), "{said}");
    assert_eq!(receiver.child.wait().unwrap().code(), Some(1), "a transfer that failed");
}

#[test]
fn strangers_are_refused_and_what_cannot_be_done_is_said() {
    let bench = Bench::new();
    let file = bench.path("file");
    fs::write(&file, b"text").unwrap();
    let stranger = "0".repeat(64);
    // Who is not allowed gets no answer.
    let receiver = bench.receive(&stranger, &[]);
    let mut refused = bench.send(&receiver, &[&file], &[]).spawn().unwrap();
    thread::sleep(Duration::from_secs(1));
    assert!(refused.try_wait().unwrap().is_none());
    refused.kill().unwrap();
    refused.wait().unwrap();
    drop(receiver);
    let receiver = bench.receive(&bench.sender, &[]);
    let fails = |files: &[&Path], more: &[&str], code: i32, wanted: &str| {
        let output = bench.sent(&receiver, files, more);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(wanted), "{:?}: {said}", output.status.code());
    };
    fails(&[&bench.path("missing")], &[], 2, "missing: No such file or directory");
    fails(&[&file, &file], &[], 2, "two of these files would both be file");
    fails(&[&file], &["--from", "nowhere0"], 2, "nowhere0: no such interface");
    // A folder is in the file's place there.
    fs::create_dir(bench.path("in/file")).unwrap();
    fails(&[&file], &[], 1, "file: Is a directory");
    fs::remove_dir(bench.path("in/file")).unwrap();
    assert!(bench.sent(&receiver, &[&file], &[]).status.success());
    assert_eq!(fs::read(bench.path("in/file")).unwrap(), b"text");
    assert_eq!(fs::read_dir(bench.path("in")).unwrap().count(), 1, "nothing else is left");
}
