//! `cargo xtask real`: real programs on all designs, and the tables of docs/programs.md.
//!
//! Each script of `benches/programs` is a program; `quarry run --preload` runs it. The lines that begin with `# needs:`
//! name the commands without which a script is left out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::machine::{self, Machine};
use crate::shell;

/// Options of `real`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these programs, by the names of their scripts.
    programs: Vec<String>,
    /// Rounds of each program.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Longest time of a run.
    #[arg(long, default_value = "60s")]
    timeout: String,
}

/// The page with the tables.
const PAGE: &str = "docs/programs.md";
/// Marks of the tables in the page.
const MARKS: [&str; 2] = ["times", "memory"];

/// A program's results.
struct Row {
    name: String,
    output: Value,
}

/// Runs the programs and updates the page.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut cargo = shell::cargo();
    shell::run(cargo.args(["build", "--release", "-p", "kquarry-cli"]))?;
    let quarry = shell::target_dir().join("release/quarry");
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for script in scripts(options)? {
        let name = script
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        match missing(&script)? {
            Some(tool) => left_out.push(format!("{name} (no {tool})")),
            None => rows.push(Row {
                output: results(&quarry, &script, options)?,
                name,
            }),
        }
    }
    if rows.is_empty() {
        bail!("no program could run: {}", left_out.join(", "));
    }
    let tables = [
        table(&rows, |arm| ratio(&arm["ratio"]["median"])),
        table(&rows, |arm| mebibytes(&arm["peak_bytes"])),
    ];
    println!("\n{}\n{}", tables[0], tables[1]);
    if !left_out.is_empty() {
        println!("left out: {}", left_out.join(", "));
    }
    if options.programs.is_empty() {
        keep(&tables, &left_out, options)?;
    }
    Ok(())
}

/// The wanted scripts, by name.
fn scripts(options: &Options) -> Result<Vec<PathBuf>> {
    let folder = shell::root().join("benches/programs");
    let mut scripts = Vec::new();
    for file in
        fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let path = file?.path();
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let wanted = options.programs.is_empty() || options.programs.contains(&name);
        if wanted && path.extension().is_some_and(|end| end == "sh") {
            scripts.push(path);
        }
    }
    scripts.sort();
    Ok(scripts)
}

/// The first command that a script needs and this computer does not have.
fn missing(script: &Path) -> Result<Option<String>> {
    let text =
        fs::read_to_string(script).with_context(|| format!("cannot read {}", script.display()))?;
    let needs = text
        .lines()
        .filter_map(|line| line.strip_prefix("# needs:"));
    let mut tools = needs.flat_map(str::split_whitespace);
    Ok(tools
        .find(|tool| shell::find_tool(tool).is_none())
        .map(str::to_owned))
}

fn results(quarry: &Path, script: &Path, options: &Options) -> Result<Value> {
    let mut command = Command::new(quarry);
    command
        .args([
            "run",
            "--preload",
            "--json",
            "--rounds",
            &options.rounds.to_string(),
        ])
        .args(["--timeout", &options.timeout, "--", "sh"])
        .arg(script);
    println!("+ {}", shell::display(&command));
    // It fails if the program does on a design; the JSON says on which.
    let output = command.output().context("cannot start quarry")?;
    serde_json::from_slice(&output.stdout).with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("{}: {errors}", script.display())
    })
}

fn ratio(value: &Value) -> Option<String> {
    value.as_f64().map(|ratio| format!("{ratio:.2}"))
}

fn mebibytes(value: &Value) -> Option<String> {
    value
        .as_f64()
        .map(|bytes| format!("{:.0}", bytes / f64::from(1 << 20)))
}

/// A table of Markdown: a row for each program and a column for each allocator.
fn table(rows: &[Row], cell: impl Fn(&Value) -> Option<String>) -> String {
    let arms = |row: &Row| row.output["arms"].as_array().cloned().unwrap_or_default();
    let names = rows.first().map(arms).unwrap_or_default();
    let names: Vec<String> = names
        .iter()
        .map(|arm| arm["allocator"].as_str().unwrap_or_default().to_owned())
        .collect();
    let mut text = format!(
        "| program | {} |\n|---|{}\n",
        names.join(" | "),
        "---|".repeat(names.len())
    );
    for row in rows {
        let arms = arms(row);
        let cells = names.iter().map(|name| {
            let arm = arms.iter().find(|arm| arm["allocator"] == name.as_str());
            match arm {
                Some(arm) if arm["failed"].is_string() => failure(arm),
                Some(arm) => cell(arm).unwrap_or_else(|| "-".to_owned()),
                None => "-".to_owned(),
            }
        });
        text += &format!(
            "| {} | {} |\n",
            row.name,
            cells.collect::<Vec<_>>().join(" | ")
        );
    }
    text
}

/// A few words for a run that did not end well.
fn failure(arm: &Value) -> String {
    let reason = arm["failed"].as_str().unwrap_or_default();
    match reason.strip_prefix("no end within ") {
        Some(time) => format!("> {time}"),
        None => "fails".to_owned(),
    }
}

/// Puts the tables and what they are of into the page.
fn keep(tables: &[String; 2], left_out: &[String], options: &Options) -> Result<()> {
    let facts = Machine::read()?;
    let path = shell::root().join(PAGE);
    let mut text = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let about = format!(
        "Measured on {}: {}, {} CPUs, kernel {}; medians of {} rounds.{}\n",
        machine::date()?,
        facts.cpu_model,
        facts.cpus,
        facts.kernel,
        options.rounds,
        match left_out {
            [] => String::new(),
            some => format!(" Left out: {}.", some.join(", ")),
        }
    );
    let parts = [
        ("machine", &about),
        (MARKS[0], &tables[0]),
        (MARKS[1], &tables[1]),
    ];
    for (mark, part) in parts {
        text =
            between(&text, mark, part).with_context(|| format!("{PAGE} has no <!-- {mark} -->"))?;
    }
    fs::write(&path, text).with_context(|| format!("cannot write {PAGE}"))
}

/// The text with another part between `<!-- mark -->` and `<!-- /mark -->`.
fn between(text: &str, mark: &str, part: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {mark} -->"), format!("<!-- /{mark} -->"));
    let (before, rest) = text.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{part}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_have_a_cell_for_each_allocator() {
        let rows = [
            Row {
                name: "sqlite".to_owned(),
                output: json!({"arms": [
                    {"allocator": "glibc", "ratio": {"median": 1.0}},
                    {"allocator": "slob@6.1", "failed": "no end within 60.0 s"},
                    {"allocator": "slub@6.18", "failed": "signal 11"},
                ]}),
            },
            Row {
                name: "git".to_owned(),
                output: json!({"arms": [{"allocator": "slob@6.1", "ratio": {"median": 1.257}}]}),
            },
        ];
        assert_eq!(
            table(&rows, |arm| ratio(&arm["ratio"]["median"])),
            "| program | glibc | slob@6.1 | slub@6.18 |\n|---|---|---|---|\n\
             | sqlite | 1.00 | > 60.0 s | fails |\n| git | - | 1.26 | - |\n"
        );
    }

    #[test]
    fn a_part_of_the_page_is_replaced() {
        let page = "a\n<!-- times -->\nold\n<!-- /times -->\nb\n";
        assert_eq!(
            between(page, "times", "new\n").as_deref(),
            Some("a\n<!-- times -->\nnew\n<!-- /times -->\nb\n")
        );
        assert_eq!(between(page, "memory", ""), None);
    }
}
