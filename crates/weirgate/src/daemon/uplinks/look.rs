//! What the thread looks at: links, counters, addresses and gateways, flows, the host's own connections.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use weirgate_linux::poll::Filter;
use weirgate_linux::ways::{Device, Way, devices, flags};
use weirgate_sockets::sample::{Field, Sample, flag, state};
use weirgate_units::{BitRate, Duration, Instant, Prefix};

use super::driver::{Driver, FLOWS, FLOWS_SHARE, SITE, SOCKETS};
use super::now;
use crate::config::uplinks::{Gateway, Uplink};
use crate::journal::{Actor, Change, Object, sysctl};
use crate::uplink::fleet::{Counted, Site};
use crate::uplink::measure::Sockets;
use crate::uplink::ruleset::{TABLE, counted};
use crate::uplink::{Family, Kind, Place, Transport};

/// What a host's own connections say is summed up of so many at most.
const SOCKETS_MAX: usize = 200_000;

/// Beyond any uplink (Cloudflare's resolvers); nothing is sent there for this.
const FAR: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)), IpAddr::V6(Ipv6Addr::new(0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111))];

/// A way that is gone is looked for once more after so long, before that counts.
const SITE_AGAIN: Duration = Duration::from_millis(250);

/// Routes and rules are put in order so often, where nothing is known to have changed.
const WAYS: Duration = Duration::from_secs(10);

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
        let mut passed = vec![[[Counted::default(); 2]; 2]; len];
        let mut known = 0;
        let read = self.tables.counters(TABLE, &mut |name, packets, bytes| {
            if let Some((place, family, way)) = counted(name).filter(|(place, ..)| *place < len) {
                passed[place][family as usize][way] = Counted { packets, bytes };
                known += 1;
            }
        });
        let is_whole = read.is_ok() && known == 4 * len;
        for (place, passed) in passed.into_iter().enumerate().filter(|_| is_whole) {
            self.fleet.handle_counters(at, place, passed);
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
        let reached: Vec<Vec<IpAddr>> = self.config.uplinks.iter().map(reached).collect();
        let names = self.config.uplinks.iter().map(|uplink| uplink.device.as_str());
        let found = devices(&names.zip(reached.iter().cloned()).collect::<Vec<_>>())?;
        let mut sites = Vec::new();
        let mut ways = Vec::new();
        for (place, device) in found.iter().enumerate() {
            let known = &self.fleet.uplinks()[place].site;
            let own = device.as_ref().map(|device| gateways(&self.config.uplinks[place], device, &reached[place]));
            // A default route that is made anew is gone for a moment; what that costs is a second look.
            let is_gone = device.as_ref().is_some_and(|device| device.is_up) && own == Some([None; 2]);
            if is_gone && known.families != [false; 2] && self.doubtful.insert(place) {
                sites.push(known.clone());
                ways.extend(self.ways_in_force.iter().filter(|way| way.place as usize == place));
                self.next_site = at + SITE_AGAIN;
                continue;
            }
            self.doubtful.remove(&place);
            let (Some(device), Some(own)) = (device, own) else {
                let trouble = Some(format!("there is no device `{}`", self.config.uplinks[place].device));
                sites.push(Site { trouble, ..Site::default() });
                continue;
            };
            let site = self.site(place, device, own);
            // A route by a device that is down is refused, and no use.
            for (family, gateway) in Family::ALL.into_iter().zip(own).filter(|_| device.is_up) {
                if let Some(gateway) = gateway {
                    let (mark, interface) = (self.fleet.settings().marks.of(place), device.interface);
                    ways.push(Way { place: place as u32, mark, interface, is_v4: family == Family::V4, gateway });
                }
            }
            sites.push(site);
        }
        let number = |device: &Option<Device>| device.as_ref().map(|device| device.interface);
        for (place, device) in found.iter().enumerate() {
            if number(device) != number(&self.devices[place]) {
                self.askers[place].forget();
            }
        }
        self.devices = found;
        let mut is_other = ways != self.ways_in_force;
        for (place, site) in sites.into_iter().enumerate() {
            is_other |= self.fleet.uplinks()[place].site != site;
            self.fleet.handle_site(at, place, site);
        }
        self.loosen()?;
        // Others may have removed them, with the addresses that they stood on or with everything that they did not make themselves.
        if is_other || at >= self.next_ways {
            self.ways.apply(&ways)?;
            (self.ways_in_force, self.next_ways) = (ways, at + WAYS);
        }
        Ok(())
    }

    /// What is to be seen of an uplink whose device is there.
    fn site(&mut self, place: Place, device: &Device, own: [Option<Option<IpAddr>>; 2]) -> Site {
        let uplink = &self.config.uplinks[place];
        let families = own.map(|gateway| gateway.is_some());
        self.targets[place] = Family::ALL.map(|family| {
            let its = uplink.targets.iter().filter(|target| Family::of(target.address) == family);
            its.copied().filter(|_| families[family as usize]).collect()
        });
        let targets = [0, 1].map(|family| self.targets[place][family].len());
        let name = &uplink.device;
        let trouble = if !device.is_up {
            Some(format!("`{name}` is down, or nothing is connected to it"))
        } else if families == [false; 2] {
            Some(format!(
                "there is no way by `{name}`: it has no address, or no default route names it: write its `gateway`"
            ))
        } else if targets == [0; 2] {
            Some("none of its `targets` is of a family that goes by it".to_owned())
        } else {
            None
        };
        let gateways = own.iter().flatten().flatten().map(|gateway| Prefix::of(*gateway, 128));
        let mut near: Vec<Prefix> = device.networks.iter().copied().chain(gateways).collect();
        near.sort_unstable();
        near.dedup();
        Site {
            families: if device.is_up { families } else { [false; 2] },
            addresses: device.addresses.clone(),
            near,
            targets,
            trouble,
        }
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
                summed[place].add(one);
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

    /// Gives connections of an earlier daemon the mark of the uplink that they are on: the configuration may have them in another order now.
    pub(super) fn conntrack_marks(&mut self) -> std::io::Result<()> {
        let marks = self.fleet.settings().marks;
        let mut wrong = Vec::new();
        let uplinks = self.fleet.uplinks();
        self.conntrack.flows(None, &mut |flow| {
            let Some((place, _)) = marks.read(flow.mark) else { return };
            // What comes back comes to its uplink's address, and so did what began without.
            let ends = [flow.reply.destination.ip(), flow.original.destination.ip()];
            let is_by = |uplink: &crate::uplink::fleet::Uplink| {
                let is_own = |end: &IpAddr| {
                    uplink.site.addresses.contains(end) || uplink.settings.prefixes.iter().any(|net| net.contains(*end))
                };
                ends.iter().any(is_own)
            };
            // An address that an admin's rules gave it is nobody's: there the mark is all that is known.
            if uplinks.get(place).is_none_or(|uplink| !is_by(uplink))
                && let Some(place) = uplinks.iter().position(is_by)
            {
                wrong.push((flow.original.source.is_ipv4(), flow.key.to_vec(), marks.of(place)));
            }
        })?;
        for (is_v4, key, bits) in &wrong {
            // One that is gone needs no mark.
            self.conntrack.mark(*is_v4, key, [*bits, marks.mask()])?;
        }
        if !wrong.is_empty() {
            tracing::info!("uplinks: {} connections of before are marked anew", wrong.len());
        }
        Ok(())
    }

    /// The host's established connections, by their ends.
    fn own_sockets(&mut self) -> HashMap<(SocketAddr, SocketAddr), Sockets> {
        let filter = Filter { states: 1 << state::ESTABLISHED | 1 << state::CLOSE_WAIT, ..Filter::default() };
        let mut all = HashMap::new();
        let polled = self.sockets.poll(&self.ns, &filter, &mut |sample| {
            if all.len() < SOCKETS_MAX && sample.has(Field::TcpInfo) {
                all.insert((sample.local(), sample.remote()), of_one(sample));
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
            if self.loosened.contains(&(name.clone(), interface)) {
                continue;
            }
            let key = format!("net/ipv4/conf/{name}/rp_filter");
            let exact = |key: &str| sysctl(key).is_some_and(|value| value == "1");
            let is_exact = exact(&key) || exact("net/ipv4/conf/all/rp_filter");
            if let Some(before) = sysctl(&key).filter(|before| before != "2" && is_exact) {
                let object = Object::Sysctl { namespace: self.namespace.clone(), key: key.clone() };
                let change = Change { object, before: Some(before), after: Some("2".to_owned()) };
                self.journal.record(&Actor::own("uplinks"), change)?;
                std::fs::write(Path::new("/proc/sys").join(&key), "2")?;
                tracing::info!("uplink `{}`: {key} is 2: what comes by it may be answered by it", self.name(place));
            }
            self.loosened.insert((name, interface));
        }
        Ok(())
    }

    /// The gateway by which an uplink is left, for those who ask.
    pub(super) fn gateways(&self, place: Place) -> Vec<String> {
        let its = self.ways_in_force.iter().filter(|way| way.place as usize == place);
        its.map(|way| way.gateway.map_or_else(|| "the other end".to_owned(), |gateway| gateway.to_string())).collect()
    }
}

/// Whom to ask the routes for, to find an uplink's default one: its targets, some of which may have routes of their own, and others.
pub(crate) fn reached(uplink: &Uplink) -> Vec<IpAddr> {
    uplink.targets.iter().map(|target| target.address).chain(FAR).collect()
}

/// Who forwards what leaves by an uplink, for each family; `None`: nothing of it goes there.
pub(crate) fn gateways(uplink: &Uplink, device: &Device, reached: &[IpAddr]) -> [Option<Option<IpAddr>>; 2] {
    Family::ALL.map(|family| {
        let is_its = |address: IpAddr| Family::of(address) == family;
        let has_address = device.addresses.iter().copied().any(is_its);
        let has_prefix = uplink.prefixes.iter().any(|prefix| is_its(prefix.address()));
        let way = gateway(uplink.gateways[family as usize], device, reached, family);
        way.filter(|_| has_address || has_prefix)
    })
}

/// Who forwards what leaves by a device; `None`: nothing of this family goes by it.
fn gateway(configured: Gateway, device: &Device, reached: &[IpAddr], family: Family) -> Option<Option<IpAddr>> {
    match configured {
        Gateway::None => None,
        Gateway::At(gateway) => Some(Some(gateway)),
        Gateway::Auto => {
            let mut ways = reached.iter().zip(&device.ways).filter(|(address, _)| Family::of(**address) == family);
            let found = ways.find_map(|(_, way)| *way);
            found.or(device.is_point_to_point.then_some(None))
        }
    }
}

fn of_one(one: &Sample) -> Sockets {
    let rtt = Some(one.min_rtt_us).filter(|rtt| one.has(Field::MinRttUs) && (1..10_000_000).contains(rtt));
    let is_limited = !one.has(Field::DeliveryRate) || one.is(flag::APP_LIMITED);
    Sockets {
        open: 1,
        min_rtt: rtt.map(|rtt| Duration::from_micros(rtt.into())),
        delivery: if is_limited { BitRate::ZERO } else { BitRate::from_bytes_per_sec(one.delivery_rate) },
        sent: one.bytes_sent,
        resent: one.bytes_retrans,
    }
}
