//! The experiment's table, `experiments/edge.toml`: what was typed, and what it means.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use weirgate_units::{BitRate, Bytes, Duration, Prefix};

/// The table as it stands in the project.
pub(crate) const EDGE_TOML: &str = include_str!("../../experiments/edge.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Typed {
    requests: TypedRequests,
    phases: std::collections::BTreeMap<String, TypedPhases>,
    flapping: TypedFlapping,
    daemon: TypedDaemon,
    network: Vec<TypedNetworks>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedRequests {
    mix: Vec<TypedObject>,
    clients_per_network: u16,
    gap_mean: String,
    requests_per_connection: u16,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedObject {
    share_pct: u32,
    file: String,
    size: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedPhases {
    warm_up: String,
    measured: String,
    drain_max: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedFlapping {
    period: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedDaemon {
    poll: String,
    tune: toml::Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedNetworks {
    class: String,
    ip: u8,
    links: Vec<TypedLink>,
    queue_bdp: Option<f64>,
    queue_time: Option<String>,
    lossy_phase: Option<TypedLink>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedLink {
    rate: String,
    rtt: String,
    #[serde(default)]
    loss_pct: f64,
}

/// The experiment's settings.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// What clients ask for.
    pub(crate) objects: Vec<Object>,
    /// Client addresses in each network.
    pub(crate) clients_per_network: u16,
    /// Mean time between one client's requests.
    pub(crate) gap_mean: Duration,
    /// Responses over one connection before the client opens another.
    pub(crate) requests_per_connection: u16,
    /// Length of the phases.
    pub(crate) phases: Phases,
    /// A flapping network is clean for half of this, then lossy for the other half.
    pub(crate) flapping_period: Duration,
    /// The daemon's polling interval.
    pub(crate) poll: Duration,
    /// The daemon's `[tune]` settings where they differ from its defaults.
    pub(crate) daemon: toml::Table,
    /// The round among them.
    pub(crate) round: Duration,
    /// The client networks, in the table's order.
    pub(crate) networks: Vec<Network>,
}

/// One thing that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    /// Share of the requests, in percent.
    pub(crate) share_pct: u32,
    /// The file's name below the server's root.
    pub(crate) file: String,
    /// Size of the body.
    pub(crate) size: Bytes,
}

/// How long each phase of a run takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phases {
    /// Until selections can have been made.
    pub(crate) warm_up: Duration,
    /// What counts.
    pub(crate) measured: Duration,
    /// How long unfinished responses are waited for.
    pub(crate) drain_max: Duration,
}

/// One client network.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Network {
    /// Its class, by which results are grouped.
    pub(crate) class: String,
    /// Its clients' addresses.
    pub(crate) prefix: Prefix,
    /// The link, or its clean phase.
    pub(crate) link: LinkSetting,
    /// The lossy phase of a flapping network.
    pub(crate) lossy_phase: Option<LinkSetting>,
}

/// What a link does to packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LinkSetting {
    /// Both ways.
    pub(crate) rate: BitRate,
    /// Propagation there and back.
    pub(crate) rtt: Duration,
    /// Chance of loss towards the client, in parts per million.
    pub(crate) loss_ppm: u32,
    /// Queue towards the client.
    pub(crate) queue: Bytes,
}

impl Table {
    /// Reads a table; `phases` names one of its `[phases.*]`.
    pub(crate) fn read(text: &str, phases: &str) -> Result<Self> {
        let typed: Typed = toml::from_str(text).context("the table of `edge`")?;
        let objects = typed
            .requests
            .mix
            .iter()
            .map(|o| Ok(Object { share_pct: o.share_pct, file: o.file.clone(), size: o.size.parse()? }));
        let objects: Vec<Object> = objects.collect::<Result<_>>()?;
        ensure!(
            objects.iter().map(|o| o.share_pct).sum::<u32>() == 100,
            "the shares of the requests' mix are not 100 %"
        );
        let phase = typed.phases.get(phases).with_context(|| format!("the table has no [phases.{phases}]"))?;
        let mut networks = Vec::new();
        for group in &typed.network {
            for link in &group.links {
                networks.push(group.network(link, networks.len())?);
            }
        }
        Ok(Self {
            objects,
            clients_per_network: typed.requests.clients_per_network,
            gap_mean: typed.requests.gap_mean.parse()?,
            requests_per_connection: typed.requests.requests_per_connection,
            phases: Phases {
                warm_up: phase.warm_up.parse()?,
                measured: phase.measured.parse()?,
                drain_max: phase.drain_max.parse()?,
            },
            flapping_period: typed.flapping.period.parse()?,
            poll: typed.daemon.poll.parse()?,
            round: typed
                .daemon
                .tune
                .get("round")
                .and_then(toml::Value::as_str)
                .context("[daemon.tune] round")?
                .parse()?,
            daemon: typed.daemon.tune,
            networks,
        })
    }
}

impl TypedNetworks {
    fn network(&self, link: &TypedLink, index: usize) -> Result<Network> {
        let index = u8::try_from(index).ok().filter(|i| *i < 200).context("more than 200 networks")?;
        let prefix = match self.ip {
            4 => Prefix::of(Ipv4Addr::new(10, 60, index, 0).into(), 24),
            6 => Prefix::of(Ipv6Addr::new(0xfd60, 0, 0, u16::from(index) << 8, 0, 0, 0, 0).into(), 56),
            other => anyhow::bail!("ip = {other}: write 4 or 6"),
        };
        Ok(Network {
            class: self.class.clone(),
            prefix,
            link: self.setting(link)?,
            lossy_phase: self.lossy_phase.as_ref().map(|l| self.setting(l)).transpose()?,
        })
    }

    fn setting(&self, link: &TypedLink) -> Result<LinkSetting> {
        let (rate, rtt): (BitRate, Duration) = (link.rate.parse()?, link.rtt.parse()?);
        let bytes_in = |d: Duration| rate.as_bytes_per_sec() as f64 * d.as_secs_f64();
        let queue = match (self.queue_bdp, &self.queue_time) {
            (Some(share), None) => bytes_in(rtt) * share,
            (None, Some(time)) => bytes_in(time.parse()?),
            _ => anyhow::bail!("class {}: write one of queue_bdp and queue_time", self.class),
        };
        Ok(LinkSetting { rate, rtt, loss_ppm: (link.loss_pct * 1e4).round() as u32, queue: Bytes::new(queue as u64) })
    }
}

impl Network {
    /// The address of client `index`: the network's first addresses are the infrastructure's.
    pub(crate) fn client(&self, index: u16) -> IpAddr {
        match self.prefix.address() {
            IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits() + 10 + u32::from(index)).into(),
            IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits() + 10 + u128::from(index)).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_one_that_is_promised() {
        let table = Table::read(EDGE_TOML, "full").unwrap();
        let count = |class: &str| table.networks.iter().filter(|n| n.class == class).count();
        assert_eq!(["clean", "bufferbloated", "lossy", "shallow", "flapping"].map(count), [8, 4, 4, 2, 2]);
        assert!(table.networks.iter().filter(|n| n.prefix.address().is_ipv6()).count() >= 4);
        let lossy: Vec<_> = table.networks.iter().filter(|n| n.class == "lossy").map(|n| n.link.loss_ppm).collect();
        assert_eq!(lossy, [5_000, 10_000, 10_000, 20_000]);
        let shallow = table.networks.iter().find(|n| n.class == "shallow").unwrap();
        assert_eq!(shallow.link.queue.as_u64(), 18_750);
        for network in &table.networks {
            assert!((0..table.clients_per_network).all(|c| network.prefix.contains(network.client(c))));
        }
        for phases in ["quick", "demo"] {
            Table::read(EDGE_TOML, phases).unwrap();
        }
    }
}
