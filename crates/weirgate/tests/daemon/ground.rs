//! A network namespace and a daemon in it, with everything it touches in a folder of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use weirgate_linux::bpffs;
use weirgate_linux::netns::Netns;

/// A machine under load is slow; a hang is longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A network namespace with its loopback up, gone with the value.
pub(crate) struct Space {
    pub(crate) name: String,
    pub(crate) ns: Netns,
}

impl Space {
    pub(crate) fn make() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: network namespaces and kernel programs need root");
            return None;
        }
        // Else the first daemon that applies would mount one, and take it from the others as it stops.
        let _ = bpffs::ensure(bpffs::DEFAULT.as_ref());
        Some(Self::named(&format!("wgd-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))))
    }

    /// One of that name.
    pub(crate) fn named(name: &str) -> Self {
        ip(&["netns", "add", name]);
        ip(&["-n", name, "link", "set", "lo", "up"]);
        Self { name: name.to_owned(), ns: Netns::by_name(name).unwrap() }
    }

    /// A listener on a free port, and a connection to it: both ends.
    pub(crate) fn listen(&self) -> TcpListener {
        self.listen_on(0)
    }

    pub(crate) fn listen_on(&self, port: u16) -> TcpListener {
        self.ns.within(|| TcpListener::bind(("127.0.0.1", port)).unwrap()).unwrap()
    }

    pub(crate) fn connect(&self, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let address = listener.local_addr().unwrap();
        let client = self.ns.within(|| TcpStream::connect(address).unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

pub(crate) fn ip(args: &[&str]) {
    assert!(Command::new("ip").args(args).status().unwrap().success(), "ip {args:?}");
}

/// Held to be written while there is what every `undo` removes: those of other tests would.
pub(crate) static LEFT: RwLock<()> = RwLock::new(());

/// A daemon with everything it touches in a directory of its own.
pub(crate) struct Daemon {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) child: Child,
    pub(crate) pins: PathBuf,
}

impl Daemon {
    pub(crate) fn start(space: &Space, sections: &str) -> Self {
        Self::start_as(&[], &[&space.name], "", sections)
    }

    /// Which looks at the namespaces of these names, whether they are there or not.
    pub(crate) fn start_in(namespaces: &[&str], sections: &str) -> Self {
        Self::start_as(&[], namespaces, "", sections)
    }

    /// With more keys in the section `[store]`.
    pub(crate) fn start_on(space: &Space, store: &str, sections: &str) -> Self {
        Self::start_as(&[], &[&space.name], store, sections)
    }

    /// The daemon as the last argument of the command `within`, which takes something away from it.
    pub(crate) fn start_within(within: &[&str], space: &Space, sections: &str) -> Self {
        Self::start_as(within, &[&space.name], "", sections)
    }

    fn start_as(within: &[&str], namespaces: &[&str], store: &str, sections: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        let pins = PathBuf::from(format!("/sys/fs/bpf/weirgate-test-{}", namespaces[0]));
        let text = format!(
            "[host]\nname = \"test\"\nstate = \"{at}/state\"\n[http]\nlisten = \"127.0.0.1:0\"\n\
             [control]\nsocket = \"{at}/control.sock\"\n[store]\nflush = \"1 s\"\n{store}\
             [sockets]\ninterval = \"500 ms\"\nnamespaces = {namespaces:?}\n[tune]\npins = \"{}\"\nround = \"2 s\"\n{sections}",
            pins.display()
        );
        std::fs::write(dir.path().join("weirgate.toml"), text).unwrap();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let mut daemon = Self { child: spawn(within, dir.path(), log), dir, pins };
        daemon.wait();
        daemon
    }

    /// The same daemon once more, after [`Self::stop`].
    pub(crate) fn start_again(&mut self) {
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        self.child = spawn(&[], self.dir.path(), log);
        self.wait();
    }

    fn wait(&mut self) {
        let began = Instant::now();
        while !self.dir.path().join("http-address").exists() {
            assert!(self.child.try_wait().unwrap().is_none(), "it ended:\n{}", self.log());
            assert!(began.elapsed() < PATIENCE, "it does not start:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    pub(crate) fn journal(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("state/journal.jsonl")).unwrap_or_default()
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let _nothing_is_left = args.contains(&"undo").then(|| LEFT.read().unwrap_or_else(PoisonError::into_inner));
        self.run_beside(args)
    }

    /// The same, also where [`LEFT`] is held.
    pub(crate) fn run_beside(&self, args: &[&str]) -> Output {
        let config = self.dir.path().join("weirgate.toml");
        Command::new(env!("CARGO_BIN_EXE_weirgate")).args(args).arg("-c").arg(config).output().unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> String {
        let address = std::fs::read_to_string(self.dir.path().join("http-address")).unwrap();
        let address: SocketAddr = address.trim().parse().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    pub(crate) fn json(&self, path: &str) -> serde_json::Value {
        serde_json::from_str(&self.get(path)).unwrap()
    }

    /// SIGTERM, and the exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.run(&["undo"]);
        assert!(std::thread::panicking() || !self.pins.exists(), "pins are left: {}", self.log());
    }
}

fn spawn(within: &[&str], dir: &Path, log: std::fs::File) -> Child {
    let command = within.iter().copied().chain([env!("CARGO_BIN_EXE_weirgate"), "run", "-c"]);
    let command: Vec<&str> = command.collect();
    Command::new(command[0])
        .args(&command[1..])
        .arg(dir.join("weirgate.toml"))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
