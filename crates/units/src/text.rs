//! The one reader and the one writer of quantities.

use core::fmt;

/// A unit's name and how many of the smallest unit it is.
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    pub(crate) size: u64,
}

/// A quantity that cannot be read; the text says what was found and what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseUnitError(String);

impl fmt::Display for ParseUnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ParseUnitError {}

/// Reads a decimal number and one of `units`. Exact, or refused: nothing is rounded behind the reader's back.
pub(crate) fn parse(s: &str, what: &str, units: &[Unit]) -> Result<u64, ParseUnitError> {
    let known = || units.iter().map(|u| u.name).collect::<Vec<_>>().join(", ");
    let text = s.trim();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, name) = (&text[..at], text[at..].trim_start());
    if number.is_empty() {
        return Err(ParseUnitError(format!("`{s}` is not {what}: write a number and a unit, one of {}", known())));
    }
    let Some(unit) = units.iter().find(|u| u.name == name) else {
        let near = units.iter().find(|u| u.name.eq_ignore_ascii_case(name));
        return Err(ParseUnitError(match (name, near) {
            ("", _) => format!("`{s}` has no unit: write one of {}", known()),
            (_, Some(u)) => format!("`{s}` is not {what}: write `{number} {}` (upper and lower case differ)", u.name),
            _ => format!("`{s}` is not {what}: `{name}` is not one of {}", known()),
        }));
    };
    let exact = || {
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let mut value = whole.parse::<u64>().ok()?.checked_mul(unit.size)?;
        let mut place = unit.size;
        for digit in fraction.bytes() {
            let digit = (digit as char).to_digit(10)?;
            if digit > 0 && place % 10 != 0 {
                return None;
            }
            place /= 10;
            value = value.checked_add(u64::from(digit) * place)?;
        }
        Some(value)
    };
    exact().ok_or_else(|| {
        ParseUnitError(format!(
            "`{s}` cannot be held exactly: use a whole number of a smaller unit, or a smaller number"
        ))
    })
}

/// Writes `value` in the largest of `units` that divides it, so that what was written is read back exactly.
pub(crate) fn display(value: u64, zero: &str, units: &[Unit], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match units.iter().find(|u| value != 0 && value.is_multiple_of(u.size)) {
        Some(u) => f.pad(&format!("{} {}", value / u.size, u.name)),
        None => f.pad(&format!("0 {zero}")),
    }
}
