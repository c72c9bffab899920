//! `gzip`: what compressing responses costs a real nginx, by Debian's zlib and by libraries that are loaded in its place.

mod calls;
mod clients;
mod faults;
mod fetch;
mod load;
mod more;
mod reload;
mod server;
mod share;
mod slow;

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weirgate_deflate::engine::{Engine as _, Stock, bound};

use self::load::{Load, Loaded};
use self::server::{Library, Server};
use crate::corpus::{self, Kind};
use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::report::{Report, Table, number};
use crate::stats::{Interval, median, ratio_of_runs};

pub(crate) use self::faults::run as accelerator;

/// Sizes of responses, KB of 1,000 bytes.
const SIZES: [usize; 5] = [1, 4, 25, 88, 500];

/// KB of bodies of each kind and size, and how many bodies there are at the least. With 16 of 1 KB a processor's branch predictor has them all
/// by heart after some hundred requests, and zlib takes half of the time that it takes for what it has not seen.
const KB_OF_KIND: usize = 512;
const BODIES_MIN: usize = 4;

/// Of each size, where a few are asked for.
const FEW: usize = 4 * BODIES_MIN;

/// A body that is served.
struct Body {
    name: String,
    kind: &'static str,
    kb: usize,
    bytes: Vec<u8>,
}

