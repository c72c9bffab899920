//! The software switch on real devices: one thread that reads frames, hands them to the [`Bridge`] and sends what it releases.
//!
//! It runs to completion and sleeps when there is nothing to do: until a device has something, a packet's instant comes, a gate
//! opens, or somebody [calls](Handle::call). Asked to [poll](Dataplane::polling), it never sleeps. Several threads, each with a `Dataplane`
//! of its own and a [part](Device::split) of each device's queues, keep limits together
//! ([`SharedLimit`](weirgate_switch::limits::SharedLimit)) and learn addresses together. A queue that a limit gates, or whose backlog is
//! full, is not read, so that who fills it is held back where the [`Device`] can do that.
//!
//! When there is something to do within [`COALESCE`] of the last turn with something to do, it rests after that until so long have passed
//! since the turn began, as a network card coalesces interrupts: whatever comes or is due meanwhile is done in one go. What comes, or is
//! due, less often is never kept waiting: behind a limit of 5 Mbit/s a ping that comes too late for its turn waits for a whole packet
//! more.
//!
//! Ground rules: no device is waited for, so one that is full keeps nobody else waiting; what it has no room for is kept, up to
//! [`UNSENT_MAX`] frames and for [`UNSENT_AGE_MAX`], and then dropped and counted. After [`HOLD_MAX`] there it keeps its sender
//! waiting no longer. A device that fails is let go, which [`Dataplane::failed`] says; what is sent to its port is dropped and counted
//! until somebody [attaches](Dataplane::attach) another.

mod device;
mod guest;
mod impaired;
mod interface;
mod software;
mod thread;
#[cfg(feature = "xdp")]
mod xdp;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;

use weirgate_port::Packet;
use weirgate_switch::bridge::{Bridge, BridgePort};
use weirgate_switch::limits::{LimitId, SourceId};
use weirgate_units::{Bytes, Duration, Instant};

use crate::clock;
use crate::wait::Waiter;

use self::device::is_gone;
pub use self::device::{Device, Received, Sent};
pub use self::impaired::Impaired;
pub use self::interface::open_interface;
pub use self::thread::{Handle, Stopped, spawn};

/// Frames read from one queue before it is the next one's turn.
const TURN: usize = 64;

/// Bytes read from one queue in its turn, but for what the last frame is beyond: one super-packet. 64 of these take three milliseconds
/// from one device to another, in which nothing else would be sent, not even their acknowledgements: behind 10 Gbit/s, senders
/// stood still again and again for want of these.
const TURN_BYTES: Bytes = Bytes::new(48 << 10);

/// The same of one that is read whole, where a limit borrows: a TAP's queue has 1,000 frames at most.
const WHOLE: usize = 4_096;
const WHOLE_BYTES: Bytes = Bytes::new(8 << 20);

/// Memory of frames that nothing holds back, from which on no more is read before they are sent: a frame for all is one for every
/// port.
const LEAVING_MAX: Bytes = Bytes::new(8 << 20);

/// What waits in all of a switch's threads may take so much memory.
pub const MEMORY_MAX: Bytes = Bytes::new(256 << 20);

/// From the beginning of a turn with something to do to the next one, at least, where there is so much to do: 4,000 turns a second, as many
/// as Linux's drivers of Intel's cards allow interrupts of bulk traffic (`bulk_latency` in e1000_main.c).
pub const COALESCE: Duration = Duration::from_micros(250);

/// Frames kept for a device that has no room.
pub const UNSENT_MAX: usize = 1_024;

/// How long they are kept: nobody is held back by them any more, so a guest that is too slow for what it is sent would always have
/// as many of them as there may be, and all that comes would wait behind.
pub const UNSENT_AGE_MAX: Duration = Duration::from_millis(100);

/// How long such a frame keeps its sender's descriptors. A guest that reads, though slowly, so slows down who sends to it; one that
/// does not read would take all descriptors of others, which they need to send to anybody.
pub const HOLD_MAX: Duration = Duration::from_millis(10);

/// Room for the longest frame: 64 KB of IP and an Ethernet header with tags.
const FRAME_MAX: usize = 66_560;

