//! `cargo xtask install-c`: the library for C and C++, below a folder.

use std::path::{PathBuf, absolute};

use anyhow::{Context, Result};

use crate::shell;

#[path = "../../crates/quarry-capi/install.rs"]
mod install;

/// Options of `install-c`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The folder below which `include` and `lib` are, such as /usr/local.
    #[arg(long)]
    prefix: PathBuf,
}

/// Builds the library and installs it.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut cargo = shell::cargo();
    cargo.args(["build", "--release", "--package", "kquarry-capi"]);
    shell::run(&mut cargo)?;
    let built = shell::target_dir().join("release");
    let prefix = absolute(&options.prefix)?;
    let (shared, archive) = (
        built.join("libquarry_capi.so"),
        built.join("libquarry_capi.a"),
    );
    install::install(&shared, &archive, &prefix)
        .with_context(|| format!("cannot install below {}", prefix.display()))?;
    let pkgconfig = prefix.join("lib/pkgconfig");
    println!(
        "installed; pkg-config finds it with PKG_CONFIG_PATH={}, CMake with CMAKE_PREFIX_PATH={}, programs at their \
         start with LD_LIBRARY_PATH={}",
        pkgconfig.display(),
        prefix.display(),
        prefix.join("lib").display()
    );
    Ok(())
}
