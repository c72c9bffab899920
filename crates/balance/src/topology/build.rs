//! The networks that fabrics are built as.

use alloc::vec::Vec;

use super::{Kind, LinkSettings, Node, Topology, TopologyError};

/// Every leaf is linked to every spine (a two-stage folded Clos network).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafSpine {
    /// Switches that all leaves are linked to.
    pub spines: u32,
    /// Switches that hosts are at.
    pub leaves: u32,
    /// Hosts of each leaf.
    pub hosts: u32,
    /// Between host and leaf.
    pub edge: LinkSettings,
    /// Between leaf and spine.
    pub core: LinkSettings,
}

impl LeafSpine {
    /// The network: leaves, spines, then hosts, leaf by leaf.
    ///
    /// # Errors
    /// [`TopologyError`].
    pub fn build(&self) -> Result<Topology, TopologyError> {
        let mut topology = Topology::new();
        let leaves = many(&mut topology, self.leaves, Kind::Switch { stage: 0 });
        let spines = many(&mut topology, self.spines, Kind::Switch { stage: 1 });
        let hosts = many(&mut topology, self.leaves * self.hosts, Kind::Host);
        attach(&mut topology, &hosts, &leaves, self.edge)?;
        mesh(&mut topology, &leaves, &spines, self.core)?;
        checked(topology)
    }
}

/// Greenberg et al., "VL2: a scalable and flexible data center network" (SIGCOMM 2009): every top-of-rack switch is linked to two
/// aggregation switches, every aggregation switch to all intermediate ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vl2 {
    /// Top-of-rack switches.
    pub tors: u32,
    /// Aggregation switches, an even number.
    pub aggregations: u32,
    /// Intermediate switches.
    pub intermediates: u32,
    /// Hosts of each top-of-rack switch.
    pub hosts: u32,
    /// Between host and top-of-rack switch.
    pub edge: LinkSettings,
    /// Between switches.
    pub core: LinkSettings,
}

impl Vl2 {
    /// The network. The n-th top-of-rack switch is at the aggregation switches 2n and 2n + 1, modulo their number.
    ///
    /// # Errors
    /// [`TopologyError`].
    pub fn build(&self) -> Result<Topology, TopologyError> {
        let mut topology = Topology::new();
        let tors = many(&mut topology, self.tors, Kind::Switch { stage: 0 });
        let aggregations = many(&mut topology, self.aggregations, Kind::Switch { stage: 1 });
        let intermediates = many(&mut topology, self.intermediates, Kind::Switch { stage: 2 });
        let hosts = many(&mut topology, self.tors * self.hosts, Kind::Host);
        attach(&mut topology, &hosts, &tors, self.edge)?;
        for (at, tor) in tors.iter().enumerate() {
            for beside in 0..2.min(aggregations.len()) {
                topology.link(*tor, aggregations[(2 * at + beside) % aggregations.len()], self.core)?;
            }
        }
        mesh(&mut topology, &aggregations, &intermediates, self.core)?;
        checked(topology)
    }
}

/// Al-Fares et al., "A scalable, commodity data center network architecture" (SIGCOMM 2008): `k` pods of `k / 2` edge and as many
/// aggregation switches, `k * k / 4` core switches, `k` ports each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FatTree {
    /// Ports of a switch, an even number: `k * k * k / 4` hosts.
    pub k: u32,
    /// Every link.
    pub link: LinkSettings,
}

impl FatTree {
    /// The network: the n-th aggregation switch of each pod is linked to the n-th `k / 2` core switches.
    ///
    /// # Errors
    /// [`TopologyError`].
    pub fn build(&self) -> Result<Topology, TopologyError> {
        let half = self.k / 2;
        Pods {
            pods: self.k,
            tors: half,
            planes: half,
            spines: half,
            hosts: half,
            edge: self.link,
            fabric: self.link,
            spine: self.link,
        }
        .build()
    }
}

/// Facebook's fabric (Andreyev, "Introducing data center fabric", 2014): pods of top-of-rack and fabric switches, all linked to each
/// other within the pod; the n-th fabric switch of each pod is linked to all spine switches of the n-th plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pods {
    /// Pods.
    pub pods: u32,
    /// Top-of-rack switches of each pod.
    pub tors: u32,
    /// Spine planes, and so fabric switches of each pod.
    pub planes: u32,
    /// Spine switches of each plane.
    pub spines: u32,
    /// Hosts of each top-of-rack switch.
    pub hosts: u32,
    /// Between host and top-of-rack switch.
    pub edge: LinkSettings,
    /// Within a pod.
    pub fabric: LinkSettings,
    /// Between pods and planes.
    pub spine: LinkSettings,
}

impl Pods {
    /// The network: top-of-rack switches and fabric switches, pod by pod, spine switches, plane by plane, then hosts.
    ///
    /// # Errors
    /// [`TopologyError`].
    pub fn build(&self) -> Result<Topology, TopologyError> {
        let mut topology = Topology::new();
        let tors = many(&mut topology, self.pods * self.tors, Kind::Switch { stage: 0 });
        let fabrics = many(&mut topology, self.pods * self.planes, Kind::Switch { stage: 1 });
        let spines = many(&mut topology, self.planes * self.spines, Kind::Switch { stage: 2 });
        let hosts = many(&mut topology, self.pods * self.tors * self.hosts, Kind::Host);
        attach(&mut topology, &hosts, &tors, self.edge)?;
        for pod in 0..self.pods as usize {
            let tors = &tors[pod * self.tors as usize..][..self.tors as usize];
            let fabrics = &fabrics[pod * self.planes as usize..][..self.planes as usize];
            mesh(&mut topology, tors, fabrics, self.fabric)?;
            for (plane, fabric) in fabrics.iter().enumerate() {
                let spines = &spines[plane * self.spines as usize..][..self.spines as usize];
                mesh(&mut topology, &[*fabric], spines, self.spine)?;
            }
        }
        checked(topology)
    }
}

fn many(topology: &mut Topology, count: u32, kind: Kind) -> Vec<Node> {
    (0..count).map(|_| topology.add(kind)).collect()
}

/// Links as many hosts to each leaf, in order.
fn attach(
    topology: &mut Topology,
    hosts: &[Node],
    leaves: &[Node],
    settings: LinkSettings,
) -> Result<(), TopologyError> {
    let each = hosts.len() / leaves.len().max(1);
    for (hosts, leaf) in hosts.chunks(each.max(1)).zip(leaves) {
        for host in hosts {
            topology.link(*host, *leaf, settings)?;
        }
    }
    Ok(())
}

/// Links all of one to all of the other.
fn mesh(topology: &mut Topology, lower: &[Node], upper: &[Node], settings: LinkSettings) -> Result<(), TopologyError> {
    for low in lower {
        for high in upper {
            topology.link(*low, *high, settings)?;
        }
    }
    Ok(())
}

fn checked(topology: Topology) -> Result<Topology, TopologyError> {
    topology.check()?;
    Ok(topology)
}
