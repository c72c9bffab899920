//! What was typed: every key of the file, present or not, with its line. What it means is in [`super::Config`].

use std::fmt;
use std::str::FromStr;

use weirgate_units::{Bytes, Duration, Prefix};

use super::controller::{self, TypedController};
use super::export::{self, TypedKafka};
use super::fleet::{self, TypedFleet};
use super::read::{self, Lines, Problem, Section, Typed};
use super::shaping::{self, TypedShaping};
use super::tune::{self, TypedTune};
use super::uplinks::{self, TypedUplinks};
use super::{Close, Source};

pub(super) type Maybe<T> = Option<Typed<T>>;

/// The file as typed.
#[derive(Debug)]
pub(super) struct File {
    pub(super) host: Host,
    pub(super) http: Http,
    pub(super) control: Control,
    pub(super) sockets: Sockets,
    pub(super) store: Store,
    pub(super) kafka: TypedKafka,
    pub(super) tune: TypedTune,
    pub(super) fleet: TypedFleet,
    pub(super) controller: TypedController,
    pub(super) shaping: TypedShaping,
    pub(super) uplinks: TypedUplinks,
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: Maybe<String>,
    pub(super) pop: Maybe<String>,
    pub(super) state: Maybe<String>,
}

#[derive(Debug)]
pub(super) struct Http {
    pub(super) listen: Maybe<String>,
}

#[derive(Debug)]
pub(super) struct Control {
    pub(super) socket: Maybe<String>,
}

#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) source: Maybe<Source>,
    pub(super) interval: Maybe<Duration>,
    pub(super) namespaces: Maybe<Vec<String>>,
    pub(super) states: Maybe<Vec<StateName>>,
    pub(super) ports: Maybe<Vec<u16>>,
    pub(super) include: Maybe<Vec<Prefix>>,
    pub(super) exclude: Maybe<Vec<Prefix>>,
    pub(super) close: Maybe<Close>,
    pub(super) cgroup: Maybe<String>,
    pub(super) ring: Maybe<Bytes>,
}

#[derive(Debug)]
pub(super) struct Store {
    pub(super) enabled: Maybe<bool>,
    pub(super) dir: Maybe<String>,
    pub(super) flush: Maybe<Duration>,
    pub(super) size_max: Maybe<Bytes>,
    pub(super) age_max: Maybe<Duration>,
    pub(super) keep_free: Maybe<Bytes>,
    pub(super) anonymise: Maybe<bool>,
    pub(super) geo: Maybe<Vec<String>>,
}

/// Reads `text`; the problems of the reading, none where it is sound.
pub(super) fn read(text: &str) -> Result<File, Vec<Problem>> {
    let document = read::document(text).map_err(|problem| vec![problem])?;
    let lines = Lines::of(text);
    let mut root = Section::root(&lines, document.get_ref());
    let file = File {
        host: root.table("host", host),
        http: root.table("http", |s| Http { listen: s.parsed("listen") }),
        control: root.table("control", |s| Control { socket: s.parsed("socket") }),
        sockets: root.table("sockets", sockets),
        store: root.table("store", store),
        kafka: export::read(&mut root),
        tune: root.table("tune", tune::read),
        fleet: fleet::read(&mut root),
        controller: controller::read(&mut root),
        shaping: shaping::read(&mut root),
        uplinks: uplinks::read(&mut root),
    };
    let problems = root.finish();
    if problems.is_empty() { Ok(file) } else { Err(problems) }
}

fn host(s: &mut Section<'_>) -> Host {
    Host { name: s.parsed("name"), pop: s.parsed("pop"), state: s.parsed("state") }
}

fn sockets(s: &mut Section<'_>) -> Sockets {
    Sockets {
        source: s.parsed("source"),
        interval: s.parsed("interval"),
        namespaces: s.list("namespaces"),
        states: s.list("states"),
        ports: s.ports("ports"),
        include: s.list("include"),
        exclude: s.list("exclude"),
        close: s.parsed("close"),
        cgroup: s.parsed("cgroup"),
        ring: s.parsed("ring"),
    }
}

fn store(s: &mut Section<'_>) -> Store {
    Store {
        enabled: s.boolean("enabled"),
        dir: s.parsed("dir"),
        flush: s.parsed("flush"),
        size_max: s.parsed("size_max"),
        age_max: s.parsed("age_max"),
        keep_free: s.parsed("keep_free"),
        anonymise: s.boolean("anonymise"),
        geo: s.list("geo"),
    }
}

/// A TCP state as `ss` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateName(pub(super) u8);

impl FromStr for StateName {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        use weirgate_sockets::sample::state;
        (state::ESTABLISHED..=state::CLOSING)
            .filter(|number| *number != state::CLOSE)
            .find(|number| state::name(*number).eq_ignore_ascii_case(s))
            .map(Self)
            .ok_or_else(|| format!("`{s}` is not a TCP state: write them as `ss` does, as ESTAB, FIN-WAIT-1 or LISTEN"))
    }
}

/// Reads one of a few words, and names the nearest where it is none of them.
pub(super) fn word<T: Copy>(s: &str, words: &[(&'static str, T)]) -> Result<T, String> {
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == s) {
        return Ok(*value);
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    Err(match read::nearest(s, &known) {
        Some(near) => format!("`{s}` is not known; did you mean `{near}`?"),
        None => format!("`{s}` is not known: write one of {}", known.join(", ")),
    })
}

/// The word for `value`.
pub(super) fn name<T: PartialEq>(value: &T, words: &[(&'static str, T)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.pad(words.iter().find(|(_, v)| v == value).map_or("?", |(word, _)| word))
}

/// A value that is written as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word<T>(pub(super) T);

/// The words of other rooms' types.
macro_rules! words {
    ($($type:ty: $($word:literal = $value:expr),+;)*) => {$(
        impl core::str::FromStr for $crate::config::typed::Word<$type> {
            type Err = String;

            fn from_str(s: &str) -> Result<Self, String> {
                $crate::config::typed::word(s, &[$(($word, $value)),+]).map(Self)
            }
        }
    )*};
}
pub(super) use words;
