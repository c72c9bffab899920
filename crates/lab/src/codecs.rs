//! Engines and levels on given bodies, one after the other: how fast, how small. What `weirgate deflate bench` shows.

mod gpu;

use std::mem::MaybeUninit;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use weirgate_deflate::engine::{Effort, Engine, Igzip, Libdeflate, Stock, ZlibRs, bound};
use weirgate_deflate::qatzip::Qatzip;
use weirgate_linux::clock::thread_cpu;

use crate::experiment::Options;
use crate::plot::{Curve, Point, curves};
use crate::report::{Report, Table, number};

/// Whose level 6 the others are compared with.
const STOCK: &str = "zlib";

/// One engine at one level.
struct Measured {
    engine: &'static str,
    level: i32,
    bytes_out: usize,
    /// Of the processor, for all bodies once.
    time: Duration,
}

fn files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

/// Compresses each of `bodies` (a name and bytes, of which there are some) by every engine at every level, again and again for `each` of
/// processor time and each at least once.
pub fn bench(options: &Options, bodies: &[(String, Vec<u8>)], each: Duration) -> Result<Report> {
    let mut report = Report::begin(options, "deflate-bench", "Engines on given files");
    let bytes_in: usize = bodies.iter().map(|(_, bytes)| bytes.len()).sum();
    let longest = bodies.iter().map(|(_, bytes)| bytes.len()).max().unwrap_or(0);
    let mut out = vec![MaybeUninit::uninit(); bound(longest)];
    let mut all = Vec::new();
    let lens: Vec<usize> = bodies.iter().map(|(_, bytes)| bytes.len()).collect();
    let engines = engines(&lens);
    let count = engines.len();
    for (done, (name, level, mut engine)) in engines.into_iter().enumerate() {
        options.say(format!("{}/{count}: {name} {level}", done + 1));
        let measured = measure(engine.as_mut(), bodies, each, &mut out);
        let (bytes_out, time) =
            measured.with_context(|| format!("{name} at level {level} cannot compress one of the files"))?;
        all.push(Measured { engine: name, level, bytes_out, time });
    }
    let stock = all.iter().find(|one| (one.engine, one.level) == (STOCK, 6)).context("zlib was measured")?;
    let ratio = |one: &Measured| bytes_in as f64 / one.bytes_out as f64;
    let speed = |one: &Measured| bytes_in as f64 / 1e6 / one.time.as_secs_f64();
    let mut table = Table::new(
        &format!("{}, {} MB, each compressed by itself", files(bodies.len()), number(bytes_in as f64 / 1e6)),
        &["engine", "level", "MB/s", "ratio", "CPU over zlib 6", "larger than zlib 6, %"],
    );
    for one in &all {
        let cells = [
            speed(one),
            ratio(one),
            one.time.as_secs_f64() / stock.time.as_secs_f64(),
            (one.bytes_out as f64 / stock.bytes_out as f64 - 1.0) * 100.0,
        ];
        let row = vec![one.engine.to_owned(), one.level.to_string()];
        table.rows.push([row, cells.map(number).to_vec()].concat());
    }
    let curve = |name: &'static str| {
        let of = all.iter().filter(|one| one.engine == name);
        Curve {
            name: name.into(),
            points: of.map(|one| Point { x: ratio(one), y: speed(one), interval: None }).collect(),
        }
    };
    let mut names: Vec<&'static str> = all.iter().map(|one| one.engine).collect();
    names.dedup();
    let plot = curves("bytes in over bytes out", "MB/s", true, &names.into_iter().map(curve).collect::<Vec<_>>())?;
    report.plots.push(("Speed over ratio; a point for each level".into(), plot));
    report.add_table(table);
    let each_s = each.as_secs_f64();
    report.method = format!(
        "Raw deflate, in memory, one thread. MB of 1,000,000 bytes of input over the thread's processor time; of repeated runs the fastest, \
         of {each_s} s each."
    );
    if let Some(table) = gpu::table(options, bodies, each)? {
        report.add_table(table);
        report.method += " Of the GPU, the time from when it is asked until all is there, the way to it and back included: the median.";
    }
    report.settings = json!({ "files": bodies.iter().map(|(name, bytes)| (name, bytes.len())).collect::<Vec<_>>() });
    Ok(report)
}

/// All that there are here, and take bodies of these lengths; zlib-rs at the efforts that stand for zlib's levels.
fn engines(lens: &[usize]) -> Vec<(&'static str, i32, Box<dyn Engine>)> {
    let mut all: Vec<(&'static str, i32, Box<dyn Engine>)> = Vec::new();
    all.extend((1..=9).map(|level| (STOCK, level, Box::new(Stock::new(level)) as Box<dyn Engine>)));
    for level in 1..=Libdeflate::LEVEL_MAX {
        all.extend(Libdeflate::new(level).map(|engine| ("libdeflate", level, Box::new(engine) as Box<dyn Engine>)));
    }
    for level in 1..=9 {
        let engine = Effort::of(level).and_then(|effort| ZlibRs::new(15, effort));
        all.extend(engine.map(|engine| ("zlib-rs", level, Box::new(engine) as Box<dyn Engine>)));
    }
    all.extend(Igzip::load().map(|engine| ("igzip", 1, Box::new(engine) as Box<dyn Engine>)));
    if lens.iter().all(|len| (Qatzip::INPUT_MIN..=Qatzip::INPUT_MAX).contains(len)) {
        for level in 1..=8 {
            all.extend(Qatzip::load(level).map(|engine| ("qatzip", level, Box::new(engine) as Box<dyn Engine>)));
        }
    }
    all
}

/// Bytes of all outputs, and the least processor time that they took.
fn measure(
    engine: &mut dyn Engine,
    bodies: &[(String, Vec<u8>)],
    each: Duration,
    out: &mut [MaybeUninit<u8>],
) -> Option<(usize, Duration)> {
    let (mut spent, mut least) = (Duration::ZERO, Duration::MAX);
    loop {
        let began = thread_cpu();
        let mut bytes = 0;
        for (_, body) in bodies {
            bytes += engine.compress(body, out).ok()?;
        }
        let took = thread_cpu().saturating_sub(began).to_std();
        (spent, least) = (spent + took, least.min(took));
        if spent >= each {
            // A clock of nanoseconds: more than none.
            return Some((bytes, least.max(Duration::from_nanos(1))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::{Kind, body};

    #[test]
    fn every_engine_has_its_rows_and_higher_levels_are_smaller() {
        let bodies = [("page".to_owned(), body(Kind::Html, 1, 20_000))];
        let mut out = vec![MaybeUninit::uninit(); bound(20_000)];
        let mut sizes = std::collections::BTreeMap::new();
        for (name, level, mut engine) in engines(&[]) {
            let (bytes, _) = measure(engine.as_mut(), &bodies, Duration::ZERO, &mut out).unwrap();
            sizes.insert((name, level), bytes);
        }
        for name in [STOCK, "libdeflate"] {
            assert!(sizes[&(name, 9)] < sizes[&(name, 1)] && sizes[&(name, 9)] < 7_000, "{sizes:?}");
        }
        assert!(sizes.len() >= 21);
    }
}
