//! Gives the symbols of the zlib that `libz-sys` builds names of our own, so that it can be linked into a library that is a libz itself.

#![allow(clippy::disallowed_methods, reason = "it calls binutils, and reads what cargo says")]

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const PREFIX: &str = "weirgate_stock_";

fn main() {
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let archive = PathBuf::from(variable("DEP_Z_ROOT")).join("lib/libz.a");
    let out = PathBuf::from(variable("OUT_DIR"));
    let tool = |name: &str| {
        let key = name.to_uppercase();
        println!("cargo:rerun-if-env-changed={key}");
        env::var(key).unwrap_or_else(|_| name.to_owned())
    };
    let listed = Command::new(tool("nm")).args(["--defined-only", "--extern-only"]).arg(&archive).output();
    let listed = listed.unwrap_or_else(|problem| panic!("nm (package binutils) lists zlib's symbols: {problem}"));
    let mut renamed = String::new();
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        // An address, a type and a name.
        if let [_, _, name] = line.split_whitespace().collect::<Vec<_>>()[..] {
            let _cannot_fail = writeln!(renamed, "{name} {PREFIX}{name}");
        }
    }
    assert!(renamed.contains(" weirgate_stock_deflateInit2_\n"), "no zlib in {}", archive.display());
    let names = out.join("names");
    fs::write(&names, renamed).unwrap_or_else(|problem| panic!("{}: {problem}", names.display()));
    let mut objcopy = Command::new(tool("objcopy"));
    objcopy.arg(format!("--redefine-syms={}", names.display())).arg(&archive).arg(out.join("libweirgate_stock_z.a"));
    let status = objcopy.status().unwrap_or_else(|problem| panic!("objcopy (package binutils): {problem}"));
    assert!(status.success(), "objcopy cannot rename zlib's symbols: {status}");
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=weirgate_stock_z");
    println!("cargo:rerun-if-changed=build.rs");
}
