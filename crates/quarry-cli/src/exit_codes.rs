//! The table of exit codes, made of what the commands' help says.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::{Command, CommandFactory};
use expect_test::expect_file;

/// Exit codes that helps name.
const CODES: [&str; 5] = ["0", "1", "2", "3", "130"];

const HEAD: &str = "\
# Exit codes

A code has one meaning a command, as its `--help` says. 1 and 2 tell apart what no option mends and what one does. 3 is the
command's own: what ended it, or what was asked and holds. This table is made of the helps by a test.

| command | 0 | 1 | 2 | 3 | others |
|---|---|---|---|---|---|
";

/// The meanings of codes in a help, and under an empty one what stands before them; `None` if it has none.
fn meanings(help: &str) -> Option<BTreeMap<String, Vec<String>>> {
    let (_, behind) = help.split_once("Exit codes:")?;
    let lines = behind.split("\n\n").next()?.trim().lines();
    let mut found = BTreeMap::<String, Vec<String>>::new();
    let mut code = String::new();
    for line in lines {
        for (at, part) in line.trim().trim_end_matches('.').split("; ").enumerate() {
            let (first, rest) = part.split_once(' ').unwrap_or((part, ""));
            // A line may go on with the meaning before it.
            let text = match CODES.contains(&first) {
                true => {
                    code = first.to_string();
                    found.entry(code.clone()).or_default().push(String::new());
                    rest
                }
                false => part,
            };
            let all = found
                .entry(code.clone())
                .or_insert_with(|| vec![String::new()]);
            if let Some(meaning) = all.last_mut() {
                let between = match meaning.is_empty() {
                    true => "",
                    false if at > 0 && text == part => "; ",
                    false => " ",
                };
                write!(meaning, "{between}{}", text.trim_end_matches(';')).ok()?;
            }
        }
    }
    Some(found)
}

/// All commands without commands of their own, by their whole names.
fn commands(of: &Command, name: &str, found: &mut Vec<(String, Command)>) {
    for command in of.get_subcommands().filter(|of| of.get_name() != "help") {
        let name = format!("{name} {}", command.get_name()).trim().to_string();
        found.push((name.clone(), command.clone()));
        commands(command, &name, found);
    }
}

/// `UPDATE_EXPECT=1` writes the table again.
#[test]
fn a_code_has_one_meaning_a_command() {
    let mut all = Vec::new();
    commands(&crate::Cli::command(), "", &mut all);
    assert!(all.len() > 25, "{}", all.len());
    let mut table = HEAD.to_string();
    for (name, command) in all {
        let help = command.get_after_help().map(ToString::to_string);
        let found = help.as_deref().and_then(meanings);
        let found = found.unwrap_or_else(|| panic!("{name} does not say its exit codes"));
        for (code, meanings) in &found {
            assert_eq!(meanings.len(), 1, "{name}: {code} {meanings:?}");
        }
        let of = |code: &str| found.get(code).map_or("", |meanings| meanings[0].as_str());
        let interrupted = match of("130") {
            "" => String::new(),
            told => format!("130 {told}"),
        };
        let others = format!("{}{interrupted}", of("").trim_end_matches("; else"));
        let cells = [of("0"), of("1"), of("2"), of("3"), &others].map(|cell| format!(" {cell} |"));
        writeln!(table, "| `{name}` |{}", cells.concat()).unwrap();
    }
    let path = format!("{}/../../docs/exit-codes.md", env!("CARGO_MANIFEST_DIR"));
    expect_file![path].assert_eq(&table);
}

#[test]
fn a_help_is_read_as_it_stands() {
    let found = meanings(
        "Examples:\n\nExit codes:\n  that of COMMAND; else\n  0 done; 1 a file cannot\n  be read; or is none; 2 wrong usage;\n  3 full\n\nMore: 3",
    );
    let found = found.unwrap();
    let one = |code: &str| found[code].join("|");
    assert_eq!(one(""), "that of COMMAND; else");
    assert_eq!(one("1"), "a file cannot be read; or is none");
    assert_eq!(
        (one("2"), one("3")),
        ("wrong usage".to_string(), "full".to_string())
    );
    assert!(meanings("no such text").is_none());
}
