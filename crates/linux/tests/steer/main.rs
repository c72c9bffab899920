//! Steering on the running kernel: real TCP, real servers, each scenario in namespaces and a cgroup of its own.
//!
//! Read first: `ground.rs` (what a scenario stands on, the scripted server), `witness.rs` (who says what was sent how).
#![allow(clippy::disallowed_methods, reason = "real sockets on the real kernel")]

mod fails;
mod ground;
mod policies;
mod responses;
mod servers;
mod starts;
mod witness;

/// Not a test: what a scenario starts this binary for, as its child.
#[test]
fn child() {
    if let Ok(listener_cc) = std::env::var("WG_SERVE") {
        ground::serve(&listener_cc);
    } else if let Ok(remote) = std::env::var("WG_OPEN") {
        ground::open(remote.parse().unwrap());
    } else if std::env::var("WG_OWN").is_ok() {
        ground::own();
    }
}
