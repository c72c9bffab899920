//! The rules that say to the kernel where new flows go: one table of our own, `inet weirgate_uplinks`, as JSON for `nft -j -f -`. Read
//! first: nft(8), libnftables-json(5), `net/netfilter/nft_numgen.c`, ip-rule(8).
//!
//! Ground rules:
//!
//! - What is not to leave by an uplink is not touched. A connection that began before the table was there stays where it is.
//! - Only a new connection is steered; its uplink is written into its connection mark, and every later packet of it is marked with that. A
//!   packet's mark leads to its uplink's routing table. Of both marks only [`Marks::mask`] is ours.
//! - What comes in by an uplink belongs to it, and so do its answers. What leaves by one belongs to it, whatever was meant: an admin's
//!   rule, a socket that is bound to a device. But hosts on its link are none of this table's business.
//! - Resets to those whose uplink is silent need the daemon's sign of life, too.
//! - A sender that set an uplink's mark itself, or is bound to a device or to the address of an uplink that it would not leave by, has
//!   chosen. The address of the one that it would leave by is what the system gives whoever does not choose.
//! - Which uplink is next stands in `next_...`, a chain for each pool of uplinks, family and transport: slots in the order of
//!   `balance::Weighted`, taken in turn by `numgen inc`, which begins anew when the chain is made anew. So a flow that begins between two looks of
//!   the daemon has its place as well.
//! - Source addresses are translated after the admin's own rules had their turn (priority 110), which then win.
//! - Where the daemon has not said for [`ALIVE`] that it is there, new connections go by the main routing table again.
//!
//! Rejected: `numgen random` and `jhash`, which leave to chance whether an uplink has a flow; a table of its own for each family, since
//! connection marks and `numgen` are of none; text in place of JSON, since names of devices may hold any letter.

mod json;

use serde_json::{Value, json};
use weirgate_switch::class::Ports;
use weirgate_units::{Duration, Prefix};

use self::json::{
    add_base_chain, add_chain, add_counter, add_table, and, batch, count, ct, delete_table, end, field, flush_chain,
    flush_table, goto, is, is_not, lead, meta, ports, prefix, prefixes, protocol_of, put, rule, set,
};
use super::marks::Marks;
use super::{Family, Kind, Place, Transport};

/// Our table's name.
pub(crate) const TABLE: &str = "weirgate_uplinks";

/// Without a sign of life for so long nothing new is steered: some renewals may be late.
pub(crate) const ALIVE: Duration = Duration::from_secs(15);

/// Before the filters, where packets are marked (`NF_IP_PRI_MANGLE`).
const MANGLE: i32 = -150;
/// After the admin's source and destination NAT (100, -100).
const AFTER_SOURCE_NAT: i32 = 110;
/// Before the admin's filters (0), which may not know the connection.
const BEFORE_FILTER: i32 = -10;
/// Before connection tracking (-200).
const RAW: i32 = -300;

/// What is never steered: it is for this link, or for many.
const NEAR_V4: [(&str, u8); 3] = [("169.254.0.0", 16), ("224.0.0.0", 4), ("255.255.255.255", 32)];
const NEAR_V6: [(&str, u8); 2] = [("fe80::", 10), ("ff00::", 8)];

/// An uplink, as far as the rules know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuledUplink {
    /// Its device.
    pub(crate) device: String,
    /// The device's addresses: a sender that is bound to one has chosen.
    pub(crate) addresses: Vec<std::net::IpAddr>,
    /// Networks on its link, its gateways among them: who is there says nothing of what is beyond.
    pub(crate) near: Vec<Prefix>,
    /// Networks whose addresses may leave by it as they are.
    pub(crate) prefixes: Vec<Prefix>,
    /// Whether other addresses are given the device's.
    pub(crate) masquerade: bool,
    /// Whether its forwarded TCP connections of a family are answered with resets.
    pub(crate) is_given_up: [bool; 2],
}

