//! Which class a frame is of, by rules on its headers. Read first: Lakshman and Stiliadis,
//! "High-speed policy-based packet forwarding using efficient multi-dimensional range matching" (SIGCOMM 1998), whose bit
//! vectors these are.
//!
//! **The bound.** Every field that any rule asks about has a table that gives, for the frame's value, the set of rules that this
//! value is right for, one bit each in the order of priority. The first bit that is set in all of them is the answer. So a frame
//! costs one load for each of VLAN, input port, DSCP, protocol and the two ports, one [`Table`](crate::Table) lookup for each of
//! the two addresses, and at most `fields * rules / 64` words: 1,000 rules are 16 words of each field. Fields that no rule
//! asks about cost nothing. Rules that ask for one flow, by addresses, protocol and ports, and for no more than the input port beside
//! that, are in a hash table instead of these sets, and cost one look (two, where some ask for the port and some do not) however
//! many there are. Tuple-space search would be one hash lookup for every combination of fields and prefix lengths that
//! occurs, and port ranges would have to be cut into prefixes; decision trees can grow without bound.
//!
//! **The memory.** At most `2 * rules + 1` sets of `rules / 8` bytes for each field: with [`RULES_MAX`] that is 4 MB a field,
//! with 1,000 rules 250 KB; and two bytes for each value up to the highest that a rule names. Rules for one flow take 61 to 121
//! bytes each where a class is four. A classifier is built at once and never changed: build the next one beside it.

mod cache;
mod flows;
mod rule;
mod sets;

pub use cache::Cached;
use flows::Flows;
pub use rule::{Ports, Rule, RuleError, RuleProblem};
use sets::{Networks, Set, Values};

use crate::frame::Frame;

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
        a.into_iter().chain(b).min_by_key(|placed| placed.place)
    }
}

/// `None`: no rule asks.
#[derive(Clone, Debug)]
struct Fields {
    port: Option<Values>,
    vlan: Option<Values>,
    dscp: Option<Values>,
    protocol: Option<Values>,
    source_port: Option<Values>,
    destination_port: Option<Values>,
    source: Option<Networks>,
    destination: Option<Networks>,
}

impl<C: Copy> Classifier<C> {
    /// A classifier of these rules. Among rules of one priority, the earlier one in `all` comes first. `seed` is for the table of
    /// flows: keep it secret, since what is looked up there comes from outside.
    ///
    /// # Errors
    /// [`RuleError`] names the rule that asks for what cannot be, or says that there are more than [`RULES_MAX`], or more than
    /// [`FLOW_RULES_MAX`] for one flow.
    pub fn new(mut all: Vec<Rule<C>>, seed: u64) -> Result<Self, RuleError> {
        rule::check(&all)?;
        all.sort_by_key(|rule| rule.priority);
        let (mut flows, mut placed, mut rules) = (Flows::new(seed), Vec::new(), Vec::new());
        for (place, rule) in (0..).zip(all) {
            if !flows.insert(place, &rule) {
                placed.push(Placed { place, class: rule.class });
                rules.push(rule);
            }
        }
        let values = |of: &dyn Fn(&Rule<C>) -> Option<Ports>| Values::new(rules.iter().map(of), rules.len());
        let fields = Fields {
            port: values(&|rule| rule.port.map(Ports::one)),
            vlan: values(&|rule| rule.vlan.map(Ports::one)),
            dscp: values(&|rule| rule.dscp.map(|dscp| Ports::one(dscp.into()))),
            protocol: values(&|rule| rule.protocol.map(|protocol| Ports::one(protocol.into()))),
            source_port: values(&|rule| rule.source_ports),
            destination_port: values(&|rule| rule.destination_ports),
            source: Networks::new(rules.iter().map(|rule| rule.source), rules.len()),
            destination: Networks::new(rules.iter().map(|rule| rule.destination), rules.len()),
        };
        Ok(Self { all: Set::all(rules.len()), flows, rules: placed, fields })
    }

    /// The class of a frame that came in by `port`, that of the first rule that asks for it; `None`: none does. The lowest priority
    /// number comes first.
    pub fn classify(&self, port: u16, frame: &Frame) -> Option<C> {
        let rule = self.first_rule(port, frame).and_then(|at| self.rules.get(at));
        Placed::first(self.flows.first(port, frame), rule.copied()).map(|first| first.class)
    }

    /// How many lengths of networks its rules ask for that are not for one flow, of sources and destinations.
    fn lengths(&self) -> usize {
        [&self.fields.source, &self.fields.destination].into_iter().flatten().map(|networks| networks.lengths).sum()
    }

    /// The first of the rules that are not for one flow.
    fn first_rule(&self, port: u16, frame: &Frame) -> Option<usize> {
        let ip = frame.ip.as_ref();
        let (source_port, destination_port) = ip.and_then(|ip| ip.transport.ports()).unzip();
        let fields = &self.fields;
        let mut sets = [self.all.words(); 9];
        let mut used = 1;
        let by_value = [
            (&fields.port, Some(port)),
            (&fields.vlan, Some(frame.vlan())),
            (&fields.dscp, ip.map(|ip| ip.dscp.into())),
            (&fields.protocol, ip.map(|ip| ip.protocol.into())),
            (&fields.source_port, source_port),
            (&fields.destination_port, destination_port),
        ];
        for (values, value) in by_value {
            if let Some(values) = values {
                sets[used] = values.set(value);
                used += 1;
            }
        }
        for (networks, address) in
            [(&fields.source, ip.map(|ip| ip.source)), (&fields.destination, ip.map(|ip| ip.destination))]
        {
            if let Some(networks) = networks {
                sets[used] = networks.set(address);
                used += 1;
            }
        }
        sets::first_in_all(&sets[..used])
    }
}

#[cfg(test)]
mod tests;
