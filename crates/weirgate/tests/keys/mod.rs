//! The command as people type it, and keys for it.

use std::path::Path;
use std::process::Command;

pub(crate) fn weirgate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    command.args(args);
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A new key in this file: its public half.
pub(crate) fn key(file: &Path) -> String {
    let output = weirgate(&["key", "--key"]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}
