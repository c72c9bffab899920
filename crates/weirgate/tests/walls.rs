//! The walls between the rooms, held by a test: which crate may use which, what each may depend on, where `unsafe` may
//! live, and that no file is dead. ARCHITECTURE.md has the reasons; a wall is moved here and there in one commit.
#![allow(clippy::disallowed_methods, reason = "it reads the sources")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Arrows between the rooms. A pure room reads no clock, does no I/O, has no threads.
const ARROWS: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("shape", &["units"]),
    ("balance", &["units"]),
    ("port", &["units", "shape"]),
    ("switch", &["units", "port", "shape"]),
    ("fabric", &["units", "shape", "balance"]),
    ("sockets", &["units"]),
    ("tune", &["units", "sockets"]),
];
const ARROWS_IMPURE: &[(&str, &[&str])] = &[
    // Pure but for the C libraries that compress.
    ("deflate", &[]),
    // Pure but for the libraries that encrypt.
    ("spray", &["units", "shape"]),
    ("store", &["units", "sockets", "tune"]),
    ("linux", &["units", "sockets", "tune", "port", "shape", "switch", "spray"]),
    (
        "lab",
        &[
            "units", "sockets", "tune", "port", "shape", "switch", "balance", "fabric", "deflate", "spray", "linux",
            "store",
        ],
    ),
    (
        "weirgate",
        &[
            "units", "sockets", "tune", "port", "shape", "switch", "balance", "fabric", "deflate", "spray", "linux",
            "store", "lab",
        ],
    ),
];

/// What a pure room may take from the field: types, derives and arithmetic, nothing that can reach the world.
/// `loom` stands in for the atomics in a test of its own (`--cfg loom`) and is in no program.
const PURE_LIBRARIES: &[&str] =
    &["thiserror", "zerocopy", "hashbrown", "libm", "rand_core", "rand_pcg", "serde", "siphasher", "slab", "loom"];

/// Libraries that only some rooms may have (ARCHITECTURE.md: only `weirgate` knows HTTP, only `store` knows a database).
const RESERVED: &[(&str, &[&str])] = &[
    ("axum", &["weirgate"]),
    ("hyper", &["weirgate"]),
    ("rust-embed", &["weirgate"]),
    ("clap", &["weirgate", "lab"]),
    ("datafusion", &["store"]),
    ("parquet", &["store"]),
    ("rdkafka", &["store"]),
    // ClickHouse is spoken to by HTTP, and controllers are.
    ("ureq", &["store", "weirgate"]),
    ("arrow", &["store"]),
    ("libbpf-rs", &["linux"]),
    ("rtnetlink", &["linux"]),
    ("vhost", &["linux"]),
    ("virtio-queue", &["linux"]),
    ("vm-memory", &["linux"]),
    ("anyhow", &["weirgate", "lab"]),
];

/// The rooms that may say `unsafe`, each block with its SAFETY comment (clippy::undocumented_unsafe_blocks).
const UNSAFE_ROOMS: &[&str] = &["linux", "deflate"];

fn root() -> PathBuf {
    // Asked when it runs: a shared target directory may hold the test as another checkout built it.
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package is");
    Path::new(&here).join("../..").canonicalize().expect("the workspace is there")
}

/// Room -> its normal dependencies, by the names in its manifest.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let packages = metadata["packages"].as_array().expect("a workspace has packages");
    let normal = |p: &serde_json::Value| {
        let list = p["dependencies"].as_array().expect("a package has a list of dependencies");
        list.iter()
            .filter(|d| d["kind"].is_null())
            .map(|d| d["name"].as_str().expect("a dependency has a name").to_owned())
            .collect::<BTreeSet<_>>()
    };
    let room = |name: &str| name.strip_prefix("weirgate-").unwrap_or(name).to_owned();
    packages.iter().map(|p| (room(p["name"].as_str().expect("a package has a name")), normal(p))).collect()
}

/// Files below `dir` whose name ends in one of `ends`, without build outputs and the fuzzers' inputs.
fn files(dir: &Path, ends: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            let is_skipped = matches!(name.as_str(), "target" | "node_modules" | ".git" | "dist" | "lab-out")
                || path.ends_with("fuzz/corpus");
            if !is_skipped {
                files(&path, ends, found);
            }
        } else if ends.iter().any(|e| name.ends_with(e)) {
            found.push(path);
        }
    }
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(dir, &[".rs"], &mut found);
    found
}

