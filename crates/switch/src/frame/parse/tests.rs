use super::*;
use crate::frame::testing::{Build, any_build};
use proptest::prelude::*;

#[test]
fn an_arp_request_is_a_frame_of_another_protocol() {
    let mut bytes = [[0xff; 6], [2, 0, 0, 0, 0, 1]].concat();
    bytes.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
    let frame = Frame::ethernet(&bytes).expect("a frame");
    assert_eq!((frame.ethertype, frame.ip, frame.flow(), frame.vlan()), (0x0806, None, None, 0));
    let link = frame.link.expect("Ethernet");
    assert_eq!((link.destination, link.source), (Mac::BROADCAST, Mac([2, 0, 0, 0, 0, 1])));
    assert_eq!(Frame::ip(&bytes[14..]), Err(FrameError::IpVersion), "a TUN has no ARP");
}

#[test]
fn tags_are_gone_through_and_the_outer_one_counts() {
    let build = Build { tags: Some(vec![(TAG_OUTER, 0x6064), (TAG, 0xe007)]), ..Build::default() };
    let frame = build.parse(&build.bytes());
    let link = frame.link.expect("Ethernet");
    assert_eq!((link.vlan, link.tags, link.header_len(), frame.ethertype), (Some(100), 2, 22, IPV4));
    assert!(frame.ip.is_some());
    let third = Build { tags: Some(vec![(TAG, 1), (TAG, 2), (TAG, 3)]), ..Build::default() };
    let frame = third.parse(&third.bytes());
    assert_eq!((frame.ip, frame.ethertype, frame.vlan()), (None, TAG, 1), "not looked behind");
}

#[test]
fn fragments_have_no_ports_and_are_of_one_flow() {
    for udp in [false, true] {
        let mut bytes = Build { udp, ..Build::default() }.bytes();
        let whole = Frame::ethernet(&bytes).expect("a frame");
        bytes[20] = 0x20;
        let first = Frame::ethernet(&bytes).expect("a frame");
        (bytes[20], bytes[21]) = (0x00, 0x10);
        let later = Frame::ethernet(&bytes).expect("a frame");
        let ip = |frame: &Frame| frame.ip.expect("IP");
        assert_eq!((ip(&first).fragment, ip(&first).transport.ports()), (Fragment::First, Some((40_000, 443))));
        assert_eq!((ip(&later).fragment, ip(&later).transport), (Fragment::Later, Transport::Other));
        assert_eq!(first.flow(), later.flow());
        assert_ne!(whole.flow(), first.flow());
        assert_eq!(ip(&later).payload_len(), ip(&later).total_len - 20);
    }
}

/// An IPv6 packet with these bytes behind its header, the first of them of protocol `next`.
fn v6(next: u8, behind: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0, 0, behind.len() as u8, next, 64];
    bytes.resize(40, 0);
    bytes.extend(behind);
    bytes
}

