//! The filter that the kernel runs over each socket of a dump. Read first: `inet_diag_bc_audit` and `inet_diag_bc_run` in
//! `net/ipv4/inet_diag.c`, ss(8).
//!
//! A program is a row of conditions. Each names its own length, to which it goes on where it holds (`yes`), and a jump
//! forward where it does not (`no`). Running exactly to the end accepts the socket, past the end refuses it. So "one of"
//! is a row of conditions each followed by a jump behind the last, and "none of" the same with a jump past the end.
//!
//! Only operations that every kernel has are used: ports are compared by a host condition without an address, since the
//! comparisons for equality came late.

use weirgate_units::Prefix;

use super::family;

/// Entries of each list at most: the kernel walks the program for every socket.
pub const ENTRIES_MAX: usize = 64;

/// Longest program: three full lists, two jumps around the networks.
pub const LEN_MAX: usize = ENTRIES_MAX * (PORT_LEN + JUMP_LEN + 2 * (NETWORK_LEN_MAX + 2 * (HOST_LEN + JUMP_LEN))) + 64;

/// What is wanted. An empty list asks for nothing in particular.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The local port is one of these.
    pub local_ports: &'a [u16],
    /// The remote address lies in one of these. Listeners, which have none, pass.
    pub remote: &'a [Prefix],
    /// The remote address lies in none of these. Listeners pass.
    pub remote_not: &'a [Prefix],
}

/// A list that is too long for the kernel to walk for every socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} entries in the filter's {list}: at most {ENTRIES_MAX}; name wider networks, or filter afterwards")]
pub struct TooManyError {
    /// Which list.
    pub list: &'static str,
    /// Its length.
    pub len: usize,
}

/// A filter as the kernel takes it. Empty accepts every socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytecode(Vec<u8>);

const OP_LEN: usize = 4;
const JUMP_LEN: usize = OP_LEN;
/// A host condition without an address: the operation, family, length, padding, port.
const HOST_LEN: usize = OP_LEN + 8;
const PORT_LEN: usize = HOST_LEN;
const NETWORK_LEN_MAX: usize = HOST_LEN + 16;

mod op {
    pub(super) const JMP: u8 = 1;
    pub(super) const D_LE: u8 = 5;
    pub(super) const S_COND: u8 = 7;
    pub(super) const D_COND: u8 = 8;
}

/// In a host condition's port: any.
const ANY_PORT: i32 = -1;

impl Bytecode {
    /// Compiles what is wanted.
    ///
    /// # Errors
    /// [`TooManyError`] names the list.
    pub fn compile(wanted: &Wanted<'_>) -> Result<Self, TooManyError> {
        for (list, len) in [
            ("local ports", wanted.local_ports.len()),
            ("networks", wanted.remote.len()),
            ("networks left out", wanted.remote_not.len()),
        ] {
            if len > ENTRIES_MAX {
                return Err(TooManyError { list, len });
            }
        }
        let mut program = Program::default();
        if !wanted.local_ports.is_empty() {
            program.one_of(wanted.local_ports.iter().map(|port| vec![Test::holds(local_port(*port))]));
        }
        let remote = !wanted.remote.is_empty();
        if remote || !wanted.remote_not.is_empty() {
            // A listener's remote port is 0, no connection's is.
            let listeners_pass = program.jump_if(port_at_most_zero());
            if remote {
                program.one_of(wanted.remote.iter().map(|prefix| inside(*prefix)));
            }
            for prefix in wanted.remote_not {
                program.none(inside(*prefix));
            }
            program.land(listeners_pass);
        }
        Ok(program.finish())
    }

    /// The program.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A condition, and whether it must hold or must not.
struct Test {
    condition: Vec<u8>,
    holds: bool,
}

impl Test {
    const fn holds(condition: Vec<u8>) -> Self {
        Self { condition, holds: true }
    }
}

/// A jump whose target is not known yet: the place of its operation.
#[must_use]
struct Jump(usize);

/// A program under construction. All jumps go forward; [`Self::REFUSE`] marks those past the end.
#[derive(Default)]
struct Program {
    bytes: Vec<u8>,
    refusing: Vec<Jump>,
}

impl Program {
    /// One alternative at least must pass all its tests.
    fn one_of(&mut self, alternatives: impl ExactSizeIterator<Item = Vec<Test>>) {
        let last = alternatives.len().saturating_sub(1);
        let mut passed = Vec::new();
        for (n, tests) in alternatives.enumerate() {
            let failed = self.all(tests);
            if n < last {
                passed.push(self.jump());
                failed.into_iter().for_each(|jump| self.land(jump));
            } else {
                self.refusing.extend(failed);
            }
        }
        passed.into_iter().for_each(|jump| self.land(jump));
    }

