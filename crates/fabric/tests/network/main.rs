//! Whole networks, whose outcome is known.

mod carried;
mod common;
mod determinism;
mod failures;
mod patterns;
mod presto;
mod verify;
