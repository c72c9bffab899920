//! Whether input that is collected has waited for who sends it, or only for its thread, which had other things to do.
//!
//! A slow page's first byte is not held back. But a server's worker with many connections comes back to one of them when it was at all others:
//! by the clock every body is slow then, and nobody is but the worker. What tells them apart is for how long the thread had nothing to do:
//! the time that has passed, less the processor time that it took meanwhile. That is a call to the system, and is made only where the clock
//! says that something is late; what it says holds until the thread could have had nothing to do for long enough, had it stopped then.

/// For how long input is collected while its thread has nothing to do, in nanoseconds.
const IDLE_MAX: u64 = 5_000_000;

/// And for how long at all.
const WAIT_MAX: u64 = 500_000_000;

/// Times are remembered that lie so far apart, and so many of them that one is older than the longest wait.
const APART: u64 = 16_000_000;
const KEPT: usize = 32;

/// A thread's memory of how busy it was.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// When it was asked, and the thread's processor time then; 0: not yet.
    seen: [(u64, u64); KEPT],
    next: usize,
}

impl Late {
    /// Until when what is there since `since` may wait for more; `None`: at `now` it has waited long enough. `busy`: the thread's processor
    /// time, in nanoseconds.
    pub(crate) fn until(&mut self, since: u64, now: u64, busy: fn() -> u64) -> Option<u64> {
        if now <= since.saturating_add(IDLE_MAX) {
            return Some(since.saturating_add(IDLE_MAX));
        }
        let busy = busy();
        let before = self.seen.iter().filter(|(at, _)| (1..=since).contains(at)).max();
        let idle = before.map(|(at, then)| (now - at).saturating_sub(busy.saturating_sub(*then)));
        let (latest, _) = self.seen[(self.next + KEPT - 1) % KEPT];
        if now.saturating_sub(latest) >= APART {
            self.seen[self.next] = (now, busy);
            self.next = (self.next + 1) % KEPT;
        }
        let (idle, last) = (idle?, since.saturating_add(WAIT_MAX));
        (idle <= IDLE_MAX && now <= last).then(|| (now + (IDLE_MAX - idle)).min(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn is_late(late: &mut Late, since: u64, now: u64, busy: fn() -> u64) -> bool {
        late.until(since, now, busy).is_none()
    }

    #[test]
    fn who_waits_for_nothing_to_do_is_late_after_five_milliseconds() {
        let mut late = Late::default();
        assert_eq!(late.until(100 * MS, 103 * MS, || 0), Some(105 * MS));
        assert!(!is_late(&mut late, 100 * MS, 105 * MS, || 0));
        assert!(is_late(&mut late, 100 * MS, 105 * MS + 1, || 0));
        assert!(is_late(&mut late, 200 * MS, 210 * MS, || 4 * MS), "most of the time since the last one it slept");
    }

    #[test]
    fn a_busy_thread_is_waited_for_and_not_for_ever() {
        let mut late = Late::default();
        assert!(is_late(&mut late, 100 * MS, 120 * MS, || 20 * MS), "nothing is known yet");
        // Of 30 ms it had nothing to do for 4, then for 6.
        assert_eq!(late.until(121 * MS, 150 * MS, || 46 * MS), Some(151 * MS));
        assert!(is_late(&mut late, 121 * MS, 152 * MS, || 46 * MS));
        // It is busy all the time from here on.
        let mut at = 160;
        while at < 800 {
            late.until((at - 6) * MS, at * MS, || 0);
            at += 16;
        }
        assert!(is_late(&mut late, 290 * MS, 791 * MS, || u64::MAX), "half a second is enough");
        assert_eq!(late.until(292 * MS, 791 * MS, || u64::MAX), Some(792 * MS), "and no longer");
    }

    /// A child begins with its parent's memory, and a clock of its own.
    #[test]
    fn what_a_parent_knew_makes_a_child_no_busier() {
        let mut late = Late::default();
        late.until(100 * MS, 120 * MS, || 5_000 * MS);
        assert!(is_late(&mut late, 121 * MS, 130 * MS, || MS));
    }
}
