//! The ring by which a packet socket hands over frames: slots of memory that the kernel fills, TPACKET_V2. Read first: the
//! kernel's Documentation/networking/packet_mmap.rst, linux/if_packet.h and `tpacket_rcv` in net/packet/af_packet.c.
//!
//! Not TPACKET_V3, which packs frames of any length into blocks: a block is handed over when it is full or old, so a lone frame
//! was seen after 0.9 ms at best (Linux 6.18, a block's age of 1 ms), which is a switch's whole delay several times.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use weirgate_port::{Checksum, Offload, Packet};

use super::mapping::Mapping;

/// Bytes of a slot: its header, the virtio header, and the longest frame of [`crate::tap::FRAME_MAX`] with room to spare.
const SLOT: usize = 66_560;

/// Bytes that the kernel allocates at once: the least power of two that slots fill to 95 %.
const BLOCK: usize = 1 << 20;

const SLOTS_PER_BLOCK: usize = BLOCK / SLOT;

/// 480 slots in 32 MB: at 10 Gbit/s of frames of 1,500 bytes, 0.6 ms; of super-packets, 25 ms.
const BLOCKS: usize = 32;

const SLOTS: usize = BLOCKS * SLOTS_PER_BLOCK;

/// `struct tpacket2_hdr`.
const HEADER: usize = 32;

/// What to ask PACKET_RX_RING for.
pub(super) const REQUEST: libc::tpacket_req = libc::tpacket_req {
    tp_block_size: BLOCK as u32,
    tp_block_nr: BLOCKS as u32,
    tp_frame_size: SLOT as u32,
    tp_frame_nr: SLOTS as u32,
};

/// The ring of one socket.
#[derive(Debug)]
pub(super) struct Ring {
    map: Mapping,
    next: usize,
}

/// What a slot had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// A frame.
    Frame,
    /// Nothing yet.
    Empty,
    /// A frame that is cut, or whose headers cannot be true.
    Malformed,
}

impl Ring {
    /// Maps the ring that was asked for by [`REQUEST`].
    pub(super) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self { map: Mapping::of_file(socket, BLOCKS * BLOCK, 0)?, next: 0 })
    }

    /// Copies the next frame into `packet`, its VLAN tag put back, and gives its slot back.
    pub(super) fn take(&mut self, packet: &mut Packet) -> Taken {
        let at = self.next / SLOTS_PER_BLOCK * BLOCK + self.next % SLOTS_PER_BLOCK * SLOT;
        let status: &AtomicU32 = self.map.word(at).expect("slots are inside of the ring, and aligned");
        // What the kernel wrote before it wrote the status is seen after.
        let now = status.load(Ordering::Acquire);
        if now & libc::TP_STATUS_USER == 0 {
            return Taken::Empty;
        }
        let taken = match copy(&self.map, at, now, packet) {
            Some(()) => Taken::Frame,
            None => Taken::Malformed,
        };
        // The copy is done before the kernel sees that it may write again.
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % SLOTS;
        taken
    }
}

/// Copies the frame in the slot at `at`. `None` where it is cut or cannot be.
fn copy(map: &Mapping, at: usize, status: u32, packet: &mut Packet) -> Option<()> {
    let mut header = [0; HEADER];
    map.read(at, &mut header)?;
    let place = Place::read(&header, status)?;
    let mut virtio = [0; Offload::LEN_SHORT];
    map.read(at + place.frame - virtio.len(), &mut virtio)?;
    let offload = Offload::from_bytes(&virtio, place.len).ok()?;
    let into = packet.buffer_mut();
    let (len, offload) = match place.tag {
        None => {
            map.read(at + place.frame, into.get_mut(..place.len)?)?;
            (place.len, offload)
        }
        Some(tag) => {
            map.read(at + place.frame, into.get_mut(..MACS)?)?;
            into.get_mut(MACS..MACS + TAG)?.copy_from_slice(&tag);
            map.read(at + place.frame + MACS, into.get_mut(MACS + TAG..place.len + TAG)?)?;
            (place.len + TAG, behind_tag(offload)?)
        }
    };
    packet.set_len(len);
    packet.set_offload(offload);
    Some(())
}

/// Bytes of the two addresses that a frame begins with, and of a VLAN tag, which follows them.
const MACS: usize = 12;
const TAG: usize = 4;

