//! The experiments on the fabric simulator.

mod ns3;
mod speed;

pub(crate) use speed::run as speed;
