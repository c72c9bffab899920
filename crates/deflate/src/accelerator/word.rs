//! Whose an instance is, and how far its body: one word, which both sides change by compare-and-swap.
//!
//! Its low byte is the state, the rest a generation that grows when an instance is taken away from its holder: who has been away for too
//! long cannot mistake another's instance for its own.

use super::atomic::{AtomicU64, Ordering};

/// How far an instance's body is, and whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// Nobody's.
    Free,
    /// A holder's, which has nothing to compress now.
    Held,
    /// Its holder writes a body.
    Filling,
    /// The body is whole.
    Posted,
    /// The device has taken it.
    Running,
    /// The device has answered.
    Done,
    /// The device has it, and its holder waits no longer.
    Dropped,
}

/// The generation in which an instance was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold(u64);

/// An instance's word. All zero, it is nobody's.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Word(AtomicU64);

impl Default for Word {
    /// Nobody's.
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Word {
    /// Takes the instance, if it is nobody's.
    pub(super) fn take(&self) -> Option<Hold> {
        let (hold, state) = self.look();
        (state == Some(State::Free) && self.change(hold, State::Free, State::Held)).then_some(hold)
    }

    /// From one state to another; false: it is not in that state, or no longer `hold`'s.
    pub(super) fn change(&self, hold: Hold, from: State, to: State) -> bool {
        let word = |state: State| hold.0 << 8 | state as u64;
        self.0.compare_exchange(word(from), word(to), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Makes the instance nobody's, if it still is as it was seen.
    pub(super) fn free(&self, hold: Hold, seen: State) -> bool {
        let (from, to) = (hold.0 << 8 | seen as u64, hold.0.wrapping_add(1) << 8 | State::Free as u64);
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// As it is now. The state is `None` where another process has written nonsense.
    pub(super) fn look(&self) -> (Hold, Option<State>) {
        let word = self.0.load(Ordering::Acquire);
        let state = match word as u8 {
            0 => State::Free,
            1 => State::Held,
            2 => State::Filling,
            3 => State::Posted,
            4 => State::Running,
            5 => State::Done,
            6 => State::Dropped,
            _ => return (Hold(word >> 8), None),
        };
        (Hold(word >> 8), Some(state))
    }

    /// Where the state is nonsense, nobody's.
    pub(super) fn mend(&self) {
        let word = self.0.load(Ordering::Acquire);
        if word as u8 > State::Dropped as u8 {
            let free = ((word >> 8).wrapping_add(1)) << 8;
            let _other_was_quicker = self.0.compare_exchange(word, free, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}
