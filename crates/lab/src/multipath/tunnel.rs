//! One TCP connection of a program that knows nothing of it, through `weirgate tunnel`.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weirgate_linux::tcp::{self, Options as Tcp};

use super::ground::Ground;
use super::{tcp as load, transfer};
use crate::experiment::Options;
use crate::process::{Killed, scheduled};

/// Where the client's programs connect to, and where that goes to.
const ENTRY: u16 = 4_748;
const SINK: u16 = 5_001;

/// The far device's address, within the tunnel.
pub(super) const FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

/// Both sides; they end with this value.
pub(super) struct Tunnel<'a> {
    ground: &'a Ground,
    /// What both say.
    logs: [PathBuf; 2],
    sink: TcpListener,
    serving: Killed,
    opening: Killed,
}

impl<'a> Tunnel<'a> {
    /// Over these uplinks.
    pub(super) fn new(options: &Options, ground: &'a Ground, uplinks: &[usize], dir: &Path) -> Result<Self> {
        Self::start(options, ground, uplinks, dir, [&[], &[]])
    }

    /// The same with devices, for packets.
    pub(super) fn with_devices(
        options: &Options,
        ground: &'a Ground,
        uplinks: &[usize],
        dir: &Path,
        is_sprayed: bool,
    ) -> Result<Self> {
        let (near, far, reach) = ("10.9.0.2/24", format!("{FAR}/24"), format!("{FAR}/32"));
        let sprayed: &[&str] = if is_sprayed { &["--spray"] } else { &[] };
        let near = [&["--tun", "tunnel", "--tun-address", near], sprayed].concat();
        let far = ["--tun", "tunnel", "--tun-address", &far, "--reach", &reach];
        Self::start(options, ground, uplinks, dir, [&near, &far])
    }

    fn start(options: &Options, ground: &'a Ground, uplinks: &[usize], dir: &Path, more: [&[&str]; 2]) -> Result<Self> {
        let place = dir.join("tunnel");
        fs::create_dir_all(&place)?;
        let (near, far) = (transfer::key(options, &place.join("near"))?, transfer::key(options, &place.join("far"))?);
        let sink = ground.server.netns().within(|| tcp::listen(ground.at(SINK), &Tcp::default()))??;
        let mut serve = Command::new(&options.weirgate);
        serve.args(["tunnel", "serve", "--allow", &near, "--listen", &ground.at(4_747).to_string(), "--key"]);
        serve.arg(place.join("far"));
        // The sink is the far side's own.
        serve.args(["--reach", &format!("{}/{}", ground.host(), if ground.host().is_ipv4() { 32 } else { 128 })]);
        serve.args(more[1]);
        let logs = ["serve.log", "open.log"].map(|name| place.join(name));
        let serving = ground.server.netns().within(|| begin(&mut serve, &logs[0]))??;
        let mut open = Command::new(&options.weirgate);
        open.args(["tunnel", "open", "--peer", &far, "--to", &ground.at(SINK).to_string(), "--key"]);
        open.arg(place.join("near"));
        for at in uplinks {
            open.args(["--from", &Ground::device(*at)]);
        }
        open.args(more[0]).arg(ground.host().to_string());
        let opening = ground.client.netns().within(|| begin(&mut open, &logs[1]))??;
        Ok(Self { ground, logs, sink, serving, opening })
    }

    /// How often one of the two took a path for dead.
    pub(super) fn downs(&self) -> Result<u64> {
        let mut downs = 0;
        for log in &self.logs {
            downs += fs::read_to_string(log)?.matches("nothing comes back on the path").count() as u64;
        }
        Ok(downs)
    }

    /// The two ends of one more connection.
    pub(super) fn connect(&self) -> Result<(TcpStream, TcpStream)> {
        let entry = SocketAddr::from(([127, 0, 0, 1], ENTRY));
        let near = self.ground.client.netns().within(|| TcpStream::connect(entry))??;
        Ok((near, load::accept(&self.sink)?))
    }

    /// What one connection gets, in Mbit/s, and processor time of both sides for each Gbit.
    pub(super) fn run(&self, seconds: u64) -> Result<(f64, f64)> {
        let (near, far) = self.connect()?;
        let cpu = || -> Result<Duration> { Ok(scheduled(self.serving.0.id())?.0 + scheduled(self.opening.0.id())?.0) };
        let before = cpu()?;
        let mbit = load::carry(&[near], &[far], 0, seconds)?;
        let spent = (cpu()? - before).as_secs_f64();
        Ok((mbit, spent / (mbit * seconds as f64 / 1e3)))
    }
}

/// Starts one, and waits until it says that it is there.
fn begin(command: &mut Command, log: &Path) -> Result<Killed> {
    command.env("WEIRGATE_LOG", "info").stdout(Stdio::piped()).stderr(File::create(log)?);
    let mut child = Killed(command.spawn().context("cannot start weirgate tunnel")?);
    let said = child.0.stdout.take().context("its output")?;
    let read = BufReader::new(said).read_line(&mut String::new())?;
    ensure!(read > 0, "weirgate tunnel: {}", fs::read_to_string(log)?);
    Ok(child)
}
