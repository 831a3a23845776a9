//! Runs of the tests in another configuration: under the model checker, without restartable
//! sequences, with all random cases and eras, and of those that need more than the repository.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::programs::Programs;
use crate::shell::{self, Outcome};
use crate::{aarch64, fuzz, mutants, python};

/// Set for the tests that then run all their cases.
const SOAK: &str = "QUARRY_SOAK";
/// Tests of `quarry` that read [`SOAK`].
const SOAKED: &[&str] = &["virtual", "host_stress"];

/// Tests that read recordings, by package.
const RECORDINGS: &[(&str, &[&str], &[&str])] = &[
    // They compare all vectors where these are.
    ("quarry-core", &["geometry_vectors"], &[]),
    ("quarry-trace", &["recordings"], &["--ignored"]),
    (
        "quarry-lab",
        &["prediction", "real_kernels"],
        &["--ignored", "--skip", "this_kernel"],
    ),
];

/// The crates with lock-free parts; each keeps its models in `tests/loom.rs`.
const CRATES: [&str; 2] = ["kquarry-core", "kquarry-host"];

/// Explores the interleavings of every model; `environment` may hold [`SOAK`].
pub(crate) fn loom(environment: &[(&str, &str)]) -> Result<()> {
    let mut cargo = shell::cargo();
    // A directory of its own, or each run would throw away what the ordinary build left.
    cargo
        .envs(environment.iter().copied())
        .env("RUSTFLAGS", "--cfg loom")
        // Most of a run is the checker's own: optimising it across crates takes longer than it saves.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_TARGET_DIR", shell::target_dir().join("loom"));
    cargo.args(["test", "--release", "--test", "loom"]);
    cargo.args(CRATES.iter().flat_map(|name| ["-p", *name]));
    shell::run(&mut cargo)
}

/// The host's tests on threads for which the C library registered no restartable sequence.
pub(crate) fn fallback() -> Result<()> {
    let environment = [("GLIBC_TUNABLES", "glibc.pthread.rseq=0")];
    Programs::build()?.run("quarry-host", &[], &environment, &[])
}

/// All random cases and all eras of the tests that ordinarily run a part of them, the models with their highest bounds, the
/// fuzz targets for a while, the wheel of the source package, the aarch64 sequence under an emulator, and mutants of the
/// protocol files.
///
/// Three programs, the tests of snapshots and the host's models read `QUARRY_SOAK`.
pub(crate) fn soak() -> Result<()> {
    let skip = ["--skip", "endurance", "--skip", "footprint"];
    let soak = [(SOAK, "1")];
    // First, optimised, and with its output: the numbers of operations and forks.
    let mut endurance = shell::cargo();
    endurance.args([
        "test",
        "--release",
        "-p",
        "kquarry",
        "--test",
        "host_stress",
        "--",
    ]);
    endurance.args(["endurance", "footprint", "--nocapture", "--test-threads=1"]);
    shell::run(endurance.envs(soak))?;
    let programs = Programs::build()?;
    programs.run("quarry", SOAKED, &soak, &skip)?;
    programs.run("quarry-snapshot", &[], &soak, &[])?;
    programs.run("quarry-trace", &["imports"], &soak, &[])?;
    loom(&soak)?;
    fuzz::run(&fuzz::Options::default())?;
    python::of_sources()?;
    if let Outcome::Skipped(reason) = aarch64::emulated()? {
        println!("aarch64 was not emulated: {reason}");
    }
    // Last: it takes hours.
    if let Outcome::Skipped(reason) = mutants::run(&mutants::Options::default())? {
        println!("SKIPPED: {reason}");
    }
    Ok(())
}

/// Folder in which kernels show their tracing.
const TRACEFS: &str = "/sys/kernel/tracing";

