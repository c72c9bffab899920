//! Sees to it that there is a page to embed.
//!
//! The page is built by `make web` (Vite) into `web/dist`, which is not in git. Cargo does not run npm: a build script
//! that downloads and runs for half a minute is a surprise, and `cargo check` must work without Node. Where the page was
//! not built, a plain one that says so takes its place; everything else, `/metrics` and the API included, works.
#![allow(clippy::disallowed_methods, reason = "a build script's work is files")]

use std::path::PathBuf;
use std::time::SystemTime;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let dist =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR")).join("../../web/dist");
    let index = dist.join("index.html");
    if !index.exists() {
        fs::create_dir_all(&dist)?;
        fs::copy("src/http/unbuilt.html", &index)?;
    }
    if fs::read(&index)? == fs::read("src/http/unbuilt.html")? {
        // Older than what the page is made of: `make web` would take it for the page.
        fs::File::options().write(true).open(&index)?.set_modified(SystemTime::UNIX_EPOCH)?;
    }
    println!("cargo::rerun-if-changed={}", dist.display());
    println!("cargo::rerun-if-changed=src/http/unbuilt.html");
    Ok(())
}
