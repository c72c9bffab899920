//! weirgate-linux