/// What a port did, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Read from the device.
    pub received: u64,
    /// Written to it.
    pub sent: u64,
    /// Read and dropped because they, or what the device says of them, contradict themselves.
    pub malformed: u64,
    /// Read and dropped because their receiver is where they came from, or their sender cannot be.
    pub filtered: u64,
    /// Dropped because the device refused them, or was gone.
    pub refused: u64,
    /// Dropped because the device had no room for long.
    pub unsent: u64,
    /// Dropped by the device, and those before it, before they were read, where it counts them.
    pub lost: u64,
}

impl PortCounters {
    /// These and another thread's of the same port.
    pub const fn and(mut self, other: &Self) -> Self {
        self.received += other.received;
        self.sent += other.sent;
        self.malformed += other.malformed;
        self.filtered += other.filtered;
        self.refused += other.refused;
        self.unsent += other.unsent;
        self.lost += other.lost;
        self
    }
}

struct Port {
    /// What the bridge calls it.
    id: BridgePort,
    device: Option<Box<dyn Device>>,
    /// What holds its queues back.
    gate: Option<LimitId>,
    backlog_max: Bytes,
    /// Why the device was let go, and whether that is to be told to the bridge still.
    failed: Option<io::Error>,
    is_new_failure: bool,
    unsent: VecDeque<Unsent>,
    /// The first of its queues, whose file tells of room, and whether it is watched for that.
    queue: usize,
    watched: bool,
    /// What earlier devices of it have lost.
    lost_before: u64,
    counters: PortCounters,
}

/// A frame that its device had no room for.
struct Unsent {
    packet: Packet,
    since: Instant,
}

struct Queue {
    port: BridgePort,
    number: usize,
    source: SourceId,
    /// Whether it may have something: until it said that it has not.
    ready: bool,
}

/// The switch and its devices.
pub struct Dataplane {
    bridge: Bridge,
    ports: Vec<Port>,
    queues: Vec<Queue>,
    /// The queue that is read first.
    first: usize,
    waiter: Waiter,
    /// The buffer that the next frame is read into.
    scratch: Packet,
    coalesce: Duration,
    /// Whether it never sleeps.
    poll: bool,
    /// The place of its processor among those that the process may use, if its thread keeps to one.
    core: Option<usize>,
    /// Whether this turn read or sent a frame.
    busy: bool,
    /// When the last turn that did was over, with its rest.
    rested: Instant,
    /// When a turn released something last.
    released: Instant,
}

impl Dataplane {
    /// A switch without devices.
    ///
    /// # Errors
    /// Where the process has too many files open.
    pub fn new(bridge: Bridge) -> io::Result<Self> {
        Ok(Self {
            bridge,
            ports: Vec::new(),
            queues: Vec::new(),
            first: 0,
            waiter: Waiter::new()?,
            scratch: Packet::with_capacity(FRAME_MAX),
            coalesce: COALESCE,
            poll: false,
            core: None,
            busy: false,
            rested: Instant::ZERO,
            released: Instant::ZERO,
        })
    }

    /// Rests for so long instead of [`COALESCE`]; zero: not at all, for the price of a wake-up for each packet.
    #[must_use]
    pub fn coalescing(self, time: Duration) -> Self {
        Self { coalesce: time, ..self }
    }

    /// Looks again at once when there is nothing to do, instead of sleeping, and does not rest: what comes is seen sooner by what a
    /// wake-up takes, and its thread takes a whole processor, always.
    #[must_use]
    pub fn polling(self) -> Self {
        Self { poll: true, coalesce: Duration::ZERO, ..self }
    }

    /// Has its thread run on one processor alone: the one of this place, from 0, among those that the process may use.
    #[must_use]
    pub fn on_core(self, core: usize) -> Self {
        Self { core: Some(core), ..self }
    }

    /// Adds a device as a port of the bridge. Its queues are held back by `gate`, and, where that holds back who fills them, by a
    /// backlog of more than `backlog_max`.
    ///
    /// # Errors
    /// Where it cannot be waited for.
    pub fn add_port(
        &mut self,
        device: Box<dyn Device>,
        gate: Option<LimitId>,
        backlog_max: Bytes,
    ) -> io::Result<BridgePort> {
        let port = self.bridge.add_port();
        self.ports.push(Port {
            id: port,
            device: None,
            gate,
            backlog_max,
            failed: None,
            is_new_failure: false,
            unsent: VecDeque::new(),
            queue: self.queues.len(),
            watched: false,
            lost_before: 0,
            counters: PortCounters::default(),
        });
        self.attach(port, device)?;
        Ok(port)
    }

