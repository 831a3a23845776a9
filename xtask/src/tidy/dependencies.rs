//! Every crate from outside has its line in `docs/DEPENDENCIES.md`.

use std::collections::BTreeSet;
use std::path::Path;

use super::Violation;
use super::layers::Package;

/// Where the dependencies are listed.
pub(super) const LIST: &str = "docs/DEPENDENCIES.md";

/// Checks that every dependency has a row, and every row a dependency somewhere in the manifests.
pub(super) fn check(packages: &[Package], workspace_manifest: &str, list: &str) -> Vec<Violation> {
    let listed: BTreeSet<&str> = list.lines().filter_map(row).collect();
    let mut violations = Vec::new();
    let mut used = BTreeSet::new();
    for package in packages {
        for (name, line) in package.outside() {
            if used.insert(name) && !listed.contains(name) {
                let rule = format!("`{name}` has no line in {LIST}");
                violations.push(Violation::new(&package.manifest, line, rule));
            }
        }
    }
    for (index, line) in list.lines().enumerate() {
        let Some(name) = row(line) else { continue };
        let offered = workspace_manifest
            .lines()
            .any(|line| line.starts_with(&format!("{name} =")));
        if !used.contains(name) && !offered {
            let rule = format!("`{name}` is not a dependency");
            violations.push(Violation::new(Path::new(LIST), index + 1, rule));
        }
    }
    violations
}

/// The name in the first column of a row of a table.
fn row(line: &str) -> Option<&str> {
    line.strip_prefix("| `")?
        .split_once("` |")
        .map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(list: &str, manifest: &str) -> Vec<String> {
        let member = ("quarry-core", true, true);
        let packages = [Package::of(
            "xtask",
            "xtask/Cargo.toml",
            &[],
            &[("clap", false, true), member],
        )];
        check(&packages, manifest, list)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_listed_dependency_passes() {
        assert!(rules("| `clap` | why |\n", "").is_empty());
        assert!(rules("| `clap` | why |\n| `serde` | why |\n", "serde = \"1\"\n").is_empty());
    }

    #[test]
    fn a_missing_and_a_stale_line_are_found() {
        assert_eq!(
            rules("text about `clap`\n| `gone` | why |\n", ""),
            [
                "xtask/Cargo.toml:1: `clap` has no line in docs/DEPENDENCIES.md",
                "docs/DEPENDENCIES.md:2: `gone` is not a dependency",
            ]
        );
    }
}
