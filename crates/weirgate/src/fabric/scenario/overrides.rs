//! Keys of a scenario that are set on the command line, before the file is read: what is wrong with them is found as if they stood there.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem;
use crate::config::read::{Lines, Problem, document};

/// A key of a scenario, as `balance.scheme`, and what it is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    key: String,
    value: String,
}

/// What was typed is not `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideError(String);

impl fmt::Display for OverrideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a key of the scenario and its value: write balance.scheme=ecmp", self.0)
    }
}

impl std::error::Error for OverrideError {}

impl Override {
    /// This key, set to a value as it would stand in the file, where a text needs no quotes; nothing: the key is taken out.
    ///
    /// # Errors
    /// Where the key is none, or the value has several lines.
    pub fn new(key: &str, value: &str) -> Result<Self, OverrideError> {
        let (key, value) = (key.trim(), value.trim());
        let is_bare =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if !key.split('.').all(is_bare) || value.contains(char::is_control) {
            return Err(OverrideError(format!("{key}={value}")));
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned() })
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What it is set to.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// As it would stand in the file.
    fn line(&self) -> String {
        if DeValue::parse(&self.value).is_ok() {
            format!("{} = {}\n", self.key, self.value)
        } else {
            format!("{} = {}\n", self.key, toml::Value::String(self.value.clone()))
        }
    }
}

impl FromStr for Override {
    type Err = OverrideError;

    fn from_str(text: &str) -> Result<Self, OverrideError> {
        let (key, value) = text.split_once('=').ok_or_else(|| OverrideError(text.to_owned()))?;
        Self::new(key, value)
    }
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

/// A file's text with what is set below it, by which lines are counted.
pub(super) struct Overridden<'a> {
    overrides: &'a [Override],
    /// The file's text, and a line for each override that sets something.
    text: String,
    /// The same, with blanks in place of the file's text: places in it are places in `text`.
    padded: String,
    /// Bytes of the file, and how many lines it has.
    file: usize,
    lines: usize,
}

impl<'a> Overridden<'a> {
    pub(super) fn new(file: &str, overrides: &'a [Override]) -> Self {
        let lines: String = overrides.iter().filter(|set| !set.value.is_empty()).map(Override::line).collect();
        let text = format!("{file}\n{lines}");
        let padded = format!("{}\n{lines}", " ".repeat(file.len()));
        Self { overrides, text, padded, file: file.len(), lines: file.matches('\n').count() + 1 }
    }

    /// What lines are counted by.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The file's tables, with what is set.
    pub(super) fn tables(&self) -> Result<Spanned<DeTable<'_>>, Problem> {
        let mut tables = document(&self.text[..self.file])?;
        let mut keys = BTreeSet::new();
        if let Some(twice) = self.overrides.iter().find(|set| !keys.insert(&set.key)) {
            return Err(problem(0, &twice.key, "is set twice on the command line: leave one of them out"));
        }
        // The blanks are one line.
        let set = document(&self.padded).map_err(|found| Problem { line: found.line + self.lines - 1, ..found })?;
        for taken in self.overrides.iter().filter(|set| set.value.is_empty()) {
            remove(tables.get_mut(), &taken.key);
        }
        merge(tables.get_mut(), set.into_inner());
        Ok(tables)
    }

    /// The same problem with the line of its key, if it has none and the key is there; without the key, with that of its section in the
    /// file.
    pub(super) fn locate(&self, tables: &DeTable<'_>, found: Problem) -> Problem {
        if found.line > 0 {
            return found;
        }
        let lines = Lines::of(&self.text);
        let line = |value: &Spanned<DeValue<'_>>| lines.at(value.span().start);
        let of_section = || {
            let (section, _) = found.key.rsplit_once('.')?;
            Some(line(find(tables, section)?)).filter(|line| *line <= self.lines)
        };
        let line = find(tables, &found.key).map(line).or_else(of_section).unwrap_or(0);
        Problem { line, ..found }
    }

    /// The same problem, for people: what is set has no line in the file.
    pub(super) fn place(&self, found: Problem) -> Problem {
        if found.line <= self.lines {
            return found;
        }
        let mut set = self.overrides.iter().filter(|set| !set.value.is_empty());
        let key = set.nth(found.line - self.lines - 1).map_or("", Override::key);
        let key = if found.key.is_empty() { key } else { &found.key };
        problem(0, key, format!("{} (set on the command line)", found.what))
    }
}

/// What a key is set to, as `balance.scheme`.
pub(super) fn find<'a, 'b>(tables: &'a DeTable<'b>, key: &str) -> Option<&'a Spanned<DeValue<'b>>> {
    match key.split_once('.') {
        None => tables.get(key),
        Some((first, rest)) => match tables.get(first)?.get_ref() {
            DeValue::Table(inner) => find(inner, rest),
            _ => None,
        },
    }
}

fn remove(table: &mut DeTable<'_>, key: &str) {
    match key.split_once('.') {
        None => {
            table.remove(key);
        }
        Some((first, rest)) => {
            if let Some(DeValue::Table(inner)) = table.get_mut(first).map(Spanned::get_mut) {
                remove(inner, rest);
            }
        }
    }
}

fn merge<'a>(base: &mut DeTable<'a>, set: DeTable<'a>) {
    for (key, value) in set {
        let had = base.get_mut(key.get_ref().as_ref()).map(Spanned::get_mut);
        let span = value.span();
        match (had, value.into_inner()) {
            (Some(DeValue::Table(base)), DeValue::Table(set)) => merge(base, set),
            (_, value) => {
                base.insert(key, Spanned::new(span, value));
            }
        }
    }
}
