//! A virtual machine's network card, of which this process is the device: virtio-net over vhost-user. Read first: virtio 1.2,
//! sections 2.7 (split virtqueues) and 5.1 (network device), and QEMU's docs/interop/vhost-user.rst.
//!
//! QEMU (the front end) hands over the guest's memory and, for each ring, two eventfds, through a Unix socket. That protocol runs
//! on a thread of the device's own. The data path runs on the caller's: [`VhostUser::receive`] takes what the guest sent,
//! [`VhostUser::transmit`] puts frames into it, and both make no system call but the eventfd that tells the guest.
//!
//! **Back-pressure.** A queue that is not read fills up, and the guest's driver then stops it, so that the guest's own TCP waits:
//! nothing is dropped. A single flow is held back by [`Frame::hold`]: its descriptors stay away until the frame has left
//! (Carousel's deferred completion, SIGCOMM 2017), while others' go back before it. The sender in the guest sees its socket
//! buffer stay charged only where its driver frees buffers at completion; Linux's does (`napi_tx`, its default).
//!
//! **Waiting.** Each queue has a file, [`VhostUser::queue_fd`], that never changes, whoever connects. When it is readable, ask
//! [`VhostUser::events`]. Kicks are asked for only where [`VhostUser::receive`] left its ring empty or
//! [`VhostUser::transmit`] found it full, so a queue that is not read wakes nobody more than once.
//!
//! **Trust.** Nothing in guest memory is believed: descriptors that cannot be true are counted and given back, rings whose indices
//! cannot be true stand still until they are set up anew. The front end is believed in one thing: that it does not shrink the
//! file of the guest's memory under us (SIGBUS). Who may connect is decided by owner, group and mode of the socket,
//! which are those of any file that the process makes, until the caller sets others: by a umask of 022 its owner alone may.
//!
//! **Ground rules.** A ring is one mutex, held for one call: threads may serve different queues of one device. [`Frame`]'s callback
//! runs with its transmit ring locked: it may transmit (to any device), but neither receive from nor complete on that queue.
//! Locks are taken in the order transmit ring, receive ring, never the other way.

mod control;
mod held;
mod offloads;
mod receive;
mod ring;
mod serve;
mod shared;
mod split;
mod transmit;

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

pub use held::Held;
pub use offloads::{HeaderError, Offloads};
pub use receive::{FRAME_MAX, Frame};
pub use transmit::TransmitError;
use weirgate_port::Offload;

use held::Dropped;
use serve::{Source, Stop};
use shared::Shared;

/// Most queue pairs of a device: as many as a large guest has processors. Each costs 64 KiB and its ring's bookkeeping.
pub const QUEUES_MAX: u16 = 64;

/// Most entries of a ring: QEMU's own limit (VIRTQUEUE_MAX_SIZE).
pub const RING_MAX: u16 = 1_024;

/// What is to be made.
#[derive(Clone, Debug)]
pub struct VhostOptions {
    /// The Unix socket's path.
    pub socket: PathBuf,
    /// Who waits for whom.
    pub role: Role,
    /// Queue pairs offered: 1 to [`QUEUES_MAX`]. The guest may use fewer.
    pub queues: u16,
    /// Checksums and segmentation that may be left undone, in both directions.
    pub offloads: Offloads,
}

