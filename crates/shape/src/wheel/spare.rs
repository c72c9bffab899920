//! Empty lists, kept for their room: a block's list grows as time comes nearer to it, and most of that would be copying.
//!
//! A block far ahead gets a short one. When it has filled that, it gets a long one, whose memory the sorting has just read: long ones
//! for all blocks would lie in pages of their own, and each touch of one of these misses.

use super::{List, ROOM_MAX};

/// Room of a new list.
const NEW: usize = 32;

/// A list with more room than this is a long one.
const LONG: usize = 256;

/// Lists of either kind that are kept.
const KEPT_MAX: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Spare<T> {
    short: Vec<List<T>>,
    long: Vec<List<T>>,
}

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self { short: Vec::new(), long: Vec::new() }
    }
}

impl<T> Spare<T> {
    /// An empty list for a block's first item.
    pub(super) fn take(&mut self) -> List<T> {
        self.short.pop().unwrap_or_else(|| Vec::with_capacity(NEW))
    }

    /// Moves a short list that is full into a long one, if there is one.
    pub(super) fn lengthen(&mut self, list: &mut List<T>) {
        if list.len() >= LONG
            && let Some(mut long) = self.long.pop()
        {
            long.append(list);
            self.keep(core::mem::replace(list, long));
        }
    }

    /// Keeps an empty list.
    pub(super) fn keep(&mut self, list: List<T>) {
        let room = list.capacity();
        let kept = if room > LONG { &mut self.long } else { &mut self.short };
        if (NEW..=ROOM_MAX).contains(&room) && kept.len() < KEPT_MAX {
            kept.push(list);
        }
    }
}