    /// Gives a port another device in place of the one that it has, or has lost; what is counted goes on. It may have more queues
    /// than the last one, or fewer.
    ///
    /// # Errors
    /// Where it cannot be waited for: the port has none then.
    pub fn attach(&mut self, port: BridgePort, device: Box<dyn Device>) -> io::Result<()> {
        let state = &mut self.ports[port.index()];
        state.count_lost();
        state.lost_before = state.counters.lost;
        (state.device, state.watched) = (None, false);
        let backlog_max = device.pushes_back().then_some(state.backlog_max);
        for queue in self.queues.iter_mut().filter(|queue| queue.port == port) {
            queue.ready = false;
        }
        for number in 0..device.queues() {
            let known = self.queues.iter().position(|queue| queue.port == port && queue.number == number);
            let at = known.unwrap_or_else(|| {
                let source = self.bridge.add_source(state.gate, backlog_max);
                self.queues.push(Queue { port, number, source, ready: false });
                self.queues.len() - 1
            });
            if number == 0 {
                state.queue = at;
            }
            if let Some(fd) = device.queue_fd(number) {
                self.waiter.add_edge(fd, at as u64)?;
            }
            // It may have had something before.
            self.queues[at].ready = true;
            self.bridge.handle_ready(self.queues[at].source);
        }
        (state.device, state.failed) = (Some(device), None);
        Ok(())
    }

    /// Takes a port's device from it, as where that has failed; `why` is what [`failed`](Self::failed) says from now on.
    pub fn let_go(&mut self, port: BridgePort, why: io::Error) {
        self.ports[port.index()].fail(why);
    }

    /// Why a port has no device; `None`: it has one.
    pub fn failed(&self, port: BridgePort) -> Option<&io::Error> {
        self.ports[port.index()].failed.as_ref()
    }

    /// The pipeline.
    pub const fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// The pipeline, to change it.
    pub const fn bridge_mut(&mut self) -> &mut Bridge {
        &mut self.bridge
    }

    /// What a port did, and why it has no device.
    pub fn port(&mut self, port: BridgePort) -> (PortCounters, Option<&io::Error>) {
        let dropped = self.bridge.dropped(port);
        let port = &mut self.ports[port.index()];
        port.count_lost();
        let mut counters = port.counters;
        counters.malformed += dropped.malformed;
        counters.filtered += dropped.filtered;
        (counters, port.failed.as_ref())
    }

    /// Has something waited for beside the devices; its token comes out of [`turn`](Self::turn).
    ///
    /// # Errors
    /// Where it cannot be.
    pub fn wait_for(&self, file: impl AsFd, token: u64) -> io::Result<()> {
        self.waiter.add(file, OTHERS + token)
    }

    /// Does what there is to do, then waits for more, at most `patience`, and not at all where it [polls](Self::polling). True: the file of
    /// [`wait_for`](Self::wait_for) has something.
    ///
    /// Steps, each way at most: of every queue that may be read 64 frames or 48 KiB and one super-packet, where a limit
    /// borrows 4,096 or 8 MiB; of what limits release four times as much for each queue, and what nothing holds back to its end (8 MiB and what the last frame is cut into, or sent to).
    ///
    /// # Errors
    /// Where the kernel cannot wait.
    pub fn turn(&mut self, patience: Duration) -> io::Result<bool> {
        let began = clock::boottime();
        let is_calm = began.saturating_since(self.rested) >= self.coalesce;
        self.bridge.balance(began);
        self.busy = false;
        let more = self.read(began);
        self.send();
        let mut now = clock::boottime();
        if self.busy && !more && !is_calm {
            // Releases that come no more often than that are not kept waiting: of a super-packet each half of a millisecond that would be
            // half of the error of a rate over a tenth of a second.
            let due = self.bridge.poll_at().map(|due| due.max(self.released + self.coalesce));
            let rest = due.map_or(began + self.coalesce, |due| due.min(began + self.coalesce)).saturating_since(now);
            if rest > Duration::ZERO {
                std::thread::sleep(rest.to_std());
                now = clock::boottime();
            }
        }
        if self.busy {
            self.rested = now;
        }
        let wait = if more {
            Duration::ZERO
        } else {
            self.deadline(now).map_or(patience, |due| due.saturating_since(now).min(patience))
        };
        if wait > self.coalesce.max(COALESCE) {
            self.bridge.handle_idle();
        }
        let wait = if self.poll { Duration::ZERO } else { wait };
        let mut called = false;
        let Self { waiter, queues, bridge, .. } = self;
        for token in waiter.wait(Some(wait))? {
            match queues.get_mut(usize::try_from(token).unwrap_or(usize::MAX)) {
                Some(queue) => {
                    queue.ready = true;
                    bridge.handle_ready(queue.source);
                }
                None => called = true,
            }
        }
        Ok(called)
    }

