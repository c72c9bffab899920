//! A rule, and what it must be.

use weirgate_units::Prefix;

use super::{FLOW_RULES_MAX, RULES_MAX};
use crate::frame::{FlowKey, Frame};

/// What a frame must be to be of a class. Every field that is `None` asks for nothing; what a frame does not have (an ARP request
/// an address, a later fragment a port) is never what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule<C> {
    /// Rules with lower numbers come first.
    pub priority: u32,
    /// What a frame is that this rule is the first one for.
    pub class: C,
    /// The port by which it came in.
    pub port: Option<u16>,
    /// The VLAN id, 0 to 4095; 0 is untagged or a priority tag.
    pub vlan: Option<u16>,
    /// The source address. An IPv4-mapped IPv6 address is IPv4, as [`Prefix`] has it.
    pub source: Option<Prefix>,
    /// The destination address.
    pub destination: Option<Prefix>,
    /// The differentiated services code point, 0 to 63.
    pub dscp: Option<u8>,
    /// The protocol over IP.
    pub protocol: Option<u8>,
    /// TCP's or UDP's source port.
    pub source_ports: Option<Ports>,
    /// TCP's or UDP's destination port.
    pub destination_ports: Option<Ports>,
}

/// A range of ports, both ends within.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ports {
    /// The lowest.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

impl Ports {
    /// One port.
    pub const fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }

    /// Whether `port` is one of them.
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

/// Which rule cannot be, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule {at}: {problem}")]
pub struct RuleError {
    /// The rule's place in the list, from 0.
    pub at: usize,
    /// What is wrong with it.
    pub problem: RuleProblem,
}

/// What is wrong with a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleProblem {
    /// It is one too many.
    #[error("one more than the {RULES_MAX} that there may be beside those for one flow: join networks or ranges")]
    TooMany,
    /// It is for one flow, and one too many of these.
    #[error("one more than the {FLOW_RULES_MAX} that there may be for one flow: ask for networks or ranges instead")]
    TooManyFlows,
    /// No VLAN has this id.
    #[error("VLAN {0} is past 4095")]
    Vlan(u16),
    /// No packet has this code point.
    #[error("DSCP {0} is past 63: it is the upper six bits of the traffic class")]
    Dscp(u8),
    /// The range holds nothing.
    #[error("ports {0} to {1} are none: write the lower one first")]
    Ports(u16, u16),
}

impl<C> Rule<C> {
    /// A rule that every frame is right for, to be narrowed down: `Rule { vlan: Some(7), ..Rule::any(10, class) }`.
    pub const fn any(priority: u32, class: C) -> Self {
        Self {
            priority,
            class,
            port: None,
            vlan: None,
            source: None,
            destination: None,
            dscp: None,
            protocol: None,
            source_ports: None,
            destination_ports: None,
        }
    }

    /// The flow that it asks for, where that is a single one: a host and a port at each end, and a protocol, and nothing beside that
    /// but the port by which it comes in. A [`Classifier`](super::Classifier) finds such a rule by one look, however many there are.
    pub(super) fn flow(&self) -> Option<FlowKey> {
        let (None, None) = (self.vlan, self.dscp) else { return None };
        self.one_flow()
    }

    /// The flow that all it is right for is of, whatever it asks for beside that.
    pub(super) fn one_flow(&self) -> Option<FlowKey> {
        let host = |network: Prefix| (network == Prefix::of(network.address(), u8::MAX)).then_some(network.address());
        let one = |ports: Ports| (ports.first == ports.last).then_some(ports.first);
        Some(FlowKey {
            source: self.source.and_then(host)?,
            destination: self.destination.and_then(host)?,
            protocol: self.protocol?,
            source_port: self.source_ports.and_then(one)?,
            destination_port: self.destination_ports.and_then(one)?,
        })
    }

    /// The same, and what follows of it asked for too: with one address a frame has another one of its family, and with one port another
    /// one. Two rules are for the same frames where these are alike.
    #[must_use]
    pub fn in_full(self) -> Self {
        let family = |known: Option<Prefix>| known.map(|network| Prefix::of(network.address(), 0));
        let any_port = |known: Option<Ports>| known.map(|_| Ports { first: 0, last: u16::MAX });
        Self {
            source: self.source.or_else(|| family(self.destination)),
            destination: self.destination.or_else(|| family(self.source)),
            source_ports: self.source_ports.or_else(|| any_port(self.destination_ports)),
            destination_ports: self.destination_ports.or_else(|| any_port(self.source_ports)),
            ..self
        }
    }