/// Flows that go by a pool of uplinks of their own; the first rule that fits a flow has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowRule {
    pub(crate) source: Option<Prefix>,
    pub(crate) destination: Option<Prefix>,
    pub(crate) protocol: Option<u8>,
    pub(crate) source_ports: Option<Ports>,
    pub(crate) destination_ports: Option<Ports>,
    /// Bits that are to be so, and which are looked at.
    pub(crate) mark: Option<[u32; 2]>,
    /// Whether they are refused while none of their uplinks works, or go by any.
    pub(crate) is_strict: bool,
}

/// The order of the next flows of a pool, by kind: places of uplinks. Empty: none of them works.
pub(crate) type Order = [Vec<Place>; 4];

/// All that the rules are made of.
#[derive(Clone, Debug)]
pub(crate) struct Ruleset<'a> {
    pub(crate) marks: Marks,
    pub(crate) uplinks: &'a [RuledUplink],
    pub(crate) rules: &'a [FlowRule],
    /// That of what no rule is for, then those of the rules.
    pub(crate) orders: &'a [Order],
    /// Networks within, whose addresses are translated as those of an uplink's prefix are.
    pub(crate) inside: &'a [Prefix],
}

/// Removes the table, whether it is there or not.
pub(crate) fn removal() -> Value {
    batch(vec![add_table(), delete_table()])
}

/// Says that the daemon is there.
pub(crate) fn sign_of_life() -> Value {
    batch(vec![flush_alive(), alive()])
}

fn flush_alive() -> Value {
    json!({ "flush": { "set": { "family": "inet", "table": TABLE, "name": "alive" } } })
}

fn alive() -> Value {
    let timeout = ALIVE.as_millis() / 1_000;
    let of = |family: &str| json!({ "elem": { "val": family, "timeout": timeout } });
    json!({ "add": { "element": { "family": "inet", "table": TABLE, "name": "alive", "elem": [of("ipv4"), of("ipv6")] } } })
}