    /// Reads a turn's frames of every queue that has some and may be read. True: there is more.
    fn read(&mut self, began: Instant) -> bool {
        let mut more = false;
        let mut now = began;
        let count = self.queues.len();
        for at in 0..count {
            if self.bridge.leaving() >= LEAVING_MAX {
                // Whose turn it would have been is the first to be read when that has left.
                self.first = (self.first + at) % count;
                return true;
            }
            let at = (self.first + at) % count;
            if !self.queues[at].ready {
                continue;
            }
            let Some(allowed) = self.bridge.may_read(now, self.queues[at].source) else { continue };
            let read = self.read_queue(now, at, allowed);
            let Queue { source, ready, .. } = self.queues[at];
            self.bridge.handle_read(now, source, read, ready);
            now = clock::boottime();
            // What a limit or a backlog holds back is not more to do now.
            more |= ready && self.bridge.source_at(source).is_some_and(|at| at <= now);
        }
        more
    }

    /// Reads from one queue until `allowed` bytes were read, a turn is over or it has no more. A turn of one that is
    /// [read whole](Bridge::is_read_whole) is a long one.
    fn read_queue(&mut self, now: Instant, at: usize, allowed: Bytes) -> Bytes {
        let Queue { port, number, source, .. } = self.queues[at];
        let (mut read, mut size) = (Bytes::ZERO, Bytes::ZERO);
        let (turn, turn_bytes) =
            if self.bridge.is_read_whole(source) { (WHOLE, WHOLE_BYTES) } else { (TURN, TURN_BYTES) };
        for _ in 0..turn {
            let state = &mut self.ports[port.index()];
            let Some(device) = &mut state.device else {
                self.queues[at].ready = false;
                break;
            };
            match device.receive(number, &mut self.scratch) {
                Ok(Received::Frame) => {}
                Ok(Received::Empty) => {
                    self.queues[at].ready = false;
                    break;
                }
                Ok(Received::Malformed) => {
                    state.counters.malformed += 1;
                    self.busy = true;
                    continue;
                }
                Err(error) => {
                    state.fail(error);
                    self.queues[at].ready = false;
                    break;
                }
            }
            state.counters.received += 1;
            self.busy = true;
            let packet = self.take();
            size += packet.size();
            read += self.bridge.handle_frame(now, port, Some(source), packet);
            if read >= allowed || size >= turn_bytes || self.bridge.leaving() >= LEAVING_MAX {
                break;
            }
        }
        read
    }

    /// What was read, in a buffer of its size.
    fn take(&mut self) -> Packet {
        if self.scratch.size() > Bytes::new(FRAME_MAX as u64 / 2) {
            return std::mem::replace(&mut self.scratch, Packet::with_capacity(FRAME_MAX));
        }
        let mut packet = Packet::copy_of(self.scratch.bytes());
        packet.set_offload(*self.scratch.offload());
        packet.set_hold(self.scratch.take_hold());
        packet
    }

    fn send(&mut self) {
        for port in &mut self.ports {
            port.handle_time();
            self.busy |= port.resend();
        }
        // More than a turn's reading brings, unless it is flooded; whoever waits to be read has his turn, too.
        let turns = 4 * self.queues.len().max(1);
        let (most, most_bytes) = (TURN * turns, Bytes::new(TURN_BYTES.as_u64() * turns as u64));
        let mut now = clock::boottime();
        let (mut sent, mut size) = (0_usize, Bytes::ZERO);
        while let Some((to, mut packet)) = self.bridge.poll_frame(now) {
            size += packet.size();
            let port = &mut self.ports[to.index()];
            if !port.unsent.is_empty() || !port.send(&mut packet) {
                if port.unsent.len() < UNSENT_MAX {
                    port.unsent.push_back(Unsent { packet, since: now });
                } else {
                    port.counters.unsent += 1;
                }
            }
            self.busy = true;
            self.released = now;
            sent += 1;
            // A clock read per frame: a pause of the machine then moves one frame out of its window, not a batch of them.
            now = clock::boottime();
            if (sent >= most || size >= most_bytes) && !self.bridge.is_leaving() {
                break;
            }
        }
        for port in &mut self.ports {
            port.flush();
            port.watch_room(&self.waiter);
            if std::mem::take(&mut port.is_new_failure) {
                self.bridge.handle_gone(port.id);
            }
        }
    }

