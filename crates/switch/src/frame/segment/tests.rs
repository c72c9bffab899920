use super::*;
use crate::frame::checksum::finish;
use crate::frame::testing::{Build, any_build, checksums_verify};
use proptest::prelude::*;

/// Cuts, and gives what came out as it was read again.
fn cut(build: &Build, gso_size: u16, most: u16, sums: Sums) -> Vec<(Frame, Packet)> {
    let (bytes, offload) = build.super_packet(gso_size);
    let segments = Segments::new(&bytes, &build.parse(&bytes), &offload, most, sums).expect("it can be cut");
    let expected = segments.len();
    let packets: Vec<_> = segments.map(|segment| segment.packet()).collect();
    assert_eq!(packets.len(), expected);
    packets.into_iter().map(|packet| (build.parse(packet.bytes()), packet)).collect()
}

/// Every packet as the sender would have built it without segmentation offload.
fn expected(build: &Build, gso_size: usize) -> Vec<Vec<u8>> {
    let chunks: Vec<&[u8]> =
        if build.payload.is_empty() { vec![&[]] } else { build.payload.chunks(gso_size).collect() };
    let last = chunks.len() - 1;
    let one = |(at, payload): (usize, &&[u8])| {
        let last_only = if at == last { 0 } else { TcpFlags::FIN | TcpFlags::PSH };
        let first_only = if at == 0 { 0 } else { TcpFlags::CWR };
        let packet = Build {
            payload: payload.to_vec(),
            id: build.id.wrapping_add(at as u16),
            sequence: build.sequence.wrapping_add((at * gso_size) as u32),
            flags: build.flags & !(last_only | first_only),
            padding: 0,
            ..build.clone()
        };
        packet.bytes()
    };
    chunks.iter().enumerate().map(one).collect()
}

#[test]
fn three_packets_by_hand() {
    let flags = TcpFlags::ACK | TcpFlags::PSH | TcpFlags::FIN | TcpFlags::CWR;
    let build = Build { sequence: u32::MAX, id: u16::MAX, flags, payload: (0..25).collect(), ..Build::default() };
    let packets = cut(&build, 10, 1, Sums::Software);
    let bytes: Vec<&[u8]> = packets.iter().map(|(_, packet)| packet.bytes()).collect();
    assert_eq!(bytes.iter().map(|b| b.len()).collect::<Vec<_>>(), [64, 64, 59]);
    assert_eq!(bytes.iter().map(|b| &b[16..20]).collect::<Vec<_>>(), [[0, 50, 255, 255], [0, 50, 0, 0], [0, 45, 0, 1]]);
    assert_eq!(
        bytes.iter().map(|b| &b[38..42]).collect::<Vec<_>>(),
        [[255, 255, 255, 255], [0, 0, 0, 9], [0, 0, 0, 19]]
    );
    assert_eq!(bytes.iter().map(|b| b[47]).collect::<Vec<_>>(), [0x90, 0x10, 0x19], "CWR first, PSH and FIN last");
    assert_eq!(bytes[2][54..], [20, 21, 22, 23, 24]);
}

#[test]
fn smaller_super_packets_take_the_ids_of_what_they_become() {
    let flags = TcpFlags::ACK | TcpFlags::CWR;
    let build = Build { id: 100, flags, payload: vec![7; 1_000], ..Build::default() };
    let packets = cut(&build, 100, 4, Sums::Software);
    let id = |packet: &Packet| u16::from_be_bytes([packet.bytes()[18], packet.bytes()[19]]);
    let seen: Vec<_> = packets.iter().map(|(f, p)| (id(p), f.ip.expect("IP").payload_len(), p.offload().gso)).collect();
    let gso = |ecn| Some(Gso { kind: GsoKind::TcpV4, size: 100.try_into().expect("not 0"), ecn });
    assert_eq!(seen, [(100, 400, gso(true)), (104, 400, gso(false)), (108, 200, gso(false))]);
    let partial = Checksum::Partial { start: 34, offset: 16 };
    assert!(packets.iter().all(|(_, p)| p.offload().checksum == partial), "who cuts them sums them");
    let single = cut(&build, 100, 3, Sums::Software).pop().expect("the tenth").1;
    assert_eq!(*single.offload(), Offload::default(), "the last one is a packet, and complete");
}

#[test]
fn what_is_not_what_is_to_be_cut_is_refused() {
    let build = Build { payload: vec![0; 300], ..Build::default() };
    let (bytes, offload) = build.super_packet(100);
    let frame = build.parse(&bytes);
    let refused = |frame: &Frame, offload: &Offload| {
        Segments::new(&bytes, frame, offload, 1, Sums::Software).map(drop).expect_err("it is not")
    };
    let gso = |kind| Offload { gso: Some(Gso { kind, size: 100.try_into().expect("not 0"), ecn: false }), ..offload };
    assert_eq!(refused(&frame, &Offload::default()), SegmentError::NotSuper);
    assert_eq!(refused(&frame, &gso(GsoKind::TcpV6)), SegmentError::Mismatch);
    assert_eq!(refused(&frame, &gso(GsoKind::Udp)), SegmentError::Mismatch);
    let fragment = Ip { fragment: Fragment::First, ..frame.ip.expect("IP") };
    assert_eq!(refused(&Frame { ip: Some(fragment), ..frame }, &offload), SegmentError::Mismatch);
    assert_eq!(refused(&Frame { ip: None, ..frame }, &offload), SegmentError::Mismatch);
    for (start, offset) in [(33, 16), (34, 6), (0, 0)] {
        let elsewhere = Offload { checksum: Checksum::Partial { start, offset }, ..offload };
        assert_eq!(refused(&frame, &elsewhere), SegmentError::Checksum);
    }
    assert_eq!(refused(&Frame { len: 1, ..frame }, &offload), SegmentError::Bytes);
    let complete = Offload { checksum: Checksum::Complete, ..offload };
    assert!(Segments::new(&bytes, &frame, &complete, 1, Sums::Software).is_ok(), "the kernel takes it too");
    let long = Build { v6: true, ip_options: 25, payload: vec![0; 300], ..Build::default() };
    let (bytes, offload) = long.super_packet(100);
    let refused = Segments::new(&bytes, &long.parse(&bytes), &offload, 1, Sums::Software).map(drop);
    assert_eq!(refused, Err(SegmentError::Headers));
    for (at, reason) in SegmentError::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, at);
    }
}

