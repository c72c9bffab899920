//! `[[port]]`, `[[limit]]` and `[[class]]`: the software switch and what it holds to which rate, typed and meant.

pub(crate) mod notes;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use weirgate_linux::dataplane::COALESCE;
use weirgate_switch::bridge::Direction;
use weirgate_switch::class::{self, Ports, Rule, RuleError};
use weirgate_switch::frame::{Accounting, Layer, Mac};
use weirgate_switch::limits::{CodelSettings, Mode};
use weirgate_units::{BitRate, Bytes, Duration, Prefix};

use super::read::{Problem, Section, Typed, unknown};
use super::typed::{self, Maybe, Word, words};
use super::{Namespace, directory, or};

/// A device's ring takes what comes meanwhile.
const COALESCE_MAX: Duration = Duration::from_millis(1);

/// An Ethernet packet, in bytes.
const PACKET: u64 = 1_514;

/// Two Ethernet packets: a queue of less has no room for anything, and a limit whose burst is less cannot be met.
const TWO_PACKETS: Bytes = Bytes::new(2 * PACKET);

/// The switch; without ports there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shaping {
    /// `[switch]`: threads that switch.
    pub threads: u16,
    /// `[switch]`: for how long what comes is gathered, at most.
    pub coalesce: Duration,
    /// `[switch]`: whether its threads look for something to do without end, and never sleep.
    pub poll: bool,
    /// `[[port]]`.
    pub ports: Vec<Port>,
    /// `[[limit]]`.
    pub limits: Vec<Limit>,
    /// `[[class]]`: the first that fits a frame is its, unless one that fits too lies within that one.
    pub classes: Vec<Class>,
    /// What is sound and yet can hardly be meant, in the order of the file.
    pub notes: Vec<Problem>,
}

/// A port of the switch.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// By which classes name it.
    pub name: String,
    /// What it is.
    pub kind: PortKind,
    /// Queues that are read from.
    pub queues: u16,
    /// Addresses that are there and nowhere else.
    pub macs: Vec<Mac>,
    /// Where all that comes in by it goes, by its place in [`Shaping::ports`]; `None`: where the addresses were learnt.
    pub peer: Option<usize>,
}

/// What a port is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// A TAP device that the daemon makes.
    Tap {
        /// Its name.
        device: String,
        /// Where it is made.
        namespace: Namespace,
    },
    /// An interface that is there.
    Interface {
        /// Its name.
        device: String,
        /// Where it is.
        namespace: Namespace,
        /// By AF_XDP, all its queues; otherwise by packet sockets.
        xdp: bool,
    },
    /// A virtual machine's network card: QEMU connects to a socket.
    VhostUser {
        /// The socket's path.
        socket: PathBuf,
        /// Whose processes may connect beside the daemon's user, as QEMU's.
        group: Option<String>,
    },
}

impl PortKind {
    /// What no two ports may share: where it is, and its name there.
    fn place(&self) -> (Option<&Namespace>, &Path) {
        match self {
            Self::Tap { device, namespace } | Self::Interface { device, namespace, .. } => {
                (Some(namespace), Path::new(device))
            }
            Self::VhostUser { socket, .. } => (None, socket),
        }
    }
}

/// A limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// By which classes and people name it.
    pub name: String,
    /// Its rate; zero lets nothing pass.
    pub rate: BitRate,
    /// What may pass at once after idling.
    pub burst: Option<Bytes>,
    /// By what means it holds.
    pub mode: Mode,
    /// How it counts.
    pub accounting: Accounting,
}

impl Limit {
    /// What may pass at once at a rate: what the mode needs to meet it on a machine that wakes up late, or what was configured; and no
    /// less than what is due while the switch rests for `coalesce`, and a packet.
    pub(crate) fn burst_at(&self, rate: BitRate, coalesce: Duration) -> Bytes {
        let time = match self.mode {
            // As late as a virtual machine's processor may be taken away for a moment.
            Mode::Pace | Mode::Gate | Mode::Borrow => Duration::from_millis(5),
            // A sender whose packets are dropped needs room for a window.
            Mode::Drop => Duration::from_millis(50),
        };
        let due = Bytes::new(rate.bytes_in(coalesce).as_u64().saturating_add(PACKET));
        self.burst.unwrap_or_else(|| rate.bytes_in(time)).max(due).max(TWO_PACKETS)
    }
}

