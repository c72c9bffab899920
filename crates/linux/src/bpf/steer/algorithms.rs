//! Which congestion controls this kernel has. See tcp(7), `tcp_available_congestion_control`.

use std::io;
use std::process::{Command, Stdio};

use thiserror::Error;
use weirgate_sockets::sample::CcName;

use super::unpace::is_unpacer;

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Why an algorithm cannot be used.
#[derive(Debug, Error)]
pub enum AlgorithmError {
    /// Neither built in nor a module.
    #[error("this kernel has no congestion control `{name}` (it has: {available}) and `modprobe tcp_{name}` gave none")]
    Unknown {
        /// The name asked for.
        name: CcName,
        /// What there is.
        available: String,
    },
    /// The kernel does not let programs choose it.
    #[error("`cdg` cannot be set by a kernel program (it allocates): choose another")]
    Cdg,
    /// The list cannot be read.
    #[error("{AVAILABLE} cannot be read: {0}")]
    List(#[source] io::Error),
}

/// Sees to it that each can be set by a kernel program, which loads no modules: `modprobe tcp_NAME` where it is missing.
///
/// # Errors
/// Where one is neither there nor a module that can be loaded, or cannot be set by a program.
pub fn make_available(names: &[CcName]) -> Result<(), AlgorithmError> {
    for name in names {
        if name.as_str() == "cdg" {
            return Err(AlgorithmError::Cdg);
        }
        if is_available(name)? {
            continue;
        }
        // Whether it worked is read from the list; a system without modprobe has what is built in.
        let _tried = Command::new("modprobe")
            .args(["-q", "--", &format!("tcp_{name}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !is_available(name)? {
            return Err(AlgorithmError::Unknown { name: *name, available: choices(&read()?) });
        }
    }
    Ok(())
}

fn is_available(name: &CcName) -> Result<bool, AlgorithmError> {
    Ok(read()?.split_ascii_whitespace().any(|available| available == name.as_str()))
}

/// What a person may choose among `available`.
fn choices(available: &str) -> String {
    available.split_ascii_whitespace().filter(|name| !is_unpacer(name)).collect::<Vec<_>>().join(" ")
}

fn read() -> Result<String, AlgorithmError> {
    std::fs::read_to_string(AVAILABLE).map_err(AlgorithmError::List)
}
