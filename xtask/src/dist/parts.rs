//! The crates that a command is made of: their licences, and a list in the form of CycloneDX.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{Arch, VERSION};
use crate::shell;

/// A crate from outside.
struct Part {
    name: String,
    version: String,
    licence: String,
    repository: Option<String>,
    checksum: Option<String>,
    folder: PathBuf,
}

/// Texts of all licences, and the list.
pub(super) fn texts(arch: Arch) -> Result<(String, String)> {
    let parts = parts(&arch.target())?;
    ensure!(!parts.is_empty(), "cargo tree names no dependency");
    let list = serde_json::to_string_pretty(&cyclonedx(&parts, arch))? + "\n";
    Ok((licences(&parts)?, list))
}

/// The crates that are linked for a target, in order. `cargo tree` knows which, `cargo metadata` their facts.
fn parts(target: &str) -> Result<Vec<Part>> {
    let mut tree = shell::cargo();
    tree.args(["tree", "--locked", "--package", "kquarry-cli"]);
    tree.args(["--target", target, "--edges", "normal", "--prefix", "none"]);
    let tree = shell::output(tree.args(["--format", "{p}"]))?;
    let linked = tree
        .lines()
        .filter(|line| !line.contains(" (/") && !line.contains("(proc-macro)"))
        .filter_map(|line| line.split_once(" v"))
        .map(|(name, rest)| (name, rest.split(' ').next().unwrap_or(rest)));
    let mut metadata = shell::cargo();
    metadata.args(["metadata", "--locked", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&shell::output(&mut metadata)?)?;
    let lock = fs::read_to_string(shell::root().join("Cargo.lock"))?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    linked
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|(name, version)| {
            let found = packages
                .iter()
                .find(|package| package["name"] == name && package["version"] == version);
            let package = found.with_context(|| format!("no facts of {name} {version}"))?;
            let text = |key: &str| package[key].as_str().map(str::to_owned);
            let manifest = text("manifest_path").context("no folder")?;
            Ok(Part {
                name: name.to_owned(),
                version: version.to_owned(),
                licence: text("license").with_context(|| format!("{name} has no licence"))?,
                repository: text("repository"),
                checksum: checksum(&lock, name, version),
                folder: Path::new(&manifest)
                    .parent()
                    .context("no folder")?
                    .to_path_buf(),
            })
        })
        .collect()
}

/// The digest of a package, as `Cargo.lock` has it.
fn checksum(lock: &str, name: &str, version: &str) -> Option<String> {
    let head = format!("name = \"{name}\"\nversion = \"{version}\"\n");
    let (_, rest) = lock.split_once(&head)?;
    let entry = rest.split("[[package]]").next()?;
    let (_, value) = entry.split_once("checksum = \"")?;
    Some(value.split_once('"')?.0.to_owned())
}

/// Each crate with the licences that its package has.
fn licences(parts: &[Part]) -> Result<String> {
    let mut text = String::from(
        "quarry is under MIT OR Apache-2.0. It contains these packages of crates.io, the musl C library (MIT) and Rust's\n\
         standard library (MIT OR Apache-2.0):\n",
    );
    for part in parts {
        let rule = "=".repeat(72);
        write!(
            text,
            "\n{rule}\n{} {}: {}\n",
            part.name, part.version, part.licence
        )?;
        for file in licence_files(&part.folder)? {
            let bytes = fs::read(&file).with_context(|| format!("{}", file.display()))?;
            let name = file.file_name().unwrap_or_default().display();
            write!(
                text,
                "\n--- {name}\n\n{}\n",
                String::from_utf8_lossy(&bytes).trim_end()
            )?;
        }
    }
    Ok(text)
}

/// Files of licences in a package, and in the C sources that it brings (`zstd-sys`).
fn licence_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for folder in [folder.to_path_buf(), folder.join("zstd")] {
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .to_uppercase();
            let starts = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"];
            if path.is_file() && starts.iter().any(|start| name.starts_with(start)) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The list, without the time and the serial number that would differ between two builds.
fn cyclonedx(parts: &[Part], arch: Arch) -> Value {
    let components: Vec<_> = parts
        .iter()
        .map(|part| {
            let purl = format!("pkg:cargo/{}@{}", part.name, part.version);
            let mut component = json!({
                "type": "library", "bom-ref": purl, "purl": purl, "name": part.name, "version": part.version,
                // Old manifests have a slash for OR, which SPDX does not know.
                "licenses": [{"expression": part.licence.replace('/', " OR ")}],
            });
            if let Some(checksum) = &part.checksum {
                component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
            }
            if let Some(repository) = &part.repository {
                component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
            }
            component
        })
        .collect();
    json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {
            "type": "application", "bom-ref": "quarry", "name": "quarry", "version": VERSION,
            "licenses": [{"expression": "MIT OR Apache-2.0"}],
            "properties": [{"name": "target", "value": arch.target()}],
        }},
        "components": components,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_lock_file() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"a\"\nversion = \"2.0.0\"\n\
                    source = \"r\"\nchecksum = \"ff\"\n";
        assert_eq!(checksum(lock, "a", "2.0.0").as_deref(), Some("ff"));
        assert_eq!(checksum(lock, "a", "1.0.0"), None);
        assert_eq!(checksum(lock, "b", "1.0.0"), None);
    }

    /// The parts of the command: what is linked, without what macros are compiled with.
    #[test]
    fn parts_are_what_is_linked() {
        let parts = parts("x86_64-unknown-linux-musl").unwrap();
        let find = |name: &str| parts.iter().find(|part| part.name == name);
        let zstd = find("zstd-sys").expect("zstd-sys is linked");
        assert!(zstd.checksum.as_ref().is_some_and(|sum| sum.len() == 64));
        assert!(find("cbindgen").is_none() && find("serde_derive").is_none());
        let text = licences(std::slice::from_ref(zstd)).unwrap();
        assert!(text.contains("Redistribution and use"), "{text}");
    }
}
