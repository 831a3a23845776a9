//! `quarry run`: workloads.

use clap::Subcommand;

use crate::{micro, output, pages, rx};

/// Arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    workload: Option<Workload>,
}

#[derive(Subcommand)]
enum Workload {
    /// A network receiver: what pages cost by driver and number of receive rings.
    Rx(rx::Args),
    /// Micro-benchmarks of kernel developers, in simulated time.
    Micro(micro::Args),
    /// Processes that fault and exit: pages of order 0, in simulated time.
    Pages(pages::Args),
}

const WORKLOADS: &str = "\
Workloads:
  rx     a network receiver: what pages cost by driver and number of rings
  micro  micro-benchmarks of kernel developers, in simulated time
  pages  processes that fault and exit: pages of order 0, in simulated time

`quarry run WORKLOAD --help` tells more.
";

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.workload {
        Some(Workload::Rx(args)) => rx::run(args),
        Some(Workload::Micro(args)) => micro::run(args),
        Some(Workload::Pages(args)) => pages::run(args),
        None => output::print_text(WORKLOADS),
    }
}