/// What was measured of one size with one library.
#[derive(Default)]
struct Cost {
    /// Processor time of the server for each request, in microseconds, by round.
    us: Vec<f64>,
    faults: Vec<f64>,
    rate: Vec<f64>,
    /// At a rate that all can hold.
    steady: Vec<Loaded>,
}

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "gzip", "Compressing a web server's responses");
    let full = options.form == Form::Full;
    let (rounds, seconds) = if full { (5, 2.0) } else { (3, 0.5) };
    let dir = options.dir("gzip")?;
    let libraries = Library::all(&options.weirgate)?;
    let bodies = bodies(options.seed)?;
    let root = dir.join("root");
    std::fs::create_dir_all(&root)?;
    for body in &bodies {
        std::fs::write(root.join(&body.name), &body.bytes)?;
    }
    let image = share::write_image(&root)?;
    let servers = libraries
        .iter()
        .map(|library| Server::start(&dir.join(library.folder("nginx")), library, &root))
        .collect::<Result<Vec<_>>>()?;

    options.say("every body by every library");
    let mut failed = 0;
    let mut sizes = Vec::new();
    for server in &servers {
        let (of_server, wrong) = fetched(server, bodies.iter())?;
        sizes.push(of_server);
        failed += wrong;
    }

    let mut costs: BTreeMap<(usize, usize), Cost> = BTreeMap::new();
    for kb in SIZES {
        let paths: Vec<&str> = bodies.iter().filter(|body| body.kb == kb).map(|body| body.name.as_str()).collect();
        // Half of what stock zlib can do.
        let mut rate = None;
        for round in 0..rounds {
            options.say(format!("{kb} KB, round {} of {rounds}", round + 1));
            for at in order(round, servers.len()) {
                let server = &servers[at];
                let load = Load { seconds, ..Load::default() };
                let loaded = load.run(server, &paths, &dir)?;
                failed += loaded.failed;
                let cost = costs.entry((at, kb)).or_default();
                cost.us.push(loaded.us_per_request());
                cost.faults.push(loaded.faults as f64 / loaded.done as f64);
                cost.rate.push(loaded.done as f64 / loaded.seconds);
            }
            let rate = *rate.get_or_insert_with(|| costs[&(0, kb)].rate[0] / 2.0);
            for at in order(round, servers.len()) {
                let load = Load { rate: Some(rate), seconds, ..Load::default() };
                let loaded = load.run(&servers[at], &paths, &dir)?;
                failed += loaded.failed;
                costs.entry((at, kb)).or_default().steady.push(loaded);
            }
        }
    }

    let asked = |kbs, seconds| more::Asked { bodies: &bodies, kbs, rounds, seconds };
    let (its, behind): (&[usize], &[usize]) = if full { (&[4, 25, 88, 500], &[88, 500]) } else { (&[25], &[88]) };
    let low = more::at_its_level(options, &libraries, asked(its, seconds), (&root, &dir))?;
    // 64 bodies of 500 KB are under way for half a second each.
    let proxied = more::proxied(options, &libraries, asked(behind, 2.0 * seconds), (&root, &dir))?;
    failed += low.failed + proxied.failed;
    let share_rounds = if full { 20 } else { 5 };
    let shares = share::run(options, &servers, &bodies, &image, (share_rounds, seconds), &dir)?;
    failed += shares.failed;
    options.say("a slow page");
    let slow = slow::run(&dir, &libraries, if full { 5 } else { 1 })?;
    failed += slow.failed;
    let few = |kb: usize| bodies.iter().filter(move |body| body.kb == kb).take(FEW);
    let usual: Vec<&Body> = [4, 25, 88].into_iter().flat_map(few).collect();
    options.say("system calls");
    let traced: Vec<&Body> = few(500).chain(usual.iter().copied()).collect();
    let (calls, more_calls) = calls::run(&dir, &servers, &libraries, &traced)?;
    let at = libraries.iter().position(Library::is_ours).context("ours is among the libraries")?;
    options.say("the configuration again and again");
    let reloads = reload::run(&servers[at], &libraries[at], &usual, if full { 1_000 } else { 50 })?;
    failed += reloads.seen.failed;
    let of_all = |at: usize| servers[at].alerts() + slow.alerts[at] + low.alerts[at] + proxied.alerts[at];
    let alerts: Vec<usize> = (0..servers.len()).map(of_all).collect();
    let of_ours = libraries.iter().zip(&alerts).filter(|(library, _)| library.is_ours()).map(|(_, alerts)| alerts);
    let of_ours: usize = of_ours.sum();

    let index = |name: &str| libraries.iter().position(|of| of.name == name).context("a library");
    let (stock, same, fast) = (index("zlib")?, index("same ratio")?, index("fast")?);
    let mut expectations = Expectations::of("gzip")?;
    let measured = |all: &mut Expectations, name: &str, value: f64, interval: Interval| -> Result<()> {
        if full {
            all.measured(name, value)?
        } else {
            all.measured_roughly(name, value, interval)?
        };
        Ok(())
    };
    for (name, at, kb) in [
        ("same_ratio_cpu_88k", same, 88),
        ("same_ratio_cpu_25k", same, 25),
        ("same_ratio_cpu_4k", same, 4),
        ("fast_cpu_88k", fast, 88),
    ] {
        let (ratio, interval) = against(&costs[&(at, kb)].us, &costs[&(stock, kb)].us);
        measured(&mut expectations, name, ratio, interval)?;
    }
    let slower = [same, fast].map(|at| p99_against(&costs, at, stock, &SIZES));
    let (ratio, interval) = slower.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).context("two libraries")?;
    measured(&mut expectations, "p99_over_stock", ratio, interval)?;
    let larger = |at: usize, kb: usize| larger(&sizes[at], &sizes[stock], kb);
    let largest =
        SIZES.map(|kb| larger(same, kb)).into_iter().fold(low.largest(same).max(proxied.largest(same)), f64::max);
    expectations.measured("same_ratio_size_pct", largest)?;
    expectations.measured("nginx_alerts", of_ours as f64)?;
    expectations.measured("failed_requests", failed as f64)?;
    let fast_88k = gzipped(&sizes[fast], 88);
    expectations.measured("fast_over_level_1_pct", (fast_88k as f64 / level_1(&bodies, 88)? as f64 - 1.0) * 100.0)?;
    let extra_calls = [same, fast].into_iter().flat_map(|at| calls::often(&more_calls[at])).count();
    expectations.measured("extra_calls", extra_calls as f64)?;
    let faults = costs.iter().filter(|((at, _), _)| [same, fast].contains(at));
    let faults = faults.map(|(_, cost)| median(cost.faults.iter().copied())).fold(0.0, f64::max);
    expectations.measured("page_faults", faults)?;
    for (name, at) in [("saved_over_share_fast", fast), ("saved_over_share_same", same)] {
        let (saved, interval) = shares.saved(at);
        measured(&mut expectations, name, saved, interval)?;
    }
    if full {
        expectations.measured("share_off_by_pct", shares.off_by_pct())?;
    } else {
        expectations.not_measured("share_off_by_pct");
    }
    expectations.measured("first_byte_over_stock_ms", slow.over_stock_ms)?;

    let mut cost_table = Table::new(
        "Processor time of the server for a request, as fast as it can",
        &["library", "KB", "us", "over zlib", "95 % interval", "requests a second", "page faults a request"],
    );
    let mut steady_table = Table::new(
        "At half of the rate that zlib can hold",
        &["library", "KB", "requests a second", "CPU, %", "load", "p50, ms", "p99, ms", "over zlib's", "95 % interval"],
    );
    for kb in SIZES {
        for (at, library) in libraries.iter().enumerate() {
            let cost = &costs[&(at, kb)];
            let (ratio, interval) = against(&cost.us, &costs[&(stock, kb)].us);
            let mut row = vec![library.name.to_owned(), kb.to_string(), number(median(cost.us.iter().copied()))];
            row.extend([number(ratio), format!("{} to {}", number(interval.low), number(interval.high))]);
            row.extend([&cost.rate, &cost.faults].map(|of| number(median(of.iter().copied()))));
            cost_table.rows.push(row);
            let (ratio, interval) = p99_against(&costs, at, stock, &[kb]);
            let of = |what: fn(&Loaded) -> f64| number(median(cost.steady.iter().map(what)));
            let row = [
                of(Loaded::rate),
                of(Loaded::cpu_pct),
                of(Loaded::load),
                of(|one| one.ms(0.5)),
                of(|one| one.ms(0.99)),
                number(ratio),
                format!("{} to {}", number(interval.low), number(interval.high)),
            ];
            steady_table.rows.push([vec![library.name.to_owned(), kb.to_string()], row.to_vec()].concat());
        }
    }
    let mut ratio_table = Table::new(
        "Bytes in over bytes out",
        &["library", "KB", "html", "js", "json", "text", "larger than zlib's, %"],
    );
    for kb in SIZES {
        for (at, library) in libraries.iter().enumerate() {
            let ratio = |kind: &str| {
                sizes[at].get(&(kind, kb)).map_or("-".into(), |(plain, gzip)| number(*plain as f64 / *gzip as f64))
            };
            let mut row = vec![library.name.to_owned(), kb.to_string()];
            row.extend(["html", "js", "json", "text"].map(ratio));
            row.push(number(larger(at, kb)));
            ratio_table.rows.push(row);
        }
    }
    let mut alerts_table = Table::new("Alerts, or worse, in the server's log", &["library", "alerts"]);
    for (library, alerts) in libraries.iter().zip(&alerts) {
        alerts_table.rows.push(vec![library.name.to_owned(), alerts.to_string()]);
    }
    let tables = vec![
        cost_table,
        steady_table,
        ratio_table,
        low.table(&libraries),
        proxied.table(&libraries),
        shares.table(&libraries),
        slow.table(&libraries),
        calls,
        reloads.table(),
        alerts_table,
    ];
    report.finish(
        format!(
            "nginx of Debian, configured as its package has it with `gzip on`, but for one worker, on the first core, and connections that stay open \
             for any number of requests; `gzip_comp_level 6`, and once 1, as where nobody sets it; once the bodies are another nginx's, on the second core; files of four kinds, of each {KB_OF_KIND} KB at each size and at least \
             {BODIES_MIN}: pages, scripts and answers made by the project from a seed, and text found below /usr/share. h2load with 16 connections on the second core asks for them in turn, \
             {seconds} s at a time, {rounds} rounds; in each all libraries one after the other, in another order each time. Processor time is \
             the worker's (schedstat), for all that it does; what is saved of zlib's share is the median of {share_rounds} rounds in which zlib's server and another have the same load at once, on \
             one core, and the share is of perf's samples in libz then; load is that and the time in which it waited for a processor, over the time that \
             passed. Ratios are means of logarithms of those of the rounds. Every body was fetched \
             once from every server and decompressed; zlib's level 1 makes them in this process."
        ),
        json!({ "level": 6, "sizes_kb": SIZES, "kb_of_kind": KB_OF_KIND, "bodies_min": BODIES_MIN, "rounds": rounds, "share_rounds": share_rounds, "seconds": seconds }),
        expectations,
        tables,
    )
}

