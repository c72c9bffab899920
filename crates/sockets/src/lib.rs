//! The sense: inet_diag bytes and kernel-program bytes to samples, samples to records. Pure: no clock, no I/O.
//!
//! Bytes from outside become a [`sample::Sample`] in [`decode`] (kernel programs) and [`wire`] (netlink); [`ledger`] brings the samples of
//! one connection together, and tells [`progress`] (what it did in a round) from [`record`]s (what is stored).
#![forbid(unsafe_code)]

pub mod decode;
pub mod ledger;
pub mod network;
pub mod progress;
pub mod record;
pub mod sample;
pub mod wire;
