//! The `quarry` command, for its program and for the wheel, which runs it inside of Python.
#![forbid(unsafe_code)]

mod commands;
mod error;
#[cfg(test)]
mod exit_codes;
mod input;
mod jobs;
mod output;
mod question;
mod signals;
mod terminal;
mod units;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use commands::{
    calibrate, callers, diff, explain, filter, geometry, import, info, look, machines, packaging,
    record, replay, report, reproduce, run, snapshot, sweep, top, tunables, what_if,
};

/// The Linux kernel's slab allocators as a laboratory: replay a real kernel's recorded allocations
/// on any design, page size, CPU count and tunable.
#[derive(Parser)]
#[command(name = "quarry", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Exit codes:
  0 done; 1 failed (unreadable trace, no room); 2 wrong usage; 3 has one meaning
  a command, which its --help and docs/exit-codes.md have

Examples:
  quarry replay                       the bundled hackbench, all designs
  quarry run rx                       receive pages by driver and number of rings
  quarry reproduce all --quick        five published measurements, run again
  quarry geometry --page-size 64k --cpus 16 --object-size 9856
  quarry tunables --design slub@5.9
  sudo quarry record -o mine.parquet -- make && quarry replay mine.parquet --check
  quarry snapshot -o now.json && quarry what-if now.json --page-size 64k
  quarry import kmem.txt.gz -o kmem.parquet && quarry replay kmem.parquet";

#[derive(Subcommand)]
enum Command {
    /// Say what a trace or a snapshot is of, and what is in it.
    Info(info::Args),
    /// Say how much slab memory a kernel has, of what and why, what grew, and what would change it.
    Look(look::Args),
    /// Show this computer's caches as slabtop does, with what CPUs hold and another kernel would need.
    Top(top::Args),
    /// Show who allocates: call sites, processes and caches, and what of theirs is alive.
    Callers(callers::Args),
    /// Replay recorded allocations on designs, page sizes and CPU counts.
    Replay(replay::Args),
    /// Print the meaning of a row, a column or a JSON field.
    Explain(explain::Args),
    /// Make a page with tables and charts of JSON outputs, of one or several compared.
    Report(report::Args),
    /// Compare two JSON outputs of any command, for people and for continuous integration.
    Diff(diff::Args),
    /// Run a workload on virtual machines; without a name, list the workloads.
    Run(run::Args),
    /// Rerun published measurements, print them next to the published numbers, and judge the claims.
    Reproduce(reproduce::Args),
    /// Record the allocations of this machine's kernel into a trace.
    Record(record::Args),
    /// Make a trace from a recording of perf, trace-cmd, ftrace, LTTng or Perfetto.
    Import(import::Args),
    /// Cut a window, processes or caches out of a trace, into a trace of its own.
    Filter(filter::Args),
    /// Save what this machine's kernel reports about its slab caches.
    Snapshot(snapshot::Args),
    /// Predict a real kernel's slab memory under other settings, from a snapshot of it.
    WhatIf(what_if::Args),
    /// Ask one question of many snapshots or recordings, under many settings; rows go to Parquet.
    Sweep(sweep::Args),
    /// Slab size, order, objects per slab and limits of a cache; or the page allocator's sizes.
    Geometry(geometry::Args),
    /// List or show the machines whose time can be simulated, with sources of all costs.
    Machines(machines::Args),
    /// Measure this computer, and describe it as a machine whose time can be simulated.
    Calibrate(calibrate::Args),
    /// List the tunables: name, scope, range, default and meaning.
    Tunables(tunables::Args),
    /// Print completions for a shell.
    Completions(packaging::CompletionsArgs),
    /// Write man pages into a folder.
    Man(packaging::ManArgs),
}

/// Commands by what a person wants; that of a group to begin with is its first.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "See where memory goes",
        &["look", "top", "callers", "info", "explain"],
    ),
    ("Record", &["record", "snapshot", "import", "filter"]),
    ("Predict", &["what-if", "replay", "geometry"]),
    ("Simulate", &["run", "reproduce", "machines", "calibrate"]),
    ("Many at once", &["sweep", "report", "diff"]),
    ("Tools", &["tunables", "completions", "man"]),
];

/// The command with its help: clap has no groups of subcommands.
fn command() -> clap::Command {
    let command = with_negative_numbers(Cli::command());
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        groups += &format!("{heading}:\n");
        for name in names {
            let found = command.find_subcommand(name);
            let about = found.and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            // Indented as the names are wide, which then take the place of the first line's indent.
            let about = terminal::wrap(&format!("{:15}{about}", ""));
            groups += &format!("  {name:<11}  {}\n", about.trim_start());
        }
        groups += "\n";
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

/// Reads the arguments. `-1` behind an option is its value, which the option's own error is about.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Cli {
    let matches = command().get_matches_from(arguments);
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_action().takes_values() {
        true if !arg.is_allow_hyphen_values_set() => arg.allow_negative_numbers(true),
        _ => arg,
    });
    command.mut_subcommands(with_negative_numbers)
}

/// The text of a view: what the command prints.
#[must_use]
pub fn text(view: &quarry_view::View) -> String {
    let text = terminal::text(view, terminal::Show::default());
    let lines = text.trim_end().lines();
    let lines = lines.map(|line| terminal::visible(line.trim_end()));
    lines.collect::<Vec<_>>().join("\n")
}

/// The answer of a sweep's rows: what the command says of them when it ends.
///
/// # Errors
///
/// If the rows have no figure that settings are judged by.
pub fn swept(rows: quarry_sweep::table::Table) -> anyhow::Result<quarry_view::View> {
    commands::report::sweep::summary(rows)
}

/// The file with this code: a program, or a library.
static FILE: OnceLock<PathBuf> = OnceLock::new();

/// Runs the command with these arguments, its name first, and gives the exit code. `file` has the code that
/// runs. Help and wrong options end the process.
pub fn run(arguments: impl IntoIterator<Item = OsString>, file: Option<PathBuf>) -> u8 {
    // What a reader of another library says of a damaged file; the error follows.
    quarry_trace::hush_guarded();
    if let Some(file) = file {
        // A process runs one command: the first file stays.
        let _ = FILE.set(file);
    }
    let command = parse(arguments).command;
    // A signal ends a recording, and keeps it; reproduce and run print what they have, and write no other outputs.
    if !matches!(
        command,
        Command::Record(_) | Command::Reproduce(_) | Command::Run(_)
    ) {
        signals::remove_outputs_first();
    }
    let result = match command {
        Command::Record(args) => record::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Look(args) => look::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Callers(args) => callers::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Filter(args) => filter::run(&args),
        Command::Snapshot(args) => snapshot::run(&args),
        Command::WhatIf(args) => what_if::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Geometry(args) => geometry::run(&args),
        Command::Machines(args) => machines::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Tunables(args) => tunables::run(&args),
        Command::Completions(args) => packaging::completions(&args, Cli::command()),
        Command::Man(args) => packaging::man(&args, Cli::command()),
    };
    error::exit_code(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let mut listed: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| names.iter().copied())
            .collect();
        let command = Cli::command();
        let mut known: Vec<&str> = command
            .get_subcommands()
            .map(clap::Command::get_name)
            .collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
    }
}
