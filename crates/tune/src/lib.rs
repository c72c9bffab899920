//! The decisions: rounds of measurements in, policies with their reasons out. Pure: no clock, no I/O, no outside randomness.
#![forbid(unsafe_code)]

pub mod holdout;
pub mod policy;