/// Bytes of bodies of a kind and a size, and those of the answers that held them.
type Sizes = BTreeMap<(&'static str, usize), (u64, u64)>;

/// Asks for every body once: how large they were, and how many answers held something else.
fn fetched<'a>(server: &Server, bodies: impl Iterator<Item = &'a Body>) -> Result<(Sizes, u64)> {
    let (mut sizes, mut wrong) = (Sizes::new(), 0);
    for body in bodies {
        let answer = fetch::get(server.port, &body.name)?;
        let plain = weirgate_deflate::gunzip(&answer.body, body.bytes.len());
        wrong += u64::from(plain.as_deref() != Some(&body.bytes[..]));
        let (plain, gzip) = sizes.entry((body.kind, body.kb)).or_default();
        *plain += body.bytes.len() as u64;
        *gzip += answer.body.len() as u64;
    }
    Ok((sizes, wrong))
}

/// Bytes of the answers of a size.
fn gzipped(sizes: &Sizes, kb: usize) -> u64 {
    sizes.iter().filter(|((_, size), _)| *size == kb).map(|(_, (_, gzip))| gzip).sum()
}

/// By how much answers of a size are larger than stock zlib's, in per cent.
fn larger(ours: &Sizes, stock: &Sizes, kb: usize) -> f64 {
    (gzipped(ours, kb) as f64 / gzipped(stock, kb) as f64 - 1.0) * 100.0
}