    /// Not all of the tests may pass.
    fn none(&mut self, tests: Vec<Test>) {
        let failed = self.all(tests);
        let refused = self.jump();
        self.refusing.push(refused);
        failed.into_iter().for_each(|jump| self.land(jump));
    }

    /// Goes on behind the tests where all pass; the jumps returned are taken where one does not.
    fn all(&mut self, tests: Vec<Test>) -> Vec<Jump> {
        tests.into_iter().map(|t| if t.holds { self.unless(&t.condition) } else { self.jump_if(t.condition) }).collect()
    }

    /// Jumps where the condition holds.
    fn jump_if(&mut self, condition: Vec<u8>) -> Jump {
        let not = self.unless(&condition);
        let jump = self.jump();
        self.land(not);
        jump
    }

    /// Goes on where the condition holds, jumps elsewhere.
    fn unless(&mut self, condition: &[u8]) -> Jump {
        let at = self.bytes.len();
        self.bytes.extend(condition);
        Jump(at)
    }

    fn jump(&mut self) -> Jump {
        let at = self.bytes.len();
        self.bytes.extend([op::JMP, OP_LEN as u8, 0, 0]);
        Jump(at)
    }

    /// The jump ends here.
    fn land(&mut self, Jump(at): Jump) {
        let distance = (self.bytes.len() - at) as u16;
        self.bytes[at + 2..at + 4].copy_from_slice(&distance.to_ne_bytes());
    }

    fn finish(mut self) -> Bytecode {
        debug_assert!(self.bytes.len() <= LEN_MAX);
        for Jump(at) in core::mem::take(&mut self.refusing) {
            // Four past the end: the one way to refuse that the audit lets through.
            let distance = (self.bytes.len() - at + 4) as u16;
            self.bytes[at + 2..at + 4].copy_from_slice(&distance.to_ne_bytes());
        }
        Bytecode(self.bytes)
    }
}

/// The operation's head: `yes` is its own length, `no` is filled in when the target is known.
fn head(code: u8, len: usize) -> [u8; OP_LEN] {
    [code, len as u8, 0, 0]
}

/// `struct inet_diag_hostcond`: family (0 is any), prefix length, padding, port, address.
fn host(code: u8, family: u8, prefix_len: u8, port: i32, address: &[u8]) -> Vec<u8> {
    let mut condition = head(code, HOST_LEN + address.len()).to_vec();
    condition.extend([family, prefix_len, 0, 0]);
    condition.extend(port.to_ne_bytes());
    condition.extend(address);
    condition
}

fn local_port(port: u16) -> Vec<u8> {
    host(op::S_COND, 0, 0, port.into(), &[])
}

fn port_at_most_zero() -> Vec<u8> {
    let mut condition = head(op::D_LE, 2 * OP_LEN).to_vec();
    condition.extend([0; OP_LEN]);
    condition
}

/// The remote address lies in `prefix`. The kernel matches an IPv4 condition against mapped addresses too; an IPv6 one
/// that spans them must leave them out, for to us they are IPv4.
fn inside(prefix: Prefix) -> Vec<Test> {
    match prefix.address() {
        core::net::IpAddr::V4(a) => {
            vec![Test::holds(host(op::D_COND, family::INET, prefix.len(), ANY_PORT, &a.octets()))]
        }
        core::net::IpAddr::V6(a) => {
            let spans_mapped = prefix.len() <= 80 && a.is_unspecified();
            let mut tests = Vec::new();
            if spans_mapped {
                tests.push(Test { condition: host(op::D_COND, family::INET, 0, ANY_PORT, &[0; 4]), holds: false });
            }
            tests.push(Test::holds(host(op::D_COND, family::INET6, prefix.len(), ANY_PORT, &a.octets())));
            tests
        }
    }
}

#[cfg(test)]
mod tests;
