//! `quarry reproduce`: published measurements, run again.

use std::hash::{DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::Context;
use quarry_reproduce::{
    Claim, Judged, Kept, Mode, Origin, Plan, Progress, ReproduceError, Row, Table, Verdict, find,
    judge,
};
use serde::Serialize;

use crate::machine_args::JobsArgs;
use crate::{error, output, reproduce_html, signals};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Which thread: tbench-2007, slubq-2010, pages64k-2020, wakeup-2007, rx-2017, all.
    #[arg(value_name = "THREAD", default_value = "all")]
    thread: String,
    /// Short loads and few draws of the constants: under two minutes on two cores.
    #[arg(long)]
    quick: bool,
    /// Keep results in a file, and take from it what was found before: an interrupted run goes on.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Write a page with plots and tables, which needs no network; - for stdout.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON: one object (docs/json.md).
    #[arg(long)]
    json: bool,
    /// Print the tables, too, not the claims alone.
    #[arg(long)]
    tables: bool,
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
are, with all of them drawn at random from their ranges, and with other seeds;
it fails if it is on one side of the range in all. Without --quick there are 32 draws, and it takes hours.

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
/// Exit code after an interrupt, as of shells.
const INTERRUPTED: u8 = 130;

/// The fields of `--json`.
#[derive(Serialize)]
struct Document<'a> {
    mode: &'static str,
    seed: u64,
    draws: u32,
    seeds: u32,
    /// Whether all experiments ran.
    complete: bool,
    threads: &'a [Judged],
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let threads = find(&args.thread).map_err(|error| match error {
        ReproduceError::Thread { .. } => error::usage(error.to_string()),
        other => other.into(),
    })?;
    if let Some(path) = &args.html {
        check_html(path, args.json)?;
    }
    let mode = if args.quick { Mode::Quick } else { Mode::Full };
    let plan = Plan::new(threads, mode, args.seed);
    let mut kept = match &args.keep {
        Some(path) => Kept::open(path, &build())?,
        None => Kept::nothing(),
    };
    if !kept.is_empty() {
        output::note(&format!("{} results were kept before", kept.len()));
    }
    let stop = signals::ask_to_stop(|| {
        output::note("runs under way go on to their end; another interrupt ends them at once");
    });
    let stop = stop.context("cannot set up signal handlers")?;
    // Runs differ in length, so it counts the time that they are expected to take.
    let bar = output::progress_bar("reproduce", 0, "seconds of a core");
    let show = |at: Progress| {
        bar.set_length(at.all_seconds as u64);
        bar.set_position(at.seconds as u64);
    };
    let results = plan.run(args.jobs.jobs(), &mut kept, &stop, &show);
    bar.finish_and_clear();
    let results = results?;
    let judged: Vec<Judged> = plan
        .threads()
        .iter()
        .zip(&results)
        .map(|(thread, results)| judge(thread, mode, results))
        .collect();
    let [done, due] = runs(&judged);
    // An interrupt that came after the last run has cut nothing off.
    let interrupted = done < due && stop.load(Ordering::Relaxed);
    if let Some(path) = &args.html {
        let page = reproduce_html::page(mode, args.seed, &judged)?;
        output::write_to(path, &page)?;
    }
    let to_stdout = args.html.as_deref().is_some_and(output::is_stdout);
    if args.json {
        let (draws, seeds) = mode.arms();
        output::print_json(
            "reproduce",
            &Document {
                mode: mode.name(),
                seed: args.seed,
                draws,
                seeds,
                complete: done == due,
                threads: &judged,
            },
        )?;
    } else if !to_stdout {
        output::print_text(&text(args, mode, &judged))?;
    }
    ended(args.keep.as_deref(), interrupted, &judged)
}

/// Runs that ended, and all that are due.
pub(crate) fn runs(judged: &[Judged]) -> [usize; 2] {
    let all = judged.iter().map(|thread| thread.runs);
    all.fold([0, 0], |[done, due], [more, more_due]| {
        [done + more, due + more_due]
    })
}