/// What belongs together below a chain of limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Which port, by its place in [`Shaping::ports`].
    pub port: usize,
    /// Which way.
    pub direction: Direction,
    /// Which frames; all of them where nothing is said.
    pub matches: Match,
    /// The limits above it by their places in [`Shaping::limits`], the nearest first.
    pub limits: Vec<usize>,
    /// What may wait; `None`: what passes in 250 ms.
    pub queue: Option<Bytes>,
    /// When a flow's packets have waited for too long; `None`: never.
    pub codel: Option<CodelSettings>,
    /// Whether a connection whose round trip was seen has it by that, where it is longer: nobody said `target` or `interval`.
    pub by_flow_rtt: bool,
    /// After which wait packets are marked with congestion.
    pub mark_above: Option<Duration>,
}

/// Which frames belong to a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// VLAN; 0 is none.
    pub vlan: Option<u16>,
    /// Source network.
    pub source: Option<Prefix>,
    /// Destination network.
    pub destination: Option<Prefix>,
    /// Differentiated services code point.
    pub dscp: Option<u8>,
    /// Protocol over IP.
    pub protocol: Option<u8>,
    /// Source ports.
    pub source_ports: Option<Ports>,
    /// Destination ports.
    pub destination_ports: Option<Ports>,
}

impl Match {
    /// The rule of the switch that asks for this and for a port.
    pub(crate) fn rule<C>(&self, port: u16, class: C) -> Rule<C> {
        Rule {
            port: Some(port),
            vlan: self.vlan,
            source: self.source,
            destination: self.destination,
            dscp: self.dscp,
            protocol: self.protocol,
            source_ports: self.source_ports,
            destination_ports: self.destination_ports,
            ..Rule::any(0, class)
        }
    }
}

/// As typed.
#[derive(Debug)]
pub(super) struct TypedShaping {
    threads: Maybe<u64>,
    coalesce: Maybe<Duration>,
    poll: Maybe<bool>,
    ports: Vec<TypedPort>,
    limits: Vec<TypedLimit>,
    classes: Vec<TypedClass>,
}

#[derive(Debug)]
struct TypedPort {
    line: usize,
    name: Maybe<String>,
    kind: Maybe<Kind>,
    device: Maybe<String>,
    socket: Maybe<String>,
    group: Maybe<String>,
    namespace: Maybe<String>,
    xdp: Maybe<bool>,
    queues: Maybe<u64>,
    macs: Maybe<Vec<Mac>>,
    peer: Maybe<String>,
}

#[derive(Debug)]
struct TypedLimit {
    line: usize,
    name: Maybe<String>,
    rate: Maybe<BitRate>,
    burst: Maybe<Bytes>,
    mode: Maybe<Word<Mode>>,
    layer: Maybe<Word<Layer>>,
    overhead: Maybe<u64>,
    codel: Codel,
}

#[derive(Debug)]
struct TypedClass {
    line: usize,
    port: Maybe<String>,
    direction: Maybe<Word<Direction>>,
    vlan: Maybe<u64>,
    source: Maybe<Prefix>,
    destination: Maybe<Prefix>,
    dscp: Maybe<u64>,
    protocol: Maybe<Protocol>,
    source_ports: Maybe<PortRange>,
    destination_ports: Maybe<PortRange>,
    limits: Maybe<Vec<String>>,
    queue: Maybe<Bytes>,
    codel: Codel,
    mark_above: Maybe<Duration>,
}

/// What a limit or a class says of CoDel.
#[derive(Clone, Copy, Debug)]
struct Codel {
    rtt: Option<Duration>,
    target: Option<Target>,
    interval: Option<Duration>,
}

impl Codel {
    fn read(section: &mut Section<'_>) -> Self {
        Self {
            rtt: section.parsed("rtt").map(|rtt| rtt.value),
            target: section.parsed("target").map(|target| target.value),
            interval: section.parsed("interval").map(|interval| interval.value),
        }
    }

