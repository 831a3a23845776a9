//! Wheels of `python/` for both C libraries, and the start of one in an environment that has nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::build::remap;
use super::{Arch, VERSION, check, folder, need};
use crate::{python, shell};

/// C libraries by the end of Rust's targets, and the oldest that a wheel for each may be installed with: glibc 2.17, musl 1.2.
const LIBRARIES: [(&str, &str); 2] = [("gnu", "manylinux2014"), ("musl", "musllinux_1_2")];
/// Profile of the workspace for wheels.
const PROFILE: &str = "dist-wheel";
/// The library that `run --preload` loads, in wheels for the GNU C library; it runs wherever the module does.
const PRELOADED: &str = "python/quarry/libquarry_malloc.so";
const GLIBC: &str = "2.17";

/// Folder of the wheels.
fn wheels() -> PathBuf {
    folder().join("wheels")
}

/// Builds the wheels of one processor. They are for every Python from 3.10 on.
pub(super) fn make(arch: Arch, epoch: &str) -> Result<()> {
    let maturin = need("maturin", "pip install maturin ziglang")?;
    need("cargo-zigbuild", "pip install cargo-zigbuild")?;
    for (library, tag) in LIBRARIES {
        let target = format!("{}-unknown-linux-{library}", arch.name());
        super::build::need_target(&target)?;
        let preloaded = match library {
            "gnu" => Some(Copied::new(
                &super::build::library(arch, GLIBC, epoch)?,
                shell::root().join(PRELOADED),
            )?),
            _ => None,
        };
        let mut build = Command::new(&maturin);
        build.current_dir(shell::root().join("python"));
        build.args(["build", "--locked", "--zig", "--profile", PROFILE]);
        build.args(["--target", &target, "--compatibility", tag]);
        build.arg("--out").arg(absolute(&wheels())?);
        build.env("CARGO_TARGET_DIR", absolute(&shell::target_dir())?);
        remap(&mut build, epoch)?;
        shell::run(&mut build)?;
        drop(preloaded);
    }
    Ok(())
}

/// A file among the sources while a wheel is made of them.
struct Copied(PathBuf);

impl Copied {
    fn new(from: &Path, to: PathBuf) -> Result<Self> {
        fs::copy(from, &to).with_context(|| format!("cannot write {}", to.display()))?;
        Ok(Self(to))
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        // If it stays, the next wheel has the same file; git does not see it.
        let _ = fs::remove_file(&self.0);
    }
}

/// Installs the wheel for this system into an empty environment, and starts the command and the module there.
pub(super) fn check(arch: Arch) -> Result<()> {
    if arch.name() != std::env::consts::ARCH {
        println!("SKIPPED: wheels for {}: no Python of it", arch.name());
        return Ok(());
    }
    let own = tempfile::tempdir()?;
    let wheel = find(arch, "manylinux")?;
    let empty = python::empty(own.path(), &wheel, &mut Command::new("python3"))?;
    let tool = |name: &str| {
        let mut command = Command::new(empty.join("bin").join(name));
        command.env_clear().current_dir(own.path());
        command
    };
    let version = format!("quarry {VERSION}");
    check::expect(tool("quarry").arg("--version"), &version)?;
    check::expect(
        tool("quarry").args(["replay", "--design", "slub"]),
        "slub@6.17",
    )?;
    let preload = ["run", "--preload", "--design", "slub", "--rounds", "1"];
    check::expect(tool("quarry").args(preload).args(["--", "true"]), "slub@")?;
    let module = "import quarry\n\
                  for row in quarry.Recording.open('hackbench').replay(design='slub'): print(row['design'])";
    check::expect(tool("python").args(["-c", module]), "slub")?;
    println!("dist: the wheel for {} works", arch.name());
    Ok(())
}

/// The wheel of a C library for a processor.
fn find(arch: Arch, library: &str) -> Result<PathBuf> {
    let end = format!("_{}.whl", arch.name());
    let failed = || format!("no wheels in {}", wheels().display());
    for entry in fs::read_dir(wheels()).with_context(failed)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.contains(library) && name.ends_with(&end) {
            return Ok(path);
        }
    }
    Err(anyhow::anyhow!(failed()))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{} has no path", path.display()))
}
