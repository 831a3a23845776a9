//! The order of the crates: each may depend only on crates before it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::Violation;

/// The crates from the bottom to the top.
const ORDER: [&str; 13] = [
    "quarry-core",
    "quarry-host",
    "quarry-sim",
    "quarry",
    "quarry-machines",
    "quarry-calibrate",
    "quarry-trace",
    "quarry-work",
    "quarry-lab",
    "quarry-reproduce",
    "quarry-cli",
    "quarry-benches",
    "xtask",
];
/// The crates that may be part of a process's allocator.
const ALLOCATOR: [&str; 3] = ["quarry-core", "quarry-host", "quarry"];
/// What those may use, apart from each other.
const ALLOCATOR_MAY_USE: [&str; 3] = ["allocator-api2", "libc", "loom"];

/// A member of the workspace.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) manifest: PathBuf,
    manifest_text: String,
    /// The root files of its library and programs.
    pub(super) roots: Vec<PathBuf>,
    dependencies: Vec<Dependency>,
}

impl Package {
    /// The dependencies from outside the workspace, each with its line in the manifest.
    pub(super) fn outside(&self) -> impl Iterator<Item = (&str, usize)> {
        let outside = self
            .dependencies
            .iter()
            .filter(|dependency| !dependency.member);
        outside.map(|dependency| {
            (
                dependency.name.as_str(),
                line_of(&self.manifest_text, &dependency.name),
            )
        })
    }
}

/// One dependency of a member.
#[derive(Clone, Debug)]
pub(super) struct Dependency {
    name: String,
    /// Is it another member?
    member: bool,
    /// Is it linked into the crate itself, not only into its tests or build script?
    linked: bool,
}