impl Ruleset<'_> {
    /// The whole table in one batch: what was there goes, but for what its counters counted.
    pub(crate) fn whole(&self) -> Value {
        let mut to = vec![add_table(), flush_table()];
        to.push(json!({ "add": { "set": {
            "family": "inet", "table": TABLE, "name": "alive", "type": "nf_proto", "flags": ["timeout"],
        } } }));
        for place in 0..self.uplinks.len() {
            let counters =
                Family::ALL.into_iter().flat_map(|family| ["to", "from"].map(|way| counter(way, family, place)));
            to.extend(counters.map(|name| add_counter(&name)));
        }
        for place in 0..self.uplinks.len() {
            to.extend(["use", "said", "mark", "in", "out"].map(|what| add_chain(&named(what, place))));
        }
        for pool in 0..self.orders.len() {
            to.extend(Kind::ALL.map(|kind| add_chain(&next_chain(pool, kind))));
            to.push(add_chain(&format!("pick_{pool}")));
        }
        to.push(add_chain("choose"));
        to.push(add_base_chain("raw_output", "filter", "output", RAW));
        to.push(add_base_chain("prerouting", "filter", "prerouting", MANGLE));
        to.push(add_base_chain("output", "route", "output", MANGLE));
        to.push(add_base_chain("forward", "filter", "forward", BEFORE_FILTER));
        to.push(add_base_chain("postrouting", "filter", "postrouting", MANGLE));
        to.push(add_base_chain("source_nat", "nat", "postrouting", AFTER_SOURCE_NAT));
        for (place, uplink) in self.uplinks.iter().enumerate() {
            self.add_uplink(&mut to, place, uplink);
        }
        for (pool, order) in self.orders.iter().enumerate() {
            self.add_pool(&mut to, pool, order);
        }
        self.add_choose(&mut to);
        self.add_base(&mut to);
        self.add_source_nat(&mut to);
        to.extend([flush_alive(), alive()]);
        batch(to)
    }

    /// Puts other orders in place of some, by pool and kind; all else stays.
    pub(crate) fn reorder(&self, changed: &[(usize, Kind)]) -> Value {
        let mut to = Vec::new();
        for (pool, kind) in changed {
            to.push(flush_chain(&next_chain(*pool, *kind)));
            to.extend(self.next_rule(*pool, *kind, &self.orders[*pool][kind.index()]));
        }
        batch(to)
    }

    fn add_uplink(&self, to: &mut Vec<Value>, place: Place, uplink: &RuledUplink) {
        let (mask, bits, own) = (self.marks.mask(), self.marks.of(place), self.marks.own(place));
        let mark = |key: fn(&str) -> Value, bits: u32| put(key("mark"), mask, bits);
        to.push(rule(&named("use", place), vec![mark(meta, bits), mark(ct, bits)]));
        let own_chain = named("said", place);
        to.push(rule(&own_chain, vec![is(and(meta("mark"), mask), own), mark(ct, own), end()]));
        to.push(rule(&own_chain, vec![mark(ct, bits)]));
        to.push(rule(&named("mark", place), vec![mark(meta, bits)]));
        // Who is on the link stays out of it all: the link works when what is beyond does not. What comes from beyond the gateway is a sign
        // of life if somebody here has spoken with it before.
        let named_bits = || and(ct("mark"), self.marks.names());
        for family in Family::ALL {
            let is_far = |field_name: &str| {
                let protocol = if family == Family::V4 { "ip" } else { "ip6" };
                is_not(field(protocol, field_name), prefixes(near(family, &uplink.near)))
            };
            to.push(rule(&named("in", place), vec![is(named_bits(), 0), is_far("saddr"), mark(ct, bits)]));
            to.push(rule(&named("out", place), vec![is_not(named_bits(), bits), is_far("daddr"), mark(ct, bits)]));
            let established = is(ct("state"), "established");
            to.push(rule(
                &named("in", place),
                vec![established, is_far("saddr"), count(&counter("from", family, place))],
            ));
            to.push(rule(&named("out", place), vec![is_far("daddr"), count(&counter("to", family, place))]));
        }
    }

    fn add_pool(&self, to: &mut Vec<Value>, pool: usize, order: &Order) {
        let pick = format!("pick_{pool}");
        for kind in Kind::ALL {
            let mut parts = vec![is(meta("nfproto"), nfproto(kind.family))];
            if kind.transport == Transport::Tcp {
                parts.push(is(meta("l4proto"), "tcp"));
            }
            parts.push(goto(&next_chain(pool, kind)));
            to.push(rule(&pick, parts));
            to.extend(self.next_rule(pool, kind, &order[kind.index()]));
        }
    }

    /// What the chain of a pool's next flows holds.
    fn next_rule(&self, pool: usize, kind: Kind, order: &[Place]) -> Option<Value> {
        let chain = next_chain(pool, kind);
        if !order.is_empty() {
            let turn = json!({ "numgen": { "mode": "inc", "mod": order.len(), "offset": 0 } });
            let ways = order.iter().enumerate().map(|(turn, place)| (turn.into(), named("use", *place)));
            return Some(rule(&chain, vec![lead(turn, ways)]));
        }
        let own_rule = pool.checked_sub(1).and_then(|at| self.rules.get(at))?;
        let refused = json!({ "reject": { "type": "icmpx", "expr": "admin-prohibited" } });
        let parts = if own_rule.is_strict { refused } else { goto(&next_chain(0, kind)) };
        Some(rule(&chain, vec![parts]))
    }

    /// Which pool a new flow is for.
    fn add_choose(&self, to: &mut Vec<Value>) {
        to.push(rule("choose", vec![is_not(meta("nfproto"), "@alive"), end()]));
        for family in Family::ALL {
            let protocol = if family == Family::V4 { "ip" } else { "ip6" };
            let links: Vec<Prefix> = self.uplinks.iter().flat_map(|uplink| &uplink.near).copied().collect();
            to.push(rule("choose", vec![is(field(protocol, "daddr"), prefixes(near(family, &links))), end()]));
        }
        // An uplink's own address is asked for by that uplink (DHCP).
        let dhcp = [67, 68, 546, 547].map(Value::from).to_vec();
        to.push(rule("choose", vec![is(meta("l4proto"), "udp"), is(field("th", "dport"), set(dhcp)), end()]));
        for (at, flows) in self.rules.iter().enumerate() {
            let mut parts = Vec::new();
            if let Some([bits, mask]) = flows.mark {
                parts.push(is(and(meta("mark"), mask), bits));
            }
            for (network, name) in [(flows.source, "saddr"), (flows.destination, "daddr")] {
                parts.extend(network.map(|network| is(field(protocol_of(network), name), prefix(network))));
            }
            parts.extend(flows.protocol.map(|protocol| is(meta("l4proto"), protocol)));
            if flows.protocol.is_none() && (flows.source_ports.is_some() || flows.destination_ports.is_some()) {
                parts.push(is(meta("l4proto"), set(vec!["tcp".into(), "udp".into()])));
            }
            for (range, name) in [(flows.source_ports, "sport"), (flows.destination_ports, "dport")] {
                parts.extend(range.map(|range| is(field("th", name), ports(range))));
            }
            parts.push(goto(&format!("pick_{}", at + 1)));
            to.push(rule("choose", parts));
        }
        to.push(rule("choose", vec![goto("pick_0")]));
    }

    /// The chains that packets come to by themselves.
    fn add_base(&self, to: &mut Vec<Value>) {
        let devices = || set(self.uplinks.iter().map(|uplink| uplink.device.as_str().into()).collect());
        let by_device = |key: &str, what: &str| {
            let ways = self.uplinks.iter().enumerate();
            lead(meta(key), ways.map(|(place, uplink)| (uplink.device.as_str().into(), named(what, place))))
        };
        let by_mark = |key: Value, what: &str| {
            let ways = (0..self.uplinks.len()).map(|place| (self.marks.of(place).into(), named(what, place)));
            lead(and(key, self.marks.names()), ways)
        };
        let untracked = is(and(meta("mark"), self.marks.mask()), self.marks.untracked());
        to.push(rule("raw_output", vec![untracked, json!({ "notrack": null })]));
        to.push(rule("prerouting", vec![by_device("iifname", "in")]));
        // With the mark that the admin's rules gave it: what those send elsewhere is not to leave by an uplink.
        let route = json!({ "fib": { "result": "oifname", "flags": ["daddr", "mark"] } });
        for (chain, leaves_by) in [("prerouting", route), ("output", meta("oifname"))] {
            to.push(rule(chain, vec![by_mark(meta("mark"), "said")]));
            to.push(rule(chain, vec![by_mark(ct("mark"), "mark")]));
            to.push(rule(chain, vec![is_not(ct("state"), "new"), end()]));
            to.push(rule(chain, vec![is_not(leaves_by, devices()), end()]));
            if chain == "output" {
                self.add_bound(to);
            }
            to.push(rule(chain, vec![goto("choose")]));
        }
        let all = self.uplinks.iter().enumerate().flat_map(|uplink| Family::ALL.map(|family| (uplink, family)));
        for ((place, _), family) in all.filter(|((_, uplink), family)| uplink.is_given_up[*family as usize]) {
            let is_its = is(and(ct("mark"), self.marks.names()), self.marks.of(place));
            let reset = json!({ "reject": { "type": "tcp reset" } });
            let lives = [is(meta("nfproto"), nfproto(family)), is(meta("nfproto"), "@alive")];
            // Who was not answered yet sends the same by another uplink, once the daemon has had it forgotten.
            let answered = is(ct("state"), "established");
            let parts = [is_not(meta("iifname"), devices()), is_its, is(meta("l4proto"), "tcp"), answered, reset];
            to.push(rule("forward", [lives.to_vec(), parts.to_vec()].concat()));
        }
        to.push(rule("postrouting", vec![by_device("oifname", "out")]));
    }

    /// A sender with the address of an uplink that it would not leave by is bound to that: the system gives the address of the one it would.
    fn add_bound(&self, to: &mut Vec<Value>) {
        for (place, uplink) in self.uplinks.iter().enumerate() {
            for (family, protocol) in [(Family::V4, "ip"), (Family::V6, "ip6")] {
                let own = uplink.addresses.iter().filter(|address| Family::of(**address) == family);
                let own: Vec<Value> = own.map(|address| address.to_string().into()).collect();
                // Where two uplinks have the same address, it says nothing.
                if !own.is_empty() {
                    let elsewhere = is_not(meta("oifname"), uplink.device.as_str());
                    let local = json!({ "fib": { "result": "type", "flags": ["saddr", "oif"] } });
                    let parts = vec![elsewhere, is(field(protocol, "saddr"), set(own)), is_not(local, "local")];
                    to.push(rule("output", [parts, vec![goto(&named("use", place))]].concat()));
                }
            }
        }
    }

    fn add_source_nat(&self, to: &mut Vec<Value>) {
        for uplink in &self.uplinks.to_vec() {
            let leaves = || is(meta("oifname"), uplink.device.as_str());
            let from = |network: Prefix| is(field(protocol_of(network), "saddr"), prefix(network));
            for own in &uplink.prefixes {
                to.push(rule("source_nat", vec![leaves(), from(*own), end()]));
            }
            let others = self.uplinks.iter().flat_map(|other| &other.prefixes).chain(self.inside);
            for other in others.filter(|other| !uplink.prefixes.contains(other)) {
                let is_alike = |own: &&Prefix| own.len() == other.len() && protocol_of(**own) == protocol_of(*other);
                if let Some(own) = uplink.prefixes.iter().find(is_alike) {
                    let translated = json!({ "snat": {
                        "family": protocol_of(*own), "addr": prefix(*own), "flags": "netmap", "type_flags": "prefix",
                    } });
                    to.push(rule("source_nat", vec![leaves(), from(*other), translated]));
                }
            }
            if uplink.masquerade {
                let local = json!({ "fib": { "result": "type", "flags": ["saddr", "oif"] } });
                to.push(rule("source_nat", vec![leaves(), is_not(local, "local"), json!({ "masquerade": null })]));
            }
        }
    }
}

