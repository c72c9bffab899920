//! Waiting for files and deadlines at once, to the microsecond. See epoll_pwait2(2) and prctl(2).

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use weirgate_units::Duration;

/// At most this many files are reported by one wait; the others by the next.
const EVENTS_MAX: usize = 128;

/// An epoll instance whose timeouts are in nanoseconds (Linux 5.11).
#[derive(Debug)]
pub struct Waiter {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Waiter {
    /// One that waits for nothing yet.
    ///
    /// # Errors
    /// Where the process has too many files open.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX] })
    }

    /// From now on, says `token` whenever `file` has something to be read (level-triggered). The file must outlive its
    /// interest; when it is closed the interest ends.
    ///
    /// # Errors
    /// Where the file cannot be waited for, or is there already.
    pub fn add(&self, file: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, file, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
    }

    /// The same, edge-triggered: `token` is said once for all that has come until then, so read until there is no more.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_edge(&self, file: impl AsFd, token: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, file, epoll::EventData::new_u64(token), flags)?)
    }

    /// From now on, or no more, says the token of a file of [`add_edge`](Self::add_edge) also when there is room to write; and says
    /// it at once where there is.
    ///
    /// # Errors
    /// Where the file was not added.
    pub fn watch_room(&self, file: impl AsFd, token: u64, watch: bool) -> io::Result<()> {
        let mut flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        flags.set(epoll::EventFlags::OUT, watch);
        Ok(epoll::modify(&self.epoll, file, epoll::EventData::new_u64(token), flags)?)
    }

    /// Waits until a file is ready or `timeout` has passed (`None`: however long), and gives the tokens of the files that
    /// are, at most 128. A signal ends the wait with none.
    ///
    /// # Errors
    /// `ENOSYS` before Linux 5.11.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<impl Iterator<Item = u64> + '_> {
        let timeout = timeout.map(|t| libc::timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: (t.as_nanos() % 1_000_000_000) as i64,
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the events' pointer and length are those of a live Vec that nothing else uses during the call; the timeout
        // is null or points to a timespec that outlives it; no signal mask is given (null, size 0). Called by number, as
        // the C library's wrapper is younger than the systems this runs on.
        let ready = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len(),
                timeout,
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        let ready = match usize::try_from(ready) {
            Ok(ready) => ready,
            Err(_) => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => 0,
                e => return Err(e),
            },
        };
        Ok(self.events[..ready].iter().map(|event| event.u64))
    }
}

impl AsFd for Waiter {
    /// To be waited for by another one: it is ready while something is that it waits for.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// How soon the calling thread runs once it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promptness {
    /// Before every ordinary thread (SCHED_RR).
    RealTime,
    /// Favoured among ordinary threads (nice -20).
    Favoured,
    /// As everybody.
    Ordinary,
}

/// Makes the calling thread run as soon as it is due: timers without slack, and ahead of others as far as this process may.
/// For threads that mostly wait.
pub fn run_promptly() -> Promptness {
    // 1 ns instead of the 50 us by which the kernel rounds ordinary timers. Refused only by kernels without it.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: thread 0 is the calling one; the parameter is live and only read.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const lowest) } == 0 {
        return Promptness::RealTime;
    }
    if rustix::process::setpriority_process(Some(rustix::thread::gettid()), -20).is_ok() {
        return Promptness::Favoured;
    }
    Promptness::Ordinary
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn says_which_file_is_ready_and_when_time_is_up() {
        let mut waiter = Waiter::new().expect("epoll works");
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        waiter.add(&read, 42).expect("a pipe can be waited for");
        let before = clock::monotonic();
        assert_eq!(waiter.wait(Some(Duration::from_micros(300))).expect("waits").count(), 0);
        assert!(clock::monotonic() >= before + Duration::from_micros(300), "never early");
        rustix::io::write(&write, b"x").expect("writes");
        assert_eq!(waiter.wait(None).expect("waits").collect::<Vec<_>>(), [42]);
        assert_eq!(waiter.wait(Some(Duration::ZERO)).expect("waits").collect::<Vec<_>>(), [42], "until it is read");
    }
}
