//! `cargo xtask bench`: runs the benchmarks and keeps what they printed, beside the facts of the machine.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::machine::{self, Machine};
use crate::shell;

/// Options of `bench`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Name of the machine in the directory of the results (default: from its CPU).
    #[arg(long)]
    machine: Option<String>,
    /// Passed on to `cargo bench`, after `--`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Runs the benchmarks.
pub(crate) fn run(options: &Options) -> Result<()> {
    let facts = Machine::read()?;
    let date = machine::date()?;
    let name = options.machine.clone().unwrap_or_else(|| slug(&facts));
    let directory = shell::root()
        .join("docs/results")
        .join(format!("{date}-{name}"));
    let rustc = shell::output(Command::new("rustc").arg("--version"))?;
    let commit = commit();

    let mut cargo = shell::cargo();
    cargo.arg("bench");
    if !options.arguments.is_empty() {
        cargo.arg("--").args(&options.arguments);
    }
    println!("+ {}", shell::display(&cargo));
    let typed = shell::display(&cargo);
    let printed = shell::output(&mut cargo)?;
    println!("{printed}");

    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    // Where the workspace lies on this machine is no result.
    let root = shell::root().display().to_string();
    let raw: String = printed
        .replace(&root, ".")
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect();
    fs::write(directory.join("raw.txt"), &raw)?;
    fs::write(
        directory.join("README.md"),
        readme(&facts, &date, rustc.trim(), &commit, &typed),
    )?;
    println!("kept in {}", directory.display());
    let path = shell::root().join("README.md");
    let text = fs::read_to_string(&path).context("cannot read README.md")?;
    if let Some(text) = with_results(&text, &raw) {
        fs::write(&path, text).context("cannot write README.md")?;
    }
    Ok(())
}

const BEGIN: &str = "<!-- bench -->";
const END: &str = "<!-- /bench -->";

/// The README with the table of these results between its marks; `None` if it has no marks.
fn with_results(readme: &str, raw: &str) -> Option<String> {
    let (before, rest) = readme.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    let rows = raw
        .lines()
        .skip_while(|line| !line.contains(" ns per object"))
        // The tables of other benchmarks follow.
        .take_while(|line| !line.is_empty());
    // Rules between the rows make a terminal readable and a README long.
    let rows = rows.filter(|line| !line.starts_with('\u{2500}'));
    let table: String = rows.map(|line| format!("{}\n", line.trim_end())).collect();
    Some(format!(
        "{before}{BEGIN}\n```text\n{table}```\n{END}{after}"
    ))
}

/// The commit, with a mark if the files differ from it.
fn commit() -> String {
    let mut git = Command::new("git");
    git.current_dir(shell::root())
        .args(["describe", "--always", "--dirty", "--abbrev=12"]);
    let output = git.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let text = output
        .ok()
        .filter(|output| output.status.success())
        .map(|output| output.stdout);
    text.map_or_else(
        || "none".to_owned(),
        |text| String::from_utf8_lossy(&text).trim().to_owned(),
    )
}

fn slug(facts: &Machine) -> String {
    let words = facts
        .cpu_model
        .split(|letter: char| !letter.is_ascii_alphanumeric());
    let words: Vec<_> = words
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    format!("{}-{}cpu", words.join("-"), facts.cpus)
}

fn readme(facts: &Machine, date: &str, rustc: &str, commit: &str, command: &str) -> String {
    let Machine {
        cpu_model,
        cpus,
        kernel,
        arch,
        page_size_bytes,
    } = facts;
    format!(
        "# Benchmarks of {date}\n\n\
         | | |\n|---|---|\n\
         | CPU | {cpu_model} |\n| CPUs online | {cpus} |\n| architecture | {arch} |\n| kernel | {kernel} |\n\
         | page size | {page_size_bytes} bytes |\n| compiler | {rustc} |\n| commit | {commit} |\n\
         | command | `{command}` |\n\n\
         `raw.txt` is what the command printed. Add here what else the machine was doing.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_shows_the_latest_table() {
        let readme = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let raw =
            "Finished\nalloc+free, ns per object\n\u{2500}\u{2500}\n slub 1.0\n\n pages 2.0\n";
        let text = with_results(&readme, raw).expect("marks");
        assert!(text.contains("alloc+free, ns per object\n slub 1.0\n"));
        assert!(!text.contains("old") && !text.contains("Finished") && !text.contains("pages"));
        assert!(text.starts_with("a\n") && text.ends_with("\nb\n"));
        assert!(with_results("no marks", raw).is_none());
    }

    #[test]
    fn results_are_filed_by_cpu_and_name_every_fact() {
        let facts = Machine {
            cpu_model: "Some(R) CPU @ 2.5GHz".to_owned(),
            cpus: 2,
            kernel: "6.18".to_owned(),
            arch: "x86_64",
            page_size_bytes: 4096,
        };
        assert_eq!(slug(&facts), "some-r-cpu-2-5ghz-2cpu");
        let text = readme(&facts, "2026-01-02", "rustc 1.95.0", "abc", "cargo bench");
        for fact in [
            "2026-01-02",
            "Some(R)",
            "6.18",
            "x86_64",
            "4096",
            "1.95.0",
            "abc",
            "`cargo bench`",
        ] {
            assert!(text.contains(fact), "{fact} is missing from:\n{text}");
        }
    }
}
