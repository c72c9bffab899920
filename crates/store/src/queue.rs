//! The way from the thread that senses to the thread that writes: bounded, and never a place to wait for long.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use weirgate_units::UnixTime;

use crate::hour::Hour;

/// Batches that may wait: 4 x 2,048 rows are 3.5 MB. Where a poll of 100,000 sockets comes faster than it is
/// compressed, its thread waits now and then for the writer; a longer queue would take the daemon's memory instead.
const BATCHES_MAX: usize = 4;
/// How long a batch waits for room before it is given up: longer than a busy disk takes to fsync a minute of records,
/// short against the minute after which a policy that nobody renews ends. A disk that does nothing for so long is taken
/// for stuck, and the batches after it do not wait at all until one finds room again.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the writing thread is told.
pub(crate) enum Message {
    /// Rows of one hour.
    Batch(Hour, RecordBatch),
    /// The interval is over: close the file, look after the folder.
    Rotate(UnixTime),
    /// Say when all before this has been done.
    Sync(std::sync::mpsc::Sender<()>),
    /// Close the file and end.
    Close,
}

pub(crate) struct Queue {
    patience: Duration,
    inner: Mutex<Inner>,
    /// Something came, or the reader left.
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    messages: VecDeque<Message>,
    batches: usize,
    stuck: bool,
    closed: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Self::new(PATIENCE)
    }
}

impl Queue {
    fn new(patience: Duration) -> Self {
        Self { patience, inner: Mutex::default(), changed: Condvar::new() }
    }

    /// Hands over `rows` of `hour`. Waits for room, for [`PATIENCE`] at most; false where they had to be given up.
    pub(crate) fn push_batch(&self, hour: Hour, rows: RecordBatch) -> bool {
        let mut inner = self.lock();
        if !inner.stuck && inner.batches >= BATCHES_MAX && !inner.closed {
            let full = |i: &mut Inner| i.batches >= BATCHES_MAX && !i.closed;
            inner =
                self.changed.wait_timeout_while(inner, self.patience, full).unwrap_or_else(PoisonError::into_inner).0;
        }
        inner.stuck = inner.batches >= BATCHES_MAX;
        if inner.stuck || inner.closed {
            return false;
        }
        inner.batches += 1;
        inner.messages.push_back(Message::Batch(hour, rows));
        self.changed.notify_all();
        true
    }

    /// Hands over a message without rows, at once; false where nobody reads any more.
    pub(crate) fn push(&self, message: Message) -> bool {
        let mut inner = self.lock();
        if !inner.closed {
            inner.messages.push_back(message);
            self.changed.notify_all();
        }
        !inner.closed
    }

    /// The next message; where none is there, waits for it or returns `None`.
    pub(crate) fn pop(&self, wait: bool) -> Option<Message> {
        let mut inner = self.lock();
        if wait {
            let empty = |i: &mut Inner| i.messages.is_empty();
            inner = self.changed.wait_while(inner, empty).unwrap_or_else(PoisonError::into_inner);
        }
        let message = inner.messages.pop_front();
        if let Some(Message::Batch(..)) = message {
            inner.batches -= 1;
            self.changed.notify_all();
        }
        message
    }

    /// Refuses what comes from now on; returns the rows that nobody will write.
    pub(crate) fn close(&self) -> u64 {
        let mut inner = self.lock();
        inner.closed = true;
        inner.batches = 0;
        self.changed.notify_all();
        let rows = |m: Message| if let Message::Batch(_, rows) = m { rows.num_rows() as u64 } else { 0 };
        inner.messages.drain(..).map(rows).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::UInt8Array;
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn batch(rows: usize) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::UInt8, false)]));
        RecordBatch::try_new(schema, vec![Arc::new(UInt8Array::from(vec![0; rows]))]).unwrap()
    }

    #[test]
    fn a_full_queue_refuses_rows_until_one_is_taken() {
        let queue = Queue::new(Duration::ZERO);
        let hour = Hour::of(UnixTime::default());
        for _ in 0..BATCHES_MAX {
            assert!(queue.push_batch(hour, batch(3)));
        }
        assert!(!queue.push_batch(hour, batch(3)));
        // What carries no rows is never refused.
        assert!(queue.push(Message::Rotate(UnixTime::default())));
        assert!(matches!(queue.pop(true), Some(Message::Batch(_, rows)) if rows.num_rows() == 3));
        assert!(queue.push_batch(hour, batch(3)));
        assert!(!queue.push_batch(hour, batch(3)));
    }

    #[test]
    fn what_nobody_reads_any_more_is_counted() {
        let queue = Queue::default();
        let hour = Hour::of(UnixTime::default());
        assert!(queue.push_batch(hour, batch(3)) && queue.push_batch(hour, batch(4)));
        assert_eq!(queue.close(), 7);
        assert!(!queue.push_batch(hour, batch(1)) && !queue.push(Message::Close));
        assert!(queue.pop(false).is_none());
    }
}
