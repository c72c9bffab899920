//! The requests behind [`super::Ways`]. Read first: rtnetlink(7), `include/uapi/linux/fib_rules.h`.

use std::io;
use std::net::IpAddr;
use std::thread;

use futures::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use rtnetlink::{Handle, IpVersion, new_connection};

use super::{LAST_PRIORITY, PROTOCOL, SPAN, Way, Ways, WaysError};

/// `RT_TABLE_MAIN`.
const TABLE_MAIN: u32 = 254;

/// Runs `work` with a connection to the kernel's routing in the calling thread's namespace, on a thread of its own, which is in the same
/// one: the caller's may already run asynchronous work.
pub(super) fn run<T: Send>(work: impl AsyncFnOnce(Kernel) -> Result<T, WaysError> + Send) -> Result<T, WaysError> {
    let with_runtime = || -> Result<T, WaysError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(WaysError::Open)?;
        runtime.block_on(async {
            let (connection, handle, _) = new_connection().map_err(WaysError::Open)?;
            let driver = tokio::spawn(connection);
            let result = work(Kernel(handle)).await;
            driver.abort();
            result
        })
    };
    thread::scope(|scope| {
        let worker = scope.spawn(with_runtime);
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The kernel's routing.
pub(super) struct Kernel(pub(super) Handle);

impl Kernel {
    pub(super) async fn apply(&self, at: &Ways, ways: &[Way]) -> Result<(), WaysError> {
        let mut routes = self.routes(at.table).await?;
        for wanted in wanted_routes(at, ways) {
            if let Some(place) = routes.iter().position(|known| same_route(known, &wanted)) {
                routes.swap_remove(place);
                continue;
            }
            let add = self.0.route().add(wanted).replace().execute().await;
            add.map_err(refused(|| "add a route".to_owned()))?;
        }
        for version in [IpVersion::V4, IpVersion::V6] {
            let is_v4 = version == IpVersion::V4;
            let mut rules = self.rules(version.clone(), at.priority).await?;
            for wanted in wanted_rules(at, ways, is_v4) {
                if let Some(place) = rules.iter().position(|known| same_rule(known, &wanted)) {
                    rules.swap_remove(place);
                    continue;
                }
                let mut request = self.0.rule().add();
                *request.message_mut() = wanted;
                request.execute().await.map_err(refused(|| "add a rule".to_owned()))?;
            }
            for rule in rules {
                self.remove_rule(rule).await?;
            }
        }
        // What they led to goes after them. A route that was replaced is gone already.
        for route in routes {
            self.remove_route(route).await?;
        }
        Ok(())
    }

    pub(super) async fn undo(&self, table: u32, priority: u32) -> Result<u32, WaysError> {
        let mut removed = 0;
        for version in [IpVersion::V4, IpVersion::V6] {
            for rule in self.all_rules(version).await? {
                if is_in(priority_of(&rule), priority) && is_our_rule(&rule) {
                    self.remove_rule(rule).await?;
                    removed += 1;
                }
            }
        }
        for route in self.all_routes().await? {
            if is_within(table_of(&route), table) && is_our_route(&route) {
                self.remove_route(route).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Our routes; an error where there are others in our tables.
    async fn routes(&self, table: u32) -> Result<Vec<RouteMessage>, WaysError> {
        let mut ours = Vec::new();
        for route in self.all_routes().await? {
            let found = table_of(&route);
            match (is_within(found, table), is_our_route(&route)) {
                (true, true) => ours.push(route),
                (true, false) => return Err(WaysError::TableInUse(found)),
                (false, _) => {}
            }
        }
        Ok(ours)
    }

    /// Our rules; an error where there are others in our places.
    async fn rules(&self, version: IpVersion, priority: u32) -> Result<Vec<RuleMessage>, WaysError> {
        let mut ours = Vec::new();
        for rule in self.all_rules(version).await? {
            let found = priority_of(&rule);
            match (is_in(found, priority), is_our_rule(&rule)) {
                (true, true) => ours.push(rule),
                (true, false) => return Err(WaysError::PriorityInUse(found)),
                (false, _) => {}
            }
        }
        Ok(ours)
    }

    /// Those of tables that are not the main or the local one.
    async fn all_routes(&self) -> Result<Vec<RouteMessage>, WaysError> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            let mut dump = self.0.route().get(request).execute();
            while let Some(route) = dump.try_next().await.map_err(refused(|| "list its routes".to_owned()))? {
                if table_of(&route) > 255 {
                    routes.push(route);
                }
            }
        }
        Ok(routes)
    }

    async fn all_rules(&self, version: IpVersion) -> Result<Vec<RuleMessage>, WaysError> {
        let dump = self.0.rule().get(version).execute();
        dump.try_collect().await.map_err(refused(|| "list its rules".to_owned()))
    }

    async fn remove_route(&self, route: RouteMessage) -> Result<(), WaysError> {
        match self.0.route().del(route).execute().await.map_err(io_error) {
            Err(source) if !is_gone(&source) => Err(WaysError::Refused { what: "remove a route".to_owned(), source }),
            _ => Ok(()),
        }
    }

    async fn remove_rule(&self, rule: RuleMessage) -> Result<(), WaysError> {
        match self.0.rule().del(rule).execute().await.map_err(io_error) {
            Err(source) if !is_gone(&source) => Err(WaysError::Refused { what: "remove a rule".to_owned(), source }),
            _ => Ok(()),
        }
    }
}

/// A default route by each uplink, in a table of its own and in the one of all, where the first ones are preferred.
fn wanted_routes(at: &Ways, ways: &[Way]) -> Vec<RouteMessage> {
    let both = |way: &Way| [route(way, at.table + 1 + way.place, 0), route(way, at.table, 1 + way.place)];
    ways.iter().flat_map(both).collect()
}

fn route(way: &Way, table: u32, metric: u32) -> RouteMessage {
    let mut route = RouteMessage::default();
    route.header.address_family = family(way.is_v4);
    route.header.protocol = RouteProtocol::Other(PROTOCOL);
    route.header.kind = RouteType::Unicast;
    route.header.scope = if way.gateway.is_none() && way.is_v4 { RouteScope::Link } else { RouteScope::Universe };
    route.attributes = vec![RouteAttribute::Table(table), RouteAttribute::Oif(way.interface)];
    if let Some(gateway) = way.gateway {
        // Two uplinks may have the same network, in which the gateway would be looked for on the wrong one.
        route.header.flags = RouteFlags::Onlink;
        let address = match gateway {
            IpAddr::V4(address) => RouteAddress::Inet(address),
            IpAddr::V6(address) => RouteAddress::Inet6(address),
        };
        route.attributes.push(RouteAttribute::Gateway(address));
    }
    // IPv6 has no metric 0: it would be 1,024.
    route.attributes.push(RouteAttribute::Priority(metric + u32::from(!way.is_v4)));
    route
}

fn wanted_rules(at: &Ways, ways: &[Way], is_v4: bool) -> Vec<RuleMessage> {
    if !ways.iter().any(|way| way.is_v4 == is_v4) {
        return Vec::new();
    }
    let mark = |bits: u32| vec![RuleAttribute::FwMark(bits), RuleAttribute::FwMask(at.mask)];
    let mut main = rule(is_v4, at.priority, TABLE_MAIN, mark(0));
    main.header.flags = RuleFlags::Invert;
    main.attributes.push(RuleAttribute::SuppressPrefixLen(0));
    let own = ways.iter().filter(|way| way.is_v4 == is_v4);
    let own = own.map(|way| rule(is_v4, at.priority + 1 + way.place, at.table + 1 + way.place, mark(way.mark)));
    let last = rule(is_v4, LAST_PRIORITY, at.table, Vec::new());
    std::iter::once(main).chain(own).chain([last]).collect()
}

fn rule(is_v4: bool, priority: u32, table: u32, more: Vec<RuleAttribute>) -> RuleMessage {
    let mut rule = RuleMessage::default();
    rule.header.family = family(is_v4);
    rule.header.action = RuleAction::ToTable;
    let always = [
        RuleAttribute::Table(table),
        RuleAttribute::Priority(priority),
        RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)),
    ];
    rule.attributes = always.into_iter().chain(more).collect();
    rule
}

const fn family(is_v4: bool) -> AddressFamily {
    if is_v4 { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// Whether a table is one of those from `first` on.
const fn is_within(found: u32, first: u32) -> bool {
    found >= first && found - first < SPAN
}

/// Whether a priority is one of ours.
const fn is_in(found: u32, first: u32) -> bool {
    found == LAST_PRIORITY || is_within(found, first)
}

fn table_of(route: &RouteMessage) -> u32 {
    let long = route.attributes.iter().find_map(|a| if let RouteAttribute::Table(t) = a { Some(*t) } else { None });
    long.unwrap_or_else(|| route.header.table.into())
}

fn priority_of(rule: &RuleMessage) -> u32 {
    let priority = |a: &RuleAttribute| if let RuleAttribute::Priority(p) = a { Some(*p) } else { None };
    rule.attributes.iter().find_map(priority).unwrap_or(0)
}

fn is_our_route(route: &RouteMessage) -> bool {
    u8::from(route.header.protocol) == PROTOCOL
}

fn is_our_rule(rule: &RuleMessage) -> bool {
    rule.attributes.iter().any(|a| matches!(a, RuleAttribute::Protocol(p) if u8::from(*p) == PROTOCOL))
}

/// Whether the kernel's is the one wanted: it says the same in its own order, and more. A metric of 0 it does not say.
fn same_route(known: &RouteMessage, wanted: &RouteMessage) -> bool {
    let says = |attribute: &RouteAttribute| {
        known.attributes.contains(attribute) || matches!(attribute, RouteAttribute::Priority(0))
    };
    let has_gateway = |route: &RouteMessage| route.attributes.iter().any(|a| matches!(a, RouteAttribute::Gateway(_)));
    known.header.address_family == wanted.header.address_family
        && has_gateway(known) == has_gateway(wanted)
        && wanted.attributes.iter().all(says)
}

fn same_rule(known: &RuleMessage, wanted: &RuleMessage) -> bool {
    // A mark of 0 is not said.
    let says = |attribute: &RuleAttribute| {
        known.attributes.contains(attribute) || matches!(attribute, RuleAttribute::FwMark(0))
    };
    known.header.flags.contains(RuleFlags::Invert) == wanted.header.flags.contains(RuleFlags::Invert)
        && wanted.attributes.iter().all(says)
}

pub(super) fn io_error(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other.to_string()),
    }
}

pub(super) fn refused(what: impl Fn() -> String) -> impl Fn(rtnetlink::Error) -> WaysError {
    move |error| WaysError::Refused { what: what(), source: io_error(error) }
}

/// Whether what was to be removed is not there: somebody was faster.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT | libc::ENODEV))
}