    /// What this one does not say, as `further` has it.
    fn or(self, further: Self) -> Self {
        Self {
            rtt: self.rtt.or(further.rtt),
            target: self.target.or(further.target),
            interval: self.interval.or(further.interval),
        }
    }

    fn settings(self) -> Option<CodelSettings> {
        let known = self.rtt.map_or_else(CodelSettings::default, CodelSettings::for_rtt);
        let interval = self.interval.unwrap_or(known.interval);
        self.target.unwrap_or(Target(Some(known.target))).0.map(|target| CodelSettings { target, interval })
    }
}

pub(super) fn read(root: &mut Section<'_>) -> TypedShaping {
    let ports = root.tables("port", |s, line| TypedPort {
        line,
        name: s.parsed("name"),
        kind: s.parsed("kind"),
        device: s.parsed("device"),
        socket: s.parsed("socket"),
        group: s.parsed("group"),
        namespace: s.parsed("namespace"),
        xdp: s.boolean("xdp"),
        queues: s.integer("queues", 1, 64),
        macs: s.list("macs"),
        peer: s.parsed("peer"),
    });
    let limits = root.tables("limit", |s, line| TypedLimit {
        line,
        name: s.parsed("name"),
        rate: s.parsed("rate"),
        burst: s.parsed("burst"),
        mode: s.parsed("mode"),
        layer: s.parsed("layer"),
        overhead: s.integer("overhead", 0, 1_000),
        codel: Codel::read(s),
    });
    let classes = root.tables("class", |s, line| TypedClass {
        line,
        port: s.parsed("port"),
        direction: s.parsed("direction"),
        vlan: s.integer("vlan", 0, 4_094),
        source: s.parsed("source"),
        destination: s.parsed("destination"),
        dscp: s.integer("dscp", 0, 63),
        protocol: s.parsed("protocol"),
        source_ports: s.parsed("source_ports"),
        destination_ports: s.parsed("destination_ports"),
        limits: s.list("limits"),
        queue: s.parsed("queue"),
        codel: Codel::read(s),
        mark_above: s.parsed("mark_above"),
    });
    let (threads, coalesce, poll) =
        root.table("switch", |s| (s.integer("threads", 1, 64), s.parsed("coalesce"), s.boolean("poll")));
    TypedShaping {
        threads,
        coalesce,
        poll,
        ports: ports.unwrap_or_default(),
        limits: limits.unwrap_or_default(),
        classes: classes.unwrap_or_default(),
    }
}

