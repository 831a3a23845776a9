//! Checks, models and benchmarks of the workspace: `cargo xtask <command>`.
//!
//! Everything here is a thin driver around `cargo` and a few well known tools. A tool that is missing is
//! named, together with what to install; nothing is installed from here.

#![forbid(unsafe_code)]

mod aarch64;
mod accounting;
mod bench;
mod browser;
mod ci;
mod dist;
mod fuzz;
mod install;
mod install_c;
mod machine;
mod models;
mod mutants;
mod page;
mod picture;
mod programs;
mod python;
mod real;
mod shell;
mod tidy;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::shell::Outcome;

/// Checks, models and benchmarks of the workspace.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Every check of the workspace; the first that fails ends the run.
    Ci(ci::Options),
    /// The rules no compiler checks: layers, lengths, blanks, paths, owners of TODOs.
    Tidy,
    /// Model checking of the lock-free parts (`--cfg loom`).
    Loom,
    /// The host's tests with restartable sequences switched off in the C library.
    TestFallback,
    /// The random scripts and storms of the tests with all their cases and eras.
    Soak,
    /// Mutants of the protocol files, which tests have to catch (cargo-mutants).
    Mutants(mutants::Options),
    /// The fuzz targets of `fuzz/`.
    Fuzz(fuzz::Options),
    /// The tests that need root: AF_XDP, and the files of the running kernel.
    Root,
    /// The tests that read the recordings of `$QUARRY_SHARED`, otherwise of `../shared`.
    Recordings,
    /// Assembles the aarch64 restartable sequence.
    Aarch64,
    /// Shows that memory accounting adds no instruction to an allocation and a free.
    Accounting(accounting::Options),
    /// Runs real programs on all designs and updates the tables of docs/programs.md.
    Real(real::Options),
    /// Runs the benchmarks and keeps their output under docs/results.
    Bench(bench::Options),
    /// Draws memory over time of the bundled recording for the README (docs/memory.png).
    Picture,
    /// Opens pages of the command in Chromium, and clicks through one.
    Page,
    /// Installs the command with the library that it preloads, man pages and completions.
    Install(install::Options),
    /// Builds the library for C and C++, and installs it with its header and files for pkg-config and CMake.
    InstallC(install_c::Options),
    /// Builds and checks what users without Rust install: archives, Debian and RPM packages (target/dist-packages).
    Dist(dist::Options),
    /// Builds the wheel of `python/`, and checks its tests, stubs and notebooks.
    Python(python::Options),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Ci(options) => ci::run(&options),
        Command::Tidy => tidy::run(),
        Command::Loom => models::loom(&[]),
        Command::TestFallback => models::fallback(),
        Command::Soak => models::soak(),
        Command::Mutants(options) => report(mutants::run(&options)?),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Root => report(models::root()?),
        Command::Recordings => report(models::recordings()?),
        Command::Aarch64 => report(aarch64::run()?),
        Command::Accounting(options) => accounting::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Real(options) => real::run(&options),
        Command::Install(options) => install::run(&options),
        Command::InstallC(options) => install_c::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::Picture => picture::run(),
        Command::Page => report(page::run()?),
        Command::Python(options) => report(python::run(&options)?),
    }
}

fn report(outcome: Outcome) -> Result<()> {
    if let Outcome::Skipped(reason) = outcome {
        println!("SKIPPED: {reason}");
    }
    Ok(())
}
