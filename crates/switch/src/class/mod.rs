//! Which class a frame is of, by rules on its headers. Read first: Lakshman and Stiliadis,
//! "High-speed policy-based packet forwarding using efficient multi-dimensional range matching" (SIGCOMM 1998), whose bit
//! vectors these are.
//!
//! **The order.** Rules of a lower priority number come first. Among those of one priority the first that fits has the frame, unless
//! others that fit lie wholly within that one: then the first of these, and so on. So the longest prefix wins wherever it stands, and a
//! rule for one flow stands out of its network.
//!
//! **The bound.** Every field that any rule asks about has a table that gives, for the frame's value, the set of rules that this
//! value is right for, one bit each in the order of priority. The first bit that is set in all of them is the answer. So a frame
//! costs one load for each of VLAN, input port, DSCP, protocol and the two ports, one [`Table`](crate::Table) lookup for each of
//! the two addresses, and at most `fields * rules / 64` words: 1,000 rules are 16 words of each field. Fields that no rule
//! asks about cost nothing; where all rules ask about one field only, and that is no address, its value has its first rule. Rules that ask
//! for one flow, by addresses, protocol and ports, and for no more than the input port beside that, are in a hash table instead of these
//! sets, and cost one look (two, where some ask for the port and some do not) however many there are. Tuple-space search would be one hash
//! lookup for every combination of fields and prefix lengths that occurs, and port ranges would have to be cut into prefixes; decision
//! trees can grow without bound.
//!
//! **The memory.** At most `2 * rules + 1` sets of `rules / 8` bytes for each field: with [`RULES_MAX`] that is 4 MB a field,
//! with 1,000 rules 250 KB; and two bytes for each value up to the highest that a rule names. Rules for one flow take 61 to 121
//! bytes each where a class is four. A classifier is built at once and never changed: build the next one beside it.

mod cache;
mod flows;
mod order;
mod rule;
mod sets;

pub use cache::Cached;
use flows::Flows;
pub use rule::{Ports, Rule, RuleError, RuleProblem, check};
use sets::{Networks, Set, Sets, Values};

use crate::frame::{Frame, Ip};

/// The most rules of a classifier beside those for one flow: 64 words of each field, half a kilobyte to go through where the first
/// match is the last rule.
pub const RULES_MAX: usize = 4_096;

/// The most rules for one flow: 14 MB where a class is four bytes.
pub const FLOW_RULES_MAX: usize = 131_072;

/// Rules, and the classes that they stand for.
#[derive(Clone, Debug)]
pub struct Classifier<C> {
    /// Rules for one flow each.
    flows: Flows<C>,
    /// All others in their order; where one stands is its bit.
    rules: Vec<Placed<C>>,
    /// A bit for each of them.
    all: Set,
    fields: Fields,
}

/// A rule's class, and its place in the order of all rules.
#[derive(Clone, Copy, Debug)]
struct Placed<C> {
    place: u32,
    class: C,
}

