//! The thread that writes: batches into the open part, parts into their place, old parts out of the folder.
//!
//! Every row that reaches it ends as written or as lost, and is counted as one of the two when that is certain: written
//! once its file is durable, lost once its file was given up.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use weirgate_units::UnixTime;

use crate::hour::Hour;
use crate::layout::{self, Listing, Part};
use crate::merge::{Merge, Step};
use crate::part::{OpenPart, PART_ROWS_MAX, PartError};
use crate::queue::{Message, Queue};
use crate::writer::{Options, Shared};

pub(crate) struct Sink {
    dir: PathBuf,
    options: Options,
    shared: Arc<Shared>,
    open: Option<OpenPart>,
    parts: BTreeMap<(Hour, u64), Part>,
    /// The number of the next part.
    next: u64,
    merge: Option<Merge>,
    /// Files that no longer count. They are deleted an interval later, since a query may be reading them.
    superseded: Vec<PathBuf>,
    /// Hours that are merged as far as they can be, and hours in which that failed: not tried again.
    settled: Option<Hour>,
}

impl Sink {
    pub(crate) fn new(dir: PathBuf, options: Options, listing: Listing, shared: Arc<Shared>) -> Self {
        let sink = Self {
            dir,
            options,
            shared,
            open: None,
            parts: listing.parts,
            next: listing.last + 1,
            merge: None,
            superseded: Vec::new(),
            settled: None,
        };
        sink.count_disk();
        sink
    }

    /// Works until it is told to close. Between messages it merges, a step at a time.
    pub(crate) fn run(mut self, queue: &Queue) {
        let _refuse = RefuseOnDrop { queue, shared: Arc::clone(&self.shared) };
        loop {
            match queue.pop(self.merge.is_none()) {
                Some(Message::Batch(hour, rows)) => self.batch(hour, rows),
                Some(Message::Rotate(now)) => self.rotate(now),
                Some(Message::Sync(done)) => {
                    while self.merge.is_some() {
                        self.merge_step();
                    }
                    // Nobody waits any more where this fails.
                    let _ = done.send(());
                }
                Some(Message::Close) => break,
                None => self.merge_step(),
            }
        }
        self.close_part();
        self.clear_superseded();
        if let Some(merge) = self.merge.take() {
            merge.abandon();
        }
    }

    fn batch(&mut self, hour: Hour, rows: RecordBatch) {
        if self.open.as_ref().is_some_and(|part| part.hour() != hour || part.rows() >= PART_ROWS_MAX) {
            self.close_part();
        }
        let count = rows.num_rows();
        // Asked only where it matters: before a file is begun, and before a row group goes to the disk. A file closed
        // in time is a file saved, since its footer needs room as well.
        if self.open.as_ref().is_none_or(|part| part.fills_group(count)) && !self.has_room() {
            self.close_part();
            self.shared.lose_to_disk(count as u64);
            return;
        }
        if let Err(error) = self.write(hour, rows) {
            let before = self.open.take().map_or(0, |part| {
                let rows = part.rows();
                part.abandon();
                rows
            });
            // The part counted the batch when it was handed over; a part that could not be begun did not.
            self.shared.lose_to_disk(before.max(count as u64));
            self.shared.trouble(&error);
        }
    }

    fn write(&mut self, hour: Hour, rows: RecordBatch) -> Result<(), PartError> {
        let part = match &mut self.open {
            Some(part) => part,
            none => {
                let number = self.next;
                self.next += 1;
                none.insert(OpenPart::create(&self.dir, hour, number, number)?)
            }
        };
        part.write(rows)
    }

    fn close_part(&mut self) {
        let Some(part) = self.open.take() else { return };
        let rows = part.rows();
        match part.close() {
            Ok(part) => {
                self.parts.insert((part.hour, part.first), part);
                self.shared.wrote(rows, part.bytes);
                self.count_disk();
            }
            Err(error) => {
                self.shared.lose_to_disk(rows);
                self.shared.trouble(&error);
            }
        }
    }

    /// Whether the file system has more room than must be kept free. A system that does not say has.
    fn has_room(&self) -> bool {
        let keep = self.options.keep_free.as_u64();
        let free = rustix::fs::statvfs(&self.dir).map_or(u64::MAX, |s| s.f_bavail.saturating_mul(s.f_frsize));
        if free < keep {
            self.shared.trouble(&NoRoom { dir: self.dir.clone(), free, keep });
        }
        free >= keep
    }

    fn rotate(&mut self, now: UnixTime) {
        self.close_part();
        self.clear_superseded();
        self.retain(now);
        if self.merge.is_none() {
            self.merge = self.next_merge(Hour::of(now));
        }
    }

