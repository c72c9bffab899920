//! A configuration file: read, or refused with a line and a reason; never a panic. What is read is the same read again.
#![no_main]

use libfuzzer_sys::fuzz_target;

// The module alone: the crate around it needs DataFusion, which takes a quarter of an hour to build for coverage.
#[path = "../../crates/weirgate/src/config/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the daemon uses the rest")]
mod config;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // A byte order mark may stand at the very beginning only, and a line is put before it below.
    let text = text.trim_start_matches('\u{feff}');
    let around = config::Surroundings { host: "h".into(), state: "/s".into(), run: "/r".into() };
    match config::Config::from_text(text, &around) {
        Ok(config) => {
            assert_eq!(config::Config::from_text(text, &around).as_ref(), Ok(&config));
            // Comments and an empty section mean nothing.
            let more = format!("# first\n{text}\n# last\n");
            assert_eq!(config::Config::from_text(&more, &around).as_ref(), Ok(&config));
            config.tune.controller.check().expect("what is read is within its bounds");
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            let lines = text.lines().count().max(1) + 1;
            for problem in &problems {
                assert!(problem.line <= lines && !problem.what.is_empty(), "{problem:?}");
            }
        }
    }
});
