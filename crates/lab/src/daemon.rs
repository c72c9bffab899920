//! The real daemon, as an experiment runs it: a process of its own, with everything it touches inside the experiment.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A running `weirgate run`; asked to end on drop, and its traces undone.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Option<Child>,
    weirgate: PathBuf,
    dir: PathBuf,
}

impl Daemon {
    /// Starts `weirgate run` with everything that it writes under `dir`. `sections` is the rest of its configuration:
    /// what it looks at and what it decides.
    pub(crate) fn start(weirgate: &Path, dir: &Path, sections: &str) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let shown = dir.display();
        let config = format!(
            "[host]\nname = \"lab\"\npop = \"lab\"\nstate = \"{shown}/state\"\n\n[http]\nlisten = \"127.0.0.1:0\"\n\n\
             [control]\nsocket = \"{shown}/control.sock\"\n\n[store]\ndir = \"{shown}/store\"\n\n{sections}"
        );
        let path = dir.join("weirgate.toml");
        fs::write(&path, config)?;
        let log = fs::File::create(dir.join("daemon.log"))?;
        let child = Command::new(weirgate)
            .args(["run", "-c"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", weirgate.display()))?;
        let mut daemon = Self { child: Some(child), weirgate: weirgate.to_owned(), dir: dir.to_owned() };
        daemon.wait_until_up()?;
        Ok(daemon)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Its store.
    pub(crate) fn store(&self) -> PathBuf {
        self.dir.join("store")
    }

    /// Where its page is.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        let text =
            fs::read_to_string(self.dir.join("http-address")).context("the daemon has written no http-address")?;
        text.trim().parse().with_context(|| format!("http-address says `{}`", text.trim()))
    }

    /// The body of `GET path`.
    pub(crate) fn fetch(&self, path: &str) -> Result<String> {
        get(self.address()?, path)
    }

    fn wait_until_up(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.child.as_mut().map(Child::try_wait).transpose()?.flatten() {
                self.child = None;
                bail!("the daemon ended with {status}:\n{}", self.log());
            }
            if self.fetch("/healthz").is_ok() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the daemon does not answer after 20 s:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What it logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("daemon.log")).unwrap_or_default()
    }

    /// Ends it as the kernel does for want of memory: what it holds is lost, what it made stays.
    pub(crate) fn kill(mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Asks it to end, as a service manager does, and waits: its store is complete then.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        if let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if let Some(status) = child.try_wait()? {
                if !status.success() {
                    bail!("the daemon ended with {status}:\n{}", self.log());
                }
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill()?;
        child.wait()?;
        let config = self.dir.join("weirgate.toml");
        let _ = Command::new(&self.weirgate).args(["undo", "-c"]).arg(&config).stdout(Stdio::null()).status();
        bail!("the daemon did not end within 20 s of SIGTERM:\n{}", self.log())
    }
}

/// The body of `GET path` of the server at `address`, which says 200.
pub(crate) fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8(answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("its answer has no head")?;
    if !head.starts_with("HTTP/1.1 200") {
        bail!("GET {path}: {}", head.lines().next().unwrap_or_default());
    }
    Ok(body.to_owned())
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Err(e) = self.stop() {
            tracing::warn!("{e:#}");
        }
    }
}
