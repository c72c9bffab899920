//! What the control thread and the data path share: the rings, each behind a mutex, and a file per queue that tells of both.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_net::{VIRTIO_NET_F_MQ, VIRTIO_NET_F_MRG_RXBUF};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use weirgate_port::Offload;

use super::ring::{Id, Ring};
use super::{Counters, Events, FRAME_MAX, RING_MAX, VhostOptions};

/// What a queue's file tells of.
const ROOM: u64 = 0;
const SENT: u64 = 1;
const STATE: u64 = 2;

pub(super) struct Shared {
    pub(super) pairs: Box<[Pair]>,
    /// Feature bits offered, virtio's own.
    pub(super) features: u64,
    /// Written when something changed that a caller should look at; every queue's file has it.
    changed: OwnedFd,
    pub(super) connections: AtomicU64,
    pub(super) vanished: AtomicU64,
    pub(super) protocol_errors: AtomicU64,
}

/// A queue pair: rings 2n and 2n + 1, named as the guest sees them.
pub(super) struct Pair {
    receiveq: Mutex<Ring>,
    transmitq: Mutex<Ring>,
    pub(super) epoll: Arc<OwnedFd>,
}

impl Shared {
    pub(super) fn new(options: &VhostOptions) -> io::Result<Self> {
        let changed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let pairs = (0..options.queues).map(|queue| Pair::new(queue, &changed)).collect::<io::Result<_>>()?;
        let mut features = options.offloads.features();
        for bit in [VIRTIO_F_VERSION_1, VIRTIO_NET_F_MRG_RXBUF, VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC] {
            features |= 1 << bit;
        }
        if options.queues > 1 {
            features |= 1 << VIRTIO_NET_F_MQ;
        }
        Ok(Self {
            pairs,
            features,
            changed,
            connections: AtomicU64::new(0),
            vanished: AtomicU64::new(0),
            protocol_errors: AtomicU64::new(0),
        })
    }

    /// The ring into the guest.
    pub(super) fn receiveq(&self, queue: u16) -> MutexGuard<'_, Ring> {
        lock(&self.pairs[usize::from(queue)].receiveq)
    }

    /// The ring out of the guest.
    pub(super) fn transmitq(&self, queue: u16) -> MutexGuard<'_, Ring> {
        lock(&self.pairs[usize::from(queue)].transmitq)
    }

    /// A ring by the protocol's number.
    pub(super) fn ring(&self, index: usize) -> Option<MutexGuard<'_, Ring>> {
        let pair = self.pairs.get(index / 2)?;
        Some(lock(if index.is_multiple_of(2) { &pair.receiveq } else { &pair.transmitq }))
    }

    /// All rings, one after the other.
    pub(super) fn rings(&self) -> impl Iterator<Item = MutexGuard<'_, Ring>> {
        (0..2 * self.pairs.len()).filter_map(|index| self.ring(index))
    }

    /// Stops all rings, what is held given back.
    pub(super) fn stop(&self) {
        for mut ring in self.rings() {
            ring.stop();
        }
    }

    /// Tells every queue's file.
    pub(super) fn changed(&self) {
        // Fails only where it was written 2^64 - 2 times unread: it is told then.
        let _ = rustix::io::write(&self.changed, &1_u64.to_ne_bytes());
    }

    pub(super) fn counters(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut sum = Counters {
            connections: read(&self.connections),
            vanished: read(&self.vanished),
            protocol_errors: read(&self.protocol_errors),
            ..Counters::default()
        };
        for ring in self.rings() {
            let one = ring.counters;
            sum.received += one.received;
            sum.received_bytes += one.received_bytes;
            sum.transmitted += one.transmitted;
            sum.transmitted_bytes += one.transmitted_bytes;
            sum.full += one.full;
            sum.held += one.held;
            sum.stale += one.stale;
            sum.bad_chains += one.bad_chains;
            sum.bad_headers += one.bad_headers;
            sum.broken_rings += one.broken_rings;
            sum.signals += one.signals;
        }
        sum
    }
}

impl Pair {
    fn new(queue: u16, changed: &OwnedFd) -> io::Result<Self> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&*epoll, changed, epoll::EventData::new_u64(STATE), edge)?;
        let ring = |token, frame| {
            let id = Id { queue, epoll: Arc::clone(&epoll), token };
            Ring::new(id, RING_MAX, frame).map(Mutex::new).map_err(io::Error::other)
        };
        let (receiveq, transmitq) = (ring(ROOM, 0)?, ring(SENT, Offload::LEN + FRAME_MAX)?);
        Ok(Self { receiveq, transmitq, epoll })
    }

    pub(super) fn events(&self) -> Events {
        let mut told = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 3];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Nothing where a signal came between: the file stays readable.
        let count = epoll::wait(&*self.epoll, &mut told, Some(&now)).unwrap_or(0);
        let has = |token| told[..count].iter().any(|event| event.data.u64() == token);
        Events { sent: has(SENT), room: has(ROOM), state: has(STATE) }
    }
}

/// A panic in a caller's callback leaves a ring that is valid, though its frame's descriptors stay away.
fn lock(ring: &Mutex<Ring>) -> MutexGuard<'_, Ring> {
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}
