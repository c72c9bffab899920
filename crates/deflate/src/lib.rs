//! Who compresses a response, and how: engines of whole bodies behind one trait, those of parts and devices beside them, the choice among
//! them, and the state of a caller's stream, for a libz that web servers load in place of zlib's.
//!
//! A caller of zlib hands its data in piece by piece. [`stream`] collects the pieces in the memory that the caller gave it, and
//! when the last one comes, compresses all of it at once by the engine that [`Choice`] names: libdeflate makes of it what zlib does in
//! half of the time, ISA-L something larger in a tenth. Of a body that is longer than what is kept zlib-rs or ISA-L compress one part after
//! the other. Who asks for output before the end has stock zlib from there on, in the same memory.
//!
//! Ground rules:
//!
//! - No clock, no files, no environment: `now` is an argument. Memory comes from the caller ([`stream`]) or is a thread's, kept for the
//!   next stream ([`Scratch`]).
//! - `unsafe` is for the C libraries and for what callers of zlib own; each block says why it may.

pub mod accelerator;
pub mod checksum;
pub mod choice;
pub mod count;
pub mod engine;
pub mod nvcomp;
pub mod qatzip;
pub mod scratch;
pub mod stream;
pub mod zlib;

mod again;
mod arena;
mod cards;
mod cuda;
mod late;
mod library;
#[cfg(test)]
mod tests;
mod text;
mod wrapper;

pub use choice::Choice;
pub use count::Counters;
pub use engine::gunzip;
pub use scratch::Scratch;
