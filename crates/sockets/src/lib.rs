//! weirgate-sockets
