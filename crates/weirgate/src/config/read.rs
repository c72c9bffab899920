//! A strict reader of TOML tables: every key is asked for by name, whatever was not asked for is unknown, and every
//! problem says file, line, key and what to write instead. All problems of a file are found in one go.
//!
//! serde's derived readers stop at the first problem and cannot name the nearest key with its line; this is less code
//! than teaching them.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One thing wrong with a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, counted from 1; 0 where it concerns the file as a whole.
    pub line: usize,
    /// The key, with its section: `sockets.interval`.
    pub key: String,
    /// What is wrong and what to do.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)
    }
}

/// A value as it was typed, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Typed<T> {
    pub(crate) value: T,
    pub(crate) line: usize,
    pub(crate) key: String,
}

impl<T> Typed<T> {
    /// A problem with this value.
    pub(crate) fn problem(&self, what: impl Into<String>) -> Problem {
        Problem { line: self.line, key: self.key.clone(), what: what.into() }
    }
}

/// A file as text.
///
/// # Errors
/// That it cannot be read, or that it is no text, and where.
pub(crate) fn read_text(file: &Path) -> io::Result<String> {
    String::from_utf8(std::fs::read(file)?).map_err(|error| {
        let line =
            1 + error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("line {line} is no text: a file in UTF-8 is what can be read"),
        )
    })
}

/// The whole text, parsed; `Err` where it is not TOML at all.
pub(crate) fn document(text: &str) -> Result<Spanned<DeTable<'_>>, Problem> {
    DeTable::parse(text).map_err(|error| Problem {
        line: error.span().map_or(0, |span| Lines::of(text).at(span.start)),
        key: String::new(),
        what: format!("not TOML: {}", error.message().replace('\n', ", ")),
    })
}

/// One table under reading.
pub(crate) struct Section<'a> {
    name: String,
    lines: &'a Lines,
    table: Option<&'a DeTable<'a>>,
    asked: Vec<&'static str>,
    problems: Vec<Problem>,
}

impl<'a> Section<'a> {
    /// The top of the document.
    pub(crate) fn root(lines: &'a Lines, table: &'a DeTable<'a>) -> Self {
        Self { name: String::new(), lines, table: Some(table), asked: Vec::new(), problems: Vec::new() }
    }