pub(super) fn meaning(typed: TypedShaping, problems: &mut Vec<Problem>) -> Shaping {
    let port_names = Names::read("port", typed.ports.iter().map(|port| (port.line, &port.name)), problems);
    let limit_names = Names::read("limit", typed.limits.iter().map(|limit| (limit.line, &limit.name)), problems);
    let threads = or(typed.threads, 1) as u16;
    if let Some(coalesce) = typed.coalesce.as_ref().filter(|coalesce| coalesce.value > COALESCE_MAX) {
        problems.push(coalesce.problem(format!("is more than {COALESCE_MAX}: devices would run full meanwhile")));
    }
    let poll = or(typed.poll, false);
    if let Some(coalesce) = typed.coalesce.as_ref().filter(|_| poll) {
        problems.push(coalesce.problem("with poll = true nothing is gathered: leave it out"));
    }
    let coalesce = if poll { Duration::ZERO } else { or(typed.coalesce, COALESCE) };
    let lines: Vec<usize> = typed.ports.iter().map(|port| port.line).collect();
    let pinned = typed.ports.iter().enumerate().filter_map(|(at, port)| Some((at, port.macs.as_ref()?.line)));
    let pinned: Vec<(usize, usize)> = pinned.collect();
    let peers = peers(&typed.ports, &port_names, problems);
    let ports = typed.ports.into_iter().zip(peers);
    let ports: Vec<Port> = ports.map(|(typed, peer)| Port { peer, ..port(typed, threads, problems) }).collect();
    for (at, line) in lines.into_iter().enumerate() {
        let place = ports[at].kind.place();
        // That two have one name, or none has said what it is, has been said.
        let said = |other: &Port| other.name == ports[at].name || place.1.as_os_str().is_empty();
        let same = |other: &&Port| other.kind.place() == place && !said(other);
        if let Some(other) = ports[..at].iter().find(same) {
            let what = format!("`{}` is the same device as `{}`: one port is enough", ports[at].name, other.name);
            problems.push(problem(line, "port", what));
        }
    }
    for (at, line) in pinned {
        if ports[at].peer.is_some() {
            let what = "`macs` says nothing where a port has a `peer`: all that comes goes there".into();
            problems.push(problem(line, "port", what));
        }
        let twice = |mac: &&Mac| ports[..at].iter().any(|other| other.macs.contains(mac));
        if let Some(mac) = ports[at].macs.iter().find(twice) {
            problems.push(problem(line, "port", format!("{mac} is at another port already")));
        }
    }
    let limit_lines: Vec<usize> = typed.limits.iter().map(|limit| limit.line).collect();
    let codels: Vec<Codel> = typed.limits.iter().map(|limit| limit.codel).collect();
    let limits: Vec<Limit> = typed.limits.into_iter().map(|typed| limit(typed, problems)).collect();
    let mut known = Known::default();
    let mut classes: Vec<Class> = Vec::new();
    let mut class_lines = Vec::new();
    for typed in typed.classes {
        let line = typed.line;
        let Some(class) = class(typed, &port_names, &limit_names, &limits, &codels, problems) else { continue };
        if let Some(what) = known.add(&class, line, &limits).or_else(|| ungated(&class, &classes, &limits, &ports)) {
            problems.push(problem(line, "class", what));
        }
        classes.push(class);
        class_lines.push(line);
    }
    for direction in [Direction::From, Direction::To] {
        let of = classes.iter().zip(&class_lines).filter(|(class, _)| class.direction == direction);
        let (rules, lines): (Vec<_>, Vec<_>) =
            of.map(|(class, line)| (class.matches.rule(class.port as u16, ()), *line)).unzip();
        if let Err(RuleError { at, problem: what }) = class::check(&rules) {
            problems.push(problem(lines[at], "class", what.to_string()));
        }
    }
    let shaping = Shaping { threads, coalesce, poll, ports, limits, classes, notes: Vec::new() };
    Shaping { notes: notes::notes(&shaping, &limit_lines, &class_lines), ..shaping }
}

/// Where what has a name stands among its like.
#[derive(Debug)]
pub(super) struct Names {
    what: &'static str,
    places: HashMap<String, usize>,
}

impl Names {
    /// The names of all of them, each with its line.
    pub(super) fn read<'a>(
        what: &'static str,
        typed: impl Iterator<Item = (usize, &'a Maybe<String>)>,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut places = HashMap::new();
        for (at, (line, name)) in typed.enumerate() {
            match name {
                None => {
                    let a = if what.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
                    problems.push(problem(line, what, format!("{a} {what} needs a `name`")));
                }
                Some(name) if name.value.is_empty() => problems.push(name.problem("a name has letters")),
                Some(name) if name.value.contains(char::is_control) => {
                    problems.push(name.problem("a name is letters, digits and signs, of one line"));
                }
                Some(name) if places.contains_key(&name.value) => {
                    problems.push(name.problem(format!("there is another {what} called `{}`", name.value)));
                }
                Some(name) => {
                    places.insert(name.value.clone(), at);
                }
            }
        }
        Self { what, places }
    }

    /// The place of the one called `name`.
    pub(super) fn find<T>(&self, typed: &Typed<T>, name: &str, problems: &mut Vec<Problem>) -> Option<usize> {
        let at = self.places.get(name).copied();
        if at.is_none() {
            let known: Vec<&str> = self.places.keys().map(String::as_str).collect();
            problems.push(typed.problem(unknown(self.what, name, &known)));
        }
        at
    }
}

/// The place of each port's peer; a pair may be written at one of the two, or at both.
fn peers(typed: &[TypedPort], names: &Names, problems: &mut Vec<Problem>) -> Vec<Option<usize>> {
    let mut peers = vec![None; typed.len()];
    for (at, port) in typed.iter().enumerate() {
        let Some(name) = &port.peer else { continue };
        let Some(peer) = names.find(name, &name.value, problems) else { continue };
        let free = |at: usize, peer: usize| peers[at].is_none_or(|known| known == peer);
        if peer == at || !free(at, peer) || !free(peer, at) {
            problems.push(name.problem("a port has one peer, another one"));
            continue;
        }
        (peers[at], peers[peer]) = (Some(peer), Some(at));
    }
    peers
}

