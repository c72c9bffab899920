//! What the decisions come to: the policy that the kernel obeys.

use weirgate_sockets::sample::CcName;
use weirgate_units::{Bytes, Prefix};

use crate::holdout::Holdout;

/// Which client networks are sent to with which congestion control. A value: made by the controller, validated, applied
/// by `linux`, and replaced as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Grows with every policy that differs from the one before; 0 is the empty policy of a host that never decided.
    pub version: u32,
    /// The selected networks, in ascending order, none overlapping another.
    pub networks: Vec<(Prefix, CcName)>,
    /// Which clients of a selected network stay on the default, for comparison.
    pub holdout: Holdout,
    /// What accepted connections start on; `None` leaves them what the system gave them.
    pub default_cc: Option<CcName>,
    /// A response is switched only once this much of it was acknowledged.
    pub switch_after: Bytes,
    /// Stay on the chosen algorithm for the connection's life instead of going back when a response is delivered.
    pub stay: bool,
    /// Hold a switched response to the rate that its network carried in the last minutes until its own rate has settled.
    pub cap_start: bool,
}
