//! One AF_XDP socket: a queue of an interface, its memory of chunks and the four rings by which chunks go back and forth. Read
//! first: the kernel's Documentation/networking/af_xdp.rst and linux/if_xdp.h.
//!
//! Chunks of the memory's first half go round for receiving: the fill ring, the kernel, the receive ring, and back once their frame
//! is copied. Those of the second half are for sending: free, the send ring, the kernel, the completion ring, free. Every index and
//! address that comes from the kernel is checked all the same.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use weirgate_port::Packet;

use super::Taken;
use super::mapping::Mapping;
use crate::netns::Netns;

/// Bytes of a chunk: a page, which every kernel and driver takes.
const CHUNK: usize = 4_096;

/// The longest frame: what of a chunk a driver's headroom (XDP_PACKET_HEADROOM) leaves.
pub(super) const FRAME_MAX: usize = CHUNK - 256;

/// Entries of each ring, a power of two, and chunks of each half: 8 MB each. At 10 Gbit/s of frames of 1,500 bytes, 2.5 ms.
const RING: u32 = 2_048;

const HALF: usize = RING as usize * CHUNK;

/// A send call of the kernel's copy mode takes this many frames (TX_BATCH_SIZE in net/xdp/xsk.c).
const BATCH: u32 = 32;

/// A socket, bound to a queue.
#[derive(Debug)]
pub(super) struct Socket {
    file: OwnedFd,
    memory: Mapping,
    fill: Ring,
    received: Ring,
    send: Ring,
    completed: Ring,
    /// Chunks that nothing is in.
    free: Vec<u64>,
    /// Frames that the kernel took to be sent, and dropped.
    lost_sending: u64,
}

