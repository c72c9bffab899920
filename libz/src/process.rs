//! What a process keeps: what is in force, and the engines' choice by it. A child that was forked begins anew, so that a web server that
//! reads its configuration again has workers by the settings of then.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use weirgate_deflate::Choice;
use weirgate_deflate::accelerator::{Client, Memory};

use crate::settings::{self, Settings};
use crate::shared;

/// The process's, and for ever: a pointer, since a child's is another one.
static CURRENT: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// The parent's, of a process that was forked from one that has the library.
static PARENT: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// When it was looked for an accelerator.
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// How often that is, where there is none, in nanoseconds.
const LOOK_EVERY: u64 = 1_000_000_000;

/// Whether it was told what of the settings cannot be understood, by this process or by the one that it was forked from.
static TOLD: AtomicBool = AtomicBool::new(false);

/// How far the clock of the kernel's last tick is behind at most, in nanoseconds; until that is known, for ever.
static TICK: AtomicU64 = AtomicU64::new(u64::MAX);

pub(crate) struct Process {
    pub(crate) settings: Settings,
    problems: Vec<String>,
    pub(crate) choice: Choice,
}

impl Process {
    /// Tells what of one setting cannot be understood.
    pub(crate) fn tell_of(&self, name: &str) {
        let wrong = |problem: &&String| problem.contains(&format!(": {name} = "));
        let problems: Vec<String> = self.problems.iter().filter(wrong).cloned().collect();
        settings::tell(&problems);
    }
}

/// Reads the settings when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    settings::loaded();
    TICK.store(nanos(libc::CLOCK_MONOTONIC_COARSE, libc::clock_getres), Ordering::Relaxed);
    current();
    // SAFETY: the function stays where it is, and does what may be done after a fork.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

/// What the parent has is not the child's: instances of an accelerator, counters.
extern "C" fn forked() {
    shared::forked();
    // SAFETY: what was stored there stays for ever.
    let process = unsafe { CURRENT.swap(ptr::null_mut(), Ordering::Relaxed).as_ref() };
    if let Some(process) = process {
        if let Some(accelerator) = process.choice.accelerator() {
            accelerator.forked();
        }
        PARENT.store(ptr::from_ref(process).cast_mut(), Ordering::Relaxed);
    }
    LOOKED.store(0, Ordering::Relaxed);
}

/// This process's.
pub(crate) fn current() -> &'static Process {
    // SAFETY: what was stored there stays for ever.
    if let Some(process) = unsafe { CURRENT.load(Ordering::Acquire).as_ref() } {
        return process;
    }
    // SAFETY: what was stored there stays for ever.
    let (settings, problems) = match unsafe { PARENT.load(Ordering::Relaxed).as_ref() } {
        Some(parent) if settings::is_elsewhere() => (parent.settings.clone(), parent.problems.clone()),
        _ => settings::read(),
    };
    let client = Client::new(settings.patience, now, nap);
    let choice = Choice::new(settings.mode, settings.larger_max).with_accelerator(client, settings.offload);
    choice.load_libraries();
    let new = Box::into_raw(Box::new(Process { settings, problems, choice }));
    match CURRENT.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: it was just made, and nobody frees it.
        Ok(_) => unsafe { &*new },
        Err(first) => {
            // SAFETY: nobody else has seen the new one; the first one stays for ever.
            unsafe {
                drop(Box::from_raw(new));
                &*first
            }
        }
    }
}

