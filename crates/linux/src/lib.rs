//! Everything that touches the kernel.

pub mod netns;
pub mod poll;