/// Who waits for whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Listens; QEMU connects (`-chardev socket,path=...,reconnect=1`), again whenever one of the two was restarted.
    #[default]
    Listen,
    /// Connects to QEMU (`server=on`), and tries again twice a second while there is none.
    Connect,
}

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum VhostError {
    /// No queues, or too many.
    #[error("{0} queue pairs: use 1 to {QUEUES_MAX}")]
    Queues(u16),
    /// Another process listens there.
    #[error("somebody listens on `{0}` already")]
    InUse(PathBuf),
    /// The socket cannot be made.
    #[error("cannot listen on `{path}`: is there such a folder, and is it writable?")]
    Listen {
        /// The socket's path.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The process has too many files or threads.
    #[error("cannot make the device's files and thread")]
    Resources(#[source] io::Error),
}

/// The device, or a [part](Self::split) of it. Its socket is gone and its frames are given back when all parts are dropped.
pub struct VhostUser {
    shared: Arc<Shared>,
    dropped: Arc<Dropped>,
    own: Range<u16>,
    control: Arc<Control>,
}

/// The thread that speaks the protocol, stopped when this is dropped.
struct Control {
    shared: Arc<Shared>,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// What has happened to a queue since it was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// The guest has sent: [`VhostUser::receive`].
    pub sent: bool,
    /// The guest has given room: [`VhostUser::transmit`] what did not fit.
    pub room: bool,
    /// A ring has started or stopped, or the front end came or went: both of the above may be so.
    pub state: bool,
}

/// What [`VhostUser::receive`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Frames handed over.
    pub frames: usize,
    /// Chains and frames that cannot be true: dropped.
    pub malformed: usize,
    /// There is more, and no kick will tell of it.
    pub more: bool,
}

/// Descriptors kept from the guest: to be given to [`VhostUser::complete`]. Where it is lost, the guest's ring is one shorter until
/// it is set up anew.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the guest waits for its descriptors"]
pub struct Completion {
    queue: u16,
    head: u16,
    epoch: u32,
}

impl Completion {
    /// The queue that the frame came from.
    pub const fn queue(&self) -> u16 {
        self.queue
    }
}

/// What happened, since the device was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames taken from the guest.
    pub received: u64,
    /// Their bytes, without virtio's header.
    pub received_bytes: u64,
    /// Frames put into the guest.
    pub transmitted: u64,
    /// Their bytes, without virtio's header.
    pub transmitted_bytes: u64,
    /// Times that a frame found no room.
    pub full: u64,
    /// Frames whose descriptors are held now.
    pub held: u64,
    /// Completions that came after their ring had stopped, or twice.
    pub stale: u64,
    /// Chains that cannot be true: dropped.
    pub bad_chains: u64,
    /// Frames whose virtio header cannot be true: dropped.
    pub bad_headers: u64,
    /// Rings whose indices cannot be true, or that are outside the guest's memory: they stand still until they are set up anew.
    pub broken_rings: u64,
    /// Times that the guest was told.
    pub signals: u64,
    /// Front ends that have connected.
    pub connections: u64,
    /// Front ends that went without having stopped their rings: a killed QEMU.
    pub vanished: u64,
    /// Front ends that were disconnected for what they said.
    pub protocol_errors: u64,
}

impl VhostUser {
    /// Makes the device and begins to wait for a front end.
    ///
    /// # Errors
    /// [`VhostError`].
    pub fn start(options: &VhostOptions) -> Result<Self, VhostError> {
        if !(1..=QUEUES_MAX).contains(&options.queues) {
            return Err(VhostError::Queues(options.queues));
        }
        let shared = Arc::new(Shared::new(options).map_err(VhostError::Resources)?);
        let source = Source::open(&options.socket, options.role)?;
        let stop = Arc::new(Stop::new().map_err(VhostError::Resources)?);
        let (ours, theirs) = (Arc::clone(&shared), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("vhost-user".to_owned())
            .spawn(move || serve::run(&ours, &source, &theirs))
            .map_err(VhostError::Resources)?;
        let control = Arc::new(Control { shared: Arc::clone(&shared), stop, thread: Some(thread) });
        Ok(Self { shared, dropped: Arc::default(), own: 0..options.queues, control })
    }

    /// Divides its queues among `parts`, for as many threads: each [owns](Self::own) some, those beyond the queues none.
    pub fn split(self, parts: usize) -> Vec<Self> {
        let queues = usize::from(self.queues());
        let part = |at: usize| Self {
            shared: Arc::clone(&self.shared),
            dropped: Arc::default(),
            own: (queues * at / parts) as u16..(queues * (at + 1) / parts) as u16,
            control: Arc::clone(&self.control),
        };
        (0..parts).map(part).collect()
    }

    /// The queues that are this part's to read. All of them can be sent by.
    pub fn own(&self) -> Range<u16> {
        self.own.clone()
    }

    /// Queue pairs offered; queues are numbered from 0. Every method that takes a queue panics beyond.
    pub fn queues(&self) -> u16 {
        self.shared.pairs.len() as u16
    }

    /// A file that is readable when there is something for [`events`](Self::events) to say: for poll or epoll, level-triggered.
    pub fn queue_fd(&self, queue: u16) -> BorrowedFd<'_> {
        self.shared.pairs[usize::from(queue)].epoll.as_fd()
    }

