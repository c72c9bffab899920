//! Steering on the running kernel: real TCP, real servers, each scenario in namespaces and a cgroup of its own.
//!
//! Read first: `ground.rs` (what a scenario stands on, the scripted server), `witness.rs` (who says what was sent how).
#![allow(clippy::disallowed_methods, reason = "real sockets on the real kernel")]

mod ground;
mod responses;
mod witness;

/// Not a test: the scripted server, when a scenario starts this binary again as its child.
#[test]
fn child() {
    if std::env::args().any(|a| a == "--exact") && std::env::var("WG_SERVE").is_ok() {
        ground::serve();
    }
}
