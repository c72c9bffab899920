//! Files over all paths: sockets, clocks and files for `weirgate_spray`, which knows none of these.
//!
//! - [`send`] and [`receive`] are what the two sides do with a connection, around which `weirgate_linux::transport` is the loop.
//! - [`manifest`] is what they say to each other: lines of JSON on the first object. The files' bytes are an object each.
//! - [`files`] is how a file is written that is not there yet, and [`keys`] who may write it.
//! - [`paths`] is from where the other side is reached.

pub mod files;
pub mod keys;
pub mod manifest;
pub mod paths;
pub mod receive;
pub mod send;
