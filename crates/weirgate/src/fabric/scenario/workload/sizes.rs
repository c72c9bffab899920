//! How large flows are.

use weirgate_fabric::{PUBLISHED, Sizes};
use weirgate_units::Bytes;

use super::{Around, is_nothing};
use crate::config::read::{Problem, Section, Typed, read_text, unknown};

/// A file whose largest flow is below this may well count something else: in bytes, the published distributions end at 666 KB or more.
const ASKED_BELOW: u64 = 100_000;

/// The names that `unit` can have.
const UNITS: [&str; 3] = ["bytes", "KB", "packets"];

/// Reads `sizes` and `unit`.
pub(super) fn read(section: &mut Section<'_>, around: Around<'_>, problems: &mut Vec<Problem>) -> Option<Sizes> {
    let named = section.parsed::<String>("sizes");
    let unit = section.parsed::<String>("unit");
    let is_file = named.as_ref().is_some_and(|named| named.value.ends_with(".csv"));
    if let Some(unit) = unit.as_ref().filter(|_| !is_file) {
        problems.push(unit.problem("says what a file of sizes counts, and `sizes` names none: take it out"));
    }
    let Some(named) = named else { return Sizes::published("facebook_web_server") };
    if is_file {
        return file(&named, unit.as_ref(), around).map_err(|problem| problems.push(problem)).ok();
    }
    if let Ok(bytes) = named.value.parse::<Bytes>() {
        let bytes = Typed { value: bytes, line: named.line, key: named.key };
        problems.extend(is_nothing(&bytes));
        return Some(Sizes::fixed(bytes.value.as_u64()));
    }
    let published = Sizes::published(&named.value);
    if published.is_none() {
        let what = unknown("distribution", &named.value, &PUBLISHED.map(|(name, _)| name));
        problems.push(named.problem(format!("{what}; or write a size, as \"10 KB\", or a file that ends in .csv")));
    }
    published
}

fn file(named: &Typed<String>, unit: Option<&Typed<String>>, around: Around<'_>) -> Result<Sizes, Problem> {
    let wrong = |what: String| named.problem(format!("{}: {what}", named.value));
    let text = read_text(&around.folder.join(&named.value)).map_err(|error| wrong(error.to_string()))?;
    let sizes = Sizes::parse(&text).map_err(|error| wrong(error.to_string()))?;
    let Some(unit) = unit else {
        let largest = sizes.largest();
        if largest < ASKED_BELOW {
            return Err(wrong(format!(
                "the largest flow is of {largest}: bytes? Write unit = \"bytes\", \"KB\" (1,000 bytes) or \"packets\" (of tcp.mss \
                 bytes) below [workload]"
            )));
        }
        return Ok(sizes);
    };
    let bytes = match unit.value.as_str() {
        "bytes" => 1,
        "KB" => 1_000,
        "packets" => u64::from(around.mss),
        other => return Err(unit.problem(unknown("unit", other, &UNITS))),
    };
    sizes.scaled(bytes).map_err(|error| wrong(error.to_string()))
}
