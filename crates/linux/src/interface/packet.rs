//! An interface by packet sockets: frames come through a [ring](super::ring), and go by a call each. Super-packets and unfinished
//! checksums pass whole in both directions (PACKET_VNET_HDR); where the interface cannot do what they ask for, the kernel does.
//! Read first: packet(7), and net/packet/af_packet.c.
//!
//! A call for each frame that is sent, and no send ring (PACKET_TX_RING): with a veth pair's other end on the same host, a frame
//! of 65,000 bytes took 5.0 us of processor time by a call and 9.2 us by the ring, whose pages are copied there once more; one
//! of 1,514 bytes 1.9 and 1.4 us (Linux 6.18, batches of 32).
//!
//! What comes while the ring is full is dropped by the kernel, and counted ([`PacketPort::lost`]).

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use weirgate_port::{Offload, Packet};
use weirgate_units::Instant;

use super::ring::{REQUEST, Ring, Taken};
use super::{Interface, InterfaceError, LOOK_EVERY, bind, gone, set};
use crate::netns::Netns;

/// What the socket may have on its way out, in bytes as the kernel counts them: a millisecond of 10 Gbit/s, and a super-packet's
/// overhead several times.
const SEND_BUFFER: libc::c_int = 1 << 20;

/// An interface, by one packet socket for each queue. Its promiscuous mode ends when dropped.
#[derive(Debug)]
pub struct PacketPort {
    name: String,
    index: u32,
    queues: Vec<Queue>,
    lost: u64,
    look_at: Instant,
}

#[derive(Debug)]
struct Queue {
    socket: OwnedFd,
    ring: Ring,
}

impl PacketPort {
    /// Opens the interface `name` of `ns` by `queues` sockets (at least one), among which the kernel spreads flows. Each ring
    /// takes 32 MB.
    ///
    /// # Errors
    /// [`InterfaceError`].
    pub fn open(ns: &Netns, name: &str, queues: u16) -> Result<Self, InterfaceError> {
        let interface = Interface::usable(ns, name)?;
        let refused = |(what, source)| InterfaceError::Open { name: name.to_owned(), what, source };
        let mut open: Vec<Queue> = Vec::new();
        let mut group = None;
        for _ in 0..queues.max(1) {
            let socket = socket(ns).map_err(|source| refused(("socket", source)))?;
            prepare(socket.as_fd(), interface.index).map_err(refused)?;
            let ring = Ring::of(socket.as_fd()).map_err(|source| refused(("mmap", source)))?;
            bind(socket.as_fd(), &address(interface.index)).map_err(|source| refused(("bind", source)))?;
            if queues > 1 {
                group = Some(join(socket.as_fd(), group).map_err(|source| refused(("PACKET_FANOUT", source)))?);
            }
            open.push(Queue { socket, ring });
        }
        Ok(Self { name: name.to_owned(), index: interface.index, queues: open, lost: 0, look_at: Instant::ZERO })
    }

