//! Files over all paths, as people send them: the command on both sides, over several addresses of the loopback.
#![allow(clippy::disallowed_methods, reason = "the command on the real system")]

mod keys;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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
        self.receive_into("in", allow, more)
    }

    fn receive_into(&self, dir: &str, allow: &str, more: &[&str]) -> Receiver {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let any = ["0.0.0.0", "[::]"].map(|any| format!("{any}:{port}"));
        let mut command = weirgate(&["receive", "--allow", allow, "--listen", &any[0], "--listen", &any[1]]);
        command.args(more).arg("--key").arg(self.path("receiver.key")).arg(self.path(dir));
        let warnings = fs::File::create(self.path("warnings")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(warnings).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let begin = [format!("key {}, listening on", self.receiver), format!("{{\"key\":\"{}\"", self.receiver)];
        assert!(begin.iter().any(|begin| line.starts_with(begin)), "{line}");
        Receiver { child, said, address }
    }

    fn send(&self, to: &Receiver, files: &[&Path], more: &[&str]) -> Command {
        let mut command = weirgate(&["send", "--peer", &self.receiver]);
        command.args(["--from", "127.0.0.2", "--from", "127.0.0.3", "--from", "127.0.0.4"]);
        // The host last, wherever options are.
        command.args(files).args(more).arg("--key").arg(self.path("sender.key")).arg(&to.address);
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
    fs::create_dir_all(tree.join("empty/within")).unwrap();
    let modes = [("a", 0o640), ("deep/er", 0o550), ("empty/within", 0o700), ("empty", 0o510), (".", 0o711)];
    for (name, mode) in modes {
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
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
    for (name, mode) in modes {
        assert_eq!(fs::metadata(bench.path("in/tree").join(name)).unwrap().mode() & 0o777, mode, "{name}");
    }
    let (from, to) = (fs::metadata(tree.join("a")).unwrap(), fs::metadata(bench.path("in/tree/a")).unwrap());
    assert_eq!((from.mode(), from.mtime(), from.mtime_nsec()), (to.mode(), to.mtime(), to.mtime_nsec()));
    for tree in [tree, bench.path("in/tree")] {
        fs::set_permissions(tree.join("deep/er"), fs::Permissions::from_mode(0o700)).unwrap();
    }
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
    let mut said = BufReader::new(sending.stderr.take().unwrap()).lines();
    let said = said.next().expect("it says so").unwrap();
    assert!(said.contains(" for 3 s, on any path: it is given up after 30 s"), "{said}");
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
fn folders_alone_arrive_and_nobody_there_is_no_success() {
    let bench = Bench::new();
    let empty = bench.path("empty");
    fs::create_dir(&empty).unwrap();
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o750)).unwrap();
    let mut receiver = bench.receive(&bench.sender, &["--once"]);
    let output = bench.sent(&receiver, &[&empty], &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::metadata(bench.path("in/empty")).unwrap().mode() & 0o777, 0o750);
    assert!(receiver.child.wait().unwrap().success());
    // Once more, to nobody; from where nothing can be sent that is said as well.
    receiver.address = receiver.address.replace("127.0.0.1", "192.0.2.1");
    let (began, output) = (Instant::now(), bench.sent(&receiver, &[&empty], &[]));
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("nobody listens at 192.0.2.1"), "{said}");
    assert!(said.contains("; from 127.0.0.2: ") && said.contains(&format!("--allow {}", bench.sender)), "{said}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn a_transfer_whose_sender_was_killed_or_interrupted_goes_on_at_once() {
    let bench = Bench::new();
    let (file, len) = (bench.path("large"), 400_000_000);
    fs::write(&file, bytes(len, 3)).unwrap();
    let mut receiver = bench.receive(&bench.sender, &["--once"]);
    let begin =
        |receiver: &Receiver| bench.send(receiver, &[&file], &["--resume"]).stderr(Stdio::piped()).spawn().unwrap();
    let noted = || fs::metadata(bench.path("in/.large.weirgate-have")).and_then(|meta| meta.modified()).ok();
    let end_once_noted = |mut sending: Child, signal| {
        let before = noted();
        while noted() == before {
            assert!(sending.try_wait().unwrap().is_none(), "it is over before anything was noted");
            thread::sleep(Duration::from_millis(5));
        }
        rustix::process::kill_process(rustix::process::Pid::from_child(&sending), signal).unwrap();
        let ended = sending.wait_with_output().unwrap();
        assert!(!ended.status.success());
        text(&ended.stderr)
    };
    end_once_noted(begin(&receiver), rustix::process::Signal::KILL);
    // Of the one that was killed nobody has told the receiver, and no other one may write its file until that is seen.
    let second = begin(&receiver);
    let mut killed = String::new();
    receiver.said.read_line(&mut killed).unwrap();
    assert!(killed.trim_end().ends_with("its caller has called again"), "{killed}");
    let said = end_once_noted(second, rustix::process::Signal::INT);
    assert!(said.contains("it was interrupted; --resume goes on with it"), "{said}");
    assert_eq!(receiver.child.wait().unwrap().code(), Some(1), "that was its first transfer with an end");
    let interrupted = receiver.rest();
    assert!(interrupted.lines().count() == 1 && interrupted.contains("it was interrupted"), "{interrupted}");
    receiver = bench.receive(&bench.sender, &["--once"]);
    let output = bench.sent(&receiver, &[&file], &["--resume"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rest = receiver.rest();
    let came: usize = rest.split_whitespace().nth(4).unwrap().parse().unwrap();
    assert!(came < len, "{came} bytes of {len} came again: {rest}");
    assert!(fs::read(&file).unwrap() == fs::read(bench.path("in/large")).unwrap());
}

/// A NAT between senders and a receiver, which gives each of them another port after so many datagrams, and somebody on the way who sends
/// again what has passed, and changes bits of it.
struct Way {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    /// How many ports it has given.
    thread: Option<thread::JoinHandle<usize>>,
}

impl Way {
    const OTHER_PORT_EVERY: usize = 400;

    fn to(receiver: &str) -> Self {
        let receiver: SocketAddr = receiver.parse().unwrap();
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        front.set_nonblocking(true).unwrap();
        let (address, is_over) = (front.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let ends = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let port = || {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.set_nonblocking(true).unwrap();
                socket
            };
            let (mut given, mut passed) = (0, 0);
            let mut ways: Vec<(SocketAddr, UdpSocket)> = Vec::new();
            let mut bytes = vec![0; 65_536];
            while !ends.load(Ordering::Relaxed) {
                let mut is_idle = true;
                while let Ok((len, from)) = front.recv_from(&mut bytes) {
                    is_idle = false;
                    passed += 1;
                    let at = ways.iter().position(|(of, _)| *of == from).unwrap_or_else(|| {
                        given += 1;
                        ways.push((from, port()));
                        ways.len() - 1
                    });
                    if passed % Self::OTHER_PORT_EVERY == 0 {
                        given += 1;
                        ways[at].1 = port();
                    }
                    // A full buffer loses what a link would.
                    let _ = ways[at].1.send_to(&bytes[..len], receiver);
                    if passed % 5 == 0 {
                        let _ = ways[at].1.send_to(&bytes[..len], receiver);
                    }
                    if passed % 7 == 0 {
                        bytes[passed % len] ^= 1 << (passed % 8);
                        let _ = ways[at].1.send_to(&bytes[..len], receiver);
                    }
                }
                for (of, socket) in &ways {
                    while let Ok(len) = socket.recv(&mut bytes) {
                        is_idle = false;
                        let _ = front.send_to(&bytes[..len], of);
                    }
                }
                if is_idle {
                    thread::sleep(Duration::from_micros(200));
                }
            }
            given
        });
        Self { address, is_over, thread: Some(thread) }
    }

    fn end(mut self) -> usize {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

#[test]
fn neither_a_nat_that_changes_ports_nor_who_changes_and_repeats_datagrams_harms_a_transfer() {
    let bench = Bench::new();
    let file = bench.path("file");
    fs::write(&file, bytes(6_000_000, 21)).unwrap();
    let mut receiver = bench.receive(&bench.sender, &["--once"]);
    let way = Way::to(&receiver.address);
    receiver.address = way.address.to_string();
    let output = bench.sent(&receiver, &[&file], &["--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let given = way.end();
    assert!(given >= 3 + 4, "{given} ports for three paths");
    assert!(fs::read(&file).unwrap() == fs::read(bench.path("in/file")).unwrap());
    let rest = receiver.rest();
    assert!(rest.starts_with("1 of 1 file, "), "{rest}");
}

#[test]
fn what_comes_is_said_in_json() {
    let bench = Bench::new();
    for (name, len) in [("one", 10), ("two", 200_000)] {
        fs::write(bench.path(name), bytes(len, 7)).unwrap();
    }
    let receiver = bench.receive(&bench.sender, &["--once", "--json", "--fsync"]);
    assert!(bench.sent(&receiver, &[&bench.path("one"), &bench.path("two")], &[]).status.success());
    let rest = receiver.rest();
    let lines: Vec<serde_json::Value> = rest.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3, "{rest}");
    let mut files: Vec<_> = lines[..2].iter().map(|line| (line["file"].as_str(), line["bytes"].as_u64())).collect();
    files.sort_unstable();
    assert_eq!(files, [(Some("one"), Some(10)), (Some("two"), Some(200_000))]);
    let last = &lines[2];
    assert_eq!((last["files"].as_u64(), last["of"].as_u64()), (Some(2), Some(2)));
    assert!(lines.iter().all(|line| line["from"] == *bench.sender && line["error"].is_null()), "{rest}");
}

#[test]
fn a_file_that_changes_is_refused_and_the_others_arrive() {
    let bench = Bench::new();
    let (busy, quiet) = (bench.path("busy"), bench.path("quiet"));
    fs::write(&busy, bytes(50_000_000, 1)).unwrap();
    fs::write(&quiet, bytes(1_000_000, 2)).unwrap();
    let receiver = bench.receive(&bench.sender, &["--once"]);
    let mut sending = bench.send(&receiver, &[&busy, &quiet], &[]).stderr(Stdio::piped()).spawn().unwrap();
    let mut end = fs::File::options().append(true).open(&busy).unwrap();
    while sending.try_wait().unwrap().is_none() {
        end.write_all(b"more").unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    let output = sending.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("1 of 2 files: ") && said.contains("busy: "), "{said}");
    let rest = receiver.rest();
    assert!(rest.starts_with("1 of 2 files, "), "{rest}");
    assert!(fs::read(&quiet).unwrap() == fs::read(bench.path("in/quiet")).unwrap());
    assert_eq!(fs::read_dir(bench.path("in")).unwrap().count(), 1, "nothing else is left");
}

/// A file system in memory; gone with this value.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: mounting needs root");
            return None;
        }
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&at).status().unwrap();
        assert!(mounted.success(), "{}", at.display());
        Some(Self(at))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn where_there_is_no_room_that_is_said_and_nothing_is_put_in_place() {
    let bench = Bench::new();
    let tree = bench.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("large"), bytes(3_000_000, 1)).unwrap();
    fs::create_dir(bench.path("in/tree")).unwrap();
    let Some(small) = Small::mount(bench.path("in/tree")) else { return };
    let left = || fs::read_dir(&small.0).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    // Seen before anything is sent.
    let receiver = bench.receive_into("in/tree", &bench.sender, &[]);
    let output = bench.sent(&receiver, &[&tree.join("large")], &[]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("3000000 bytes are to be received"), "{said}");
    assert!(left().is_empty(), "{:?}", left());
    drop(receiver);
    // Seen when it is full: the folder that was named has room, but the one within has not.
    let receiver = bench.receive(&bench.sender, &[]);
    let output = bench.sent(&receiver, &[&tree], &[]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("tree/large: No space left on device"), "{said}");
    assert!(left().iter().all(|name| name.to_string_lossy().starts_with(".large.weirgate-")), "{:?}", left());
}

#[test]
fn strangers_are_refused_and_what_cannot_be_done_is_said() {
    let bench = Bench::new();
    let file = bench.path("file");
    fs::write(&file, b"text").unwrap();
    let stranger = "0".repeat(64);
    // Who is not allowed gets no answer, and both sides say by what it would.
    let receiver = bench.receive(&stranger, &[]);
    let (began, output) = (Instant::now(), bench.sent(&receiver, &[&file], &[]));
    let said = text(&output.stderr);
    let wanted =
        format!("nobody listens at {}, or does not know this host's key (--allow {})", receiver.address, bench.sender);
    assert!(output.status.code() == Some(1) && said.contains(&wanted), "{said}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let warnings = fs::read_to_string(bench.path("warnings")).unwrap();
    assert_eq!(warnings.matches(&format!("--allow {}", bench.sender)).count(), 1, "once, of many calls: {warnings}");
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
    fails(&[&file], &["--from", "127.0.0.2"], 2, "127.0.0.2 of this host: it is named twice");
    // A folder is in the file's place there; the others arrive.
    fs::create_dir(bench.path("in/file")).unwrap();
    let other = bench.path("other");
    fs::write(&other, bytes(3_000_000, 1)).unwrap();
    let why = "1 of 2 files: file: it cannot be put in its place at the receiver: Is a directory";
    fails(&[&file, &other], &[], 1, why);
    assert_eq!(fs::read(bench.path("in/other")).unwrap(), bytes(3_000_000, 1));
    fs::remove_dir(bench.path("in/file")).unwrap();
    assert!(bench.sent(&receiver, &[&file], &[]).status.success());
    assert_eq!(fs::read(bench.path("in/file")).unwrap(), b"text");
    assert_eq!(fs::read_dir(bench.path("in")).unwrap().count(), 2, "nothing else is left");
}
