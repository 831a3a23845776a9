//! `cargo xtask bench`: runs the benchmarks and keeps their output with the facts of the machine.

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
    /// Only this benchmark: `host`, `pages`, `buffers`, `sim` or `time`.
    #[arg(long)]
    bench: Option<String>,
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
    if let Some(bench) = &options.bench {
        cargo.args(["--bench", bench]);
    }
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
    let path = shell::root().join(PAGE);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let shown = TABLES.iter().fold(text, |text, table| {
        with_table(&text, table, &raw).unwrap_or(text)
    });
    fs::write(&path, shown).with_context(|| format!("cannot write {PAGE}"))?;
    Ok(())
}

/// The page with the tables of the last results.
const PAGE: &str = "docs/speed.md";

/// A table of the results that the page shows.
struct Shown {
    /// In its marks: `<!-- mark -->` to `<!-- /mark -->`.
    mark: &'static str,
    /// In the title.
    title: &'static str,
}

const TABLES: [Shown; 8] = [
    Shown {
        mark: "bench",
        title: " ns per object",
    },
    Shown {
        mark: "bench of objects",
        title: "take+give of 64-byte objects",
    },
    Shown {
        mark: "bench of pages",
        title: " ns for each page",
    },
    Shown {
        mark: "bench of refills",
        title: "single refills and drains",
    },
    Shown {
        mark: "bench of buffers",
        title: "take+give back of receive buffers",
    },
    Shown {
        mark: "counts of buffers",
        title: "counts per 1000 receive buffers",
    },
    Shown {
        mark: "bench of messages",
        title: "bytes over TCP on loopback",
    },
    Shown {
        mark: "figures of a kernel",
        title: "for orientation, OTHER HARDWARE",
    },
];

/// The page with a table of these results between its marks; `None` if one of them has none.
fn with_table(readme: &str, table: &Shown, raw: &str) -> Option<String> {
    let (begin, end) = (
        format!("<!-- {} -->", table.mark),
        format!("<!-- /{} -->", table.mark),
    );
    let (before, rest) = readme.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    let rows = raw
        .lines()
        .skip_while(|line| !line.contains(table.title))
        // Remarks on the table follow, and the tables of other benchmarks.
        .take_while(|line| !line.is_empty() && !line.contains(" costs "));
    // Rules between the rows make a terminal readable and a page long.
    let rows = rows.filter(|line| !line.starts_with('\u{2500}'));
    let rows: String = rows.map(|line| format!("{}\n", line.trim_end())).collect();
    (!rows.is_empty()).then(|| format!("{before}{begin}\n```text\n{rows}```\n{end}{after}"))
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
    fn the_readme_shows_the_latest_tables() {
        let readme = "a\n<!-- bench -->\nold\n<!-- /bench -->\nb\n<!-- bench of pages -->\n\
                      <!-- /bench of pages -->\nc\n";
        let raw = "Finished\nalloc+free, ns per object\n\u{2500}\u{2500}\n slub 1.0\n\n\
                   alloc+free, ns for each page\n pool 2.0\npool: bulk 64 costs 0.5x\n\nend\n";
        let [objects, _, pages, ..] = &TABLES;
        let text = with_table(readme, objects, raw).expect("marks and a table");
        let text = with_table(&text, pages, raw).expect("marks and a table");
        assert_eq!(
            text,
            "a\n<!-- bench -->\n```text\nalloc+free, ns per object\n slub 1.0\n```\n<!-- /bench -->\nb\n\
             <!-- bench of pages -->\n```text\nalloc+free, ns for each page\n pool 2.0\n```\n\
             <!-- /bench of pages -->\nc\n"
        );
        assert!(with_table("no marks", objects, raw).is_none());
        assert!(with_table(readme, pages, "alloc+free, ns per object\n").is_none());
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
