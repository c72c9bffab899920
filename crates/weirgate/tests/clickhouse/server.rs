//! A ClickHouse of this test's own, on loopback, with its data in a folder that goes with it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A server, by what answers.
pub(crate) struct Server {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) url: String,
    engine: Option<Child>,
}

impl Server {
    /// Debian's; `None` where it cannot be had, which was said then.
    pub(crate) fn debian() -> Option<Self> {
        let (folder, url) = start(tempfile::tempdir().unwrap(), "clickhouse", "CLICKHOUSE=")?;
        Some(Self { folder, url, engine: None })
    }

    /// Debian's, which is told `configuration` as well.
    pub(crate) fn debian_with(configuration: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let more = folder.path().join("clickhouse/config.d");
        std::fs::create_dir_all(&more).unwrap();
        std::fs::write(more.join("more.xml"), configuration).unwrap();
        let (folder, url) = start(folder, "clickhouse", "CLICKHOUSE=")?;
        Some(Self { folder, url, engine: None })
    }

    /// The current engine and the one of 25.8; none where they cannot be had, which was said then.
    pub(crate) fn engines() -> Vec<Self> {
        tools().map_or_else(Vec::new, |tools| vec![Self::engine(&tools, false), Self::engine(&tools, true)])
    }

    /// The engine of 25.8, which reads Kafka as a library: later ones have no threads for that.
    pub(crate) fn that_reads_kafka() -> Option<Self> {
        tools().map(|tools| Self::engine(&tools, true))
    }

    fn engine(tools: &Path, reads_kafka: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut python = Command::new(tools.join("bin/python"));
        if reads_kafka {
            python.env("PYTHONPATH", tools.join("kafka"));
        }
        let mut engine = python
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clickhouse/engine.py"))
            .arg(folder.path().join("data"))
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(engine.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { folder, url: format!("http://127.0.0.1:{}", port.trim()), engine: Some(engine) }
    }

    /// The answer to `sql`, in lines of tabs; panics where there is none.
    pub(crate) fn ask(&self, sql: &str) -> String {
        let mut curl = Command::new("curl")
            .args(["-sS", "--noproxy", "*", "--fail-with-body", "--data-binary", "@-", &self.url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        curl.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
        let output = curl.wait_with_output().unwrap();
        assert!(output.status.success(), "{sql}\n{}", text(&output.stdout));
        text(&output.stdout)
    }

    /// Puts the schemas of messages where the engine looks for them.
    pub(crate) fn put_schemas(&self) {
        let dir = self.folder.path().join("weirgate/v1");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("sockets.proto"), done(&weirgate(&["store", "proto"]))).unwrap();
        std::fs::write(dir.join("tallies.proto"), done(&weirgate(&["store", "proto", "--tallies"]))).unwrap();
    }

    /// `weirgate store init` on it; where `args` say nothing of it, rows stay for longer than these tests' dates will be in use.
    pub(crate) fn init(&self, args: &[&str]) -> Output {
        let stays: &[&str] = if self.engine.is_some() && !args.contains(&"--ttl") { &["--ttl", "3650 d"] } else { &[] };
        weirgate(&[&["store", "init", "--url", &self.url], args, stays].concat())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        match &mut self.engine {
            Some(engine) => {
                let _ = engine.kill();
                let _ = engine.wait();
            }
            None => {
                services("kill", self.folder.path(), "clickhouse");
            }
        }
    }
}

/// Apache Kafka, in plaintext.
pub(crate) struct Broker {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) address: String,
}

impl Broker {
    /// `None` where it cannot be had, which was said then.
    pub(crate) fn start() -> Option<Self> {
        let (folder, address) = start(tempfile::tempdir().unwrap(), "kafka", "KAFKA=")?;
        Some(Self { folder, address })
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        services("kill", self.folder.path(), "kafka");
    }
}

/// Apache ZooKeeper.
pub(crate) struct Keeper {
    folder: tempfile::TempDir,
    pub(crate) address: String,
}

impl Keeper {
    /// `None` where it cannot be had, which was said then.
    pub(crate) fn start() -> Option<Self> {
        let (folder, address) = start(tempfile::tempdir().unwrap(), "zookeeper", "ZOOKEEPER=")?;
        Some(Self { folder, address })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        services("kill", self.folder.path(), "zookeeper");
    }
}

/// Where scripts/setup.sh has put the engines.
fn tools() -> Option<PathBuf> {
    let tools = std::env::var_os("WEIRGATE_TOOLS").map(PathBuf::from);
    let tools = tools.unwrap_or_else(|| Path::new(&std::env::var_os("HOME").unwrap()).join(".cache/weirgate/tools"));
    let engines = tools.join("chdb");
    if engines.join("version").exists() {
        return Some(engines);
    }
    println!("skipped 1 test: no ClickHouse in {}: run `make setup`", engines.display());
    None
}

/// Starts `name` in `folder`, which is its own, and what it prints after `key`.
fn start(folder: tempfile::TempDir, name: &str, key: &str) -> Option<(tempfile::TempDir, String)> {
    let output = services("start", folder.path(), name);
    let said = text(&output.stderr);
    match output.status.code() {
        Some(0) => {}
        Some(77) => {
            println!("skipped 1 test: {}", said.trim());
            return None;
        }
        _ => panic!("{said}"),
    }
    let printed = text(&output.stdout);
    let value = printed.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_else(|| panic!("{printed}"));
    Some((folder, value.to_owned()))
}

fn services(action: &str, folder: &Path, name: &str) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/services.sh");
    Command::new(script).arg(action).arg(folder).arg(name).output().unwrap()
}

pub(crate) fn weirgate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weirgate")).args(args).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command printed that was done.
pub(crate) fn done(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// What a command said that exited with `code`.
pub(crate) fn said(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stderr)
}