    /// What has happened to `queue` since the last call, which makes its file not readable: one system call.
    pub fn events(&self, queue: u16) -> Events {
        self.shared.pairs[usize::from(queue)].events()
    }

    /// Hands over up to `budget` frames of `queue`, in order, each copied once; those that cannot be true count too, so the work is
    /// bounded by `budget` times [`FRAME_MAX`] bytes. Nothing where no driver is ready.
    ///
    /// Not calling it is what holds the guest's queue back.
    pub fn receive(&self, queue: u16, budget: usize, each: &mut dyn FnMut(&mut Frame<'_>)) -> Received {
        self.shared.transmitq(queue).receive(budget, each)
    }

    /// Gives held frames' descriptors back, in any order; the guest is told once, so give all at once that are due at once. Where a
    /// ring has stopped since, they went back then and nothing happens.
    pub fn complete(&self, completions: impl IntoIterator<Item = Completion>) {
        // Bit n: queue n; there are at most 64.
        let mut queues = 0_u64;
        for completion in completions {
            queues |= 1 << completion.queue;
            self.shared.transmitq(completion.queue).complete(&completion);
        }
        while queues != 0 {
            self.shared.transmitq(queues.trailing_zeros() as u16).completed();
            queues &= queues - 1;
        }
    }

    /// A value that stands for the frame: when it is dropped, on whatever thread, the next
    /// [`complete_dropped`](Self::complete_dropped) gives the descriptors back.
    pub fn held(&self, completion: Completion) -> Held {
        Held::new(completion, Arc::clone(&self.dropped))
    }

    /// [Completes](Self::complete) what was dropped of what is [`held`](Self::held). Cheap where there is nothing.
    pub fn complete_dropped(&self) {
        self.complete(self.dropped.take());
    }

    /// Puts a frame into the guest through `queue`, and tells the guest where it wants to be told. Bounded by the frame's length and the
    /// ring's.
    ///
    /// # Errors
    /// [`TransmitError`]; the frame is the caller's still.
    pub fn transmit(&self, queue: u16, offload: Offload, frame: &[u8]) -> Result<(), TransmitError> {
        self.shared.receiveq(queue).transmit(offload, frame)
    }

    /// Whether so many frames of an ordinary length would find room in the guest now; half of its ring is always enough, so that
    /// more is not waited for in vain. If not, [`Events::room`] will tell.
    pub fn has_room(&self, queue: u16, frames: usize) -> bool {
        self.shared.receiveq(queue).has_room(frames)
    }

    /// Whether a driver in the guest takes frames by `queue`.
    pub fn takes(&self, queue: u16) -> bool {
        self.shared.receiveq(queue).ready().is_some()
    }

    /// Whether a driver in the guest uses `queue`, in both directions.
    pub fn is_up(&self, queue: u16) -> bool {
        self.shared.transmitq(queue).ready().is_some() && self.takes(queue)
    }

    /// What frames to the guest may leave undone, as its driver has agreed; nothing before it has.
    pub fn offloads_to_guest(&self) -> Offloads {
        Offloads::to_guest(self.shared.receiveq(0).features)
    }

    /// What happened, over all queues.
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.tell();
        // Before the front end hears of it: it goes on from where the used rings stand then (QEMU, virtio_queue_restore_last_avail_idx),
        // and what went back later would go back twice.
        self.shared.stop();
        self.stop.hang_up();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for VhostUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VhostUser").field("queues", &self.queues()).field("counters", &self.counters()).finish()
    }
}
