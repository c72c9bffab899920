//! Datagrams: bytes that go once, for programs that have no use for what comes late (RFC 9221 is QUIC's way of it).
//!
//! Ground rules: what is lost stays lost. Each is for one path, so that those of a flow come in their order, or for any, and then goes by
//! the one that has it there first. One for a path that does not work goes by another. What has waited for longer than [`WAIT_MAX`], or
//! fits no more, is dropped, the oldest first, and counted.

use std::collections::{BTreeMap, VecDeque};

use weirgate_units::{Duration, Instant};

use crate::wire::PathId;

/// A datagram waits no longer for the congestion control of its path.
pub const WAIT_MAX: Duration = Duration::from_millis(100);

/// Bytes that wait at most.
const BYTES_MAX: usize = 4 << 20;

/// What became of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramCounts {
    /// Those that were sent.
    pub sent: u64,
    /// Those that were dropped here.
    pub dropped: u64,
    /// Those that came.
    pub received: u64,
}

/// Why a datagram is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// No path that works takes so many bytes.
    #[error("a datagram may have {max} bytes here")]
    TooLong {
        /// So many may be.
        max: usize,
    },
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    bytes: Vec<u8>,
}

/// Those that wait.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    /// For any path.
    any: VecDeque<Waiting>,
    own: BTreeMap<PathId, VecDeque<Waiting>>,
    bytes: usize,
    pub(crate) counts: DatagramCounts,
}

impl Datagrams {
    /// One more, for this path or for any.
    pub(crate) fn push(&mut self, now: Instant, path: Option<PathId>, bytes: &[u8]) {
        self.bytes += bytes.len();
        let queue = path.map_or(&mut self.any, |path| self.own.entry(path).or_default());
        queue.push_back(Waiting { since: now, bytes: bytes.to_vec() });
        while self.bytes > BYTES_MAX && self.drop_oldest() {}
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.any.is_empty() && self.own.is_empty()
    }

    /// The length of the one that a path is to take next, and whether any other one may.
    pub(crate) fn next(&self, path: PathId) -> Option<(usize, bool)> {
        let own = self.own.get(&path).and_then(VecDeque::front).map(|first| (first.bytes.len(), false));
        own.or_else(|| self.any.front().map(|first| (first.bytes.len(), true)))
    }

    /// For how long the oldest one has waited that is for this path alone.
    pub(crate) fn wait(&self, now: Instant, path: PathId) -> Duration {
        let first = self.own.get(&path).and_then(VecDeque::front);
        first.map_or(Duration::ZERO, |first| now.saturating_since(first.since))
    }

    /// Takes that one.
    pub(crate) fn pop(&mut self, path: PathId) -> Option<Vec<u8>> {
        let own = self.own.get_mut(&path).and_then(VecDeque::pop_front);
        self.own.retain(|_, queue| !queue.is_empty());
        let Waiting { bytes, .. } = own.or_else(|| self.any.pop_front())?;
        self.bytes -= bytes.len();
        self.counts.sent += 1;
        Some(bytes)
    }

    /// Those of paths of which this is not said go by any.
    pub(crate) fn retain_paths(&mut self, works: impl Fn(PathId) -> bool) {
        let gone: Vec<PathId> = self.own.keys().copied().filter(|path| !works(*path)).collect();
        if gone.is_empty() {
            return;
        }
        let freed = gone.into_iter().filter_map(|path| self.own.remove(&path));
        self.any.extend(freed.flatten());
        self.any.make_contiguous().sort_by_key(|waiting| waiting.since);
    }

    /// Drops those that have waited for too long, and those of more than `max(path)` bytes, which nobody takes any more.
    pub(crate) fn handle_time(&mut self, now: Instant, max: impl Fn(Option<PathId>) -> usize) {
        let queues = self.own.iter_mut().map(|(path, queue)| (Some(*path), queue)).chain([(None, &mut self.any)]);
        for (path, queue) in queues {
            let max = max(path);
            let is_late = |first: &Waiting| now.saturating_since(first.since) > WAIT_MAX || first.bytes.len() > max;
            while let Some(first) = queue.front()
                && is_late(first)
            {
                self.bytes -= first.bytes.len();
                self.counts.dropped += 1;
                queue.pop_front();
            }
        }
        self.own.retain(|_, queue| !queue.is_empty());
    }

    /// When [`Self::handle_time`] has something to do.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        let firsts = self.own.values().chain([&self.any]).filter_map(VecDeque::front);
        // Longer than that by the least there is.
        firsts.map(|first| first.since + WAIT_MAX + Duration::from_nanos(1)).min()
    }

    fn drop_oldest(&mut self) -> bool {
        let queues = self.own.values_mut().chain([&mut self.any]);
        let oldest =
            queues.filter(|queue| !queue.is_empty()).min_by_key(|queue| queue.front().map(|first| first.since));
        let Some(first) = oldest.and_then(VecDeque::pop_front) else { return false };
        self.bytes -= first.bytes.len();
        self.counts.dropped += 1;
        self.own.retain(|_, queue| !queue.is_empty());
        true
    }

    /// Whether its sum is that of what waits.
    pub(crate) fn is_valid(&self) -> bool {
        let all = self.own.values().chain([&self.any]).flatten();
        self.bytes == all.map(|waiting| waiting.bytes.len()).sum::<usize>()
            && self.own.values().all(|own| !own.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn each_path_has_its_own_first_and_then_those_for_any() {
        let mut waiting = Datagrams::default();
        let (here, there) = (PathId(0), PathId(1));
        for (ms, path, byte) in [(1, None, 1), (2, Some(here), 2), (3, Some(there), 3), (4, Some(here), 4)] {
            waiting.push(at(ms), path, &[byte; 10]);
        }
        assert_eq!((waiting.next(here), waiting.next(PathId(7))), (Some((10, false)), Some((10, true))));
        assert_eq!([waiting.pop(here), waiting.pop(here), waiting.pop(here)].map(|one| one.unwrap()[0]), [2, 4, 1]);
        waiting.push(at(5), Some(here), &[5; 10]);
        waiting.retain_paths(|path| path == PathId(9));
        assert_eq!([waiting.pop(here), waiting.pop(here)].map(|one| one.unwrap()[0]), [3, 5], "in their order");
        assert!(waiting.is_empty() && waiting.is_valid() && waiting.pop(there).is_none());
        assert_eq!(waiting.counts, DatagramCounts { sent: 5, ..DatagramCounts::default() });
    }

    #[test]
    fn what_waits_too_long_or_fits_no_more_is_dropped_and_counted() {
        let mut waiting = Datagrams::default();
        waiting.push(at(0), None, &[0; 100]);
        waiting.push(at(50), None, &[0; 1_400]);
        waiting.push(at(60), Some(PathId(1)), &[0; 100]);
        waiting.handle_time(at(100), |_| 2_000);
        assert_eq!(waiting.counts.dropped, 0);
        assert!(waiting.poll_at().is_some_and(|due| due > at(100) && due < at(101)));
        waiting.handle_time(at(101), |_| 2_000);
        assert_eq!(waiting.counts.dropped, 1);
        waiting.handle_time(at(101), |path| if path.is_none() { 1_200 } else { 2_000 });
        assert_eq!((waiting.counts.dropped, waiting.next(PathId(1))), (2, Some((100, false))));
        for _ in 0..2 * BYTES_MAX / 1_000 {
            waiting.push(at(102), None, &[0; 1_000]);
        }
        assert!(waiting.is_valid() && waiting.bytes <= BYTES_MAX);
        assert_eq!(waiting.next(PathId(1)), Some((1_000, true)), "the oldest one went first");
    }
}
