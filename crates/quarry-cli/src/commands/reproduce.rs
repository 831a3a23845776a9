//! `quarry reproduce`: published measurements, run again.

use std::hash::{DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use quarry_reproduce::{Judged, Kept, Mode, Plan, Progress, ReproduceError, find, judge};
use schemars::JsonSchema;
use serde::Serialize;

use crate::jobs::JobsArgs;
use crate::terminal::{self, Show};
use crate::{error, output, signals};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Thread: tbench-2007, slubq-2010, pages64k-2020, wakeup-2007, rx-2017, all.
    #[arg(value_name = "THREAD", default_value = "all")]
    thread: String,
    /// Short loads and few draws of the constants: under three minutes on two cores.
    #[arg(long)]
    quick: bool,
    /// Keep results in a file, and take from it what was found before: an interrupted run goes on.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    page: output::PageArgs,
    /// Print JSON: one object (quarry explain --all).
    #[arg(long)]
    json: bool,
    /// Print the tables, too, not the claims alone.
    #[arg(long)]
    tables: bool,
    /// Begin loads on empty heaps, not on those of kernels that have run: the difference is what these decide.
    #[arg(long)]
    empty: bool,
    /// Decides what is left to chance.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    jobs: JobsArgs,
}

const EXAMPLES: &str = "\
Threads:
  tbench-2007    tbench on SLAB, SLUB and SLOB: a buffer larger than a page
  slubq-2010     SLUB with queues: hackbench and TCP_RR
  pages64k-2020  slab memory with 64 KiB pages
  wakeup-2007    tbench and the order of wake-ups
  rx-2017        the page allocator under a network receiver

A claim holds if its figure is in its range with the machine's constants as they
are, with all of them drawn at random from their ranges, with other seeds, and
with other states of the heap; it fails if it is on one side of the range in all.
Runs end where the verdict is found: after nine on one side no other one helps.
Loads begin on the heaps of real kernels that have run (quarry run --booted).
Without --quick there are 32 draws, and single changes are tried of what does not
hold: which one would make it hold. It takes under 40 minutes of two cores.

Exit codes:
  0 done; 1 failed; 2 wrong usage; 3 a claim that held before fails;
  130 interrupted: what was found is printed, and kept with --keep; claims
      whose runs have not all ended have no verdict

Examples:
  quarry reproduce tbench-2007 --quick
  quarry reproduce all --quick --html threads.html
  quarry reproduce slubq-2010 --keep slubq.jsonl
  quarry reproduce all --quick --json | jq '.threads[].claims[] | [.id, .verdict]'";

/// Exit code if a claim is lost.
const LOST: u8 = 3;

/// Fields of `reproduce --json`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Document<'a> {
    /// `quick` or `full`.
    mode: &'static str,
    /// `--seed`: decides all that is left to chance.
    seed: u64,
    /// Draws of all constants per experiment.
    draws: u32,
    /// Other seeds per experiment.
    seeds: u32,
    /// Other states of the heap per experiment; 0 with `--empty`.
    states: u32,
    /// False after an interrupt: not all experiments ran.
    complete: bool,
    /// Threads with their claims.
    threads: &'a [Judged],
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let threads = find(&args.thread).map_err(|error| match error {
        ReproduceError::Thread { .. } => error::usage(error.to_string()),
        other => other.into(),
    })?;
    args.page.check(args.json)?;
    let mode = if args.quick { Mode::Quick } else { Mode::Full };
    let plan = Plan::new(threads, mode, args.seed);
    let plan = if args.empty {
        plan.on_empty_heaps()
    } else {
        plan
    };
    let mut kept = match &args.keep {
        Some(path) => Kept::open(path, &build())?,
        None => Kept::nothing(),
    };
    if !kept.is_empty() {
        terminal::note(&format!("{} results were kept before", kept.len()));
    }
    let stop = signals::stop_between_runs()?;
    // Runs differ in length, so it counts the time that they are expected to take.
    let bar = terminal::progress_bar("reproduce", 0, "seconds of a core");
    let show = |at: Progress| {
        bar.set_length(at.all_seconds as u64);
        bar.set_position(at.seconds as u64);
    };
    let results = plan.run(args.jobs.jobs(), &mut kept, &stop, &show);
    bar.finish_and_clear();
    let results = results.map_err(|error| error::not_exhausted(error.into()))?;
    let judged: Vec<Judged> = plan
        .threads()
        .iter()
        .zip(&results)
        .map(|(thread, results)| judge(thread, mode, results))
        .collect();
    let sum = |at: usize| judged.iter().map(|thread| thread.runs[at]).sum::<usize>();
    let [done, due] = [sum(0), sum(1)];
    // An interrupt that came after the last run has cut nothing off.
    let interrupted = done < due && stop.load(Ordering::Relaxed);
    let [draws, seeds, states] = plan.arms();
    let document = Document {
        mode: mode.name(),
        seed: args.seed,
        draws,
        seeds,
        states,
        complete: done == due,
        threads: &judged,
    };
    let mut view = output::viewed("reproduce", &document, quarry_reproduce::view, &args.page)?;
    if args.json {
        output::print_json("reproduce", &document)?;
    } else if !args.page.is_stdout() {
        view.sections
            .retain(|section| args.tables || !section.id.ends_with(quarry_reproduce::FIGURES));
        terminal::print_view(&view, Show::default())?;
    }
    ended(args.keep.as_deref(), interrupted, &judged)
}

