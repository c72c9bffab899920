//! What a run is made of, from a TOML file: network, switches, TCP, balancer, failures, workload.

mod balance;
mod fit;
mod full;
mod network;
mod notes;
mod overrides;
mod workload;

use std::fmt;
use std::path::{Path, PathBuf};

use weirgate_balance::Conga;
use weirgate_balance::topology::Topology;
use weirgate_fabric::{Buffers, Chance, ControlKind, Scheme, Settings, Simulation, Span, TcpSettings, Time, uplinks};
use weirgate_units::{Bytes, Duration};

use crate::config::read::{Lines, Problem, Section, read_text};

pub use self::balance::SCHEMES;
use self::balance::scheme;
pub use self::network::{Extra, Failures, Graph, KINDS as KINDS_OF_TOPOLOGY, Network, Shape};
use self::overrides::{Overridden, find};
pub use self::overrides::{Override, OverrideError};
pub use self::workload::{Answers, KINDS as KINDS_OF_WORKLOAD, Traffic};

/// What a balancer goes by: DRILL's components of a fat tree of 64 ports take 4.8 GB, of 80 ports 17.
const TABLES_MAX: u64 = 8_000_000_000;

/// A scenario: what is in the file, and can be changed by who sweeps over it.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The network and what fails in it.
    pub network: Network,
    /// Switches, TCP, balancer; the seed of all that is random.
    pub settings: Settings,
    /// What hosts send.
    pub traffic: Traffic,
    /// How long.
    pub run: Run,
}

/// How long a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Flows that begin before are not measured.
    pub warm_up: Duration,
    /// The next so many are, until all of them have ended.
    pub flows: u64,
    /// But no longer than this in simulated time, from the start: what has not ended then never will, or not at this load.
    pub time: Duration,
}

/// The most flows that are measured: some hundred GB of them.
pub(super) const FLOWS_MAX: u64 = 1_000_000_000;

/// Why there is no scenario: all that is wrong with a file, or that it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    file: PathBuf,
    problems: Vec<Problem>,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            let end = if at + 1 < self.problems.len() { "\n" } else { "" };
            write!(f, "{}: {problem}{end}", self.file.display())?;
        }
        Ok(())
    }
}

impl std::error::Error for ScenarioError {}

impl Scenario {
    /// Reads a file.
    ///
    /// # Errors
    /// All that is wrong with it, each with its line and key.
    pub fn load(file: &Path) -> Result<Self, ScenarioError> {
        Self::load_with(file, &[])
    }

    /// Reads a file, with these keys set as if they stood in it.
    ///
    /// # Errors
    /// All that is wrong with it, and with what is set.
    pub fn load_with(file: &Path, overrides: &[Override]) -> Result<Self, ScenarioError> {
        Self::load_parts(file, overrides, true)
    }

    /// Reads a file, with these keys set, to which others come later: its parts need not fit each other before.
    ///
    /// # Errors
    /// What is wrong with a part.
    pub fn load_base(file: &Path, overrides: &[Override]) -> Result<Self, ScenarioError> {
        Self::load_parts(file, overrides, false)
    }

    fn load_parts(file: &Path, overrides: &[Override], must_fit: bool) -> Result<Self, ScenarioError> {
        let refused = |problems| ScenarioError { file: file.to_owned(), problems };
        let text = read_text(file)
            .map_err(|error| refused(vec![Problem { line: 0, key: String::new(), what: format!("{error}") }]))?;
        // What it names lies beside it.
        Self::parse_parts(&text, file.parent().unwrap_or(Path::new("")), overrides, must_fit).map_err(refused)
    }

