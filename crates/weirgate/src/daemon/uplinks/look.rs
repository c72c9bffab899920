//! What the thread looks at: links, counters, addresses and gateways, flows, the host's own connections.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use weirgate_linux::poll::Filter;
use weirgate_linux::ways::{Device, Way, devices, flags};
use weirgate_sockets::sample::{Field, Sample, flag, state};
use weirgate_units::{BitRate, Duration, Instant, Prefix};

use super::driver::{Driver, FLOWS, FLOWS_SHARE, SITE, SOCKETS};
use super::now;
use crate::config::uplinks::Gateway;
use crate::journal::{Actor, Change, Object, sysctl};
use crate::uplink::fleet::{Counted, Site};
use crate::uplink::measure::Sockets;
use crate::uplink::ruleset::TABLE;
use crate::uplink::{Family, Kind, Place, Transport};

/// What a host's own connections say is summed up of so many at most.
const SOCKETS_MAX: usize = 200_000;

/// ICMP of either family: questions, and no flows that anybody waits for.
const ICMP: [u8; 2] = [1, 58];

impl Driver {
    /// Links and counters.
    pub(super) fn look(&mut self, at: Instant) {
        for place in 0..self.config.uplinks.len() {
            let seen = flags(&self.flags_by, &self.config.uplinks[place].device);
            let known = self.devices[place].as_ref().map(|device| (device.interface, device.is_up));
            if seen.map(|flags| (flags.interface, flags.is_up)) != known {
                self.next_site = at;
            }
        }
        let len = self.config.uplinks.len();
        let mut counted = vec![[None::<Counted>; 2]; len];
        let read = self.tables.counters(TABLE, &mut |name, packets, bytes| {
            let Some((way, number)) = name.split_once('_') else { return };
            let place = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            if let Some(counted) = place.and_then(|place| counted.get_mut(place)) {
                counted[usize::from(way == "from")] = Some(Counted { packets, bytes });
            }
        });
        let mut is_whole = read.is_ok();
        for (place, counted) in counted.into_iter().enumerate() {
            match counted {
                [Some(sent), Some(received)] => self.fleet.handle_counters(at, place, [sent, received]),
                _ => is_whole = false,
            }
        }
        if !is_whole && self.rules_at.is_none() {
            // An admin who loads rules anew flushes everybody's.
            tracing::warn!("uplinks: table {TABLE} is gone, or not whole: it is made again");
            self.rules_at = Some(at);
        }
    }

    /// Devices, addresses and gateways; routes, rules and settings follow them.
    pub(super) fn look_at_sites(&mut self, at: Instant) -> anyhow::Result<()> {
        self.next_site = at + SITE;
        let mut asked = Vec::new();
        for uplink in &self.config.uplinks {
            // How the first target of each family is reached by it says who forwards what leaves by it.
            let first = |is_v4: bool| uplink.targets.iter().map(|t| t.address).find(|a| a.is_ipv4() == is_v4);
            let reached: Vec<IpAddr> = [first(true), first(false)].into_iter().flatten().collect();
            asked.push((uplink.device.as_str(), reached));
        }
        let found = devices(&asked)?;
        let reached: Vec<Vec<IpAddr>> = asked.into_iter().map(|(_, reached)| reached).collect();
        let marks = self.fleet.settings().marks;
        let mut ways = Vec::new();
        let mut sites = Vec::new();
        for (place, device) in found.iter().enumerate() {
            let uplink = &self.config.uplinks[place];
            let Some(device) = device.as_ref() else {
                let trouble = Some(format!("there is no device `{}`", uplink.device));
                sites.push(Site { trouble, targets: 1, ..Site::default() });
                continue;
            };
            let own =
                Family::ALL.map(|family| gateway(uplink.gateways[family as usize], device, &reached[place], family));
            for (family, gateway) in Family::ALL.into_iter().zip(own) {
                if let Some(gateway) = gateway {
                    let (mark, interface) = (marks.of(place), device.interface);
                    let is_v4 = family == Family::V4;
                    ways.push(Way { place: place as u32, mark, interface, is_v4, gateway });
                }
            }
            let families = own.map(|gateway| gateway.is_some());
            let can_be_asked = |address: IpAddr| families[Family::of(address) as usize];
            let targets = uplink.targets.iter().copied().filter(|target| can_be_asked(target.address));
            self.targets[place] = targets.collect();
            let trouble = if !device.is_up {
                Some(format!("`{}` is down, or nothing is connected to it", uplink.device))
            } else if families == [false; 2] {
                let name = &uplink.device;
                Some(format!(
                    "there is no way by `{name}`: it has no address, or no default route names it: write its `gateway`"
                ))
            } else if self.targets[place].is_empty() {
                Some("none of its `targets` is of a family that goes by it".to_owned())
            } else {
                None
            };
            let gateways = own.iter().flatten().flatten().map(|gateway| Prefix::of(*gateway, 128));
            let mut near: Vec<Prefix> = device.networks.iter().copied().chain(gateways).collect();
            near.sort_unstable();
            near.dedup();
            sites.push(Site {
                families: if device.is_up { families } else { [false; 2] },
                addresses: device.addresses.clone(),
                near,
                targets: self.targets[place].len().max(1),
                trouble,
            });
        }
        // A route by a device that is down is refused, and no use.
        ways.retain(|way| found[way.place as usize].as_ref().is_some_and(|device| device.is_up));
        self.devices = found;
        self.loosen()?;
        if ways != self.ways_in_force {
            self.ways.apply(&ways)?;
            self.ways_in_force = ways;
        }
        for (place, site) in sites.into_iter().enumerate() {
            self.fleet.handle_site(at, place, site);
        }
        Ok(())
    }

