//! Into the guest: from the caller to its receive ring.

use virtio_queue::{DescriptorChain, Error};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryBackend as _};
use weirgate_port::Offload;

use super::ring::Ring;
use super::split::Memory;
use super::{FRAME_MAX, HeaderError, Offloads};

/// Why a frame did not go into the guest. It is still the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransmitError {
    /// The guest has given no room for it: try again when [`Events::room`](super::Events::room) is told.
    #[error("the guest's receive ring is full")]
    Full,
    /// No driver is ready there: try again when [`Events::state`](super::Events::state) is told, or drop it.
    #[error("no driver is ready in the guest")]
    Down,
    /// Longer than [`FRAME_MAX`], or than the guest's receive buffers: it never fits.
    #[error("the frame is longer than what the guest takes")]
    TooLong,
    /// The header makes no sense for the frame, or the guest did not agree to do what it leaves to be done.
    #[error("the header cannot be passed on: {0}")]
    Header(HeaderError),
}

/// A place in the guest to write to.
#[derive(Clone, Copy)]
struct Piece {
    address: GuestAddress,
    len: usize,
}

/// Chains set aside for one frame. Kept between frames for its memory: at most a ring's chains, of at most a ring's pieces each.
#[derive(Default)]
pub(super) struct Reservation {
    /// Heads, with the end of their pieces in `pieces`.
    chains: Vec<(u16, usize)>,
    pieces: Vec<Piece>,
    room: usize,
    /// Heads, with the bytes written to each.
    written: Vec<(u16, u32)>,
}

/// What came of setting aside.
enum Reserved {
    Enough,
    /// With the guest's available index, up to which all was looked at.
    TooLittle(u16),
    /// The one buffer that a frame may have is shorter than the frame.
    Never,
    /// The chain taken last cannot be true.
    Lie,
}

impl Ring {
    /// Writes a frame.
    pub(super) fn transmit(&mut self, offload: Offload, frame: &[u8]) -> Result<(), TransmitError> {
        let mut reservation = std::mem::take(&mut self.reservation);
        let result = self.transmit_into(&mut reservation, offload, frame);
        self.reservation = reservation;
        result
    }

    /// Whether so many frames of one chain each, or half of the ring, would find room; if not, a kick is asked for.
    pub(super) fn has_room(&mut self, frames: usize) -> bool {
        let Some(memory) = self.ready() else { return false };
        let wanted = frames.min(usize::from(self.split.size() / 2)) as u16;
        let room = self.split.room(&memory, wanted);
        self.believe(room) == Some(true)
    }

    fn transmit_into(
        &mut self,
        reservation: &mut Reservation,
        offload: Offload,
        frame: &[u8],
    ) -> Result<(), TransmitError> {
        let memory = self.ready().ok_or(TransmitError::Down)?;
        if frame.len() > FRAME_MAX {
            return Err(TransmitError::TooLong);
        }
        let offloads = Offloads::to_guest(self.features);
        // The number of buffers is known once they are set aside, and they are only for a header that is sound.
        let header = |buffers| offloads.write(offload, frame.len(), buffers).map_err(TransmitError::Header);
        header(0)?;
        self.reserve(&memory, reservation, self.header_len() + frame.len())?;
        let header = header(u16::try_from(reservation.chains.len()).unwrap_or(u16::MAX))?;
        if reservation.write(&memory, &header[..self.header_len()], frame).is_none() {
            self.lied(&memory, reservation);
            return Err(TransmitError::Full);
        }
        self.give_back(&memory, &reservation.written);
        self.signal(&memory);
        self.counters.transmitted += 1;
        self.counters.transmitted_bytes += frame.len() as u64;
        Ok(())
    }

    /// Takes chains with room for `wanted` bytes, or none.
    fn reserve(&mut self, memory: &Memory, reservation: &mut Reservation, wanted: usize) -> Result<(), TransmitError> {
        // Each turn is for a lie that was found or for buffers that the guest has just added; a guest that goes on for longer
        // than its ring is long waits for the next call, which its kick will not ask for.
        for _ in 0..=self.split.size() {
            let start = self.split.next_available();
            let result = self.set_aside(memory, reservation, wanted);
            match self.believe(result).ok_or(TransmitError::Down)? {
                Reserved::Enough => {
                    let hushed = self.split.hush(memory);
                    return self.believe(hushed).ok_or(TransmitError::Down);
                }
                Reserved::Lie => self.lied(memory, reservation),
                Reserved::Never => {
                    self.split.rewind(start);
                    return Err(TransmitError::TooLong);
                }
                Reserved::TooLittle(known) => {
                    self.split.rewind(start);
                    let more = self.split.listen(memory, known);
                    if !self.believe(more).ok_or(TransmitError::Down)? {
                        break;
                    }
                }
            }
        }
        self.counters.full += 1;
        Err(TransmitError::Full)
    }

    fn set_aside(&mut self, memory: &Memory, reservation: &mut Reservation, wanted: usize) -> Result<Reserved, Error> {
        reservation.chains.clear();
        reservation.pieces.clear();
        reservation.room = 0;
        while reservation.room < wanted {
            if !reservation.chains.is_empty() && !self.mergeable() {
                return Ok(Reserved::Never);
            }
            let known = self.split.available_end(memory)?;
            let Some(chain) = self.split.pop(memory)? else { return Ok(Reserved::TooLittle(known)) };
            let head = chain.head_index();
            if !self.may_give(head) {
                return Ok(Reserved::Lie);
            }
            let honest = reservation.add(chain, memory, self.header_len());
            reservation.chains.push((head, reservation.pieces.len()));
            if !honest {
                return Ok(Reserved::Lie);
            }
        }
        Ok(Reserved::Enough)
    }

    /// Gives what was set aside back empty.
    fn lied(&mut self, memory: &Memory, reservation: &Reservation) {
        self.counters.bad_chains += 1;
        let empty: Vec<_> = reservation.chains.iter().map(|(head, _)| (*head, 0)).collect();
        self.give_back(memory, &empty);
        self.signal(memory);
    }
}

impl Reservation {
    /// Adds a chain; false where it cannot be true: a descriptor for the device to read, of no length or outside guest memory, a
    /// chain that does not end, or is shorter than a header.
    fn add(&mut self, mut chain: DescriptorChain<&Memory>, memory: &Memory, header_len: usize) -> bool {
        let (mut goes_on, mut room) = (true, 0);
        for descriptor in chain.by_ref() {
            let piece = Piece { address: descriptor.addr(), len: descriptor.len() as usize };
            if !descriptor.is_write_only() || piece.len == 0 || !memory.check_range(piece.address, piece.len) {
                return false;
            }
            self.pieces.push(piece);
            room += piece.len;
            goes_on = descriptor.has_next();
        }
        self.room += room;
        !goes_on && room >= header_len
    }

    /// Writes header and frame into what was set aside, and notes how much is in each chain.
    fn write(&mut self, memory: &Memory, header: &[u8], frame: &[u8]) -> Option<()> {
        self.written.clear();
        let (mut parts, mut start) = ([header, frame], 0);
        for &(head, end) in &self.chains {
            let mut in_chain = 0;
            for &Piece { mut address, mut len } in &self.pieces[start..end] {
                for part in &mut parts {
                    let now = part.len().min(len);
                    memory.write_slice(&part[..now], address).ok()?;
                    *part = &part[now..];
                    (address, len) = (GuestAddress(address.0 + now as u64), len - now);
                    in_chain += now as u32;
                }
            }
            start = end;
            self.written.push((head, in_chain));
        }
        Some(())
    }
}
