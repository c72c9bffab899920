//! `weirgate deflate`: engines that compress responses.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use weirgate_lab::codecs;
use weirgate_lab::corpus::{self, Kind};
use weirgate_lab::experiment::{Form, Options};

use super::accelerator::Accelerator;
use super::output::Output;
use super::{Common, Failure, ask};
use crate::control::Request;
use crate::view::api;

/// Of each file so much is read: a web server's responses are shorter.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Args)]
pub(super) struct Deflate {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What processes compress by libweirgate_z.so, as the running daemon has counted it
    Status(Status),
    /// Compress files by every engine at every level: speed, ratio and processor time, as a table and a plot
    Bench(Bench),
    /// Compress for libweirgate_z.so by a GPU; or as a simulated card, with its paths and faults
    Accelerator(Accelerator),
}

#[derive(Debug, Args)]
struct Status {
    #[command(flatten)]
    common: Common,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Bench {
    /// Files, of each at most the first 64 MiB; without any, pages, scripts and API answers of 4, 25 and 88 KB made for this
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Processor time for each engine and level
    #[arg(long, value_name = "SECONDS", default_value_t = 0.3)]
    seconds: f64,
    /// Where its folder, deflate-bench, is made, in place of an earlier one
    #[arg(short, long, value_name = "DIR", default_value = "lab-out")]
    out: PathBuf,
}

impl Deflate {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        match self.what {
            What::Status(status) => status.run(out),
            What::Bench(bench) => bench.run(out),
            What::Accelerator(accelerator) => accelerator.run(out),
        }
    }
}

impl Status {
    fn run(self, out: &mut Output) -> Result<(), Failure> {
        let answer = ask(&self.common.load()?, &Request::DeflateStatus)?;
        if self.json {
            return Ok(out.json(&answer)?);
        }
        let status: api::Deflate = serde_json::from_value(answer).context("the daemon's answer")?;
        Ok(show(&status, out)?)
    }
}

/// For people.
fn show(status: &api::Deflate, out: &mut Output) -> io::Result<()> {
    out.line(&format!(
        "processes that compress by libweirgate_z.so (one that was killed, for a minute more): {}",
        status.processes
    ))?;
    if status.instances > 0 {
        out.line(&format!("instances of an accelerator that are theirs: {}", status.instances))?;
    }
    let (columns, rows) = table(status);
    if rows.is_empty() {
        out.line("nothing has been compressed yet")?;
    } else {
        out.table(&columns, &rows)?;
    }
    let fallbacks = status.fallbacks.iter().filter(|fallback| fallback.count > 0);
    let fallbacks: Vec<String> = fallbacks.map(|of| format!("{} {}", of.reason, of.count)).collect();
    let fallbacks = if fallbacks.is_empty() { "none".to_owned() } else { fallbacks.join(", ") };
    out.line(&format!("left to another engine: {fallbacks}"))
}

