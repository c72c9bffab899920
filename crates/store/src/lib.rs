//! weirgate-store
#![allow(clippy::disallowed_methods, reason = "this room touches the world: clocks, files, threads are its work")]
