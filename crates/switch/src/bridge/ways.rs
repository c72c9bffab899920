//! Where frames go. Threads that serve queues of the same ports learn addresses together, in one table behind a lock; each remembers
//! what it found there, so that a frame of a pair of addresses that it knows takes neither the lock nor the table.
//!
//! What is remembered holds until anybody's address is new, moves or is forgotten, which a number tells all threads, and for a second at
//! most: so often an address that sends is noted in the table as heard of. A second is nothing beside the five minutes after which
//! it would be forgotten there, and may be forgotten as much later.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weirgate_units::{Duration, Instant};

use super::BridgePort;
use crate::frame::{Link, Mac};
use crate::macs::{AGE_MAX, Decision, Learnt, Macs, MacsFull};

/// MAC addresses that are learnt at most, over all ports.
const MACS_MAX: u32 = 16_384;

/// For so long a thread believes what it remembers.
const FRESH: Duration = Duration::from_secs(1);

/// Pairs of addresses that a thread remembers: 10 KiB.
const SEEN: usize = 256;

/// A thread's view of the table.
#[derive(Debug)]
pub(super) struct Ways {
    table: Arc<Table>,
    seen: Vec<Option<Seen>>,
}

/// What threads have together.
#[derive(Debug)]
struct Table {
    macs: Mutex<Macs<BridgePort>>,
    /// Raised with each change after which a decision may be another one.
    version: AtomicU64,
}

/// What was decided of a frame.
#[derive(Clone, Copy, Debug)]
struct Seen {
    link: Link,
    port: BridgePort,
    decision: Decision<BridgePort>,
    version: u64,
    until: Instant,
}

impl Ways {
    /// With a table of its own, whose addresses are hashed with `seed`.
    pub(super) fn new(seed: u64) -> Self {
        let macs = Mutex::new(Macs::new(MACS_MAX, AGE_MAX, seed));
        Self { table: Arc::new(Table { macs, version: AtomicU64::new(0) }), seen: vec![None; SEEN] }
    }

    /// With the table of `other`.
    pub(super) fn with(other: &Self) -> Self {
        Self { table: Arc::clone(&other.table), seen: vec![None; SEEN] }
    }

    /// Learns where a frame came from, and says where it goes. Steps: a look, or those of [`Macs::learn`] and [`Macs::decide`].
    pub(super) fn decide(&mut self, now: Instant, port: BridgePort, link: &Link) -> Decision<BridgePort> {
        let seen = &mut self.seen[place(link)];
        let version = self.table.version.load(Ordering::Acquire);
        if let Some(seen) = seen
            && seen.version == version
            && now < seen.until
            && seen.port == port
            && seen.link == *link
        {
            return seen.decision;
        }
        let mut macs = self.table.lock();
        match macs.learn(now, port, link) {
            // It changes nothing, and is no frame to be remembered.
            Learnt::Refused => return Decision::Filter,
            Learnt::Known => {}
            Learnt::New | Learnt::Moved { .. } => self.table.change(),
        }
        let decision = macs.decide(now, port, link);
        // Of the table as it is: who changes it has the lock.
        let version = self.table.version.load(Ordering::Acquire);
        *seen = Some(Seen { link: *link, port, decision, version, until: now + FRESH });
        decision
    }

    /// See [`Macs::set`].
    pub(super) fn set(&self, mac: Mac, port: BridgePort) -> Result<(), MacsFull> {
        let mut macs = self.table.lock();
        self.table.change();
        macs.set(mac, port)
    }

    /// See [`Macs::forget_port`].
    pub(super) fn forget_port(&self, port: BridgePort) {
        let mut macs = self.table.lock();
        self.table.change();
        macs.forget_port(port);
    }

    /// What always holds; for tests.
    pub(super) fn is_valid(&self) -> bool {
        self.table.lock().is_valid()
    }
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, Macs<BridgePort>> {
        self.macs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called by who has the lock.
    fn change(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// Where a pair of addresses is remembered. Whoever chooses addresses that meet there has frames of his cost what a look at the table costs.
fn place(link: &Link) -> usize {
    let low = |mac: Mac| {
        let [_, _, a, b, c, d] = mac.0;
        u64::from(u32::from_be_bytes([a, b, c, d]))
    };
    let both = low(link.source) << 32 | low(link.destination);
    // The golden ratio's bits; the upper ones of the product depend on all.
    (both.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % SEEN
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mac(n: u8) -> Mac {
        Mac([2, 0, 0, 0, 0, n])
    }

    fn link(source: u8, destination: u8) -> Link {
        Link { destination: mac(destination), source: mac(source), vlan: None, tags: 0 }
    }

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn what_one_thread_learns_the_other_obeys_at_once() {
        let [a, b, c] = [0, 1, 2].map(BridgePort);
        let mut one = Ways::new(7);
        let mut other = Ways::with(&one);
        assert_eq!(one.decide(at(0), a, &link(1, 2)), Decision::Flood);
        assert_eq!(other.decide(at(0), b, &link(2, 1)), Decision::To(a));
        assert_eq!(one.decide(at(1), a, &link(1, 2)), Decision::To(b), "it has appeared");
        assert_eq!(other.decide(at(2), c, &link(2, 1)), Decision::To(a));
        assert_eq!(one.decide(at(3), a, &link(1, 2)), Decision::To(c), "it has moved");
        other.forget_port(c);
        assert_eq!(one.decide(at(4), a, &link(1, 2)), Decision::Flood, "it is gone");
        other.set(mac(2), b).unwrap();
        assert_eq!(one.decide(at(5), a, &link(1, 2)), Decision::To(b), "by hand");
        assert_eq!(one.decide(at(5), c, &link(2, 1)), Decision::Filter, "nobody else may send with it");
    }

    #[test]
    fn who_goes_on_sending_is_not_forgotten_and_who_stopped_is() {
        let [a, b] = [0, 1].map(BridgePort);
        let mut ways = Ways::new(7);
        ways.decide(at(0), b, &link(2, 1));
        for second in 0..=300 {
            assert_eq!(ways.decide(at(second * 1_000), a, &link(1, 2)), Decision::To(b), "after {second} s");
        }
        assert_eq!(ways.decide(at(302_000), a, &link(1, 2)), Decision::Flood);
        assert_eq!(ways.decide(at(302_000), b, &link(3, 1)), Decision::To(a), "it has sent all the time");
    }

    proptest! {
        /// Two threads decide as one table without a memory, where nobody is silent for so long that he would be forgotten.
        #[test]
        fn threads_decide_as_the_table_does(
            frames in prop::collection::vec((any::<bool>(), 0_u16..4, 1_u8..8, 1_u8..8, 0_u64..400, 0_u8..20), 1..300),
        ) {
            let mut one = Ways::new(3);
            let mut other = Ways::with(&one);
            let mut table = Macs::new(MACS_MAX, AGE_MAX, 3);
            let mut now = 0;
            for (is_other, port, source, destination, wait, what) in frames {
                now += wait;
                let port = BridgePort(port);
                let ways = if is_other { &mut other } else { &mut one };
                if what == 0 {
                    ways.forget_port(port);
                    table.forget_port(port);
                }
                let link = link(source, destination);
                let wanted = match table.learn(at(now), port, &link) {
                    Learnt::Refused => Decision::Filter,
                    _ => table.decide(at(now), port, &link),
                };
                prop_assert_eq!(ways.decide(at(now), port, &link), wanted);
                prop_assert!(ways.is_valid());
            }
        }
    }
}
