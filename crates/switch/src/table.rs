//! Routes: from a destination to whatever it leads to, longest prefix first.

use core::net::IpAddr;
use std::collections::BTreeMap;

use weirgate_units::Prefix;

/// A table of routes.
///
/// A lookup costs one search per prefix length that occurs: an edge whose networks are all /24 and /56 pays one. Built once
/// and changed rarely; a table of the Internet's size wants a trie.
#[derive(Clone, Debug)]
pub struct Table<T> {
    v4: Lengths<T>,
    v6: Lengths<T>,
}

/// Longest first; each length's routes by network.
type Lengths<T> = Vec<(u8, BTreeMap<Prefix, T>)>;

impl<T: Copy> Table<T> {
    /// A table that leads nowhere.
    pub const fn new() -> Self {
        Self { v4: Vec::new(), v6: Vec::new() }
    }

    /// Adds a route, and gives back what the same prefix led to before.
    pub fn insert(&mut self, prefix: Prefix, to: T) -> Option<T> {
        let lengths = if prefix.address().is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        let place = match lengths.binary_search_by(|(len, _)| prefix.len().cmp(len)) {
            Ok(place) => place,
            Err(place) => {
                lengths.insert(place, (prefix.len(), BTreeMap::new()));
                place
            }
        };
        lengths[place].1.insert(prefix, to)
    }

    /// Where the longest prefix that holds `address` leads. An IPv4-mapped IPv6 address is looked up as IPv4, as [`Prefix`]
    /// has it.
    pub fn lookup(&self, address: IpAddr) -> Option<T> {
        let lengths = if address.to_canonical().is_ipv4() { &self.v4 } else { &self.v6 };
        lengths.iter().find_map(|(len, routes)| routes.get(&Prefix::of(address, *len)).copied())
    }

    /// The number of routes.
    pub fn len(&self) -> usize {
        self.v4.iter().chain(&self.v6).map(|(_, routes)| routes.len()).sum()
    }

    /// Whether it leads nowhere.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Copy> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_prefix_wins_whatever_the_order() {
        let routes = ["0.0.0.0/0", "192.0.2.0/24", "192.0.2.7", "2001:db8::/56", "::/0"];
        let mut table = Table::new();
        for at in [2, 0, 4, 1, 3] {
            assert_eq!(table.insert(routes[at].parse().expect("a prefix"), at), None);
        }
        let lookup = |to: &str| table.lookup(to.parse().expect("an address"));
        assert_eq!(lookup("192.0.2.7"), Some(2));
        assert_eq!(lookup("192.0.2.8"), Some(1));
        assert_eq!(lookup("192.0.3.7"), Some(0));
        assert_eq!(lookup("2001:db8:0:ff::1"), Some(3));
        assert_eq!(lookup("2001:db8:0:100::1"), Some(4));
        assert_eq!((table.len(), Table::<u8>::default().is_empty()), (5, true));
    }

    proptest! {
        #[test]
        fn agrees_with_looking_at_every_route(
            routes in prop::collection::vec((0_u32..1 << 12, 0_u8..=32), 0..40), to in 0_u32..1 << 12,
        ) {
            let network = |bits: u32, len| Prefix::of(IpAddr::V4((bits << 20).into()), len);
            let mut table = Table::new();
            let mut all = BTreeMap::new();
            for (at, (bits, len)) in routes.iter().enumerate() {
                prop_assert_eq!(table.insert(network(*bits, *len), at), all.insert(network(*bits, *len), at));
            }
            let to = IpAddr::V4((to << 20).into());
            let longest = all.iter().filter(|(p, _)| p.contains(to)).max_by_key(|(p, _)| p.len());
            prop_assert_eq!(table.lookup(to), longest.map(|(_, at)| *at));
        }
    }
}
