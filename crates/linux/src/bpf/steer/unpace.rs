//! The congestion control that a connection passes through so that it is paced no longer (`bpf/unpace.bpf.c`).

use std::mem::MaybeUninit;
use std::path::Path;

use libbpf_rs::Link;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::super::load::{LoadError, explain};

const NEEDS: &str = "it needs Linux 6.4 or later with CONFIG_BPF_JIT; without it connections that were once on an algorithm that \
                     paces stay paced";

/// What its name begins with; twelve hexadecimal digits follow.
const PREFIX: &str = "wg_";

skeleton!("/unpace.skel.rs");

/// Whether `name` is that of such a congestion control, of whichever instance: nobody's choice.
pub fn is_unpacer(name: &str) -> bool {
    let number = name.strip_prefix(PREFIX);
    number.is_some_and(|number| number.len() == 12 && number.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Registers it, pinned at `pin`: it is there until the pin goes. Returns its name, NUL-padded.
pub(super) fn register(pin: &Path) -> Result<[u8; 16], LoadError> {
    // Names are the host's. Another instance has its own, and the kernel takes a while to forget an earlier run's.
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let mut name = [0; 16];
    let text = format!("{PREFIX}{:08x}{:04x}", now.tv_nsec, now.tv_sec & 0xffff);
    name[..text.len()].copy_from_slice(text.as_bytes());

    let mut place = MaybeUninit::uninit();
    explain("unpace.bpf.c", NEEDS, || {
        let mut open = skel::UnpaceSkelBuilder::default().open(&mut place)?;
        // `name` is the first member of what the program calls `struct tcp_congestion_ops`.
        if let Some(value) = open.maps.unpace.initial_value_mut() {
            value[..name.len()].copy_from_slice(&name);
        }
        let mut loaded = open.load()?;
        let mut link: Link = loaded.maps.unpace.attach_struct_ops()?;
        link.pin(pin)
    })?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_names_are_known_and_others_are_not() {
        assert!(is_unpacer("wg_0379d3e115c2"));
        assert!(["wg_", "wg_0379d3e115c", "wg_0379d3e115cx", "bbr", "wgcc"].iter().all(|name| !is_unpacer(name)));
    }
}
