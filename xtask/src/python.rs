//! The wheel of `python/`: built of the crates that the workspace's tests are of, with its tests, stubs and notebooks; and the
//! source package: whether it has what the wheel was compiled of.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};

use crate::programs::Programs;
use crate::shell::{self, Outcome};

/// The least that `pyproject.toml` asks for, as Python compares it.
const VERSION: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))";

/// Folders of the environment: the wheel, and another environment that has nothing else.
const WHEELS: &str = "wheels";
const EMPTY: &str = "empty";

/// Options of `python`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Test the wheel that the last `cargo xtask ci` or `cargo xtask python` has built and installed.
    #[arg(long)]
    built: bool,
}

/// Builds the wheel, unless the options say that it is there, and tests it.
pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if !options.built
        && let skipped @ Outcome::Skipped(_) = build()?
    {
        return Ok(skipped);
    }
    test()
}

/// The reason not to look at the wheel, if there is one.
fn skipped() -> Option<Outcome> {
    let python = Command::new("python3").args(["-c", VERSION]).output();
    let reason = "no Python from 3.10 on with venv; install the Debian package python3-venv";
    let usable = python.is_ok_and(|done| done.status.success());
    (!usable).then(|| Outcome::Skipped(reason.to_string()))
}

/// The environment that has the wheel.
fn environment() -> PathBuf {
    shell::target_dir().join("python")
}

fn tool(name: &str) -> Command {
    let mut command = Command::new(environment().join("bin").join(name));
    command.current_dir(shell::root().join("python"));
    // With the profile of the tests, and where their build is: most dependencies are compiled already.
    command.env("CARGO_TARGET_DIR", shell::target_dir());
    command
}

/// Installs the wheel into an environment of its own, and checks its sources.
pub(crate) fn build() -> Result<Outcome> {
    if let Some(skipped) = skipped() {
        return Ok(skipped);
    }
    let environment = environment();
    shell::run(
        Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment),
    )?;
    let pip = |what: &str| {
        let mut command = tool("python");
        // Most of what packages bring is never imported: Python compiles the rest when it is.
        command.args(["-m", "pip", "install", "--quiet", "--no-compile", what]);
        command
    };
    // Tools first: what they find is known at once.
    shell::run(pip("maturin>=1.9,<2").arg("ruff"))?;
    shell::run(tool("ruff").args(["format", "--check", "."]))?;
    shell::run(tool("ruff").args(["check", "."]))?;
    // Before the wheel, which takes its crates from the tests.
    Programs::build()?;
    as_in_tests()?;
    let wheel = wheel(&environment, &mut tool("maturin"))?;
    complete(&sources(&environment, &mut tool("maturin"))?)?;
    shell::run(&mut pip(&format!("{}[test]", wheel.display())))?;
    // For pip a version that is installed is up to date.
    let file = wheel.display().to_string();
    shell::run(pip(&file).args(["--force-reinstall", "--no-deps"]))?;
    empty(&environment, &wheel, &mut tool("python"))?;
    Ok(Outcome::Done)
}

