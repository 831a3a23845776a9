//! Rules about the text of a file.

use std::path::Path;

use super::Violation;

/// The crates that may hold `unsafe` code.
const MAY_BE_UNSAFE: [&str; 4] = ["quarry-core", "quarry-host", "quarry-sim", "quarry"];
const LINES_MAX: usize = 600;
const LINES_NOTED: usize = 400;
/// Directories of a developer's machine. Written in halves, so that this line is not found.
const MACHINE_PATHS: [&str; 3] = [
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/ho", "me/"),
];
const MARK: &str = concat!("TO", "DO");
const EXTENSIONS: [&str; 10] = ["rs", "md", "toml", "yml", "json", "c", "h", "s", "S", "py"];

/// Is this a file the rules are about?
pub(super) fn is_text(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension)) || path.starts_with(".ci")
}

/// Checks one file.
pub(super) fn check(path: &Path, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let is_rust = has_extension(path, &["rs"]);
    let no_trailing = has_extension(path, &["rs", "md", "toml"]);
    for (index, line) in text.lines().enumerate() {
        let mut found = |rule: &str| violations.push(Violation::new(path, index + 1, rule));
        if is_rust && line.contains('\t') {
            found("tab");
        }
        if no_trailing && line.ends_with([' ', '\t']) {
            found("space at the end of the line");
        }
        if names_machine_path(line) {
            found("absolute path of one machine");
        }
        if has_orphan_todo(line) {
            found("unfinished work without its owner's name in parentheses");
        }
    }
    let lines = text.lines().count();
    if is_rust && lines > LINES_MAX {
        violations.push(Violation::new(
            path,
            LINES_MAX + 1,
            format!("{lines} lines, more than {LINES_MAX}"),
        ));
    }
    violations
}

/// What is allowed and worth a second look.
pub(super) fn note(path: &Path, text: &str) -> Option<Violation> {
    let lines = text.lines().count();
    let long = has_extension(path, &["rs"]) && lines > LINES_NOTED && lines <= LINES_MAX;
    long.then(|| {
        Violation::new(
            path,
            LINES_NOTED + 1,
            format!("{lines} lines, more than {LINES_NOTED}"),
        )
    })
}

/// Checks the root file of a crate.
pub(super) fn forbids_unsafe(package: &str, file: &Path, text: &str) -> Option<Violation> {
    let exempt = MAY_BE_UNSAFE.contains(&package) || package.ends_with("benches");
    let forbids = text
        .lines()
        .any(|line| line.trim() == "#![forbid(unsafe_code)]");
    (!exempt && !forbids)
        .then(|| Violation::new(file, 1, "the crate does not say #![forbid(unsafe_code)]"))
}

/// Does the file's name end in one of these?
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

/// Finds the word where it is not followed by `(name)`.
fn has_orphan_todo(line: &str) -> bool {
    line.match_indices(MARK).any(|(at, word)| {
        let before = line[..at].chars().next_back();
        let after = &line[at + word.len()..];
        let is_word = !before.is_some_and(char::is_alphanumeric)
            && !after.starts_with(|c: char| c.is_alphanumeric());
        let owner = after
            .strip_prefix('(')
            .and_then(|rest| rest.split_once("):"));
        is_word && owner.is_none_or(|(name, _)| name.trim().is_empty())
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
    fn blanks() {
        assert_eq!(rules("a.rs", "fn a() {}\n\tx\n"), ["2: tab"]);
        for path in ["a.rs", "a.md", "a.toml"] {
            assert_eq!(
                rules(path, "a \nb\n"),
                ["1: space at the end of the line"],
                "{path}"
            );
        }
        assert!(rules("a.h", "\ta \n").is_empty());
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
    fn unfinished_work() {
        for (text, broken) in [
            (format!("// {MARK}: later"), true),
            (format!("// {MARK}(): later"), true),
            (format!("// {MARK} later"), true),
            (format!("// {MARK}(ada): later"), false),
            (format!("// {MARK}S are words"), false),
        ] {
            assert_eq!(!rules("a.rs", &text).is_empty(), broken, "{text}");
        }
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
        assert!(note(Path::new("a.rs"), &lines(401)).is_some());
        assert!(note(Path::new("a.rs"), &lines(400)).is_none());
        assert!(note(Path::new("a.rs"), &lines(601)).is_none());
    }

    #[test]
    fn forbidden_unsafe() {
        let broken = |package, text| forbids_unsafe(package, Path::new("lib.rs"), text).is_some();
        assert!(broken("quarry-lab", "//! x\n"));
        assert!(broken("quarry-lab", "// #![forbid(unsafe_code)]\n"));
        assert!(!broken("quarry-lab", "//! x\n#![forbid(unsafe_code)]\n"));
        assert!(!broken("quarry-core", "//! x\n"));
        assert!(!broken("quarry-benches", "//! x\n"));
    }

    #[test]
    fn kinds_of_files() {
        assert!(is_text(Path::new("crates/a/src/lib.rs")) && is_text(Path::new(".ci/run")));
        assert!(!is_text(Path::new("traces/a.parquet")) && !is_text(Path::new("LICENSE-MIT")));
    }
}
