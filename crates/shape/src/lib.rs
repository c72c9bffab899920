//! When may this packet leave? Exact token buckets and a timing wheel, handed the time by their caller.
//!
//! Nothing here reads a clock, allocates per packet or waits. A [`Bucket`] says from which instant on an amount of data
//! conforms to a rate; a [`Wheel`] holds things until their instant and says when to ask again.
#![forbid(unsafe_code)]

mod bucket;
mod wheel;

pub use bucket::{Bucket, Short};
pub use wheel::Wheel;
