//! Compiles every `bpf/*.bpf.c` with clang and writes its libbpf skeleton to `$OUT_DIR/NAME.skel.rs`.
//!
//! Nobody needs clang or kernel headers to run the result: the objects are embedded, and the loader fits them to the
//! running kernel by its BTF.
#![allow(clippy::disallowed_methods, reason = "a build script is the environment's")]

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let root =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR")).join("../../bpf");
    // The folder too, so that a new file is seen.
    println!("cargo::rerun-if-changed={}", root.display());
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    if let Err(e) = Command::new(&clang).arg("--version").output() {
        fail(&format!("`{clang}`, which compiles the kernel programs in bpf/, does not run ({e}): run `make setup`"));
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut sources: Vec<PathBuf> = fs::read_dir(&root)
        .unwrap_or_else(|e| fail(&format!("cannot list {}: {e}", root.display())))
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    sources.sort();
    for source in sources {
        println!("cargo::rerun-if-changed={}", source.display());
        let Some(name) = source.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".bpf.c")) else {
            continue;
        };
        let skeleton = out.join(format!("{name}.skel.rs"));
        // -mcpu=v3: atomics with a result and 32-bit jumps, Linux 5.12, which is what the programs need anyhow.
        let built = SkeletonBuilder::new()
            .source(&source)
            .clang(&clang)
            .clang_args(["-Wall", "-Werror", "-mcpu=v3", &multiarch()])
            .build_and_generate(&skeleton);
        if let Err(e) = built {
            fail(&format!(
                "{} does not compile: {e:?}\nif headers are missing (linux/bpf.h, asm/types.h), run `make setup`",
                source.display()
            ));
        }
    }
}

/// Where Debian keeps `asm/types.h`, which `-target bpf` does not look in.
fn multiarch() -> String {
    format!("-I/usr/include/{}-linux-gnu", env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the architecture"))
}

fn fail(why: &str) -> ! {
    for line in why.lines() {
        println!("cargo::error={line}");
    }
    std::process::exit(1)
}
