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

/// How often the images are counted anew for that, and how much longer than another a load is by which it is judged.
const TRIES: usize = 8;
const LONGER: f64 = 5.0;

/// What is sent by TLS and not compressed, bytes.
const IMAGE: usize = 100_000;

/// What came of it.
pub(super) struct Shares {
    /// zlib's share of the processor time of its server, by round.
    zlib: Vec<Samples>,
    /// Images for each 16 bodies.
    images: usize,
    /// By library and round.
    runs: Vec<Vec<Loaded>>,
    rate: f64,
    pub(super) failed: u64,
}

/// perf's, of a server's worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Samples {
    /// In libz.
    libz: u64,
    all: u64,
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
    let (page, samples) = watched(&load, &servers[0], &pages, dir)?;
    let others = page.us_per_request() * pages.len() as f64 * (share(&[&samples]) / SHARE - 1.0);
    let mut images = (others / image_us).round() as usize;
    let (mut tried, mut failed) = (0, 0);
    // Half of what zlib's server can do, for all of them: a request takes more time then than where one comes after the other, and its
    // share is another.
    let rate = loop {
        tried += 1;
        let rate = load.run(&servers[0], &mix(images), dir)?.rate() / 2.0;
        let long = Load { rate: Some(rate), seconds: seconds * LONGER, ..load };
        let (loaded, samples) = watched(&long, &servers[0], &mix(images), dir)?;
        let share = share(&[&samples]);
        options.say(format!("{images} images for {} pages: zlib has {:.1} %", pages.len(), share * 100.0));
        // With a margin, since samples are by chance.
        if (share - SHARE).abs() <= NEAR / 2.0 {
            break rate;
        }
        ensure!(tried < TRIES, "zlib has {:.1} % of its server's time after {TRIES} tries", share * 100.0);
        let all = loaded.us_per_request() * (pages.len() + images) as f64;
        let more = all * (share / SHARE - 1.0) / image_us;
        images = (images as f64 + more).round().max(0.0) as usize;
    };
    let (paths, load) = (mix(images), Load { rate: Some(rate), ..load });
    let (mut runs, mut zlib) = (vec![Vec::new(); servers.len()], Vec::new());
    for round in 0..rounds {
        options.say(format!("zlib's share, round {} of {rounds}", round + 1));
        for at in order(round, servers.len()) {
            // perf looks at all of them alike.
            let (loaded, samples) = watched(&load, &servers[at], &paths, dir)?;
            failed += loaded.failed;
            runs[at].push(loaded);
            if at == 0 {
                zlib.push(samples);
            }
        }
    }
    Ok(Shares { zlib, images: images * 16 / pages.len(), runs, rate, failed })
}

/// zlib's share of the time in which these were taken.
fn share(of: &[&Samples]) -> f64 {
    let sum = |what: fn(&Samples) -> u64| of.iter().map(|one| what(one)).sum::<u64>() as f64;
    sum(|one| one.libz) / sum(|one| one.all)
}

/// Loads a server while perf looks at its worker.
fn watched(load: &Load, server: &Server, paths: &[&str], dir: &Path) -> Result<(Loaded, Samples)> {
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
    let mut report = Command::new("perf");
    let report = report.arg("report").arg("-i").arg(&data).args(["--sort", "dso", "--stdio", "-n"]).output()?;
    let text = String::from_utf8_lossy(&report.stdout);
    let samples = samples(&text);
    ensure!(samples.all > 0, "perf has no samples: {text}{}", String::from_utf8_lossy(&report.stderr));
    Ok((loaded?, samples))
}

/// What `perf report` says of libraries: for each one a share, samples and its name.
fn samples(report: &str) -> Samples {
    let mut sums = Samples::default();
    for line in report.lines() {
        let mut words = line.split_whitespace();
        let (Some(share), Some(Ok(count)), Some(name)) = (words.next(), words.next().map(str::parse), words.next())
        else {
            continue;
        };
        if share.ends_with('%') {
            sums.all += count;
            sums.libz += if name.starts_with("libz.so") { count } else { 0 };
        }
    }
    sums
}

impl Shares {
    /// zlib's share of its server's processor time.
    fn share(&self) -> f64 {
        share(&self.zlib.iter().collect::<Vec<_>>())
    }

    /// What of zlib's share a library saves: 1, all of it.
    pub(super) fn saved(&self, at: usize) -> (f64, Interval) {
        let pairs = self.runs[at].iter().zip(&self.runs[0]);
        let ratios = pairs.map(|(ours, zlib)| ours.us_per_request() / zlib.us_per_request());
        let rounds: Vec<(f64, Samples)> = ratios.zip(self.zlib.iter().copied()).collect();
        let saved = |rounds: &[&(f64, Samples)]| {
            // A round in which the machine did something else says nothing.
            let ratio = median(rounds.iter().map(|(ratio, _)| *ratio));
            (1.0 - ratio) / share(&rounds.iter().map(|(_, samples)| samples).collect::<Vec<_>>())
        };
        (saved(&rounds.iter().collect::<Vec<_>>()), bootstrap(&rounds, 2_000, 1, saved))
    }

    /// In a table.
    pub(super) fn table(&self, libraries: &[Library]) -> Table {
        let mut table = Table::new(
            &format!(
                "Pages of 25 KB, and {} images of 100 KB for each 16, by TLS, {} requests a second: zlib has {} % of its server's time",
                self.images,
                number(self.rate),
                number(self.share() * 100.0)
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
                number(saved * self.share() * 100.0),
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn samples_are_added_up() {
        let report = "# Overhead  Samples  Shared Object\n    98.13%   981  libz.so.1.2.13\n     1.16%   12  [kernel.kallsyms]\n     \
                      0.87%   9  libz.so.1\n     0.10%   1  libweirgate_z.so\n";
        let seen = samples(report);
        assert_eq!(seen, Samples { libz: 990, all: 1_003 });
        assert!((share(&[&seen, &Samples { libz: 0, all: 977 }]) - 0.5).abs() < 1e-9);
        assert_eq!(samples(""), Samples::default());
    }

    #[test]
    fn what_is_saved_is_of_what_zlib_had() {
        let run = |us: u64| Loaded::of(1_000, Duration::from_micros(us * 1_000));
        let samples = Samples { libz: 200, all: 1_000 };
        let shares = Shares {
            zlib: vec![samples; 3],
            images: 1,
            runs: vec![vec![run(100), run(50), run(200)], vec![run(85), run(45), run(160)]],
            rate: 1.0,
            failed: 0,
        };
        let (saved, interval) = shares.saved(1);
        assert!(
            (saved - 0.75).abs() < 1e-9 && interval.low >= 0.5 - 1e-9 && interval.high <= 1.0 + 1e-9,
            "{interval:?}"
        );
        assert!(shares.saved(0).0.abs() < 1e-9);
    }
}
