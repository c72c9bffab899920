//! Rows of a database, whoever has written there: read, skipped or refused; never a panic. What is read is decided from, and the state
//! after it can be saved and loaded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weirgate_sockets::sample::CcName;
use weirgate_tune::{Config, Controller, Host};
use weirgate_units::UnixTime;

// The module alone: the crate around it holds databases and takes minutes to build.
#[path = "../../crates/store/src/clickhouse/round/rows.rs"]
mod rows;
/// As the crate calls arms.
mod columns {
    pub(crate) const ARMS: [&str; 2] = ["treated", "holdout"];
}

fuzz_target!(|bytes: &[u8]| {
    let cubic = CcName::new("cubic").expect("a name");
    let host = Host { system_cc: Some(cubic), available_cc: vec![cubic, CcName::new("bbr").expect("a name")] };
    let config = Config { networks_min: 2, ..Config::default() };
    let end = UnixTime::from_nanos(1_800_000_000_000_000_000);
    let mut controller = Controller::new(config.clone(), host.clone()).expect("what is usual");
    let mut tallies = 0;
    let read = rows::read(&mut &bytes[..], &mut |tally| {
        tallies += 1;
        controller.handle_tally(&tally);
    });
    if let Ok((rows, _)) = read {
        assert_eq!(rows, tallies);
    }
    controller.end_round(end, Some(end));
    let again = Controller::load(config, host, &controller.save()).expect("what it has saved itself");
    assert_eq!(again.policy(), controller.policy());
});
