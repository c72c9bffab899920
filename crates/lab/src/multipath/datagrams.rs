//! UDP of programs that know nothing of it, through `weirgate tunnel`'s devices: flow by flow, and sprayed.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::ground::Ground;
use super::tunnel::{FAR, Tunnel};
use crate::experiment::Options;
use crate::report::{Table, number};

/// Before this nothing is counted: each path's congestion control has found out what it carries.
const SETTLES: Duration = Duration::from_secs(5);
const PORT: u16 = 6_000;
/// Bytes of each datagram.
const LEN: usize = 1_200;
/// Of the sum of the best single connections, this is offered.
const OFFERED: f64 = 0.9;

/// What came of one way.
#[derive(Clone, Copy, Debug)]
struct Came {
    offered: f64,
    arrived_pct: f64,
    overtaken_pct: f64,
}

/// All of it, as a table.
pub(super) fn run(
    options: &Options,
    ground: &Ground,
    uplinks: &[usize],
    sum: f64,
    seconds: u64,
    dir: &Path,
) -> Result<Table> {
    let heads = ["flows", "each packet by", "offered, Mbit/s", "arrived, %", "after a later one, %"];
    let mut table = Table::new("UDP through the tunnel's devices, the article's uplinks", &heads);
    for (flows, is_sprayed) in [(super::PINNED, false), (1, true)] {
        let tunnel = Tunnel::with_devices(options, ground, uplinks, dir, is_sprayed)?;
        let Came { offered, arrived_pct, overtaken_pct } = measure(ground, flows, OFFERED * sum, seconds)?;
        drop(tunnel);
        let by = if is_sprayed { "the path that has it there first" } else { "its flow's path" };
        let measured = [offered, arrived_pct, overtaken_pct].map(number);
        table.rows.push([vec![flows.to_string(), by.to_owned()], measured.to_vec()].concat());
    }
    Ok(table)
}

fn measure(ground: &Ground, flows: usize, mbit: f64, seconds: u64) -> Result<Came> {
    let at = SocketAddr::from((FAR, PORT));
    let far = ground.server.netns().within(|| UdpSocket::bind(at))??;
    far.set_read_timeout(Some(Duration::from_millis(200)))?;
    let near = ground
        .client
        .netns()
        .within(|| (0..flows).map(|_| UdpSocket::bind("0.0.0.0:0")).collect::<Result<Vec<_>, _>>())??;
    let gap = Duration::from_secs_f64(LEN as f64 * 8.0 / (mbit * 1e6));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reading = scope.spawn(|| read(&far, flows, &is_over));
        let began = Instant::now();
        let end = SETTLES + Duration::from_secs(seconds);
        let mut sent = 0_u64;
        while began.elapsed() < end {
            while gap.mul_f64(sent as f64) <= began.elapsed() {
                let flow = sent as usize % flows;
                let mut bytes = [0; LEN];
                bytes[..8].copy_from_slice(&sent.to_be_bytes());
                // A full queue loses it.
                let _lost = near[flow].send_to(&bytes, at);
                sent += 1;
            }
            thread::sleep(Duration::from_micros(500));
        }
        let took = began.elapsed();
        thread::sleep(Duration::from_millis(500));
        is_over.store(true, Ordering::Relaxed);
        let came = reading.join().ok().context("the reader has panicked")?;
        let settled = (SETTLES.as_secs_f64() / gap.as_secs_f64()) as u64;
        let counted: Vec<_> = came.iter().filter(|(number, _)| *number >= settled).collect();
        let overtaken = counted.iter().filter(|(_, is_overtaken)| *is_overtaken).count();
        Ok(Came {
            offered: sent as f64 * LEN as f64 * 8.0 / 1e6 / took.as_secs_f64(),
            arrived_pct: counted.len() as f64 / (sent - settled) as f64 * 100.0,
            overtaken_pct: overtaken as f64 / counted.len().max(1) as f64 * 100.0,
        })
    })
}

/// The number of each datagram that came, and whether a later one of its flow came before.
fn read(far: &UdpSocket, flows: usize, is_over: &AtomicBool) -> Vec<(u64, bool)> {
    let (mut bytes, mut came, mut highest) = ([0; 2_000], Vec::new(), vec![0_u64; flows]);
    while !is_over.load(Ordering::Relaxed) {
        let Ok((len, _)) = far.recv_from(&mut bytes) else { continue };
        let Some(number) = bytes[..len].first_chunk().map(|number| u64::from_be_bytes(*number)) else { continue };
        let highest = &mut highest[number as usize % flows];
        came.push((number, number < *highest));
        *highest = number.max(*highest);
    }
    came
}
