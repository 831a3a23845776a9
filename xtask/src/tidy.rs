//! `cargo xtask tidy`: the rules no compiler checks.

mod circles;
mod dependencies;
mod facts;
mod layers;
mod recordings;
mod text;
mod words;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;

/// A broken rule and where.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(&root)
        .args(["metadata", "--no-deps", "--format-version", "1"]);
    let packages = layers::parse(&shell::output(&mut cargo)?, &root)?;
    let report = check(&root, &packages)?;
    for note in &report.notes {
        println!("note: {note}");
    }
    for violation in &report.violations {
        println!("{violation}");
    }
    if !report.violations.is_empty() {
        bail!("{} violations of the style rules", report.violations.len());
    }
    println!(
        "tidy: {} files, {} packages, {} notes",
        report.files,
        packages.len(),
        report.notes.len()
    );
    Ok(())
}

/// What a look at a workspace found.
#[derive(Debug, Default)]
struct Report {
    files: usize,
    notes: Vec<Violation>,
    violations: Vec<Violation>,
}

fn check(root: &Path, packages: &[layers::Package]) -> Result<Report> {
    let mut report = Report {
        violations: layers::check(packages),
        ..Report::default()
    };
    for package in packages {
        for file in &package.roots {
            let text = fs::read_to_string(root.join(file))
                .with_context(|| format!("cannot read {}", file.display()))?;
            report
                .violations
                .extend(text::forbids_unsafe(&package.name, file, &text));
        }
    }
    let list = fs::read_to_string(root.join(dependencies::LIST)).unwrap_or_default();
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    report
        .violations
        .extend(dependencies::check(packages, &manifest, &list));
    if !root.join("CHANGELOG.md").is_file() {
        report.violations.push(Violation::new(
            Path::new("CHANGELOG.md"),
            1,
            "changelog is missing",
        ));
    }
    let page = fs::read_to_string(root.join(recordings::PAGE)).unwrap_or_default();
    let facts = fs::read_to_string(root.join(facts::PAGE)).unwrap_or_default();
    let mut cited = BTreeSet::new();
    let mut modules = circles::Modules::new();
    let mut files = Vec::new();
    collect(root, Path::new(""), &mut files)?;
    for file in files {
        let bytes = fs::read(root.join(&file))
            .with_context(|| format!("cannot read {}", file.display()))?;
        let text = String::from_utf8_lossy(&bytes);
        report.violations.extend(text::check(&file, &text));
        report.violations.extend(words::check(&file, &text));
        if text::has_extension(&file, &["rs"]) && !file.starts_with("xtask/src/tidy") {
            report.violations.extend(facts::check(&file, &text, &facts));
            let numbers = facts::cited(&text).into_iter();
            cited.extend(numbers.map(|(number, _)| number.to_owned()));
        }
        if file.starts_with("traces") && text::has_extension(&file, &["json"]) {
            report
                .violations
                .extend(recordings::check(&file, &text, &page));
        }
        if let Ok(file) = file.strip_prefix(circles::SOURCES) {
            circles::add(&mut modules, file, &text);
        }
        report.notes.extend(text::note(&file, &text));
        report.files += 1;
    }
    report.violations.extend(facts::check_page(&facts, &cited));
    report.violations.extend(circles::check(&modules));
    Ok(report)
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

    fn workspace() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("CHANGELOG.md", "# Changelog\n"),
            ("crates/a/src/lib.rs", "#![forbid(unsafe_code)]\n"),
            ("target/x.rs", "\t\n"),
            (".git/x.md", "\t \n"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn package() -> layers::Package {
        layers::Package::of(
            "quarry-lab",
            "crates/a/Cargo.toml",
            &["crates/a/src/lib.rs"],
            &[],
        )
    }

    #[test]
    fn a_tidy_workspace_passes() {
        let root = workspace();
        let report = check(root.path(), &[package()]).unwrap();
        assert_eq!(report.violations, []);
        assert_eq!(report.files, 2);
    }

    #[test]
    fn every_kind_of_violation_is_found_in_a_workspace() {
        let root = workspace();
        fs::remove_file(root.path().join("CHANGELOG.md")).unwrap();
        fs::write(root.path().join("crates/a/src/lib.rs"), "\tfn x() {}\n").unwrap();
        let report = check(root.path(), &[package()]).unwrap();
        let shown: Vec<_> = report.violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "crates/a/src/lib.rs:1: the crate does not say #![forbid(unsafe_code)]",
                "CHANGELOG.md:1: changelog is missing",
                "crates/a/src/lib.rs:1: tab",
            ]
        );
    }
}
