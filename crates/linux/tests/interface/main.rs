//! Interfaces as ports: real veth pairs between hosts that are network namespaces, and a switch in a third.
#![allow(clippy::disallowed_methods, reason = "real sockets on the real kernel")]

mod between;
mod frames;
mod ground;
mod refused;
#[cfg(feature = "xdp")]
mod xdp;
