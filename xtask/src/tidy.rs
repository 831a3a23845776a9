//! `cargo xtask tidy`: the rules no compiler checks.

mod circles;
mod facts;
mod packages;
mod text;
mod words;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::shell;

/// A broken rule and where.
#[derive(Debug)]
struct Violation {
    file: PathBuf,
    line: usize,
    rule: String,
}

impl Violation {
    fn new(file: &Path, line: usize, rule: impl Into<String>) -> Self {
        Self {
            file: file.to_path_buf(),
            line,
            rule: rule.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}:{}: {}",
            self.file.display(),
            self.line,
            self.rule
        )
    }
}

/// Checks the workspace and prints every violation.
pub(crate) fn run() -> Result<()> {
    let root = shell::root();
    let mut cargo = shell::cargo();
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]);
    let metadata = serde_json::from_str(&shell::output(&mut cargo)?)?;
    let dependencies = fs::read_to_string(root.join(packages::LIST))?;
    let mut violations = packages::check(&metadata, &dependencies);
    let (files, found) = check(&root)?;
    violations.extend(found);
    for violation in &violations {
        println!("{violation}");
    }
    if !violations.is_empty() {
        bail!("{} violations of the style rules", violations.len());
    }
    println!("tidy: {files} files");
    Ok(())
}

/// Checks every text file; returns the number of files, too.
fn check(root: &Path) -> Result<(usize, Vec<Violation>)> {
    let facts = fs::read_to_string(root.join(facts::PAGE)).unwrap_or_default();
    let mut violations = Vec::new();
    let mut cited = BTreeSet::new();
    let mut crates = circles::Crates::new();
    let mut files = Vec::new();
    collect(root, Path::new(""), &mut files)?;
    for file in &files {
        let bytes =
            fs::read(root.join(file)).with_context(|| format!("cannot read {}", file.display()))?;
        let text = String::from_utf8_lossy(&bytes);
        violations.extend(text::check(file, &text));
        violations.extend(words::check(file, &text));
        if text::has_extension(file, &["rs"]) && !file.starts_with("xtask/src/tidy") {
            violations.extend(facts::check(file, &text, &facts));
            let numbers = facts::cited(&text).into_iter();
            cited.extend(numbers.map(|(number, _)| number.to_owned()));
        }
        circles::add_file(&mut crates, file, &text);
    }
    violations.extend(facts::check_page(&facts, &cited));
    for (sources, modules) in &crates {
        violations.extend(circles::check(sources, modules));
    }
    Ok((files.len(), violations))
}

/// Lists the text files below a directory, in order, without build products and hidden directories.
fn collect(root: &Path, directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let full = root.join(directory);
    let entries = fs::read_dir(&full).with_context(|| format!("cannot list {}", full.display()))?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = directory.join(&name);
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let skipped = name.starts_with("target")
                || name == "raw"
                || (name.starts_with('.') && name != ".ci");
            if !skipped {
                collect(root, &path, files)?;
            }
        } else if kind.is_file() && text::is_text(&path) {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_are_found_outside_of_what_builds_make() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("crates/a/src/lib.rs", "//! A crate.\n"),
            ("target/x.rs", "//! What it is.\n"),
            (".git/x.md", "so many\n"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let (files, violations) = check(root.path()).unwrap();
        let shown: Vec<_> = violations.iter().map(ToString::to_string).collect();
        let rule = "crates/a/src/lib.rs:1: the crate does not say #![forbid(unsafe_code)]";
        assert_eq!((files, shown), (1, vec![rule.to_owned()]));
    }
}
