//! `quarry completions` and `quarry man`.

use std::fs;

use crate::common::{assert_fails, quarry, stdout, text};

/// The commands that `quarry --help` lists.
fn commands() -> Vec<String> {
    let help = stdout("--help");
    let groups = help.split("Options:").next().unwrap();
    groups
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect()
}

/// Each command has a page, and the main page names them.
#[test]
fn every_command_has_a_man_page() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("share/man1");
    text(&quarry(&format!("man {}", folder.display())));
    let commands = commands();
    assert_eq!(commands.len(), 22, "{commands:?}");
    for command in commands {
        let page = fs::read_to_string(folder.join(format!("quarry-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{command}: {page}");
        assert!(page.contains(".SH OPTIONS"), "{command}: {page}");
    }
    for workload in ["rx", "micro", "pages"] {
        let page = fs::read_to_string(folder.join(format!("quarry-run-{workload}.1"))).unwrap();
        assert!(page.contains(".SH OPTIONS"), "{workload}: {page}");
    }
    let main = fs::read_to_string(folder.join("quarry.1")).unwrap();
    assert!(main.contains("quarry\\-replay(1)"), "{main}");
}

/// Completions of each shell know the commands and an option of one of them.
#[test]
fn completions_name_commands_and_options() {
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&format!("completions {shell}"));
        for word in ["what-if", "page-size"] {
            assert!(script.contains(word), "{shell}: no {word}");
        }
    }
    assert_fails(&quarry("completions csh"), 2, &["csh", "bash"]);
}

/// A page that cannot be written is one line that names the folder.
#[test]
fn man_pages_that_cannot_be_written() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    assert_fails(
        &quarry(&format!("man {path}")),
        1,
        &["cannot make the folder", path],
    );
}
