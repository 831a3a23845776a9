//! Programs of one processor, compiled by Zig's C compiler and linker, which have the C libraries of all targets.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Arch;
use crate::shell;

/// The oldest GNU C library that programs with the preloaded library may have: of 2018, as in Debian 10 and RHEL 8.
const GLIBC: &str = "2.28";
/// Profile of the workspace for what is handed out.
const PROFILE: &str = "dist";

/// The command and the library that it preloads.
pub(super) struct Built {
    pub(super) command: PathBuf,
    pub(super) library: PathBuf,
}

/// Builds both.
pub(super) fn run(arch: Arch, epoch: &str) -> Result<Built> {
    let musl = arch.target();
    need_target(&musl)?;
    zigbuild(&musl, "kquarry-cli", epoch)?;
    Ok(Built {
        command: built(&musl, "quarry"),
        library: library(arch, GLIBC, epoch)?,
    })
}

/// The library that `run --preload` loads, for systems with this GNU C library or a later one.
pub(super) fn library(arch: Arch, glibc: &str, epoch: &str) -> Result<PathBuf> {
    let target = format!("{}-unknown-linux-gnu", arch.name());
    need_target(&target)?;
    zigbuild(&format!("{target}.{glibc}"), "kquarry-malloc", epoch)?;
    Ok(built(&target, "libquarry_malloc.so"))
}

fn built(target: &str, name: &str) -> PathBuf {
    shell::target_dir().join(target).join(PROFILE).join(name)
}

fn zigbuild(target: &str, package: &str, epoch: &str) -> Result<()> {
    let mut cargo = shell::cargo();
    cargo.args(["zigbuild", "--locked", "--profile", PROFILE]);
    cargo.args(["--target", target, "--package", package]);
    remap(&mut cargo, epoch)?;
    shell::run(&mut cargo)
}

/// Has a build name folders of this computer by other names, and all times be one.
pub(super) fn remap(cargo: &mut Command, epoch: &str) -> Result<()> {
    let folders = folders()?;
    let flags = |option: &str, separator: &str| {
        let flags = folders
            .iter()
            .map(|(from, to)| format!("{option}{}={to}", from.display()));
        flags.collect::<Vec<_>>().join(separator)
    };
    let rust = flags("--remap-path-prefix=", "\x1f");
    let c = flags("-ffile-prefix-map=", " ");
    cargo.env("SOURCE_DATE_EPOCH", epoch);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", rust);
    cargo.env("CFLAGS", format!("{c} -g0"));
    cargo.env("CARGO_INCREMENTAL", "0");
    Ok(())
}

/// Folders of this computer, and the names that they have in what is compiled. The last that applies counts.
fn folders() -> Result<Vec<(PathBuf, &'static str)>> {
    let cargo = shell::cargo_home().context("neither CARGO_HOME nor HOME is set")?;
    let mut rustc = Command::new("rustc");
    let sysroot = shell::output(
        rustc
            .args(["--print", "sysroot"])
            .current_dir(shell::root()),
    )?;
    Ok(vec![
        (cargo, "/cargo"),
        (PathBuf::from(sysroot.trim()), "/rust"),
        (std::path::absolute(shell::root())?, "/quarry"),
        (std::path::absolute(shell::target_dir())?, "/quarry/target"),
    ])
}

/// Checks that the standard library of a target is there.
pub(super) fn need_target(target: &str) -> Result<()> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", target]);
    let folder = shell::output(rustc.current_dir(shell::root()))?;
    ensure!(
        Path::new(folder.trim()).is_dir(),
        "the standard library for {target} is not installed: `rustup target add {target}` installs it"
    );
    Ok(())
}
