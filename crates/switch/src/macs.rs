//! Which port leads to a MAC address: a learning bridge's table. Read first: IEEE 802.1Q, sections 8.7 and 8.8 (learning, aging,
//! the filtering database).
//!
//! An address is learnt per VLAN ("independent VLAN learning"): a router may have one address on several. Group addresses are
//! never learnt, since nobody may send from one. An entry that was set by hand is never changed by learning.
//!
//! **The bound.** Every operation on an address takes constant time; the table never holds more than it was made for. When it is
//! full, the entry that was not heard of for longest makes room: an attacker that floods addresses makes this switch flood
//! frames, and cannot make it grow or stop.

use core::hash::{Hash, Hasher};
use std::collections::HashMap;

use weirgate_units::{Duration, Instant};

use crate::frame::{Link, Mac, Seeded};

/// IEEE 802.1Q's default aging time.
pub const AGE_MAX: Duration = Duration::from_secs(300);

/// The table: addresses, and the ports of type `P` that lead to them.
#[derive(Clone, Debug)]
pub struct Macs<P> {
    learnt: HashMap<Key, u32, Seeded>,
    /// The learnt entries; those that are in use form a ring through `HEAD` in the order in which they were last heard of.
    ring: Vec<Entry<P>>,
    free: Vec<u32>,
    fixed: HashMap<Key, P, Seeded>,
    capacity: u32,
    age_max: Duration,
}

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<P> {
    /// To this port.
    To(P),
    /// To all ports but the one by which it came: a group's frame, or one to nobody known.
    Flood,
    /// To none: its receiver is where it came from, and has it already.
    Filter,
}

/// What a frame's source has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learnt<P> {
    /// Nothing: it was known there.
    Known,
    /// It is new, or had been forgotten.
    New,
    /// It was at another port.
    Moved {
        /// At which.
        from: P,
    },
    /// Nothing, and the frame should be dropped: nobody sends from a group address, or the address was set by hand elsewhere.
    Refused,
}

/// There is no room for another entry set by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for more than {0} addresses set by hand: raise the table's capacity")]
pub struct MacsFull(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    vlan: u16,
    mac: Mac,
}

/// In the place of a VLAN, of an address that was set by hand.
const ALL_VLANS: u16 = u16::MAX;

impl Key {
    fn of(vlan: u16, mac: Mac) -> Self {
        Self { vlan, mac }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d, e, f] = self.mac.0;
        let [g, h] = self.vlan.to_be_bytes();
        state.write_u64(u64::from_be_bytes([g, h, a, b, c, d, e, f]));
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry<P> {
    key: Key,
    /// `None` is the ring's head only.
    port: Option<P>,
    heard: Instant,
    older: u32,
    newer: u32,
}

/// The ring's head: next to it in the one direction is the newest entry, in the other the oldest.
const HEAD: u32 = 0;

impl<P: Copy + PartialEq> Macs<P> {
    /// An empty table of at most `capacity` learnt addresses, and as many set by hand. What was not heard of for `age_max` is
    /// forgotten. `seed` keeps others from choosing addresses that collide.
    pub fn new(capacity: u32, age_max: Duration, seed: u64) -> Self {
        let head = Entry { key: Key::of(0, Mac([0; 6])), port: None, heard: Instant::ZERO, older: HEAD, newer: HEAD };
        Self {
            learnt: HashMap::with_hasher(Seeded(seed)),
            ring: vec![head],
            free: Vec::new(),
            fixed: HashMap::with_hasher(Seeded(seed)),
            capacity: capacity.clamp(1, u32::MAX - 1),
            age_max,
        }
    }

    /// Notes where a frame came from: `link` is its Ethernet header, `port` where it came in.
    pub fn learn(&mut self, now: Instant, port: P, link: &Link) -> Learnt<P> {
        let key = Key::of(link.vlan.unwrap_or(0), link.source);
        if link.source.is_group() {
            return Learnt::Refused;
        }
        if let Some(fixed) = self.fixed.get(&Key::of(ALL_VLANS, link.source)) {
            return if *fixed == port { Learnt::Known } else { Learnt::Refused };
        }
        if let Some(at) = self.learnt.get(&key).copied() {
            let entry = self.ring[at as usize];
            self.unlink(at);
            self.link(at, Entry { port: Some(port), heard: now, ..entry });
            return match entry.port {
                _ if self.is_old(now, &entry) => Learnt::New,
                Some(from) if from != port => Learnt::Moved { from },
                _ => Learnt::Known,
            };
        }
        if self.learnt.len() >= self.capacity as usize {
            self.forget(self.ring[HEAD as usize].newer);
        }
        let at = self.free.pop().unwrap_or(self.ring.len() as u32);
        let entry = Entry { key, port: Some(port), heard: now, older: HEAD, newer: HEAD };
        if at as usize == self.ring.len() {
            self.ring.push(entry);
        }
        self.link(at, entry);
        self.learnt.insert(key, at);
        Learnt::New
    }

