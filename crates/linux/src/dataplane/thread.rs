//! The switch's thread, and how others reach it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};
use weirgate_units::Duration;

use super::Dataplane;

/// How long it sleeps where nothing is to be done.
const PATIENCE: Duration = Duration::from_secs(1);

type Call = Box<dyn FnOnce(&mut Dataplane) + Send>;

/// The thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the switch has stopped")]
pub struct Stopped;

/// A running switch. Dropping it stops it; what waits is lost then.
#[derive(Debug)]
pub struct Handle {
    calls: Option<Sender<Call>>,
    wake: OwnedFd,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Starts a thread that switches until its handle is dropped.
///
/// # Errors
/// Where there can be no thread.
pub fn spawn(name: &str, mut dataplane: Dataplane) -> io::Result<Handle> {
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let woken = wake.try_clone()?;
    dataplane.wait_for(&woken, 0)?;
    let (calls, inbox) = channel();
    let thread =
        std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&mut dataplane, &woken, &inbox))?;
    Ok(Handle { calls: Some(calls), wake, thread: Some(thread) })
}

impl Handle {
    /// Has the switch's thread do something between two frames, and gives what comes of it.
    ///
    /// # Errors
    /// Where the thread has ended.
    pub fn call<R: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Dataplane) -> R + Send + 'static,
    ) -> Result<R, Stopped> {
        let (answer, answered) = channel();
        let call: Call = Box::new(move |dataplane| {
            // Nobody may be waiting any more.
            let _ = answer.send(act(dataplane));
        });
        self.calls.as_ref().and_then(|calls| calls.send(call).ok()).ok_or(Stopped)?;
        self.wake();
        answered.recv().map_err(|_| Stopped)
    }

    /// Whether its thread runs: it ends by itself only where the kernel cannot wait, or by a fault.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops it and waits for its end.
    ///
    /// # Errors
    /// Why it ended by itself.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn wake(&self) {
        // It is full only where it wakes already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn end(&mut self) -> io::Result<()> {
        self.calls = None;
        self.wake();
        match self.thread.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(error),
            Some(Err(_)) => Err(io::Error::other("the switch's thread panicked")),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Whoever wants to know calls `stop`.
        let _ = self.end();
    }
}

fn run(dataplane: &mut Dataplane, woken: &OwnedFd, inbox: &Receiver<Call>) -> io::Result<()> {
    if let Err(error) = crate::sched::wake_early() {
        tracing::warn!(
            "the switch runs at the priority of everybody else ({error}): limits are met less exactly under load"
        );
    }
    if let Some(core) = dataplane.core {
        match crate::sched::keep_to_core(core) {
            Ok(true) => {}
            Ok(false) => tracing::warn!("there is no processor for the switch's thread alone: it runs on any"),
            Err(error) => tracing::warn!("the switch's thread cannot keep to a processor ({error}): it runs on any"),
        }
    }
    loop {
        if !dataplane.turn(PATIENCE)? {
            continue;
        }
        let mut count = [0; 8];
        // Empty where somebody else's call was served with this one.
        let _ = rustix::io::read(woken, &mut count);
        loop {
            match inbox.try_recv() {
                Ok(call) => call(dataplane),
                Err(std::sync::mpsc::TryRecvError::Empty) => break,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }
}
