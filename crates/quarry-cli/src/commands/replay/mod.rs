//! `quarry replay`: recorded allocations on other designs.

pub(crate) mod args;
pub(crate) mod study;

use std::num::NonZeroUsize;

use quarry_ask::outer;
use quarry_core::page::MAX_ORDER;
use quarry_designs::Setting;
use quarry_lab::ask::{MEMORY_BYTES, Replay, Start};
use quarry_lab::bundled::BUNDLED;
use quarry_lab::callers::{By, Caller, Callers};
use quarry_lab::plan::Axes;
use quarry_lab::replay::input::Input;
use quarry_lab::replay::lists;
use quarry_lab::replay::notes;
use quarry_lab::replay::pages::{PageEvents, PageMode};
use quarry_lab::replay::timed::report::TimedReport;
use quarry_lab::replay::timed::{self, Pace, Timing};
use quarry_lab::{Plan, RunReport};
use quarry_view::frame::Frame;
use quarry_view::frame::schema::meanings;
use quarry_view::{Doc, View};
use schemars::JsonSchema;
use serde::Serialize;

pub(crate) use crate::commands::replay::args::Args;
use crate::commands::sensitivity;
use crate::commands::several::{self, Kept};
use crate::commands::trace_info::TraceInfo;
use crate::terminal::{self, Show};
use crate::{error, input, output};

/// Fields of `replay --json`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Report<'a, R> {
    /// The recording.
    trace: TraceInfo<'a>,
    /// Settings in force, defaults filled in.
    settings: Settings<'a>,
    /// Result in sentences.
    finding: String,
    /// Runs: one for each design, page size and number of CPUs, in this order.
    runs: &'a [R],
    /// Callers of the recorded allocations, with `--callers`, that with most bytes alive at the peak first.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    callers: &'a [Caller],
    /// Results of `--sensitivity`; left out without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    sensitivity: Option<&'a sensitivity::Report>,
}

/// Settings besides designs, page sizes and numbers of CPUs, defaults filled in.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Settings<'a> {
    /// `--set`, as given.
    set: &'a [String],
    /// `--debug`; null if not given.
    debug: Option<&'a str>,
    /// `--copies`.
    copies: u32,
    /// Bytes of memory of each virtual machine.
    memory_bytes: u64,
    /// Bytes of a cache line.
    cache_line: u32,
    /// Bytes of a CPU's share of the last-level cache.
    cache_share_bytes: u64,
    /// `--pages`.
    pages: PageMode,
    /// Boot parameters and sysctls that the recorded kernel ran with; in force where the design has them and `set` does
    /// not name them.
    kernel: Vec<String>,
    /// True if runs began with what the trace's first report says that the kernel held.
    initial: bool,
    /// True with `--check`.
    check: bool,
    /// Heap of another machine on which runs began: the file that was given, or `bundled`; left out if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    heap: Option<&'a str>,
    /// Settings of `--time`; left out without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<TimeSettings>,
}

/// Settings of simulated time.
#[derive(JsonSchema, Serialize)]
struct TimeSettings {
    /// Machine whose time is simulated (`quarry machines`).
    machine: String,
    /// Times at which events happen.
    pace: Pace,
    /// `--seed`: decides all that is left to chance.
    seed: u64,
    /// `--draw`; left out if the machine's constants have their values.
    #[serde(skip_serializing_if = "Option::is_none")]
    draw: Option<u32>,
}

impl<'a> Settings<'a> {
    fn of(asked: &'a Replay, input: &Input, axes: &'a Axes, timing: Option<&Timing>) -> Self {
        let initial = input.initial.is_some() || input.zoneinfo.is_some();
        Self {
            set: asked.set.texts(),
            debug: axes.debug.as_deref(),
            copies: input.copies,
            memory_bytes: axes.memory_bytes,
            cache_line: axes.cache_line,
            cache_share_bytes: input.cache_share_bytes,
            pages: input.pages,
            kernel: axes.booted_with.iter().map(Setting::short).collect(),
            initial,
            check: asked.start.one() == Some(&Start::Check),
            heap: match asked.heap.one() {
                Some(file) => Some(file.name()),
                None => asked.booted.is_true().then_some("bundled"),
            },
            time: timing.map(|timing| TimeSettings {
                machine: timing.machine.name.clone(),
                pace: timing.pace,
                seed: timing.seed,
                draw: asked.clock.draw.one().copied(),
            }),
        }
    }

