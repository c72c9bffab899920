//! The fall-back without BPF: routes that name a congestion control (`ip route ... congctl NAME`). Read first: ip-route(8)
//! on `congctl`, `tcp_ca_openreq_child` in `net/ipv4/tcp_minisocks.c`.
//!
//! Each selected network gets a route in a table of our own, a copy of the route that its packets take anyway with the
//! name added. A rule before that of the main table points there. Undoing is deleting the rule and the table's routes.
//!
//! What it cannot do is in [`LIMITS`]; `doctor` prints them. What an admin set wins: a table or a rule's place that is
//! in use is refused, a network with an admin's own `congctl` or with several routes inside is left alone and named.
//!
//! The rule does not match one firewall mark, [`LOOKUP_MARK`], so that a look-up with this mark finds the route under
//! ours.

mod netlink;

use std::io;

use weirgate_tune::policy::Policy;
use weirgate_units::Prefix;

use crate::netns::Netns;

/// What routes cannot do and BPF can, for people to read before they choose.
pub const LIMITS: &[&str] = &[
    "only connections that begin after the change are affected, open ones keep what they have",
    "the chosen algorithm holds from the first byte to the last: small responses are not spared",
    "no client of a selected network is held out for comparison, so the effect cannot be proved",
    "a choice that the server made for its listener is overridden (one made after accept(2) wins)",
    "connections that this host opens to a selected network are affected too",
    "the configured default algorithm is not set: connections elsewhere start on the system's",
    "routes stay when the daemon is killed, until its unit's ExecStopPost or `weirgate undo` removes them",
];

/// The mark that leaves our rule aside. Packets of programs that use it themselves are not affected: "wgrc" in ASCII.
pub const LOOKUP_MARK: u32 = 0x7767_7263;

/// The protocol number by which our routes and rules are told from all others (`/etc/iproute2/rt_protos` has no 119).
pub const PROTOCOL: u8 = 119;

/// Where the routes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteCc {
    /// The routing table, for nothing else.
    pub table: u32,
    /// The rule's priority, for nothing else: after the admin's own rules, before the main table's 32,766.
    pub priority: u32,
}

impl Default for RouteCc {
    /// Table 30567 (0x7767, "wg"), rule 32,700.
    fn default() -> Self {
        Self { table: 30_567, priority: 32_700 }
    }
}

/// What applying a policy did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Networks whose route was made or changed.
    pub set: u32,
    /// Networks whose route was right.
    pub unchanged: u32,
    /// Routes removed: networks that are selected no longer, or cannot be any more.
    pub removed: u32,
    /// Networks of the policy that are not in force, each with the reason.
    pub skipped: Vec<(Prefix, Skipped)>,
}

/// Why a selected network has no route of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Skipped {
    /// Nothing leads there, or a route that sends nothing (blackhole, unreachable), or it is this host.
    #[error("no route leads there")]
    NoRoute,
    /// Parts of it are routed differently; one route for all would change where they go.
    #[error("{0} within it has a route of its own")]
    Split(Prefix),
    /// An admin's route names a congestion control.
    #[error("its route already names the congestion control {0}")]
    AdminChose(String),
    /// The kernel said no.
    #[error("the kernel refused the route (is the congestion control loaded?): {0}")]
    Refused(String),
}

/// Why nothing could be applied or undone.
#[derive(Debug, thiserror::Error)]
pub enum RouteCcError {
    /// The namespace could not be entered, or no netlink socket be had.
    #[error("cannot change routes: {0}; it takes CAP_NET_ADMIN, and CAP_SYS_ADMIN in other namespaces")]
    Open(#[source] io::Error),
    /// Somebody else keeps routes in the table.
    #[error("routing table {0} holds routes that Weirgate did not make: configure another table")]
    TableInUse(u32),
    /// Somebody else has a rule there.
    #[error("a rule of priority {0} exists that Weirgate did not make: configure another priority")]
    PriorityInUse(u32),
    /// A request that nothing works without was refused.
    #[error("the kernel refused to {what}: {source}")]
    Refused {
        /// What was asked.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl RouteCc {
    /// Makes the routes in `ns` those of `policy`: adds and changes first, then the rule, then removes what is over. An
    /// empty policy removes all, the rule too.
    ///
    /// The caller journals table, rule and namespace before. Blocks for about 30 us per network; not for async threads.
    ///
    /// # Errors
    /// [`RouteCcError`]; what was in force stays in force, but for networks that were already changed.
    pub fn apply(&self, policy: &Policy, ns: &Netns) -> Result<Applied, RouteCcError> {
        let Self { table, priority } = *self;
        netlink::run(ns, async move |kernel| kernel.apply(table, priority, &policy.networks).await)
    }
}

/// Removes from `ns` the rules of `priority` that are ours, and our routes in `table`. Returns how many of both there
/// were: 0 is nothing to undo. Needs no [`RouteCc`], so that it works from a journal.
///
/// # Errors
/// [`RouteCcError`].
pub fn undo(ns: &Netns, table: u32, priority: u32) -> Result<u32, RouteCcError> {
    netlink::run(ns, async move |kernel| kernel.undo(table, priority).await)
}
