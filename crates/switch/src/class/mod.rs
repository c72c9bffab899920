//! Which class a frame is of: rules on its headers, and a table of single flows. Read first: Lakshman and Stiliadis,
//! "High-speed policy-based packet forwarding using efficient multi-dimensional range matching" (SIGCOMM 1998), whose bit
//! vectors these are.
//!
//! **The bound.** Every field that any rule asks about has a table that gives, for the frame's value, the set of rules that this
//! value is right for, one bit each in the order of priority. The first bit that is set in all of them is the answer. So a frame
//! costs one load for each of VLAN, input port, DSCP, protocol and the two ports, one [`Table`](crate::Table) lookup for each of
//! the two addresses, and at most `fields * rules / 64` words: 1,000 rules are 16 words of each field. Fields that no rule
//! asks about cost nothing. Tuple-space search would be one hash lookup for every combination of fields and prefix lengths that
//! occurs, and port ranges would have to be cut into prefixes; decision trees can grow without bound.
//!
//! **The memory.** At most `2 * rules + 1` sets of `rules / 8` bytes for each field: with [`RULES_MAX`] that is 4 MB a field,
//! with 1,000 rules 250 KB; and two bytes for each value up to the highest that a rule names. A classifier is built at once and never changed but for its flows: build the next one beside it.

mod cache;
mod rule;
mod sets;

use std::collections::HashMap;

pub use cache::Cached;
pub use rule::{Ports, Rule, RuleError, RuleProblem};
use sets::{Networks, Set, Values};

use crate::frame::{FlowKey, Frame, Seeded};

/// The most rules of a classifier: 64 words of each field, half a kilobyte to go through where the first match is the last rule.
pub const RULES_MAX: usize = 4_096;

/// Rules and flows, and the classes that they stand for.
#[derive(Clone, Debug)]
pub struct Classifier<C> {
    /// By priority; a rule's place is its bit.
    rules: Vec<(u32, C)>,
    /// A bit for each of them.
    all: Set,
    fields: Fields,
    flows: HashMap<FlowKey, (u32, C), Seeded>,
    flows_max: usize,
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

/// There is no room for another flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for more than {0} flows: remove some, or raise the bound")]
pub struct FlowsFull(pub usize);

impl<C: Copy> Classifier<C> {
    /// A classifier of these rules, with room for `flows_max` flows. Among rules of one priority, the earlier one in `rules` comes
    /// first. `seed` is for the table of flows: keep it secret, since flows may come from outside.
    ///
    /// # Errors
    /// [`RuleError`] names the rule that asks for what cannot be, or says that there are more than [`RULES_MAX`].
    pub fn new(mut rules: Vec<Rule<C>>, flows_max: usize, seed: u64) -> Result<Self, RuleError> {
        rule::check(&rules)?;
        rules.sort_by_key(|rule| rule.priority);
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
        Ok(Self {
            all: Set::all(rules.len()),
            rules: rules.into_iter().map(|rule| (rule.priority, rule.class)).collect(),
            fields,
            flows: HashMap::with_hasher(Seeded(seed)),
            flows_max,
        })
    }

    /// The class of a frame that came in by `port`; `None`: no rule and no flow asks for it. The lowest priority number wins, and
    /// a flow where a rule has the same.
    pub fn classify(&self, port: u16, frame: &Frame) -> Option<C> {
        let flow = if self.flows.is_empty() { None } else { frame.flow().and_then(|flow| self.flows.get(&flow)) };
        let rule = self.first_rule(port, frame).and_then(|at| self.rules.get(at));
        match (flow, rule) {
            (Some(flow), Some(rule)) if rule.0 < flow.0 => Some(rule.1),
            (Some(flow), _) => Some(flow.1),
            (None, rule) => rule.map(|rule| rule.1),
        }
    }

    /// Adds a flow, or changes its class, and gives back what it had. Fragments are of a flow without ports (see [`FlowKey`]).
    ///
    /// # Errors
    /// [`FlowsFull`] where a new one has no room.
    pub fn insert_flow(&mut self, flow: FlowKey, priority: u32, class: C) -> Result<Option<C>, FlowsFull> {
        if self.flows.len() >= self.flows_max && !self.flows.contains_key(&flow) {
            return Err(FlowsFull(self.flows_max));
        }
        Ok(self.flows.insert(flow, (priority, class)).map(|(_, class)| class))
    }

    /// Takes a flow out, and gives back what it had.
    pub fn remove_flow(&mut self, flow: &FlowKey) -> Option<C> {
        self.flows.remove(flow).map(|(_, class)| class)
    }

    /// How many flows there are.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// How many rules there are.
    pub fn rules(&self) -> usize {
        self.rules.len()
    }

    /// How many lengths of networks its rules ask for, of sources and destinations.
    fn lengths(&self) -> usize {
        [&self.fields.source, &self.fields.destination].into_iter().flatten().map(|networks| networks.lengths).sum()
    }

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
