//! Records of the kernel programs in a row, and the ledger that they are entered in.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weirgate_sockets::ledger::{Ledger, Options};
use weirgate_sockets::sample::Sample;
use weirgate_units::{Duration, Instant};

fuzz_target!(|bytes: &[u8]| {
    let options = Options { connections_max: 8, closed_memory: Duration::from_nanos(1 << 32) };
    let mut ledger = Ledger::new(options);
    let mut rest = bytes;
    while let Ok((sample, len)) = Sample::from_bytes(rest) {
        assert!(len > 0 && len <= rest.len());
        rest = &rest[len..];
        ledger.handle_sample(&sample);
        // Some samples end a poll as well, so that every order can come.
        match sample.policy_version % 8 {
            0 => {
                ledger.handle_poll_end(sample.netns, Instant::from_nanos(sample.time_ns), &mut |_| {});
            }
            1 => ledger.handle_poll_failed(sample.netns),
            2 => ledger.take_round(&mut |_| {}),
            3 => ledger.handle_namespace_gone(sample.netns, &mut |_| {}),
            _ => {}
        }
        assert!(ledger.is_valid());
    }
});
