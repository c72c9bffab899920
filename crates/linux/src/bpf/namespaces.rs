//! The map of `bpf/namespaces.h`, of a program that sees all of them and acts in some: at most 4,096, by inode number.

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::netns::Netns;

/// Makes `map` hold those of `wanted` and no other. Work: one system call for each of them, and for each that was there.
pub(super) fn set(map: &MapHandle, wanted: &[Netns]) -> Result<(), libbpf_rs::Error> {
    for ns in wanted {
        map.update(&ns.inode().to_ne_bytes(), &[1], MapFlags::ANY)?;
    }
    let gone: Vec<Vec<u8>> =
        map.keys().filter(|key| !wanted.iter().any(|ns| key[..] == ns.inode().to_ne_bytes())).collect();
    gone.iter().try_for_each(|inode| map.delete(inode))
}