/// Names this build: its version, and a hash of its file, which tells builds of one version apart.
fn build() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let file = crate::FILE.get().and_then(|file| std::fs::read(file).ok());
    match file {
        Some(bytes) => {
            let mut hasher = DefaultHasher::new();
            hasher.write(&bytes);
            format!("{version} {:016x}", hasher.finish())
        }
        None => version.to_string(),
    }
}

/// Exit of the command.
fn ended(keep: Option<&Path>, interrupted: bool, judged: &[Judged]) -> anyhow::Result<()> {
    if interrupted {
        let message = match keep {
            Some(path) => format!(
                "interrupted; results are kept in {}: the same command goes on",
                path.display()
            ),
            None => "interrupted; with --keep FILE the same command would go on".to_string(),
        };
        return Err(error::interrupted(message));
    }
    let claims = judged.iter().flat_map(|thread| &thread.claims);
    let lost: Vec<&str> = claims
        .filter(|claim| claim.is_lost())
        .map(|claim| claim.id)
        .collect();
    match lost.as_slice() {
        [] => Ok(()),
        some => Err(error::with_code(
            LOST,
            format!("claims that held before fail: {}", some.join(", ")),
        )),
    }
}

#[cfg(test)]
mod tests {
    use quarry_reproduce::{Claim, Results, Verdict};

    use super::*;

    fn claim(before: Verdict, verdict: Verdict) -> Claim {
        Claim {
            id: "one",
            claim: "",
            published: "",
            unit: "%",
            range: [0.0, 1.0],
            measured: Some(2.0),
            band: None,
            true_arms: [0, 1],
            due_arms: 4,
            verdict,
            before: Some(before),
            cause: "",
            nearest: None,
        }
    }

    fn judged(claims: Vec<Claim>, runs: [usize; 2]) -> Judged {
        Judged {
            thread: "test",
            title: "",
            question: "",
            taken: "",
            why: "",
            claims,
            tables: Vec::new(),
            plots: Vec::new(),
            runs,
        }
    }

    #[test]
    fn a_claim_that_held_and_fails_ends_with_code_3() {
        let code = |before, verdict, interrupted| {
            let all = [judged(vec![claim(before, verdict)], [1, 1])];
            error::exit_code(ended(None, interrupted, &all))
        };
        use Verdict::{Fails, Holds, Incomplete, Undecided};
        assert_eq!(code(Holds, Fails, false), 3);
        assert_eq!(code(Holds, Fails, true), 130);
        for (before, verdict) in [
            (Holds, Holds),
            (Holds, Undecided),
            (Holds, Incomplete),
            (Fails, Fails),
        ] {
            assert_eq!(code(before, verdict, false), 0);
        }
    }

    #[test]
    fn commands_beside_tables_and_plots_can_be_run() {
        use clap::CommandFactory;
        for thread in &quarry_reproduce::THREADS {
            let judged = judge(thread, Mode::Quick, &Results::default());
            let tables = judged.tables.iter().map(|table| &table.origin);
            let origins = tables.chain(judged.plots.iter().map(|plot| &plot.origin));
            for origin in origins.filter(|origin| !origin.command.is_empty()) {
                let words = origin.command.split_whitespace();
                let parsed = crate::Cli::command().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{}: {:?}", origin.command, parsed.err());
            }
        }
    }
}
