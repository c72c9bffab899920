//! What takes seconds or less, on the article's uplinks: an object of 10 MB, and how long an outage of the fastest uplink is felt; each
//! beside the kernel's own TCP.

use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use weirgate_linux::clock;

use super::ground::Ground;
use super::sets::Set;
use super::tunnel::Tunnel;
use super::{CONTROLS, Measured, own, tcp, transfer};
use crate::experiment::Options;
use crate::report::{Table, number};
use crate::stats::median;

/// Bytes of an object that is not long.
const OBJECT: u64 = 10_000_000;

/// An outage begins when what is sent has run for so long, and is looked at for so long.
const RUNS: Duration = Duration::from_secs(4);
const LASTS: Duration = Duration::from_secs(3);

/// Until an uplink that was away is found again.
const RETURNS: Duration = Duration::from_secs(2);

/// What it came to.
pub(super) struct Brief {
    /// Seconds that the object takes, all paths being there: spray, and by the two commands from one's start to its end.
    pub(super) object: f64,
    pub(super) cold: f64,
    /// Milliseconds of the worst outage: until spray's goodput was back, and the tunnel's longest gap.
    pub(super) stall: f64,
    pub(super) gap: f64,
    kernels: Vec<Kernel>,
}

/// A connection of the kernel's.
struct Kernel {
    name: String,
    /// Seconds that the object takes.
    object: f64,
    /// Its longest gap of the worst outage, in milliseconds; none where it has one uplink only.
    gap: Option<f64>,
}

impl Brief {
    /// For the report.
    pub(super) fn table(&self) -> Table {
        let heads = ["arm", "10 MB, s", "outage, ms"];
        let mut table = Table::new("An object of 10 MB, and the worst outage", &heads);
        let row = |name: &str, object: Option<f64>, outage: Option<f64>| {
            let of = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
            vec![name.to_owned(), of(object), of(outage)]
        };
        table.rows.push(row("spray", Some(self.object), Some(self.stall)));
        table.rows.push(row("weirgate send, from its start to its end", Some(self.cold), None));
        table.rows.push(row("one TCP connection through the tunnel", None, Some(self.gap)));
        let kernels = self.kernels.iter().map(|kernel| row(&kernel.name, Some(kernel.object), kernel.gap));
        table.rows.extend(kernels);
        table
    }
}

/// Measures it, on uplinks that were `measured`: objects so many times, outages so many.
pub(super) fn run(
    options: &Options,
    ground: &Ground,
    set: &Set,
    measured: &Measured,
    [objects, outages]: [usize; 2],
    dir: &Path,
) -> Result<Brief> {
    let every: Vec<usize> = (0..set.links.len()).collect();
    let fastest = every.iter().copied().max_by_key(|at| set.links[*at].mbit).context("an uplink")?;
    options.say("an object of 10 MB");
    let (mut warm, mut cold) = (Vec::new(), Vec::new());
    for _ in 0..objects {
        let came = own::send(ground, &every, Some(OBJECT), |_| Ok(()))?;
        warm.push(came.seconds().context("the object did not come")?);
        cold.push(transfer::bytes(options, ground, &every, OBJECT, dir)?.seconds);
    }
    let mut kernels = Vec::new();
    for control in CONTROLS {
        let name = control.to_uppercase();
        for (name, pin) in
            [(format!("MPTCP {name}"), None), (format!("TCP {name} on the fastest uplink"), Some(fastest))]
        {
            let mut times = Vec::new();
            for _ in 0..objects {
                let (_takes_more, near, far) = tcp::pair(ground, pin, control)?;
                times.push(tcp::object(near, far, OBJECT)?);
            }
            let mut gap: Option<f64> = None;
            for _ in 0..if pin.is_none() { outages } else { 0 } {
                let (_takes_more, near, far) = tcp::pair(ground, pin, control)?;
                let this = felt(ground, fastest, near, far)?;
                gap = Some(gap.unwrap_or(0.0).max(this));
            }
            kernels.push(Kernel { name, object: median(times), gap });
        }
    }
    options.say("an outage");
    let others: Vec<usize> = every.iter().copied().filter(|at| *at != fastest).collect();
    let others = measured.sum_of(set, &others);
    let carrying = Tunnel::new(options, ground, &every, dir)?;
    let (mut stall, mut gap) = (0.0_f64, 0.0_f64);
    for _ in 0..outages {
        stall = stall.max(stalled(ground, &every, fastest, others)?);
        let (near, far) = carrying.connect()?;
        gap = gap.max(felt(ground, fastest, near, far)?);
    }
    Ok(Brief { object: median(warm), cold: median(cold), stall, gap, kernels })
}

/// Milliseconds from when the fastest uplink became a black hole until goodput was nine tenths of what the `others` have, in Mbit/s, and stayed
/// so.
fn stalled(ground: &Ground, uplinks: &[usize], fastest: usize, others: f64) -> Result<f64> {
    let mut outage = None;
    let came = own::send(ground, uplinks, None, |_| {
        thread::sleep(RUNS);
        outage = Some(clock::monotonic());
        ground.set_outage(fastest, true)?;
        thread::sleep(LASTS);
        Ok(())
    });
    ground.set_outage(fastest, false)?;
    let (came, outage) = (came?, outage.context("there was an outage")?);
    let end = outage + weirgate_units::Duration::from_millis(2_800);
    Ok(came.stall(outage, end, 0.9e6 * others).as_nanos() as f64 / 1e6)
}

/// The longest time in which nothing came of a connection while the fastest uplink was a black hole, in milliseconds.
fn felt(ground: &Ground, fastest: usize, near: TcpStream, far: TcpStream) -> Result<f64> {
    let gap = tcp::gap(near, far, RUNS, LASTS, || ground.set_outage(fastest, true));
    ground.set_outage(fastest, false)?;
    thread::sleep(RETURNS);
    Ok(gap?.as_secs_f64() * 1e3)
}
