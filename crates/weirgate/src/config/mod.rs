//! The configuration: what the daemon is told, with every default filled in and every contradiction refused.
//!
//! Read first: `weirgate.example.toml`, which a test holds equal to the defaults. What was typed (`typed`) and what it
//! means ([`Config`]) are two types: the first knows lines and keys, the second is all that the rest of the program sees.

pub(crate) mod controller;
pub(crate) mod export;
pub(crate) mod fleet;
pub(crate) mod read;
pub(crate) mod shaping;
mod tune;
mod typed;
pub(crate) mod uplinks;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use weirgate_linux::poll::Filter;
use weirgate_linux::route_cc::RouteCc;
use weirgate_sockets::sample::state;
use weirgate_units::{Bytes, Duration};

pub use export::Kafka;
pub use read::Problem;
use read::Typed;
pub(crate) use read::{nearest, unknown};
pub use shaping::Shaping;
pub use uplinks::Uplinks;

/// Where the configuration is looked for when the command line names none. Missing is fine: the defaults observe this host.
pub const SYSTEM_FILE: &str = "/etc/weirgate/weirgate.toml";

/// Everything the daemon is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `[host]`.
    pub host: Host,
    /// `[http] listen`: where the page is served; `None` is `"off"`. Port 0 is any free one.
    pub http: Option<SocketAddr>,
    /// `[control] socket`: the one door for changes.
    pub control: PathBuf,
    /// `[sockets]`.
    pub sockets: Sockets,
    /// `[store]`; `None` where it is off.
    pub store: Option<Store>,
    /// `[export.kafka]`; `None` where nothing is sent.
    pub kafka: Option<Kafka>,
    /// `[tune]`.
    pub tune: Tune,
    /// `[fleet]`; `None` where this host decides for itself.
    pub fleet: Option<fleet::Fleet>,
    /// `[controller]`; `None` where it decides for nobody else.
    pub decides: Option<controller::Controller>,
    /// `[[port]]`, `[[limit]]` and `[[class]]`.
    pub shaping: Shaping,
    /// `[[uplink]]`, `[[steer]]` and `[steering]`.
    pub uplinks: Uplinks,
}

/// `[host]`: who this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Written into every record.
    pub name: String,
    /// Point of presence, written into every record; may be empty.
    pub pop: String,
    /// The directory for what must outlive the daemon: the journal, the controller's state, and by default the store.
    pub state: PathBuf,
}

/// `[sockets]`: what is looked at and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sockets {
    /// How open sockets are read.
    pub source: Source,
    /// Time between two polls, 100 ms to 1 h.
    pub interval: Duration,
    /// Which network namespaces.
    pub namespaces: Vec<Namespace>,
    /// Which of their sockets.
    pub filter: Filter,
    /// How the last state of closing connections is taken.
    pub close: Close,
    /// The cgroup (v2) whose sockets the kernel programs see; `None` is the root of the mounted hierarchy.
    pub cgroup: Option<PathBuf>,
    /// The ring buffer between the kernel program that sees closes and the daemon.
    pub ring: Bytes,
}

/// One entry of `[sockets] namespaces`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// `"self"`: the one that the daemon runs in.
    Own,
    /// `"all"`: its own and every one under `/run/netns`, looked up again before every poll.
    All,
    /// A name under `/run/netns`.
    Name(String),
    /// A path to a namespace file.
    Path(PathBuf),
}

/// `[store]`: what is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Directory of the Parquet files.
    pub dir: PathBuf,
    /// A crash loses at most what came in this time.
    pub flush: Duration,
    /// The oldest hours go when the files take more than this.
    pub size_max: Bytes,
    /// Files older than this go.
    pub age_max: Duration,
    /// Nothing is written while the disk has less room than this.
    pub keep_free: Bytes,
    /// Whether the clients' addresses are cut to their networks before they are kept.
    pub anonymise: bool,
    /// MaxMind-format files that know autonomous systems or countries.
    pub geo: Vec<PathBuf>,
}

