//! The one door for changes: a Unix socket that only its owner may open.
//!
//! Protocol: the client writes one line, a JSON [`Request`], and reads one line, a JSON [`Reply`]; then the connection
//! ends. The kernel says who calls (SO_PEERCRED, unix(7)); every request is logged with it, and every change it leads to
//! is journalled with it.
//!
//! Rejected: HTTP over the socket. One request and one answer per connection need no framing, no keep-alive and no
//! parser beyond JSON's, and a door should be small.

mod client;
mod server;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::journal::Actor;

pub use client::{CallError, call};
pub use server::{BindError, Door};

/// The longest line either side takes, in bytes.
const LINE_MAX: u64 = 16 << 20;

/// What can be asked of a running daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How tuning stands: mode, policy in force, last round, effects.
    TuneStatus,
    /// The history of one client network, and why it is or is not selected.
    TuneExplain {
        /// As `192.0.2.0/24`.
        network: String,
    },
    /// From now on decisions are applied, until the daemon ends or `TuneClear`.
    TuneApply,
    /// Everything applied is taken back, and from now on decisions are only shown.
    TuneClear,
    /// All rate limits and what they did.
    LimitList,
    /// What processes compress by `libweirgate_z.so`.
    DeflateStatus,
    /// How each uplink stands and why.
    UplinkStatus,
    /// From now on an uplink takes no new connection, until the daemon ends or `UplinkResume`.
    UplinkDrain {
        /// Its name in the configuration.
        name: String,
    },
    /// From now on it does again.
    UplinkResume {
        /// Its name in the configuration.
        name: String,
    },
    /// All that steers new connections is taken back, until the daemon is started again.
    UplinkClear,
    /// From now on a limit has another rate, until the daemon ends.
    LimitSet {
        /// Its name in the configuration.
        name: String,
        /// As `200 Mbit/s`.
        rate: String,
    },
}

impl Request {
    /// Whether it changes anything.
    pub const fn is_change(&self) -> bool {
        match self {
            Self::TuneStatus
            | Self::TuneExplain { .. }
            | Self::LimitList
            | Self::DeflateStatus
            | Self::UplinkStatus => false,
            Self::TuneApply
            | Self::TuneClear
            | Self::LimitSet { .. }
            | Self::UplinkDrain { .. }
            | Self::UplinkResume { .. }
            | Self::UplinkClear => true,
        }
    }
}

/// The answer: what was asked for, or why not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// Done; what there is to say.
    Ok(serde_json::Value),
    /// Not done: why, and what to do.
    Error(String),
}

/// A request on its way to the daemon's loop.
#[derive(Debug)]
pub struct Call {
    /// What is asked.
    pub request: Request,
    /// By whom.
    pub actor: Actor,
    /// Where the answer goes; dropping it answers "the daemon is stopping".
    pub reply: oneshot::Sender<Reply>,
}
