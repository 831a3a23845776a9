//! `quarry calibrate`: this computer as a machine whose time can be simulated.

use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use quarry_calibrate::{Effort, STEPS, calibrate};
use quarry_machines::Machine;

use crate::commands::machines;
use crate::error::usage;
use crate::output;
use crate::terminal::{self, Show};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The machine file to write, such as mine.toml; `-` for stdout.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    force: output::Force,
    /// Measure for a moment only: ranges are wider, and caches larger than 8 MiB count as 8 MiB.
    #[arg(long)]
    quick: bool,
    /// Print the machine as JSON (quarry explain --all), not as a table.
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

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let to_stdout = output::is_stdout(&args.output);
    if to_stdout && args.json {
        return Err(usage(
            "stdout has the machine file: give --json or -o -, not both",
        ));
    }
    if !to_stdout {
        check_name(&args.output)?;
        output::check_writable(&args.output, args.force)?;
    }
    let effort = match args.quick {
        true => Effort::Quick,
        false => Effort::Full,
    };
    let template = "calibrate [{bar:30}] {pos} of {len}: {msg}";
    let bar = terminal::on_terminal(ProgressBar::new(STEPS as u64), template);
    let stem = args.output.file_stem().and_then(|stem| stem.to_str());
    let name = stem.filter(|_| !to_stdout).unwrap_or("machine");
    let machine = calibrate(name, effort, &mut |step| {
        bar.inc(1);
        bar.set_message(step.to_string());
    });
    bar.finish_and_clear();
    let machine = machine?;
    let text = machine.to_text();
    output::write_to(&args.output, &text, args.force)?;
    match to_stdout {
        true => Ok(()),
        false => show(&machine, args.json),
    }
}

fn show(machine: &Machine, json: bool) -> anyhow::Result<()> {
    match json {
        true => machines::print_json("calibrate", std::slice::from_ref(machine)),
        false => terminal::print_view(&machines::view(machine)?, Show::default()),
    }
}

/// Refuses a name that `--machine` would not take for a file's.
fn check_name(path: &Path) -> anyhow::Result<()> {
    match path
        .extension()
        .is_some_and(|extension| extension == "toml")
    {
        true => Ok(()),
        false => Err(usage(format!(
            "{}: the name of a machine file ends with .toml, as --machine knows it by that",
            path.display()
        ))),
    }
}
