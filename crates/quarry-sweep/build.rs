//! Gives the version that results are kept under: with a hash of all sources if they are here.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    println!("cargo::rerun-if-changed=build.rs");
    // In a package from a registry no other crate lies beside this one, and the version says all.
    let of_sources = match crates.join("quarry-core/src").is_dir() {
        true => format!("+{:08x}", hash(&crates)),
        false => String::new(),
    };
    println!("cargo::rustc-env=QUARRY_VERSION={version}{of_sources}");
}

/// FNV-1a of what answers depend on: the sources and data of the crates below this one, without tests.
fn hash(crates: &Path) -> u32 {
    const CRATES: [&str; 11] = [
        "quarry-ask",
        "quarry-core",
        "quarry-sim",
        "quarry-designs",
        "quarry-view",
        "quarry-machines",
        "quarry-trace",
        "quarry-work",
        "quarry-snapshot",
        "quarry-lab",
        "quarry-sweep",
    ];
    let mut files = Vec::new();
    for name in CRATES {
        for part in ["src", "machines", "data"] {
            let folder = crates.join(name).join(part);
            if folder.is_dir() {
                println!("cargo::rerun-if-changed={}", folder.display());
                collect(&folder, &mut files);
            }
        }
    }
    files.sort();
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for file in files {
        let name = file.strip_prefix(crates).unwrap_or(&file);
        let content = fs::read(&file).unwrap_or_default();
        let name = name.as_os_str().as_encoded_bytes();
        for byte in name.iter().chain(&content) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
    (hash ^ (hash >> 32)) as u32
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => collect(&path, into),
            false => into.push(path),
        }
    }
}
