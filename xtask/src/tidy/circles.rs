//! Circles of modules of a crate, a file each, that use each other, directly or through others.
//!
//! A module uses another one if a `use` of it names something that the other one defines; re-exports are
//! followed to there. A module and its parent may use each other. Tests may use anything: items inside of
//! blocks are not read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::Violation;

/// Modules that a circle may have at most.
const MODULES_MAX: usize = 3;
/// Re-exports between a `use` and the definition at most.
const HOPS_MAX: usize = 16;

/// Paths in the `use` items of each module, from the crate's root, which is the empty path.
pub(super) type Modules = BTreeMap<String, Vec<String>>;

/// The modules of each crate, by the folder of its sources.
pub(super) type Crates = BTreeMap<PathBuf, Modules>;

/// Adds a file, given by its path from the root, if it is a crate's and not of tests.
pub(super) fn add_file(crates: &mut Crates, file: &Path, text: &str) {
    let parts: Vec<_> = file
        .iter()
        .take(3)
        .filter_map(|part| part.to_str())
        .collect();
    if let ["crates", _, "src"] = parts[..]
        && !file.ends_with("tests.rs")
    {
        let sources: PathBuf = parts.iter().collect();
        let below = file.strip_prefix(&sources).expect("its folder");
        let modules = crates.entry(sources).or_default();
        // A library has its root, a program may have none of this name.
        modules.entry(String::new()).or_default();
        add(modules, below, text);
    }
}

/// Adds a file, given by its path below the crate's sources.
fn add(modules: &mut Modules, file: &Path, text: &str) {
    let path = file.with_extension("");
    let parts = path.iter().map(|part| part.to_string_lossy());
    let parts: Vec<_> = parts
        .filter(|part| part != "mod" && part != "lib")
        .collect();
    let module = parts.join("::");
    let mut named = Vec::new();
    let mut tree = String::new();
    for line in text.lines() {
        match line.split_once("use ") {
            Some(("" | "pub " | "pub(crate) " | "pub(super) ", begin)) => tree = begin.to_owned(),
            _ if !tree.is_empty() => tree.push_str(line),
            _ => {}
        }
        if tree.ends_with(';') {
            named.extend(leaves(&tree).iter().map(|path| from_root(&module, path)));
            tree.clear();
        }
    }
    modules.insert(module, named);
}

/// The paths of a tree: `a::{b, c::{d, e}};` has `a::b`, `a::c::d` and `a::c::e`.
fn leaves(tree: &str) -> Vec<String> {
    let mut prefixes = vec![String::new()];
    let mut found = Vec::new();
    for piece in tree.split_inclusive(['{', ',', '}', ';']) {
        let (part, end) = piece.split_at(piece.len() - 1);
        let part = part.split(" as ").next().unwrap_or_default().trim();
        let path = format!("{}{part}", prefixes.last().map_or("", String::as_str));
        match end {
            "{" => prefixes.push(path),
            _ if !part.is_empty() => found.push(path),
            _ => {}
        }
        if end == "}" {
            prefixes.pop();
        }
    }
    found
}

/// A path in a module as one from the root. A path into another crate becomes one to the module itself.
fn from_root(module: &str, path: &str) -> String {
    let mut parts: Vec<_> = module.split("::").filter(|part| !part.is_empty()).collect();
    for part in path.split("::") {
        match part {
            "crate" => parts.clear(),
            "super" => drop(parts.pop()),
            "self" => {}
            name => parts.push(name),
        }
    }
    parts.join("::")
}

/// The module that defines what a path names: that with the longest path, unless it has the name from
/// elsewhere.
fn home<'a>(path: &str, modules: &'a Modules, hops: usize) -> Option<&'a str> {
    let parts: Vec<_> = path.split("::").collect();
    let mut lengths = (0..=parts.len()).rev();
    let (length, (module, named)) = lengths.find_map(|length| {
        let found = modules.get_key_value(&parts[..length].join("::"))?;
        Some((length, found))
    })?;
    let is_named = |path: &&String| path.rsplit("::").next() == parts.get(length).copied();
    match named.iter().find(is_named) {
        Some(path) if hops < HOPS_MAX => {
            let path = [&[path.as_str()], &parts[length + 1..]].concat();
            home(&path.join("::"), modules, hops + 1)
        }
        _ => Some(module),
    }
}

