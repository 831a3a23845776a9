//! The shell blocks of `README.md` and `docs/GUIDE.md`, run as they stand.
//!
//! A block whose first line is `# as root` or `# needs ...` is not run; its options are looked up in the help.
//! A `text` block behind a block has lines that the block prints, in order; `...` stands for others.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{small_trace, stdout};

/// A shell block, and the lines that it prints as the page has them.
struct Snippet {
    page: &'static str,
    line: usize,
    code: String,
    prints: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn snippets(page: &'static str) -> Vec<Snippet> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let mut found: Vec<Snippet> = Vec::new();
    let mut kind = None;
    for (index, line) in text.lines().enumerate() {
        match (kind, line.strip_prefix("```")) {
            (None, Some("sh")) => {
                found.push(Snippet {
                    page,
                    line: index + 1,
                    code: String::new(),
                    prints: Vec::new(),
                });
                kind = Some("sh");
            }
            (None, Some(other)) => kind = Some(if other == "text" { "text" } else { "other" }),
            (Some(_), Some("")) => kind = None,
            (Some("sh"), None) => {
                let code = &mut found.last_mut().unwrap().code;
                code.push_str(line);
                code.push('\n');
            }
            (Some("text"), None) => {
                if let Some(snippet) = found.last_mut() {
                    snippet.prints.push(line.trim_end().to_owned());
                }
            }
            _ => {}
        }
    }
    found
}

/// Runs a block in a folder with `traces`, `crates`, a recording `mine.parquet` and a snapshot `now.json`.
fn run(snippet: &Snippet) {
    let place = format!("{}:{}", snippet.page, snippet.line);
    let folder = tempfile::tempdir().unwrap();
    for name in ["traces", "crates"] {
        symlink(root().join(name), folder.path().join(name)).unwrap();
    }
    fs::copy(
        small_trace(folder.path()),
        folder.path().join("mine.parquet"),
    )
    .unwrap();
    let snapshot = "crates/quarry-lab/tests/data/6.17-to-7.3-x86_64-4k/6.17.13.json.gz";
    fs::copy(root().join(snapshot), folder.path().join("now.json")).unwrap();
    let code = snippet.code.replace("cargo run --release -- ", "quarry ");
    let lines = code.lines().filter(|line| !line.starts_with("cargo "));
    let code: String = lines.map(|line| format!("{line}\n")).collect();
    let quarry = Path::new(env!("CARGO_BIN_EXE_quarry")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("sh")
        .args(["-eu", "-c", &code])
        .current_dir(&folder)
        .env("PATH", format!("{}:{path}", quarry.display()))
        .env("COLUMNS", "80")
        .output()
        .unwrap();
    assert!(output.status.success(), "{place}:\n{code}{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut lines = printed.lines().map(str::trim_end);
    let expected = snippet.prints.iter().filter(|line| *line != "...");
    for line in expected {
        assert!(
            lines.any(|printed| printed == line),
            "{place}: not printed, or not in this order: {line:?}\n{printed}"
        );
    }
}

/// Looks up the options of a block that cannot run here.
fn look_up(snippet: &Snippet) {
    let commands = snippet.code.split(['|', '\n']);
    for words in commands.map(|command| command.split_whitespace().collect::<Vec<_>>()) {
        let at = usize::from(words.first() == Some(&"sudo"));
        if words.get(at) != Some(&"quarry") {
            continue;
        }
        let help = stdout(&format!("{} --help", words[at + 1]));
        let own = words[at..].split(|word| *word == "--").next().unwrap();
        for option in own.iter().filter(|word| word.starts_with("--")) {
            let option = option.split('=').next().unwrap();
            assert!(
                help.contains(option),
                "{}:{}: {} has no {option}",
                snippet.page,
                snippet.line,
                words[at + 1]
            );
        }
    }
}

fn check(page: &'static str) {
    let snippets = snippets(page);
    assert!(!snippets.is_empty(), "{page}");
    for snippet in &snippets {
        let first = snippet.code.lines().next().unwrap_or_default();
        if first.starts_with("# as root") || first.starts_with("# needs ") {
            look_up(snippet);
        } else {
            run(snippet);
        }
    }
}

#[test]
fn commands_of_the_readme_run() {
    check("README.md");
}

#[test]
fn commands_of_the_guide_run() {
    check("docs/GUIDE.md");
    check("docs/fleet.md");
}
