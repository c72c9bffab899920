//! `[[uplink]]`, `[[steer]]` and `[steering]`: a host's uplinks and which new connections go by which, typed and meant.

pub(crate) mod marks;
mod meaning;
mod words;

use std::net::IpAddr;

use weirgate_switch::class::Ports;
use weirgate_units::{BitRate, Prefix};

use self::marks::Marks;
use self::words::{Otherwise, TypedGateway, TypedMark, TypedWeight};
use super::Namespace;
use super::read::{Problem, Section};
use super::shaping::{PortRange, Protocol};
use super::typed::Maybe;

pub(super) use self::meaning::meaning;

/// The most uplinks: an order of flows has a place for each several times over, and nobody has more.
pub(crate) const UPLINKS_MAX: usize = 32;

/// Routing tables and rules begin at this number, where nothing else is said: after the admin's own, whose tables are below 256 most often,
/// and beside [`weirgate_linux::route_cc::RouteCc`]'s.
pub(crate) const NUMBERS: u32 = 30_600;

/// The uplinks of this host; without any nothing is steered.
#[derive(Clone, Debug, PartialEq)]
pub struct Uplinks {
    /// Where they are.
    pub namespace: Namespace,
    /// Where our eight bits of a mark begin.
    pub mark_shift: u8,
    /// The first of our routing tables.
    pub table: u32,
    /// The first of our rules' priorities.
    pub priority: u32,
    /// Networks within whose addresses are translated.
    pub inside: Vec<Prefix>,
    /// `[[uplink]]`.
    pub uplinks: Vec<Uplink>,
    /// `[[steer]]`; the first one that fits a connection has it.
    pub rules: Vec<SteerRule>,
    /// What is sound and yet can hardly be meant, in the order of the file.
    pub notes: Vec<Problem>,
}

/// An uplink.
#[derive(Clone, Debug, PartialEq)]
pub struct Uplink {
    /// By which rules and people name it.
    pub name: String,
    /// Its device.
    pub device: String,
    /// Who forwards what leaves by it, for IPv4 and for IPv6.
    pub gateways: [Gateway; 2],
    /// Its share of the new connections beside the others'; `None`: by what it carries.
    pub weight: Option<u64>,
    /// It is given no more connections than this rate would be.
    pub cap: Option<BitRate>,
    /// What it carries costs money: it is asked rarely, and never to find out what it carries.
    pub is_metered: bool,
    /// It takes new connections only while none of the others works.
    pub is_backup: bool,
    /// Uplinks of the same medium are alike, whatever is measured.
    pub medium: Option<String>,
    /// Who is asked whether it works.
    pub targets: Vec<Target>,
    /// Whether addresses that are not the device's own are given the device's.
    pub masquerade: bool,
    /// Networks whose addresses may leave by it as they are.
    pub prefixes: Vec<Prefix>,
}

/// Who forwards what leaves by an uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gateway {
    /// Whom the default route of the main table names; of a point-to-point device nobody.
    Auto,
    /// Nothing of this family goes by it.
    None,
    /// This one.
    At(IpAddr),
}

/// Who is asked whether an uplink works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// By ICMP echo, or a TCP connection to `port`.
    pub address: IpAddr,
    /// Where a connection is opened, and closed at once.
    pub port: Option<u16>,
}

/// Connections that go by uplinks of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SteerRule {
    /// Source network.
    pub source: Option<Prefix>,
    /// Destination network.
    pub destination: Option<Prefix>,
    /// Protocol over IP.
    pub protocol: Option<u8>,
    /// Source ports.
    pub source_ports: Option<Ports>,
    /// Destination ports.
    pub destination_ports: Option<Ports>,
    /// Bits of the firewall mark, and which are looked at.
    pub mark: Option<[u32; 2]>,
    /// Places in [`Uplinks::uplinks`].
    pub uplinks: Vec<usize>,
    /// Whether they are refused while none of these works, or go by any.
    pub is_strict: bool,
}

/// As typed.
#[derive(Debug)]
pub(super) struct TypedUplinks {
    namespace: Maybe<String>,
    marks: Maybe<u64>,
    table: Maybe<u64>,
    priority: Maybe<u64>,
    inside: Maybe<Vec<Prefix>>,
    uplinks: Vec<TypedUplink>,
    rules: Vec<TypedRule>,
}

#[derive(Debug)]
struct TypedUplink {
    line: usize,
    name: Maybe<String>,
    device: Maybe<String>,
    gateway: Maybe<TypedGateway>,
    gateway6: Maybe<TypedGateway>,
    weight: Maybe<TypedWeight>,
    cap: Maybe<BitRate>,
    metered: Maybe<bool>,
    backup: Maybe<bool>,
    medium: Maybe<String>,
    targets: Maybe<Vec<Target>>,
    masquerade: Maybe<bool>,
    prefixes: Maybe<Vec<Prefix>>,
}

#[derive(Debug)]
struct TypedRule {
    line: usize,
    source: Maybe<Prefix>,
    destination: Maybe<Prefix>,
    protocol: Maybe<Protocol>,
    source_ports: Maybe<PortRange>,
    destination_ports: Maybe<PortRange>,
    mark: Maybe<TypedMark>,
    uplinks: Maybe<Vec<String>>,
    otherwise: Maybe<Otherwise>,
}

pub(super) fn read(root: &mut Section<'_>) -> TypedUplinks {
    let uplinks = root.tables("uplink", |s, line| TypedUplink {
        line,
        name: s.parsed("name"),
        device: s.parsed("device"),
        gateway: s.parsed("gateway"),
        gateway6: s.parsed("gateway6"),
        weight: s.parsed("weight"),
        cap: s.parsed("cap"),
        metered: s.boolean("metered"),
        backup: s.boolean("backup"),
        medium: s.parsed("medium"),
        targets: s.list("targets"),
        masquerade: s.boolean("masquerade"),
        prefixes: s.list("prefixes"),
    });
    let rules = root.tables("steer", |s, line| TypedRule {
        line,
        source: s.parsed("source"),
        destination: s.parsed("destination"),
        protocol: s.parsed("protocol"),
        source_ports: s.parsed("source_ports"),
        destination_ports: s.parsed("destination_ports"),
        mark: s.parsed("mark"),
        uplinks: s.list("uplinks"),
        otherwise: s.parsed("otherwise"),
    });
    let (uplinks, rules) = (uplinks.unwrap_or_default(), rules.unwrap_or_default());
    root.table("steering", |s| TypedUplinks {
        namespace: s.parsed("namespace"),
        marks: s.integer("marks", 0, Marks::SHIFT_MAX.into()),
        // 253 to 255 are default, main and local; the main table's rule is 32,766.
        table: s.integer("table", 256, u64::from(u32::MAX) - 64),
        priority: s.integer("priority", 1, 32_765 - 64),
        inside: s.list("inside"),
        uplinks,
        rules,
    })
}

#[cfg(test)]
mod tests;
