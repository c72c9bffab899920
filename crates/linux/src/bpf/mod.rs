//! Kernel programs (`bpf/*.bpf.c`): loaded, attached and read. They measure and obey; policy stays in `tune`.
//!
//! Read first: Documentation/bpf/libbpf/libbpf_overview.rst. The objects are embedded in the binary and fitted to the
//! running kernel by its BTF. RLIMIT_MEMLOCK, which kernels before 5.11 charge maps to, is raised by libbpf itself.

pub mod close;
mod filter;
mod load;
pub mod poll;
pub mod steer;
pub mod witness;

pub use close::Closes;
pub use filter::FilterTooLong;
pub use load::LoadError;
pub use poll::IterPoller;
pub use steer::Steering;
