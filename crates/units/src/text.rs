//! The one reader and the one writer of quantities.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
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

/// Reads a decimal number and one of `units`. Exact, or refused: nothing is rounded behind the reader's back. `what` it is and an
/// `example` are for the refusal.
pub(crate) fn parse(s: &str, what: &str, example: &str, units: &[Unit]) -> Result<u64, ParseUnitError> {
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
            ("", _) => {
                format!("`{s}` has no unit: write {what} with its unit, such as \"{example}\" (units: {})", known())
            }
            (_, Some(u)) => format!("`{s}` is not {what}: write `{number} {}` (upper and lower case differ)", u.name),
            _ => format!("`{s}` is not {what}: `{name}` is not one of {}", known()),
        }));
    };
    let exact = || {
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        // The number without its point is an integer that is `shift` times too large; digits that say nothing are left out.
        let fraction = fraction.trim_end_matches('0');
        let shift = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let whole = whole.parse::<u128>().ok()?.checked_mul(shift)?;
        let fraction = if fraction.is_empty() { 0 } else { fraction.parse::<u128>().ok()? };
        let scaled = whole.checked_add(fraction)?.checked_mul(u128::from(unit.size))?;
        u64::try_from(scaled / shift).ok().filter(|_| scaled.is_multiple_of(shift))
    };
    exact().ok_or_else(|| {
        ParseUnitError(format!(
            "`{s}` cannot be held exactly: use a whole number of a smaller unit, or a smaller number"
        ))
    })
}

/// Writes `value` in the largest of `units` in which it is exact: as a whole number, or, in a decimal multiple of the smallest unit,
/// as one with at most three decimals. So what was written is read back exactly, and "1.5 Mbit/s" as it was typed; but 90 s are
/// not "1.5 min", nor 16,000 B "15.625 KiB".
pub(crate) fn display(value: u64, zero: &str, units: &[Unit], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let exact = |unit: &&Unit| {
        let finest = if is_decimal(unit.size) { unit.size.div_ceil(1_000) } else { unit.size };
        value >= unit.size && value.is_multiple_of(finest)
    };
    let Some(unit) = units.iter().find(exact) else { return f.pad(&format!("0 {zero}")) };
    let (whole, rest) = (value / unit.size, value % unit.size);
    if rest == 0 {
        return f.pad(&format!("{whole} {}", unit.name));
    }
    let decimals = format!("{:03}", rest * 1_000 / unit.size);
    f.pad(&format!("{whole}.{} {}", decimals.trim_end_matches('0'), unit.name))
}

