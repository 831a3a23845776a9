//! The blocks of all documents: those for a shell and plans of sweeps, run as they stand. Blocks of Rust are doctests of
//! `kquarry`, C is compiled by `kquarry-capi`, and `python/tests/test_documents.py` runs Python.
//!
//! A block whose first line is `# as root`, `# needs ...` or begins with `sudo` is not run; its options are looked up in the
//! help. So are those of `docs/studies`, which take hours.
//! A `text` block behind a block has lines that the block prints, in order; `...` stands for others.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{small_trace, stdout};

/// Documents outside of `docs`.
const PAGES: [&str; 3] = ["README.md", "python/README.md", "traces/README.md"];

/// A block, and the lines that it prints as the page has them.
struct Snippet {
    page: String,
    line: usize,
    language: String,
    code: String,
    prints: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All documents, by their paths below the root.
fn pages() -> Vec<String> {
    let mut pages: Vec<String> = PAGES.map(str::to_owned).to_vec();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                let below = path.strip_prefix(root()).unwrap();
                pages.push(below.to_str().unwrap().to_owned());
            }
        }
    }
    pages.sort();
    pages
}

fn snippets(page: &str) -> Vec<Snippet> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let mut found: Vec<Snippet> = Vec::new();
    let (mut is_inside, mut is_output) = (false, false);
    for (index, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some("") if is_inside => is_inside = false,
            Some(language) if !is_inside => {
                is_inside = true;
                is_output = ["", "text"].contains(&language);
                if !is_output {
                    found.push(Snippet {
                        page: page.to_owned(),
                        line: index + 1,
                        language: language.to_owned(),
                        code: String::new(),
                        prints: Vec::new(),
                    });
                }
            }
            _ if !is_inside => {}
            _ => {
                let Some(snippet) = found.last_mut() else {
                    continue;
                };
                if is_output {
                    snippet.prints.push(line.trim_end().to_owned());
                } else {
                    snippet.code.push_str(line);
                    snippet.code.push('\n');
                }
            }
        }
    }
    found
}

/// Runs a block in a folder with `traces`, `crates`, a recording `mine.parquet`, which is in `recordings`, too, and a
/// snapshot `now.json`.
fn run(snippet: &Snippet) {
    let place = format!("{}:{}", snippet.page, snippet.line);
    let folder = tempfile::tempdir().unwrap();
    for name in ["traces", "crates"] {
        symlink(root().join(name), folder.path().join(name)).unwrap();
    }
    let trace = small_trace(folder.path());
    fs::create_dir(folder.path().join("recordings")).unwrap();
    for name in ["mine.parquet", "recordings/mine.parquet"] {
        fs::copy(&trace, folder.path().join(name)).unwrap();
    }
    let snapshot = "crates/quarry-lab/tests/data/6.17-to-7.3-x86_64-4k/6.17.13.json.gz";
    fs::copy(root().join(snapshot), folder.path().join("now.json")).unwrap();
    fs::write(folder.path().join("plan.toml"), &snippet.code).unwrap();
    let code = match snippet.language.as_str() {
        "toml" => "quarry sweep plan.toml -o rows --dry-run\n",
        _ => &snippet.code,
    };
    let code = code.replace("cargo run --release -- ", "quarry ");
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
    let lines = snippet.code.lines();
    let lines = lines.map(|line| line.split(" #").next().unwrap_or_default());
    let commands = lines.flat_map(|line| line.split('|'));
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

fn check(page: &str) {
    for snippet in &snippets(page) {
        let first = snippet.code.lines().next().unwrap_or_default();
        let elsewhere = ["# as root", "# needs ", "sudo "];
        match snippet.language.as_str() {
            "sh" if page.starts_with("docs/studies/")
                || elsewhere.iter().any(|mark| first.starts_with(mark)) =>
            {
                look_up(snippet);
            }
            "sh" | "toml" => run(snippet),
            _ => {}
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
}

#[test]
fn commands_of_other_documents_run() {
    let pages = pages();
    let others = |page: &&String| !["README.md", "docs/GUIDE.md"].contains(&page.as_str());
    pages.iter().filter(others).for_each(|page| check(page));
}

/// A block in a language that no test runs would be wrong without notice.
#[test]
fn every_block_has_a_test() {
    let mut counts = std::collections::BTreeMap::new();
    for snippet in pages().iter().flat_map(|page| snippets(page)) {
        let place = format!("{}:{}", snippet.page, snippet.line);
        let language = snippet.language.as_str();
        let is_tested = match language {
            "sh" | "python" | "toml" => true,
            "rust" => ["README.md", "docs/GUIDE.md"].contains(&snippet.page.as_str()),
            // The programs of the guide.
            "c" | "cpp" => snippet.page == "docs/GUIDE.md",
            // A part of a program, and a command that a registry answers.
            "rust,ignore" | "console" => true,
            _ => false,
        };
        assert!(is_tested, "{place}: no test runs {language:?}");
        *counts.entry(language.to_owned()).or_insert(0) += 1;
    }
    let programs = (counts["c"], counts["cpp"]);
    assert_eq!(programs, (1, 1), "kquarry-capi runs the first of each");
    assert!(counts["sh"] > 30 && counts["python"] > 5, "{counts:?}");
}