/// `[tune]`: how congestion control is chosen, and whether the choice is obeyed.
#[derive(Clone, Debug, PartialEq)]
pub struct Tune {
    /// Whether decisions are applied or only shown.
    pub mode: Mode,
    /// By what means they are applied.
    pub steer: Steer,
    /// The directory on a BPF file system where programs, links and maps are pinned; one per daemon.
    pub pins: PathBuf,
    /// How long the policy outlives the daemon that renews it.
    pub life: Duration,
    /// The table and the rule for steering by routes.
    pub routes: RouteCc,
    /// How it is chosen.
    pub controller: weirgate_tune::Config,
}

/// How open sockets are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The iterator where the kernel has it, else netlink.
    #[default]
    Auto,
    /// The BPF `iter/tcp` iterator or nothing.
    Iter,
    /// An inet_diag dump over netlink.
    Netlink,
}

/// How the last state of closing connections is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Close {
    /// The counted source where the kernel allows it, else the destroy multicast.
    #[default]
    Auto,
    /// The sockops program and its ring, counted, or nothing.
    Sockops,
    /// The kernel's destroy multicast, which says nothing of what it dropped.
    Destroy,
    /// Not at all: connections shorter than the interval are missed.
    Off,
}

/// Whether decisions are obeyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They are shown.
    #[default]
    Observe,
    /// They are applied to the kernel.
    Apply,
}

/// By what means decisions are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steer {
    /// The sockops program where the kernel allows it, else routes.
    #[default]
    Auto,
    /// The sockops program or nothing.
    Bpf,
    /// Routes with `congctl`: new connections only, for their whole life, whatever the size of their responses.
    Routes,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("the configuration {} cannot be read: {source}", path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is wrong in one or more places.
    #[error("{}", lines(path, problems))]
    Wrong {
        /// Its path.
        path: PathBuf,
        /// Every problem found, in the order of the file.
        problems: Vec<Problem>,
    },
}

/// What the defaults depend on; an argument, so that tests can stand elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// The host's name.
    pub host: String,
    /// Where this user keeps state: `/var/lib/weirgate` for root.
    pub state: PathBuf,
    /// Where this user keeps sockets: `/run/weirgate` for root.
    pub run: PathBuf,
}

impl Surroundings {
    /// Those of this process: root's own directories, else the user's by the XDG base directory specification; without
    /// HOME, `weirgate-data` in the current directory.
    pub fn current() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        if rustix::process::geteuid().is_root() {
            return Self { host, state: "/var/lib/weirgate".into(), run: "/run/weirgate".into() };
        }
        let env = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let state = env("XDG_STATE_HOME")
            .or_else(|| env("HOME").map(|home| home.join(".local/state")))
            .map_or_else(nowhere, |dir| dir.join("weirgate"));
        let run = env("XDG_RUNTIME_DIR").map_or_else(|| state.clone(), |dir| dir.join("weirgate"));
        Self { host, state, run }
    }
}

/// Where state is kept for who has no home: below the directory that the command is run in.
fn nowhere() -> PathBuf {
    std::path::absolute("weirgate-data").unwrap_or_else(|_| "/var/lib/weirgate".into())
}

