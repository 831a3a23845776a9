//! `quarry calibrate`: this computer as a machine whose time can be simulated.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use indicatif::ProgressBar;
use quarry_calibrate::{Effort, STEPS, calibrate};
use quarry_machines::Machine;

use crate::error::usage;
use crate::{machines, output};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The machine file to write, such as mine.toml, which must not exist yet; `-` for stdout.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Measure for a moment only: ranges are wider, and caches larger than 8 MiB count as 8 MiB.
    #[arg(long)]
    quick: bool,
    /// Print the machine as JSON (docs/json.md), not as a table.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Measured: the core's clock, loads from each cache and from memory, lines that
move between CPUs, locked additions, loads at a time, fills and copies, a system
call, a switch and a wake-up. What no process can measure is taken over from
the bundled machine that is nearest by maker and age, and is marked ?.

Let the computer do nothing else meanwhile. In a virtual machine the figures are
those of the moment: neighbours share caches and cores.

Exit codes:
  0 done; 1 the kernel does not describe CPUs and caches, threads cannot choose
  their CPU, or FILE cannot be written; 2 wrong usage: FILE exists

Examples:
  quarry calibrate -o mine.toml
  quarry machines ./mine.toml
  quarry run micro --machine ./mine.toml --cpus 2";

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let to_stdout = output::is_stdout(&args.output);
    if to_stdout && args.json {
        return Err(usage(
            "stdout has the machine file: give --json or -o -, not both",
        ));
    }
    if !to_stdout {
        check_file(&args.output)?;
    }
    let effort = match args.quick {
        true => Effort::Quick,
        false => Effort::Full,
    };
    let template = "calibrate [{bar:30}] {pos} of {len}: {msg}";
    let bar = output::on_terminal(ProgressBar::new(STEPS as u64), template);
    let stem = args.output.file_stem().and_then(|stem| stem.to_str());
    let name = stem.filter(|_| !to_stdout).unwrap_or("machine");
    let machine = calibrate(name, effort, &mut |step| {
        bar.inc(1);
        bar.set_message(step.to_string());
    });
    bar.finish_and_clear();
    let machine = machine?;
    let text = machine.to_text();
    if to_stdout {
        return output::print(|out| out.write_all(text.as_bytes()));
    }
    write_new(&args.output, &text)?;
    show(&machine, args.json)
}

fn show(machine: &Machine, json: bool) -> anyhow::Result<()> {
    match json {
        true => machines::print_json("calibrate", std::slice::from_ref(machine)),
        false => output::print_text(&machines::one(machine)),
    }
}

/// Finds out before the measurement what would be in the way after it.
fn check_file(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    if path.symlink_metadata().is_ok() {
        return Err(usage(format!(
            "{shown} exists: remove it, or choose another name"
        )));
    }
    if path.extension().is_none_or(|extension| extension != "toml") {
        return Err(usage(format!(
            "{shown}: the name of a machine file ends with .toml, as --machine knows it by that"
        )));
    }
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let made = tempfile::tempfile_in(folder.unwrap_or(Path::new(".")));
    made.map(|_| ())
        .with_context(|| format!("cannot write {shown}"))
}

fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let file = std::fs::File::create_new(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}
