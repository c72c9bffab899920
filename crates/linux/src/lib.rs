//! Everything that touches the kernel.
#![allow(clippy::disallowed_methods, reason = "this room touches the world: clocks, files, threads are its work")]

pub mod ask;
pub mod bpf;
pub mod bpffs;
pub mod cgroup;
pub mod clock;
pub mod conntrack;
pub mod dataplane;
pub mod diag;
pub mod facts;
pub mod interface;
pub mod link;
pub mod memory;
mod netlink;
pub mod netns;
pub mod nft;
pub mod nudge;
pub mod poll;
pub mod route;
pub mod route_cc;
pub mod sched;
pub mod tap;
pub mod tcp;
pub mod transport;
pub mod tun;
pub mod udp;
pub mod vhost;
pub mod wait;
pub mod ways;
