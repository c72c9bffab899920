//! What the two ways of polling share: the filter that the kernel applies, and the count of what came.
//!
//! A poller has `poll(&mut self, ns: &Netns, filter: &Filter, each: &mut dyn FnMut(&Sample)) -> Result<PollStats, _>`.

use weirgate_sockets::sample::state;
use weirgate_units::Prefix;

/// Which sockets the kernel hands over; applied there, so that what is not wanted costs no copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Bit n: state n (see [`state`]) is wanted, as inet_diag names states: a request is in SYN-RECV, a mini-socket that
    /// still waits for a FIN in FIN-WAIT-2. Listeners come only where asked for.
    pub states: u32,
    /// Local ports wanted; empty is all. At most 64.
    pub local_ports: Vec<u16>,
    /// Remote networks wanted; empty is all. At most 64. Listeners, which have no remote end, pass.
    pub remote: Vec<Prefix>,
    /// Remote networks not wanted, in spite of `remote`. At most 64. Listeners pass.
    pub remote_not: Vec<Prefix>,
}

impl Default for Filter {
    /// Every connection, and the listeners (they tell accepted connections from opened ones). Not what the kernel keeps
    /// of connections that are over (TIME-WAIT, often more than all others) or not yet begun (SYN-RECV).
    fn default() -> Self {
        let not = [state::CLOSE, state::TIME_WAIT, state::SYN_RECV, state::NEW_SYN_RECV];
        let states = not.iter().fold(0x1ffe, |states, state| states & !(1 << state));
        Self { states, local_ports: Vec::new(), remote: Vec::new(), remote_not: Vec::new() }
    }
}

/// What one poll of one namespace did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollStats {
    /// Samples handed over.
    pub sockets: u64,
    /// Bytes read from the kernel.
    pub bytes: u64,
    /// Records that could not be parsed, or that the kernel said it skipped (`NLM_F_DUMP_INTR`).
    pub lost: u64,
}
