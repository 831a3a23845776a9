//! The order of the packages, and what they may use from outside.
//!
//! Cargo itself refuses circles; the order is stricter, and holds for tests, too. Licences and duplicates are checked
//! by `cargo deny` (`deny.toml`).

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::Violation;

/// Packages from the bottom to the top; each may use only those before it.
const ORDER: [&str; 23] = [
    "kquarry-core",
    "kquarry-host",
    "kquarry-sim",
    "kquarry-designs",
    "kquarry-view",
    "kquarry",
    "kquarry-capi",
    "kquarry-malloc",
    "kquarry-machines",
    "kquarry-ask",
    "kquarry-calibrate",
    "kquarry-trace",
    "kquarry-work",
    "kquarry-snapshot",
    "kquarry-state",
    "kquarry-lab",
    "kquarry-sweep",
    "kquarry-reproduce",
    "kquarry-report",
    "kquarry-cli",
    "kquarry-python",
    "quarry-benches",
    "xtask",
];
/// Packages that may be part of a process's allocator.
const ALLOCATOR: [&str; 5] = [
    "kquarry-core",
    "kquarry-host",
    "kquarry",
    "kquarry-capi",
    "kquarry-malloc",
];
/// Crates from outside that those may be linked with, whatever features are on.
const ALLOCATOR_MAY_USE: [&str; 2] = ["libc", "loom"];
/// Page with the reason for every crate from outside.
pub(super) const LIST: &str = "docs/DEPENDENCIES.md";

/// Checks the output of `cargo metadata --no-deps` against the order and the page.
pub(super) fn check(metadata: &Value, page: &str) -> Vec<Violation> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: BTreeSet<&str> = rows
        .filter_map(|row| Some(row.split_once('`')?.0))
        .collect();
    let level = |name: &str| ORDER.iter().position(|known| *known == name);
    let mut violations = Vec::new();
    let mut outside = BTreeSet::new();
    for package in list(metadata, "packages") {
        let name = text(package, "name");
        let mut found = |rule: String| {
            let manifest = Path::new(text(package, "manifest_path"));
            violations.push(Violation::new(manifest, 1, rule));
        };
        let Some(own) = level(name) else {
            found(format!(
                "`{name}` has no place in the order of the packages"
            ));
            continue;
        };
        for rule in unpublishable(package) {
            found(rule);
        }
        for dependency in list(package, "dependencies") {
            let used = text(dependency, "name");
            // A package names itself to turn a feature on for its tests.
            let is_member = dependency["path"].is_string();
            if is_member && used != name && level(used).is_none_or(|level| level >= own) {
                found(format!(
                    "`{name}` may not use `{used}`, which is not below it"
                ));
            }
            if !is_member {
                outside.insert(used);
                let is_linked = dependency["kind"].is_null() && dependency["optional"] != true;
                let is_linked = is_linked && ALLOCATOR.contains(&name);
                if is_linked && !ALLOCATOR_MAY_USE.contains(&used) {
                    found(format!(
                        "`{name}` may be an allocator and may not use `{used}`"
                    ));
                }
            }
        }
    }
    violations.extend(outside.difference(&rows).map(|name| {
        let rule = format!("`{name}` is a dependency without a row");
        Violation::new(Path::new(LIST), 1, rule)
    }));
    violations
}