/// Engines that did something, and what.
fn table(status: &api::Deflate) -> ([&'static str; 6], Vec<Vec<String>>) {
    let row = |engine: &api::Engine| {
        let api::Engine { name, bodies, bytes_in, bytes_out, us } = engine;
        let share = |of: u64, by: u64, digits: usize| {
            if by == 0 { "-".to_owned() } else { format!("{:.digits$}", of as f64 / by as f64) }
        };
        let counts = [bodies, bytes_in, bytes_out].map(u64::to_string);
        // A byte in a microsecond is a megabyte in a second.
        let measured = [share(*bytes_in, *bytes_out, 2), share(*bytes_in, *us, 0)];
        [vec![name.clone()], counts.to_vec(), measured.to_vec()].concat()
    };
    let used = status.engines.iter().filter(|engine| [engine.bodies, engine.bytes_in, engine.bytes_out] != [0; 3]);
    (["engine", "bodies", "bytes in", "bytes out", "ratio", "MB/s"], used.map(row).collect())
}

impl Bench {
    fn run(self, out: &mut Output) -> Result<(), Failure> {
        let each =
            Duration::try_from_secs_f64(self.seconds).ok().filter(|each| !each.is_zero() && each.as_secs() <= 3_600);
        let each =
            each.ok_or_else(|| Failure::Usage(anyhow!("--seconds: {} is not above 0 and up to 3600", self.seconds)))?;
        let bodies = if self.files.is_empty() { made() } else { read(&self.files).map_err(Failure::Usage)? };
        let options = Options {
            form: Form::Full,
            seed: 1,
            out: self.out,
            weirgate: std::env::current_exe().context("this program's own file is not known")?,
            chatty: true,
        };
        let report = codecs::bench(&options, &bodies, each)?;
        let dir = options.dir("deflate-bench")?;
        report.write(&dir)?;
        report.write_parts(&dir)?;
        out.line(report.text().trim_end())?;
        let place = dir.join("report.html");
        Ok(out.line(&format!("{} (a next run replaces it, unless -o names another folder)", place.display()))?)
    }
}

/// What web servers send.
fn made() -> Vec<(String, Vec<u8>)> {
    let sizes = [4_000, 25_000, 88_000];
    let all = Kind::ALL.into_iter().flat_map(|kind| sizes.map(|size| (kind, size)));
    all.map(|(kind, size)| (format!("{size} bytes of {}", kind.name()), corpus::body(kind, 1, size))).collect()
}

fn read(files: &[PathBuf]) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let one = |path: &Path| -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let mut bodies = Vec::new();
    for path in files {
        let bytes = one(path).with_context(|| format!("{} cannot be read", path.display()))?;
        // There is nothing to compress in an empty one.
        if !bytes.is_empty() {
            bodies.push((path.display().to_string(), bytes));
        }
    }
    anyhow::ensure!(!bodies.is_empty(), "all of these files are empty");
    Ok(bodies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_shown_with_ratio_and_speed() {
        let engine = |name: &str, bodies, bytes_in, bytes_out, us| api::Engine {
            name: name.into(),
            bodies,
            bytes_in,
            bytes_out,
            us,
        };
        let engines = vec![
            engine("zlib", 0, 0, 0, 0),
            engine("libdeflate", 2, 90_000, 20_000, 900),
            engine("zlib_stream", 1, 0, 0, 0),
        ];
        let (_, rows) = table(&api::Deflate { engines, ..api::Deflate::default() });
        assert_eq!(rows[0], ["libdeflate", "2", "90000", "20000", "4.50", "100"]);
        assert_eq!(rows[1], ["zlib_stream", "1", "0", "0", "-", "-"]);
        assert_eq!(rows.len(), 2, "what did nothing is left out");
    }

    #[test]
    fn status_shows_what_there_is() {
        let text = |status: &api::Deflate| {
            let mut out = Output::memory();
            show(status, &mut out).unwrap();
            out.into_text()
        };
        let fallback = |reason: &str, count| api::Fallback { reason: reason.into(), count };
        let mut status = api::Deflate {
            processes: 1,
            engines: vec![api::Engine { name: "igzip".into(), ..api::Engine::default() }],
            fallbacks: vec![fallback("flush", 0)],
            ..api::Deflate::default()
        };
        let processes = "processes that compress by libweirgate_z.so (one that was killed, for a minute more): 1\n";
        let nothing = "nothing has been compressed yet\nleft to another engine: none\n";
        assert_eq!(text(&status), format!("{processes}{nothing}"));
        (status.instances, status.engines[0].bodies) = (2, 7);
        status.fallbacks.extend([fallback("slow", 3), fallback("late", 1)]);
        let accelerator = "instances of an accelerator that are theirs: 2\n";
        let table = "engine  bodies  bytes in  bytes out  ratio  MB/s\nigzip        7         0          0  -      -\n";
        let left = "left to another engine: slow 3, late 1\n";
        assert_eq!(text(&status), format!("{processes}{accelerator}{table}{left}"));
    }

    #[test]
    fn files_are_read_and_what_cannot_be_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (some, none) = (dir.path().join("some"), dir.path().join("none"));
        std::fs::write(&some, b"text").unwrap();
        std::fs::write(&none, b"").unwrap();
        assert_eq!(read(&[none.clone(), some]).unwrap().len(), 1);
        assert_eq!(read(&[none]).unwrap_err().to_string(), "all of these files are empty");
        let missing = read(&[dir.path().join("missing")]).unwrap_err();
        assert!(missing.to_string().ends_with("missing cannot be read"), "{missing}");
        assert_eq!(made().len(), 9);
    }
}
