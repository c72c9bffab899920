//! The command `weirgate`; see the library beside it.

fn main() {}
