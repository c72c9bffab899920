//! A ClickHouse of this test's own, on loopback, with its data in a folder that goes with it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A server, by what answers.
pub(crate) struct Server {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) url: String,
    runs: Runs,
}

/// What runs.
enum Runs {
    /// A server of scripts/services.sh.
    Service(&'static str),
    /// The engine as a library.
    Library(Child),
}

const DEBIAN: &str = "clickhouse";
const CURRENT: &str = "current";

impl Server {
    /// Debian's; `None` where it cannot be had, which was said then.
    pub(crate) fn debian() -> Option<Self> {
        Self::service(DEBIAN, "CLICKHOUSE=", None)
    }

    /// Debian's, which is told `configuration` as well.
    pub(crate) fn debian_with(configuration: &str) -> Option<Self> {
        Self::service(DEBIAN, "CLICKHOUSE=", Some(configuration))
    }

    /// That of 25.8; `None` where it cannot be had, which was said then.
    pub(crate) fn current() -> Option<Self> {
        Self::service(CURRENT, "CLICKHOUSE_CURRENT=", None)
    }

    /// That of 25.8, which is told `configuration` as well.
    pub(crate) fn current_with(configuration: &str) -> Option<Self> {
        Self::service(CURRENT, "CLICKHOUSE_CURRENT=", Some(configuration))
    }

    /// The newest engine, of which there is a library, and the server of 25.8; none where they cannot be had, which was said then.
    pub(crate) fn engines() -> Vec<Self> {
        tools().map_or_else(Vec::new, |tools| [Self::library(&tools)].into_iter().chain(Self::current()).collect())
    }

    fn service(name: &'static str, key: &str, configuration: Option<&str>) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        if let Some(configuration) = configuration {
            let more = folder.path().join(name).join("config.d");
            std::fs::create_dir_all(&more).unwrap();
            std::fs::write(more.join("more.xml"), configuration).unwrap();
        }
        let (folder, url) = start(folder, name, key)?;
        Some(Self { folder, url, runs: Runs::Service(name) })
    }

    fn library(tools: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut engine = Command::new(tools.join("bin/python"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clickhouse/engine.py"))
            .arg(folder.path().join("data"))
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(engine.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { folder, url: format!("http://127.0.0.1:{}", port.trim()), runs: Runs::Library(engine) }
    }

    /// The folder of files that it may read.
    pub(crate) fn files(&self) -> PathBuf {
        match self.runs {
            Runs::Service(name) => self.folder.path().join(name).join("data/user_files"),
            Runs::Library(_) => self.folder.path().to_owned(),
        }
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
        let schemas = match self.runs {
            Runs::Service(name) => self.folder.path().join(name).join("data/format_schemas"),
            Runs::Library(_) => self.folder.path().to_owned(),
        };
        let dir = schemas.join("weirgate/v1");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("sockets.proto"), done(&weirgate(&["store", "proto"]))).unwrap();
        std::fs::write(dir.join("tallies.proto"), done(&weirgate(&["store", "proto", "--tallies"]))).unwrap();
    }

    /// `weirgate store init` on it; where `args` say nothing of it, rows stay for longer than these tests' dates will be in use.
    pub(crate) fn init(&self, args: &[&str]) -> Output {
        let is_debian = matches!(self.runs, Runs::Service(DEBIAN));
        let stays: &[&str] = if is_debian || args.contains(&"--ttl") { &[] } else { &["--ttl", "3650 d"] };
        weirgate(&[&["store", "init", "--url", &self.url], args, stays].concat())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        match &mut self.runs {
            Runs::Service(name) => drop(services("kill", self.folder.path(), name)),
            Runs::Library(engine) => {
                let _ = engine.kill();
                let _ = engine.wait();
            }
        }
    }
}

/// Another server of scripts/services.sh; killed with this value.
pub(crate) struct Service {
    name: &'static str,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) address: String,
}

impl Service {
    /// Apache Kafka, in plaintext; `None` where it cannot be had, which was said then.
    pub(crate) fn kafka() -> Option<Self> {
        Self::start("kafka", "KAFKA=")
    }

    /// Apache ZooKeeper; `None` where it cannot be had, which was said then.
    pub(crate) fn zookeeper() -> Option<Self> {
        Self::start("zookeeper", "ZOOKEEPER=")
    }

    fn start(name: &'static str, key: &str) -> Option<Self> {
        let (folder, address) = start(tempfile::tempdir().unwrap(), name, key)?;
        Some(Self { name, folder, address })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        services("kill", self.folder.path(), self.name);
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
    println!("SKIPPED: no ClickHouse in {}: run `make setup`", engines.display());
    None
}

/// Starts `name` in `folder`, which is its own, and what it prints after `key`.
fn start(folder: tempfile::TempDir, name: &str, key: &str) -> Option<(tempfile::TempDir, String)> {
    let output = services("start", folder.path(), name);
    let said = text(&output.stderr);
    match output.status.code() {
        Some(0) => {}
        Some(77) => {
            println!("SKIPPED: {}", said.trim());
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

/// The verdicts of `weirgate doctor` on `what`.
pub(crate) fn doctor(config: &str, what: &str) -> Vec<String> {
    let output = weirgate(&["doctor", "--json", "-c", config]);
    let checks = text(&output.stdout);
    println!("{checks}");
    let checks = checks.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    checks.filter(|check| check["what"] == what).map(|check| check["verdict"].as_str().unwrap().to_owned()).collect()
}
