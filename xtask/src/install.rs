//! `cargo xtask install`: the command from these sources with what belongs to it.
//!
//! `cargo install` copies programs alone. The library for `run --preload` is built with the command, man pages and
//! completions are in it: here they get to where the command and the shells look for them.

use std::path::{PathBuf, absolute};
use std::process::Command;

use anyhow::{Context, Result};

use crate::dist::tree;
use crate::shell;

/// Options of `install`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The folder below which `bin`, `lib` and `share` are; cargo's own otherwise.
    #[arg(long)]
    root: Option<PathBuf>,
}

/// Installs the command, the library, man pages and completions.
pub(crate) fn run(options: &Options) -> Result<()> {
    let root = options.root.clone().or_else(shell::cargo_home);
    let root = absolute(root.context("--root is needed: neither CARGO_HOME nor HOME is set")?)?;
    let mut cargo = shell::cargo();
    cargo.args([
        "install",
        "--locked",
        "--force",
        "--path",
        "crates/quarry-cli",
    ]);
    shell::run(cargo.arg("--root").arg(&root))?;
    let library = shell::target_dir().join("release/deps/libquarry_malloc.so");
    tree::copy(
        &library,
        &root.join("lib/quarry/libquarry_malloc.so"),
        0o644,
    )?;
    tree::describe(&root, || Ok(Command::new(root.join("bin/quarry"))))?;
    println!("installed below {}", root.display());
    Ok(())
}
