//! Taking back what the journal says was done, newest first.
//!
//! Pure but for the [`Kernel`] it is given, so that the rule "the admin wins" is tested on a make-believe one.

use std::fmt;

use super::{Change, Entry, Object};

/// What reads and sets the objects of a journal.
pub trait Kernel {
    /// What `object` is now, in the words of [`Change::before`]; `None` where it is not there.
    fn read(&mut self, object: &Object) -> Result<Option<String>, KernelError>;

    /// Makes `object` what it was; `None` removes it. False: there was nothing to do.
    fn write(&mut self, object: &Object, value: Option<&str>) -> Result<bool, KernelError>;
}

/// Why an object can neither be read nor set.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KernelError(
    /// What went wrong and what to do.
    pub String,
);

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was taken back.
    Undone,
    /// There was nothing to take back, and why.
    Gone(&'static str),
    /// Somebody else set it since: it stays as it is now.
    Left(String),
    /// It goes with another object of this journal.
    With(&'static str),
    /// It could not be taken back; it stays in the journal.
    Failed(String),
}

/// One change and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undone {
    /// The change's number in the journal.
    pub sequence: u64,
    /// The change.
    pub change: Change,
    /// What became of it.
    pub outcome: Outcome,
}

/// Takes back `entries`, the newest first. An object that is neither what the change made of it nor what it was before
/// was set by somebody else, and stays. Work is one read and at most one write per entry.
pub fn undo(entries: &[Entry], boot: &str, kernel: &mut dyn Kernel) -> Vec<Undone> {
    let take_back = |entry: &Entry| Undone {
        sequence: entry.sequence,
        change: entry.change.clone(),
        outcome: if entry.boot == boot {
            one(&entry.change, kernel)
        } else {
            Outcome::Gone("made before the last boot, which nothing in a kernel outlives")
        },
    };
    entries.iter().rev().map(take_back).collect()
}

fn one(change: &Change, kernel: &mut dyn Kernel) -> Outcome {
    match change.object {
        Object::Policy { .. } => return Outcome::With("the pinned maps"),
        Object::Unknown => {
            return Outcome::Failed("made by a newer version: let that one undo it, or reboot".to_owned());
        }
        _ => {}
    }
    let now = match kernel.read(&change.object) {
        Ok(now) => now,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    if now == change.before {
        return Outcome::Gone("it is already what it was before");
    }
    if now != change.after {
        let now = now.map_or_else(|| "gone".to_owned(), |now| format!("`{now}`"));
        return Outcome::Left(format!("somebody set it since: it is {now} and stays so"));
    }
    match kernel.write(&change.object, change.before.as_deref()) {
        Ok(true) => Outcome::Undone,
        Ok(false) => Outcome::Gone("it is no longer there"),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

impl Outcome {
    /// Whether the change needs no more undoing.
    pub const fn is_settled(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undone => f.write_str("undone"),
            Self::Gone(why) => write!(f, "nothing to undo: {why}"),
            Self::Left(why) => write!(f, "left alone: {why}"),
            Self::With(what) => write!(f, "goes with {what}"),
            Self::Failed(why) => write!(f, "NOT undone: {why}"),
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let within = |namespace: &std::path::Path| {
            if namespace.as_os_str().is_empty() { String::new() } else { format!(" in {}", namespace.display()) }
        };
        match self {
            Self::Pins { dir, .. } => write!(f, "programs, links and maps pinned in {}", dir.display()),
            Self::Policy { dir } => write!(f, "policy in the maps of {}", dir.display()),
            Self::Mount { path } => write!(f, "the BPF file system on {}", path.display()),
            Self::Routes { namespace, table, priority } => {
                write!(f, "routes of table {table} and the rule of priority {priority}{}", within(namespace))
            }
            Self::NftTable { namespace, table } => write!(f, "nftables' table {table}{}", within(namespace)),
            Self::Ways { namespace, table, priority } => {
                let namespace = within(namespace);
                write!(f, "uplinks' routes from table {table} and rules from priority {priority} on{namespace}")
            }
            Self::Sysctl { namespace, key } => write!(f, "the setting {key}{}", within(namespace)),
            Self::Unknown => f.write_str("an object of an unknown kind"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |v: &Option<String>| v.as_ref().map_or_else(|| "nothing".to_owned(), |v| format!("`{v}`"));
        write!(f, "{}: {} -> {}", self.object, value(&self.before), value(&self.after))
    }
}