#[test]
fn arrows_point_down_and_are_these() {
    let allowed: BTreeMap<_, _> = ARROWS.iter().chain(ARROWS_IMPURE).copied().collect();
    for (room, dependencies) in dependencies() {
        let arrows =
            allowed.get(room.as_str()).unwrap_or_else(|| panic!("the room `{room}` is not in the table of walls"));
        for dependency in dependencies.iter().filter_map(|d| d.strip_prefix("weirgate-")) {
            assert!(arrows.contains(&dependency), "`{room}` may not use `{dependency}`");
        }
    }
}

#[test]
fn every_room_is_checked_with_its_assertions() {
    let checked = fs::read_to_string(root().join(".cargo/checked.toml")).expect("what `make test` adds is there");
    for room in dependencies().keys() {
        let name = if room == "weirgate" { room.clone() } else { format!("weirgate-{room}") };
        let line = checked.lines().find(|line| line.strip_prefix(&name).is_some_and(|rest| rest.starts_with(" = {")));
        let line = line.unwrap_or_else(|| panic!("`{name}` is not in .cargo/checked.toml"));
        assert!(line.contains("debug-assertions = true") && line.contains("overflow-checks = true"), "{line}");
    }
}

#[test]
fn pure_rooms_depend_on_nothing_that_reaches_the_world() {
    let dependencies = dependencies();
    for (room, _) in ARROWS {
        let outside = dependencies[*room].iter().filter(|d| !d.starts_with("weirgate-"));
        for dependency in outside {
            assert!(PURE_LIBRARIES.contains(&dependency.as_str()), "the pure room `{room}` may not use `{dependency}`");
        }
        if *room == "units" {
            assert!(dependencies[*room].is_empty(), "`units` depends on nothing");
        }
    }
}

#[test]
fn pure_rooms_never_excuse_themselves_from_the_banned_calls() {
    for (room, _) in ARROWS {
        for file in rust_files(&root().join("crates").join(room).join("src")) {
            let text = fs::read_to_string(&file).expect("source is text");
            assert!(!text.contains("disallowed_methods"), "{} allows a banned call", file.display());
        }
    }
}

#[test]
fn reserved_libraries_stay_in_their_rooms() {
    for (room, dependencies) in dependencies() {
        for (library, rooms) in RESERVED {
            let ok = !dependencies.contains(*library) || rooms.contains(&room.as_str());
            assert!(ok, "`{room}` uses `{library}`, which belongs to {rooms:?}");
        }
    }
}

#[test]
fn unsafe_is_forbidden_outside_its_rooms() {
    for (room, _) in ARROWS.iter().chain(ARROWS_IMPURE).filter(|(r, _)| !UNSAFE_ROOMS.contains(r)) {
        let lib = root().join("crates").join(room).join("src/lib.rs");
        let text = fs::read_to_string(&lib).unwrap_or_else(|e| panic!("{}: {e}", lib.display()));
        assert!(text.contains("#![forbid(unsafe_code)]"), "{} does not forbid unsafe code", lib.display());
    }
}

#[test]
fn no_file_is_dead() {
    for file in rust_files(&root().join("crates")) {
        let (dir, stem) = (file.parent().expect("a file has a folder"), file.file_stem().unwrap_or_default());
        let stem = stem.to_string_lossy();
        let is_root = matches!(stem.as_ref(), "lib" | "main" | "mod" | "build");
        if is_root || !file.to_string_lossy().contains("/src/") || dir.ends_with("bin") {
            continue;
        }
        // The parent is lib.rs or main.rs of this folder, its mod.rs, or the file beside it that has its name.
        let beside = dir.with_extension("rs");
        let parents = [dir.join("lib.rs"), dir.join("main.rs"), dir.join("mod.rs"), beside];
        let declared = parents
            .iter()
            .filter_map(|p| fs::read_to_string(p).ok())
            .any(|text| text.lines().any(|l| l.trim_end().ends_with(&format!("mod {stem};"))));
        assert!(declared, "{} belongs to no module", file.display());
    }
}

#[test]
fn nothing_is_left_unfinished() {
    // Put together here so that this file does not find itself.
    let marks =
        [["TO", "DO"], ["FIX", "ME"], ["todo", "!("], ["unimplemented", "!("], ["#[ig", "nore"]].map(|m| m.concat());
    let mut found = Vec::new();
    for dir in ["crates", "libz", "bpf", "web", "packaging", "fuzz", "hdl"] {
        files(&root().join(dir), &[".rs", ".c", ".h", ".ts", ".toml", ".service", ".v", ".py"], &mut found);
    }
    for file in found {
        let text = fs::read_to_string(&file).expect("source is text");
        for mark in &marks {
            assert!(!text.contains(mark.as_str()), "{} says {mark}", file.display());
        }
    }
}