    /// Reads the table `key` by `read`; where it is missing, `read` sees an empty one.
    pub(crate) fn table<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'a>) -> T) -> T {
        let found = self.find(key);
        let mut table = None;
        if let Some((value, line)) = found {
            table = value.as_table();
            if table.is_none() {
                self.note(
                    line,
                    key,
                    format!("must be a table, not {}: write [{key}] and its keys below", value.type_str()),
                );
            }
        }
        let mut section =
            Section { name: self.path(key), lines: self.lines, table, asked: Vec::new(), problems: Vec::new() };
        let result = read(&mut section);
        self.problems.extend(section.finish());
        result
    }

    /// Reads every table of the list `key` (`[[key]]`) by `read`, which also learns its line; `None` where there is none.
    pub(crate) fn tables<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Section<'a>, usize) -> T,
    ) -> Option<Vec<T>> {
        let (value, line) = self.find(key)?;
        let Some(items) = value.as_array() else {
            self.note(
                line,
                key,
                format!("must be a list of tables, not {}: write [[{}]]", value.type_str(), self.path(key)),
            );
            return None;
        };
        let mut list = Vec::with_capacity(items.len());
        for item in items.iter() {
            let line = self.lines.at(item.span().start);
            let table = item.get_ref().as_table();
            if table.is_none() {
                self.note(line, key, format!("must hold tables, not {}", item.get_ref().type_str()));
            }
            let mut section =
                Section { name: self.path(key), lines: self.lines, table, asked: Vec::new(), problems: Vec::new() };
            list.push(read(&mut section, line));
            self.problems.extend(section.finish());
        }
        Some(list)
    }

    /// A value with a textual form, as `"20 ms"`.
    pub(crate) fn parsed<T: FromStr<Err: fmt::Display>>(&mut self, key: &'static str) -> Option<Typed<T>> {
        let (value, line) = self.find(key)?;
        let Some(text) = value.as_str() else {
            // A number that only lacks its quotes, or its unit as well: whoever reads the text knows which.
            let what = bare_number(value).map(|number| (number, number.parse::<T>()));
            self.note(
                line,
                key,
                match what {
                    Some((number, Ok(_))) => format!("must be a text in double quotes: write \"{number}\""),
                    Some((_, Err(error))) => error.to_string(),
                    None => format!("must be a text in double quotes, not {}", value.type_str()),
                },
            );
            return None;
        };
        match text.parse::<T>() {
            Ok(value) => Some(self.typed(key, line, value)),
            Err(error) => {
                self.note(line, key, error.to_string());
                None
            }
        }
    }

    /// A list of values with a textual form.
    pub(crate) fn list<T: FromStr<Err: fmt::Display>>(&mut self, key: &'static str) -> Option<Typed<Vec<T>>> {
        let (value, line) = self.find(key)?;
        let Some(items) = value.as_array() else {
            self.note(line, key, format!("must be a list in square brackets, not {}", value.type_str()));
            return None;
        };
        let mut list = Vec::with_capacity(items.len());
        for item in items.iter() {
            let line = self.lines.at(item.span().start);
            let Some(text) = item.get_ref().as_str() else {
                self.note(line, key, format!("must hold texts in double quotes, not {}", item.get_ref().type_str()));
                return None;
            };
            match text.parse::<T>() {
                Ok(value) => list.push(value),
                Err(error) => {
                    self.note(line, key, error.to_string());
                    return None;
                }
            }
        }
        Some(self.typed(key, line, list))
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&mut self, key: &'static str) -> Option<Typed<bool>> {
        let (value, line) = self.find(key)?;
        let Some(value) = value.as_bool() else {
            self.note(line, key, format!("must be true or false, without quotes, not {}", value.type_str()));
            return None;
        };
        Some(self.typed(key, line, value))
    }

    /// A plain whole number of at least `low` and at most `high`.
    pub(crate) fn integer(&mut self, key: &'static str, low: u64, high: u64) -> Option<Typed<u64>> {
        let (value, line) = self.find(key)?;
        match whole(value) {
            Some(number) if (low..=high).contains(&number) => Some(self.typed(key, line, number)),
            _ => {
                self.note(line, key, format!("must be a whole number of {low} to {high}, without quotes or unit"));
                None
            }
        }
    }

    /// A plain number of 0 to 1.
    pub(crate) fn share(&mut self, key: &'static str) -> Option<Typed<f64>> {
        let (value, line) = self.find(key)?;
        let number = match value {
            DeValue::Float(number) => number.as_str().parse().ok(),
            other => whole(other).map(|number| number as f64),
        };
        match number.filter(|number: &f64| (0.0..=1.0).contains(number)) {
            Some(number) => Some(self.typed(key, line, number)),
            None => {
                self.note(line, key, "must be a number of 0 to 1, without quotes, as 0.8".to_owned());
                None
            }
        }
    }

    /// The key that stands first in the table, whatever is in it; `None`: the table is empty, or not there.
    pub(crate) fn first(&self) -> Option<Typed<()>> {
        let (key, value) = self.table?.iter().min_by_key(|(key, _)| key.span().start)?;
        Some(self.typed(key.get_ref(), self.lines.at(value.span().start), ()))
    }

    /// Whether the table is there at all.
    pub(crate) const fn is_there(&self) -> bool {
        self.table.is_some()
    }

    /// Whether the key is there, whatever is in it.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    /// A list of port numbers.
    pub(crate) fn ports(&mut self, key: &'static str) -> Option<Typed<Vec<u16>>> {
        let (value, line) = self.find(key)?;
        let ports = value.as_array().and_then(|items| {
            let port = |item: &Spanned<DeValue<'_>>| {
                whole(item.get_ref()).and_then(|n| u16::try_from(n).ok()).filter(|port| *port != 0)
            };
            items.iter().map(port).collect::<Option<Vec<u16>>>()
        });
        let Some(ports) = ports else {
            self.note(line, key, "must be a list of port numbers of 1 to 65535, as [80, 443]".to_owned());
            return None;
        };
        Some(self.typed(key, line, ports))
    }

    /// Ends the reading: what is wrong with the values, and the keys that nobody asked for.
    pub(crate) fn finish(mut self) -> Vec<Problem> {
        let table = self.table.map(DeTable::iter).into_iter().flatten();
        for (key, _) in table {
            let name: &str = key.get_ref();
            if self.asked.contains(&name) {
                continue;
            }
            let line = self.lines.at(key.span().start);
            let what = match nearest(name, &self.asked) {
                Some(near) => format!("unknown key; did you mean `{near}`?"),
                None => format!("unknown key; known here: {}", self.asked.join(", ")),
            };
            let key = if self.name.is_empty() { name.to_owned() } else { format!("{}.{name}", self.name) };
            self.problems.push(Problem { line, key, what });
        }
        self.problems
    }

    fn find(&mut self, key: &'static str) -> Option<(&'a DeValue<'a>, usize)> {
        self.asked.push(key);
        let table: &'a DeTable<'a> = self.table?;
        let value = table.get(key)?;
        Some((value.get_ref(), self.lines.at(value.span().start)))
    }

    fn path(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    fn typed<T>(&self, key: &str, line: usize, value: T) -> Typed<T> {
        Typed { value, line, key: self.path(key) }
    }

    fn note(&mut self, line: usize, key: &str, what: String) {
        let key = self.path(key);
        self.problems.push(Problem { line, key, what });
    }
}