fn is_decimal(size: u64) -> bool {
    10_u64.pow(size.ilog10()) == size
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNITS: &[Unit] =
        &[Unit { name: "KiB", size: 1_024 }, Unit { name: "KB", size: 1_000 }, Unit { name: "B", size: 1 }];

    fn read(s: &str) -> Result<u64, String> {
        parse(s, "an amount of data", "100 KB", UNITS).map_err(|e| e.to_string())
    }

    #[test]
    fn what_can_be_held_exactly_is_read() {
        for (text, value) in [
            ("0 B", 0),
            ("100 KB", 100_000),
            ("100KB", 100_000),
            ("  1.5 KB ", 1_500),
            ("0.5 KiB", 512),
            ("1.0009765625 KiB", 1_025),
            ("1.50000000000000000000000000000000000000000 KB", 1_500),
            ("18446744073709551615 B", u64::MAX),
            ("18446744073709551.615 KB", u64::MAX),
        ] {
            assert_eq!(read(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_cannot_is_refused() {
        for text in [
            "1.05 B",
            "0.5 B",
            "1.0001 KB",
            "0.0001 KiB",
            "18446744073709551616 B",
            "18446744073709552 KB",
            "1.2.3 KB",
            ".5 KB",
            "5. KB",
            ". B",
            "99999999999999999999999999999999999999999999 B",
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains("cannot be held exactly"), "{text}: {error}");
        }
    }

    #[test]
    fn the_message_says_what_to_write() {
        for (text, message) in [
            ("100", "`100` has no unit: write an amount of data with its unit, such as \"100 KB\" (units: KiB, KB, B)"),
            ("", "`` is not an amount of data: write a number and a unit, one of KiB, KB, B"),
            ("-1 B", "`-1 B` is not an amount of data: write a number and a unit, one of KiB, KB, B"),
            ("100 Kb", "`100 Kb` is not an amount of data: write `100 KB` (upper and lower case differ)"),
            ("1 e3 B", "`1 e3 B` is not an amount of data: `e3 B` is not one of KiB, KB, B"),
        ] {
            assert_eq!(read(text), Err(message.to_owned()));
        }
    }

    fn written(value: u64, units: &'static [Unit]) -> String {
        struct Quantity(u64, &'static [Unit]);
        impl fmt::Display for Quantity {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                display(self.0, "B", self.1, f)
            }
        }
        Quantity(value, units).to_string()
    }

    #[test]
    fn the_largest_unit_that_is_exact_is_written() {
        for (value, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1 KB"),
            (1_024, "1 KiB"),
            (1_500, "1.5 KB"),
            (1_514, "1.514 KB"),
            (1_050, "1.05 KB"),
            (1_536, "1.536 KB"),
            (3_072, "3 KiB"),
            (16_000, "16 KB"),
            (1_234_567, "1234.567 KB"),
            (u64::MAX, "18446744073709551.615 KB"),
        ] {
            assert_eq!(written(value, UNITS), text);
        }
        // Neither is a decimal multiple of the other.
        const TIMES: &[Unit] = &[Unit { name: "min", size: 60 }, Unit { name: "s", size: 1 }];
        assert_eq!((written(90, TIMES), written(120, TIMES)), ("90 s".to_owned(), "2 min".to_owned()));
    }

    const DECIMAL: &[Unit] =
        &[Unit { name: "M", size: 1_000_000 }, Unit { name: "k", size: 1_000 }, Unit { name: "one", size: 1 }];

    proptest! {
        /// Whatever the units, what is written means what was meant.
        #[test]
        fn what_is_written_is_read_back(value in prop_oneof![any::<u64>(), 0_u64..1 << 24], scale in 0_u32..4) {
            let value = value.saturating_mul(10_u64.pow(scale)).max(1);
            for units in [UNITS, DECIMAL] {
                prop_assert_eq!(parse(&written(value, units), "", "", units), Ok(value));
            }
        }

        /// What is typed with at most three decimals, none of them idle, and as the largest unit, is what is written.
        #[test]
        fn what_was_typed_is_written(whole in 1_u64..1_000, thousandths in 0_u64..1_000, unit in 0_usize..2) {
            let decimals = format!(".{thousandths:03}");
            let decimals = decimals.trim_end_matches('0').trim_end_matches('.');
            let typed = format!("{whole}{decimals} {}", DECIMAL[unit].name);
            let value = parse(&typed, "", "", DECIMAL).expect("three decimals are exact");
            prop_assert_eq!(written(value, DECIMAL), typed);
        }

        /// Against the definition, in whole thousandths: exact or refused.
        #[test]
        fn decimals_are_exact_or_refused(whole in 0_u64..1 << 40, thousandths in 0_u64..1_000, unit in 0_usize..3) {
            let unit = &UNITS[unit];
            let scaled = (u128::from(whole) * 1_000 + u128::from(thousandths)) * u128::from(unit.size);
            let expected = (scaled % 1_000 == 0).then_some((scaled / 1_000) as u64);
            prop_assert_eq!(read(&format!("{whole}.{thousandths:03} {}", unit.name)).ok(), expected);
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,40}", number in "[0-9.]{0,30}") {
            let _ = read(&text);
            let _ = read(&format!("{number} KiB"));
        }
    }
}
