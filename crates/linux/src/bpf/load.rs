//! What all loaders share: why a program did not load, in words that help; and libbpf's log, kept out of the terminal.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Once;

use libbpf_rs::{ErrorKind, MapInfo, MapType, PrintLevel};
use rustix::time::ClockId;

/// A kernel program that cannot be loaded or attached.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel does not describe its own types.
    #[error(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux is missing), so kernel programs cannot be fitted to it; \
         use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as Debian's are, or poll by netlink"
    )]
    NoBtf,
    /// The kernel refused for lack of privileges.
    #[error(
        "the kernel refused to load `{program}` (EPERM): run as root, or give the service \
         CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (in a container: on the host's user namespace)"
    )]
    NotPermitted {
        /// The program's file under `bpf/`.
        program: &'static str,
    },
    /// The control group to attach to cannot be opened.
    #[error("cannot open the control group {path}: {source}; it must be a folder of a mounted cgroup v2 tree")]
    Cgroup {
        /// As it was given.
        path: String,
        /// From open(2).
        source: std::io::Error,
    },
    /// Two programs would share a map whose layouts differ.
    #[error(
        "the connection map that was handed to `{program}` has another layout: it was pinned by another version; \
         run `weirgate undo`, then start again"
    )]
    ForeignMap {
        /// The program's file under `bpf/`.
        program: &'static str,
    },
    /// Anything else that libbpf or the verifier objects to.
    #[error("the kernel cannot run `{program}` ({source}); {needs}{log}")]
    Refused {
        /// The program's file under `bpf/`.
        program: &'static str,
        /// What it needs.
        needs: &'static str,
        /// libbpf's error.
        source: libbpf_rs::Error,
        /// The last lines of libbpf's log, each after a line break.
        log: String,
    },
}

/// Runs `load`, gathering what libbpf says meanwhile; turns its error into one that says what to do.
pub(super) fn explain<T>(
    program: &'static str,
    needs: &'static str,
    load: impl FnOnce() -> Result<T, libbpf_rs::Error>,
) -> Result<T, LoadError> {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(LoadError::NoBtf);
    }
    let (result, log) = with_log(load);
    result.map_err(|source| match source.kind() {
        // The verifier says EACCES of what it does not like, but then it also says why.
        ErrorKind::PermissionDenied if !log.contains("PROG LOAD LOG") => LoadError::NotPermitted { program },
        _ => LoadError::Refused { program, needs, source, log: last_lines(&log) },
    })
}

/// Whether the map `conns` that was handed over has values of the size that `program` was compiled with.
pub(super) fn check_shared(
    program: &'static str,
    conns: Option<BorrowedFd<'_>>,
    value_size: usize,
) -> Result<(), LoadError> {
    let Some(conns) = conns else { return Ok(()) };
    let same = MapInfo::new(conns).is_ok_and(|map| {
        map.info.type_ == MapType::SkStorage as u32 && usize::try_from(map.info.value_size) == Ok(value_size)
    });
    if same { Ok(()) } else { Err(LoadError::ForeignMap { program }) }
}

/// Microseconds in one tick of the kernel's jiffies: the coarse clock advances once a tick, and says so.
pub(super) fn tick_us() -> u32 {
    let resolution = rustix::time::clock_getres(ClockId::MonotonicCoarse);
    // CONFIG_HZ is between 24 (Alpha) and 1200; 4000 us is the most common.
    u32::try_from(resolution.tv_nsec / 1000).ok().filter(|us| (500..=50_000).contains(us)).unwrap_or(4000)
}

thread_local! {
    static LOG: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// libbpf's callback is one for the process; the thread that is loading gathers, others log.
fn with_log<T>(f: impl FnOnce() -> T) -> (T, String) {
    static ROUTED: Once = Once::new();
    ROUTED.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Info, |_, message| {
            let gathered = LOG.with_borrow_mut(|log| log.as_mut().map(|log| log.push_str(&message)).is_some());
            if !gathered {
                tracing::debug!(target: "libbpf", "{}", message.trim_end());
            }
        })));
    });
    let before = LOG.replace(Some(String::new()));
    let result = f();
    let log = LOG.replace(before).unwrap_or_default();
    (result, log)
}

/// The end of a verifier's log is where the reason stands; twelve lines are enough to see it.
fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(12)..].iter().map(|l| format!("\n  {l}")).collect()
}
