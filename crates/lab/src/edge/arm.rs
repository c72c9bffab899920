//! One arm: an edge with a real server and a real daemon, and 20 client networks behind links of its own.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use weirgate_linux::bpf::witness::{Segment, Witness, WitnessCounters};
use weirgate_linux::netns::Netns;
use weirgate_port::{Chance, Settings};
use weirgate_sockets::sample::CcName;
use weirgate_units::Duration;

use super::table::{LinkSetting, Network, Table};
use crate::cgroup::Cgroup;
use crate::daemon::Daemon;
use crate::experiment::Options;
use crate::net::{LinkId, LinkSettings, Namespace, Topology};
use crate::nginx::Nginx;

/// What an arm does with congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// One algorithm for every connection; the daemon observes.
    All(&'static str),
    /// CUBIC, and Weirgate chooses BBR where it pays, going back with each response's end.
    Chosen,
    /// The same, staying for the connection's life.
    ChosenStaying,
}

impl Treatment {
    /// The arm's name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::All(cc) => cc,
            Self::Chosen => "weirgate",
            Self::ChosenStaying => "weirgate, staying",
        }
    }

    /// What the edge's connections start on.
    pub(crate) const fn default_cc(self) -> &'static str {
        match self {
            Self::All(cc) => cc,
            Self::Chosen | Self::ChosenStaying => "cubic",
        }
    }
}

/// The server's addresses, the same in every arm: each arm is a world of its own.
pub(crate) const SERVER: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(10, 61, 0, 1)),
    IpAddr::V6(std::net::Ipv6Addr::new(0xfd61, 0, 0, 0, 0, 0, 0, 1)),
];

/// Namespaces of one arm.
pub(crate) struct Places {
    edge: Namespace,
    clients: Vec<Namespace>,
}

impl Places {
    /// Makes them, with their TCP settings set and read back: the defaults differ from machine to machine.
    pub(crate) fn create(treatment: Treatment, table: &Table) -> Result<Self> {
        let edge = Namespace::create("edge")?;
        edge.set_congestion_control(treatment.default_cc())?;
        let clients: Vec<Namespace> =
            (0..table.networks.len()).map(|i| Namespace::create(&format!("net{i}"))).collect::<Result<_>>()?;
        for ns in std::iter::once(&edge).chain(&clients) {
            ns.set_sysctl("net.ipv4.tcp_rmem", "4096\t131072\t6291456")?;
            ns.set_sysctl("net.ipv4.tcp_wmem", "4096\t16384\t4194304")?;
            // A cached ssthresh of one connection would decide about the next one of the same client.
            ns.set_sysctl("net.ipv4.tcp_no_metrics_save", "1")?;
        }
        Ok(Self { edge, clients })
    }

    /// Adds this arm's links to `topology`; one per network, in the table's order.
    pub(crate) fn link<'a>(&'a self, topology: &mut Topology<'a>, table: &Table) -> Vec<LinkId> {
        let edge = topology.edge(&self.edge, &SERVER);
        let link = |(network, ns): (&Network, &'a Namespace)| {
            topology.link(edge, ns, &[network.prefix], settings(&network.link))
        };
        table.networks.iter().zip(&self.clients).map(link).collect()
    }

    /// Where the server lives.
    pub(crate) fn edge(&self) -> &Netns {
        self.edge.netns()
    }

    /// Where the clients of network `index` live.
    pub(crate) fn client(&self, index: usize) -> &Netns {
        self.clients[index].netns()
    }
}

/// A link's settings for the emulator: both ways have the rate and half of the round trip; loss and the table's queue are
/// on the way to the client, the way back has a queue of 100 ms or 64 KB.
pub(crate) fn settings(link: &LinkSetting) -> LinkSettings {
    let delay = Duration::from_nanos(link.rtt.as_nanos() / 2);
    let rate = Some(link.rate);
    let up_queue = weirgate_units::Bytes::new((link.rate.as_bytes_per_sec() / 10).max(65_536));
    LinkSettings {
        down: Settings { rate, queue: link.queue, loss: Chance::from_ppm(link.loss_ppm), delay, ..Settings::default() },
        up: Settings { rate, queue: up_queue, delay, ..Settings::default() },
    }
}

/// A running arm.
pub(crate) struct Arm {
    /// What it does.
    pub(crate) treatment: Treatment,
    /// Its server.
    pub(crate) nginx: Nginx,
    /// Its daemon.
    pub(crate) daemon: Daemon,
    /// Inode of the server's namespace, by which segments are told apart.
    pub(crate) netns: u32,
    witness: Witness,
    segments: Vec<Segment>,
    _cgroup: Cgroup,
}

impl Arm {
    /// Starts the server, the daemon and the witness in `places`, whose links are up.
    pub(crate) fn start(
        options: &Options,
        dir: &Path,
        treatment: Treatment,
        places: &Places,
        table: &Table,
    ) -> Result<Self> {
        let dir = dir.join(treatment.name().replace(", ", "-"));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir)?;
        let cgroup = Cgroup::create(&format!("weirgate-edge-{}-{}", std::process::id(), places.edge.name()))?;
        let files: Vec<_> = table.objects.iter().map(|o| (o.file.clone(), o.size)).collect();
        let listen = SERVER.map(|a| SocketAddr::new(a, 80));
        let nginx = Nginx::start(&dir.join("nginx"), places.edge.netns(), cgroup.path(), &listen, &files)?;
        let default = CcName::new(treatment.default_cc()).context("a congestion control's name")?;
        let witness = Witness::attach(cgroup.path(), 80, default)?;
        let daemon =
            Daemon::start(&options.weirgate, &dir.join("daemon"), &sections(treatment, places, &cgroup, table))?;
        let netns = places.edge.netns().inode();
        Ok(Self { treatment, nginx, daemon, netns, witness, segments: Vec::new(), _cgroup: cgroup })
    }

    /// Takes what the witness has seen since the last call, out of its ring.
    pub(crate) fn handle_tick(&mut self) -> Result<()> {
        self.segments.extend(self.witness.drain()?);
        Ok(())
    }

    /// Everything the witness saw, and its count.
    pub(crate) fn segments(&self) -> Result<(&[Segment], WitnessCounters)> {
        let counters = self.witness.counters()?;
        ensure!(
            counters.lost == 0,
            "the witness lost {} of {} segments: its verdict is void",
            counters.lost,
            counters.seen
        );
        Ok((&self.segments, counters))
    }
}

/// The part of the daemon's configuration that is the arm's own.
fn sections(treatment: Treatment, places: &Places, cgroup: &Cgroup, table: &Table) -> String {
    let mode = match treatment {
        Treatment::All(_) => "observe",
        Treatment::Chosen | Treatment::ChosenStaying => "apply",
    };
    let settings = table.daemon.iter().map(|(key, value)| format!("{key} = {value}\n"));
    format!(
        "[sockets]\ninterval = \"{poll}\"\nnamespaces = [\"{ns}\"]\ncgroup = \"{cgroup}\"\n\n\
         [tune]\nmode = \"{mode}\"\nserver_ports = [80]\nstay = {stay}\npins = \"/sys/fs/bpf/{pins}\"\n{settings}\n\
         [tune.limits]\nchanged_traffic_max = \"60 %\"\n",
        poll = table.poll,
        ns = places.edge.name(),
        cgroup = cgroup.path().display(),
        stay = treatment == Treatment::ChosenStaying,
        pins = cgroup.path().file_name().unwrap_or_default().to_string_lossy(),
        settings = settings.collect::<String>(),
    )
}
