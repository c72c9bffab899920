//! `weirgate deflate accelerator`: the process of a GPU, or of a simulated card.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use weirgate_deflate::accelerator::{BODY_MAX, Batched, Faults, Memory, Server, Simulated, Step};
use weirgate_deflate::nvcomp::Nvcomp;
use weirgate_linux::clock;

use super::Failure;
use super::output::Output;
use crate::fabric::run::interruption;

/// Compress for libweirgate_z.so: by a GPU, or as a card would, by libdeflate on one thread, after a time and with faults.
#[derive(Debug, Args)]
pub(super) struct Accelerator {
    /// Shared memory, made anew: where libweirgate_z.so looks for it
    #[arg(long, value_name = "FILE", default_value = "/run/weirgate/accelerator")]
    memory: PathBuf,
    /// A group whose processes may use it beside its owner's, as nginx's workers (www-data)
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Instances: threads that can use it at the same time. Each has 548 KiB of memory once it was used
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    instances: u32,
    /// Use the first NVIDIA GPU, by nvCOMP (libnvcomp.so.6 or .so.5, libcuda.so.1), for bodies of up to 64 KB
    #[arg(long, conflicts_with_all = ["latency_us", "slow_every", "wrong_every", "fail_every", "crash_at"])]
    nvcomp: bool,
    /// nvCOMP's algorithm: 1 is fast, 4 is to make less output than zlib's level 6
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(i32).range(0..=i64::from(Nvcomp::ALGORITHM_MAX)))]
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
    Simulated(Simulated),
    Gpu(Batched<Nvcomp>),
}

/// How long it sleeps where there is nothing to do.
const NAP: Duration = Duration::from_micros(50);

impl Accelerator {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        let is_ended = interruption().context("signals cannot be caught")?;
        let gpu = if self.nvcomp { Some(self.gpu()?) } else { None };
        let body_max = if self.nvcomp { Nvcomp::INPUT_MAX } else { BODY_MAX };
        let (memory, file) = make(&self.memory, self.instances, body_max, self.group.as_deref())
            .with_context(|| format!("{}: no shared memory", self.memory.display()))?;
        let faults = Faults {
            crash_every: self.crash_at,
            slow_every: self.slow_every,
            slow: self.slow_ms.saturating_mul(1_000_000),
            wrong_every: self.wrong_every,
            fail_every: self.fail_every,
        };
        let server = Server::new(memory);
        let mut device = match gpu {
            Some(gpu) => Device::Gpu(Batched::new(server, gpu, self.instances as usize)),
            None => Device::Simulated(Simulated::new(server, self.latency_us.saturating_mul(1_000), faults)),
        };
        device.step(now());
        out.line(&format!("{}: {} instances", self.memory.display(), self.instances))?;
        out.flush()?;
        loop {
            match device.step(now()) {
                Step::Idle if is_ended.load(Ordering::Relaxed) => break,
                Step::Idle => thread::sleep(NAP),
                Step::Busy => {}
                Step::Crashed => return Err(Failure::from(anyhow!("the device has died"))),
            }
        }
        // Another device may have taken its place.
        if fs::metadata(&self.memory).is_ok_and(|meta| meta.ino() == file) {
            let _others_may_have_removed_it = fs::remove_file(&self.memory);
        }
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

/// Makes the file, in place of one that an earlier device has left, and says its inode.
fn make(path: &Path, instances: u32, body_max: usize, group: Option<&str>) -> anyhow::Result<(Memory, u64)> {
    let gid = group.map(gid).transpose()?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    match File::options().read(true).write(true).open(path) {
        Err(problem) if problem.kind() == ErrorKind::NotFound => {}
        Err(problem) => return Err(problem.into()),
        Ok(there) => {
            let there = Memory::open(there.as_fd()).context("there is a file that is no accelerator's: remove it")?;
            ensure!(!there.is_alive(now()), "another accelerator runs there");
        }
    }
    // By another name until it is whole: processes look for it all the time.
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let made = made(Path::new(&new), instances, body_max, gid).and_then(|made| {
        fs::rename(&new, path)?;
        Ok(made)
    });
    if made.is_err() {
        let _there_is_none = fs::remove_file(&new);
    }
    made
}

fn made(new: &Path, instances: u32, body_max: usize, gid: Option<u32>) -> anyhow::Result<(Memory, u64)> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(new)?;
    // Where the file system is full, a write to what is not there would end its writer.
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, Memory::len_of(instances) as u64)?;
    if let Some(gid) = gid {
        chown(new, None, Some(gid))?;
        fs::set_permissions(new, Permissions::from_mode(0o660))?;
    }
    let memory = Memory::make(File::as_fd(&file), instances, body_max)?;
    Ok((memory, file.metadata()?.ino()))
}

/// A group's number, by /etc/group.
fn gid(group: &str) -> anyhow::Result<u32> {
    let groups = fs::read_to_string("/etc/group")?;
    for line in groups.lines() {
        // group(5): name, password, number, members.
        if let [name, _, gid, ..] = line.split(':').collect::<Vec<_>>()[..]
            && name == group
        {
            return gid.parse().with_context(|| format!("/etc/group: the number of {group}"));
        }
    }
    bail!("there is no group \"{group}\" in /etc/group")
}

/// The monotonic clock, which processes of a host share.
fn now() -> u64 {
    clock::monotonic().as_nanos()
}
