//! The order in which rules of one priority are tried: as they were given, and one that lies wholly within another before it.

use std::collections::HashMap;

use super::rule::Rule;
use crate::frame::FlowKey;

/// `rules` in that order: the first that fits a frame is its, unless others that fit lie within that one; then the first of these is,
/// and so on. Of networks alone this is the longest prefix, wherever it stands.
///
/// A rule is moved up to the first one that it lies within, and takes from that one only what is its own: all that it is right for
/// was the other's. So no third rule gets more or less by it.
pub(super) fn narrow_first<C: Copy>(rules: &[Rule<C>]) -> Vec<Rule<C>> {
    let mut outermost = Outermost::default();
    for rule in rules {
        outermost.add(*rule);
    }
    outermost.groups.into_iter().fold(Vec::new(), |mut ordered, (around, within)| {
        // Most rules are alone.
        if !within.is_empty() {
            ordered.extend(narrow_first(&within));
        }
        ordered.push(around);
        ordered
    })
}

/// Rules that lie within none before them, each with those that came later and lie within it and none before it.
#[derive(Debug)]
struct Outermost<C> {
    groups: Vec<(Rule<C>, Vec<Rule<C>>)>,
    /// Those for one flow, by it: there can be very many, and what lies within one of them is for the same flow.
    flows: HashMap<FlowKey, Vec<usize>>,
    /// The others.
    wide: Vec<usize>,
}

impl<C> Default for Outermost<C> {
    fn default() -> Self {
        Self { groups: Vec::new(), flows: HashMap::new(), wide: Vec::new() }
    }
}

impl<C: Copy> Outermost<C> {
    fn add(&mut self, rule: Rule<C>) {
        let like = rule.one_flow().and_then(|flow| self.flows.get(&flow));
        let around = |places: &Vec<usize>| places.iter().copied().find(|at| rule.lies_within(&self.groups[*at].0));
        let first = [like.and_then(around), around(&self.wide)].into_iter().flatten().min();
        if let Some(at) = first {
            self.groups[at].1.push(rule);
            return;
        }
        let at = self.groups.len();
        match rule.flow() {
            Some(flow) => self.flows.entry(flow).or_default().push(at),
            None => self.wide.push(at),
        }
        self.groups.push((rule, Vec::new()));
    }
}
