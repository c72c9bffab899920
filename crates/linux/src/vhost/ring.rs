//! One ring of a device: a virtqueue with its eventfds, its state, and the chains that are held. Ring states are those of
//! QEMU's docs/interop/vhost-user.rst: stopped or started, disabled or enabled; only started and enabled rings pass data.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::epoll;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use virtio_queue::{Error, QueueT as _};
use weirgate_port::Offload;

use super::split::{Memory, Split};
use super::transmit::Reservation;
use super::{Completion, Counters};

pub(super) struct Ring {
    pub(super) split: Split,
    pub(super) memory: Option<Arc<Memory>>,
    pub(super) features: u64,
    pub(super) counters: Counters,
    /// The frame that is being received; empty where the ring goes the other way.
    pub(super) frame: Box<[u8]>,
    pub(super) reservation: Reservation,
    /// The pair's queue and which ring of it this is.
    id: Id,
    enabled: bool,
    /// Its indices cannot be true: nothing is done until it is set up anew.
    broken: bool,
    kick: Option<File>,
    call: Option<File>,
    /// Changes whenever the ring stops, so that older completions are known as such.
    epoch: u32,
    /// By head: taken and not yet given back.
    held: Box<[bool]>,
}

/// Where a ring's kicks are told.
#[derive(Clone)]
pub(super) struct Id {
    pub(super) queue: u16,
    pub(super) epoll: Arc<OwnedFd>,
    pub(super) token: u64,
}

impl Ring {
    /// A ring of at most `size` entries that receives frames into a buffer of `frame` bytes.
    pub(super) fn new(id: Id, size: u16, frame: usize) -> Result<Self, Error> {
        Ok(Self {
            split: Split::new(size)?,
            memory: None,
            features: 0,
            counters: Counters::default(),
            frame: vec![0; frame].into_boxed_slice(),
            reservation: Reservation::default(),
            id,
            enabled: false,
            broken: false,
            kick: None,
            call: None,
            epoch: 0,
            held: vec![false; usize::from(size)].into_boxed_slice(),
        })
    }

    /// The guest's memory, where data may pass.
    pub(super) fn ready(&self) -> Option<Arc<Memory>> {
        let ready = self.enabled && !self.broken && self.split.is_running();
        if ready { self.memory.clone() } else { None }
    }

    /// Started, enabled or not: the guest's driver uses it.
    pub(super) fn is_started(&self) -> bool {
        self.split.is_running()
    }

    /// Sets what was negotiated.
    pub(super) fn negotiate(&mut self, features: u64) {
        self.features = features;
        self.split.queue().set_event_idx(features & (1 << VIRTIO_RING_F_EVENT_IDX) != 0);
    }

    /// The header's bytes in guest memory: a legacy driver without mergeable buffers leaves `num_buffers` out.
    pub(super) const fn header_len(&self) -> usize {
        let long = 1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_NET_F_MRG_RXBUF;
        if self.features & long != 0 { Offload::LEN } else { Offload::LEN_SHORT }
    }

    /// Whether a frame may be spread over several receive buffers.
    pub(super) const fn mergeable(&self) -> bool {
        self.features & (1 << VIRTIO_NET_F_MRG_RXBUF) != 0
    }

    pub(super) fn enable(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// Takes the eventfd that the guest kicks, in place of the one before.
    pub(super) fn set_kick(&mut self, kick: File) -> std::io::Result<()> {
        self.drop_kick();
        // Edge-triggered: each kick is told once, and the eventfd, which the guest's side could have made block, is never read.
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&*self.id.epoll, &kick, epoll::EventData::new_u64(self.id.token), edge)?;
        self.kick = Some(kick);
        Ok(())
    }

    /// Taken out by hand: the interest does not end with our descriptor, since the other side has one too.
    fn drop_kick(&mut self) {
        if let Some(kick) = self.kick.take() {
            let _ = epoll::delete(&*self.id.epoll, &kick);
        }
    }