/// The most names that one message lists.
const LISTED_MAX: usize = 10;

/// That no `what` (a limit, a port) is called `name`, the one that may have been meant, and which there are: sorted, the first
/// [`LISTED_MAX`] of them.
pub(crate) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let mut known: Vec<&str> = known.iter().copied().filter(|known| !known.is_empty()).collect();
    known.sort_unstable();
    known.dedup();
    let near = nearest(name, &known).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    let there = match known.len() {
        0 => return format!("there is no {what} called `{name}`, nor any other"),
        all @ ..=LISTED_MAX => known[..all].join(", "),
        all => format!("{}, and {} more", known[..LISTED_MAX].join(", "), all - LISTED_MAX),
    };
    let and = if near.is_empty() { "; there are" } else { " There are" };
    format!("there is no {what} called `{name}`{near}{and}: {there}")
}

/// The known name closest to `name`, unless none is close: more than a third of it would have to change.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let bound = (name.chars().count() / 3).max(1);
    let distance = |other: &str| strsim::damerau_levenshtein(&name.to_lowercase(), other);
    // A prefix is a slip of memory, not of the finger: `namespace` for `namespaces`, `server` for `server_ports`.
    let prefix = |other: &&&str| other.starts_with(name) || name.starts_with(**other);
    let closest = known.iter().min_by_key(|other| distance(other)).filter(|other| distance(other) <= bound);
    closest.or_else(|| known.iter().find(prefix)).copied()
}

/// The digits of a number that was written without quotes.
fn bare_number<'a>(value: &'a DeValue<'_>) -> Option<&'a str> {
    value.as_integer().map(|number| number.as_str()).or_else(|| value.as_float().map(|number| number.as_str()))
}

fn whole(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Where the lines of a text end.
#[derive(Debug)]
pub(crate) struct Lines(Vec<usize>);

impl Lines {
    pub(crate) fn of(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect())
    }

    /// The line of a place in the text, from 1.
    pub(crate) fn at(&self, offset: usize) -> usize {
        self.0.partition_point(|end| *end < offset) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_said_with_its_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"seed = 1\n\xff").unwrap();
        let said = read_text(file.path()).unwrap_err().to_string();
        assert_eq!(said, "line 2 is no text: a file in UTF-8 is what can be read");
    }
}