#[test]
fn a_sum_that_was_begun_is_gone_on_with() {
    // By way of the header's destination to another one: the sum is the other's.
    let build = Build { payload: vec![3; 300], ..Build::default() };
    let (mut bytes, offload) = build.super_packet(100);
    let (from, to) = (build.addresses().0, [203, 0, 113, 9].into());
    bytes[50..52].copy_from_slice(&Sum::default().pseudo_header(from, to, 6, 320).fold().to_be_bytes());
    let segments = Segments::new(&bytes, &build.parse(&bytes), &offload, 1, Sums::Software).expect("it can be cut");
    for segment in segments {
        let [headers, payload] = segment.parts();
        assert_eq!(Sum::default().pseudo_header(from, to, 6, 120).bytes(&headers[34..]).bytes(payload).checksum(), 0);
    }
    let complete = Offload { checksum: Checksum::Complete, ..offload };
    let segments = Segments::new(&bytes, &build.parse(&bytes), &complete, 1, Sums::Software).expect("it can be cut");
    for packet in segments.map(|segment| segment.packet()) {
        assert!(checksums_verify(packet.bytes(), &build.parse(packet.bytes())), "none was begun: the header's");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Cut, it is what the sender would have sent without offload, to the byte.
    #[test]
    fn software_sums_give_the_packets_of_a_sender_without_offload(build in any_build(4_000), gso_size in 1_u16..1_500) {
        let packets = cut(&build, gso_size, 1, Sums::Software);
        let expected = expected(&build, gso_size.into());
        prop_assert_eq!(packets.len(), expected.len());
        for ((frame, packet), expected) in packets.iter().zip(&expected) {
            prop_assert_eq!(packet.bytes(), &expected[..]);
            prop_assert_eq!(*packet.offload(), Offload::default());
            prop_assert!(checksums_verify(packet.bytes(), frame));
        }
    }

    /// Without its first packet it is all the others.
    #[test]
    fn without_the_first_the_others_stay_as_they_are(build in any_build(4_000), gso_size in 1_u16..1_500) {
        let (bytes, offload) = build.super_packet(gso_size);
        let segments = Segments::new(&bytes, &build.parse(&bytes), &offload, 1, Sums::Software).expect("it can be cut");
        let expected = expected(&build, gso_size.into());
        let rest = segments.without_first().map(|rest| rest.packet());
        let rest: Vec<Packet> = match rest {
            Some(rest) if rest.offload().gso.is_some() => {
                let frame = build.parse(rest.bytes());
                let again = Segments::new(rest.bytes(), &frame, rest.offload(), 1, Sums::Software).expect("it is one");
                again.map(|segment| segment.packet()).collect()
            }
            rest => rest.into_iter().collect(),
        };
        prop_assert_eq!(rest.len(), expected.len() - 1);
        for (packet, expected) in rest.iter().zip(&expected[1..]) {
            prop_assert_eq!(packet.bytes(), &expected[..]);
        }
    }

    /// In two steps or in one, in software or by the device: the same packets.
    #[test]
    fn steps_and_sums_change_nothing(build in any_build(4_000), gso_size in 1_u16..1_500, most in 0_u16..9) {
        let mut got = Vec::new();
        for (frame, packet) in cut(&build, gso_size, most, Sums::Partial) {
            if packet.offload().gso.is_none() {
                got.push(packet);
            } else {
                prop_assert!(most > 1);
                prop_assert!(frame.ip.expect("IP").payload_len() <= u32::from(most) * u32::from(gso_size));
                let parts = Segments::new(packet.bytes(), &frame, packet.offload(), 1, Sums::Partial).expect("it is one");
                got.extend(parts.map(|segment| segment.packet()));
            }
        }
        let expected = expected(&build, gso_size.into());
        prop_assert_eq!(got.len(), expected.len());
        for (mut packet, mut expected) in got.into_iter().zip(expected) {
            let mut offload = *packet.offload();
            prop_assert!(finish(packet.bytes_mut(), &mut offload));
            prop_assert_eq!(offload, Offload::default());
            // Finished, a sum of zero has its other form, as it has in the kernel.
            let frame = build.parse(packet.bytes());
            prop_assert!(checksums_verify(packet.bytes(), &frame));
            let at = frame.ip.expect("IP").transport_offset() + if build.udp { 6 } else { 16 };
            if packet.bytes()[at..at + 2] == [0xff, 0xff] {
                packet.bytes_mut()[at..at + 2].fill(0);
            }
            if expected[at..at + 2] == [0xff, 0xff] {
                expected[at..at + 2].fill(0);
            }
            prop_assert_eq!(packet.bytes(), &expected[..]);
        }
    }
}
