//! weirgate-port