/// Where in its slot a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Its first byte, from the slot's.
    frame: usize,
    len: usize,
    /// The VLAN tag that the kernel took out of it.
    tag: Option<[u8; TAG]>,
}

impl Place {
    /// `None` where the frame is cut, has not even its addresses, or lies outside of its slot.
    fn read(header: &[u8; HEADER], status: u32) -> Option<Self> {
        let long =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize;
        let short = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let (len, held, frame) = (long(4), long(8), usize::from(short(12)));
        let inside = frame >= HEADER + Offload::LEN_SHORT && frame + held <= SLOT;
        if held != len || len < MACS || !inside {
            return None;
        }
        let tag = (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| {
            let told = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
            // Kernels before 3.14 do not say which kind of tag it was.
            let kind = if told { short(26) } else { 0x8100 };
            let ([k0, k1], [t0, t1]) = (kind.to_be_bytes(), short(24).to_be_bytes());
            [k0, k1, t0, t1]
        });
        Some(Self { frame, len, tag })
    }
}

/// What is said of a frame, once a tag stands before what it is said of.
fn behind_tag(mut offload: Offload) -> Option<Offload> {
    if let Checksum::Partial { start, .. } = &mut offload.checksum {
        *start = start.checked_add(TAG as u16)?;
    }
    if offload.header_len != 0 {
        offload.header_len = offload.header_len.checked_add(TAG as u16)?;
    }
    Some(offload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(len: u32, held: u32, mac: u16) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[4..8].copy_from_slice(&len.to_ne_bytes());
        header[8..12].copy_from_slice(&held.to_ne_bytes());
        header[12..14].copy_from_slice(&mac.to_ne_bytes());
        header[24..26].copy_from_slice(&7_u16.to_ne_bytes());
        header[26..28].copy_from_slice(&0x88a8_u16.to_ne_bytes());
        header
    }

    #[test]
    fn slots_are_as_the_kernel_wants_them_and_take_the_longest_frame() {
        assert!(SLOT.is_multiple_of(libc::TPACKET_ALIGNMENT) && BLOCK.is_multiple_of(4_096));
        assert_eq!(REQUEST.tp_block_size / REQUEST.tp_frame_size * REQUEST.tp_block_nr, REQUEST.tp_frame_nr);
        // TPACKET2_HDRLEN, the least of what stands before a frame, and the virtio header, each rounded up.
        const { assert!(libc::TPACKET2_HDRLEN + 16 + 2 * 16 + crate::tap::FRAME_MAX <= SLOT) };
        assert_eq!(size_of::<libc::tpacket2_hdr>(), HEADER);
    }

    #[test]
    fn frames_that_are_cut_short_or_outside_are_none() {
        let known = libc::TP_STATUS_VLAN_VALID;
        let place = Place { frame: 82, len: 60, tag: None };
        assert_eq!(Place::read(&header(60, 60, 82), libc::TP_STATUS_USER), Some(place));
        assert_eq!(
            Place::read(&header(60, 60, 82), known).expect("a frame").tag,
            Some([0x81, 0, 0, 7]),
            "of the common kind"
        );
        let told = known | libc::TP_STATUS_VLAN_TPID_VALID;
        assert_eq!(Place::read(&header(60, 60, 82), told).expect("a frame").tag, Some([0x88, 0xa8, 0, 7]));
        assert_eq!(Place::read(&header(61, 60, 82), 0), None, "cut");
        assert_eq!(Place::read(&header(11, 11, 82), 0), None, "no addresses");
        assert_eq!(Place::read(&header(60, 60, 41), 0), None, "before the slot's data");
        assert_eq!(Place::read(&header(66_500, 66_500, 82), 0), None, "after its end");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever the header says, what is read is inside of the slot.
        #[test]
        fn a_frame_is_inside_of_its_slot(header: [u8; HEADER], len in 0_u32..70_000, same: bool, status: u32) {
            let mut header = header;
            if same {
                header[4..8].copy_from_slice(&len.to_ne_bytes());
                header[8..12].copy_from_slice(&len.to_ne_bytes());
            }
            if let Some(place) = Place::read(&header, status) {
                prop_assert!(place.frame >= HEADER + Offload::LEN_SHORT && place.frame + place.len <= SLOT);
                prop_assert!(place.len >= MACS);
            }
        }
    }
}
