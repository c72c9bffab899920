//! Where accounts lie: a slab in the order of arrival, and a hash index of slots.
//!
//! A poll yields connections in the order of the kernel's hash table, which is the same each time, so that the account
//! looked for is mostly the one after the last: no hash, no cache miss. An open-addressing table of whole entries
//! would miss the cache at every sample, and while growing hold one and a half times its memory.

use hashbrown::HashTable;

use super::entry::Entry;

/// Entries by cookie. A cookie of 0 marks a free slot.
#[derive(Debug, Default)]
pub(super) struct Table {
    slab: Vec<Entry>,
    free: Vec<u32>,
    index: HashTable<u32>,
    /// The slot after the one found last.
    next: u32,
}

/// Cookies are handed out in sequence; the fold of a wide product spreads them over both ends of the hash, as the
/// table wants (wyhash's mixing step, Wang Yi 2019; the constant is 2^64 over the golden ratio).
pub(super) fn hash(cookie: u64) -> u64 {
    let product = u128::from(cookie ^ 0xa076_1d64_78bd_642f) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

impl Table {
    /// Entries held.
    pub(super) fn len(&self) -> u32 {
        self.index.len() as u32
    }

    pub(super) fn find_mut(&mut self, cookie: u64) -> Option<&mut Entry> {
        let slot = self.slot(cookie)?;
        self.next = slot + 1;
        self.slab.get_mut(slot as usize)
    }

    /// Adds an entry whose cookie is not held.
    pub(super) fn insert(&mut self, entry: Entry) {
        let cookie = entry.cookie;
        let slot = if let Some(slot) = self.free.pop() {
            self.slab[slot as usize] = entry;
            slot
        } else {
            // Growing by an eighth keeps the slack small; a large block is moved by the kernel without a copy.
            if self.slab.len() == self.slab.capacity() {
                self.slab.reserve_exact((self.slab.len() / 8).max(64));
            }
            self.slab.push(entry);
            (self.slab.len() - 1) as u32
        };
        let slab = &self.slab;
        self.index.insert_unique(hash(cookie), slot, |slot| hash(slab[*slot as usize].cookie));
        self.next = slot + 1;
    }

    pub(super) fn remove(&mut self, cookie: u64) -> Option<Entry> {
        let slab = &self.slab;
        let found = self.index.find_entry(hash(cookie), |slot| slab[*slot as usize].cookie == cookie).ok()?;
        let (slot, _) = found.remove();
        self.free.push(slot);
        let entry = self.slab[slot as usize];
        self.slab[slot as usize].cookie = 0;
        Some(entry)
    }

    /// Drops the entries that `keep` refuses.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&mut Entry) -> bool) {
        for slot in 0..self.slab.len() {
            let entry = &mut self.slab[slot];
            if entry.cookie != 0 && !keep(entry) {
                let cookie = entry.cookie;
                self.remove(cookie);
            }
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slab.iter().filter(|e| e.cookie != 0)
    }

    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.slab.iter_mut().filter(|e| e.cookie != 0)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.slab.capacity() * size_of::<Entry>() + self.free.capacity() * 4 + self.index.allocation_size()
    }

    pub(super) fn is_valid(&self) -> bool {
        self.slab.len() == self.index.len() + self.free.len()
            && self.free.iter().all(|slot| self.slab[*slot as usize].cookie == 0)
            && self.entries().all(|e| {
                let found = self.index.find(hash(e.cookie), |slot| self.slab[*slot as usize].cookie == e.cookie);
                found.is_some_and(|slot| core::ptr::eq(&self.slab[*slot as usize], e))
            })
    }

    fn slot(&self, cookie: u64) -> Option<u32> {
        if self.slab.get(self.next as usize).is_some_and(|e| e.cookie == cookie) {
            return Some(self.next);
        }
        self.index.find(hash(cookie), |slot| self.slab[*slot as usize].cookie == cookie).copied()
    }
}
