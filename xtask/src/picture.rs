//! Draws slab memory over the time of the bundled recording on every design, for the README.

use anyhow::{Context, Result};

use crate::shell;

/// Options for the picture: the default designs at the recorded page size.
const REPLAY: [&str; 6] = ["replay", "--page-size", "4k", "--no-timing", "--svg", "-"];
const PICTURE: &str = "docs/memory.svg";

/// Writes the chart of `quarry replay` on the bundled recording to `docs/memory.svg`.
pub(crate) fn run() -> Result<()> {
    let mut cargo = shell::cargo();
    cargo.args(["run", "--release", "--quiet", "-p", "kquarry-cli", "--"]);
    let picture = shell::output(cargo.args(REPLAY))?;
    let path = shell::root().join(PICTURE);
    std::fs::write(&path, picture).with_context(|| format!("cannot write {}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}
