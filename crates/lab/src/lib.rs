//! weirgate-lab