    /// Divides its queues among `parts`, for as many threads.
    ///
    /// # Errors
    /// `InvalidInput` where there are more parts than queues: each sends by a queue of its own.
    pub fn split(self, parts: usize) -> io::Result<Vec<Self>> {
        if parts > self.queues.len() {
            let few =
                format!("`{}` has {} queues for {parts} threads: write queues = {parts}", self.name, self.queues.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, few));
        }
        let Self { name, index, queues, look_at, .. } = self;
        let part = || Self { name: name.clone(), index, queues: Vec::new(), lost: 0, look_at };
        let mut split: Vec<Self> = (0..parts).map(|_| part()).collect();
        for (at, queue) in queues.into_iter().enumerate() {
            split[at % parts].queues.push(queue);
        }
        Ok(split)
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many queues it has.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// A queue's socket, to be waited for.
    pub fn queue_fd(&self, queue: usize) -> BorrowedFd<'_> {
        self.queues[queue].socket.as_fd()
    }

    /// Copies the next frame of `queue` into `packet`, which has room for [`crate::tap::FRAME_MAX`]. No system call unless there
    /// is none.
    pub(crate) fn receive(&mut self, queue: usize, packet: &mut Packet) -> Taken {
        self.queues[queue].ring.take(packet)
    }

    /// Sends a frame. The kernel cuts and sums what the interface cannot.
    ///
    /// # Errors
    /// `WouldBlock` where as much as may be is on its way out; `ENOBUFS` where the interface's queue has no room; `ENETDOWN`;
    /// `EMSGSIZE` where the frame is longer than the interface takes; `EINVAL` where its header contradicts it.
    pub fn send(&self, offload: &Offload, frame: &[u8]) -> io::Result<()> {
        let header = offload.to_bytes(0);
        let parts = [IoSlice::new(&header[..Offload::LEN_SHORT]), IoSlice::new(frame)];
        rustix::io::writev(&self.queues[0].socket, &parts).map(drop).map_err(Into::into)
    }

    /// Frames that the kernel had no room for in the ring, since the start.
    pub fn lost(&mut self) -> u64 {
        for queue in &self.queues {
            let mut counted = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
            let mut len = size_of_val(&counted) as libc::socklen_t;
            // SAFETY: PACKET_STATISTICS writes at most `len` bytes, a `struct tpacket_stats`, into `counted`; both outlive the call.
            let told = unsafe {
                libc::getsockopt(
                    queue.socket.as_raw_fd(),
                    libc::SOL_PACKET,
                    libc::PACKET_STATISTICS,
                    (&raw mut counted).cast(),
                    &raw mut len,
                )
            };
            // Being asked sets the kernel's counter back.
            if told == 0 {
                self.lost += u64::from(counted.tp_drops);
            }
        }
        self.lost
    }

    /// Looks whether the interface is still there, when it is time to.
    ///
    /// # Errors
    /// `NotFound` where it is gone.
    pub fn handle_time(&mut self, now: Instant) -> io::Result<()> {
        if now < self.look_at {
            return Ok(());
        }
        self.look_at = now + LOOK_EVERY;
        let mut address = address(0);
        let mut len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: getsockname writes at most `len` bytes, a `struct sockaddr_ll`, into `address`; both outlive the call.
        let told =
            unsafe { libc::getsockname(self.queues[0].socket.as_raw_fd(), (&raw mut address).cast(), &raw mut len) };
        // The socket of an interface that was removed is bound to number -1.
        if told == 0 && u32::try_from(address.sll_ifindex) == Ok(self.index) { Ok(()) } else { Err(gone(&self.name)) }
    }

    /// When to look again.
    pub const fn poll_at(&self) -> Instant {
        self.look_at
    }
}

/// A packet socket that receives nothing until it is bound.
fn socket(ns: &Netns) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    ns.within(|| {
        // SAFETY: socket takes numbers only.
        let socket = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave it, so that nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(socket) })
    })?
}

fn prepare(socket: BorrowedFd<'_>, index: u32) -> Result<(), (&'static str, io::Error)> {
    let one: libc::c_int = 1;
    let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
    let promiscuous = libc::packet_mreq {
        mr_ifindex: index as libc::c_int,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    let packet = libc::SOL_PACKET;
    set(socket, packet, libc::PACKET_VERSION, &version).map_err(|e| ("PACKET_VERSION", e))?;
    // Before the ring, whose slots are laid out by it.
    set(socket, packet, libc::PACKET_VNET_HDR, &one).map_err(|e| ("PACKET_VNET_HDR", e))?;
    set(socket, packet, libc::PACKET_RX_RING, &REQUEST).map_err(|e| ("PACKET_RX_RING: 32 MB", e))?;
    // What the host itself sends by the interface is none of the switch's.
    set(socket, packet, libc::PACKET_IGNORE_OUTGOING, &one).map_err(|e| ("PACKET_IGNORE_OUTGOING, Linux 4.20", e))?;
    set(socket, packet, libc::PACKET_ADD_MEMBERSHIP, &promiscuous).map_err(|e| ("promiscuous mode", e))?;
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER).map_err(|e| ("SO_SNDBUFFORCE", e))
}

/// Has the sockets of one group share the flows, and gives the group.
fn join(socket: BorrowedFd<'_>, group: Option<u16>) -> io::Result<u16> {
    // In a group it is the group that looks away from what the host sends.
    let how = libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
    let argument = match group {
        None => (how | libc::PACKET_FANOUT_FLAG_UNIQUEID) << 16,
        Some(group) => how << 16 | u32::from(group),
    };
    set(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &(argument as libc::c_int))?;
    let (mut told, mut len) = (0_u32, size_of::<u32>() as libc::socklen_t);
    // SAFETY: PACKET_FANOUT writes at most `len` bytes, an int, into `told`; both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            (&raw mut told).cast(),
            &raw mut len,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(told as u16) }
}

const fn address(index: u32) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}
