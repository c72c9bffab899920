//! Which bytes left under another algorithm than the namespace's own, by a program that shares nothing with steering.

use std::cell::RefCell;

use weirgate_linux::bpf::witness;
use weirgate_sockets::sample::CcName;

use super::ground::{Ground, OWN, PORT};

pub(crate) struct Witness {
    program: witness::Witness,
    seen: RefCell<Vec<witness::Segment>>,
}

impl Witness {
    /// Looks at what the ground's servers send.
    pub(crate) fn attach(ground: &Ground) -> Self {
        let program = witness::Witness::attach(&ground.cgroup, PORT, CcName::new(OWN).unwrap()).unwrap();
        Self { program, seen: RefCell::default() }
    }

    /// The stream's bytes, from the first to the last, that left for the client's port `port` under another algorithm than
    /// [`OWN`] since the last call.
    pub(crate) fn span(&self, port: u16) -> Option<(u64, u64)> {
        let mut seen = self.seen.borrow_mut();
        seen.extend(self.program.drain().unwrap());
        assert_eq!(self.program.counters().unwrap().lost, 0);
        let mine = seen.iter().filter(|s| s.remote_port == port);
        let span = mine.fold(None, |span: Option<(u64, u64)>, s| {
            let (start, end) = span.unwrap_or((s.start, s.end));
            Some((start.min(s.start), end.max(s.end)))
        });
        seen.retain(|s| s.remote_port != port);
        span
    }

    /// The same of every connection seen since the last call, whatever its port.
    pub(crate) fn spans(&self) -> Vec<(u64, u64)> {
        self.seen.borrow_mut().extend(self.program.drain().unwrap());
        let mut ports: Vec<u16> = self.seen.borrow().iter().map(|s| s.remote_port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports.into_iter().filter_map(|port| self.span(port)).collect()
    }
}
