//! A frame with a virtio-net header: one byte says from which layer on it is, how it is to be cut and whether sums are done here.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weirgate_port::{Checksum, Offload};
use weirgate_switch::frame::checksum::{Sum, finish};
use weirgate_switch::frame::{Accounting, Ecn, Frame, Ip, Layer, Segments, Sums};

fuzz_target!(|bytes: &[u8]| {
    let Some((how, rest)) = bytes.split_first() else { return };
    let Some((header, bytes)) = rest.split_at_checked(Offload::LEN) else { return };
    let is_ethernet = how & 1 != 0;
    let parse = |bytes: &[u8]| if is_ethernet { Frame::ethernet(bytes) } else { Frame::ip(bytes) };
    let offload = Offload::from_bytes(header, bytes.len());
    if let Ok(offload) = offload {
        assert_eq!(Offload::from_bytes(&offload.to_bytes(0), bytes.len()), Ok(offload));
        let (mut copy, mut done) = (bytes.to_vec(), offload);
        if finish(&mut copy, &mut done) {
            assert!(done.gso.is_none() || done.checksum == offload.checksum);
            assert!(!matches!(done.checksum, Checksum::Partial { .. }));
            assert!(copy.iter().zip(bytes).filter(|(a, b)| a != b).count() <= 2);
        }
    }
    let Ok(frame) = parse(bytes) else { return };
    let (mut marked, mut marked_frame) = (bytes.to_vec(), frame);
    match marked_frame.mark_ce(&mut marked) {
        Ok(()) => assert_eq!(parse(&marked).map(|f| f.ip.map(|ip| ip.ecn)), Ok(Some(Ecn::Ce))),
        Err(_) => assert_eq!(marked, bytes),
    }
    let Some(ip) = frame.ip else { return };
    assert!(usize::from(ip.offset) + ip.total_len as usize <= bytes.len());
    let _ = frame.flow().expect("IP has flows").hash(1);

    let Ok(offload) = offload else { return };
    let (most, sums) = (u16::from(how >> 2), if how & 2 != 0 { Sums::Software } else { Sums::Partial });
    let Ok(segments) = Segments::new(bytes, &frame, &offload, most, sums) else { return };
    let payload = ip.transport_offset() + usize::from(ip.transport.header_len());
    let payload = &bytes[payload..usize::from(ip.offset) + ip.total_len as usize];
    let begun_right = begun_right(bytes, &ip, &offload);
    let (mut left, mut sizes) = (payload, [(0, 0); 3]);
    for segment in segments {
        let packet = segment.packet();
        let [headers, part] = segment.parts();
        assert_eq!(packet.bytes(), [headers, part].concat());
        left = left.strip_prefix(part).expect("the payload goes on where it was");
        let again = parse(packet.bytes()).expect("an output is a frame");
        let ip = again.ip.expect("of IP");
        assert_eq!(ip.payload_len() as usize, part.len());
        assert_eq!(Offload::from_bytes(&packet.offload().to_bytes(0), packet.bytes().len()), Ok(*packet.offload()));
        add(&mut sizes, &again, packet.offload());
        if packet.offload().gso.is_none() {
            let (mut whole, mut offload) = (packet.bytes().to_vec(), *packet.offload());
            assert!(finish(&mut whole, &mut offload) && offload == Offload::default());
            assert!(verifies(&whole, &ip) || !begun_right, "{whole:x?}");
        }
    }
    assert_eq!(left, b"", "nothing is lost");
    let mut whole = [(0, 0); 3];
    add(&mut whole, &frame, &offload);
    assert_eq!(sizes, whole, "cutting changes no size");
});

fn add(sizes: &mut [(u64, u64); 3], frame: &Frame, offload: &Offload) {
    for (sum, layer) in sizes.iter_mut().zip([Layer::L1, Layer::L2, Layer::L3]) {
        let size = Accounting { layer, overhead: 1 }.size(frame, offload);
        *sum = (sum.0 + size.bytes.as_u64(), sum.1 + size.packets.as_u64());
    }
}

/// Whether the sum that the sender began, if it began one, is that of the pseudo-header.
fn begun_right(bytes: &[u8], ip: &Ip, offload: &Offload) -> bool {
    let Checksum::Partial { start, offset } = offload.checksum else { return true };
    let at = usize::from(start) + usize::from(offset);
    let len = ip.total_len - u32::from(ip.header_len);
    let right = Sum::default().pseudo_header(ip.source, ip.destination, ip.protocol, len).fold();
    u16::from_be_bytes([bytes[at], bytes[at + 1]]) % 0xffff == right % 0xffff
}

/// Whether a receiver finds both checksums right.
fn verifies(bytes: &[u8], ip: &Ip) -> bool {
    let start = usize::from(ip.offset);
    let transport = &bytes[ip.transport_offset()..start + ip.total_len as usize];
    let pseudo = Sum::default().pseudo_header(ip.source, ip.destination, ip.protocol, transport.len() as u32);
    let header = &bytes[start..start + usize::from(ip.header_len)];
    (ip.source.is_ipv6() || Sum::default().bytes(header).checksum() == 0) && pseudo.bytes(transport).checksum() == 0
}
