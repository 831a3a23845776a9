//! `quarry run`: workloads, and programs of this computer.

use clap::Subcommand;

use crate::commands::{loads, micro, pages, preload, rx};
use crate::{error, terminal};

/// Arguments.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = preload::EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    workload: Option<Workload>,
    #[command(flatten)]
    preload: preload::Args,
}

#[derive(Subcommand)]
enum Workload {
    /// A network receiver: what pages cost by driver and number of receive rings.
    Rx(rx::Args),
    /// Micro-benchmarks of kernel developers, in simulated time.
    Micro(micro::Args),
    /// Processes that fault and exit: pages of order 0, in simulated time.
    Pages(pages::Args),
    /// hackbench: groups of tasks that write to each other, in simulated time.
    Hackbench(loads::HackbenchArgs),
    /// tbench: dbench's requests over TCP on loopback, in simulated time.
    Tbench(loads::TbenchArgs),
    /// netperf's TCP_RR: a byte to and fro, in simulated time.
    #[command(name = "tcp_rr")]
    TcpRr(loads::TcpRrArgs),
    /// will-it-scale: processes that touch memory, or open files, in simulated time.
    WillItScale(loads::WillItScaleArgs),
}

const WORKLOADS: &str = "\
Workloads:
  hackbench      groups of tasks that write to each other, in simulated time
  tbench         dbench's requests over TCP on loopback, in simulated time
  tcp_rr         netperf's TCP_RR: a byte to and fro, in simulated time
  will-it-scale  processes that touch memory, or open files, in simulated time
  rx             a network receiver: what pages cost by driver and rings
  micro          micro-benchmarks of kernel developers, in simulated time
  pages          processes that fault and exit, in simulated time

`quarry run WORKLOAD --help` tells more. `quarry run --preload -- PROGRAM` runs a
program of this computer on the designs.
";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.workload {
        Some(Workload::Rx(args)) => rx::run(args),
        Some(Workload::Micro(args)) => micro::run(args),
        Some(Workload::Pages(args)) => pages::run(args),
        Some(Workload::Hackbench(args)) => args.run(),
        Some(Workload::Tbench(args)) => args.run(),
        Some(Workload::TcpRr(args)) => args.run(),
        Some(Workload::WillItScale(args)) => args.run(),
        None if args.preload.preload => preload::run(&args.preload),
        None => match args.preload.program.first() {
            None => terminal::print_text(WORKLOADS),
            Some(name) => {
                let names = WORKLOADS.lines().filter_map(|line| line.strip_prefix("  "));
                let names = names.filter_map(|line| line.split_whitespace().next());
                Err(error::usage(format!(
                    "there is no workload {name:?}; there are {}; a program runs by `quarry run --preload -- PROGRAM`",
                    names.collect::<Vec<_>>().join(", ")
                )))
            }
        },
    }
}
