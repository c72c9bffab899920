//! The requests behind [`super::RouteCc`]. Read first: rtnetlink(7), `include/uapi/linux/fib_rules.h`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;

use futures::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteProtocol, RouteType,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use rtnetlink::{Handle, IpVersion, new_connection};
use weirgate_sockets::sample::CcName;
use weirgate_units::Prefix;

use super::{Applied, LOOKUP_MARK, PROTOCOL, RouteCcError, Skipped};
use crate::netns::Netns;

/// `RT_TABLE_LOCAL`: this host's own addresses. Its rule comes first of all, so that ours never hides them.
const TABLE_LOCAL: u32 = 255;

/// Runs `work` with a connection to the kernel's routing in `ns`, on a thread of its own: the caller's may already run
/// asynchronous work, and must not change its namespace meanwhile.
pub(super) fn run<T: Send>(
    ns: &Netns,
    work: impl AsyncFnOnce(Kernel) -> Result<T, RouteCcError> + Send,
) -> Result<T, RouteCcError> {
    let in_namespace = || -> Result<T, RouteCcError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(RouteCcError::Open)?;
        runtime.block_on(async {
            let (connection, handle, _) = new_connection().map_err(RouteCcError::Open)?;
            let driver = tokio::spawn(connection);
            let result = work(Kernel(handle)).await;
            driver.abort();
            result
        })
    };
    thread::scope(|scope| {
        let worker = scope.spawn(|| ns.within(in_namespace).map_err(RouteCcError::Open)?);
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The kernel's routing, in one namespace.
pub(super) struct Kernel(Handle);

#[derive(Default)]
struct Routes {
    /// Address and length of every network that has a route in another table than ours and the local one.
    others: BTreeSet<(IpAddr, u8)>,
    /// What stands in our table.
    ours: BTreeMap<Prefix, RouteMessage>,
}

impl Kernel {
    pub(super) async fn apply(
        &self,
        table: u32,
        priority: u32,
        networks: &[(Prefix, CcName)],
    ) -> Result<Applied, RouteCcError> {
        let has_rule = [
            self.has_rule(IpVersion::V4, table, priority).await?,
            self.has_rule(IpVersion::V6, table, priority).await?,
        ];
        let mut routes = self.routes(table).await?;
        let mut applied = Applied::default();
        for &(prefix, cc) in networks {
            let wanted = match self.wanted(prefix, cc, table, &routes).await {
                Ok(wanted) => wanted,
                Err(why) => {
                    applied.skipped.push((prefix, why));
                    continue;
                }
            };
            if routes.ours.get(&prefix).is_some_and(|known| same(known, &wanted)) {
                routes.ours.remove(&prefix);
                applied.unchanged += 1;
                continue;
            }
            match self.0.route().add(wanted).replace().execute().await {
                Ok(()) => {
                    routes.ours.remove(&prefix);
                    applied.set += 1;
                }
                Err(e) => applied.skipped.push((prefix, Skipped::Refused(io_error(e).to_string()))),
            }
        }
        let in_force = applied.set + applied.unchanged > 0;
        for (version, has_rule) in [IpVersion::V4, IpVersion::V6].into_iter().zip(has_rule) {
            match (in_force, has_rule) {
                (true, false) => self.add_rule(version, table, priority).await?,
                (false, true) => {
                    self.remove_rules(version, table, priority).await?;
                }
                _ => {}
            }
        }
        for route in routes.ours.into_values() {
            self.remove(route).await?;
            applied.removed += 1;
        }
        Ok(applied)
    }

    pub(super) async fn undo(&self, table: u32, priority: u32) -> Result<u32, RouteCcError> {
        let mut removed = 0;
        for version in [IpVersion::V4, IpVersion::V6] {
            removed += self.remove_rules(version, table, priority).await?;
        }
        for route in self.dump().await? {
            if table_of(&route) == table && is_ours(&route) {
                self.remove(route).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// The route that `prefix` is to have.
    async fn wanted(&self, prefix: Prefix, cc: CcName, table: u32, routes: &Routes) -> Result<RouteMessage, Skipped> {
        // The first route inside the network, if any: in the order of addresses it follows the network itself.
        let inside = routes.others.range((prefix.address(), prefix.len() + 1)..).next();
        if let Some(&(address, len)) = inside.filter(|(address, _)| prefix.contains(*address)) {
            return Err(Skipped::Split(Prefix::of(address, len)));
        }
        let found = self.look_up(prefix).await.ok_or(Skipped::NoRoute)?;
        if found.header.kind != RouteType::Unicast {
            return Err(Skipped::NoRoute);
        }
        let mut route = RouteMessage::default();
        route.header.address_family = found.header.address_family;
        route.header.destination_prefix_length = prefix.len();
        route.header.protocol = RouteProtocol::Other(PROTOCOL);
        route.header.scope = found.header.scope;
        route.header.kind = RouteType::Unicast;
        route.header.flags = found.header.flags & RouteFlags::Onlink;
        route.attributes.push(RouteAttribute::Table(table));
        route.attributes.push(RouteAttribute::Destination(prefix.address().into()));
        let by_object = found.attributes.iter().any(|a| matches!(a, RouteAttribute::NhId(_)));
        let mut metrics = Vec::new();
        for attribute in found.attributes {
            match attribute {
                RouteAttribute::Metrics(found) => metrics = found,
                RouteAttribute::NhId(_) | RouteAttribute::PrefSource(_) | RouteAttribute::Realm(_) => {
                    route.attributes.push(attribute);
                }
                // A next-hop object says all this itself.
                RouteAttribute::Gateway(_)
                | RouteAttribute::Via(_)
                | RouteAttribute::Oif(_)
                | RouteAttribute::MultiPath(_)
                | RouteAttribute::EncapType(_)
                | RouteAttribute::Encap(_)
                | RouteAttribute::Preference(_)
                    if !by_object =>
                {
                    route.attributes.push(attribute);
                }
                _ => {}
            }
        }
        if let Some(RouteMetric::CcAlgo(name)) = metrics.iter().find(|m| matches!(m, RouteMetric::CcAlgo(_))) {
            return Err(Skipped::AdminChose(name.clone()));
        }
        metrics.push(RouteMetric::CcAlgo(cc.as_str().to_owned()));
        route.attributes.push(RouteAttribute::Metrics(metrics));
        Ok(route)
    }

    /// The route, as it stands in its table, that packets to `prefix` take without ours.
    async fn look_up(&self, prefix: Prefix) -> Option<RouteMessage> {
        // Not the first address, which in a network on the link is its broadcast address of old.
        let address = match prefix.address() {
            IpAddr::V4(a) if prefix.len() < 31 => Ipv4Addr::from_bits(a.to_bits() | 1).into(),
            IpAddr::V6(a) if prefix.len() < 127 => Ipv6Addr::from_bits(a.to_bits() | 1).into(),
            address => address,
        };
        let mut request = RouteMessage::default();
        request.header.address_family = family(address);
        request.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        request.header.flags = RouteFlags::FibMatch;
        request.attributes = vec![RouteAttribute::Destination(address.into()), RouteAttribute::Mark(LOOKUP_MARK)];
        self.0.route().get(request).execute().try_next().await.ok()?
    }

    async fn routes(&self, table: u32) -> Result<Routes, RouteCcError> {
        let mut routes = Routes::default();
        for route in self.dump().await? {
            let (table_found, prefix) = (table_of(&route), prefix_of(&route));
            if table_found == table {
                if !is_ours(&route) {
                    return Err(RouteCcError::TableInUse(table));
                }
                if let Some(prefix) = prefix {
                    routes.ours.insert(prefix, route);
                }
            } else if let (Some(prefix), true) = (prefix, table_found != TABLE_LOCAL) {
                routes.others.insert((prefix.address(), prefix.len()));
            }
        }
        Ok(routes)
    }

    /// Every route of both families; of one that the kernel was built without, none.
    async fn dump(&self) -> Result<Vec<RouteMessage>, RouteCcError> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            let mut dump = self.0.route().get(request).execute();
            while let Some(route) = dump.try_next().await.map_err(refused("list its routes"))? {
                routes.push(route);
            }
        }
        Ok(routes)
    }

    async fn remove(&self, route: RouteMessage) -> Result<(), RouteCcError> {
        match self.0.route().del(route).execute().await.map_err(io_error) {
            Err(e) if !is_gone(&e) => Err(RouteCcError::Refused { what: "remove a route", source: e }),
            _ => Ok(()),
        }
    }

    /// Whether our rule is there.
    async fn has_rule(&self, version: IpVersion, table: u32, priority: u32) -> Result<bool, RouteCcError> {
        let rules = self.rules(version, priority).await?;
        if rules.iter().any(|rule| !is_our_rule(rule, table)) {
            return Err(RouteCcError::PriorityInUse(priority));
        }
        Ok(!rules.is_empty())
    }

    /// The rules of this priority.
    async fn rules(&self, version: IpVersion, priority: u32) -> Result<Vec<RuleMessage>, RouteCcError> {
        let mut dump = self.0.rule().get(version).execute();
        let mut rules = Vec::new();
        while let Some(rule) = dump.try_next().await.map_err(refused("list its rules"))? {
            if rule.attributes.contains(&RuleAttribute::Priority(priority)) {
                rules.push(rule);
            }
        }
        Ok(rules)
    }

    async fn add_rule(&self, version: IpVersion, table: u32, priority: u32) -> Result<(), RouteCcError> {
        let mut request = self.0.rule().add();
        let rule = request.message_mut();
        rule.header.family = match version {
            IpVersion::V4 => AddressFamily::Inet,
            IpVersion::V6 => AddressFamily::Inet6,
        };
        rule.header.table = 0;
        rule.header.action = RuleAction::ToTable;
        rule.header.flags = RuleFlags::Invert;
        rule.attributes = vec![
            RuleAttribute::Table(table),
            RuleAttribute::Priority(priority),
            RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)),
            RuleAttribute::FwMark(LOOKUP_MARK),
        ];
        request.execute().await.map_err(refused("add a rule"))
    }

    async fn remove_rules(&self, version: IpVersion, table: u32, priority: u32) -> Result<u32, RouteCcError> {
        let mut removed = 0;
        for rule in self.rules(version, priority).await? {
            if is_our_rule(&rule, table) {
                match self.0.rule().del(rule).execute().await.map_err(io_error) {
                    Err(e) if !is_gone(&e) => {
                        return Err(RouteCcError::Refused { what: "remove a rule", source: e });
                    }
                    _ => removed += 1,
                }
            }
        }
        Ok(removed)
    }
}

const fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn table_of(route: &RouteMessage) -> u32 {
    let long = route.attributes.iter().find_map(|a| if let RouteAttribute::Table(t) = a { Some(*t) } else { None });
    long.unwrap_or_else(|| route.header.table.into())
}

fn prefix_of(route: &RouteMessage) -> Option<Prefix> {
    let address = route.attributes.iter().find_map(|a| match a {
        RouteAttribute::Destination(RouteAddress::Inet(a)) => Some(IpAddr::from(*a)),
        RouteAttribute::Destination(RouteAddress::Inet6(a)) => Some(IpAddr::from(*a)),
        _ => None,
    });
    address.map(|address| Prefix::of(address, route.header.destination_prefix_length))
}

fn is_ours(route: &RouteMessage) -> bool {
    u8::from(route.header.protocol) == PROTOCOL
}

fn is_our_rule(rule: &RuleMessage, table: u32) -> bool {
    let protocol = |a: &RuleAttribute| matches!(a, RuleAttribute::Protocol(p) if u8::from(*p) == PROTOCOL);
    rule.attributes.contains(&RuleAttribute::Table(table)) && rule.attributes.iter().any(protocol)
}

/// Whether the kernel's route is the one wanted: it says the same in its own order, and more (priority, cache).
fn same(known: &RouteMessage, wanted: &RouteMessage) -> bool {
    let says = |attribute: &RouteAttribute| {
        match attribute {
        RouteAttribute::Metrics(wanted) => known.attributes.iter().any(|a| {
            matches!(a, RouteAttribute::Metrics(m) if m.len() == wanted.len() && wanted.iter().all(|w| m.contains(w)))
        }),
        attribute => known.attributes.contains(attribute),
    }
    };
    wanted.attributes.iter().all(says)
}

fn io_error(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other.to_string()),
    }
}

fn refused(what: &'static str) -> impl Fn(rtnetlink::Error) -> RouteCcError {
    move |error| RouteCcError::Refused { what, source: io_error(error) }
}

/// Whether what was to be removed is not there: somebody was faster.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT))
}