/// To be called where a stream begins: looks after the counters' file and the accelerator now and then. It tells what of the settings cannot
/// be understood, once: most programs that have the library compress nothing.
pub(crate) fn look(now: u64) {
    let process = current();
    if !TOLD.load(Ordering::Relaxed) && !TOLD.swap(true, Ordering::Relaxed) {
        settings::tell(&process.problems);
    }
    shared::look(now, &process.settings.counters);
    let looked = LOOKED.load(Ordering::Relaxed);
    if looked != 0 && now.saturating_sub(looked) < LOOK_EVERY {
        return;
    }
    let is_mine = LOOKED.compare_exchange(looked, now.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if let Some(client) = process.choice.accelerator()
        && is_mine
        && !client.is_alive(now)
    {
        match connect(&process.settings.accelerator) {
            Door::Closed => {}
            Door::Busy => client.expect(),
            Door::Open(stream) => {
                client.expect();
                if let Some(memory) = received(&stream).and_then(|file| Memory::open(file.as_fd()).ok()) {
                    client.attach(memory, now);
                }
            }
        }
    }
}

/// How an accelerator's socket was found.
enum Door {
    /// There is none, or none for this process.
    Closed,
    /// There is one, with others before it, or what one that died has left.
    Busy,
    /// It is connected to.
    Open(OwnedFd),
}

/// Connects to an accelerator's process without waiting, if its owner may be trusted with what this process sends: it hands its memory
/// to whoever connects to its socket.
fn connect(path: &Path) -> Door {
    let Some(stream) = socket() else { return Door::Closed };
    match connected(&stream, path) {
        Ok(()) => {}
        Err(libc::EAGAIN | libc::ECONNREFUSED) => return Door::Busy,
        Err(_) => return Door::Closed,
    }
    // SAFETY: it has no preconditions.
    let own = unsafe { libc::geteuid() };
    if peer(&stream).is_some_and(|owner| owner == 0 || owner == own) { Door::Open(stream) } else { Door::Closed }
}

fn socket() -> Option<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: makes a socket of its own.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, kind, 0);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    }
}

/// An error is one of connect(2)'s.
fn connected(stream: &OwnedFd, path: &Path) -> Result<(), libc::c_int> {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as _, sun_path: [0; 108] };
    let bytes = path.as_os_str().as_encoded_bytes();
    let place = address.sun_path.get_mut(..bytes.len()).filter(|_| bytes.len() < 108).ok_or(libc::ENAMETOOLONG)?;
    place.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from as libc::c_char);
    let len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address is one, and as long as it says.
    let code = unsafe { libc::connect(stream.as_raw_fd(), (&raw const address).cast(), len) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)) }
}

/// Whose process is at the other end.
fn peer(stream: &OwnedFd) -> Option<libc::uid_t> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: it writes to `peer`, which is as long as it is told.
    let code = unsafe {
        let to = (&raw mut peer).cast();
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut len)
    };
    (code == 0).then_some(peer.uid)
}

/// The file that the other end sends, if it comes at once.
fn received(stream: &OwnedFd) -> Option<OwnedFd> {
    /// Milliseconds: a device looks for who connects more often.
    const WAIT: libc::c_int = 5;
    let mut byte = 0_u8;
    let mut bytes = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // Room for one descriptor's message, aligned as it wants.
    let mut room = [0_u64; 8];
    // SAFETY: zeroed, it is a message of nothing; it is filled with rooms that are there for the calls. What is read is looked at as
    // cmsg(3) has it.
    unsafe {
        let mut poll = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        if libc::poll(&raw mut poll, 1, WAIT) != 1 {
            return None;
        }
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut bytes, 1);
        (message.msg_control, message.msg_controllen) = (room.as_mut_ptr().cast(), size_of_val(&room) as _);
        if libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) != 1 {
            return None;
        }
        let head = libc::CMSG_FIRSTHDR(&raw const message).as_ref()?;
        let wanted = libc::CMSG_LEN(size_of::<libc::c_int>() as u32) as usize;
        let is_file = head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS;
        (is_file && head.cmsg_len as usize == wanted)
            .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(head).cast::<libc::c_int>().read_unaligned()))
    }
}

/// Nanoseconds of the clock that never goes back; no system call, by the vDSO.
pub(crate) fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// No earlier than [`now`], for a fifth of what that costs: the clock of the kernel's last tick, and a tick.
pub(crate) fn soon() -> u64 {
    clock(libc::CLOCK_MONOTONIC_COARSE).saturating_add(TICK.load(Ordering::Relaxed))
}

/// Processor time of the caller's thread.
pub(crate) fn busy() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock(which: libc::clockid_t) -> u64 {
    nanos(which, libc::clock_gettime)
}

/// What one of clock_gettime(2)'s says of a clock.
fn nanos(which: libc::clockid_t, of: unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int) -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to `at`.
    unsafe { of(which, &raw mut at) };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

fn nap(nanos: u64) {
    let at = libc::timespec { tv_sec: (nanos / 1_000_000_000) as _, tv_nsec: (nanos % 1_000_000_000) as _ };
    // SAFETY: it reads `at`; a signal that wakes it earlier does no harm.
    unsafe { libc::nanosleep(&raw const at, ptr::null_mut()) };
}
