//! zlib's functions, by their names in C. The deflate side of a stream is [`weirgate_deflate::stream`]'s, the inflate side
//! either stock zlib's or zlib-rs's; everything else is stock zlib's, to which the calls go on as they came.
//!
//! Read first: zlib.h of zlib 1.2.13, whose contracts these are; `zlib.map` beside this has the versions of the symbols.

#![allow(clippy::disallowed_methods, reason = "it reads the environment and the clock, for a room that does not")]

mod exports;
mod inflate;
mod once;
mod process;
mod settings;
mod shared;
mod stock;
