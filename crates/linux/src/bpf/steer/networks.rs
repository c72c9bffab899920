//! The kernel's map of selected networks, brought from one policy to the next by the difference.

use std::cmp::Ordering;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use weirgate_sockets::sample::CcName;
use weirgate_units::Prefix;

use super::ApplyError;
use super::layout::{key, network, value};

/// Networks per system call. A batch of 4,096 keys and values is 160 KB; larger ones gain nothing measurable.
const BATCH: usize = 4_096;

/// The map, and what is in it.
#[derive(Debug)]
pub(super) struct Networks {
    map: MapHandle,
    max: u32,
    /// What the kernel's map holds, in ascending order.
    held: Vec<(Prefix, CcName)>,
}

/// How two policies differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delta {
    pub(super) added: usize,
    pub(super) removed: usize,
    pub(super) changed: usize,
}

impl Networks {
    pub(super) const fn new(map: MapHandle, max: u32) -> Self {
        Self { map, max, held: Vec::new() }
    }

    /// Makes the map hold exactly `wanted`, which is in ascending order. Removes first, so that the map's bound holds for
    /// the result and not for the union.
    pub(super) fn update(&mut self, wanted: &[(Prefix, CcName)]) -> Result<Delta, ApplyError> {
        if wanted.len() > self.max as usize {
            return Err(ApplyError::TooMany(wanted.len(), self.max));
        }
        if let Some(pair) = wanted.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return Err(ApplyError::Unordered(pair[1].0));
        }
        let (removed, set, delta) = difference(&self.held, wanted);
        let removed = removed.chunks(BATCH).try_for_each(|batch| remove(&self.map, batch));
        let written = removed.and_then(|()| set.chunks(BATCH).try_for_each(|batch| put(&self.map, batch)));
        if let Err(e) = written {
            self.held = self.read_back();
            return Err(ApplyError::Networks(e));
        }
        self.held.clear();
        self.held.extend_from_slice(wanted);
        Ok(delta)
    }

    /// What the kernel's map holds, for after a failure.
    fn read_back(&self) -> Vec<(Prefix, CcName)> {
        let entry = |key: Vec<u8>| {
            let cc = self.map.lookup(&key, MapFlags::ANY).ok()??;
            Some((network(&key)?, CcName::from_kernel(&cc)))
        };
        let mut held: Vec<_> = self.map.keys().filter_map(entry).collect();
        held.sort_unstable_by_key(|(network, _)| *network);
        held
    }
}

/// What to remove, what to set, and their counts. Both inputs and both outputs are in ascending order.
fn difference(old: &[(Prefix, CcName)], new: &[(Prefix, CcName)]) -> (Vec<Prefix>, Vec<(Prefix, CcName)>, Delta) {
    let (mut removed, mut set, mut delta) = (Vec::new(), Vec::new(), Delta::default());
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return (removed, set, delta),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.0.cmp(&b.0),
        };
        let before = if order.is_le() { old.next() } else { None };
        let after = if order.is_ge() { new.next() } else { None };
        match (before, after) {
            (Some((network, _)), None) => {
                removed.push(*network);
                delta.removed += 1;
            }
            (None, Some(entry)) => {
                set.push(*entry);
                delta.added += 1;
            }
            (Some((_, was)), Some(entry)) if *was != entry.1 => {
                set.push(*entry);
                delta.changed += 1;
            }
            _ => {}
        }
    }
}

fn put(map: &MapHandle, batch: &[(Prefix, CcName)]) -> libbpf_rs::Result<()> {
    let keys: Vec<u8> = batch.iter().flat_map(|(network, _)| key(*network)).collect();
    let values: Vec<u8> = batch.iter().flat_map(value).collect();
    if map.update_batch(&keys, &values, batch.len() as u32, MapFlags::ANY, MapFlags::ANY).is_ok() {
        return Ok(());
    }
    // Tries learnt batches in Linux 5.17. One by one also says which error it is.
    batch.iter().try_for_each(|entry| map.update(&key(entry.0), &value(entry), MapFlags::ANY))
}

fn remove(map: &MapHandle, batch: &[Prefix]) -> libbpf_rs::Result<()> {
    let keys: Vec<u8> = batch.iter().flat_map(|network| key(*network)).collect();
    if map.delete_batch(&keys, batch.len() as u32, MapFlags::ANY, MapFlags::ANY).is_ok() {
        return Ok(());
    }
    for network in batch {
        match map.delete(&key(*network)) {
            Err(e) if e.kind() != libbpf_rs::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(entries: &[(&str, &str)]) -> Vec<(Prefix, CcName)> {
        entries.iter().map(|(n, cc)| (n.parse().unwrap(), CcName::new(cc).unwrap())).collect()
    }

    #[test]
    fn only_what_differs_is_written() {
        let old = policy(&[("10.0.0.0/24", "bbr"), ("10.0.1.0/24", "bbr"), ("10.0.3.0/24", "bbr")]);
        let new = policy(&[("10.0.1.0/24", "cubic"), ("10.0.2.0/24", "bbr"), ("10.0.3.0/24", "bbr")]);
        let (removed, set, delta) = difference(&old, &new);
        assert_eq!(removed, ["10.0.0.0/24".parse().unwrap()]);
        assert_eq!(set, policy(&[("10.0.1.0/24", "cubic"), ("10.0.2.0/24", "bbr")]));
        assert_eq!(delta, Delta { added: 1, removed: 1, changed: 1 });
    }

    #[test]
    fn equal_policies_differ_in_nothing() {
        let policy = policy(&[("10.0.0.0/24", "bbr"), ("2001:db8::/56", "bbr")]);
        assert_eq!(difference(&policy, &policy), (Vec::new(), Vec::new(), Delta::default()));
    }
}
