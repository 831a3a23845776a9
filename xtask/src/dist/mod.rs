//! `cargo xtask dist`: what users without Rust install, as archives and packages.
//!
//! One tree for each target, the same below any prefix: the static command, the library that `run --preload` loads, man
//! pages, completions, licences and a list of parts. The archive, the `.deb` and the `.rpm` hold that tree. Two builds of one
//! commit with the same tools give the same bytes, wherever the sources are: times are the commit's, and folders have
//! names of their own in what is compiled.

mod build;
mod check;
mod pack;
mod parts;
pub(crate) mod tree;
mod wheels;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::shell;

/// Version of the packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Options of `dist`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The processors; all of them otherwise.
    #[arg(long = "arch", value_enum)]
    arches: Vec<Arch>,
    /// Only start what target/dist-packages has, in empty roots.
    #[arg(long)]
    check: bool,
    /// Make wheels, not the packages.
    #[arg(long)]
    wheels: bool,
}

/// A processor that there are packages for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Arch {
    #[value(name = "x86_64")]
    X86_64,
    Aarch64,
}

impl Arch {
    /// Its name in Rust's targets, and in RPM.
    fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// Its name in Debian.
    fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// The target of the command.
    fn target(self) -> String {
        format!("{}-unknown-linux-musl", self.name())
    }

    /// Name of the archive and of the folder in it.
    fn stem(self) -> String {
        format!("quarry-{VERSION}-{}", self.target())
    }

    /// A command that runs a program of this processor.
    fn runner(self, program: &Path) -> Result<Command> {
        if self.name() == std::env::consts::ARCH {
            return Ok(Command::new(program));
        }
        let mut command = Command::new(need(self.emulator(), "apt-get install qemu-user-static")?);
        command.arg(program);
        Ok(command)
    }

    fn emulator(self) -> &'static str {
        match self {
            Self::X86_64 => "qemu-x86_64-static",
            Self::Aarch64 => "qemu-aarch64-static",
        }
    }
}

/// Folder of everything that `dist` makes.
fn folder() -> PathBuf {
    shell::target_dir().join("dist-packages")
}

/// Builds, packs and checks.
pub(crate) fn run(options: &Options) -> Result<()> {
    let arches = match options.arches.is_empty() {
        true => &[Arch::X86_64, Arch::Aarch64],
        false => options.arches.as_slice(),
    };
    if options.wheels {
        if !options.check {
            let epoch = epoch()?;
            arches
                .iter()
                .try_for_each(|&arch| wheels::make(arch, &epoch))?;
        }
        return arches.iter().try_for_each(|&arch| wheels::check(arch));
    }
    if !options.check {
        make(arches)?;
    }
    arches.iter().try_for_each(|&arch| check::run(arch))
}

fn make(arches: &[Arch]) -> Result<()> {
    let tools = [
        ("cargo-zigbuild", "pip install cargo-zigbuild ziglang"),
        ("tar", "apt-get install tar"),
        ("xz", "apt-get install xz-utils"),
        ("dpkg-deb", "apt-get install dpkg"),
        ("rpmbuild", "apt-get install rpm"),
        ("sha256sum", "apt-get install coreutils"),
    ];
    for (tool, install) in tools {
        need(tool, install)?;
    }
    let epoch = epoch()?;
    let packages = folder().join("packages");
    if packages.exists() {
        fs::remove_dir_all(&packages).context("cannot remove the last packages")?;
    }
    fs::create_dir_all(&packages)?;
    for &arch in arches {
        let built = build::run(arch, &epoch)?;
        let tree = tree::make(arch, &built)?;
        pack::run(arch, &tree, &packages, &epoch)?;
    }
    let mut names = fs::read_dir(&packages)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<Result<Vec<_>>>()?;
    names.sort();
    let mut sums = Command::new("sha256sum");
    let sums = shell::output(sums.args(&names).current_dir(&packages))?;
    fs::write(packages.join("SHA256SUMS"), &sums)?;
    for (line, name) in sums.lines().zip(&names) {
        let bytes = fs::metadata(packages.join(name))?.len();
        println!("{line}  {:.2} MB", bytes as f64 / 1e6);
    }
    println!("dist: {}", packages.display());
    Ok(())
}

/// The time of the last commit, in seconds. Changes that are not committed would be packed under its time.
fn epoch() -> Result<String> {
    let git = |line: &str| {
        let mut git = Command::new("git");
        shell::output(git.args(line.split(' ')).current_dir(shell::root()))
    };
    let changed = git("status --porcelain --untracked-files=no")?;
    if !changed.is_empty() {
        eprintln!("dist: the sources have changes that are not committed:\n{changed}");
    }
    let time = git("log -1 --format=%ct")?.trim().to_owned();
    ensure!(
        time.parse::<u64>().is_ok(),
        "git gave no time of the last commit"
    );
    Ok(time)
}

/// A tool in `PATH`, or the command that installs it.
fn need(tool: &str, install: &str) -> Result<PathBuf> {
    match shell::find_tool(tool) {
        Some(path) => Ok(path),
        None => bail!("{tool} is not installed: `{install}` installs it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_is_named_with_its_installation() {
        let error = need("no-such-tool", "apt-get install it").unwrap_err();
        assert_eq!(
            error.to_string(),
            "no-such-tool is not installed: `apt-get install it` installs it"
        );
        need("sh", "-").unwrap();
    }
}
