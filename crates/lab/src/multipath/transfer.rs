//! `weirgate send` to `weirgate receive`.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::ground::Ground;
use crate::experiment::Options;
use crate::process::{Killed, scheduled};

/// What came of a transfer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// Of payload, its beginning and its end included.
    pub(super) mbit: f64,
    /// From the sender's start to its end.
    pub(super) seconds: f64,
    /// How often a path that worked was taken for dead.
    pub(super) downs: u64,
    /// How often a path fell silent.
    pub(super) silences: u64,
    /// Processor time of both sides.
    pub(super) core_per_gbit: f64,
}

/// Sends by the uplinks that are named a file of what they carry in so many seconds.
pub(super) fn run(options: &Options, ground: &Ground, uplinks: &[usize], seconds: u64, dir: &Path) -> Result<Sent> {
    let rate: u64 = uplinks.iter().map(|at| ground.rate(*at)).sum();
    bytes(options, ground, uplinks, rate / 8 * seconds, dir)
}

/// The public key of the one in this file, which is made where there is none.
pub(super) fn key(options: &Options, file: &Path) -> Result<String> {
    let output = Command::new(&options.weirgate).args(["key", "--key"]).arg(file).output()?;
    ensure!(output.status.success(), "weirgate key: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Sends a file of so many bytes.
pub(super) fn bytes(options: &Options, ground: &Ground, uplinks: &[usize], len: u64, dir: &Path) -> Result<Sent> {
    let place = dir.join("transfer");
    fs::create_dir_all(place.join("in"))?;
    File::create(place.join("file"))?.set_len(len)?;
    let weirgate = |what: &str| {
        let mut command = Command::new(&options.weirgate);
        command.arg(what);
        command
    };
    let (sender, receiver) = (key(options, &place.join("sender.key"))?, key(options, &place.join("receiver.key"))?);
    let mut receive = weirgate("receive");
    receive.args(["--once", "--allow", &sender, "--listen", &ground.at(4_747).to_string(), "--key"]);
    receive.arg(place.join("receiver.key")).arg(place.join("in")).stdout(Stdio::piped());
    let mut receiving =
        Killed(ground.server.netns().within(|| receive.spawn())?.context("cannot start weirgate receive")?);
    let mut said = BufReader::new(receiving.0.stdout.take().context("its output")?);
    said.read_line(&mut String::new())?;
    let mut send = weirgate("send");
    send.args(["--json", "--peer", &receiver, "--key"]).arg(place.join("sender.key"));
    for at in uplinks {
        send.args(["--from", &Ground::device(*at)]);
    }
    send.arg(place.join("file")).arg(ground.host().to_string());
    let cpu = || scheduled(receiving.0.id()).map(|(ran, _)| ran);
    let before = cpu()?;
    let began = Instant::now();
    let output = ground.client.netns().within(|| send.output())?.context("cannot start weirgate send")?;
    let seconds = began.elapsed().as_secs_f64();
    ensure!(output.status.success(), "weirgate send: {}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout)?;
    let took = said["seconds"].as_f64().context("seconds")?;
    let sum = |what: &str| said["paths"].as_array().into_iter().flatten().filter_map(|path| path[what].as_u64()).sum();
    let [downs, silences] = ["downs", "silences"].map(sum);
    let sender_cpu = said["cpu_seconds"].as_f64().unwrap_or(0.0);
    let spent = cpu().unwrap_or(before).saturating_sub(before).as_secs_f64() + sender_cpu;
    fs::remove_file(place.join("in/file"))?;
    Ok(Sent {
        mbit: len as f64 * 8.0 / 1e6 / took,
        seconds,
        downs,
        silences,
        core_per_gbit: spent / (len as f64 * 8.0 / 1e9),
    })
}