/// What a library costs over another one, round by round.
fn against(ours: &[f64], theirs: &[f64]) -> (f64, Interval) {
    ratio_of_runs(&ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
}

/// A library's p99 at a rate that all hold over another one's, of these sizes together.
fn p99_against(costs: &BTreeMap<(usize, usize), Cost>, at: usize, stock: usize, sizes: &[usize]) -> (f64, Interval) {
    let pairs = sizes.iter().flat_map(|kb| costs[&(at, *kb)].steady.iter().zip(&costs[&(stock, *kb)].steady));
    ratio_of_runs(&pairs.map(|(ours, theirs)| ours.ms(0.99) / theirs.ms(0.99)).collect::<Vec<_>>())
}

/// Bytes of the bodies of a size as gzip files by stock zlib at its first level, with its defaults beside that.
fn level_1(bodies: &[Body], kb: usize) -> Result<usize> {
    let mut stock = Stock::new(1);
    let one = |body: &Body| {
        let mut out = vec![MaybeUninit::uninit(); bound(body.bytes.len())];
        // A gzip file's header and trailer are 18 bytes.
        stock.compress(&body.bytes, &mut out).ok().map(|len| len + 18).context("zlib has failed")
    };
    bodies.iter().filter(|body| body.kb == kb).map(one).sum()
}

/// The places of `count` arms, each round's first one another.
fn order(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |at| (at + round) % count)
}

/// Pages, scripts and answers, and what text the machine has.
fn bodies(seed: u64) -> Result<Vec<Body>> {
    let text = text(Path::new("/usr/share"), 4 << 20);
    ensure!(text.len() > 1_000_000, "no text below /usr/share");
    let mut bodies = Vec::new();
    for kb in SIZES {
        let size = kb * 1_000;
        let count = (KB_OF_KIND / kb).max(BODIES_MIN);
        for n in 0..count {
            for kind in Kind::ALL {
                let bytes = corpus::body(kind, seed.wrapping_add(n as u64), size);
                bodies.push(Body { name: format!("{kb}-{n}.{}", kind.name()), kind: kind.name(), kb, bytes });
            }
            let at = (text.len() - size) / count * n;
            let bytes = text[at..at + size].to_vec();
            bodies.push(Body { name: format!("{kb}-{n}.txt"), kind: "text", kb, bytes });
        }
    }
    Ok(bodies)
}

/// Text of the machine's documentation, up to `most` bytes of it, in the order of its names.
fn text(dir: &Path, most: usize) -> Vec<u8> {
    let mut found = Vec::new();
    let mut folders = vec![dir.join("perl"), dir.join("common-licenses"), dir.join("doc")];
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
        entries.sort();
        for path in entries {
            let is_text = path.extension().is_some_and(|of| ["txt", "html", "pod", "md"].iter().any(|end| of == *end));
            let is_link = path.is_symlink();
            if path.is_dir() && !is_link {
                folders.push(path);
            } else if (is_text || path.parent().is_some_and(|p| p.ends_with("common-licenses"))) && !is_link {
                found.extend(std::fs::read(path).unwrap_or_default());
            }
            if found.len() > most {
                found.truncate(most);
                return found;
            }
        }
    }
    found
}

/// Bytes by chance, the same ones each time.
fn chance() -> impl Iterator<Item = u8> {
    let mut state = 1_u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
}

/// For as long as a sleep of a client.
fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}
