//! Out of the guest: from its transmit ring to the caller.

use virtio_queue::{DescriptorChain, Error};
use vm_memory::Bytes as _;
use weirgate_port::Offload;

use super::ring::Ring;
use super::split::Memory;
use super::{Completion, Offloads, Received};

/// The longest frame: the longest IPv6 packet (a header and 65,535 B), an Ethernet header and a VLAN tag.
pub const FRAME_MAX: usize = 40 + 65_535 + 18;

/// The shortest frame: an Ethernet header.
const FRAME_MIN: usize = 14;

/// A frame that the guest sent, a copy: the guest cannot change it any more.
#[derive(Debug)]
pub struct Frame<'a> {
    /// What is left to be done with it; checked against its length and what was negotiated.
    pub offload: Offload,
    /// Ethernet, of 14 to [`FRAME_MAX`] bytes.
    pub bytes: &'a [u8],
    completion: Completion,
    held: bool,
}

impl Frame<'_> {
    /// Keeps the frame's descriptors from the guest until the completion is given to
    /// [`complete`](super::VhostUser::complete), in any order: its sender is held back meanwhile. Where this is not called
    /// they go back as soon as the callback returns.
    pub fn hold(&mut self) -> Completion {
        self.held = true;
        Completion { ..self.completion }
    }
}

impl Ring {
    /// Takes up to `budget` chains.
    pub(super) fn receive(&mut self, budget: usize, each: &mut dyn FnMut(&mut Frame<'_>)) -> Received {
        let mut received = Received::default();
        let Some(memory) = self.ready() else { return received };
        let hushed = self.split.hush(&memory);
        self.believe(hushed);
        for _ in 0..budget {
            let popped = self.split.pop(&memory);
            let Some(Some(chain)) = self.believe(popped) else { break };
            self.take(&memory, chain, &mut received, each);
        }
        let more = self.more(&memory);
        received.more = self.believe(more).unwrap_or(false);
        self.signal(&memory);
        received
    }

    /// Whether the guest has sent more; where not, its next kick is asked for.
    fn more(&mut self, memory: &Memory) -> Result<bool, Error> {
        let next = self.split.next_available();
        Ok(self.split.available_end(memory)? != next || self.split.listen(memory, next)?)
    }

    fn take(
        &mut self,
        memory: &Memory,
        chain: DescriptorChain<&Memory>,
        received: &mut Received,
        each: &mut dyn FnMut(&mut Frame<'_>),
    ) {
        let head = chain.head_index();
        if !self.may_give(head) {
            self.counters.bad_chains += 1;
            received.malformed += 1;
            return;
        }
        let len = gather(chain, memory, &mut self.frame).filter(|len| *len >= self.header_len() + FRAME_MIN);
        match len {
            None => {
                self.counters.bad_chains += 1;
                received.malformed += 1;
            }
            Some(len) => {
                let (header, bytes) = self.frame[..len].split_at(self.header_len());
                if let Ok(offload) = Offloads::from_guest(self.features).read(header, bytes.len()) {
                    let mut frame = Frame { offload, bytes, completion: self.completion(head), held: false };
                    each(&mut frame);
                    let (held, len) = (frame.held, bytes.len());
                    received.frames += 1;
                    self.counters.received += 1;
                    self.counters.received_bytes += len as u64;
                    if held {
                        return self.hold(head);
                    }
                } else {
                    self.counters.bad_headers += 1;
                    received.malformed += 1;
                }
            }
        }
        self.give_back(memory, &[(head, 0)]);
    }
}

/// Copies a chain into `frame` and gives its length; `None` where the chain cannot be true: a descriptor for the device to
/// write, of no length or outside guest memory, a chain that does not end (a loop, a next one that does not exist) or is longer
/// than any frame.
fn gather(mut chain: DescriptorChain<&Memory>, memory: &Memory, frame: &mut [u8]) -> Option<usize> {
    let (mut len, mut goes_on) = (0, true);
    for descriptor in chain.by_ref() {
        let end = len + descriptor.len() as usize;
        if descriptor.is_write_only() || descriptor.len() == 0 {
            return None;
        }
        memory.read_slice(frame.get_mut(len..end)?, descriptor.addr()).ok()?;
        (len, goes_on) = (end, descriptor.has_next());
    }
    // virtio-queue ends a chain that it does not believe as it ends any other: by saying no more.
    if goes_on { None } else { Some(len) }
}