/// The classes so far, of each port and direction.
#[derive(Debug, Default)]
struct Known {
    /// In which line each stands.
    lines: HashMap<(Direction, Rule<()>), usize>,
    /// Whether one of them gates.
    gates: HashMap<(usize, Direction), bool>,
}

impl Known {
    /// Why no frame would ever be of the class in `line`, or not only a class's own would wait.
    fn add(&mut self, class: &Class, line: usize, limits: &[Limit]) -> Option<String> {
        let Class { port, direction, ref matches, .. } = *class;
        if let Some(other) = self.lines.insert((direction, matches.rule(port as u16, ()).in_full()), line) {
            return Some(format!("nothing is left for it: the class in line {other} is of the same frames"));
        }
        let gates = class.limits.iter().any(|at| limits[*at].mode.gates());
        let before = self.gates.insert((port, direction), gates);
        before.is_some_and(|before| before || gates).then(|| {
            "a limit that gates holds back all that comes by a port: let its class be the port's only one, or write mode = \"pace\""
                .into()
        })
    }
}

/// The limit of a class that gates, if one does, and the port whose queue it holds back: its own, or the only one from which frames
/// come to it. `None`: they come from anywhere.
pub(crate) fn gate(class: &Class, limits: &[Limit], ports: &[Port]) -> Option<(usize, Option<usize>)> {
    let limit = *class.limits.iter().find(|at| limits[**at].mode.gates())?;
    let port = if class.direction == Direction::From { Some(class.port) } else { ports[class.port].peer };
    Some((limit, port))
}

/// Why a class's limit that gates would have nothing to hold back. The article's ([`Mode::Borrow`]) needs nothing: what it does not let
/// pass, and what can come by any port, it drops.
fn ungated(class: &Class, before: &[Class], limits: &[Limit], ports: &[Port]) -> Option<String> {
    let (limit, port) = gate(class, limits, ports)?;
    if port.is_none() && limits[limit].mode == Mode::Borrow {
        return None;
    }
    let (limit, name) = (&limits[limit].name, &ports[class.port].name);
    let Some(port) = port else {
        return Some(format!(
            "`{limit}` gates, and what goes to `{name}` can come by every port: write a `peer` for `{name}`, or mode = \"pace\""
        ));
    };
    let other = before.iter().filter_map(|other| gate(other, limits, ports)).find(|other| other.1 == Some(port));
    other.map(|(other, _)| {
        let (other, port) = (&limits[other].name, &ports[port].name);
        format!(
            "`{limit}` gates what comes by `{port}`, as `{other}` does: one can; write mode = \"pace\" for the other"
        )
    })
}