/// The tests that need root, which are otherwise ignored.
pub(crate) fn root() -> Result<Outcome> {
    if shell::output(Command::new("id").arg("-u"))?.trim() != "0" {
        return Ok(Outcome::Skipped("needs root".to_owned()));
    }
    // A machine that was started just now has it nowhere, and recordings need it.
    if !Path::new(TRACEFS).join("events").is_dir() {
        shell::run(Command::new("mount").args(["-t", "tracefs", "tracefs", TRACEFS]))?;
    }
    let programs = Programs::build()?;
    let ignored = |package, test| programs.run(package, &[test], &[], &["--ignored"]);
    ignored("quarry", "host")?;
    match shell::find_tool("parallel") {
        Some(_) => ignored("quarry-cli", "cli")?,
        None => {
            println!("no GNU parallel: its test is left out; install the Debian package parallel");
            let others = ["--ignored", "--skip", "gnu_parallel"];
            programs.run("quarry-cli", &["cli"], &[], &others)?;
        }
    }
    ignored("quarry-malloc", "programs")?;
    record_again(programs.quarry()?)?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    if !release.starts_with("6.18.") {
        let release = release.trim();
        return Ok(Outcome::Skipped(format!(
            "the tests of the running kernel know 6.18, not {release}"
        )));
    }
    ignored("quarry-core", "inspect_formats")?;
    let this_kernel = ["--ignored", "this_kernel"];
    programs.run("quarry-core", &["geometry_vectors"], &[], &this_kernel)?;
    programs.run(
        "quarry-lab",
        &["real_kernels"],
        &[],
        &["--ignored", "page_texts"],
    )?;
    Ok(Outcome::Done)
}

/// Workloads that `traces/record` records, each with a program of it and the Debian packages that have it.
const WORKLOADS: [(&str, &str, &str); 3] = [
    ("hackbench", "hackbench", "rt-tests"),
    ("kv", "redis-benchmark", "redis-server"),
    ("tbench", "tbench_srv", "dbench"),
];

/// Records bundled workloads again into a folder that goes away: those whose programs this machine has. Servers listen in
/// a network of their own.
fn record_again(quarry: &Path) -> Result<()> {
    let (here, missing): (Vec<_>, Vec<_>) = WORKLOADS
        .into_iter()
        .partition(|(_, program, _)| shell::find_tool(program).is_some());
    for (name, program, package) in missing {
        println!("no {program}: {name} is not recorded; install the Debian package {package}");
    }
    if here.is_empty() {
        return Ok(());
    }
    let folder = tempfile::tempdir().context("no folder for recordings")?;
    let mut path = quarry
        .parent()
        .context("a path of the command")?
        .as_os_str()
        .to_owned();
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    let mut record = Command::new("unshare");
    record.args(["-n", "sh", "-c", "ip link set lo up; exec \"$@\"", "sh"]);
    record
        .arg(shell::root().join("traces/record"))
        .arg("-o")
        .arg(folder.path());
    shell::run(
        record
            .args(here.iter().map(|(name, ..)| name))
            .env("PATH", path),
    )?;
    for (name, ..) in here {
        let trace = folder.path().join(name).with_extension("parquet");
        let mut replay = Command::new(quarry);
        shell::run(replay.args(["replay", "--design", "sheaf"]).arg(trace))?;
    }
    Ok(())
}

/// The tests that read recordings, which are otherwise ignored.
pub(crate) fn recordings() -> Result<Outcome> {
    let shared =
        env::var_os("QUARRY_SHARED").map_or_else(|| shell::root().join("../shared"), PathBuf::from);
    if !shared.join("groundtruth").is_dir() {
        return Ok(Outcome::Skipped(format!(
            "no recordings in {} (set QUARRY_SHARED)",
            shared.display()
        )));
    }
    let shared = shared.canonicalize()?;
    let shared = [("QUARRY_SHARED", shared.to_str().context("a path in UTF-8")?)];
    let programs = Programs::build()?;
    for (package, tests, arguments) in RECORDINGS {
        programs.run(package, tests, &shared, arguments)?;
    }
    Ok(Outcome::Done)
}
