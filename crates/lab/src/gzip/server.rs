//! An nginx with one of the libraries, and what it costs.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weirgate_linux::netns::Netns;

use crate::nginx::Nginx;
use crate::process::{free_port, scheduled};

/// Who compresses.
#[derive(Clone, Debug)]
pub(super) struct Library {
    /// What it is called.
    pub(super) name: &'static str,
    /// What is loaded in zlib's place.
    preload: Option<PathBuf>,
    mode: &'static str,
    /// nginx's `gzip_comp_level`.
    level: u32,
    /// Where its workers run.
    core: usize,
    /// What it finds in its environment.
    told: Vec<(&'static str, OsString)>,
}

impl Library {
    /// Those that there are; zlib is the first. `weirgate`: the program, beside which the libraries lie.
    pub(super) fn all(weirgate: &Path) -> Result<Vec<Self>> {
        let beside = weirgate.parent().context("the program is in no folder")?;
        let places = [beside.join("libweirgate_z.so"), PathBuf::from("/usr/lib/weirgate/libweirgate_z.so")];
        let ours = places.into_iter().find(|path| path.exists()).context("no libweirgate_z.so: run `make build`")?;
        let of = |name, preload, mode| Self { name, preload, mode, level: 6, core: 0, told: Vec::new() };
        let mut all =
            vec![of("zlib", None, ""), of("same ratio", Some(ours.clone()), "same"), of("fast", Some(ours), "fast")];
        let rival = beside.join("../libz/release/libweirgate_rival.so");
        if rival.exists() {
            all.push(of("zlib-rs", Some(rival.canonicalize()?), ""));
        }
        Ok(all)
    }

    /// A folder of a server with it; nginx's configuration has no blanks in paths.
    pub(super) fn folder(&self, server: &str) -> String {
        format!("{server}-{}", self.name.replace(' ', "-"))
    }

    /// At another level.
    pub(super) fn at_level(&self, level: u32) -> Self {
        Self { level, ..self.clone() }
    }

    /// On another core than the first one.
    pub(super) fn on_core(&self, core: usize) -> Self {
        Self { core, ..self.clone() }
    }

    /// With another variable in its environment.
    pub(super) fn with(&self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        let mut with = self.clone();
        with.told.push((name, value.as_ref().to_owned()));
        with
    }

    /// Whether it is Weirgate's.
    pub(super) fn is_ours(&self) -> bool {
        !self.mode.is_empty()
    }

    /// Whether it is the one that the others are measured by.
    pub(super) fn is_stock(&self) -> bool {
        self.preload.is_none()
    }
}

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    nginx: Nginx,
    worker: u32,
    /// Where it listens on the loopback, and where it does by TLS.
    pub(super) port: u16,
    pub(super) secure_port: u16,
}

impl Server {
    /// Serves what is in `root`.
    pub(super) fn start(dir: &Path, library: &Library, root: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let key = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(dir)
            .output()
            .context("cannot run openssl: run `make setup`")?;
        ensure!(key.status.success(), "openssl: {}", String::from_utf8_lossy(&key.stderr));
        let (port, secure_port) = (free_port()?, free_port()?);
        let shown = dir.display();
        let server = format!(
            "  server {{
    listen 127.0.0.1:{port} backlog=4096;
    listen 127.0.0.1:{secure_port} ssl backlog=4096;
    ssl_certificate {shown}/cert.pem;
    ssl_certificate_key {shown}/key.pem;
    root {};
  }}
",
            root.display()
        );
        Self::launch(dir, library, &configuration(dir, library, 1, &server), (port, secure_port))
    }

    /// A server of what another one on `upstream` sends.
    pub(super) fn proxy(dir: &Path, library: &Library, upstream: u16) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let port = free_port()?;
        let server = format!(
            "  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://127.0.0.1:{upstream}; }}
    location /at-once {{ proxy_pass http://127.0.0.1:{upstream}; proxy_buffering off; }}
  }}
"
        );
        Self::launch(dir, library, &configuration(dir, library, 1, &server), (port, port))
    }

    /// As [`start`](Self::start), with so many workers and without TLS.
    pub(super) fn workers(dir: &Path, library: &Library, root: &Path, workers: usize) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let port = free_port()?;
        let server = format!("  server {{ listen 127.0.0.1:{port} backlog=4096; root {}; }}\n", root.display());
        Self::launch(dir, library, &configuration(dir, library, workers, &server), (port, port))
    }

    fn launch(dir: &Path, library: &Library, configuration: &str, (port, secure_port): (u16, u16)) -> Result<Self> {
        let mut command = Command::new("nginx");
        if let Some(path) = &library.preload {
            command.env("LD_PRELOAD", path).env("WEIRGATE_Z_MODE", library.mode).envs(library.told.iter().cloned());
        }
        let nginx = Nginx::launch(dir, &Netns::current()?, configuration, command)?;
        let worker = nginx.worker()?;
        if let Some(name) = library.preload.as_deref().and_then(Path::file_name).and_then(OsStr::to_str) {
            let maps = fs::read_to_string(format!("/proc/{worker}/maps"))?;
            ensure!(maps.contains(name), "nginx has not loaded {name}");
        }
        Ok(Self { nginx, worker, port, secure_port })
    }

    /// The worker's process.
    pub(super) const fn worker(&self) -> u32 {
        self.worker
    }

    /// Of the worker since it began: processor time, and time in which it waited for a processor.
    pub(super) fn cpu(&self) -> Result<(Duration, Duration)> {
        scheduled(self.worker)
    }

    /// Its page faults since then, those that needed no disk.
    pub(super) fn faults(&self) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.worker))?;
        // After the name, which may have blanks in it: state is the third field, minflt the tenth.
        let (_, fields) = text.rsplit_once(')').context("a stat without a name")?;
        fields.split_whitespace().nth(7).context("a short stat")?.parse().context("a number")
    }

    /// Has it read its configuration again, and waits until a worker has begun by that.
    pub(super) fn reload(&self) -> Result<()> {
        self.nginx.reload()
    }

    /// Lines of its log that say that something is wrong.
    pub(super) fn alerts(&self) -> usize {
        self.nginx.alerts()
    }
}

/// Debian's nginx.conf in what matters here, with gzip as most switch it on.
fn configuration(dir: &Path, library: &Library, workers: usize, server: &str) -> String {
    let (dir, level, mask) = (dir.display(), library.level, 1 << library.core);
    format!(
        "daemon off;
worker_processes {workers};
worker_cpu_affinity {mask:b};
user root;
pid {dir}/nginx.pid;
error_log {dir}/error.log warn;
events {{ worker_connections 768; }}
http {{
  sendfile on;
  tcp_nopush on;
  types_hash_max_size 2048;
  include /etc/nginx/mime.types;
  default_type application/octet-stream;
  keepalive_requests 1000000;
  access_log {dir}/access.log;
  ssl_protocols TLSv1.2 TLSv1.3;
  gzip on;
  gzip_comp_level {level};
  gzip_types text/plain application/javascript application/json;
  client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
{server}}}
"
    )
}