fn port(typed: TypedPort, threads: u16, problems: &mut Vec<Problem>) -> Port {
    let Some(kind) = &typed.kind else {
        problems.push(problem(
            typed.line,
            "port",
            "a port needs a `kind`: \"tap\", \"interface\" or \"vhost-user\"".into(),
        ));
        return Port {
            name: or(typed.name, String::new()),
            kind: PortKind::VhostUser { socket: PathBuf::new(), group: None },
            queues: 1,
            macs: Vec::new(),
            peer: None,
        };
    };
    let other = match kind.value {
        Kind::Tap | Kind::Interface => {
            let socket =
                typed.socket.as_ref().map(|socket| socket.problem("only a VM's card has a socket: write a `device`"));
            socket.or_else(|| {
                typed.group.as_ref().map(|group| group.problem("only a VM's card has a socket, which is a group's"))
            })
        }
        Kind::VhostUser => {
            let device =
                typed.device.as_ref().map(|device| device.problem("a VM's card has no device: write a `socket`"));
            device.or_else(|| typed.namespace.as_ref().map(|ns| ns.problem("a VM's card is in no namespace")))
        }
    };
    problems.extend(other);
    if let Some(xdp) = typed.xdp.as_ref().filter(|_| kind.value != Kind::Interface) {
        problems.push(xdp.problem("AF_XDP is for kind = \"interface\""));
    }
    if let Some(xdp) = typed.xdp.as_ref().filter(|xdp| xdp.value && threads > 1) {
        problems.push(xdp.problem("AF_XDP is for a switch of one thread: write [switch] threads = 1"));
    }
    let xdp = or(typed.xdp, false);
    if let Some(queues) = typed.queues.as_ref().filter(|_| xdp) {
        problems.push(queues.problem("with AF_XDP all queues of the interface are read: leave it out"));
    }
    let name = or(typed.name, String::new());
    let queues = or(typed.queues, threads.into()) as u16;
    let macs = or(typed.macs, Vec::new());
    if kind.value == Kind::VhostUser {
        if typed.socket.is_none() {
            let what = "a VM's card needs a `socket`: the path that QEMU connects to";
            problems.push(problem(typed.line, "port", what.into()));
        }
        let socket = directory(typed.socket, problems).unwrap_or_default();
        let kind = PortKind::VhostUser { socket, group: typed.group.map(|group| group.value) };
        return Port { name, kind, queues, macs, peer: None };
    }
    let device = or(typed.device, name.clone());
    let is_name = |c: char| !c.is_whitespace() && !['/', ':', '%', '\0'].contains(&c);
    if device.len() > 15 || !device.chars().all(is_name) || [".", ".."].contains(&device.as_str()) {
        let what = format!(
            "`{device}` is no name of a device: write a `device` of at most 15 letters, without spaces, `/`, `:` and `%`"
        );
        problems.push(problem(typed.line, "port", what));
    }
    let namespace = match typed.namespace {
        None => Namespace::Own,
        Some(name) if name.value == "all" => {
            problems.push(name.problem("a port is in one namespace: write \"self\", a name or a path"));
            Namespace::Own
        }
        Some(name) => Namespace::from_name(&name.value),
    };
    let kind = match kind.value {
        Kind::Interface => PortKind::Interface { device, namespace, xdp },
        _ => PortKind::Tap { device, namespace },
    };
    Port { name, kind, queues, macs, peer: None }
}

fn limit(typed: TypedLimit, problems: &mut Vec<Problem>) -> Limit {
    if typed.rate.is_none() {
        problems.push(problem(typed.line, "limit", "a limit needs a `rate`, as \"200 Mbit/s\"".into()));
    }
    Limit {
        name: or(typed.name, String::new()),
        rate: or(typed.rate, BitRate::ZERO),
        burst: typed.burst.map(|burst| burst.value),
        mode: or(typed.mode, Word(Mode::default())).0,
        accounting: Accounting {
            layer: or(typed.layer, Word(Layer::default())).0,
            overhead: or(typed.overhead, 0) as u16,
        },
    }
}

