//! What passes a device of the switch, noted: in a [`Recorder`] around it, or around what is around it.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weirgate_linux::clock;
use weirgate_linux::dataplane::{Device, Received, Sent};
use weirgate_port::Packet;
use weirgate_switch::frame::{Accounting, Frame};
use weirgate_units::{Duration, Instant};

/// Frames that passed one way.
#[derive(Clone, Debug, Default)]
pub struct Passed {
    /// When its first millisecond began.
    pub began: Instant,
    /// Bytes of IP, in each millisecond since.
    pub by_ms: Vec<u64>,
    /// Frames; a super-packet is one.
    pub frames: u64,
    /// Of those sent that had waited for an instant, how many left how late: in the first place those in time, in place `n` those later by
    /// less than 2^n ns.
    pub late: Vec<u64>,
}

/// Frames that passed one way, to be looked at while more do.
#[derive(Clone, Debug, Default)]
pub struct Record(Arc<Mutex<Passed>>);

/// A device that notes what is sent by it and received from it, with the time of its thread's clock.
#[derive(Debug)]
pub(crate) struct Recorder<D> {
    device: D,
    sent: Record,
    received: Record,
}

impl Passed {
    /// Bytes in each millisecond from the one of `from` to the one of `to`, which is not among them.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> Vec<u64> {
        (self.ms(from)..self.ms(to)).map(|ms| self.by_ms.get(ms).copied().unwrap_or(0)).collect()
    }

    /// Of the frames that had an instant, and were sent since `before` was taken of the same record, the share that was sent less than
    /// `slot`, a power of two of nanoseconds, after it, in percent.
    pub(crate) fn within_pct(&self, before: &Self, slot: Duration) -> f64 {
        let since = self.late.iter().enumerate().map(|(n, all)| all - before.late.get(n).copied().unwrap_or(0));
        let most = slot.as_nanos().ilog2() as usize;
        let (within, all) = (since.clone().take(most + 1).sum::<u64>(), since.sum::<u64>());
        within as f64 / all as f64 * 100.0
    }

    fn ms(&self, at: Instant) -> usize {
        (at.saturating_since(self.began).as_nanos() / 1_000_000) as usize
    }
}

impl Record {
    fn new(began: Instant) -> Self {
        Self(Arc::new(Mutex::new(Passed { began, ..Passed::default() })))
    }

    /// All of it so far.
    pub fn so_far(&self) -> Passed {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Passed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a frame, and how long after its instant that was, where it had one.
    fn note(&self, at: Instant, bytes: u64, late: Option<Duration>) {
        let mut passed = self.lock();
        if let Some(late) = late {
            let place = (u64::BITS - late.as_nanos().leading_zeros()) as usize;
            let len = passed.late.len().max(place + 1);
            passed.late.resize(len, 0);
            passed.late[place] += 1;
        }
        let ms = passed.ms(at);
        if passed.by_ms.len() <= ms {
            passed.by_ms.resize(ms + 1, 0);
        }
        passed.by_ms[ms] += bytes;
        passed.frames += 1;
    }
}

impl<D> Recorder<D> {
    /// Around `device`; milliseconds are counted from `began`.
    pub(crate) fn new(device: D, began: Instant) -> Self {
        Self { device, sent: Record::new(began), received: Record::new(began) }
    }

    /// What is sent by the device.
    pub(crate) fn sent(&self) -> Record {
        self.sent.clone()
    }

    /// What is received from it.
    pub(crate) fn received(&self) -> Record {
        self.received.clone()
    }
}

impl<D: Device> Device for Recorder<D> {
    fn queues(&self) -> usize {
        self.device.queues()
    }

    fn queue_fd(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.device.queue_fd(queue)
    }

    fn receive(&mut self, queue: usize, packet: &mut Packet) -> io::Result<Received> {
        let received = self.device.receive(queue, packet)?;
        if received == Received::Frame {
            self.received.note(clock::boottime(), size(packet), None);
        }
        Ok(received)
    }

    fn send(&mut self, packet: &mut Packet) -> io::Result<Sent> {
        // Before: what is within the call is the receiver's work.
        let (at, bytes) = (clock::boottime(), size(packet));
        // What need not wait has none.
        let late = (packet.at() > Instant::ZERO).then(|| at.saturating_since(packet.at()));
        let sent = self.device.send(packet)?;
        if sent == Sent::Yes {
            self.sent.note(at, bytes, late);
        }
        Ok(sent)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.device.flush()
    }

    fn lost(&mut self) -> u64 {
        self.device.lost()
    }

    fn pushes_back(&self) -> bool {
        self.device.pushes_back()
    }

    fn handle_time(&mut self, now: Instant) -> io::Result<()> {
        self.device.handle_time(now)
    }

    fn poll_at(&self) -> Option<Instant> {
        self.device.poll_at()
    }
}

/// Bytes of IP on the wire; none where it is no frame.
fn size(packet: &Packet) -> u64 {
    Frame::ethernet(packet.bytes())
        .map_or(0, |frame| Accounting::default().size(&frame, packet.offload()).bytes.as_u64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_is_seen_by_how_much() {
        let record = Record::new(Instant::ZERO);
        let note = |late: &[Option<u64>]| {
            late.iter().for_each(|late| record.note(Instant::ZERO, 1, late.map(Duration::from_nanos)));
            record.so_far()
        };
        let before = note(&[Some(0), Some(5_000_000), None]);
        let after = note(&[Some(0), Some(1), Some(1_023), None, Some(1_024), Some(70_000)]);
        assert!((after.within_pct(&before, Duration::from_nanos(1_024)) - 60.0).abs() < 1e-9, "{after:?}");
        assert!((after.within_pct(&before, Duration::from_nanos(1 << 17)) - 100.0).abs() < 1e-9, "{after:?}");
        assert_eq!(after.frames, 9);
    }
}
