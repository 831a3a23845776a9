//! `cargo xtask mutants`: changes the protocol files in small ways; tests have to catch each change.
//!
//! Files, and the mutants that need no test, are in `.cargo/mutants.toml`.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::shell::{self, Outcome};

/// A package with files to change, and arguments of `cargo test` that select its tests.
struct Package {
    name: &'static str,
    /// Packages with the tests.
    tested: &'static [&'static str],
    tests: &'static [&'static str],
}

/// A test that takes seconds, and catches nothing that others do not.
const SKIPPED: &str = "--skip=memory_is_used_to_the_last_page_and_recovers";

/// Status of cargo-mutants if all are caught, some by running out of time: tests do not end then.
const TIMED_OUT: i32 = 3;

const PACKAGES: [Package; 3] = [
    Package {
        name: "kquarry-core",
        tested: &["kquarry-core", "kquarry"],
        tests: &["--lib", "--test=protocols"],
    },
    Package {
        name: "kquarry-host",
        tested: &["kquarry-host"],
        tests: &["--lib", "--test=machine"],
    },
    Package {
        name: "kquarry",
        tested: &["kquarry"],
        tests: &["--lib", "--test=typed"],
    },
];

/// Options of `mutants`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Part of the mutants, such as 0/8: the first of eight parts; all otherwise.
    #[arg(long)]
    shard: Option<String>,
}

/// Runs the mutants of all packages; fails if one passes the tests.
pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if shell::find_tool("cargo-mutants").is_none() {
        let install = "cargo-mutants is missing: cargo install cargo-mutants --locked";
        return Ok(Outcome::Skipped(install.to_owned()));
    }
    let target = shell::target_dir().join("mutants");
    // All packages run: hours are lost if the first one ends the rest.
    let mut failed = Vec::new();
    for package in &PACKAGES {
        let output = target.join(package.name);
        fs::create_dir_all(&output).with_context(|| format!("no folder {}", output.display()))?;
        let mut cargo = shell::cargo();
        cargo.args(["mutants", "--package", package.name, "--output"]);
        cargo.arg(output);
        for tested in package.tested {
            cargo.args(["--test-package", tested]);
        }
        if let Some(shard) = &options.shard {
            cargo.args(["--sharding=round-robin", "--shard", shard]);
        }
        cargo.arg("--").args(package.tests);
        cargo.arg("--").arg(SKIPPED);
        // A mutant changes one function: the rest of its crates comes from the last build, and dependencies from the last run.
        cargo
            .env("CARGO_TARGET_DIR", target.join("build"))
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("QUARRY_PROPTEST_CASES", "2");
        println!("+ {}", shell::display(&cargo));
        let status = cargo.status().context("cannot start cargo")?;
        if !matches!(status.code(), Some(0 | TIMED_OUT)) {
            failed.push(format!("mutants of {} ended with {status}", package.name));
        }
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("; "));
    }
    Ok(Outcome::Done)
}
