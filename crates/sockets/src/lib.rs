//! The sense: inet_diag bytes and kernel-program bytes to samples, samples to records. Pure: no clock, no I/O.
#![forbid(unsafe_code)]

pub mod progress;
pub mod record;
pub mod sample;
