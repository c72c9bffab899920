//! `weirgate fabric verify`: the simulator against theory, closed forms and outcomes that are known by hand.

use anyhow::Result;
use serde_json::json;
use weirgate_balance::Looks;
use weirgate_fabric::verify::{CHECKS, Finding, Form, crowd};
use weirgate_fabric::{Scheme, Settings};
use weirgate_lab::expectation::Expectations;
use weirgate_lab::experiment::{Form as Length, Options};
use weirgate_lab::report::{Report, Table, number};

use super::threads::on_threads;

/// Seeds whose runs are compared.
const SEEDS: u64 = 8;

const fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "DOES NOT HOLD" }
}

/// Runs all checks, as many at once as `threads` says, and writes the folder `verify`; a check that does not hold fails.
///
/// # Errors
/// Where files cannot be written.
pub fn run(options: &Options, threads: usize) -> Result<(Report, bool)> {
    let report = Report {
        is_timed: false,
        ..Report::begin(options, "verify", "The fabric simulator against what is known without it")
    };
    let form = if options.form == Length::Full { Form::Full } else { Form::Short };
    let findings: Vec<Finding> = on_threads(threads, CHECKS, |check| {
        let finding = (check.run)(options.seed, form);
        if options.chatty {
            say!("fabric: {}: {}", check.name, verdict(finding.holds()));
        }
        finding
    });
    let heads = ["check", "measured", "expected", "tolerance", ""];
    let row = |name: String, measured, expected, tolerance, verdict: &str| {
        vec![name, number(measured), number(expected), number(tolerance), verdict.to_owned()]
    };
    let mut summary = Table::new("Checks", &heads);
    let mut cases = Table::new("What they compare", &heads);
    for (check, found) in CHECKS.iter().zip(&findings) {
        let Finding { measured, expected, tolerance, .. } = *found;
        summary.rows.push(row(check.name.to_owned(), measured, expected, tolerance, verdict(found.holds())));
        cases.rows.push(row(
            format!("{}: {}", check.name, check.compares),
            f64::NAN,
            f64::NAN,
            f64::NAN,
            verdict(found.holds()),
        ));
        for case in &found.cases {
            let name = format!("... {}", case.name);
            let verdict = if case.is_compared() { verdict(case.holds()) } else { "left out: too rare" };
            cases.rows.push(row(name, case.measured, case.expected, case.tolerance, verdict));
        }
    }
    let digest = |seed: &u64| crowd(Settings::new(*seed, Scheme::Drill(Looks::RECOMMENDED))).digest();
    let seeds: Vec<u64> = (0..SEEDS).map(|seed| options.seed + seed).collect();
    let [one, two] = [1, 2].map(|threads| on_threads(threads, &seeds, digest));
    let mut expectations = Expectations::of("verify")?;
    for name in ["mm1_error_pct", "md1_error_pct", "drill_d0_unstable", "drill_11_bounded"] {
        let found = CHECKS.iter().zip(&findings).find(|(check, _)| check.name == name);
        match found {
            // A short run is not long enough to see a mean to 1 %.
            Some((_, found)) if form == Form::Short && found.tolerance > 1.0 => expectations.not_measured(name),
            Some((_, found)) => _ = expectations.measured(name, found.measured)?,
            None => {}
        }
    }
    expectations.measured("same_digest_1_and_2_threads", f64::from(u8::from(one == two)))?;
    let holds = findings.iter().all(Finding::holds);
    let method = format!(
        "Each check says what it compares and how far off it may be; of things that must be exact only misses are listed, and what is too rare to be measured is left out. {SEEDS} runs of a crowded network, one after the \
         other and two at once, have the same digests of all their packets' arrivals, each by its seed."
    );
    let report = report.finish(
        method,
        json!({ "form": if form == Form::Full { "full" } else { "short" }, "seed": options.seed }),
        expectations,
        vec![summary, cases],
    )?;
    let dir = options.dir("verify")?;
    report.write(&dir)?;
    report.write_parts(&dir)?;
    let holds = holds && report.holds();
    Ok((report, holds))
}