/// The modules that a module uses, directly or through others.
fn reach<'a>(module: &str, modules: &'a Modules) -> BTreeSet<&'a str> {
    let is_child = |child: &str, parent: &str| from_root(child, "super") == parent;
    let mut reached = BTreeSet::new();
    let mut waiting = vec![module];
    while let Some(from) = waiting.pop() {
        let used = modules[from]
            .iter()
            .filter_map(|path| home(path, modules, 0));
        for to in used.filter(|to| !is_child(to, from) && !is_child(from, to)) {
            if reached.insert(to) {
                waiting.push(to);
            }
        }
    }
    reached
}

/// Finds the circles that are too long.
pub(super) fn check(sources: &Path, modules: &Modules) -> Vec<Violation> {
    let reached = modules
        .keys()
        .map(|from| (from.as_str(), reach(from, modules)));
    let reached: BTreeMap<_, _> = reached.collect();
    let circle = |(module, reach): (&&str, &BTreeSet<&str>)| {
        let others = reach
            .iter()
            .filter(|other| reached[**other].contains(module));
        others.map(ToString::to_string).collect::<Vec<_>>()
    };
    let circles: BTreeSet<_> = reached.iter().map(circle).collect();
    let long = circles.iter().filter(|circle| circle.len() > MODULES_MAX);
    let violation = |circle: &Vec<String>| {
        let (count, names) = (circle.len(), circle.join(", "));
        let rule =
            format!("{count} modules use each other in a circle, more than {MODULES_MAX}: {names}");
        Violation::new(&sources.join("lib.rs"), 1, rule)
    };
    long.map(violation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> Modules {
        let mut modules = Modules::from([(String::new(), Vec::new())]);
        for (file, text) in files {
            add(&mut modules, Path::new(file), text);
        }
        modules
    }

    fn rules(files: &[(&str, &str)]) -> Vec<String> {
        let violations = check(Path::new("src"), &modules(files));
        violations
            .into_iter()
            .map(|violation| violation.rule)
            .collect()
    }

    #[test]
    fn trees_are_split() {
        let tree = "a::{self, b as x,    c::{d, e::*,},};";
        assert_eq!(leaves(tree), ["a::self", "a::b", "a::c::d", "a::c::e::*"]);
        assert_eq!(from_root("a::b", "super::super::c::self"), "c");
        assert_eq!(from_root("a::b", "crate::c::D"), "c::D");
        assert_eq!(from_root("a", "core::fmt"), "a::core::fmt");
    }

    #[test]
    fn a_path_leads_to_the_module_that_defines_its_name() {
        let modules = modules(&[
            ("a/mod.rs", "pub use b::{B, C};\npub(crate) use crate::d;\n"),
            ("a/b.rs", "use core::fmt;\npub use crate::d::C;\n"),
            ("d.rs", "pub use d::d;\n"),
        ]);
        for (path, home_of_it) in [
            ("a::B", "a::b"),
            ("a::C", "d"),
            ("a::d::X", "d"),
            ("a::Other", "a"),
            ("a::b::core::fmt", "a::b"),
            ("d::d", "d"),
            ("Elsewhere", ""),
        ] {
            assert_eq!(home(path, &modules, 0), Some(home_of_it), "{path}");
        }
    }

    #[test]
    fn a_circle_of_four_is_found_through_re_exports() {
        let four = [
            ("a.rs", "use crate::{\n    b::{self, X},\n    z,\n};\n"),
            ("b.rs", "use super::c;\n"),
            ("c.rs", "pub(crate) use crate::e::D;\n"),
            ("e/mod.rs", "mod d;\npub use d::D;\n"),
            ("e/d.rs", "use crate::a::A;\n"),
            ("z.rs", "use crate::a;\n"),
        ];
        let found = ["5 modules use each other in a circle, more than 3: a, b, c, e::d, z"];
        assert_eq!(rules(&four), found);
        let without_z = [four[0], four[1], four[2], ("e.rs", "use crate::f::F;\n")];
        assert_eq!(rules(&without_z), <[&str; 0]>::default());
    }

    #[test]
    fn three_parents_and_tests_may_use_each_other() {
        let three = [
            ("a.rs", "use crate::b;\n"),
            ("b.rs", "use crate::c;\n"),
            ("c.rs", "use crate::a;\n"),
        ];
        assert!(rules(&three).is_empty());
        let parent = [
            ("a/mod.rs", "use b::B;\nuse c::C;\nuse d::D;\n"),
            ("a/b.rs", "use super::A;\n"),
            ("a/c.rs", "use super::A;\n"),
            ("a/d.rs", "use super::A;\n"),
        ];
        assert!(rules(&parent).is_empty());
        let tests = [
            three[0],
            three[1],
            ("c.rs", "use crate::d;\n"),
            ("d.rs", "mod tests {\n    use crate::a;\n}\n"),
        ];
        assert!(rules(&tests).is_empty());
    }
}
