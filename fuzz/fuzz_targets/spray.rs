//! What comes in a datagram of a transfer: read, or refused; never a panic. What is read is written as it was meant, and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;

// The module alone: the crate around it needs a library that encrypts, which takes minutes to build.
#[path = "../../crates/spray/src/wire.rs"]
#[allow(dead_code, reason = "the transport uses the rest")]
mod wire;

fuzz_target!(|bytes: &[u8]| {
    let _any = wire::Datagram::parse(bytes);
    let mut frames = 0;
    for frame in wire::Frame::all(bytes).map_while(Result::ok) {
        frames += 1;
        let mut written = Vec::new();
        frame.put(&mut written);
        assert_eq!(wire::Frame::all(&written).next(), Some(Ok(frame)));
        match frame {
            wire::Frame::Ack(ack) => {
                let mut below = u64::MAX;
                for range in ack.ranges() {
                    assert!(range.start() <= range.end() && *range.end() < below);
                    below = *range.start();
                }
            }
            wire::Frame::Holes(holes) => assert!((1..=wire::SPANS_MAX).contains(&holes.ranges().count())),
            wire::Frame::Data { offset, bytes, .. } => assert!(offset + bytes.len() as u64 <= wire::VARINT_MAX),
            _ => {}
        }
    }
    assert!(frames <= bytes.len());
});
