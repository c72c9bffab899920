//! Other programs that use several paths at once, where they are installed: Aggligator's tunnel (`agg-tunnel`, of the crate
//! `aggligator-util`), many TCP links as one ordered stream, and TQUIC's client and server (`tquic_client`, `tquic_server`, of
//! `tquic_tools`), multipath QUIC with its scheduler of the least round-trip time. TQUIC's can only fetch: its links are reversed.
//! Aggligator's speed test is not asked: what it says that it sent is still to be delivered, megabytes of it, and where it only fetches it
//! says 0.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weirgate_linux::tcp::{Options, listen};

use super::ground::Ground;
use super::tcp;
use crate::net::Namespace;
use crate::process::Killed;
use crate::report::number;

/// What came of one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Peer {
    /// It is not installed.
    #[default]
    Missing,
    /// It was not done in twice the time.
    Stalled,
    /// What it carried, in Mbit/s.
    Mbit(f64),
}

impl Peer {
    /// As a share of this, in percent.
    pub(super) fn of(self, sum: f64) -> String {
        match self {
            Self::Missing => "-".to_owned(),
            Self::Stalled => "stalled".to_owned(),
            Self::Mbit(mbit) => number(mbit / sum * 100.0),
        }
    }
}

const PORT: u16 = 5_700;

/// A program is there after so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Aggligator's, for so long: one TCP connection through its tunnel.
pub(super) fn aggligator(ground: &Ground, seconds: u64) -> Result<Peer> {
    let sink = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT + 1));
    let listener = ground.server.netns().within(|| listen(sink, &Options::default()))??;
    let mut serve = Command::new("agg-tunnel");
    serve.args(["server", "--no-monitor", "--tcp", &PORT.to_string(), "--port", &sink.port().to_string()]);
    let Some(_serving) = begin(&ground.server, &mut serve)? else {
        return Ok(Peer::Missing);
    };
    let entry = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT + 2));
    let mut open = Command::new("agg-tunnel");
    open.args(["client", "--no-monitor", if ground.host().is_ipv4() { "-4" } else { "-6" }]);
    open.args(["--tcp", &ground.at(PORT).to_string(), "--port", &format!("{}:{}", sink.port(), entry.port())]);
    let _opening = begin(&ground.client, &mut open)?.context("agg-tunnel was there")?;
    let began = Instant::now();
    let near = loop {
        match ground.client.netns().within(|| TcpStream::connect(entry))? {
            Ok(near) => break near,
            Err(error) => ensure!(began.elapsed() < PATIENCE, "agg-tunnel takes no connection: {error}"),
        }
        thread::sleep(Duration::from_millis(50));
    };
    let far = tcp::accept(&listener).context("through agg-tunnel")?;
    Ok(Peer::Mbit(tcp::carry(&[near], &[far], 0, seconds)?))
}

/// TQUIC's, which fetches so many bytes: all uplinks together bring them in half of the time.
pub(super) fn tquic(ground: &Ground, uplinks: usize, bytes: u64, seconds: u64, dir: &Path) -> Result<Peer> {
    let place = dir.join("tquic");
    fs::create_dir_all(&place)?;
    fs::File::create(place.join("file"))?.set_len(bytes)?;
    let (key, certificate) = (place.join("key.pem"), place.join("certificate.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=lab.example", "-keyout"]).arg(&key).arg("-out").arg(&certificate);
    ensure!(openssl.output().context("cannot run openssl")?.status.success(), "openssl made no certificate");
    let mut serve = Command::new("tquic_server");
    serve.args(["--listen", &ground.at(PORT).to_string(), "--enable-multipath", "--multipath-algor", "MINRTT"]);
    serve.arg("--cert").arg(&certificate).arg("--key").arg(&key).arg("--root").arg(&place);
    let Some(_serving) = begin(&ground.server, &mut serve)? else {
        return Ok(Peer::Missing);
    };
    let locals: Vec<String> = (0..uplinks).map(|at| ground.address(at).to_string()).collect();
    let mut client = limited(2 * seconds);
    client.args(["tquic_client", "--connect-to", &ground.at(PORT).to_string(), "--local-addresses", &locals.join(",")]);
    client.args(["--enable-multipath", "--multipath-algor", "MINRTT", "--max-requests-per-conn", "1"]);
    client
        .args(["--total-requests-per-thread", "1", "--dump-dir"])
        .arg(place.join("got"))
        .arg("https://lab.example/file");
    let began = Instant::now();
    let Some(_) = done(ground, &mut client)? else { return Ok(Peer::Stalled) };
    let took = began.elapsed();
    let came = fs::metadata(place.join("got/file")).context("tquic_client has no file")?.len();
    ensure!(came == bytes, "tquic_client has {came} of {bytes} bytes");
    fs::remove_dir_all(&place)?;
    Ok(Peer::Mbit(bytes as f64 * 8.0 / 1e6 / took.as_secs_f64()))
}

/// Starts a program and gives it time; `None`: there is no such program.
fn begin(namespace: &Namespace, command: &mut Command) -> Result<Option<Killed>> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match namespace.netns().within(|| command.spawn())? {
        Ok(child) => {
            thread::sleep(Duration::from_millis(300));
            Ok(Some(Killed(child)))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// coreutils' `timeout`, which ends a command after so long.
fn limited(seconds: u64) -> Command {
    let mut command = Command::new("timeout");
    command.arg(seconds.to_string());
    command
}

/// What a client said; `None`: it was not done in time.
fn done(ground: &Ground, client: &mut Command) -> Result<Option<Output>> {
    client.stdin(Stdio::null());
    let output = ground.client.netns().within(|| client.output())??;
    // What `timeout` says.
    if output.status.code() == Some(124) {
        return Ok(None);
    }
    ensure!(output.status.success(), "{client:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(Some(output))
}
