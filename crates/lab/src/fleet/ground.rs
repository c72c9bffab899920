//! The servers of a fleet on loopback: Kafka, ClickHouse of 25.8 and Debian's.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// What is run, as it was when this was built; [`Ground::open`] writes it beside what it starts.
const FILES: [(&str, &str); 3] = [
    ("services.sh", include_str!("../../../../scripts/services.sh")),
    ("services/certificates.sh", include_str!("../../../../scripts/services/certificates.sh")),
    ("services/current.py", include_str!("../../../../scripts/services/current.py")),
];

/// How long anything may take to be there on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// A folder with everything that servers write.
pub(super) struct Ground {
    dir: PathBuf,
    pub(super) weirgate: PathBuf,
}

impl Ground {
    /// An empty one.
    pub(super) fn open(dir: &Path, weirgate: &Path) -> Result<Self> {
        let _ = fs::remove_dir_all(dir);
        for (name, text) in FILES {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
            fs::write(path, text)?;
        }
        Ok(Self { dir: dir.to_owned(), weirgate: weirgate.to_owned() })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// `start`, `stop` or `kill` for `kafka` or `clickhouse`; what it prints.
    pub(super) fn services(&self, action: &str, name: &str) -> Result<String> {
        services(&self.path("services.sh"), action, &self.path("servers"), name)
    }

    /// Makes an authority in `dir`, and a server's certificate: `ca.pem`, `server.key` and `server.crt`.
    pub(super) fn certificates(&self, dir: &Path) -> Result<()> {
        printed(Command::new("sh").arg(self.path("services/certificates.sh")).arg(dir)).map(drop)
    }

    /// Starts a server; what it says behind `key`.
    pub(super) fn start(&self, name: &str, key: &str) -> Result<String> {
        said(&self.services("start", name)?, key)
    }

    /// Makes a topic of so many partitions.
    pub(super) fn topic(&self, brokers: &str, topic: &str, partitions: u32) -> Result<()> {
        let jars = tools()?.join("kafka/lib/*");
        let mut java = Command::new("java");
        java.arg("-cp").arg(jars).args([
            "org.apache.kafka.tools.TopicCommand",
            "--create",
            "--bootstrap-server",
            brokers,
        ]);
        java.args(["--topic", topic, "--replication-factor", "1", "--partitions", &partitions.to_string()]);
        printed(&mut java).map(drop).context("cannot make a topic")
    }

    /// Bytes of a topic's log on the broker's disk.
    pub(super) fn log_bytes(&self, topic: &str) -> Result<u64> {
        let mut bytes = 0;
        for entry in fs::read_dir(self.path("servers/kafka/data"))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.rsplit_once('-').is_none_or(|(of, _)| of != topic) {
                continue;
            }
            for file in fs::read_dir(entry.path())? {
                let file = file?;
                if file.path().extension().is_some_and(|extension| extension == "log") {
                    bytes += file.metadata()?.len();
                }
            }
        }
        Ok(bytes)
    }

    /// `weirgate` with these arguments, to its end; what it printed and said.
    pub(super) fn weirgate(&self, args: &[&str]) -> Result<(String, String)> {
        let output = Command::new(&self.weirgate).args(args).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "weirgate {}: {said}", args.join(" "));
        Ok((String::from_utf8_lossy(&output.stdout).into_owned(), said))
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for name in ["kafka", "clickhouse"] {
            let _ = self.services("kill", name);
        }
    }
}

/// The action of scripts/services.sh for the server `name` below `folder`; what it prints.
fn services(script: &Path, action: &str, folder: &Path, name: &str) -> Result<String> {
    let mut command = Command::new("bash");
    printed(command.arg(script).arg(action).arg(folder).arg(name)).with_context(|| format!("{action} {name}"))
}

/// What is behind `key` in what scripts/services.sh has printed.
fn said(printed: &str, key: &str) -> Result<String> {
    let value = printed.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    Ok(value.with_context(|| format!("no {key} in {printed}"))?.to_owned())
}

/// ClickHouse's server of 25.8, which reads Kafka, with its data in a folder; killed with this value.
pub(super) struct Current {
    script: PathBuf,
    folder: PathBuf,
    pub(super) url: String,
}

impl Current {
    /// Starts it on what `folder` holds.
    pub(super) fn start(ground: &Ground, folder: &str) -> Result<Self> {
        let (script, folder) = (ground.path("services.sh"), ground.path(folder));
        let schemas = folder.join("current/data/format_schemas/weirgate/v1");
        fs::create_dir_all(&schemas)?;
        fs::write(schemas.join("sockets.proto"), ground.weirgate(&["store", "proto"])?.0)?;
        fs::write(schemas.join("tallies.proto"), ground.weirgate(&["store", "proto", "--tallies"])?.0)?;
        let url = said(&services(&script, "start", &folder, "current")?, "CLICKHOUSE_CURRENT")?;
        Ok(Self { script, folder, url })
    }

    pub(super) fn pid(&self) -> Result<u32> {
        let pid = fs::read_to_string(self.folder.join("current/pid"))?;
        pid.trim().parse().with_context(|| format!("no process is `{}`", pid.trim()))
    }

    pub(super) fn ask(&self, sql: &str) -> Result<String> {
        ask(&self.url, sql)
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let _ = services(&self.script, "kill", &self.folder, "current");
    }
}

/// The answer of the ClickHouse at `url`, in lines of tabs.
pub(super) fn ask(url: &str, sql: &str) -> Result<String> {
    let mut curl = Command::new("curl")
        .args(["-sS", "--noproxy", "*", "--fail-with-body", "--data-binary", "@-", url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run curl: run `make setup`")?;
    // Who is not there reads nothing; what curl says tells more than a broken pipe.
    let _ = curl.stdin.take().context("its input is a pipe")?.write_all(sql.as_bytes());
    let output = curl.wait_with_output()?;
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}{answer}", sql.chars().take(200).collect::<String>());
    Ok(answer)
}

/// The number that `sql` answers with.
pub(super) fn count(url: &str, sql: &str) -> Result<u64> {
    let answer = ask(url, sql)?;
    answer.trim().parse().with_context(|| format!("{sql}: `{answer}`"))
}

/// Asks `is` until it says so; what it waited.
pub(super) fn until(what: &str, mut is: impl FnMut() -> Result<bool>) -> Result<Duration> {
    let start = Instant::now();
    let mut last = None;
    while start.elapsed() < PATIENCE {
        match is() {
            Ok(true) => return Ok(start.elapsed()),
            Ok(false) => {}
            Err(error) => last = Some(error),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    match last {
        Some(error) => Err(error.context(format!("{what}: not within {PATIENCE:?}"))),
        None => bail!("{what}: not within {PATIENCE:?}"),
    }
}

fn tools() -> Result<PathBuf> {
    if let Some(tools) = std::env::var_os("WEIRGATE_TOOLS") {
        return Ok(tools.into());
    }
    Ok(Path::new(&std::env::var_os("HOME").context("there is no HOME")?).join(".cache/weirgate/tools"))
}

fn printed(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} ({})", said.trim(), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
