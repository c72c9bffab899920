use weirgate_balance::topology::{LeafSpine, LinkSettings, Topology};
use weirgate_fabric::{Start, Time};
use weirgate_units::{BitRate, Duration};

pub(crate) const fn link(gbit: u64) -> LinkSettings {
    LinkSettings { rate: BitRate::from_bits_per_sec(gbit * 1_000_000_000), delay: Duration::from_nanos(500) }
}

pub(crate) fn leaf_spine(spines: u32, leaves: u32, hosts: u32, edge: u64, core: u64) -> Topology {
    LeafSpine { spines, leaves, hosts, edge: link(edge), core: link(core) }.build().unwrap()
}

pub(crate) const fn start(source: u32, destination: u32, bytes: u64) -> Start {
    Start { source, destination, bytes, class: 0 }
}

pub(crate) const fn micros(micros: u64) -> Time {
    Time::from_picos(micros * 1_000_000)
}