/// Networks of a family that are on the link of whoever has these, and those that are on every link.
fn near(family: Family, own: &[Prefix]) -> Vec<Prefix> {
    let constant: &[(&str, u8)] = if family == Family::V4 { &NEAR_V4 } else { &NEAR_V6 };
    let always = constant.iter().filter_map(|(address, len)| Some(Prefix::of(address.parse().ok()?, *len)));
    let own = own.iter().copied().filter(|network| Family::of(network.address()) == family);
    let mut all: Vec<Prefix> = always.chain(own).collect();
    // The kernel wants a set's networks apart.
    all.sort_by_key(|network| (network.len(), network.address()));
    let mut apart: Vec<Prefix> = Vec::new();
    for network in all {
        if !apart.iter().any(|known| known.overlaps(network)) {
            apart.push(network);
        }
    }
    apart
}

fn named(what: &str, place: Place) -> String {
    format!("{what}_{}", place + 1)
}

const fn nfproto(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}

/// The counter of what leaves (`to`) or comes (`from`).
fn counter(way: &str, family: Family, place: Place) -> String {
    format!("{way}_{}_{}", place + 1, nfproto(family))
}

/// What a counter of that name counts: the uplink, the family, and 0 for what leaves, 1 for what comes.
pub(crate) fn counted(name: &str) -> Option<(Place, Family, usize)> {
    let (way, rest) = name.split_once('_')?;
    let (number, family) = rest.split_once('_')?;
    let way = ["to", "from"].iter().position(|known| *known == way)?;
    let family = Family::ALL.into_iter().find(|known| nfproto(*known) == family)?;
    Some((number.parse::<usize>().ok()?.checked_sub(1)?, family, way))
}

fn next_chain(pool: usize, kind: Kind) -> String {
    format!("next_{pool}_{}", kind.name())
}

#[cfg(test)]
mod tests;