impl Socket {
    /// Opens one for `queue` of interface number `index` in `ns`; without copying, where the driver can. `None`: the interface
    /// has no queue of that number, as only 0 is sure to be there.
    pub(super) fn open(ns: &Netns, index: u32, queue: u32) -> Result<Option<Self>, (&'static str, io::Error)> {
        let file = ns.within(open).and_then(|opened| opened).map_err(|e| ("socket", e))?;
        let socket = file.as_fd();
        let memory = Mapping::own(2 * HALF).map_err(|e| ("mmap of 16 MB", e))?;
        let umem = libc::xdp_umem_reg {
            addr: memory.address(),
            len: 2 * HALF as u64,
            chunk_size: CHUNK as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(socket, libc::XDP_UMEM_REG, &umem).map_err(|e| ("XDP_UMEM_REG", e))?;
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING] {
            set(socket, ring, &RING).map_err(|e| ("the size of a ring", e))?;
        }
        let places = offsets(socket).map_err(|e| ("XDP_MMAP_OFFSETS, Linux 5.4", e))?;
        let ring = |at: i64, place, entry| Ring::map(socket, at, place, entry).map_err(|e| ("mmap of a ring", e));
        let mut made = Self {
            fill: ring(libc::XDP_UMEM_PGOFF_FILL_RING as i64, places.fr, ADDRESS)?,
            received: ring(libc::XDP_PGOFF_RX_RING, places.rx, DESCRIPTOR)?,
            send: ring(libc::XDP_PGOFF_TX_RING, places.tx, DESCRIPTOR)?,
            completed: ring(libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64, places.cr, ADDRESS)?,
            free: (0..u64::from(RING)).map(|n| HALF as u64 + n * CHUNK as u64).collect(),
            lost_sending: 0,
            memory,
            file,
        };
        for n in 0..u64::from(RING) {
            made.fill.put(&(n * CHUNK as u64).to_ne_bytes());
        }
        made.fill.publish();
        match bind(made.file.as_fd(), index, queue) {
            Ok(()) => Ok(Some(made)),
            Err(e) if queue > 0 && e.raw_os_error() == Some(libc::EINVAL) => Ok(None),
            Err(e) => Err(("bind", e)),
        }
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Copies the next frame into `packet`, and gives its chunk back. What the frame's sender left undone is not said.
    pub(super) fn take(&mut self, packet: &mut Packet) -> Taken {
        let mut descriptor = [0; DESCRIPTOR];
        if !self.received.get(&mut descriptor) {
            // A driver that has run out of chunks waits to be told that there are some.
            if self.fill.wants_to_be_told() {
                let _ = rustix::net::recv(&self.file, &mut [0; 0][..], rustix::net::RecvFlags::DONTWAIT);
            }
            return Taken::Empty;
        }
        let Some((chunk, place)) = arrived(&descriptor) else { return Taken::Malformed };
        let copied = place.and_then(|place| {
            let into = packet.buffer_mut().get_mut(..place.len())?;
            self.memory.read(place.start, into)?;
            packet.set_len(place.len());
            Some(())
        });
        self.fill.put(&chunk.to_ne_bytes());
        self.fill.publish();
        if copied.is_some() { Taken::Frame } else { Taken::Malformed }
    }

    /// Puts a frame into the send ring; it goes with [`push`](Self::push). False: there is no room now.
    pub(super) fn put(&mut self, frame: &[u8]) -> bool {
        self.reclaim();
        if !self.send.has_room() {
            return false;
        }
        let Some(chunk) = self.free.pop() else { return false };
        let mut descriptor = [0; DESCRIPTOR];
        descriptor[..8].copy_from_slice(&chunk.to_ne_bytes());
        descriptor[8..12].copy_from_slice(&(frame.len() as u32).to_ne_bytes());
        self.memory.write(chunk as usize, frame).expect("a chunk is inside of the memory, and frames are shorter");
        self.send.put(&descriptor);
        true
    }

    /// How many frames [`put`](Self::put) has room for now.
    pub(super) fn room(&mut self) -> usize {
        self.reclaim();
        self.free.len().min(self.send.room() as usize)
    }

    /// Has the kernel send what was put. True: all of it is on its way; false: call again soon. Bounded by the ring's length.
    ///
    /// # Errors
    /// `ENETDOWN` where the interface is down, `ENXIO` where it is gone.
    pub(super) fn push(&mut self) -> io::Result<bool> {
        self.send.publish();
        for _ in 0..=RING / BATCH {
            let before = self.send.left();
            if before == 0 {
                return Ok(true);
            }
            if self.send.wants_to_be_told() {
                match rustix::net::send(&self.file, &[], rustix::net::SendFlags::DONTWAIT) {
                    Ok(_) => {}
                    // A batch is full, or there is no memory or no room below: what is in the ring stays there.
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => {}
                    // The interface has no carrier: the first frame that is not sent is taken from the ring and dropped.
                    Err(rustix::io::Errno::BUSY) => self.lost_sending += u64::from(self.send.left() < before),
                    Err(error) => return Err(error.into()),
                }
            }
            if self.send.left() == before {
                break;
            }
        }
        Ok(self.send.left() == 0)
    }

    /// Frames that were put and that the kernel has not taken.
    pub(super) fn left(&self) -> u32 {
        self.send.left()
    }

    /// Frames that found no chunk, no room in the receive ring, or were too long for a chunk, and those that the kernel took to be
    /// sent and dropped; since the start.
    pub(super) fn lost(&self) -> u64 {
        self.lost_sending
            + rustix::net::sockopt::xdp_statistics(&self.file).map_or(0, |counted| {
                counted.rx_dropped + counted.rx_ring_full.unwrap_or(0) + counted.rx_fill_ring_empty_descs.unwrap_or(0)
            })
    }

    fn reclaim(&mut self) {
        let mut address = [0; ADDRESS];
        while self.completed.get(&mut address) {
            let chunk = u64::from_ne_bytes(address);
            let ours = (HALF as u64..2 * HALF as u64).contains(&chunk) && chunk.is_multiple_of(CHUNK as u64);
            if ours && self.free.len() < RING as usize {
                self.free.push(chunk);
            }
        }
    }
}

/// Bytes of `struct xdp_desc`, and of an address.
const DESCRIPTOR: usize = 16;
const ADDRESS: usize = 8;

/// The chunk that has come, and where the frame in it is; `None` where it is no chunk for receiving. No place where the frame
/// would not be in its chunk, or goes on in another.
fn arrived(descriptor: &[u8; DESCRIPTOR]) -> Option<(u64, Option<Range<usize>>)> {
    let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, o0, o1, o2, o3] = *descriptor;
    let at = usize::try_from(u64::from_ne_bytes([a0, a1, a2, a3, a4, a5, a6, a7])).ok().filter(|at| *at < HALF)?;
    let len = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
    let chunk = at - at % CHUNK;
    let inside = len <= chunk + CHUNK - at && u32::from_ne_bytes([o0, o1, o2, o3]) & libc::XDP_PKT_CONTD == 0;
    Some((chunk as u64, inside.then(|| at..at + len)))
}

/// A ring with one producer and one consumer, of which the kernel is one.
#[derive(Debug)]
struct Ring {
    map: Mapping,
    places: libc::xdp_ring_offset,
    /// Bytes of an entry.
    entry: usize,
    /// This side's index, which runs ahead of what the kernel sees until it is published.
    own: u32,
}

impl Ring {
    fn map(socket: BorrowedFd<'_>, at: i64, places: libc::xdp_ring_offset, entry: usize) -> io::Result<Self> {
        let len = places.desc as usize + RING as usize * entry;
        let ring = Self { map: Mapping::of_file(socket, len, at)?, places, entry, own: 0 };
        let words = [ring.places.producer, ring.places.consumer, ring.places.flags];
        if words.iter().any(|at| ring.map.word(*at as usize).is_none()) {
            return Err(io::Error::other("the ring's indices are outside of it"));
        }
        Ok(ring)
    }