/// Reads what `cargo metadata --no-deps` prints.
pub(super) fn parse(metadata: &str, root: &Path) -> Result<Vec<Package>> {
    let value: Value = serde_json::from_str(metadata).context("cargo metadata is not JSON")?;
    let packages = value["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?;
    packages
        .iter()
        .map(|package| parse_package(package, root))
        .collect()
}

fn parse_package(package: &Value, root: &Path) -> Result<Package> {
    let name = package["name"]
        .as_str()
        .context("a package has no name")?
        .to_owned();
    let relative = |path: &Value| -> Option<PathBuf> {
        Some(
            Path::new(path.as_str()?)
                .strip_prefix(root)
                .ok()?
                .to_path_buf(),
        )
    };
    let manifest = relative(&package["manifest_path"])
        .with_context(|| format!("{name} has no manifest here"))?;
    let is_product = |target: &&Value| {
        let kinds = target["kind"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        kinds
            .into_iter()
            .any(|kind| kind == "bin" || kind.ends_with("lib"))
    };
    let targets = package["targets"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(is_product);
    let roots = targets
        .filter_map(|target| relative(&target["src_path"]))
        .collect();
    let dependencies = package["dependencies"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|dependency| {
            Some(Dependency {
                name: dependency["name"].as_str()?.to_owned(),
                member: dependency["path"].is_string(),
                linked: dependency["kind"].is_null(),
            })
        });
    let manifest_text = fs::read_to_string(root.join(&manifest))
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    Ok(Package {
        name,
        manifest,
        manifest_text,
        roots,
        dependencies: dependencies.collect(),
    })
}

/// Checks every dependency of every member.
pub(super) fn check(packages: &[Package]) -> Vec<Violation> {
    packages.iter().flat_map(check_package).collect()
}

fn check_package(package: &Package) -> Vec<Violation> {
    let violation = |line, rule| Violation::new(&package.manifest, line, rule);
    let Some(level) = level(&package.name) else {
        let rule = format!("`{}` has no place in the order of the crates", package.name);
        return vec![violation(1, rule)];
    };
    let mut violations = Vec::new();
    for dependency in &package.dependencies {
        let name = &dependency.name;
        // A crate that names itself for its tests turns a feature on for them.
        let itself = *name == package.name && !dependency.linked;
        let below = self::level(name).is_some_and(|other| other < level);
        if dependency.member && !below && !itself {
            let rule = format!(
                "`{}` may not depend on `{name}`: it is not below it",
                package.name
            );
            violations.push(violation(line_of(&package.manifest_text, name), rule));
        }
        let allocator = ALLOCATOR.contains(&package.name.as_str());
        if allocator
            && dependency.linked
            && !dependency.member
            && !ALLOCATOR_MAY_USE.contains(&name.as_str())
        {
            let rule = format!(
                "`{}` may be a process's allocator and may not use `{name}`",
                package.name
            );
            violations.push(violation(line_of(&package.manifest_text, name), rule));
        }
    }
    violations
}

fn level(name: &str) -> Option<usize> {
    ORDER.iter().position(|known| *known == name)
}

/// The line of a manifest where a dependency is named.
fn line_of(manifest: &str, name: &str) -> usize {
    let names = |line: &str| {
        let rest = line.trim().strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
    };
    manifest
        .lines()
        .position(names)
        .map_or(1, |index| index + 1)
}

#[cfg(test)]
impl Package {
    pub(super) fn of(
        name: &str,
        manifest: &str,
        roots: &[&str],
        dependencies: &[(&str, bool, bool)],
    ) -> Self {
        let dependencies = dependencies
            .iter()
            .map(|&(name, member, linked)| Dependency {
                name: name.to_owned(),
                member,
                linked,
            });
        Self {
            name: name.to_owned(),
            manifest: manifest.into(),
            manifest_text: String::new(),
            roots: roots.iter().map(PathBuf::from).collect(),
            dependencies: dependencies.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(name: &str, dependency: (&str, bool, bool)) -> bool {
        !check(&[Package::of(name, "Cargo.toml", &[], &[dependency])]).is_empty()
    }

    #[test]
    fn a_crate_may_use_only_what_is_below_it() {
        assert!(!broken("quarry-sim", ("quarry-core", true, true)));
        assert!(broken("quarry-core", ("quarry-sim", true, true)));
        assert!(
            broken("quarry-core", ("quarry-sim", true, false)),
            "dev-dependencies count too"
        );
        assert!(
            !broken("quarry-sim", ("quarry-sim", true, false)),
            "its own features, for its tests"
        );
        assert!(broken("quarry-sim", ("quarry-elsewhere", true, true)));
        assert!(
            broken("quarry-elsewhere", ("libc", false, true)),
            "a crate without a place"
        );
    }

    #[test]
    fn an_allocator_uses_libc_at_most() {
        assert!(!broken("quarry-host", ("libc", false, true)));
        assert!(!broken("quarry-core", ("loom", false, true)));
        assert!(!broken("quarry-core", ("proptest", false, false)));
        assert!(broken("quarry", ("thiserror", false, true)));
        assert!(!broken("quarry-trace", ("thiserror", false, true)));
    }

    #[test]
    fn the_line_of_a_dependency_is_found() {
        let manifest = "[dependencies]\nquarry-core.workspace = true\nquarry = { path = \"x\" }\n";
        assert_eq!(line_of(manifest, "quarry-core"), 2);
        assert_eq!(line_of(manifest, "quarry"), 3);
        assert_eq!(line_of(manifest, "libc"), 1);
    }

    #[test]
    fn metadata_is_read() {
        let root = tempfile::tempdir().unwrap();
        fs::write(
            root.path().join("Cargo.toml"),
            "[dependencies]\nlibc = \"0\"\n",
        )
        .unwrap();
        let here = root.path().display();
        let metadata = format!(
            r#"{{"packages":[{{"name":"quarry-core","manifest_path":"{here}/Cargo.toml","targets":[
                {{"kind":["lib"],"src_path":"{here}/src/lib.rs"}},{{"kind":["test"],"src_path":"{here}/tests/t.rs"}}],
                "dependencies":[{{"name":"libc","kind":null}},{{"name":"xtask","path":"/x","kind":"dev"}}]}}]}}"#
        );
        let packages = parse(&metadata, root.path()).unwrap();
        assert_eq!(packages[0].roots, [PathBuf::from("src/lib.rs")]);
        let shown: Vec<_> = check(&packages).iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            ["Cargo.toml:1: `quarry-core` may not depend on `xtask`: it is not below it"]
        );
        assert!(parse("{}", root.path()).is_err());
    }
}