#[test]
fn extension_headers_are_gone_through_to_a_bound() {
    let udp = [0, 53, 0, 99, 0, 8, 0, 0];
    let chain = |next: u8, headers: &[&[u8]]| Frame::ip(&v6(next, &[&headers.concat()[..], &udp].concat()));
    let behind = |frame: Result<Frame, FrameError>| {
        let ip = frame.expect("a packet").ip.expect("IP");
        (ip.protocol, ip.header_len, ip.fragment, ip.transport.ports())
    };
    let (options, end) = ([60, 0, 1, 4, 0, 0, 0, 0], [17, 0, 1, 4, 0, 0, 0, 0]);
    assert_eq!(behind(chain(17, &[])), (17, 40, Fragment::Whole, Some((53, 99))));
    assert_eq!(behind(chain(0, &[&end])), (17, 48, Fragment::Whole, Some((53, 99))));
    let authentication = [17, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(behind(chain(51, &[&authentication])), (17, 64, Fragment::Whole, Some((53, 99))));
    assert_eq!(behind(chain(44, &[&[17, 0, 0, 1, 0, 0, 0, 1]])), (17, 48, Fragment::First, Some((53, 99))));
    assert_eq!(behind(chain(44, &[&[17, 0, 0, 9, 0, 0, 0, 1]])), (17, 48, Fragment::Later, None));
    assert_eq!(behind(chain(44, &[&[17, 0, 0, 0, 0, 0, 0, 1]])), (17, 48, Fragment::Whole, Some((53, 99))), "atomic");
    assert_eq!(behind(chain(50, &[])), (50, 40, Fragment::Whole, None), "encrypted");
    let many = |n: usize| [vec![&options[..]; n - 1], vec![&end[..]]].concat();
    assert_eq!(behind(chain(60, &many(EXTENSIONS_MAX))), (17, 104, Fragment::Whole, Some((53, 99))));
    assert_eq!(chain(60, &many(EXTENSIONS_MAX + 1)), Err(FrameError::Extensions));
    assert_eq!(chain(60, &[&[17, 2, 1, 4, 0, 0, 0, 0]]), Err(FrameError::Extensions), "past the end");
    assert_eq!(Frame::ip(&v6(0, &[])), Err(FrameError::Extensions), "a jumbogram");
}

#[test]
fn says_what_is_wrong() {
    let good = Build::default().bytes();
    let wrong = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        Frame::ethernet(&bytes).expect_err("it is wrong")
    };
    assert_eq!(wrong(&|b| b.truncate(13)), FrameError::Ethernet);
    assert_eq!(wrong(&|b| (b[12], b[13]) = (0x86, 0xdd)), FrameError::IpVersion);
    assert_eq!(wrong(&|b| b[14] = 0x65), FrameError::IpVersion);
    assert_eq!(wrong(&|b| b[14] = 0x44), FrameError::IpHeader);
    assert_eq!(wrong(&|b| b.truncate(33)), FrameError::IpHeader);
    assert_eq!(wrong(&|b| b[17] += 1), FrameError::IpLength, "longer than the frame");
    assert_eq!(wrong(&|b| (b[16], b[17]) = (0, 19)), FrameError::IpLength, "shorter than its header");
    assert_eq!(wrong(&|b| b[46] = 0x40), FrameError::Transport, "a TCP header of 16 bytes");
    assert_eq!(wrong(&|b| (b[16], b[17]) = (0, 39)), FrameError::Transport, "19 bytes of TCP");
    assert_eq!(wrong(&|b| (b[16], b[17], b[23]) = (0, 27, 17)), FrameError::Transport, "7 bytes of UDP");
    let mut tagged = Build { tags: Some(vec![(TAG, 5)]), ..Build::default() }.bytes();
    tagged.truncate(17);
    assert_eq!(Frame::ethernet(&tagged), Err(FrameError::Ethernet), "cut in its tag");
    assert_eq!(Frame::ip(&[]), Err(FrameError::IpHeader));
    for (at, reason) in FrameError::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, at);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reads_what_was_built(build in any_build(200)) {
        let bytes = build.bytes();
        let frame = build.parse(&bytes);
        let ip = frame.ip.expect("IP");
        prop_assert_eq!((frame.len, (ip.source, ip.destination)), (bytes.len(), build.addresses()));
        prop_assert_eq!((ip.dscp, ip.ecn), (build.traffic_class >> 2, Ecn::of(build.traffic_class)));
        prop_assert_eq!(ip.transport.ports(), Some(build.ports));
        prop_assert_eq!(ip.payload_len() as usize, build.payload.len());
        prop_assert_eq!(usize::from(ip.offset) + ip.total_len as usize + build.padding, bytes.len());
        let payload = ip.transport_offset() + usize::from(ip.transport.header_len());
        prop_assert_eq!(&bytes[payload..payload + build.payload.len()], &build.payload[..]);
        if let Transport::Tcp { flags, header_len, .. } = ip.transport {
            prop_assert_eq!((flags.0, header_len), (build.flags, 20 + 4 * u16::from(build.tcp_options)));
        }
        prop_assert_eq!(frame.flow_hash(7), frame.flow().map(|flow| flow.hash(7)));
        let outer = build.tags.as_ref().and_then(|tags| tags.first()).map(|(_, tag)| tag & 0xfff);
        prop_assert_eq!(frame.link.and_then(|link| link.vlan), outer);
    }

    /// Every frame that is cut before its packet's end is refused.
    #[test]
    fn a_cut_frame_is_refused(build in any_build(100), cut in any::<prop::sample::Index>()) {
        let bytes = build.bytes();
        let cut = &bytes[..cut.index(bytes.len() - build.padding)];
        let read = if build.tags.is_some() { Frame::ethernet(cut) } else { Frame::ip(cut) };
        prop_assert!(read.is_err());
    }

    /// Anything gets an answer; what is a frame lies within its bytes.
    #[test]
    fn any_change_gets_an_answer(
        build in any_build(60), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut bytes = build.bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for frame in [Frame::ethernet(&bytes), Frame::ip(&bytes)].into_iter().flatten() {
            if let Some(ip) = frame.ip {
                prop_assert!(ip.headers_len() <= ip.total_len);
                prop_assert!(usize::from(ip.offset) + ip.total_len as usize <= bytes.len());
            }
        }
    }
}
