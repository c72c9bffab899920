//! The decisions: rounds of measurements in, policies with their reasons out. Pure: no clock, no I/O, no outside randomness.
//!
//! Begin with [`Config`] (every threshold and why), then [`Controller`] (what happens in a round).
#![forbid(unsafe_code)]

mod book;
mod bytes;
pub mod canary;
mod config;
mod controller;
pub mod decision;
pub mod effect;
pub mod explain;
mod group;
mod history;
pub mod holdout;
pub mod policy;
pub mod replay;
mod select;
pub mod sensitivity;
pub mod sketch;
pub mod snapshot;
pub mod state;
pub mod synthetic;
mod tally;
mod trial;
pub mod validate;

pub use config::{Config, ConfigError, Group, Metric, RULES_MAX, Rule, WINDOW_MAX};
pub use controller::{Controller, Host};
pub use decision::{Decision, Round, What, Why};
pub use explain::Explanation;
pub use holdout::Holdout;
pub use policy::Policy;
pub use tally::{ArmSum, Did, Tallies, Tally, Terms};
pub use validate::{Facts, Limits, Refusal, validate};
