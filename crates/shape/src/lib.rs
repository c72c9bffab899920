//! weirgate-shape
