//! What a frame counts for. Read first: IEEE 802.3 sections 3.1.1 (preamble, frame, check sequence) and 4.4.2 (the shortest frame,
//! the gap between frames). Rates that do not say their layer differ by a quarter at small packets.

use weirgate_port::Offload;
use weirgate_units::{Bytes, Packets};

use super::parse::{FRAME_MIN, Frame};

/// The frame check sequence, in bytes.
const FCS: u64 = 4;

/// Preamble and start of frame, 8 bytes, and the gap to the next frame, 12.
const PREAMBLE_AND_GAP: u64 = 20;

/// An Ethernet header without tags, for packets that have none yet.
const ETHERNET_HEADER: u64 = 14;

/// From where on bytes are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layer {
    /// All that the wire is busy with: as [`L2`](Self::L2), and 20 bytes of preamble and inter-frame gap. What "10 Gbit/s" of
    /// Ethernet is.
    L1,
    /// The frame: Ethernet header, VLAN tags, packet, padding to 60 bytes and the frame check sequence of 4.
    L2,
    /// The IP packet by its own length. What a speed test counts, nearly.
    #[default]
    L3,
}

/// How frames are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounting {
    /// From where on.
    pub layer: Layer,
    /// Bytes more for each packet on the wire: what a tunnel or a provider's link puts around it later.
    pub overhead: u16,
}

/// What a frame is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireSize {
    /// How many bytes, as counted.
    pub bytes: Bytes,
    /// In how many packets; never 0.
    pub packets: Packets,
}

impl Accounting {
    /// What the frame comes to. A super-packet comes to the sum of the packets that it is to be cut into, each with headers,
    /// padding and overhead of its own. A packet without an Ethernet header counts at [`Layer::L2`] and [`Layer::L1`] as though
    /// it had one without tags; a frame that is not IP counts at [`Layer::L3`] for all that is behind its Ethernet header.
    /// Constant time.
    pub fn size(&self, frame: &Frame, offload: &Offload) -> WireSize {
        let link = frame.link.as_ref().map_or(0, |link| u64::from(link.header_len()));
        let Some(ip) = &frame.ip else {
            let packet = (frame.len as u64).saturating_sub(link);
            return WireSize { bytes: Bytes::new(self.packet(link, packet)), packets: Packets::new(1) };
        };
        let Some(gso) = &offload.gso else {
            return WireSize { bytes: Bytes::new(self.packet(link, ip.total_len.into())), packets: Packets::new(1) };
        };
        let (headers, payload) = (u64::from(ip.headers_len()), u64::from(ip.payload_len()));
        let segment = u64::from(gso.size.get());
        // Where all is in one packet, that is the last.
        let full = payload.saturating_sub(1) / segment;
        let last = payload - full * segment;
        let bytes = full * self.packet(link, headers + segment) + self.packet(link, headers + last);
        WireSize { bytes: Bytes::new(bytes), packets: Packets::new(full + 1) }
    }

    /// One packet on the wire, of `packet` bytes from the IP header on.
    fn packet(&self, link: u64, packet: u64) -> u64 {
        let link = if link == 0 { ETHERNET_HEADER } else { link };
        let frame = (link + packet).max(FRAME_MIN as u64) + FCS;
        let bytes = match self.layer {
            Layer::L1 => frame + PREAMBLE_AND_GAP,
            Layer::L2 => frame,
            Layer::L3 => packet,
        };
        bytes + u64::from(self.overhead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::testing::{Build, any_build};
    use crate::frame::{Segments, Sums};
    use proptest::prelude::*;

    fn sizes(build: &Build, offload: &Offload, overhead: u16) -> [(u64, u64); 3] {
        let frame = build.parse(&build.bytes());
        [Layer::L1, Layer::L2, Layer::L3].map(|layer| {
            let size = Accounting { layer, overhead }.size(&frame, offload);
            (size.bytes.as_u64(), size.packets.as_u64())
        })
    }

    #[test]
    fn a_full_and_a_small_packet() {
        let full = Build { payload: vec![0; 1_460], ..Build::default() };
        assert_eq!(sizes(&full, &Offload::default(), 0), [(1_538, 1), (1_518, 1), (1_500, 1)]);
        // 40 bytes of IP are 54 of a frame, padded to 60 and summed up to 64; 84 on the wire.
        let small = Build { payload: vec![], ..Build::default() };
        assert_eq!(sizes(&small, &Offload::default(), 0), [(84, 1), (64, 1), (40, 1)]);
        assert_eq!(sizes(&small, &Offload::default(), 50), [(134, 1), (114, 1), (90, 1)]);
        let padded = Build { padding: 6, ..small.clone() };
        assert_eq!(sizes(&padded, &Offload::default(), 0), [(84, 1), (64, 1), (40, 1)], "padding was counted already");
        let tagged = Build { tags: Some(vec![(0x88a8, 1), (0x8100, 2)]), ..full.clone() };
        assert_eq!(sizes(&tagged, &Offload::default(), 0), [(1_546, 1), (1_526, 1), (1_500, 1)]);
        let bare = Build { tags: None, ..full };
        assert_eq!(
            sizes(&bare, &Offload::default(), 0),
            [(1_538, 1), (1_518, 1), (1_500, 1)],
            "as though with Ethernet"
        );
    }

    #[test]
    fn a_super_packet_is_the_packets_that_it_becomes() {
        let build = Build { payload: vec![0; 10 * 1_448 + 1], tcp_options: 3, ..Build::default() };
        let (_, offload) = build.super_packet(1_448);
        // Ten of 1,500 bytes, and one of 53, which is 67 as a frame.
        assert_eq!(sizes(&build, &offload, 0), [(10 * 1_538 + 91, 11), (10 * 1_518 + 71, 11), (15_053, 11)]);
        assert_eq!(sizes(&build, &offload, 8), [(10 * 1_546 + 99, 11), (10 * 1_526 + 79, 11), (15_141, 11)]);
        let even = Build { payload: vec![0; 1_448], tcp_options: 3, ..Build::default() };
        assert_eq!(sizes(&even, &offload, 0), [(1_538, 1), (1_518, 1), (1_500, 1)], "not one more of nothing");
    }

    #[test]
    fn another_protocol_counts_all_it_has() {
        let bytes = [[0; 12].as_slice(), &[0x08, 0x06], &[0; 28]].concat();
        let frame = Frame::ethernet(&bytes).expect("ARP");
        let size = |layer| Accounting { layer, overhead: 0 }.size(&frame, &Offload::default()).bytes.as_u64();
        assert_eq!([size(Layer::L1), size(Layer::L2), size(Layer::L3)], [84, 64, 28]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// What a super-packet counts for is what its segments count for, one after the other.
        #[test]
        fn cutting_changes_no_size(build in any_build(4_000), gso_size in 1_u16..2_000, overhead in 0_u16..100) {
            let (bytes, offload) = build.super_packet(gso_size);
            let frame = build.parse(&bytes);
            for layer in [Layer::L1, Layer::L2, Layer::L3] {
                let accounting = Accounting { layer, overhead };
                let segments = Segments::new(&bytes, &frame, &offload, 1, Sums::Partial).expect("it can be cut");
                let (mut sum, mut packets) = (0, 0);
                for segment in segments {
                    let packet = segment.packet();
                    let size = accounting.size(&build.parse(packet.bytes()), packet.offload());
                    sum += size.bytes.as_u64();
                    packets += size.packets.as_u64();
                }
                let whole = accounting.size(&frame, &offload);
                prop_assert_eq!((whole.bytes.as_u64(), whole.packets.as_u64()), (sum, packets));
            }
        }
    }
}
