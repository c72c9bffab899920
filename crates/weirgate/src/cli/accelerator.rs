//! `weirgate deflate accelerator`: the process of a GPU, or of a simulated card.

use std::fs;
use std::io::{ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use weirgate_deflate::accelerator::{BODY_MAX, Batched, Faults, Memory, Pulse, Server, Simulated, Step};
use weirgate_deflate::nvcomp::Nvcomp;
use weirgate_linux::clock;

use super::Failure;
use super::output::Output;
use crate::fabric::run::interruption;
use crate::groups;

/// Compress for libweirgate_z.so: by a GPU, or as a card would, by libdeflate on one thread, after a time and with faults.
#[derive(Debug, Args)]
pub(super) struct Accelerator {
    /// Its socket: where libweirgate_z.so looks for it
    #[arg(long, value_name = "FILE", default_value = "/run/weirgate-accelerator")]
    socket: PathBuf,
    /// A group whose processes may use it beside its owner's, as nginx's workers (www-data)
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Instances: threads that can use it at the same time. Each has 548 KiB of memory
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    instances: u32,
    /// Use the first NVIDIA GPU, by nvCOMP (libnvcomp.so.6 or .so.5, libcuda.so.1), for bodies of up to 64 KB
    #[arg(long, conflicts_with_all = ["latency_us", "slow_every", "wrong_every", "fail_every", "crash_at"])]
    nvcomp: bool,
    /// nvCOMP's algorithm: 2 makes less output than zlib's level 1, 5 less than its level 6, and takes longer
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(i32).range(0..=i64::from(Nvcomp::ALGORITHM_MAX)))]
    algorithm: i32,
    /// How long each body takes beside its compression
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 50)]
    latency_us: u64,
    /// Of so many bodies one takes longer; 0: none
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    slow_every: u64,
    /// How long those take
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 100)]
    slow_ms: u64,
    /// Of so many bodies one is answered wrongly: a bit, another body's answer, a length; 0: none
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    wrong_every: u64,
    /// Of so many bodies one is answered with an error; 0: none
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    fail_every: u64,
    /// With this body it dies in the middle of the answer, and the process ends with 1; 0: it does not
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    crash_at: u64,
}

enum Device {
    Simulated(Box<Simulated>),
    Gpu(Box<Batched<Nvcomp>>),
}

/// How often a device that is at a batch is spoken for, if nobody connects.
const BEAT_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// How long it sleeps where there is nothing to do.
const NAP: Duration = Duration::from_micros(50);

impl Accelerator {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        let is_ended = interruption().context("signals cannot be caught")?;
        let gpu = if self.nvcomp { Some(self.gpu()?) } else { None };
        let body_max = if self.nvcomp { Nvcomp::INPUT_MAX } else { BODY_MAX };
        let (file, memory) = Memory::make(self.instances, body_max).context("no shared memory")?;
        let memory = if self.nvcomp { memory.without_levels() } else { memory };
        let socket = listen(&self.socket, self.group.as_deref()).with_context(|| self.socket.display().to_string())?;
        let faults = Faults {
            crash_every: self.crash_at,
            slow_every: self.slow_every,
            slow: self.slow_ms.saturating_mul(1_000_000),
            wrong_every: self.wrong_every,
            fail_every: self.fail_every,
        };
        let server = Server::new(memory);
        let mut device = match gpu {
            Some(gpu) => Device::Gpu(Box::new(Batched::new(server, gpu, self.instances as usize))),
            None => Device::Simulated(Box::new(Simulated::new(server, self.latency_us.saturating_mul(1_000), faults))),
        };
        device.step(now());
        out.line(&format!("{}: {} instances", self.socket.display(), self.instances))?;
        out.flush()?;
        let pulse = match &device {
            Device::Simulated(_) => None,
            Device::Gpu(device) => Some(device.pulse(Memory::open(file.as_fd()).context("no shared memory")?)),
        };
        // It ends with the process.
        thread::Builder::new().name("door".to_owned()).spawn(move || attend(&socket, &file, pulse.as_ref()))?;
        loop {
            match device.step(now()) {
                Step::Crashed if self.crash_at > 0 => {
                    return Err(Failure::from(anyhow!(
                        "the device has died, as --crash-at {} asks for",
                        self.crash_at
                    )));
                }
                Step::Crashed => return Err(Failure::from(anyhow!("the device has died"))),
                _ if is_ended.load(Ordering::Relaxed) => break,
                Step::Idle => thread::sleep(NAP),
                Step::Busy => {}
            }
        }
        let _others_may_have_removed_it = fs::remove_file(&self.socket);
        Ok(())
    }

    fn gpu(&self) -> anyhow::Result<Nvcomp> {
        let wanted = "no GPU: it wants an NVIDIA GPU, its driver (libcuda.so.1) and nvCOMP (libnvcomp.so.6 or .so.5, on the linker's path)";
        Nvcomp::load(self.algorithm, self.instances as usize).context(wanted)
    }
}

