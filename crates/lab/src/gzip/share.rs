//! A server of which compressing is a fifth of the work, as on the article's gateways (15 to 20 %): how much of that fifth is saved.
//!
//! A machine's speed may change by a tenth within seconds, by what its neighbours do, and what is saved is a tenth of all. So zlib's
//! server and another one are loaded at once, alike, and share one core: their ratio is the same within a hundredth then.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};

use super::load::{Load, Loaded};
use super::server::{Library, Server};
use super::{Body, order};
use crate::experiment::Options;
use crate::report::{Table, number};
use crate::stats::{Interval, bootstrap, mean, median};

/// The share of the server's processor time that zlib is to have.
const SHARE: f64 = 0.20;

/// How often the images are counted anew for that, each time by what all tries before have shown; a try is so many times shorter than what
/// is measured then.
const TRIES: usize = 3;
const TRY_OF: usize = 5;

/// What is sent by TLS and not compressed, bytes.
const IMAGE: usize = 100_000;

/// What came of it.
pub(super) struct Shares {
    /// Images for each 16 bodies.
    images: usize,
    /// By library, without zlib, and round.
    runs: Vec<Vec<Pair>>,
    /// Of each of the two servers.
    rate: f64,
    pub(super) failed: u64,
}

/// zlib's server and another one, at once.
#[derive(Clone, Debug)]
struct Pair {
    zlib: Loaded,
    samples: Samples,
    other: Loaded,
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

/// Loads the first server, which is zlib's, with bodies of 25 KB and so many images that zlib's share is a fifth, and each other one
/// beside it with the same at the same rate.
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
    let load = Load { secure: true, seconds, ..Load::default() };
    // What an image and what a page takes, and how much of a page's is zlib's: from that, how many images make it a fifth. One over the
    // share is all of the time over zlib's: what pages alone make it, and more by each image.
    let image_us = load.run(&servers[0], &[image], dir)?.us_per_request();
    let (page, samples) = watched(&load, &servers[0], &pages, dir)?;
    let alone = 1.0 / share(&[&samples]);
    let an_image = image_us * alone / (page.us_per_request() * pages.len() as f64);
    let images_for = |own: f64| ((1.0 / SHARE - own) / an_image).round().max(0.0) as usize;
    // Together half of what zlib's server can do alone: a request takes more time then than where one comes after the other, and
    // zlib's share is another.
    let rate_of = |images: usize| -> Result<f64> { Ok(load.run(&servers[0], &mix(images), dir)?.rate() / 4.0) };
    let mut images = images_for(alone);
    let mut own = Vec::new();
    for _ in 0..TRIES {
        // As in the rounds: as long, since connections begin with handshakes, and beside each of the others, since one that takes less leaves
        // more of the caches.
        let load = Load { rate: Some(rate_of(images)?), ..load };
        let all = (0..rounds.div_ceil(TRY_OF)).flat_map(|_| &servers[1..]);
        let beside =
            all.map(|other| pair(&load, [&servers[0], other], &mix(images), dir)).collect::<Result<Vec<_>>>()?;
        let share = share(&beside.iter().map(|pair| &pair.samples).collect::<Vec<_>>());
        options.say(format!("{images} images for {} pages: zlib has {:.1} %", pages.len(), share * 100.0));
        own.push(1.0 / share - images as f64 * an_image);
        images = images_for(mean(own.iter().copied()));
    }
    let (rate, mut failed) = (rate_of(images)?, 0);
    let (paths, load) = (mix(images), Load { rate: Some(rate), ..load });
    let mut runs = vec![Vec::new(); servers.len() - 1];
    for round in 0..rounds {
        options.say(format!("zlib's share, round {} of {rounds}", round + 1));
        for at in order(round, runs.len()) {
            let both = pair(&load, [&servers[0], &servers[at + 1]], &paths, dir)?;
            failed += both.zlib.failed + both.other.failed;
            runs[at].push(both);
        }
    }
    Ok(Shares { images: images * 16 / pages.len(), runs, rate, failed })
}

/// Loads two servers at once while perf looks at both.
fn pair(load: &Load, servers: [&Server; 2], paths: &[&str], dir: &Path) -> Result<Pair> {
    let dirs = ["one", "another"].map(|name| dir.join(name));
    for dir in &dirs {
        fs::create_dir_all(dir)?;
    }
    let (zlib, other) = thread::scope(|scope| {
        let zlib = scope.spawn(|| watched(load, servers[0], paths, &dirs[0]));
        let other = watched(load, servers[1], paths, &dirs[1]);
        (zlib.join(), other)
    });
    let (zlib, samples) = zlib.map_err(|_| anyhow!("a load has panicked"))??;
    Ok(Pair { zlib, samples, other: other?.0 })
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
        share(&self.runs.iter().flatten().map(|pair| &pair.samples).collect::<Vec<_>>())
    }

    /// By how many per cent of all that share is another one than it was to be.
    pub(super) fn off_by_pct(&self) -> f64 {
        (self.share() - SHARE).abs() * 100.0
    }

    /// What of zlib's share a library, which is not zlib, saves: 1, all of it.
    pub(super) fn saved(&self, at: usize) -> (f64, Interval) {
        let pairs = &self.runs[at - 1];
        let saved = |pairs: &[&Pair]| {
            // A round in which the machine did something else says nothing.
            let ratio = median(pairs.iter().map(|pair| pair.other.us_per_request() / pair.zlib.us_per_request()));
            (1.0 - ratio) / share(&pairs.iter().map(|pair| &pair.samples).collect::<Vec<_>>())
        };
        (saved(&pairs.iter().collect::<Vec<_>>()), bootstrap(pairs, 2_000, 1, saved))
    }

    /// In a table.
    pub(super) fn table(&self, libraries: &[Library]) -> Table {
        let mut table = Table::new(
            &format!(
                "Pages of 25 KB, and {} images of 100 KB for each 16, by TLS, {} requests a second for zlib's server and as many for another at once: zlib has {} % of its server's time",
                self.images,
                number(self.rate),
                number(self.share() * 100.0)
            ),
            &[
                "library",
                "us for a request",
                "zlib's",
                "saved of all, %",
                "saved over zlib's share",
                "95 % interval",
                "CPU, %",
                "load",
                "p50, ms",
                "p99, ms",
            ],
        );
        for (at, library) in libraries.iter().enumerate().skip(1) {
            let (saved, interval) = self.saved(at);
            let of = |what: fn(&Loaded) -> f64| number(median(self.runs[at - 1].iter().map(|pair| what(&pair.other))));
            table.rows.push(vec![
                library.name.to_owned(),
                of(Loaded::us_per_request),
                number(median(self.runs[at - 1].iter().map(|pair| pair.zlib.us_per_request()))),
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
        let pair = |(zlib, other)| Pair { zlib: run(zlib), samples, other: run(other) };
        let runs = vec![[(100, 85), (50, 45), (200, 160)].map(pair).to_vec()];
        let shares = Shares { images: 1, runs, rate: 1.0, failed: 0 };
        assert!(shares.off_by_pct() < 1e-9);
        let (saved, interval) = shares.saved(1);
        assert!(
            (saved - 0.75).abs() < 1e-9 && interval.low >= 0.5 - 1e-9 && interval.high <= 1.0 + 1e-9,
            "{interval:?}"
        );
    }
}