    fn word(&self, at: u64) -> &AtomicU32 {
        self.map.word(at as usize).expect("looked at when it was mapped")
    }

    fn place(&self) -> usize {
        self.places.desc as usize + (self.own % RING) as usize * self.entry
    }

    /// As the consumer: copies the next entry, if there is one, and lets the producer have its place.
    fn get(&mut self, entry: &mut [u8]) -> bool {
        // What the kernel wrote before it moved its index is seen after.
        let there = self.word(self.places.producer).load(Ordering::Acquire).wrapping_sub(self.own);
        // More than all: an index that cannot be.
        if there == 0 || there > RING || self.map.read(self.place(), entry).is_none() {
            return false;
        }
        self.own = self.own.wrapping_add(1);
        self.word(self.places.consumer).store(self.own, Ordering::Release);
        true
    }

    /// As the producer: entries that the consumer has not taken.
    fn left(&self) -> u32 {
        self.own.wrapping_sub(self.word(self.places.consumer).load(Ordering::Acquire))
    }

    fn room(&self) -> u32 {
        RING.saturating_sub(self.left())
    }

    fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// As the producer, where there is room: writes an entry, to be seen once [`published`](Self::publish).
    fn put(&mut self, entry: &[u8]) {
        self.map.write(self.place(), entry).expect("entries are inside of the ring");
        self.own = self.own.wrapping_add(1);
    }

    /// As the producer: lets the consumer see what was put.
    fn publish(&self) {
        self.word(self.places.producer).store(self.own, Ordering::Release);
    }

    /// Whether the kernel does nothing about it until it is called.
    fn wants_to_be_told(&self) -> bool {
        self.word(self.places.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

fn open() -> io::Result<OwnedFd> {
    // SAFETY: socket takes numbers only.
    let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave it, so that nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

fn offsets(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    let none = || libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
    let mut offsets = libc::xdp_mmap_offsets { rx: none(), tx: none(), fr: none(), cr: none() };
    let mut len = size_of_val(&offsets) as libc::socklen_t;
    let (option, into) = (libc::XDP_MMAP_OFFSETS, (&raw mut offsets).cast());
    // SAFETY: XDP_MMAP_OFFSETS writes at most `len` bytes, the offsets, into them; both outlive the call.
    let told = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, into, &raw mut len) };
    if told < 0 {
        return Err(io::Error::last_os_error());
    }
    // Kernels before 5.4 know no flags, and say less.
    if len as usize == size_of_val(&offsets) { Ok(offsets) } else { Err(io::Error::other("too little was said")) }
}

fn bind(socket: BorrowedFd<'_>, index: u32, queue: u32) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    super::bind(socket, &address)
}

fn set<T: Copy>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    super::set(socket, libc::SOL_XDP, option, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn descriptor(at: u64, len: u32, options: u32) -> [u8; DESCRIPTOR] {
        let mut bytes = [0; DESCRIPTOR];
        bytes[..8].copy_from_slice(&at.to_ne_bytes());
        bytes[8..12].copy_from_slice(&len.to_ne_bytes());
        bytes[12..].copy_from_slice(&options.to_ne_bytes());
        bytes
    }

    #[test]
    fn frames_that_leave_their_chunk_are_none() {
        let at = 3 * 4_096 + 256;
        assert_eq!(arrived(&descriptor(at, 60, 0)), Some((3 * 4_096, Some(12_544..12_604))));
        assert_eq!(arrived(&descriptor(at, 3_840, 0)).and_then(|(_, place)| place), Some(12_544..16_384));
        assert_eq!(arrived(&descriptor(at, 3_841, 0)), Some((3 * 4_096, None)));
        assert_eq!(arrived(&descriptor(at, 60, libc::XDP_PKT_CONTD)), Some((3 * 4_096, None)), "goes on elsewhere");
        assert_eq!(arrived(&descriptor(HALF as u64, 60, 0)), None, "a chunk for sending");
        assert_eq!(arrived(&descriptor(u64::MAX, 60, 0)), None);
        assert!(RING.is_power_of_two() && CHUNK.is_power_of_two());
        assert_eq!(size_of::<libc::xdp_desc>(), DESCRIPTOR);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_frame_is_inside_of_its_chunk(at in prop_oneof![0..2 * HALF as u64, any::<u64>()], len: u32, short: bool, options: u32) {
            let len = if short { len % 5_000 } else { len };
            if let Some((chunk, place)) = arrived(&descriptor(at, len, options)) {
                prop_assert!(chunk.is_multiple_of(CHUNK as u64) && chunk < HALF as u64);
                if let Some(place) = place {
                    prop_assert!(place.start >= chunk as usize && place.end <= chunk as usize + CHUNK);
                }
            }
        }
    }
}