/// Names this build: its version, and a hash of its file, which tells builds of one version apart.
fn build() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let file = std::env::current_exe().and_then(std::fs::read);
    match file {
        Ok(bytes) => {
            let mut hasher = DefaultHasher::new();
            hasher.write(&bytes);
            format!("{version} {:016x}", hasher.finish())
        }
        Err(_) => version.to_string(),
    }
}

/// How the command ends.
fn ended(keep: Option<&Path>, interrupted: bool, judged: &[Judged]) -> anyhow::Result<()> {
    if interrupted {
        let message = match keep {
            Some(path) => format!(
                "interrupted; results are kept in {}: the same command goes on",
                path.display()
            ),
            None => "interrupted; with --keep FILE the same command would go on".to_string(),
        };
        return Err(error::with_code(INTERRUPTED, message));
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

/// Refuses a page that cannot be written, before hours of work.
fn check_html(path: &Path, json: bool) -> anyhow::Result<()> {
    if output::is_stdout(path) {
        return match json {
            true => Err(error::usage(
                "--html - and --json both write to stdout; name a file for the page".to_string(),
            )),
            false => Ok(()),
        };
    }
    let existed = path.exists();
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    if !existed {
        // Only to see whether it can be made.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// How many claims hold: "21 claims hold, 4 undecided, 18 fail, 2 not run".
fn counts(judged: &[Judged]) -> String {
    let words = Verdict::ALL.into_iter().filter_map(|verdict| {
        let claims = judged.iter().flat_map(|thread| &thread.claims);
        let count = claims.filter(|claim| claim.verdict == verdict).count();
        match verdict {
            Verdict::Holds => Some(format!("{count} claims hold")),
            Verdict::Fails => Some(format!("{count} fail")),
            Verdict::Incomplete if count == 0 => None,
            _ => Some(format!("{count} {}", verdict.name())),
        }
    });
    words.collect::<Vec<_>>().join(", ")
}

/// What was repeated: "2 draws of all constants, 1 other seed".
pub(crate) fn arms(mode: Mode) -> String {
    let (draws, seeds) = mode.arms();
    let more = if seeds == 1 { "" } else { "s" };
    format!("{draws} draws of all constants, {seeds} other seed{more}")
}

/// Says of an interrupted run how far it came.
pub(crate) fn interruption(judged: &[Judged]) -> Option<String> {
    let [done, due] = runs(judged);
    (done < due).then(|| {
        format!(
            "interrupted: {done} of {due} runs; a claim whose runs have not all ended is incomplete"
        )
    })
}

/// A claim's verdict, with what it was before if it is lost, or how much of it ran.
pub(crate) fn verdict(claim: &Claim) -> String {
    let name = claim.verdict.name();
    match claim.verdict {
        Verdict::Incomplete => format!("{name}, {} of {} arms", claim.true_arms[1], claim.due_arms),
        _ if claim.is_lost() => format!("{name} (held)"),
        _ => name.to_string(),
    }
}

/// How many claims hold, then each thread's, and its tables if asked for.
fn text(args: &Args, mode: Mode, judged: &[Judged]) -> String {
    let mut text = format!(
        "{} ({} mode: {})\n",
        counts(judged),
        mode.name(),
        arms(mode)
    );
    if let Some(interruption) = interruption(judged) {
        text += &format!("{interruption}\n");
    }
    for thread in judged {
        text += &format!(
            "\n{}\n{}\n{}\n",
            thread.thread,
            thread.title,
            claims(thread)
        );
        for cause in causes(thread) {
            text += &format!("\n{}\n", output::wrap(&cause));
        }
        if args.tables {
            for table in &thread.tables {
                text += &format!("\n{}\n{}{}\n", table.title, origin(table), rows(table));
            }
        }
    }
    text
}

/// On which machine a table is simulated, and which command does such runs.
fn origin(table: &Table) -> String {
    let Origin { machine, command } = &table.origin;
    let lines = [("on", machine), ("runs like these:", command)];
    let lines = lines.iter().filter(|(_, what)| !what.is_empty());
    lines
        .map(|(word, what)| output::wrap(&format!(" {word} {what}")) + "\n")
        .collect()
}

/// Why claims do not hold, each cause with its claims.
fn causes(thread: &Judged) -> Vec<String> {
    let claims = thread.claims.iter();
    let with_cause = claims.filter(|claim| !claim.cause.is_empty());
    let by_cause = output::grouped(with_cause.map(|claim| (claim.cause, claim.id)));
    by_cause
        .iter()
        .map(|(cause, ids)| format!("{}: {cause}", ids.join(", ")))
        .collect()
}

/// A row for each claim.
fn claims(thread: &Judged) -> impl std::fmt::Display {
    let header = ["claim", "published", "measured", "band", "verdict"];
    let mut table = output::table(&header, &[1, 4]);
    for claim in &thread.claims {
        let measured = claim.measured.map_or("-".to_string(), number);
        table.add_row([
            claim.claim.to_string(),
            claim.published.to_string(),
            measured,
            band(claim.band),
            verdict(claim),
        ]);
    }
    table
}

/// A table of a thread.
fn rows(table: &Table) -> output::Grid {
    let header = [table.unit, "published", "measured", "band", "ratio"];
    let mut grid = output::grid(&header, &[]);
    for row in &table.rows {
        let label = std::iter::once(row.label.clone());
        grid.add_row(label.chain(cells(table, row)));
    }
    grid
}

/// Of a row what was published, measured, its band, and how many times the published number was measured.
pub(crate) fn cells(table: &Table, row: &Row) -> [String; 4] {
    let ratio = row.published.zip(row.measured);
    let ratio = ratio.filter(|_| !table.unit.starts_with('%'));
    [
        row.published.map_or("-".to_string(), number),
        row.measured.map_or("-".to_string(), number),
        band(row.band),
        ratio.map_or("-".to_string(), |(published, measured)| {
            format!("{:.2}", measured / published)
        }),
    ]
}

/// Three digits or more.
pub(crate) fn number(value: f64) -> String {
    // What rounds to nothing has no sign.
    let value = if value.abs() < 0.005 { 0.0 } else { value };
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

pub(crate) fn band(band: Option<[f64; 2]>) -> String {
    match band {
        Some([low, high]) if low < high => format!("{} to {}", number(low), number(high)),
        _ => "-".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use quarry_reproduce::Results;

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
        assert_eq!(code(Holds, Fails, false), ExitCode::from(3));
        assert_eq!(code(Holds, Fails, true), ExitCode::from(130));
        for (before, verdict) in [
            (Holds, Holds),
            (Holds, Undecided),
            (Holds, Incomplete),
            (Fails, Fails),
        ] {
            assert_eq!(code(before, verdict, false), ExitCode::SUCCESS);
        }
    }

    #[test]
    fn an_interrupted_run_says_how_far_it_came() {
        let claims = vec![claim(Verdict::Holds, Verdict::Incomplete)];
        let all = [judged(claims, [3, 8])];
        assert_eq!(
            counts(&all),
            "0 claims hold, 0 undecided, 0 fail, 1 incomplete, 0 not run"
        );
        let words = interruption(&all).unwrap();
        assert!(words.starts_with("interrupted: 3 of 8 runs"), "{words}");
        assert_eq!(verdict(&all[0].claims[0]), "incomplete, 1 of 4 arms");
        assert_eq!(interruption(&[judged(Vec::new(), [8, 8])]), None);
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

    #[test]
    fn nothing_has_no_sign() {
        assert_eq!(number(-0.001), "0.00");
        assert_eq!(number(-0.006), "-0.01");
        assert_eq!(number(1234.4), "1234");
    }
}
