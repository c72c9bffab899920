//! The experiment `edge`: does choosing the congestion control per client network pay?
pub mod load;
pub mod plan;
pub mod table;