    /// Where a frame goes that came in by `port`. Ports are of all VLANs: those tell addresses apart, and do not separate ports.
    pub fn decide(&self, now: Instant, port: P, link: &Link) -> Decision<P> {
        if link.destination.is_group() {
            return Decision::Flood;
        }
        match self.lookup(now, link.vlan.unwrap_or(0), link.destination) {
            None => Decision::Flood,
            Some(to) if to == port => Decision::Filter,
            Some(to) => Decision::To(to),
        }
    }

    /// The port that leads to an address, if it is known; VLAN 0 is untagged.
    pub fn lookup(&self, now: Instant, vlan: u16, mac: Mac) -> Option<P> {
        let key = Key::of(vlan, mac);
        if let Some(port) = self.fixed.get(&Key::of(ALL_VLANS, mac)) {
            return Some(*port);
        }
        let entry = &self.ring[*self.learnt.get(&key)? as usize];
        entry.port.filter(|_| !self.is_old(now, entry))
    }

    /// Sets by hand where an address is, on all VLANs; what was learnt of it counts no more. A group address may be set as well, to
    /// one port.
    ///
    /// # Errors
    /// [`MacsFull`] where there is no room for a new one.
    pub fn set(&mut self, mac: Mac, port: P) -> Result<(), MacsFull> {
        let key = Key::of(ALL_VLANS, mac);
        if self.fixed.len() >= self.capacity as usize && !self.fixed.contains_key(&key) {
            return Err(MacsFull(self.capacity));
        }
        self.fixed.insert(key, port);
        Ok(())
    }

    /// Forgets what was learnt of a port: it is gone. Goes through the whole table.
    pub fn forget_port(&mut self, port: P) {
        for at in 1..self.ring.len() as u32 {
            if self.ring[at as usize].port == Some(port) {
                self.forget(at);
            }
        }
    }

    /// How many addresses were learnt, aged ones that nothing has taken the place of included.
    pub fn len(&self) -> usize {
        self.learnt.len()
    }

    /// Whether nothing was learnt.
    pub fn is_empty(&self) -> bool {
        self.learnt.is_empty()
    }

    /// What always holds: the ring has every learnt entry once, the oldest first, and the table is within its bound.
    pub fn is_valid(&self) -> bool {
        let (mut at, mut heard, mut count) = (self.ring[HEAD as usize].newer, Instant::ZERO, 0);
        while at != HEAD && count <= self.learnt.len() {
            let entry = &self.ring[at as usize];
            if self.learnt.get(&entry.key) != Some(&at) || entry.port.is_none() || entry.heard < heard {
                return false;
            }
            if self.ring[entry.newer as usize].older != at {
                return false;
            }
            (at, heard, count) = (entry.newer, entry.heard, count + 1);
        }
        at == HEAD
            && count == self.learnt.len()
            && count + self.free.len() + 1 == self.ring.len()
            && count <= self.capacity as usize
    }

    fn is_old(&self, now: Instant, entry: &Entry<P>) -> bool {
        now.saturating_since(entry.heard) > self.age_max
    }

    /// Takes a learnt entry out.
    fn forget(&mut self, at: u32) {
        self.unlink(at);
        let entry = &mut self.ring[at as usize];
        entry.port = None;
        self.learnt.remove(&entry.key);
        self.free.push(at);
    }

    fn unlink(&mut self, at: u32) {
        let Entry { older, newer, .. } = self.ring[at as usize];
        self.ring[older as usize].newer = newer;
        self.ring[newer as usize].older = older;
    }

    /// Puts an entry in as the newest.
    fn link(&mut self, at: u32, entry: Entry<P>) {
        let newest = self.ring[HEAD as usize].older;
        self.ring[at as usize] = Entry { older: newest, newer: HEAD, ..entry };
        self.ring[newest as usize].newer = at;
        self.ring[HEAD as usize].older = at;
    }
}

#[cfg(test)]
mod tests;
