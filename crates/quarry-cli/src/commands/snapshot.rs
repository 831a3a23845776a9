//! `quarry snapshot`: what this machine's kernel says about its slab caches.

use std::path::PathBuf;

use quarry_snapshot::Snapshot;

use crate::output;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// File to write; `-` for stdout.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    force: output::Force,
}

const EXAMPLES: &str = "\
What is in it: JSON with slabinfo (rows, and the text), sysfs_slab (cache, then
file, then value: every readable file of /sys/kernel/slab), sysfs_aliases,
page_size, cpu_possible, cpu_present, cpu_online, node_online, kernel_release,
cmdline, meminfo, sysctls of the page allocator, boot_id, and its moment
(unix_time_s, monotonic_ns). Nothing of it names a process or a file of the
machine but the kernel's command line. With drgn, contrib/quarry_snapshot.py
writes the same, and the free objects that CPUs hold, which no file of the
kernel has.

Exit codes:
  0 done; 1 the kernel does not let us read (run as root), or FILE cannot be
  written; 2 wrong usage, or FILE exists

Examples:
  sudo quarry snapshot -o now.json
  sudo quarry snapshot -o - | gzip > now.json.gz
  quarry what-if now.json --page-size 64k";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    output::check_writable(&args.output, args.force)?;
    let snapshot = Snapshot::take()?;
    if output::is_stdout(&args.output) {
        return output::print_value(&snapshot);
    }
    output::write_to(&args.output, format!("{snapshot}\n"), args.force)
}