impl Config {
    /// The configuration in `path`; without one that in [`SYSTEM_FILE`] where it exists, else the defaults.
    pub fn load(path: Option<&Path>, around: &Surroundings) -> Result<Self, LoadError> {
        let path = match path {
            Some(path) => path,
            None if Path::new(SYSTEM_FILE).exists() => Path::new(SYSTEM_FILE),
            None => return Ok(Self::defaults(around)),
        };
        let text = std::fs::read_to_string(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
        Self::from_text(&text, around).map_err(|problems| LoadError::Wrong { path: path.to_owned(), problems })
    }

    /// What holds where nothing is configured.
    pub fn defaults(around: &Surroundings) -> Self {
        Self::from_text("", around).expect("the defaults are sound, a test says")
    }

    /// The configuration in `text`, or everything that is wrong with it.
    pub fn from_text(text: &str, around: &Surroundings) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let config = meaning(typed::read(text)?, around, &mut problems);
        problems.sort_by_key(|problem| problem.line);
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    /// Where the changes made to the kernel are written down.
    pub fn journal(&self) -> PathBuf {
        self.host.state.join("journal.jsonl")
    }

    /// Where the controller's state is saved between rounds.
    pub fn controller(&self) -> PathBuf {
        self.host.state.join("tune.state")
    }
}

/// The longest lists that the kernel filters take; see [`Filter`].
const FILTER_MAX: usize = 64;

fn meaning(file: typed::File, around: &Surroundings, problems: &mut Vec<Problem>) -> Config {
    let state = directory(file.host.state, problems).unwrap_or_else(|| around.state.clone());
    let host = Host { name: or(file.host.name, around.host.clone()), pop: or(file.host.pop, String::new()), state };
    let http = match file.http.listen {
        None => Some(SocketAddr::from(([127, 0, 0, 1], 7070))),
        Some(listen) => listen_address(&listen, problems),
    };
    if let (Some(interval), round) = (&file.sockets.interval, file.tune.round())
        && interval.value > round
    {
        problems.push(interval.problem(format!("is longer than a round of decisions ([tune] round is {round})")));
    }
    let control = directory(file.control.socket, problems).unwrap_or_else(|| around.run.join("control.sock"));
    let kafka = export::meaning(file.kafka, &host.state, problems);
    let around = (host.state.as_path(), file.tune.round(), kafka.as_ref());
    Config {
        http,
        control,
        sockets: sockets(file.sockets, problems),
        store: store(file.store, &host.state, problems),
        fleet: fleet::meaning(file.fleet, kafka.as_ref(), &host.pop, problems),
        decides: controller::meaning(file.controller, around, problems),
        tune: tune::meaning(file.tune, problems),
        kafka,
        shaping: shaping::meaning(file.shaping, problems),
        uplinks: uplinks::meaning(file.uplinks, problems),
        host,
    }
}

fn listen_address(typed: &Typed<String>, problems: &mut Vec<Problem>) -> Option<SocketAddr> {
    if typed.value == "off" {
        return None;
    }
    match typed.value.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Some(address),
        Ok(_) => {
            problems.push(typed.problem(
                "the page has no password, so it is served on a loopback address only: write 127.0.0.1:PORT or \
                 [::1]:PORT, and put a proxy or an SSH tunnel before it",
            ));
            None
        }
        Err(_) => {
            let what = format!("`{}` is not an address: write 127.0.0.1:7070, [::1]:7070 or off", typed.value);
            problems.push(typed.problem(what));
            None
        }
    }
}

fn sockets(typed: typed::Sockets, problems: &mut Vec<Problem>) -> Sockets {
    let mut filter = Filter::default();
    if let Some(states) = typed.states {
        if states.value.is_empty() {
            problems.push(states.problem("names no state: list some, or leave the key out for all"));
        }
        // Listeners are always asked for: they tell accepted connections from opened ones.
        filter.states = states.value.iter().fold(1 << state::LISTEN, |bits, name| bits | 1 << name.0);
    }
    filter.local_ports = short_list(typed.ports, problems);
    filter.remote = short_list(typed.include, problems);
    filter.remote_not = short_list(typed.exclude, problems);
    let namespaces = match typed.namespaces {
        None => vec![Namespace::Own],
        Some(names) if names.value.is_empty() => {
            problems.push(names.problem("names no namespace: list some, or leave the key out for the daemon's own"));
            Vec::new()
        }
        Some(names) => names.value.iter().map(|name| Namespace::from_name(name)).collect(),
    };
    Sockets {
        source: or(typed.source, Source::default()),
        interval: between(typed.interval, "100 ms", "1 h", "10 s", problems),
        namespaces,
        filter,
        close: or(typed.close, Close::default()),
        cgroup: match typed.cgroup {
            Some(path) if path.value == "auto" => None,
            path => directory(path, problems),
        },
        ring: between(typed.ring, "64 KiB", "1 GiB", "8 MiB", problems),
    }
}

impl Namespace {
    fn from_name(name: &str) -> Self {
        match name {
            "self" => Self::Own,
            "all" => Self::All,
            path if path.contains('/') => Self::Path(path.into()),
            name => Self::Name(name.to_owned()),
        }
    }
}

