//! weirgate-switch
