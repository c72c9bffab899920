//! Ways out of this host, one for each uplink: what there is (`site`), and routing tables and rules of our own that lead there by firewall
//! mark. Read first: ip-rule(8), ip-route(8), `net/core/fib_rules.c`.
//!
//! Ground rules:
//!
//! - A packet whose mark names no uplink passes our rules untouched.
//! - One whose mark does goes by the main table where that knows more than a default route (`suppress_prefixlength 0`), and by its uplink's
//!   table otherwise, which holds a default route and nothing else.
//! - After the default table comes one of ours with a default route by each uplink: a host whose own default route has gone, with the link
//!   that it led to, goes on by another one. What has no route at all is never seen by the rules that could steer it.
//! - Ours are told from others by their protocol number ([`PROTOCOL`]); what others keep in the same places is refused and stays.

mod netlink;
mod site;

use std::io;
use std::net::IpAddr;

pub use self::site::{Device, Flags, devices, flags};
use crate::netns::Netns;
use crate::route_cc::PROTOCOL;

/// Tables and priorities that belong to one [`Ways`], from its first on.
pub const SPAN: u32 = 64;

/// Of the rule that leads to all uplinks: after those of the main and the default table (32,766 and 32,767).
pub const LAST_PRIORITY: u32 = 32_800;

/// Where our tables and rules are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    /// The table with a route by each uplink; those of the uplinks follow it.
    pub table: u32,
    /// The priority of the rule that leads to what the main table knows; those of the uplinks' rules follow it.
    pub priority: u32,
    /// Bits of a firewall mark that name an uplink.
    pub mask: u32,
}

/// The way by an uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Its place among the uplinks, which says its table and priority.
    pub place: u32,
    /// The bits of a mark that name it.
    pub mark: u32,
    /// Its device.
    pub interface: u32,
    /// Whether it is IPv4's.
    pub is_v4: bool,
    /// Who forwards what leaves by it; `None`: whoever is at the device's other end.
    pub gateway: Option<IpAddr>,
}

/// Why nothing could be changed.
#[derive(Debug, thiserror::Error)]
pub enum WaysError {
    /// No netlink socket, or the namespace could not be entered.
    #[error("cannot change routes: {0}; it takes CAP_NET_ADMIN")]
    Open(#[source] io::Error),
    /// Somebody else keeps routes there.
    #[error("routing table {0} holds routes that Weirgate did not make: write another `table` into [steering]")]
    TableInUse(u32),
    /// Somebody else has a rule there.
    #[error("a rule of priority {0} exists that Weirgate did not make: write another `priority` into [steering]")]
    PriorityInUse(u32),
    /// A request was refused.
    #[error("the kernel refused to {what}: {source}")]
    Refused {
        /// What was asked.
        what: String,
        /// What it said.
        source: io::Error,
    },
}

impl Ways {
    /// Makes these, and no others, the ways out, in the calling thread's namespace. Routes and rules that are right stay as they are.
    /// Blocks for a millisecond or so; not for async threads.
    ///
    /// # Errors
    /// [`WaysError`]; what was in force may be changed in part, and [`undo`] removes it.
    pub fn apply(&self, ways: &[Way]) -> Result<(), WaysError> {
        netlink::run(async |kernel| kernel.apply(self, ways).await)
    }
}

/// Removes our rules and routes from `ns` that belong to tables and priorities from these on. Returns how many there were. Needs nothing
/// else, so that it works from a journal.
///
/// # Errors
/// [`WaysError`].
pub fn undo(ns: &Netns, table: u32, priority: u32) -> Result<u32, WaysError> {
    let remove = || netlink::run(async |kernel| kernel.undo(table, priority).await);
    ns.within(remove).map_err(WaysError::Open)?
}
