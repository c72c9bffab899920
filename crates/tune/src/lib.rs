//! weirgate-tune
