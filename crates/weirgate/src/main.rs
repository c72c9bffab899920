//! weirgate
#![allow(clippy::disallowed_methods, reason = "the binary touches the world: clocks, files, threads are its work")]
fn main() {}