    /// Reads a text; files that it names are below `folder`.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, Vec<Problem>> {
        Self::parse_with(text, folder, &[])
    }

    /// Reads a text, with these keys set as if they stood in it; files that it names are below `folder`.
    ///
    /// # Errors
    /// All that is wrong with it, and with what is set.
    pub fn parse_with(text: &str, folder: &Path, overrides: &[Override]) -> Result<Self, Vec<Problem>> {
        Self::parse_parts(text, folder, overrides, true)
    }

    fn parse_parts(text: &str, folder: &Path, overrides: &[Override], must_fit: bool) -> Result<Self, Vec<Problem>> {
        let text = Overridden::new(text, overrides);
        let tables = text.tables().map_err(|problem| vec![text.place(problem)])?;
        let place = |problems: Vec<Problem>| {
            let located = problems.into_iter().map(|problem| text.locate(tables.get_ref(), problem));
            let mut located: Vec<Problem> = located.collect();
            located.sort_by_key(|problem| problem.line);
            located.into_iter().map(|problem| text.place(problem)).collect()
        };
        let mut problems = Vec::new();
        let lines = Lines::of(text.text());
        let scenario = Self::read(Section::root(&lines, tables.get_ref()), folder, &mut problems);
        let Some(scenario) = scenario.filter(|_| problems.is_empty()) else { return Err(place(problems)) };
        // What only shows when all is put together.
        if must_fit {
            let unfit = scenario.unfit(|key| find(tables.get_ref(), key).is_some());
            if !unfit.is_empty() {
                return Err(place(unfit));
            }
            scenario.simulation().map_err(|problem| place(vec![problem]))?;
        }
        Ok(scenario)
    }

    fn read(mut root: Section<'_>, folder: &Path, problems: &mut Vec<Problem>) -> Option<Self> {
        let seed = root.integer("seed", 0, i64::MAX as u64).map_or(1, |seed| seed.value);
        let scheme = root.table("balance", |section| scheme(section, problems));
        let mut settings = Settings::new(seed, scheme);
        root.table("switch", |section| switch(section, &mut settings, problems));
        root.table("routing", |section| {
            settings.routing_delay =
                section.parsed::<Duration>("delay").map_or(Span::ZERO, |delay| Span::from(delay.value));
        });
        root.table("tcp", |section| tcp(section, &mut settings.tcp, problems));
        let (Buffers::PerPort(room) | Buffers::Shared(room)) = settings.buffers;
        if room < u64::from(settings.tcp.mss + settings.tcp.overhead) {
            let key = if matches!(settings.buffers, Buffers::Shared(_)) { "shared_buffer" } else { "buffer" };
            let what = "a buffer has room for a packet at least: write \"300 KB\"";
            problems.push(problem(0, &format!("switch.{key}"), what));
        }
        let network = network::read(&mut root, folder, problems);
        let hosts = network.as_ref().map(Network::hosts);
        let around = workload::Around { folder, hosts, mss: settings.tcp.mss };
        let traffic = workload::read(&mut root, around, problems);
        // Where flows begin all at once, none would be left to be measured after a warm-up; and all of them belong together.
        let is_open = matches!(traffic, None | Some(Traffic::Poisson { .. }));
        let (warm_up, flows) = if is_open { (Duration::from_millis(10), 100_000) } else { (Duration::ZERO, FLOWS_MAX) };
        let run = root.table("run", |section| Run {
            warm_up: section.parsed("warm_up").map_or(warm_up, |time| time.value),
            flows: section.integer("flows", 1, FLOWS_MAX).map_or(flows, |flows| flows.value),
            time: section.parsed("time").map_or(Duration::from_secs(100), |time| time.value),
        });
        if run.time <= run.warm_up {
            let what =
                format!("{} is over before the warm-up is, of {}: nothing would be measured", run.time, run.warm_up);
            problems.push(problem(0, "run.time", what));
        }
        problems.extend(root.finish());
        Some(Self { network: network?, settings, traffic: traffic?, run })
    }

    /// The run, at its start.
    ///
    /// # Errors
    /// Where the network cannot carry what is asked for.
    pub fn simulation(&self) -> Result<Simulation, Problem> {
        let (topology, changes) = self.network.build(self.settings.seed)?;
        // Links that are down from the start, and stay down, must leave a way.
        if changes.is_empty() {
            self.network.check_up(&topology)?;
        }
        // Beside the streams of hosts and switches.
        let chance = |stream| Chance::new(self.settings.seed, u64::MAX - stream);
        let workload = self.traffic.workload(&topology, &self.settings.tcp, chance)?;
        self.check_balancer(&topology)?;
        let simulation = Simulation::new(topology, self.settings.clone(), workload, changes);
        simulation.map_err(|error| problem(0, "topology", error.to_string()))
    }

    /// That the balancer can do its work in this network.
    fn check_balancer(&self, topology: &Topology) -> Result<(), Problem> {
        let scheme = &self.settings.scheme;
        let (name, tables) = (scheme.name(), scheme.memory(topology));
        if tables > TABLES_MAX {
            let [gb, most] = [tables, TABLES_MAX].map(|bytes| bytes as f64 / 1e9);
            let of = if matches!(scheme, Scheme::Drill(_)) { "symmetric components" } else { "tables" };
            let what = format!(
                "the {of} that {name} goes by would take {gb:.1} GB in a network of so many switches, and {most:.1} GB is the most: \
                 a smaller network, or another balancer{}",
                if matches!(scheme, Scheme::LetFlow { .. } | Scheme::Conga(_)) {
                    ", or fewer balance.flowlets"
                } else {
                    ""
                }
            );
            return Err(problem(0, "topology", what));
        }
        if let Scheme::Conga(_) = scheme {
            let most = topology.leaves().iter().map(|leaf| uplinks(topology, *leaf)).max().unwrap_or(0);
            if most > Conga::UPLINKS_MAX {
                let what = format!(
                    "a leaf has {most} links to other switches, and conga's headers have a byte for them, {} at most: fewer, or another balancer",
                    Conga::UPLINKS_MAX
                );
                return Err(problem(0, "topology", what));
            }
        }
        Ok(())
    }

    /// When it is over at the latest.
    pub fn end(&self) -> Time {
        Time::ZERO + Span::from(self.run.time)
    }
}

