//! A server of which compressing is a fifth of the work, as on the article's gateways (15 to 20 %): how much of that fifth is saved.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::load::{Load, Loaded};
use super::server::{Library, Server};
use super::{Body, order};
use crate::experiment::Options;
use crate::report::{Table, number};
use crate::stats::{Interval, bootstrap, median};

/// The share of the server's processor time that zlib is to have, and how far from it is near enough.
const SHARE: f64 = 0.20;
const NEAR: f64 = 0.01;

/// How often the images are counted anew for that.
const TRIES: usize = 8;

/// What is sent by TLS and not compressed, bytes.
const IMAGE: usize = 100_000;

/// What came of it.
pub(super) struct Shares {
    /// zlib's share of the processor time of its server.
    share: f64,
    /// Images for each 16 bodies.
    images: usize,
    /// By library and round.
    runs: Vec<Vec<Loaded>>,
    rate: f64,
    pub(super) failed: u64,
}

/// Writes what does not compress, and says what it is called.
pub(super) fn write_image(root: &Path) -> Result<String> {
    let image: Vec<u8> = super::chance().take(IMAGE).collect();
    fs::write(root.join("image.png"), image)?;
    Ok("image.png".into())
}

/// Loads the first server, which is zlib's, with bodies of 25 KB and so many images that zlib's share is a fifth, and all of them with
/// the same at the same rate.
pub(super) fn run(
    options: &Options,
    servers: &[Server],
    bodies: &[Body],
    image: &str,
    (rounds, seconds): (usize, f64),
    dir: &Path,
) -> Result<Shares> {
    let pages: Vec<&str> = bodies.iter().filter(|body| body.kb == 25).map(|body| body.name.as_str()).collect();
    let mix = |images: usize| {
        let mut paths = Vec::new();
        for (at, page) in pages.iter().enumerate() {
            // Evenly among them.
            let from = |at: usize| at * images / pages.len();
            paths.extend(std::iter::repeat_n(image, from(at + 1) - from(at)));
            paths.push(page);
        }
        paths
    };
    let seconds = seconds.max(2.0);
    let load = Load { secure: true, gzip: true, rate: None, seconds };
    // What an image and what a page takes, and how much of a page's is zlib's: from that, how many images make it a fifth.
    let image_us = load.run(&servers[0], &[image], dir)?.us_per_request();
    let (page_us, page_share) = measured_share(&load, &servers[0], &pages, dir)?;
    let others = page_us * pages.len() as f64 * (page_share / SHARE - 1.0);
    let mut images = (others / image_us).round() as usize;
    let mut share = 0.0;
    for tried in 1..=TRIES {
        let (us, found) = measured_share(&load, &servers[0], &mix(images), dir)?;
        share = found;
        options.say(format!("{images} images for {} pages: zlib has {:.1} %", pages.len(), share * 100.0));
        if (share - SHARE).abs() <= NEAR || tried == TRIES {
            break;
        }
        let all = us * (pages.len() + images) as f64;
        let more = all * (share / SHARE - 1.0) / image_us;
        images = (images as f64 + more).round().max(0.0) as usize;
    }
    ensure!((share - SHARE).abs() <= NEAR, "zlib has {:.1} % of its server's time after {TRIES} tries", share * 100.0);
    let paths = mix(images);
    let mut rate = None;
    let (mut runs, mut failed) = (vec![Vec::new(); servers.len()], 0);
    for round in 0..rounds {
        for at in order(round, servers.len()) {
            // Half of what zlib's server can do, for all of them.
            if rate.is_none() {
                rate = Some(load.run(&servers[0], &paths, dir)?.rate() / 2.0);
            }
            let loaded = Load { rate, ..load }.run(&servers[at], &paths, dir)?;
            failed += loaded.failed;
            runs[at].push(loaded);
        }
    }
    Ok(Shares { share, images: images * 16 / pages.len(), runs, rate: rate.unwrap_or_default(), failed })
}

/// Processor time for a request of a server with zlib, and zlib's share of it by perf's samples.
fn measured_share(load: &Load, server: &Server, paths: &[&str], dir: &Path) -> Result<(f64, f64)> {
    let data = dir.join("perf.data");
    let mut perf = Command::new("perf")
        .args(["record", "-q", "-e", "cpu-clock", "-F", "997", "-p", &server.worker().to_string(), "-o"])
        .arg(&data)
        .args(["--", "sleep", &format!("{}", load.seconds + 0.5)])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot run perf: run `make setup`")?;
    super::pause(200);
    let loaded = load.run(server, paths, dir);
    perf.wait()?;
    let report = Command::new("perf").arg("report").arg("-i").arg(&data).args(["--sort", "dso", "--stdio"]).output()?;
    let text = String::from_utf8_lossy(&report.stdout);
    let share = share_of("libz.so", &text);
    ensure!(share > 0.0, "perf has no samples of libz.so: {text}{}", String::from_utf8_lossy(&report.stderr));
    Ok((loaded?.us_per_request(), share))
}

/// A library's part of the samples, of a report by it.
fn share_of(name: &str, report: &str) -> f64 {
    let lines = report.lines().filter(|line| line.contains(name));
    lines.filter_map(|line| line.trim().split_once('%')?.0.parse::<f64>().ok()).sum::<f64>() / 100.0
}

impl Shares {
    /// What of zlib's share a library saves: 1, all of it.
    pub(super) fn saved(&self, at: usize) -> (f64, Interval) {
        let pairs = self.runs[at].iter().zip(&self.runs[0]);
        let ratios: Vec<f64> = pairs.map(|(ours, zlib)| ours.us_per_request() / zlib.us_per_request()).collect();
        // A round in which the machine did something else says nothing.
        let ratio = median(ratios.iter().copied());
        let interval = bootstrap(&ratios, 2_000, 1, |drawn| median(drawn.iter().map(|ratio| **ratio)));
        let saved = |ratio: f64| (1.0 - ratio) / self.share;
        (saved(ratio), Interval { low: saved(interval.high), high: saved(interval.low) })
    }

    /// In a table.
    pub(super) fn table(&self, libraries: &[Library]) -> Table {
        let mut table = Table::new(
            &format!(
                "Pages of 25 KB, and {} images of 100 KB for each 16, by TLS, {} requests a second: zlib has {} % of its server's time",
                self.images,
                number(self.rate),
                number(self.share * 100.0)
            ),
            &[
                "library",
                "us for a request",
                "saved of all, %",
                "saved over zlib's share",
                "95 % interval",
                "CPU, %",
                "load",
                "p50, ms",
                "p99, ms",
            ],
        );
        for (at, library) in libraries.iter().enumerate() {
            let (saved, interval) = self.saved(at);
            let of = |what: fn(&Loaded) -> f64| number(median(self.runs[at].iter().map(what)));
            table.rows.push(vec![
                library.name.to_owned(),
                of(Loaded::us_per_request),
                number(saved * self.share * 100.0),
                number(saved),
                format!("{} to {}", number(interval.low), number(interval.high)),
                of(Loaded::cpu_pct),
                of(Loaded::load),
                of(|one| one.ms(0.5)),
                of(|one| one.ms(0.99)),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_librarys_samples_are_added_up() {
        let report =
            "# Samples\n    98.13%  libz.so.1.2.13   \n     1.16%  [kernel.kallsyms]\n     0.87%  libz.so.1  \n";
        assert!((share_of("libz.so", report) - 0.99).abs() < 1e-9);
        assert!(share_of("libz.so", "").abs() < 1e-9);
    }
}
