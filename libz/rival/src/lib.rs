//! zlib-rs under zlib's names.

pub use libz_rs_sys::*;
