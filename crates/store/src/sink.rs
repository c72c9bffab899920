//! The thread that writes: batches into the open part, parts into their place, old parts out of the folder.
//!
//! Every row that reaches it ends as written or as lost, and is counted as one of the two when that is certain: written
//! once its file is durable, lost once its file was given up. While the disk has no room, row groups wait encoded, as
//! many as [`Options::hold_up_to`] allows, and go to the disk first when there is room again.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use weirgate_units::UnixTime;

use crate::hour::Hour;
use crate::layout::{self, Listing, Part};
use crate::merge::{Merge, Step};
use crate::part::{Encoded, Group, OpenPart, PART_ROWS_MAX};
use crate::queue::{Message, Queue};
use crate::writer::{Options, Shared, Trouble};

pub(crate) struct Sink {
    dir: PathBuf,
    options: Options,
    shared: Arc<Shared>,
    /// The rows that came last, and their hour.
    group: Group,
    hour: Hour,
    /// Row groups on their way to the disk, oldest first; empty but while it refuses them.
    held: VecDeque<(Hour, Encoded)>,
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
            group: Group::default(),
            hour: Hour::of(UnixTime::default()),
            held: VecDeque::new(),
            open: None,
            parts: listing.parts,
            next: listing.last + 1,
            merge: None,
            superseded: Vec::new(),
            settled: None,
        };
        sink.count_disk();
        // Said at the start, and not only when there is something to write.
        if let Some(short) = sink.shortage() {
            sink.shared.trouble(Trouble::Holds, &short);
        }
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
        self.end_group();
        self.close_part();
        for (_, group) in self.held.drain(..) {
            self.shared.lose_to_disk(group.rows());
        }
        self.clear_superseded();
        if let Some(merge) = self.merge.take() {
            merge.abandon();
        }
    }

    fn batch(&mut self, hour: Hour, rows: RecordBatch) {
        if hour != self.hour {
            self.end_group();
            self.hour = hour;
        }
        self.group.push(rows);
        if self.group.is_full() {
            self.end_group();
        }
    }

    /// Sends the waiting rows on their way.
    fn end_group(&mut self) {
        let rows = self.group.rows();
        if rows == 0 {
            return;
        }
        match self.group.encode() {
            Ok(group) => self.held.push_back((self.hour, group)),
            Err(error) => {
                self.shared.lose_to_disk(rows);
                self.shared.trouble(Trouble::Loses, &error);
            }
        }
        self.write_held();
    }

    /// Puts what is held into files; gives up the oldest where more is left than may be held.
    fn write_held(&mut self) {
        while let Some((hour, group)) = self.held.pop_front() {
            if self.open.as_ref().is_some_and(|part| part.hour() != hour || part.rows() >= PART_ROWS_MAX) {
                self.close_part();
            }
            if !self.prepare(hour, &group) {
                self.held.push_front((hour, group));
                break;
            }
            if let Some(part) = &mut self.open
                && let Err(error) = part.append(group)
            {
                self.give_up_part();
                self.shared.trouble(Trouble::Loses, &error);
            }
        }
        let mut memory: u64 = self.held.iter().map(|(_, group)| group.memory()).sum();
        while memory > self.options.hold_up_to.as_u64() {
            let Some((_, oldest)) = self.held.pop_front() else { break };
            memory -= oldest.memory();
            self.shared.lose_to_disk(oldest.rows());
            self.shared.loses();
        }
    }

    /// Makes sure that a file is open and that the disk has room for `group`; where it has not, the file is closed: a
    /// file closed in time is a file saved.
    fn prepare(&mut self, hour: Hour, group: &Encoded) -> bool {
        if let Some(short) = self.shortage() {
            self.close_part();
            self.shared.trouble(Trouble::Holds, &short);
            return false;
        }
        let ready = match &self.open {
            Some(part) => part.reserve(group),
            None => {
                let number = self.next;
                self.next += 1;
                OpenPart::create(&self.dir, hour, number, number).and_then(|part| self.open.insert(part).reserve(group))
            }
        };
        if let Err(error) = ready {
            self.close_part();
            self.shared.trouble(Trouble::Holds, &error);
            return false;
        }
        true
    }

    fn give_up_part(&mut self) {
        if let Some(part) = self.open.take() {
            self.shared.lose_to_disk(part.rows());
            part.abandon();
        }
    }

    fn close_part(&mut self) {
        let Some(part) = self.open.take() else { return };
        let rows = part.rows();
        if rows == 0 {
            part.abandon();
            return;
        }
        match part.close() {
            Ok(part) => {
                self.parts.insert((part.hour, part.first), part);
                self.shared.wrote(rows, part.bytes);
                self.count_disk();
            }
            Err(error) => {
                self.shared.lose_to_disk(rows);
                self.shared.trouble(Trouble::Loses, &error);
            }
        }
    }

    /// What the file system lacks of the room that must be kept free; `None` where it has that, or does not say.
    fn shortage(&self) -> Option<NoRoom> {
        let keep = self.options.keep_free.as_u64();
        let free = free(&self.dir);
        (free < keep).then(|| NoRoom { dir: self.dir.clone(), free, keep })
    }

    fn rotate(&mut self, now: UnixTime) {
        self.write_held();
        let short = self.shortage().filter(|_| !self.group.is_empty());
        if self.held.is_empty() && short.is_none() {
            self.end_group();
        } else {
            // Few large groups take less memory than many small ones.
            self.group.compact();
        }
        self.close_part();
        if let Some(short) = short {
            self.shared.trouble(Trouble::Holds, &short);
        }
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
fn has_room_for_merge(merge: &Merge, dir: &Path, keep: u64) -> bool {
    free(dir) >= keep.saturating_add(merge.bytes_left())
}

/// The bytes free to this process where `dir` lies; all there can be where the system does not say.
fn free(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(u64::MAX, |s| s.f_bavail.saturating_mul(s.f_frsize))
}

#[derive(Debug, thiserror::Error)]
#[error(
    "only {} MB are free where {} lies, and {} MB must stay free: make room, or lower [store] keep_free",
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