    fn deadline(&self, now: Instant) -> Option<Instant> {
        // Held back before, some may be open now: what waited of them may just have been sent.
        let ready = self.queues.iter().filter(|queue| queue.ready);
        let gates = ready.filter_map(|queue| self.bridge.source_at(queue.source));
        let devices = self.ports.iter().filter_map(|port| port.device.as_ref()?.poll_at());
        let bridge = self.bridge.poll_at().into_iter().chain(self.bridge.balance_at(now));
        gates.chain(devices).chain(bridge).chain(self.unsent_at()).min()
    }

    /// A device that had no room is asked again, where its file does not tell before that there is some, and lets go of holds.
    fn unsent_at(&self) -> Option<Instant> {
        let full = self.ports.iter().any(|port| !port.unsent.is_empty());
        full.then(|| clock::boottime() + HOLD_MAX)
    }
}

impl std::fmt::Debug for Dataplane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dataplane")
            .field("ports", &self.ports.len())
            .field("bridge", &self.bridge)
            .finish_non_exhaustive()
    }
}

/// Tokens from here on are not queues.
const OTHERS: u64 = 1 << 32;

impl Port {
    /// False: there is no room for it now.
    fn send(&mut self, packet: &mut Packet) -> bool {
        let Some(device) = &mut self.device else {
            self.counters.refused += 1;
            return true;
        };
        match device.send(packet) {
            Ok(Sent::Yes) => self.counters.sent += 1,
            Ok(Sent::Full) => return false,
            Err(error) => self.refuse(error),
        }
        true
    }

    /// Offers it again what it had no room for, and gives up what is too old; whether it took some.
    fn resend(&mut self) -> bool {
        let before = self.unsent.len();
        while let Some(mut unsent) = self.unsent.pop_front() {
            if !self.send(&mut unsent.packet) {
                self.unsent.push_front(unsent);
                break;
            }
        }
        let took = self.unsent.len() < before;
        if self.unsent.is_empty() {
            return took;
        }
        let now = clock::boottime();
        while self.unsent.pop_front_if(|unsent| unsent.since + UNSENT_AGE_MAX <= now).is_some() {
            self.counters.unsent += 1;
        }
        for unsent in self.unsent.iter_mut().take_while(|unsent| unsent.since + HOLD_MAX <= now) {
            unsent.packet.set_hold(None);
        }
        took
    }

    fn flush(&mut self) {
        let Some(device) = &mut self.device else { return };
        if let Err(error) = device.flush() {
            self.hear(error);
        }
    }

    /// One that is down, or a frame that it will not have, is nothing to end for.
    fn refuse(&mut self, error: io::Error) {
        self.counters.refused += 1;
        self.hear(error);
    }

    /// An error that cost no frame.
    fn hear(&mut self, error: io::Error) {
        if is_gone(&error) {
            self.fail(error);
        }
    }

    /// Has the device's file tell of room while something waits for it.
    fn watch_room(&mut self, waiter: &Waiter) {
        let watch = !self.unsent.is_empty();
        let file = self.device.as_ref().and_then(|device| device.queue_fd(0));
        if let (true, Some(file)) = (watch != self.watched, file) {
            // Where it cannot be, it is asked again in 10 ms.
            let _ = waiter.watch_room(file, self.queue as u64, watch);
            self.watched = watch;
        }
    }

    fn count_lost(&mut self) {
        if let Some(device) = &mut self.device {
            self.counters.lost = self.lost_before + device.lost();
        }
    }

    fn handle_time(&mut self) {
        let Some(device) = &mut self.device else { return };
        let now = clock::boottime();
        if device.poll_at().is_some_and(|due| due <= now)
            && let Err(error) = device.handle_time(now)
        {
            self.hear(error);
        }
    }

    fn fail(&mut self, error: io::Error) {
        self.count_lost();
        self.is_new_failure |= self.device.take().is_some();
        self.failed = Some(error);
    }
}