/// Tests the wheel that [`build`] has installed, its stubs and its notebooks. Most of them wait for one processor.
pub(crate) fn test() -> Result<Outcome> {
    if let Some(skipped) = skipped() {
        return Ok(skipped);
    }
    let environment = absolute(&environment())?;
    let package = shell::root().join("python");
    let programs = Programs::build()?;
    // Outside of the sources, whose folder `quarry` has no compiled part; beside the tests, which wait for one processor.
    let mut stubs = tool("python");
    stubs.args(["-m", "mypy.stubtest", "--concise", "--mypy-config-file"]);
    stubs.arg(package.join("pyproject.toml")).arg("quarry");
    stubs.current_dir(&environment);
    let mut tests = tool("python");
    tests
        .args(["-m", "pytest", "-q"])
        .arg(package.join("tests"));
    tests
        .env("QUARRY_COMMAND", absolute(programs.quarry()?)?)
        .env("QUARRY_WHEEL", built(&environment)?)
        .env("QUARRY_EMPTY", environment.join(EMPTY))
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

/// Builds the wheel of the unpacked source package, as pip does for users, and imports it in an environment of its own.
pub(crate) fn of_sources() -> Result<()> {
    let own = tempfile::tempdir().context("no folder for an environment")?;
    let environment = own.path().join("environment");
    let mut venv = Command::new("python3");
    shell::run(venv.args(["-m", "venv"]).arg(&environment))?;
    let tool = |name: &str| Command::new(environment.join("bin").join(name));
    let pip = |what: &str| {
        let mut command = tool("python");
        command.args(["-m", "pip", "install", "--quiet", what]);
        command
    };
    shell::run(&mut pip("maturin>=1.9,<2"))?;
    let mut maturin = tool("maturin");
    maturin.current_dir(shell::root().join("python"));
    let sources = sources(&environment, &mut maturin)?;
    shell::run(&mut pip(&sources.display().to_string()))?;
    let mut import = tool("python");
    shell::run(import.args(["-c", "import quarry"]).current_dir(own.path()))
}

/// Builds the wheel with the tests' profile and their crates.
fn wheel(environment: &Path, maturin: &mut Command) -> Result<PathBuf> {
    let folder = environment.join(WHEELS);
    if folder.exists() {
        fs::remove_dir_all(&folder).context("while removing the last wheel")?;
    }
    maturin.args([
        "build",
        "--locked",
        "--profile=dev",
        "--features=as-in-tests",
    ]);
    shell::run(maturin.arg("--out").arg(absolute(&folder)?))?;
    built(environment)
}

/// The wheel in its folder of an environment.
fn built(environment: &Path) -> Result<PathBuf> {
    let folder = environment.join(WHEELS);
    let mut found = fs::read_dir(&folder)
        .with_context(|| format!("no wheel in {}; run cargo xtask python", folder.display()))?;
    let wheel = found.next().context("maturin built no wheel")?;
    Ok(wheel?.path())
}

/// Checks that the wheel's crates have the features that the workspace's tests give them: others would be compiled once more,
/// for minutes.
fn as_in_tests() -> Result<()> {
    let tree = |arguments: &[&str]| -> Result<BTreeSet<String>> {
        let mut cargo = shell::cargo();
        cargo.args([
            "tree",
            "--locked",
            "--prefix=none",
            "--no-dedupe",
            "--format={p} {f}",
        ]);
        let tree = shell::output(cargo.args(arguments))?;
        Ok(tree
            .lines()
            .map(|line| line.replace(" (proc-macro)", ""))
            .collect())
    };
    let tests = tree(&["--workspace", "--edges=normal,build,dev"])?;
    let wheel = [
        "--package=kquarry-python",
        "--features=as-in-tests",
        "--edges=normal,build",
    ];
    let others: Vec<String> = tree(&wheel)?
        .difference(&tests)
        .filter(|line| !line.starts_with("kquarry-python "))
        .cloned()
        .collect();
    ensure!(
        others.is_empty(),
        "the feature as-in-tests of python/Cargo.toml leaves other features than the tests' in {}",
        others.join(", ")
    );
    Ok(())
}

/// Checks that an unpacked source package has all files that the compilers read for the wheel, and manifests that cargo takes.
fn complete(sources: &Path) -> Result<()> {
    let compiled = shell::target_dir().join("debug/lib_quarry.d");
    let compiled = fs::read_to_string(&compiled)
        .with_context(|| format!("cannot read {}", compiled.display()))?;
    let files = read_for(&compiled);
    let (root, built) = (absolute(&shell::root())?, absolute(&shell::target_dir())?);
    let own: Vec<&Path> = files
        .iter()
        .filter(|file| !file.starts_with(&built))
        .filter_map(|file| file.strip_prefix(&root).ok())
        .collect();
    ensure!(own.len() > 100, "the compilers read {} files", own.len());
    let missing = missing(&own, sources);
    ensure!(
        missing.is_empty(),
        "the source package lacks {}",
        missing.join(", ")
    );
    let mut metadata = shell::cargo();
    metadata.args(["metadata", "--offline", "--format-version=1"]);
    metadata.current_dir(sources);
    shell::output(&mut metadata).context("the source package's manifests")?;
    println!(
        "python: the source package has the {} files of the wheel",
        own.len()
    );
    Ok(())
}

/// Those of the files, and of the folders that build scripts read, that a folder lacks.
fn missing(files: &[&Path], folder: &Path) -> Vec<String> {
    let missing = files.iter().filter(|file| !folder.join(file).exists());
    missing.map(|file| file.display().to_string()).collect()
}

/// Files right of the colon in a rule that cargo wrote for make.
fn read_for(rule: &str) -> Vec<PathBuf> {
    let files = rule.split_once(": ").map_or("", |(_, files)| files);
    // A space in a name is written with a backslash.
    let files = files.replace("\\ ", "\0");
    let names = files.split_whitespace();
    names
        .map(|name| PathBuf::from(name.replace('\0', " ")))
        .collect()
}

/// Makes an environment with nothing but the wheel, installed without an index.
pub(crate) fn empty(environment: &Path, wheel: &Path, python: &mut Command) -> Result<PathBuf> {
    let folder = environment.join(EMPTY);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_for_make_are_read() {
        let rule = "/t/lib_quarry.so: /q/a.rs /q/with\\ space.bin\n";
        let files = ["/q/a.rs", "/q/with space.bin"].map(PathBuf::from);
        assert_eq!(read_for(rule), files);
    }

    #[test]
    fn files_that_a_folder_lacks_are_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("there"), "").unwrap();
        let files = ["there", "crates/gone"].map(Path::new);
        assert_eq!(missing(&files, folder.path()), ["crates/gone"]);
    }
}