    /// Flows of each uplink; and now and then, what the host's own connections say.
    pub(super) fn look_at_flows(&mut self, at: Instant) {
        let marks = self.fleet.settings().marks;
        let len = self.config.uplinks.len();
        let mut own = (at >= self.next_sockets).then(|| self.own_sockets());
        let mut summed = vec![Sockets::default(); len];
        let mut flows = vec![[0_u32; 4]; len];
        let read = self.conntrack.flows(None, &mut |flow| {
            let Some((place, false)) = marks.read(flow.mark) else { return };
            let Some(flows) = flows.get_mut(place).filter(|_| !ICMP.contains(&flow.protocol)) else { return };
            let family = Family::of(flow.original.source.ip());
            let transport = if flow.is_tcp() { Transport::Tcp } else { Transport::Other };
            if flow.is_open_tcp() || !flow.is_tcp() {
                flows[Kind { family, transport }.index()] += 1;
            }
            let Some(own) = own.as_mut().filter(|_| flow.is_tcp()) else { return };
            let ends = [flow.original, flow.reply].map(|tuple| (tuple.source, tuple.destination));
            if let Some(one) = ends.iter().find_map(|ends| own.remove(ends)) {
                add(&mut summed[place], &one);
            }
        });
        match read {
            Ok(()) => self.fleet.handle_flows(at, &flows),
            Err(error) => self.note(Some(format!("flows cannot be counted: {error}"))),
        }
        if own.is_some() {
            self.next_sockets = at + SOCKETS;
            for (place, sockets) in summed.into_iter().enumerate() {
                self.fleet.handle_sockets(at, place, sockets);
            }
        }
        let took = now().saturating_since(at);
        self.next_flows = at + FLOWS.max(took.saturating_mul(FLOWS_SHARE));
    }

    /// The host's established connections, by their ends.
    fn own_sockets(&mut self) -> HashMap<(SocketAddr, SocketAddr), Sample> {
        let filter = Filter { states: 1 << state::ESTABLISHED | 1 << state::CLOSE_WAIT, ..Filter::default() };
        let mut all = HashMap::new();
        let polled = self.sockets.poll(&self.ns, &filter, &mut |sample| {
            if all.len() < SOCKETS_MAX && sample.has(Field::TcpInfo) {
                all.insert((sample.local(), sample.remote()), *sample);
            }
        });
        if let Err(error) = polled {
            tracing::debug!("uplinks: the host's own connections: {error}");
        }
        all
    }

    /// What comes by an uplink that the main table would not answer by is dropped where the reverse path has to be exact: there it is made
    /// loose, and written down before.
    fn loosen(&mut self) -> anyhow::Result<()> {
        for place in 0..self.devices.len() {
            let Some(interface) = self.devices[place].as_ref().map(|device| device.interface) else { continue };
            let name = self.config.uplinks[place].device.clone();
            if !self.loosened.insert((name.clone(), interface)) {
                continue;
            }
            let key = format!("net/ipv4/conf/{name}/rp_filter");
            let exact = |key: &str| sysctl(key).is_some_and(|value| value == "1");
            let Some(before) = sysctl(&key) else { continue };
            if before == "2" || !(exact(&key) || exact("net/ipv4/conf/all/rp_filter")) {
                continue;
            }
            let object = Object::Sysctl { namespace: self.namespace.clone(), key: key.clone() };
            let change = Change { object, before: Some(before), after: Some("2".to_owned()) };
            self.journal.record(&Actor::own("uplinks"), change)?;
            std::fs::write(Path::new("/proc/sys").join(&key), "2")?;
            tracing::info!("uplink `{}`: {key} is 2: what comes by it may be answered by it", self.name(place));
        }
        Ok(())
    }

    /// The gateway by which an uplink is left, for those who ask.
    pub(super) fn gateways(&self, place: Place) -> Vec<String> {
        let its = self.ways_in_force.iter().filter(|way| way.place as usize == place);
        its.map(|way| way.gateway.map_or_else(|| "the other end".to_owned(), |gateway| gateway.to_string())).collect()
    }
}

/// Who forwards what leaves by a device; `None`: nothing of this family goes by it.
fn gateway(configured: Gateway, device: &Device, reached: &[IpAddr], family: Family) -> Option<Option<IpAddr>> {
    if !device.addresses.iter().any(|address| Family::of(*address) == family) {
        return None;
    }
    match configured {
        Gateway::None => None,
        Gateway::At(gateway) => Some(Some(gateway)),
        Gateway::Auto => {
            let at = reached.iter().position(|address| Family::of(*address) == family);
            let found = at.and_then(|at| device.ways.get(at).copied().flatten());
            found.or(device.is_point_to_point.then_some(None))
        }
    }
}

fn add(to: &mut Sockets, one: &Sample) {
    let rtt = Some(one.min_rtt_us).filter(|rtt| one.has(Field::MinRttUs) && (1..10_000_000).contains(rtt));
    let rtt = rtt.map(|rtt| Duration::from_micros(rtt.into()));
    to.min_rtt = to.min_rtt.into_iter().chain(rtt).min();
    to.open += 1;
    to.sent += one.bytes_sent;
    to.resent += one.bytes_retrans;
    if one.has(Field::DeliveryRate) && !one.is(flag::APP_LIMITED) {
        to.delivery = to.delivery.max(BitRate::from_bytes_per_sec(one.delivery_rate));
    }
}
