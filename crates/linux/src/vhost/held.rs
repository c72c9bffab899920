//! Completions that follow a frame through others' hands, and come back when it is dropped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Completion;

/// A frame's descriptors, kept from the guest while this lives.
#[derive(Debug)]
pub struct Held {
    completion: Option<Completion>,
    dropped: Arc<Dropped>,
}

/// Completions of what was dropped, until they are taken.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    completions: Mutex<Vec<Completion>>,
    some: AtomicBool,
}

impl Held {
    pub(super) const fn new(completion: Completion, dropped: Arc<Dropped>) -> Self {
        Self { completion: Some(completion), dropped }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut completions = self.dropped.completions.lock().unwrap_or_else(PoisonError::into_inner);
        completions.extend(self.completion.take());
        // Under the lock: whoever sees it finds the completion.
        self.dropped.some.store(true, Ordering::Release);
    }
}

impl Dropped {
    pub(super) fn take(&self) -> Vec<Completion> {
        if !self.some.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut completions = self.completions.lock().unwrap_or_else(PoisonError::into_inner);
        self.some.store(false, Ordering::Release);
        std::mem::take(&mut *completions)
    }
}