impl<C> Placed<C> {
    fn first(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if b.place < a.place { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

/// What rules ask about: fields that none asks about are not here.
#[derive(Clone, Debug)]
struct Fields {
    values: Vec<(Field, Values)>,
    source: Option<Networks>,
    destination: Option<Networks>,
}

/// A field of 16 bits or fewer.
#[derive(Clone, Copy, Debug)]
enum Field {
    Port,
    Vlan,
    Dscp,
    Protocol,
    SourcePort,
    DestinationPort,
}

impl Field {
    const ALL: [Self; 6] =
        [Self::Port, Self::Vlan, Self::Dscp, Self::Protocol, Self::SourcePort, Self::DestinationPort];

    /// What a rule asks of it.
    fn asked<C>(self, rule: &Rule<C>) -> Option<Ports> {
        match self {
            Self::Port => rule.port.map(Ports::one),
            Self::Vlan => rule.vlan.map(Ports::one),
            Self::Dscp => rule.dscp.map(|dscp| Ports::one(dscp.into())),
            Self::Protocol => rule.protocol.map(|protocol| Ports::one(protocol.into())),
            Self::SourcePort => rule.source_ports,
            Self::DestinationPort => rule.destination_ports,
        }
    }

    /// What a frame that came in by `port` has there.
    fn of(self, port: u16, frame: &Frame) -> Option<u16> {
        let ports = |ip: &Ip| ip.transport.ports();
        let ip = frame.ip.as_ref();
        match self {
            Self::Port => Some(port),
            Self::Vlan => Some(frame.vlan()),
            Self::Dscp => ip.map(|ip| ip.dscp.into()),
            Self::Protocol => ip.map(|ip| ip.protocol.into()),
            Self::SourcePort => ip.and_then(ports).map(|(source, _)| source),
            Self::DestinationPort => ip.and_then(ports).map(|(_, destination)| destination),
        }
    }
}

impl<C: Copy> Classifier<C> {
    /// A classifier of these rules, `all` in the order that they are written in. `seed` is for the table of flows: keep it secret,
    /// since what is looked up there comes from outside.
    ///
    /// # Errors
    /// [`RuleError`] names the rule that asks for what cannot be, or says that there are more than [`RULES_MAX`], or more than
    /// [`FLOW_RULES_MAX`] for one flow.
    pub fn new(mut all: Vec<Rule<C>>, seed: u64) -> Result<Self, RuleError> {
        rule::check(&all)?;
        all.sort_by_key(|rule| rule.priority);
        let all = all.chunk_by(|a, b| a.priority == b.priority).flat_map(order::narrow_first);
        let (mut flows, mut placed, mut rules) = (Flows::new(seed), Vec::new(), Vec::new());
        for (place, rule) in (0..).zip(all) {
            if !flows.insert(place, &rule) {
                placed.push(Placed { place, class: rule.class });
                rules.push(rule);
            }
        }
        let values = |field: Field| Values::new(rules.iter().map(|rule| field.asked(rule)), rules.len());
        let fields = Fields {
            values: Field::ALL.into_iter().filter_map(|field| Some((field, values(field)?))).collect(),
            source: Networks::new(rules.iter().map(|rule| rule.source), rules.len()),
            destination: Networks::new(rules.iter().map(|rule| rule.destination), rules.len()),
        };
        Ok(Self { all: Set::all(rules.len()), flows, rules: placed, fields })
    }

    /// The class of a frame that came in by `port`, by the order of rules that this module says; `None`: no rule asks for it.
    #[inline]
    pub fn classify(&self, port: u16, frame: &Frame) -> Option<C> {
        if self.is_empty() { None } else { self.first(port, frame) }
    }

    fn first(&self, port: u16, frame: &Frame) -> Option<C> {
        let rule = if self.rules.is_empty() { None } else { self.first_rule(port, frame) };
        let rule = rule.and_then(|at| self.rules.get(at));
        Placed::first(self.flows.first(port, frame), rule.copied()).map(|first| first.class)
    }

    /// Whether there are no rules: every frame is in no class.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.flows.is_empty()
    }

    /// How many lengths of networks its rules ask for that are not for one flow, of sources and destinations.
    fn lengths(&self) -> usize {
        [&self.fields.source, &self.fields.destination].into_iter().flatten().map(|networks| networks.lengths).sum()
    }

    /// The first of the rules that are not for one flow.
    fn first_rule(&self, port: u16, frame: &Frame) -> Option<usize> {
        let Fields { values, source, destination } = &self.fields;
        if let ([(field, values)], None, None) = (values.as_slice(), source, destination) {
            return values.first(field.of(port, frame));
        }
        let mut sets = Sets::of(self.all.words());
        for (field, values) in values {
            sets.add(values.set(field.of(port, frame)));
        }
        if let Some(networks) = source {
            sets.add(networks.set(frame.ip.as_ref().map(|ip| ip.source)));
        }
        if let Some(networks) = destination {
            sets.add(networks.set(frame.ip.as_ref().map(|ip| ip.destination)));
        }
        sets.first_in_all()
    }
}

#[cfg(test)]
mod tests;
