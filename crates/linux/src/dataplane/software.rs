//! What a device will not do, done here: super-packets cut, checksums finished.

use std::io;

use weirgate_port::{Offload, Packet};
use weirgate_switch::frame::{Frame, Segments, Sums, checksum};

use super::device::Sent;

/// How many frames [`in_software`] makes of `packet` at most: its headers count as payload.
pub(super) fn frames_of(packet: &Packet) -> usize {
    let bytes = packet.bytes().len();
    packet.offload().gso.map_or(1, |gso| bytes.div_ceil(usize::from(gso.size.get())))
}

/// Sends `packet` by `put` as it goes on the wire, in as many frames as that takes; bounded by the packet's length. Where there is
/// no room for the first of them, [`Sent::Full`]; where the room ends in the middle, the rest is lost, as on a wire.
///
/// # Errors
/// Where its headers do not allow it, and what `put` says.
pub(super) fn in_software(
    packet: &mut Packet,
    mut put: impl FnMut(&[u8], &Offload) -> io::Result<Sent>,
) -> io::Result<Sent> {
    if packet.offload().gso.is_none() {
        let mut offload = *packet.offload();
        if !checksum::finish(packet.bytes_mut(), &mut offload) {
            return Err(io::Error::other("a checksum outside of the frame"));
        }
        packet.set_offload(offload);
        return put(packet.bytes(), &offload);
    }
    let frame = Frame::ethernet(packet.bytes()).map_err(io::Error::other)?;
    let pieces =
        Segments::new(packet.bytes(), &frame, packet.offload(), 1, Sums::Software).map_err(io::Error::other)?;
    for (at, piece) in pieces.enumerate() {
        let piece = piece.packet();
        match (put(piece.bytes(), piece.offload())?, at) {
            (Sent::Yes, _) => {}
            (Sent::Full, 0) => return Ok(Sent::Full),
            (Sent::Full, _) => return Err(io::Error::other("no room for the rest of a super-packet")),
        }
    }
    Ok(Sent::Yes)
}
