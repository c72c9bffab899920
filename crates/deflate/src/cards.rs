//! A thread's cards: loaded when they are first asked for, again when one has failed, and never in a child of a process that has some.

use std::mem;
use std::ptr;

use crate::choice::Choice;
use crate::count::Reason;
use crate::qatzip::Qatzip;

/// A card for each level.
#[derive(Debug, Default)]
pub(crate) struct Cards {
    /// The choice of the process that they were loaded in, by its address: a forked child has another one. 0: none yet.
    process: usize,
    is_inherited: bool,
    levels: [Slot; 10],
}

#[derive(Debug, Default)]
enum Slot {
    #[default]
    Untried,
    Loaded(Qatzip),
    /// It has failed, or could not be loaded again, and is not asked before this time, in nanoseconds.
    Gone(u64),
}

/// For how long a card that has failed is left alone, in nanoseconds.
const PAUSE: u64 = 1_000_000_000;

impl Cards {
    /// The card at a level, at `now`, a clock's time in nanoseconds.
    ///
    /// # Errors
    /// Why not; `None`: there is none.
    pub(crate) fn card(&mut self, level: i32, choice: &Choice, now: u64) -> Result<&mut Qatzip, Option<Reason>> {
        self.look_for_a_fork(choice);
        if self.is_inherited {
            return Err(None);
        }
        let was_loaded = self.levels.iter().any(|slot| !matches!(slot, Slot::Untried));
        let slot = &mut self.levels[level.clamp(1, 9) as usize];
        if let Slot::Loaded(card) = slot
            && card.has_failed()
        {
            *slot = Slot::Gone(now + PAUSE);
        }
        let is_due = match slot {
            Slot::Untried => true,
            Slot::Loaded(_) => false,
            Slot::Gone(until) if now < *until => return Err(Some(Reason::Paused)),
            Slot::Gone(_) => true,
        };
        if is_due {
            match Qatzip::load(level) {
                Some(card) => *slot = Slot::Loaded(card),
                None if was_loaded => {
                    *slot = Slot::Gone(now + PAUSE);
                    return Err(Some(Reason::Gone));
                }
                None => return Err(None),
            }
        }
        if let Slot::Loaded(card) = slot { Ok(card) } else { Err(None) }
    }

    /// What a parent has loaded its child may neither use nor give back.
    fn look_for_a_fork(&mut self, choice: &Choice) {
        let process = ptr::from_ref(choice).addr();
        if mem::replace(&mut self.process, process) == process {
            return;
        }
        for slot in &mut self.levels {
            if let Slot::Loaded(card) = mem::take(slot) {
                mem::forget(card);
                self.is_inherited = true;
            }
        }
    }
}
