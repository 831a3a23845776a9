//! Runs of the tests in another configuration: under the model checker, without restartable
//! sequences, and with all random cases and eras.

use anyhow::Result;

use crate::shell::{self, Outcome};

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
