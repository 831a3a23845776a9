//! The wheel of `python/`: built by pip as users build it, but with the tests' profile, with its tests, stubs and notebooks.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::programs::Programs;
use crate::shell::{self, Outcome};

/// The least that `pyproject.toml` asks for, as Python compares it.
const VERSION: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))";

/// Installs the wheel into an environment of its own, and checks it there.
pub(crate) fn run() -> Result<Outcome> {
    let python = Command::new("python3").args(["-c", VERSION]).output();
    if !python.is_ok_and(|done| done.status.success()) {
        let reason = "no Python from 3.10 on with venv; install the Debian package python3-venv";
        return Ok(Outcome::Skipped(reason.to_string()));
    }
    let (root, environment) = (shell::root(), shell::target_dir().join("python"));
    let package = root.join("python");
    let programs = Programs::build()?;
    let quarry = programs.quarry()?;
    shell::run(
        Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment),
    )?;
    let tool = |name: &str| {
        let mut command = Command::new(environment.join("bin").join(name));
        command.current_dir(&package);
        // With the profile of the tests, and where their build is: most dependencies are compiled already.
        command.env("CARGO_TARGET_DIR", shell::target_dir());
        command
    };
    let pip = |what: &str| {
        let mut command = tool("python");
        command.args(["-m", "pip", "install", "--quiet", what]);
        command.arg("--config-settings=build-args=--profile=dev");
        command
    };
    // In steps, so that the time of each shows.
    shell::run(&mut pip(".[test]"))?;
    shell::run(tool("ruff").args(["format", "--check", "."]))?;
    shell::run(tool("ruff").args(["check", "."]))?;
    // Outside of the sources, whose folder `quarry` has no compiled part.
    shell::run(
        tool("python")
            .args(["-m", "mypy.stubtest", "--concise", "--mypy-config-file"])
            .arg(package.join("pyproject.toml"))
            .arg("quarry")
            .current_dir(&environment),
    )?;
    let quarry = absolute(quarry)?;
    shell::run(
        tool("python")
            .args(["-m", "pytest", "-q"])
            .arg(package.join("tests"))
            .env("QUARRY_COMMAND", quarry)
            .current_dir(&environment),
    )?;
    Ok(Outcome::Done)
}

fn absolute(path: &Path) -> Result<std::path::PathBuf> {
    std::path::absolute(path).with_context(|| format!("{} has no path", path.display()))
}
