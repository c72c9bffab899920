//! Sets of rules, and tables from a field's value to the set of rules that it is right for.

use core::net::IpAddr;

use weirgate_units::Prefix;

use super::rule::Ports;
use crate::table::Table;

/// A set of rules, a bit each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Set(Vec<u64>);

impl Set {
    fn none(rules: usize) -> Self {
        Self(vec![0; rules.div_ceil(64)])
    }

    pub(super) fn all(rules: usize) -> Self {
        Self::of((0..rules).map(|_| true), rules)
    }

    fn of(members: impl Iterator<Item = bool>, rules: usize) -> Self {
        let mut set = Self::none(rules);
        members.enumerate().filter(|(_, member)| *member).for_each(|(rule, _)| set.flip(rule));
        set
    }

    fn flip(&mut self, rule: usize) {
        self.0[rule / 64] ^= 1 << (rule % 64);
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.0
    }

    fn first(&self) -> Option<usize> {
        Sets::of(self.words()).first_in_all()
    }
}

/// Sets of rules of one length, one for each field that is asked about at most, and that of all.
pub(super) struct Sets<'a> {
    sets: [&'a [u64]; 9],
    used: usize,
}

impl<'a> Sets<'a> {
    pub(super) const fn of(all: &'a [u64]) -> Self {
        Self { sets: [all; 9], used: 1 }
    }

    #[inline]
    pub(super) const fn add(&mut self, set: &'a [u64]) {
        self.sets[self.used] = set;
        self.used += 1;
    }

    /// The first rule that is in all of them.
    pub(super) fn first_in_all(&self) -> Option<usize> {
        let sets = &self.sets[..self.used];
        let words = sets.iter().map(|set| set.len()).min()?;
        (0..words).find_map(|at| {
            let both = sets.iter().fold(u64::MAX, |both, set| both & set[at]);
            (both != 0).then(|| 64 * at + both.trailing_zeros() as usize)
        })
    }
}

/// Many sets, one behind the other. The first is of the rules that do not ask: for values that no rule names, and for none.
#[derive(Clone, Debug)]
struct Rows {
    words: Vec<u64>,
    /// Words of each.
    width: usize,
    /// The first rule of each.
    first: Vec<Option<usize>>,
}

impl Rows {
    fn new(first: &Set) -> Self {
        Self { words: first.0.clone(), width: first.0.len(), first: vec![first.first()] }
    }

    /// Its number fits: a field has at most two bounds for each rule.
    fn push(&mut self, set: &Set) -> u16 {
        let place = (self.words.len() / self.width) as u16;
        self.words.extend(&set.0);
        self.first.push(set.first());
        place
    }

    fn get(&self, place: u16) -> &[u64] {
        let start = usize::from(place) * self.width;
        &self.words[start..start + self.width]
    }
}

/// A field of 16 bits or fewer.
#[derive(Clone, Debug)]
pub(super) struct Values {
    /// Which set is each value's, up to the highest that a rule names.
    places: Vec<u16>,
    sets: Rows,
}

impl Values {
    /// By what each of so many rules asks for; `None` where none asks.
    pub(super) fn new(asked: impl Iterator<Item = Option<Ports>> + Clone, rules: usize) -> Option<Self> {
        // At these values a rule begins or ceases to be right.
        let mut turns: Vec<(u32, usize)> = Vec::new();
        for (rule, range) in asked.clone().enumerate() {
            if let Some(range) = range {
                turns.extend([(u32::from(range.first), rule), (u32::from(range.last) + 1, rule)]);
            }
        }
        turns.sort_unstable();
        let end = turns.last()?.0;
        let mut set = Set::of(asked.map(|range| range.is_none()), rules);
        let mut sets = Rows::new(&set);
        let mut places = Vec::with_capacity(end as usize);
        for (at, together) in turns.chunk_by(|a, b| a.0 == b.0).enumerate() {
            // Up to here, what was right until now: nothing that asks, at first.
            let place = if at == 0 { 0 } else { sets.push(&set) };
            places.resize(together[0].0 as usize, place);
            together.iter().for_each(|(_, rule)| set.flip(*rule));
        }
        Some(Self { places, sets })
    }

    pub(super) fn set(&self, value: Option<u16>) -> &[u64] {
        self.sets.get(self.place(value))
    }

    /// The first rule that is right for it, if no rule asks about anything else.
    pub(super) fn first(&self, value: Option<u16>) -> Option<usize> {
        self.sets.first[usize::from(self.place(value))]
    }

    fn place(&self, value: Option<u16>) -> u16 {
        value.and_then(|value| self.places.get(usize::from(value)).copied()).unwrap_or(0)
    }
}

/// An address.
#[derive(Clone, Debug)]
pub(super) struct Networks {
    /// How many lengths of prefixes are asked for.
    pub(super) lengths: usize,
    table: Table<u16>,
    sets: Rows,
}

impl Networks {
    /// By what each of so many rules asks for; `None` where none asks.
    pub(super) fn new(asked: impl Iterator<Item = Option<Prefix>> + Clone, rules: usize) -> Option<Self> {
        let mut networks: Vec<(Prefix, usize)> =
            asked.clone().enumerate().filter_map(|(rule, network)| Some((network?, rule))).collect();
        if networks.is_empty() {
            return None;
        }
        // Shorter prefixes first: a network's set is that of the longest one around it, and its own rules.
        networks.sort_unstable_by_key(|(network, _)| (network.len(), *network));
        let lengths = networks.chunk_by(|a, b| a.0.len() == b.0.len()).count();
        let mut sets = Rows::new(&Set::of(asked.map(|network| network.is_none()), rules));
        let mut table: Table<u16> = Table::new();
        for same in networks.chunk_by(|a, b| a.0 == b.0) {
            let network = same[0].0;
            let around = table.lookup(network.address()).unwrap_or(0);
            let mut set = Set(sets.get(around).to_vec());
            same.iter().for_each(|(_, rule)| set.flip(*rule));
            table.insert(network, sets.push(&set));
        }
        Some(Self { lengths, table, sets })
    }

    pub(super) fn set(&self, address: Option<IpAddr>) -> &[u64] {
        self.sets.get(address.and_then(|address| self.table.lookup(address)).unwrap_or(0))
    }
}
