//! The limit experiments: does the software switch hold traffic to its rate, and what does that cost the traffic?

mod cascade;
mod crowd;
mod fair;
mod fast;
mod ground;
mod naive;
mod ovs;
mod peer;
mod precision;
mod rtt;
mod udp;
mod vm;

pub(crate) use cascade::run as cascade;
pub(crate) use fair::run as fair;
pub(crate) use fast::run as fast;
pub(crate) use peer::run as peer;
pub(crate) use precision::run as precision;
pub(crate) use rtt::run as rtt;
pub(crate) use udp::run as udp;
pub(crate) use vm::run as vm;

/// Payload in a full packet, of its IP length: Ethernet's MTU less IPv4 and TCP with timestamps.
const TCP_PAYLOAD: f64 = 1_448.0 / 1_500.0;
