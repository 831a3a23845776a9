//! The tree of files below a prefix, such as `/usr`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Arch, build::Built, folder, parts};
use crate::shell;

/// Files of the sources, from the workspace's root on, and their folders in the tree.
const DOCUMENTS: [&str; 4] = [
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "CHANGELOG.md",
    "docs/GUIDE.md",
];
/// Folder of documents.
pub(super) const DOC: &str = "share/doc/quarry";
/// Shells, and where they look for completions of packages.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/quarry"),
    ("zsh", "share/zsh/site-functions/_quarry"),
    ("fish", "share/fish/vendor_completions.d/quarry.fish"),
];

/// Makes the tree anew and returns its folder.
pub(super) fn make(arch: Arch, built: &Built) -> Result<PathBuf> {
    let tree = folder().join("trees").join(arch.stem());
    if tree.exists() {
        fs::remove_dir_all(&tree).with_context(|| format!("cannot remove {}", tree.display()))?;
    }
    let command = tree.join("bin/quarry");
    copy(&built.command, &command, 0o755)?;
    copy(
        &built.library,
        &tree.join("lib/quarry/libquarry_malloc.so"),
        0o644,
    )?;
    describe(&tree, || arch.runner(&command))?;
    for document in DOCUMENTS {
        let name = Path::new(document).file_name().unwrap_or_default();
        let to = tree.join(DOC).join(name);
        copy(&shell::root().join(document), &to, 0o644)?;
    }
    let (licences, list) = parts::texts(arch)?;
    fs::write(tree.join(DOC).join("THIRD-PARTY.txt"), licences)?;
    fs::write(tree.join(DOC).join("quarry.cdx.json"), list)?;
    Ok(tree)
}

/// Writes man pages and completions, which the command has.
pub(crate) fn describe(tree: &Path, command: impl Fn() -> Result<Command>) -> Result<()> {
    let man = tree.join("share/man/man1");
    fs::create_dir_all(&man)?;
    shell::run(command()?.args(["man", "--force"]).arg(&man))?;
    for (shell, path) in SHELLS {
        let text = shell::output(command()?.args(["completions", shell]))?;
        let path = tree.join(path);
        fs::create_dir_all(path.parent().unwrap_or(tree))?;
        fs::write(path, text)?;
    }
    Ok(())
}

/// Copies a file into a folder that may not exist.
pub(crate) fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let failed = || format!("cannot copy {} to {}", from.display(), to.display());
    fs::create_dir_all(to.parent().unwrap_or(to)).with_context(failed)?;
    if to.exists() {
        // Programs that run keep an older one, as it is not written to.
        fs::remove_file(to).with_context(failed)?;
    }
    fs::copy(from, to).with_context(failed)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).with_context(failed)
}