    /// Deletes whole files, oldest first, until no rule is broken. The newest file always stays.
    fn retain(&mut self, now: UnixTime) {
        let mut total: u64 = self.parts.values().map(|p| p.bytes).sum();
        while self.parts.len() > 1 {
            let Some((&key, &oldest)) = self.parts.first_key_value() else { break };
            let aged = self.options.age_max.is_some_and(|max| now.saturating_since(oldest.hour.end()) >= max);
            let oversize = self.options.size_max.is_some_and(|max| total > max.as_u64());
            if !aged && !oversize {
                break;
            }
            if self.merge.as_ref().is_some_and(|m| m.hour() == oldest.hour) {
                self.abandon_merge();
            }
            let path = oldest.path(&self.dir);
            if let Err(error) = fs::remove_file(&path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %error, "cannot delete an old file; it is tried again");
                break;
            }
            self.parts.remove(&key);
            total -= oldest.bytes;
            self.shared.removed(oldest.bytes);
            self.remove_empty(oldest.hour);
        }
        self.count_disk();
    }

    fn remove_empty(&self, hour: Hour) {
        if !self.parts.range((hour, 0)..=(hour, u64::MAX)).any(|_| true) {
            // Fails where something foreign lies in it, which is not ours to delete.
            let _ = fs::remove_dir(layout::folder(&self.dir, hour));
        }
    }

    /// The oldest merge worth doing among the hours before `current`.
    fn next_merge(&mut self, current: Hour) -> Option<Merge> {
        let from = self.settled.map_or((Hour::of(UnixTime::default()), 0), |hour| (hour, u64::MAX));
        let mut group: Vec<Part> = Vec::new();
        let mut size = 0;
        let mut candidates = self.parts.range(from..).map(|(_, part)| *part).filter(|p| p.hour < current).peekable();
        while let Some(part) = candidates.next() {
            if size + part.bytes <= self.options.merge_up_to.as_u64() {
                group.push(part);
                size += part.bytes;
                if candidates.peek().is_some_and(|next| next.hour == part.hour) {
                    continue;
                }
            } else if group.len() < 2 {
                group = vec![part];
                size = part.bytes;
                if candidates.peek().is_some_and(|next| next.hour == part.hour) {
                    continue;
                }
            }
            if group.len() >= 2 {
                return Some(Merge::new(self.dir.clone(), group));
            }
            self.settled = Some(part.hour);
            group.clear();
            size = 0;
        }
        None
    }

    fn merge_step(&mut self) {
        let Some(merge) = self.merge.as_mut() else { return };
        if !has_room_for_merge(merge, &self.dir, self.options.keep_free.as_u64()) {
            self.abandon_merge();
            return;
        }
        match merge.step() {
            Ok(Step::More) => {}
            Ok(Step::Done(merged, inputs)) => {
                self.merge = None;
                for part in &inputs {
                    self.parts.remove(&(part.hour, part.first));
                    self.superseded.push(part.path(&self.dir));
                }
                self.parts.insert((merged.hour, merged.first), merged);
                self.count_disk();
            }
            Err(error) => {
                tracing::warn!(%error, "merging an hour's files failed; they stay as they are");
                self.abandon_merge();
            }
        }
    }

    fn clear_superseded(&mut self) {
        for path in self.superseded.drain(..) {
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "cannot delete a merged file; it no longer counts");
            }
        }
    }

    fn abandon_merge(&mut self) {
        if let Some(merge) = self.merge.take() {
            self.settled = Some(merge.hour());
            merge.abandon();
        }
    }

    fn count_disk(&self) {
        self.shared.holds(self.parts.len() as u64, self.parts.values().map(|p| p.bytes).sum());
    }
}

/// A merge needs the room of its inputs until they are deleted.
fn has_room_for_merge(merge: &Merge, dir: &std::path::Path, keep: u64) -> bool {
    let free = rustix::fs::statvfs(dir).map_or(u64::MAX, |s| s.f_bavail.saturating_mul(s.f_frsize));
    free >= keep.saturating_add(merge.bytes_left())
}

#[derive(Debug, thiserror::Error)]
#[error(
    "only {} MB are free where {} lies, and {} MB must stay free: make room, or lower the store's size limit",
    free / 1_000_000,
    dir.display(),
    keep / 1_000_000
)]
struct NoRoom {
    dir: PathBuf,
    free: u64,
    keep: u64,
}

/// However the thread ends, nobody waits for it and what it left is counted.
struct RefuseOnDrop<'a> {
    queue: &'a Queue,
    shared: Arc<Shared>,
}

impl Drop for RefuseOnDrop<'_> {
    fn drop(&mut self) {
        self.shared.lose_to_disk(self.queue.close());
    }
}
