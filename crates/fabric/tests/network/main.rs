//! Whole networks, whose outcome is known.

mod common;
mod determinism;
mod failures;
mod patterns;
mod presto;
mod verify;
