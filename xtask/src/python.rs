//! The wheel of `python/`: built by pip as users build it, but with the tests' profile, with its tests, stubs and notebooks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};

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
        // Most of what packages bring is never imported: Python compiles the rest when it is.
        command.args(["-m", "pip", "install", "--quiet", "--no-compile", what]);
        command
    };
    let cargo = |folder: &Path, line: &str| {
        let mut command = shell::cargo();
        command.args(line.split(' ')).current_dir(folder);
        command.env("CARGO_TARGET_DIR", shell::target_dir());
        command
    };
    shell::run(&mut cargo(&package, "fmt --check"))?;
    // Tools first: what they find is known at once.
    shell::run(pip("maturin>=1.9,<2").arg("ruff"))?;
    shell::run(tool("ruff").args(["format", "--check", "."]))?;
    shell::run(tool("ruff").args(["check", "."]))?;
    // The wheel is built of the source package: what that lacks of the workspace, no build finds.
    let sources = sources(&environment, &mut tool("maturin"))?;
    // Clippy as a compiler, for crates that are compiled next: `cargo clippy` would check each dependency once more.
    let lint = "build --quiet --features pyo3/extension-module";
    let mut lint = cargo(&sources.join("python"), lint);
    lint.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    lint.env("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__");
    shell::run(&mut lint)?;
    let wheel = wheel(&environment, &sources, &mut tool("python"))?;
    shell::run(&mut pip(&format!("{}[test]", wheel.display())))?;
    // For pip a version that is installed is up to date.
    let file = wheel.display().to_string();
    shell::run(pip(&file).args(["--force-reinstall", "--no-deps"]))?;
    let empty = empty(&environment, &wheel, &mut tool("python"))?;
    // Outside of the sources, whose folder `quarry` has no compiled part; beside the tests, which wait for one processor.
    let mut stubs = tool("python");
    stubs.args(["-m", "mypy.stubtest", "--concise", "--mypy-config-file"]);
    stubs.arg(package.join("pyproject.toml")).arg("quarry");
    stubs.current_dir(&environment);
    let quarry = absolute(quarry)?;
    let mut tests = tool("python");
    tests
        .args(["-m", "pytest", "-q"])
        .arg(package.join("tests"));
    tests
        .env("QUARRY_COMMAND", quarry)
        .env("QUARRY_WHEEL", absolute(&wheel)?)
        .env("QUARRY_EMPTY", absolute(&empty)?)
        .current_dir(&environment);
    std::thread::scope(|scope| {
        let stubs = scope.spawn(|| shell::run(&mut stubs));
        shell::run(&mut tests)?;
        stubs
            .join()
            .map_err(|_| anyhow!("the check of the stubs panicked"))?
    })?;
    Ok(Outcome::Done)
}

/// Makes the source package and unpacks it in an empty folder, which has its `pyproject.toml`.
fn sources(environment: &Path, maturin: &mut Command) -> Result<PathBuf> {
    let folder = environment.join("sources");
    if folder.exists() {
        fs::remove_dir_all(&folder).context("while removing the last source package")?;
    }
    shell::run(maturin.args(["sdist", "--out"]).arg(&folder))?;
    let archive = format!("kquarry-{}.tar.gz", env!("CARGO_PKG_VERSION"));
    // Files are of now: cargo takes what is as old as the last package for built.
    let mut tar = Command::new("tar");
    shell::run(
        tar.args(["xzmf", &archive, "--strip-components=1"])
            .current_dir(&folder),
    )?;
    Ok(folder)
}

/// Builds the wheel of the source package, as pip does for users.
fn wheel(environment: &Path, sources: &Path, python: &mut Command) -> Result<PathBuf> {
    let folder = environment.join("wheels");
    if folder.exists() {
        fs::remove_dir_all(&folder).context("while removing the last wheel")?;
    }
    python.args(["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]);
    python.arg(&folder).arg(sources);
    python.arg("--config-settings=build-args=--profile=dev");
    shell::run(python)?;
    let mut found = fs::read_dir(&folder).context("while looking for the wheel")?;
    let wheel = found.next().context("pip built no wheel")?;
    Ok(wheel?.path())
}

/// Makes an environment with nothing but the wheel, installed without an index.
pub(crate) fn empty(environment: &Path, wheel: &Path, python: &mut Command) -> Result<PathBuf> {
    let folder = environment.join("empty");
    let mut venv = Command::new("python3");
    shell::run(
        venv.args(["-m", "venv", "--clear", "--without-pip"])
            .arg(&folder),
    )?;
    python
        .args(["-m", "pip", "--quiet", "--python"])
        .arg(folder.join("bin/python"));
    shell::run(
        python
            .args(["install", "--no-index", "--no-compile"])
            .arg(wheel),
    )?;
    Ok(folder)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{} has no path", path.display()))
}
