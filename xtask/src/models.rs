//! Runs of the tests in another configuration: under the model checker, without restartable
//! sequences, with all random cases and eras, and of those that need more than the repository.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::shell::{self, Outcome};

/// Where the tests are that read recordings.
const RECORDINGS: &[(&str, &[&str])] = &[
    ("quarry-core", &["geometry_vectors"]),
    ("quarry-trace", &["recordings"]),
    (
        "quarry-lab",
        &[
            "page_events",
            "prediction",
            "real_kernels",
            "slob_recording",
        ],
    ),
];

/// The crates with lock-free parts; each keeps its models in `tests/loom.rs`.
const CRATES: [&str; 2] = ["quarry-core", "quarry-host"];

/// Explores the interleavings of every model.
pub(crate) fn loom() -> Result<Outcome> {
    let mut modelled = 0;
    for name in CRATES {
        if !shell::root()
            .join("crates")
            .join(name)
            .join("tests/loom.rs")
            .is_file()
        {
            println!("{name} has no tests/loom.rs");
            continue;
        }
        let mut cargo = shell::cargo();
        // A directory of its own, or each run would throw away what the ordinary build left.
        cargo
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", shell::target_dir().join("loom"));
        shell::run(cargo.args(["test", "--release", "-p", name, "--test", "loom"]))?;
        modelled += 1;
    }
    Ok(match modelled {
        0 => Outcome::Skipped("no crate has models".to_owned()),
        _ => Outcome::Done,
    })
}

/// The host's tests on a thread for which the C library registered no restartable sequence.
pub(crate) fn fallback() -> Result<()> {
    let mut cargo = shell::cargo();
    cargo.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
    shell::run(cargo.args(["test", "-p", "quarry-host"]))
}

/// All random cases and all eras of the tests that ordinarily run a part of them.
///
/// The two binaries read `QUARRY_SOAK`; their other tests are quick. The negative controls of the
/// storms do the same with and without it.
pub(crate) fn soak() -> Result<()> {
    let mut cargo = shell::cargo();
    cargo.env("QUARRY_SOAK", "1");
    shell::run(cargo.args([
        "test",
        "-p",
        "quarry",
        "--test",
        "virtual",
        "--test",
        "host_stress",
        "--",
        "--skip",
        "negative_control",
    ]))
}

/// The tests that need root, which are otherwise ignored.
pub(crate) fn root() -> Result<Outcome> {
    if shell::output(Command::new("id").arg("-u"))?.trim() != "0" {
        return Ok(Outcome::Skipped("needs root".to_owned()));
    }
    ignored("quarry", &["host_af_xdp"])?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    if !release.starts_with("6.18.") {
        let release = release.trim();
        return Ok(Outcome::Skipped(format!(
            "the tests of the running kernel know 6.18, not {release}"
        )));
    }
    ignored("quarry-core", &["inspect_formats"])?;
    let one = [
        "--test",
        "geometry_vectors",
        "--",
        "--ignored",
        "this_kernel",
    ];
    shell::run(shell::cargo().args(["test", "-p", "quarry-core"]).args(one))?;
    ignored("quarry-lab", &["page_texts"])?;
    Ok(Outcome::Done)
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
    for (package, tests) in RECORDINGS {
        let mut cargo = shell::cargo();
        cargo.env("QUARRY_SHARED", &shared);
        cargo.args(["test", "-p", package]);
        for test in *tests {
            cargo.args(["--test", test]);
        }
        cargo.args(["--", "--include-ignored", "--skip", "this_kernel"]);
        shell::run(&mut cargo)?;
    }
    Ok(Outcome::Done)
}

fn ignored(package: &str, tests: &[&str]) -> Result<()> {
    let mut cargo = shell::cargo();
    cargo.args(["test", "-p", package]);
    for test in tests {
        cargo.args(["--test", test]);
    }
    shell::run(cargo.args(["--", "--ignored"]))
}
