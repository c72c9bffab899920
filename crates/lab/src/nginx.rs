//! A real nginx from Debian, run in the foreground from a folder of its own, in a namespace and a cgroup of its own.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use weirgate_linux::netns::Netns;
use weirgate_units::Bytes;

/// A running nginx; ended on drop.
#[derive(Debug)]
pub(crate) struct Nginx {
    child: Child,
    dir: PathBuf,
}

/// What the access log keeps of a response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Logged {
    /// Bytes of the body.
    pub(crate) body: u64,
    /// `$request_time`: until the last byte was handed to the kernel, not until it arrived.
    pub(crate) handed_over_s: f64,
}

impl Nginx {
    /// Serves `files` (name, size; bytes that do not compress) on `listen`, with the process in `cgroup` from its first moment.
    pub(crate) fn start(
        dir: &Path,
        ns: &Netns,
        cgroup: &Path,
        listen: &[SocketAddr],
        files: &[(String, Bytes)],
    ) -> Result<Self> {
        let root = dir.join("root");
        fs::create_dir_all(&root)?;
        for (name, size) in files {
            let mut state = size.as_u64() | 1;
            let mut byte = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            };
            let body: Vec<u8> = (0..size.as_u64()).map(|_| byte()).collect();
            fs::write(root.join(name), body)?;
        }
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$1/cgroup.procs\" && shift && exec nginx \"$@\"", "nginx"]).arg(cgroup);
        Self::launch(dir, ns, &configuration(dir, listen), command)
    }

    /// Runs `command`, which is nginx, in the foreground with a configuration that names `dir` for all that it writes.
    pub(crate) fn launch(dir: &Path, ns: &Netns, configuration: &str, mut command: Command) -> Result<Self> {
        let conf = dir.join("nginx.conf");
        fs::File::create(&conf)?.write_all(configuration.as_bytes())?;
        command.arg("-p").arg(dir).arg("-c").arg(&conf).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(dir.join("stderr.log"))?);
        let child = ns.within(|| command.spawn())?.context("cannot start nginx: run `make setup`")?;
        let mut nginx = Self { child, dir: dir.to_owned() };
        nginx.wait_until_up()?;
        Ok(nginx)
    }

    fn wait_until_up(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        // It writes that before it begins a worker.
        while !self.dir.join("nginx.pid").exists() || self.workers()?.is_empty() {
            if let Some(status) = self.child.try_wait()? {
                let why = fs::read_to_string(self.dir.join("error.log")).unwrap_or_default();
                let stderr = fs::read_to_string(self.dir.join("stderr.log")).unwrap_or_default();
                bail!("nginx ended with {status}: {stderr}{why}");
            }
            if Instant::now() > deadline {
                bail!("nginx wrote no pid file, or began no worker, within 10 s");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The access log, once the server has ended and so has written all of it.
    pub(crate) fn stop_and_read_log(mut self) -> Result<Vec<Logged>> {
        self.stop();
        let text = fs::read_to_string(self.dir.join("access.log")).context("nginx's access log")?;
        Ok(text.lines().filter_map(parse_line).collect())
    }

    /// Lines of the error log at level alert or worse.
    pub(crate) fn alerts(&self) -> usize {
        let text = fs::read_to_string(self.dir.join("error.log")).unwrap_or_default();
        text.lines().filter(|l| ["[alert]", "[crit]", "[emerg]"].iter().any(|level| l.contains(level))).count()
    }

    /// Its worker, of which it has one.
    pub(crate) fn worker(&self) -> Result<u32> {
        self.workers()?.first().copied().context("nginx has no worker")
    }

    /// Has it read its configuration again, and waits until a worker has begun by that; the others end when they have answered.
    pub(crate) fn reload(&self) -> Result<()> {
        let before = self.workers()?;
        let master = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(master, rustix::process::Signal::HUP)?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.workers()?.iter().all(|worker| before.contains(worker)) {
            if Instant::now() > deadline {
                bail!("nginx began no worker within 10 s of a reload");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn workers(&self) -> Result<Vec<u32>> {
        let master = self.child.id();
        let children = fs::read_to_string(format!("/proc/{master}/task/{master}/children"))?;
        children.split_whitespace().map(|pid| pid.parse().context("a process id")).collect()
    }

    fn stop(&mut self) {
        let pid = self.child.id() as i32;
        if let Some(pid) = rustix::process::Pid::from_raw(pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.stop();
    }
}

fn parse_line(line: &str) -> Option<Logged> {
    let (body, time) = line.split_once(' ')?;
    Some(Logged { body: body.parse().ok()?, handed_over_s: time.trim().parse().ok()? })
}

fn configuration(dir: &Path, listen: &[SocketAddr]) -> String {
    let dir = dir.display();
    let listen: String = listen.iter().map(|l| format!("    listen {l} backlog=4096;\n")).collect();
    format!(
        "daemon off;
master_process on;
worker_processes 1;
user root;
pid {dir}/nginx.pid;
error_log {dir}/error.log warn;
events {{ worker_connections 8192; }}
http {{
  log_format weirgate '$body_bytes_sent $request_time';
  access_log {dir}/access.log weirgate buffer=64k;
  default_type application/octet-stream;
  sendfile on;
  tcp_nopush on;
  keepalive_timeout 1h;
  keepalive_requests 1000000;
  client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
  server {{
{listen}    root {dir}/root;
  }}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_read() {
        assert_eq!(parse_line("20000 0.004"), Some(Logged { body: 20_000, handed_over_s: 0.004 }));
        assert_eq!(parse_line("20000 -"), None);
    }
}
