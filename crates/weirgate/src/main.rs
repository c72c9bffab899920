//! weirgate
fn main(){}