impl Device {
    fn step(&mut self, now: u64) -> Step {
        match self {
            Self::Simulated(device) => device.step(now),
            Self::Gpu(device) if device.engine().has_failed() => Step::Crashed,
            Self::Gpu(device) => device.step(now),
        }
    }
}

/// Listens at a place where no other device does; who may connect may use the device.
fn listen(path: &Path, group: Option<&str>) -> anyhow::Result<OwnedFd> {
    let gid = group.map(groups::gid).transpose()?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let address = SocketAddrUnix::new(path)?;
    let socket = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
    };
    match fs::symlink_metadata(path) {
        Err(problem) if problem.kind() == ErrorKind::NotFound => {}
        Err(problem) => return Err(problem.into()),
        Ok(meta) if !meta.file_type().is_socket() => bail!("there is something that is no socket: remove it"),
        // What an earlier device has left answers nobody.
        Ok(_) => match rustix::net::connect(&socket()?, &address) {
            Err(Errno::CONNREFUSED) => fs::remove_file(path)?,
            Err(problem) if problem != Errno::AGAIN => return Err(problem.into()),
            _ => bail!("another accelerator is there"),
        },
    }
    let socket = socket()?;
    // Nobody but the owner, until it is the group's as well.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = rustix::net::bind(&socket, &address);
    rustix::process::umask(before);
    bound?;
    if let Some(gid) = gid {
        groups::admit(path, gid)?;
    }
    rustix::net::listen(&socket, 128)?;
    Ok(socket)
}

/// Does for the device what cannot wait until a batch has ended: processes that connect wait for five milliseconds.
fn attend(socket: &OwnedFd, memory: &OwnedFd, pulse: Option<&Pulse>) {
    loop {
        // An error would come again at once: processes are looked for then as often as the device is spoken for.
        if rustix::event::poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&BEAT_EVERY)).is_err() {
            thread::sleep(Duration::from_millis(20));
        }
        if pulse.is_some_and(|pulse| !pulse.beat(now())) {
            // Whatever waits for its GPU, it does not end by being asked to; systemd starts another one.
            say!("weirgate: the GPU has been at a batch for five seconds");
            process::exit(1);
        }
        hand_out(socket, memory);
    }
}

/// Hands the memory to those who have connected; not to all of very many, who would keep the device from being spoken for.
fn hand_out(socket: &OwnedFd, memory: &OwnedFd) {
    for _ in 0..64 {
        let stream = match rustix::net::accept_with(socket, SocketFlags::CLOEXEC) {
            Ok(stream) => stream,
            Err(Errno::AGAIN) => return,
            // No files are left, or no memory: there may be some later.
            Err(_) => return thread::sleep(Duration::from_millis(20)),
        };
        let files = [memory.as_fd()];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        let _has_room = control.push(SendAncillaryMessage::ScmRights(&files));
        // Who has gone does not want it.
        let _ = rustix::net::sendmsg(&stream, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL);
    }
}

/// The monotonic clock, which processes of a host share.
fn now() -> u64 {
    clock::monotonic().as_nanos()
}
