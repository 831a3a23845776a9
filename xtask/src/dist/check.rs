//! Starts what was packed where nothing else is.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Arch, VERSION, folder};
use crate::shell;

/// A snapshot of the tests, as users have them.
const SNAPSHOT: &str = "crates/quarry-lab/tests/data/6.17-to-7.3-x86_64-4k/6.17.13.json.gz";

/// Unpacks the archive, and runs the command in an empty root; the preloaded library runs on this system.
pub(super) fn run(arch: Arch) -> Result<()> {
    let archive = format!("packages/{}.tar.xz", arch.stem());
    let archive = folder().join(archive);
    ensure!(
        archive.is_file(),
        "there is no {}: `cargo xtask dist` makes it",
        archive.display()
    );
    let own = tempfile::tempdir()?;
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(&archive);
    shell::run(tar.arg("--directory").arg(own.path()))?;
    let tree = own.path().join(arch.stem());
    let root = own.path().join("root");
    fs::create_dir(&root)?;
    fs::copy(tree.join("bin/quarry"), root.join("quarry"))?;
    fs::copy(shell::root().join(SNAPSHOT), root.join("now.json.gz"))?;
    let is_native = arch.name() == std::env::consts::ARCH;
    if !is_native {
        let Some(emulator) = shell::find_tool(arch.emulator()) else {
            println!(
                "SKIPPED: the command for {}: `apt-get install qemu-user-static` installs {}",
                arch.name(),
                arch.emulator()
            );
            return Ok(());
        };
        fs::copy(emulator, root.join("emulator"))?;
    }
    let version = format!("quarry {VERSION}");
    for (line, expected) in [
        ("--version", version.as_str()),
        ("replay --design slub", "slub@6.17"),
        ("look now.json.gz", "MiB"),
    ] {
        let mut command = chroot(&root)?;
        if !is_native {
            command.arg("/emulator");
        }
        command.arg("/quarry").args(line.split(' '));
        expect(&mut command, expected)?;
    }
    if is_native {
        let mut command = Command::new(tree.join("bin/quarry"));
        command.args(["run", "--preload", "--design", "slub", "--rounds", "1"]);
        expect(command.args(["--", "ls", "-R", "/etc"]), "slub@")?;
    }
    println!("dist: the packages for {} work", arch.name());
    Ok(())
}

/// A command inside of a folder, without an environment.
fn chroot(root: &Path) -> Result<Command> {
    let id = shell::output(Command::new("id").arg("-u"))?;
    // Who is not root is it in a namespace, where the kernel has them for everyone.
    let mut command = match id.trim() {
        "0" => Command::new("chroot"),
        _ => {
            let mut command = Command::new("unshare");
            command.args(["--map-root-user", "chroot"]);
            command
        }
    };
    command.arg(root).env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    Ok(command)
}

/// Runs a command, and fails unless it prints a text.
pub(super) fn expect(command: &mut Command, expected: &str) -> Result<()> {
    println!("+ {}", shell::display(command));
    let text = shell::output(command).context("a command of the package failed")?;
    ensure!(
        text.contains(expected),
        "{} printed no {expected:?}: {text}",
        shell::display(command)
    );
    Ok(())
}
