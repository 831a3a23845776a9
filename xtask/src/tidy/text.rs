//! Rules about the text of a file.

use std::path::Path;

use super::Violation;

/// Folders of the crates that may hold `unsafe` code, and of benchmarks.
const MAY_BE_UNSAFE: [&str; 8] = [
    "crates/quarry-core",
    "crates/quarry-host",
    "crates/quarry-sim",
    "crates/quarry",
    "crates/quarry-capi",
    "crates/quarry-malloc",
    "fuzz",
    "python",
];
const LINES_MAX: usize = 600;
/// Directories of a developer's machine. Written in halves, so that this line is not found.
const MACHINE_PATHS: [&str; 3] = [
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/ho", "me/"),
];
const EXTENSIONS: [&str; 10] = ["rs", "md", "toml", "yml", "json", "c", "h", "s", "S", "py"];

/// True if the rules are about this file.
pub(super) fn is_text(path: &Path) -> bool {
    has_extension(path, &EXTENSIONS) || path.starts_with(".ci")
}

pub(super) fn check(path: &Path, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut found = |line, rule: String| violations.push(Violation::new(path, line, rule));
    for (index, line) in text.lines().enumerate() {
        if names_machine_path(line) {
            found(index + 1, "absolute path of one machine".to_owned());
        }
    }
    let lines = text.lines().count();
    if has_extension(path, &["rs"]) && lines > LINES_MAX {
        found(
            LINES_MAX + 1,
            format!("{lines} lines, more than {LINES_MAX}"),
        );
    }
    let is_root = ["src/lib.rs", "src/main.rs"]
        .iter()
        .any(|root| path.ends_with(root));
    let exempt = MAY_BE_UNSAFE.iter().any(|folder| path.starts_with(folder));
    if is_root && !exempt && !text.lines().any(|line| line == "#![forbid(unsafe_code)]") {
        found(
            1,
            "the crate does not say #![forbid(unsafe_code)]".to_owned(),
        );
    }
    violations
}

/// True if the file's name ends in one of these.
pub(super) fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|one| extensions.contains(&one))
}

/// A path counts where it begins, not in the middle of a longer one.
fn names_machine_path(line: &str) -> bool {
    MACHINE_PATHS.iter().any(|path| {
        line.match_indices(path).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            before.is_none_or(|letter| !(letter.is_alphanumeric() || "._-/}*".contains(letter)))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<String> {
        check(Path::new(path), text)
            .iter()
            .map(|violation| format!("{}: {}", violation.line, violation.rule))
            .collect()
    }

    #[test]
    fn machine_paths() {
        let bad = format!("see {}x", MACHINE_PATHS[0]);
        assert_eq!(rules("a.md", &bad), ["1: absolute path of one machine"]);
        let begins = format!("{}x", MACHINE_PATHS[1]);
        assert_eq!(
            rules(".ci/run", &begins),
            ["1: absolute path of one machine"]
        );
        let inner = format!("see target{}x", MACHINE_PATHS[1]);
        assert!(rules("a.md", &inner).is_empty());
    }

    #[test]
    fn length() {
        let lines = |count: usize| "x\n".repeat(count);
        assert_eq!(
            rules("a.rs", &lines(601)),
            ["601: 601 lines, more than 600"]
        );
        assert!(rules("a.rs", &lines(600)).is_empty());
        assert!(rules("a.md", &lines(601)).is_empty());
    }

    #[test]
    fn forbidden_unsafe() {
        let broken = |path: &str, text| !rules(path, text).is_empty();
        for root in ["crates/quarry-lab/src/lib.rs", "xtask/src/main.rs"] {
            assert!(
                broken(root, "//! x\n// #![forbid(unsafe_code)]\n"),
                "{root}"
            );
            assert!(!broken(root, "//! x\n#![forbid(unsafe_code)]\n"), "{root}");
        }
        assert!(!broken("crates/quarry-core/src/lib.rs", "//! x\n"));
        assert!(!broken("crates/quarry-lab/src/replay.rs", "//! x\n"));
    }

    #[test]
    fn kinds_of_files() {
        assert!(is_text(Path::new("crates/a/src/lib.rs")) && is_text(Path::new(".ci/run")));
        assert!(!is_text(Path::new("traces/a.parquet")) && !is_text(Path::new("LICENSE-MIT")));
    }
}