fn store(typed: typed::Store, state: &Path, problems: &mut Vec<Problem>) -> Option<Store> {
    let store = Store {
        dir: directory(typed.dir, problems).unwrap_or_else(|| state.join("store")),
        flush: between(typed.flush, "1 s", "1 h", "1 min", problems),
        size_max: between(typed.size_max, "10 MB", "1000 TB", "10 GB", problems),
        age_max: between(typed.age_max, "1 h", "3650 d", "7 d", problems),
        keep_free: or(typed.keep_free, Bytes::new(64_000_000)),
        anonymise: or(typed.anonymise, false),
        geo: absolute(typed.geo, problems),
    };
    or(typed.enabled, true).then_some(store)
}

fn or<T>(typed: Option<Typed<T>>, default: T) -> T {
    typed.map_or(default, |typed| typed.value)
}

/// A path that is not relative to wherever the daemon happened to be started.
fn directory(typed: Option<Typed<String>>, problems: &mut Vec<Problem>) -> Option<PathBuf> {
    let typed = typed?;
    let path = PathBuf::from(&typed.value);
    if !path.is_absolute() {
        problems.push(typed.problem(format!("`{}` is not an absolute path: let it begin with /", typed.value)));
    }
    Some(path)
}

fn absolute(typed: Option<Typed<Vec<String>>>, problems: &mut Vec<Problem>) -> Vec<PathBuf> {
    let Some(typed) = typed else { return Vec::new() };
    if let Some(path) = typed.value.iter().find(|path| !path.starts_with('/')) {
        problems.push(typed.problem(format!("`{path}` is not an absolute path: let it begin with /")));
    }
    typed.value.into_iter().map(PathBuf::from).collect()
}

fn short_list<T>(typed: Option<Typed<Vec<T>>>, problems: &mut Vec<Problem>) -> Vec<T> {
    let Some(typed) = typed else { return Vec::new() };
    if typed.value.len() > FILTER_MAX {
        let what = format!("holds {} entries: at most {FILTER_MAX} are compared in the kernel", typed.value.len());
        problems.push(typed.problem(what));
    }
    typed.value
}

/// The typed value if it lies within its bounds; the texts are constants of this file.
fn between<T>(typed: Option<Typed<T>>, low: &str, high: &str, default: &str, problems: &mut Vec<Problem>) -> T
where
    T: FromStr<Err: fmt::Debug> + PartialOrd + fmt::Display + Copy,
{
    let constant = |text: &str| text.parse::<T>().expect("a constant of this file");
    let Some(typed) = typed else { return constant(default) };
    if typed.value < constant(low) || typed.value > constant(high) {
        problems.push(typed.problem(format!("`{}` is out of bounds: write {low} to {high}", typed.value)));
    }
    typed.value
}

fn lines(path: &Path, problems: &[Problem]) -> String {
    let one = |problem: &Problem| {
        let line = if problem.line > 0 { format!(":{}", problem.line) } else { String::new() };
        let key = if problem.key.is_empty() { String::new() } else { format!("{}: ", problem.key) };
        format!("{}{line}: {key}{}", path.display(), problem.what)
    };
    problems.iter().map(one).collect::<Vec<_>>().join("\n")
}

const SOURCES: &[(&str, Source)] = &[("auto", Source::Auto), ("iter", Source::Iter), ("netlink", Source::Netlink)];
const CLOSES: &[(&str, Close)] =
    &[("auto", Close::Auto), ("sockops", Close::Sockops), ("destroy", Close::Destroy), ("off", Close::Off)];
const MODES: &[(&str, Mode)] = &[("observe", Mode::Observe), ("apply", Mode::Apply)];
const STEERS: &[(&str, Steer)] = &[("auto", Steer::Auto), ("bpf", Steer::Bpf), ("routes", Steer::Routes)];

macro_rules! words {
    ($($type:ty: $words:ident),*) => {$(
        impl FromStr for $type {
            type Err = String;

            fn from_str(s: &str) -> Result<Self, String> {
                typed::word(s, $words)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                typed::name(self, $words, f)
            }
        }
    )*};
}
words!(Source: SOURCES, Close: CLOSES, Mode: MODES, Steer: STEERS);

#[cfg(test)]
mod tests;