    /// Those that differ from the defaults, in a line; empty if none do.
    fn line(&self) -> String {
        let kernel = self
            .kernel
            .iter()
            .map(|set| format!("{set} (the kernel's)"));
        let asked = self.set.iter().map(|set| format!("--set {set}"));
        let mut parts: Vec<String> = kernel.chain(asked).collect();
        if self.copies > 1 {
            parts.push(format!("--copies {}", self.copies));
        }
        if self.memory_bytes != MEMORY_BYTES {
            parts.push(format!("--memory {}", self.memory_bytes));
        }
        if self.cache_line != 64 && self.time.is_none() {
            parts.push(format!("--cache-line {}", self.cache_line));
        }
        match parts.is_empty() {
            true => String::new(),
            false => format!("settings: {}\n", parts.join(" ")),
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // Refuse wrong arguments before opening the trace.
    let asked = args.question()?;
    for (cell, _) in outer(&asked) {
        cell.check()?;
    }
    args.page.check(args.json || args.csv)?;
    let default = BUNDLED.first().map_or("hackbench", |bundled| bundled.name);
    let input = input::trace(args.trace.as_deref().unwrap_or(default.as_ref()))?;
    let (view, meanings): (fn(&[Doc]) -> View, output::Meanings) = match asked.time.is_true() {
        true => (timed::view, meanings::<Report<'_, TimedReport>>),
        false => (quarry_lab::replay::view, meanings::<Report<'_, RunReport>>),
    };
    let alone = [
        ("--csv", args.csv),
        ("--inspect", args.inspect.is_some()),
        ("--sensitivity", args.sensitivity),
    ];
    several::answer(
        &asked,
        &alone,
        (args.json, &args.page),
        (view, meanings),
        (|view| asked_parts(view, args), show_of(args)),
        |asked, kept| one(args, asked, input.clone(), kept),
    )
}

/// Answers one question.
fn one(args: &Args, asked: &Replay, mut input: Input, kept: Kept<'_>) -> anyhow::Result<()> {
    let axes = asked.on(&mut input)?;
    if let Some(timing) = asked.timing()? {
        return run_timed(args, asked, &input, &axes, &timing, kept);
    }
    let meta = input.file.meta();
    let mut plan = Plan::new(&axes)?;
    plan.check_debug(&input)?;
    if let Some(dir) = &args.inspect {
        plan.inspect_into(dir, args.page.force.existing())?;
    }
    // Print the notes before the runs: they explain a run that fails.
    let notes = unheeded(args, asked, &plan, &input);
    notes.iter().for_each(|text| terminal::note(text));
    output::note_eras(plan.runs.iter().map(|run| run.design.era));
    let replays = plan.runs.len() as u64 * u64::from(input.states);
    let bar = terminal::progress_bar("replay", meta.rows * replays, "events");
    let runs = plan.execute(&input, jobs(args), &|events| bar.inc(events));
    bar.finish_and_clear();
    let mut runs = runs?;
    if args.no_timing {
        runs.iter_mut().for_each(|run| run.events_per_second = 0.0);
    }
    let callers = match args.callers {
        true => Callers::of(&input.file, false)?.by(By::Site),
        false => Vec::new(),
    };
    let settings = Settings::of(asked, &input, &axes, None);
    let notes = notes::replayed(&input.name, meta, &settings.line(), &runs);
    let exhausted = exhausted(&runs);
    let report = Report {
        trace: TraceInfo::of(&input.name, meta),
        settings,
        finding: quarry_lab::replay::told(meta, &runs),
        runs: &runs,
        callers: &callers,
        sensitivity: None,
    };
    let printing = Printing {
        command: "replay",
        view: quarry_lab::replay::view,
        notes: &notes,
        exhausted: exhausted.as_deref(),
    };
    printing.print(&report, |run| &run.caches, args, kept)?;
    exhausted.map_or(Ok(()), |why| Err(error::exhausted(why)))
}

/// A replay's answer and how it is printed.
struct Printing<'a> {
    command: &'a str,
    view: fn(&[Doc]) -> View,
    notes: &'a str,
    /// Reason why runs lack a part of the load.
    exhausted: Option<&'a str>,
}

impl Printing<'_> {
    fn print<R, P>(
        &self,
        report: &Report<'_, R>,
        caches: fn(&R) -> &[P],
        args: &Args,
        kept: Kept<'_>,
    ) -> anyhow::Result<()>
    where
        R: JsonSchema + Serialize,
        P: JsonSchema + Serialize,
    {
        if let Some(kept) = kept {
            kept.push(output::doc(self.command, report)?);
            return Ok(());
        }
        let view = output::viewed(self.command, report, self.view, &args.page)?;
        if args.json {
            return output::print_json(self.command, report);
        }
        if args.csv {
            let first = ["design", "era", "page_size", "cpus"];
            let table = match args.caches {
                true => Frame::of_parts(report.runs, caches, &first)?,
                false => Frame::of(report.runs)?,
            };
            return output::print_csv(table, &first);
        }
        if args.page.is_stdout() {
            return Ok(());
        }
        let mut view = asked_parts(view, args);
        let told = self.exhausted.map(|why| format!("MEMORY EXHAUSTED: {why}"));
        view.findings.splice(..0, told);
        view.note_first(self.notes.lines().map(str::to_string));
        terminal::print_view(&view, show_of(args))
    }
}

/// The sections of a view that are always printed, or were asked for.
fn asked_parts(mut view: View, args: &Args) -> View {
    let asked = [
        ("caches", args.caches),
        ("fragmentation", args.fragmentation),
    ];
    let is_left_out = |id: &str| asked.iter().any(|(of, is)| *of == id && !is);
    view.sections.retain(|section| !is_left_out(&section.id));
    view
}

/// Parts of a view that are printed.
fn show_of(args: &Args) -> Show<'static> {
    let hint = match args.all {
        true => "`quarry explain NAME` says what a row means.",
        false => "--all has more rows; `quarry explain NAME` says what one means.",
    };
    let (all, rows) = (args.all, args.caches.then_some(args.top));
    Show { all, rows, hint }
}

fn jobs(args: &Args) -> usize {
    let all = || std::thread::available_parallelism().ok();
    args.jobs.or_else(all).map_or(1, NonZeroUsize::get)
}

/// Runs the command with `--time`.
fn run_timed(
    args: &Args,
    asked: &Replay,
    input: &Input,
    axes: &Axes,
    timing: &Timing,
    kept: Kept<'_>,
) -> anyhow::Result<()> {
    let meta = input.file.meta();
    let plan = Plan::new(axes)?;
    output::note_eras(plan.runs.iter().map(|run| run.design.era));
    let cpus = plan.runs.iter().map(|run| run.config.cpus);
    output::note_cpus(&timing.machine, cpus);
    let bar = terminal::progress_bar("replay", meta.rows * plan.runs.len() as u64, "events");
    let runs = plan.execute_timed(input, timing, jobs(args), &|events| bar.inc(events));
    bar.finish_and_clear();
    let mut runs = runs?;
    if args.no_timing {
        runs.iter_mut().for_each(|run| run.events_per_second = 0.0);
    }
    let study = match args.sensitivity {
        true => {
            let jobs = jobs(args);
            Some(study::explore(&plan, input, timing, jobs, &runs)?)
        }
        false => None,
    };
    let settings = Settings::of(asked, input, axes, Some(timing));
    let notes = notes::timed(input, timing, &settings.line(), &runs);
    let report = Report {
        trace: TraceInfo::of(&input.name, meta),
        settings,
        finding: timed::told(meta, &runs),
        runs: &runs,
        callers: &[],
        sensitivity: study.as_ref(),
    };
    let printing = Printing {
        command: "replay --time",
        view: timed::view,
        notes: &notes,
        exhausted: None,
    };
    printing.print(&report, |run| &run.caches, args, kept)
}

/// Names the runs that had no memory for blocks of pages: their load did not fit, and their figures lack a part of it.
fn exhausted(runs: &[RunReport]) -> Option<String> {
    let missed = |run: &RunReport| run.pages.as_ref().map_or(0, |pages| pages.no_memory);
    let all: Vec<String> = runs
        .iter()
        .filter(|run| missed(run) > 0)
        .map(|run| {
            format!(
                "{} with {}k pages and {} CPUs ({} blocks)",
                run.title(),
                run.page_size >> 10,
                run.cpus,
                missed(run)
            )
        })
        .collect();
    (!all.is_empty()).then(|| {
        format!(
            "page events found no memory in {}; give the machines more with --memory",
            all.join(", ")
        )
    })
}

/// Options that were given and have no effect on some run, or less than on others, and why.
fn unheeded(args: &Args, asked: &Replay, plan: &Plan, input: &Input) -> Vec<String> {
    let ignored = match asked.memory.one() {
        None => "of the kernel's zoneinfo only the amount of memory is used",
        Some(_) => "the kernel's zoneinfo is not used",
    };
    let mut notes: Vec<String> = Vec::new();
    for reason in plan
        .runs
        .iter()
        .filter_map(|run| lists::unheeded(run, input))
    {
        let note = format!("{ignored} where {reason}");
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    let events = PageEvents::of(input);
    if let Some(order) = lists::too_large_blocks(input).filter(|_| events.driven()) {
        notes.push(format!(
            "the recorded kernel's largest block has order {order}; here it has {MAX_ORDER}, the most that a replay can have"
        ));
    }
    if args.fragmentation && !events.driven() {
        let why = events.why_none();
        notes.push(format!("--fragmentation is not heeded where {why}"));
    }
    notes
}
