//! weirgate-store