fn problem(line: usize, key: &str, what: impl Into<String>) -> Problem {
    Problem { line, key: key.into(), what: what.into() }
}

fn switch(section: &mut Section<'_>, settings: &mut Settings, problems: &mut Vec<Problem>) {
    let own = section.parsed::<Bytes>("buffer");
    let shared = section.parsed::<Bytes>("shared_buffer");
    if let (Some(_), Some(shared)) = (&own, &shared) {
        problems
            .push(shared.problem("a switch has a `buffer` for each port or a `shared_buffer` for all: take one out"));
    }
    if let Some(bytes) = own.map(|bytes| bytes.value.as_u64()) {
        settings.buffers = Buffers::PerPort(bytes);
    }
    if let Some(bytes) = shared.map(|bytes| bytes.value.as_u64()) {
        settings.buffers = Buffers::Shared(bytes);
    }
    settings.mark = section.parsed::<Bytes>("mark").map(|bytes| bytes.value.as_u64());
    settings.engines = section.integer("engines", 1, 1_024).map_or(1, |engines| engines.value as u16);
    if let Some(delay) = section.parsed::<Duration>("enqueue_delay") {
        settings.enqueue_delay = delay.value.into();
    }
    if let Some(every) = section.parsed::<Duration>("sample_every") {
        settings.sample_every = (every.value > Duration::ZERO).then(|| every.value.into());
    }
}

fn tcp(section: &mut Section<'_>, tcp: &mut TcpSettings, problems: &mut Vec<Problem>) {
    if let Some(control) = section.parsed::<String>("control") {
        match control.value.as_str() {
            "newreno" => tcp.control = ControlKind::NewReno,
            "cubic" => tcp.control = ControlKind::Cubic,
            "dctcp" => tcp.control = ControlKind::Dctcp,
            _ => problems.push(control.problem("must be \"newreno\", \"cubic\" or \"dctcp\"")),
        }
    }
    let mut number = |key, low, high| section.integer(key, low, high).map(|number| number.value);
    tcp.mss = number("mss", 64, 9_000).map_or(tcp.mss, |mss| mss as u16);
    tcp.overhead = number("overhead", 40, 200).map_or(tcp.overhead, |overhead| overhead as u16);
    tcp.ack_wire = number("ack_wire", 40, 200).map_or(tcp.ack_wire, |wire| wire as u16);
    tcp.initial_window = number("initial_window", 1, 10_000).map_or(tcp.initial_window, |window| window as u16);
    tcp.receive_window = number("receive_window", 1, 65_535).map_or(tcp.receive_window, |window| window as u32);
    tcp.dup_ack_threshold =
        number("dup_ack_threshold", 1, 1_000_000).map_or(tcp.dup_ack_threshold, |threshold| threshold as u32);
    tcp.reordering_max = number("reordering_max", 0, 1_000_000).map_or(tcp.reordering_max, |most| most as u32);
    tcp.quick_acks = number("quick_acks", 0, 1_000).map_or(tcp.quick_acks, |acks| acks as u16);
    tcp.ack_every = number("ack_every", 1, 100).map_or(tcp.ack_every, |every| every as u16);
    let mut last = None;
    for (key, rto) in [("min_rto", &mut tcp.min_rto), ("max_rto", &mut tcp.max_rto)] {
        let Some(time) = section.parsed::<Duration>(key) else { continue };
        let zero = (time.value == Duration::ZERO).then(|| time.problem("a timer without time would run out for ever"));
        problems.extend(zero);
        *rto = time.value.into();
        last = Some(time);
    }
    if let Some(time) = last.filter(|_| tcp.min_rto > tcp.max_rto && tcp.max_rto > Span::ZERO) {
        problems.push(time.problem("the shortest timer is longer than the longest one"));
    }
    let mut time = |key| section.parsed::<Duration>(key).map(|time| Span::from(time.value));
    tcp.ack_delay = time("ack_delay").unwrap_or(tcp.ack_delay);
    tcp.host_queue = time("host_queue").unwrap_or(tcp.host_queue);
    tcp.batch_time = time("batch_time").unwrap_or(tcp.batch_time);
    tcp.shim = time("shim");
}

#[cfg(test)]
mod tests;
