//! The words of libnftables-json(5) that the rules are made of.

use serde_json::{Value, json};
use weirgate_switch::class::Ports;
use weirgate_units::Prefix;

use super::TABLE;

/// One batch, which takes effect as a whole or not at all.
pub(super) fn batch(commands: Vec<Value>) -> Value {
    json!({ "nftables": commands })
}

/// The table itself, made where it is not there.
pub(super) fn add_table() -> Value {
    json!({ "add": { "table": { "family": "inet", "name": TABLE } } })
}

/// Every rule goes; chains, counters and sets stay.
pub(super) fn flush_table() -> Value {
    json!({ "flush": { "table": { "family": "inet", "name": TABLE } } })
}

/// The table with all that is in it.
pub(super) fn delete_table() -> Value {
    json!({ "delete": { "table": { "family": "inet", "name": TABLE } } })
}

pub(super) fn add_counter(name: &str) -> Value {
    json!({ "add": { "counter": { "family": "inet", "table": TABLE, "name": name } } })
}

pub(super) fn add_chain(name: &str) -> Value {
    json!({ "add": { "chain": { "family": "inet", "table": TABLE, "name": name } } })
}

/// A chain that packets come to by themselves.
pub(super) fn add_base_chain(name: &str, kind: &str, hook: &str, priority: i32) -> Value {
    json!({ "add": { "chain": {
        "family": "inet", "table": TABLE, "name": name, "type": kind, "hook": hook, "prio": priority, "policy": "accept",
    } } })
}

pub(super) fn flush_chain(name: &str) -> Value {
    json!({ "flush": { "chain": { "family": "inet", "table": TABLE, "name": name } } })
}

pub(super) fn rule(chain: &str, parts: Vec<Value>) -> Value {
    json!({ "add": { "rule": { "family": "inet", "table": TABLE, "chain": chain, "expr": parts } } })
}

pub(super) fn meta(key: &str) -> Value {
    json!({ "meta": { "key": key } })
}

pub(super) fn ct(key: &str) -> Value {
    json!({ "ct": { "key": key } })
}

pub(super) fn field(protocol: &str, field: &str) -> Value {
    json!({ "payload": { "protocol": protocol, "field": field } })
}

pub(super) fn and(left: Value, mask: u32) -> Value {
    json!({ "&": [left, mask] })
}

pub(super) fn is(left: Value, right: impl Into<Value>) -> Value {
    json!({ "match": { "op": "==", "left": left, "right": right.into() } })
}

pub(super) fn is_not(left: Value, right: impl Into<Value>) -> Value {
    json!({ "match": { "op": "!=", "left": left, "right": right.into() } })
}

pub(super) fn set(elements: Vec<Value>) -> Value {
    json!({ "set": elements })
}

pub(super) fn goto(chain: &str) -> Value {
    json!({ "goto": { "target": chain } })
}

pub(super) fn end() -> Value {
    json!({ "return": null })
}

/// Goes on where the key leads.
pub(super) fn lead(key: Value, ways: impl IntoIterator<Item = (Value, String)>) -> Value {
    let ways: Vec<Value> = ways.into_iter().map(|(value, chain)| json!([value, goto(&chain)])).collect();
    json!({ "vmap": { "key": key, "data": { "set": ways } } })
}

/// Sets the bits of `mask` in a mark to `bits`, and leaves the others.
pub(super) fn put(key: Value, mask: u32, bits: u32) -> Value {
    json!({ "mangle": { "key": key.clone(), "value": { "|": [{ "&": [key, !mask] }, bits] } } })
}

pub(super) fn count(counter: &str) -> Value {
    json!({ "counter": counter })
}

pub(super) fn prefix(prefix: Prefix) -> Value {
    json!({ "prefix": { "addr": prefix.address().to_string(), "len": prefix.len() } })
}

pub(super) fn prefixes(of: impl IntoIterator<Item = Prefix>) -> Value {
    set(of.into_iter().map(prefix).collect())
}

pub(super) fn ports(ports: Ports) -> Value {
    if ports.first == ports.last {
        return ports.first.into();
    }
    json!({ "range": [ports.first, ports.last] })
}

/// `ip` or `ip6`.
pub(super) fn protocol_of(prefix: Prefix) -> &'static str {
    if prefix.address().is_ipv4() { "ip" } else { "ip6" }
}
