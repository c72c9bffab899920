//! A policy as it is sent, after its signature has been found good: read, or refused; never a panic. What is read is written as it came.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weirgate_tune::snapshot::{Held, SIGNATURE};
use weirgate_units::UnixTime;

fuzz_target!(|bytes: &[u8]| {
    let Some(now) = bytes.get(SIGNATURE..SIGNATURE + 4) else { return };
    let now = UnixTime::from_nanos(u64::from_le_bytes([now[0], now[1], now[2], now[3], 0, 0, 0, 0]) << 30);
    let Ok(snapshot) = Held::default().check(bytes, "ams", now, |_, _| true) else { return };
    let sent = snapshot.seal(|_| [0; SIGNATURE]);
    assert_eq!(sent[SIGNATURE..], bytes[SIGNATURE..]);
    let again = snapshot.held().check(bytes, "ams", now, |_, _| true);
    assert!(again.is_err(), "obeyed twice");
});