    /// Takes the eventfd that signals the guest.
    pub(super) fn set_call(&mut self, call: Option<File>) -> std::io::Result<()> {
        if let Some(call) = &call {
            // A full eventfd must not block the switch; it is a signal as it is.
            rustix::io::ioctl_fionbio(call, true)?;
        }
        self.call = call;
        // What was given back while there was nobody to tell.
        if self.split.is_running() {
            self.tell();
        }
        Ok(())
    }

    /// Starts where the guest's indices stand.
    pub(super) fn start(&mut self) -> Result<(), Error> {
        let memory = self.memory.clone().ok_or(Error::QueueNotReady)?;
        self.broken = false;
        self.split.start(&memory)
    }

    /// Stops, with every held chain given back, so that none is lost to the guest; says which one would have been next.
    pub(super) fn stop(&mut self) -> u16 {
        if let Some(memory) = self.memory.clone().filter(|_| self.split.is_running() && !self.broken) {
            for head in 0..self.held.len() {
                if self.held[head] {
                    self.give_back(&memory, &[(head as u16, 0)]);
                }
            }
            self.signal(&memory);
        }
        self.held.fill(false);
        self.counters.held = 0;
        self.epoch = self.epoch.wrapping_add(1);
        self.split.stop();
        self.drop_kick();
        self.call = None;
        self.split.next_available()
    }

    /// Forgets the front end: as it was made, but for the counters.
    pub(super) fn reset(&mut self) {
        self.stop();
        self.memory = None;
        self.enabled = false;
        self.negotiate(0);
        self.split.queue().reset();
    }

    /// Holds the chain of `head` until it is completed.
    pub(super) fn hold(&mut self, head: u16) {
        self.held[usize::from(head)] = true;
        self.counters.held += 1;
    }

    /// Whether the guest may give this head: it has it, and it is one.
    pub(super) fn may_give(&self, head: u16) -> bool {
        head < self.split.size() && !self.held[usize::from(head)]
    }

    pub(super) const fn completion(&self, head: u16) -> Completion {
        Completion { queue: self.id.queue, head, epoch: self.epoch }
    }

    /// Gives a held chain back, without a signal. Nothing happens where the ring has stopped since: it was given back then.
    pub(super) fn complete(&mut self, completion: &Completion) {
        let known = completion.epoch == self.epoch && self.held.get(usize::from(completion.head)) == Some(&true);
        if !known {
            self.counters.stale += 1;
            return;
        }
        self.held[usize::from(completion.head)] = false;
        self.counters.held -= 1;
        if let Some(memory) = self.memory.clone().filter(|_| !self.broken) {
            self.give_back(&memory, &[(completion.head, 0)]);
        }
    }

    /// Tells the guest of what was completed, where it is to be told.
    pub(super) fn completed(&mut self) {
        if let Some(memory) = self.memory.clone().filter(|_| self.split.is_running() && !self.broken) {
            self.signal(&memory);
        }
    }

    /// Gives chains back, by head and bytes written to them.
    pub(super) fn give_back(&mut self, memory: &Memory, chains: &[(u16, u32)]) {
        let done = self.split.give_back(memory, chains);
        self.believe(done);
    }

    /// Tells the guest of what was given back, where it wants to know.
    pub(super) fn signal(&mut self, memory: &Memory) {
        let wanted = self.split.wants_signal(memory, self.counters.held);
        if self.believe(wanted) == Some(true) {
            self.tell();
        }
    }

    fn tell(&mut self) {
        if let Some(call) = &self.call {
            self.counters.signals += 1;
            // EAGAIN: so many signals unread that it cannot miss them. Other errors: nobody is there.
            let _ = rustix::io::write(call, &1_u64.to_ne_bytes());
        }
    }

    /// The value, or a broken ring: its memory is gone or its indices cannot be true.
    pub(super) fn believe<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        if result.is_err() && !self.broken {
            self.broken = true;
            self.counters.broken_rings += 1;
        }
        result.ok()
    }
}