    /// Whether every frame that this rule is right for is one that `other` is right for too.
    pub(super) fn is_covered_by(&self, other: &Self) -> bool
    where
        C: Copy,
    {
        let narrow = self.in_full();
        let same = |wide: Option<u16>, narrow| within(wide, narrow, |wide, narrow| wide == narrow);
        let holds = |wide, narrow| {
            within(wide, narrow, |wide: Prefix, narrow: Prefix| {
                wide.len() <= narrow.len() && wide.contains(narrow.address())
            })
        };
        let spans = |wide, narrow| {
            within(wide, narrow, |wide: Ports, narrow: Ports| wide.contains(narrow.first) && wide.contains(narrow.last))
        };
        same(other.port, narrow.port)
            && same(other.vlan, narrow.vlan)
            && holds(other.source, narrow.source)
            && holds(other.destination, narrow.destination)
            && same(other.dscp.map(u16::from), narrow.dscp.map(u16::from))
            && same(other.protocol.map(u16::from), narrow.protocol.map(u16::from))
            && spans(other.source_ports, narrow.source_ports)
            && spans(other.destination_ports, narrow.destination_ports)
    }

    /// Whether `other` covers it, and more than it.
    pub(super) fn lies_within(&self, other: &Self) -> bool
    where
        C: Copy,
    {
        self.is_covered_by(other) && !other.is_covered_by(self)
    }

    /// Whether a frame that came in by `port` is what is asked for: what a [`Classifier`](super::Classifier) means, rule by rule.
    pub fn matches(&self, port: u16, frame: &Frame) -> bool {
        let ip = frame.ip.as_ref();
        let ports = ip.and_then(|ip| ip.transport.ports());
        self.port.is_none_or(|wanted| wanted == port)
            && self.vlan.is_none_or(|vlan| vlan == frame.vlan())
            && self.source.is_none_or(|network| ip.is_some_and(|ip| network.contains(ip.source)))
            && self.destination.is_none_or(|network| ip.is_some_and(|ip| network.contains(ip.destination)))
            && self.dscp.is_none_or(|dscp| ip.is_some_and(|ip| ip.dscp == dscp))
            && self.protocol.is_none_or(|protocol| ip.is_some_and(|ip| ip.protocol == protocol))
            && self.source_ports.is_none_or(|range| ports.is_some_and(|(source, _)| range.contains(source)))
            && self.destination_ports.is_none_or(|range| ports.is_some_and(|(_, to)| range.contains(to)))
    }
}

/// Whether one condition lets everything through that the other does.
fn within<T>(wide: Option<T>, narrow: Option<T>, within: impl Fn(T, T) -> bool) -> bool {
    wide.is_none_or(|wide| narrow.is_some_and(|narrow| within(wide, narrow)))
}

/// Whether a [`Classifier`](super::Classifier) can be made of these rules.
///
/// # Errors
/// As [`Classifier::new`](super::Classifier::new).
pub fn check<C>(rules: &[Rule<C>]) -> Result<(), RuleError> {
    let (mut flows, mut others) = (0, 0);
    for (at, rule) in rules.iter().enumerate() {
        let empty = [rule.source_ports, rule.destination_ports].into_iter().flatten().find(|p| p.first > p.last);
        if rule.flow().is_some() {
            flows += 1;
        } else {
            others += 1;
        }
        let problem = match (rule.vlan, rule.dscp, empty) {
            _ if others > RULES_MAX => RuleProblem::TooMany,
            _ if flows > FLOW_RULES_MAX => RuleProblem::TooManyFlows,
            (Some(vlan), _, _) if vlan > 4_095 => RuleProblem::Vlan(vlan),
            (_, Some(dscp), _) if dscp > 63 => RuleProblem::Dscp(dscp),
            (_, _, Some(ports)) => RuleProblem::Ports(ports.first, ports.last),
            _ => continue,
        };
        return Err(RuleError { at, problem });
    }
    Ok(())
}
