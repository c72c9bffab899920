//! A [`Filter`] as the kernel programs read it. Twin: `bpf/filter.h`.

use weirgate_sockets::sample::mapped;
use weirgate_units::Prefix;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::poll::Filter;

/// Networks in each list of a [`Filter`]; `PREFIXES_MAX` in the twin.
const PREFIXES_MAX: usize = 64;

/// A filter that holds more than the kernel programs have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the filter names {count} {what}; at most 64 are possible")]
pub struct FilterTooLong {
    /// How many.
    pub count: usize,
    /// Of what.
    pub what: &'static str,
}

/// `struct wg_filter`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct WireFilter {
    states: u32,
    ports_used: u32,
    wanted_used: u32,
    unwanted_used: u32,
    ports: [u64; 65536 / 64],
    wanted: [WireNetwork; PREFIXES_MAX],
    unwanted: [WireNetwork; PREFIXES_MAX],
}

/// `struct wg_network`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct WireNetwork {
    address: [u8; 16],
    mask: [u8; 16],
}

impl WireFilter {
    pub(super) fn set(&mut self, filter: &Filter) -> Result<(), FilterTooLong> {
        self.states = filter.states;
        self.ports = [0; 65536 / 64];
        self.ports_used = u32::from(!filter.local_ports.is_empty());
        for port in &filter.local_ports {
            self.ports[usize::from(port / 64)] |= 1 << (port % 64);
        }
        self.wanted_used = set_networks(&mut self.wanted, &filter.remote, "remote networks")?;
        self.unwanted_used = set_networks(&mut self.unwanted, &filter.remote_not, "unwanted remote networks")?;
        Ok(())
    }
}

fn set_networks(to: &mut [WireNetwork], from: &[Prefix], what: &'static str) -> Result<u32, FilterTooLong> {
    let count = from.len();
    let used = u32::try_from(count).ok().filter(|_| count <= to.len());
    for (to, prefix) in to.iter_mut().zip(from) {
        *to = network(*prefix);
    }
    used.ok_or(FilterTooLong { count, what })
}

fn network(prefix: Prefix) -> WireNetwork {
    let bits = u32::from(prefix.len()) + if prefix.address().is_ipv4() { 96 } else { 0 };
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    WireNetwork { address: mapped(prefix.address()), mask: mask.to_be_bytes() }
}