fn class(
    typed: TypedClass,
    ports: &Names,
    limits: &Names,
    known: &[Limit],
    codels: &[Codel],
    problems: &mut Vec<Problem>,
) -> Option<Class> {
    let line = typed.line;
    let mut missing = |what: &str| problems.push(problem(line, "class", format!("a class needs {what}")));
    let Some(port) = &typed.port else {
        missing("a `port`: the name of a [[port]]");
        return None;
    };
    let Some(chain) = &typed.limits else {
        missing("`limits`: the names of one or more [[limit]], the nearest first");
        return None;
    };
    let direction = or(typed.direction, Word(Direction::From)).0;
    let place = ports.find(port, &port.value, problems)?;
    let chosen: Vec<usize> = chain.value.iter().filter_map(|name| limits.find(chain, name, problems)).collect();
    if chain.value.is_empty() {
        problems.push(chain.problem("names no limit: leave the class out, what belongs to none is not limited"));
    }
    if let Some(twice) = chosen.iter().enumerate().find_map(|(at, limit)| chosen[..at].contains(limit).then_some(limit))
    {
        problems.push(
            chain.problem(format!("`{}` stands there twice, and would count everything twice", known[*twice].name)),
        );
    }
    if let Some(queue) = typed.queue.as_ref().filter(|queue| queue.value < TWO_PACKETS) {
        problems.push(queue.problem(format!("is less than {TWO_PACKETS}: there would be no room for a packet")));
    }
    if let Some([first, other]) = differ(&chosen, known) {
        let what = format!("`{first}` and `{other}` do not count alike: give them the same `layer` and `overhead`");
        problems.push(chain.problem(what));
    }
    let matches = Match {
        vlan: typed.vlan.map(|vlan| vlan.value as u16),
        source: typed.source.map(|network| network.value),
        destination: typed.destination.map(|network| network.value),
        dscp: typed.dscp.map(|dscp| dscp.value as u8),
        protocol: typed.protocol.map(|protocol| protocol.value.0),
        source_ports: typed.source_ports.map(|ports| ports.value.0),
        destination_ports: typed.destination_ports.map(|ports| ports.value.0),
    };
    let gates: Vec<&Limit> = chosen.iter().map(|at| &known[*at]).filter(|limit| limit.mode.gates()).collect();
    if !gates.is_empty() && (matches != Match::default() || gates.len() > 1) {
        let what = format!(
            "`{}` gates, which holds back all that comes by a port: let one such limit stand in one class without conditions, \
             or write mode = \"pace\"",
            gates[0].name
        );
        problems.push(chain.problem(what));
    }
    let said = chosen.iter().fold(typed.codel, |codel, at| codel.or(codels[*at]));
    let codel = said.settings();
    if let Some(codel) = codel.filter(|codel| codel.interval <= codel.target) {
        let what = format!("an `interval` of {} is no longer than the `target`, {}", codel.interval, codel.target);
        problems.push(problem(line, "class", what));
    }
    Some(Class {
        port: place,
        direction,
        matches,
        limits: chosen,
        queue: typed.queue.map(|queue| queue.value),
        codel,
        by_flow_rtt: said.target.is_none() && said.interval.is_none(),
        mark_above: typed.mark_above.map(|above| above.value),
    })
}

/// Two limits of a chain that count frames differently.
fn differ<'a>(chosen: &[usize], known: &'a [Limit]) -> Option<[&'a str; 2]> {
    let first = &known[*chosen.first()?];
    let other = chosen.iter().map(|at| &known[*at]).find(|limit| limit.accounting != first.accounting)?;
    Some([&first.name, &other.name])
}

pub(super) fn problem(line: usize, key: &str, what: String) -> Problem {
    Problem { line, key: key.to_owned(), what }
}

/// What a port can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tap,
    Interface,
    VhostUser,
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        typed::word(s, &[("tap", Self::Tap), ("interface", Self::Interface), ("vhost-user", Self::VhostUser)])
    }
}

words! {
    Mode: "pace" = Mode::Pace, "gate" = Mode::Gate, "borrow" = Mode::Borrow, "drop" = Mode::Drop;
    Layer: "L1" = Layer::L1, "L2" = Layer::L2, "L3" = Layer::L3;
    Direction: "from" = Direction::From, "to" = Direction::To;
}

/// A protocol over IP, by name or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Protocol(pub(super) u8);

impl FromStr for Protocol {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let known = [("tcp", 6), ("udp", 17), ("icmp", 1), ("icmpv6", 58)];
        match s.parse() {
            Ok(number) => Ok(Self(number)),
            Err(_) => typed::word(s, &known).map(Self),
        }
    }
}

/// `"443"` or `"1000-2000"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PortRange(pub(super) Ports);

impl FromStr for PortRange {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let (first, last) = s.split_once('-').unwrap_or((s, s));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self(Ports { first, last })),
            _ => Err(format!("`{s}` is not a port or a range of ports: write \"443\" or \"1000-2000\"")),
        }
    }
}

/// A time, or `"off"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target(Option<Duration>);

impl FromStr for Target {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        if s == "off" {
            return Ok(Self(None));
        }
        s.parse().map(|time| Self(Some(time))).map_err(|error: <Duration as FromStr>::Err| error.to_string())
    }
}

/// The path of a namespace's file.
pub(crate) fn namespace_path(namespace: &Namespace) -> Option<PathBuf> {
    match namespace {
        Namespace::Own | Namespace::All => None,
        Namespace::Name(name) => Some(PathBuf::from("/run/netns").join(name)),
        Namespace::Path(path) => Some(path.clone()),
    }
}
