//! `quarry run rx`: a network receiver.

pub(crate) mod study;

use quarry_ask::Asked;
use quarry_lab::ask::{Answers as _, Ready, Rx};

use crate::commands::experiment;
use crate::commands::sensitivity::Timed;
use crate::commands::several::Kept;
use crate::jobs::JobsArgs;
use crate::{output, question, terminal};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    asked: Asked<Rx>,
    #[command(flatten)]
    pub(crate) jobs: JobsArgs,
    /// Run all again with the machine's constants elsewhere in their ranges, and say which results of
    /// the thread come out in all runs. It takes about 100 times as long.
    #[arg(long, conflicts_with = "draw")]
    pub(crate) sensitivity: bool,
    #[command(flatten)]
    out: experiment::OutArgs,
}

const EXAMPLES: &str = "\
Drivers (numbers as in the thread \"Page allocator bottleneck\", linux-mm, September 2017):
  small    #1: as many packets per page as fit (two at MTU 1500), no page cache
  none     #2: one packet per page, no page cache
  huge     #3: one packet per page, a huge page cache (--cache-entries)
  pool     one packet per page, page pool: readers give pages back to the ring
  shipped  as many packets per page as fit, page cache of 256 entries: the
           driver as it was, which the thread switched off

What is modelled:
  Packets are offered at 100 Gbit/s. Each ring takes 64 packets a poll and then
  refills. A stream sends as many packets at a time as GRO merges (64 KiB); its
  reader sleeps until they are there, copies and frees them. A packet's time
  beside memory is the one figure taken from the thread: that of driver #1 with
  one ring. Packets not taken found no buffer: TCP would send less.
  docs/time.md says what is simulated and how; docs/rx.md has the sources of the
  parameters and explains every column and every field of --json.

Exit codes:
  0 done; 1 failed; 2 wrong usage; 3 the memory of a virtual machine was exhausted

Examples:
  quarry run rx
  quarry run rx --rings 1,2,3,4,6,8,12,16 --packets 300000
  quarry run rx --driver none,pool --era 4.13,6.18 --rings 4,8
  quarry run rx --driver none --rings 8 --json | jq '.runs[].causes'
  quarry run rx --sensitivity --driver small,none --rings 1,6,16
  quarry run rx --driver none --consumer spread --rings 1,16
  quarry run rx --page-size 4k,64k --driver small --rings 4
  quarry run rx --mtu 9000 --driver none --era 4.13,6.1 --rings 4
  quarry run rx --json | jq '.runs[] | [.driver, .rings, .counts.pages.zone_locks]'";

/// Packets of a run of a study.
const STUDY_PACKETS: u32 = 20_000;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut asked = args.asked.clone();
    if args.sensitivity && !asked.has("packets") {
        asked.give("packets", STUDY_PACKETS);
    }
    let asked = question::of(&asked)?;
    let alone = [("--sensitivity", args.sensitivity)];
    let one = |asked: &_, kept: Kept<'_>| one(args, asked, kept);
    experiment::answer::<Timed<'_, quarry_work::rx::RxReport>, _>(
        &asked, &alone, &args.out, false, one,
    )
}

/// Answers one question.
fn one(args: &Args, asked: &Rx, kept: Kept<'_>) -> anyhow::Result<()> {
    let (machine, runs) = asked.runs()?;
    output::note_eras(runs.iter().map(|run| run.rx.era));
    output::note_cpus(&machine, runs.iter().map(|run| run.rx.cpus));
    let bar = terminal::progress_bar("rx", asked.steps(&Ready::Nothing)?, "packets");
    let reports = quarry_work::run_all(&runs, args.jobs.jobs(), |run| {
        quarry_work::rx::run(run, &|packets| bar.inc(packets))
    });
    bar.finish_and_clear();
    let reports = reports?;
    let study = match args.sensitivity {
        true => Some(study::explore(
            (&machine, asked.clock.seed.or(1), args.jobs.jobs()),
            &runs,
            &reports,
        )?),
        false => None,
    };
    let timed = Timed {
        workload: "rx",
        settings: &output::Given::of(asked),
        runs: &reports,
        sensitivity: study.as_ref(),
    };
    let notes = machine.about.clone();
    experiment::print("rx", &timed, notes, &args.out, false, kept)
}
