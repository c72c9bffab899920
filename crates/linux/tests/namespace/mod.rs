//! A network namespace of a test's own, so that tests that run at once see none of each other's sockets.

use std::process::Command;
use std::thread;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Runs `test` in a thread in a fresh network namespace with its loopback up. The namespace goes with its last socket.
/// Prints why and returns where this process may not make one.
pub(crate) fn in_own_namespace(test: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let run = scope.spawn(|| {
            // SAFETY: only the network namespace is unshared: file descriptors stay those of the process.
            if let Err(e) = unsafe { unshare_unsafe(UnshareFlags::NEWNET) } {
                println!("SKIPPED: no network namespace of its own for this test ({e}): run it as root");
                return;
            }
            ip("link set lo up");
            test();
        });
        if let Err(panic) = run.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Runs ip(8) in the calling thread's namespace.
pub(crate) fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("ip(8) is installed (iproute2)");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}