/// Facts and files that a package of a registry lacks, and that no build misses.
fn unpublishable(package: &Value) -> Vec<String> {
    let name = text(package, "name");
    // An empty list of registries is `publish = false`.
    if package["publish"].as_array().is_some_and(Vec::is_empty) {
        return Vec::new();
    }
    let facts = ["description", "repository", "readme", "license"];
    let lacks_fact = |fact: &&str| text(package, fact).is_empty();
    let missing = facts.into_iter().filter(lacks_fact);
    let mut rules: Vec<_> = missing
        .map(|fact| format!("`{name}` is published without `{fact}`"))
        .collect();
    if !package["metadata"]["docs"]["rs"]["targets"].is_array() {
        rules.push(format!("`{name}` has no `targets` for docs.rs"));
    }
    let has_features = package["features"]
        .as_object()
        .is_some_and(|all| !all.is_empty());
    if has_features && package["metadata"]["docs"]["rs"]["all-features"] != true {
        rules.push(format!("`{name}` has features that docs.rs leaves out"));
    }
    let folder = Path::new(text(package, "manifest_path")).parent();
    let folder = folder.unwrap_or(Path::new(""));
    for file in ["LICENSE-APACHE", "LICENSE-MIT"] {
        if !folder.join(file).is_file() {
            rules.push(format!("`{name}` is published without {file}"));
        }
    }
    rules
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value[name].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_published_package_has_facts_licences_and_docs() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join("Cargo.toml");
        let mut package = json!({"name": "p", "manifest_path": manifest, "publish": null, "features": {"f": []},
            "metadata": {"docs": {"rs": {"targets": ["t"], "all-features": true}}}, "description": "d",
            "repository": "r", "readme": "README.md", "license": "MIT"});
        assert_eq!(unpublishable(&package).len(), 2);
        for file in ["LICENSE-APACHE", "LICENSE-MIT"] {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        assert_eq!(unpublishable(&package), [""; 0]);
        package["metadata"]["docs"]["rs"]["all-features"] = json!(false);
        package["repository"] = Value::Null;
        assert_eq!(unpublishable(&package).len(), 2);
        package["publish"] = json!([]);
        assert_eq!(unpublishable(&package), [""; 0]);
    }

    /// Rules that a package breaks with one dependency.
    fn broken(name: &str, dependency: &Value) -> usize {
        let metadata = json!({"packages": [
            {"name": name, "manifest_path": "Cargo.toml", "publish": [], "dependencies": [dependency]}
        ]});
        let rows = "| `libc` | why |\n| `proptest` | why |\n";
        let found = check(&metadata, rows);
        let differ = |violation: &&Violation| violation.file != Path::new(LIST);
        found.iter().filter(differ).count()
    }

    #[test]
    fn a_package_may_use_only_what_is_below_it() {
        let member = |name| json!({"name": name, "path": "/x", "kind": null});
        let in_tests = |name| json!({"name": name, "path": "/x", "kind": "dev"});
        assert_eq!(broken("kquarry-sim", &member("kquarry-core")), 0);
        assert_eq!(broken("kquarry-core", &member("kquarry-sim")), 1);
        assert_eq!(broken("kquarry-core", &in_tests("kquarry-sim")), 1);
        assert_eq!(broken("kquarry-sim", &in_tests("kquarry-sim")), 0);
        assert_eq!(broken("kquarry-sim", &member("kquarry-elsewhere")), 1);
        assert_eq!(broken("kquarry-elsewhere", &member("kquarry-core")), 1);
    }

    #[test]
    fn an_allocator_is_linked_with_libc_at_most() {
        let linked = |name| json!({"name": name, "kind": null});
        assert_eq!(broken("kquarry-host", &linked("libc")), 0);
        assert_eq!(broken("kquarry", &linked("thiserror")), 1);
        let optional = json!({"name": "proptest", "kind": null, "optional": true});
        assert_eq!(broken("kquarry", &optional), 0);
        assert_eq!(broken("kquarry-trace", &linked("thiserror")), 0);
        let in_tests = json!({"name": "proptest", "kind": "dev"});
        assert_eq!(broken("kquarry", &in_tests), 0);
    }

    #[test]
    fn every_crate_from_outside_has_a_row() {
        let metadata = json!({"packages": [{"name": "xtask", "manifest_path": "Cargo.toml", "publish": [],
            "dependencies": [{"name": "clap"}, {"name": "toml"}]}]});
        let rules = |page: &str| check(&metadata, page).len();
        assert_eq!(rules("| `clap` | why |\n| `toml` | why |\n"), 0);
        assert_eq!(rules("| `clap` | why |\ntext about `toml`\n"), 1);
    }
}
