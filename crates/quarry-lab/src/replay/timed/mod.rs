//! A replay in simulated time: what a design costs in nanoseconds, and why.
//!
//! ```text
//!   trace --chunk--> Feed --> steps of lane 0 --> CPU 0, CPU n, CPU 2n ... of the copies
//!                        +--> steps of lane 1 --> CPU 1, ...          |
//!                                                                     v
//!              objects by number <-- alloc, free of the Driver, on the CPU's clock
//! ```
//!
//! # Order
//!
//! Each virtual CPU performs the events of its recorded CPU in their order ([`Pace`] says when). Beyond that,
//!
//! * **R1** the free of an object follows its allocation, wherever that happens;
//! * **R2** the events of a task follow each other, also when the task moves to another CPU. The idle task is one of
//!   each CPU's own;
//! * **R3** no CPU, of any copy, is more than 16 384 rows of the trace ahead of the last one. So the trace is
//!   never held, and CPUs with few events do not finish long before the others.
//!
//! A CPU that has to wait sleeps, and the CPU that does what it waits for wakes it, at that moment of simulated time.
//! Neither costs time. R1 to R3 point to earlier rows only, so the CPU with the earliest row never waits.
//!
//! # Copies
//!
//! Copies of the load have CPUs and objects of their own, and caches, nodes and zones in common. All of them would do
//! the same at the same moment: each copy after the first begins up to 100 µs later, as the seed says.
//!
//! # What is timed
//!
//! An operation is an allocation or a free of an object, or one of a block of pages by a page event. Its time is that
//! from the call to its return on the CPU's clock, waits for locks included. All caches exist before time begins. What
//! users do with memory takes no time and moves no line, and that is so for the zeroing that allocations ask for. Between
//! events CPUs do nothing, so caches keep more of the allocators' lines than a busy kernel's would.
//!
//! An object's operation belongs to the path that it went at most: fast, slow, or to the page allocator
//! ([`report::PathTimes`]). Causes ([`quarry_work::Causes`]) are sums over all operations and the periodic work.
//!
//! # Where pages lie
//!
//! Under a policy memory begins as in a replay without clocks: as the recording's map says, or empty in the zones of
//! x86-64. Slabs from before are in use for good, as no object of theirs is known. CPUs that free blocks from before take them
//! in the recording's order, so two that free at about the same time may swap theirs. Places are accounted at both ends alone.

mod caches;
mod cpus;
mod feed;
mod operations;
pub mod report;
#[cfg(test)]
mod tests;
mod view;

use std::time::Instant;

use quarry_core::design::Design;
use quarry_machines::{Draw, Machine};
use quarry_sim::driver;
use schemars::JsonSchema;
use serde::Serialize;

use super::input::Input;
use super::part::Part;
use super::{Before, Beginning, cache_reports};
use crate::error::LabError;
use crate::run::{Progress, RunSpec};
use cpus::TimedReplay;
use quarry_designs::ForDesign;
use report::TimedReport;

pub use view::{TABLES, told, view};

/// Times at which CPUs perform their events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// At the recorded times; a CPU that is late goes on as fast as it can.
    #[default]
    Recorded,
    /// As fast as the CPUs can.
    Full,
}

impl Pace {
    /// Both, by name.
    pub const ALL: [(Self, &'static str); 2] = [(Self::Recorded, "recorded"), (Self::Full, "full")];
}

/// The machine, its costs and the pace of a replay in simulated time.
#[derive(Clone, Debug)]
pub struct Timing {
    /// The machine, with the cost of each step.
    pub machine: Machine,
    /// Values of its costs.
    pub draw: Draw,
    /// When events happen.
    pub pace: Pace,
    /// Decides what is left to chance.
    pub seed: u64,
}

impl Timing {
    /// The run on a machine with clocks.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if the machine cannot have these CPUs, or the run has debugging.
    pub(crate) fn of_run(&self, run: &RunSpec) -> Result<RunSpec, LabError> {
        if run.settings.debug.is_some() {
            return Err(LabError::Usage(format!(
                "{}: debugging has no costs in simulated time; leave it out",
                run.label()
            )));
        }
        let (base, era) = (run.config, run.design.era);
        let config = self
            .machine
            .config(base.cpus, era, &self.draw, self.seed, base);
        let config = config.map_err(|error| LabError::Usage(error.to_string()))?;
        let checked = config.check();
        checked.map_err(|error| LabError::Usage(error.to_string()))?;
        Ok(RunSpec {
            config,
            ..run.clone()
        })
    }
}

/// Refuses a trace whose events all have one time, and reports of the recorded kernel, which only counting replays heed;
/// under policies they say where memory lies.
///
/// # Errors
///
/// [`LabError::Usage`].
pub(crate) fn check(input: &Input, runs: &[RunSpec]) -> Result<(), LabError> {
    let without_policy = runs.iter().any(|run| run.settings.policy.is_none());
    let reports = [
        (
            without_policy && input.initial.is_some(),
            "an initial state",
        ),
        (input.check.is_some(), "a report to check with"),
        (without_policy && input.zoneinfo.is_some(), "a zoneinfo"),
    ];
    if let Some((_, what)) = reports.into_iter().find(|(given, _)| *given) {
        return Err(LabError::Usage(format!(
            "timed replays ignore reports of the recorded kernel: {what} cannot be used"
        )));
    }
    let meta = input.file.meta();
    if meta.first_time_ns < meta.last_time_ns || meta.rows < 2 {
        return Ok(());
    }
    Err(LabError::Usage(format!(
        "{} has no times: all of its {} events are at {} ns. Record with times (quarry record, or perf script with \
         the field time) and import that, or replay without --time",
        input.name, meta.rows, meta.first_time_ns
    )))
}

/// Replays a trace in one run, whose machine has clocks.
pub(crate) fn run(
    spec: &RunSpec,
    timing: &Timing,
    input: &Input,
    progress: Progress<'_>,
) -> Result<TimedReport, LabError> {
    struct Replay<'a>(&'a RunSpec, &'a Timing, &'a Input, Progress<'a>);
    impl ForDesign for Replay<'_> {
        type Output = Result<TimedReport, LabError>;
        fn run<D: Design>(self) -> Self::Output {
            run_on::<D>(self.0, self.1, self.2, self.3)
        }
    }
    spec.design
        .design
        .run(Replay(spec, timing, input, progress))
}

fn run_on<D: Design>(
    spec: &RunSpec,
    timing: &Timing,
    input: &Input,
    progress: Progress<'_>,
) -> Result<TimedReport, LabError> {
    let start = Instant::now();
    let Beginning {
        reported,
        frames,
        config,
        machine,
    } = Beginning::of(spec, input)?;
    let driven = driver::drive_pages::<D, _>(
        machine,
        &config,
        spec.settings.boot,
        None,
        |driver| -> Result<TimedReport, LabError> {
            let set = spec.settings.set_pages(driver);
            set.map_err(|error| LabError::Usage(format!("{}: {error}", spec.label())))?;
            if let Some(booted) = &input.booted {
                booted.fill_run(spec, driver)?;
            }
            if let Some(frames) = &frames {
                frames.lay_slabs(driver);
            }
            let caches = operations::make_caches(driver, spec, input)?;
            let begin = (reported.as_ref(), frames);
            let replay = TimedReplay::new(driver, spec, timing, input, caches, begin, progress)?;
            let before = Before::new(driver, spec.config.page_bytes);
            let counters = driver.machine().time_counters().unwrap_or_default();
            let ran = driver.machine().run_cpus(|cpu| replay.run_cpu(cpu));
            let (mut outcome, numbers) = replay.finish()?;
            ran.map_err(|source| LabError::Deadlock {
                run: spec.label(),
                source,
            })?;
            if !outcome.has_begun && input.part != Part::default() {
                return Err(input.empty_part());
            }
            let spent = driver.machine().time_counters().unwrap_or_default();
            let spent = spent.since(&counters);
            if let Some(placement) = &mut outcome.placement {
                let meta = input.file.meta();
                placement.take(driver, (meta.rows, meta.duration_ns()));
            }
            let page_bytes = spec.config.page_bytes;
            let (reports, stats, _) =
                cache_reports(driver, input, page_bytes, &before, &Default::default());
            let found = (outcome.caches(&numbers, &reports), stats);
            Ok(TimedReport::of(
                spec, timing, driver, outcome, &spent, found,
            ))
        },
    );
    let mut report = driven.map_err(|source| LabError::Setup {
        run: spec.label(),
        source,
    })??;
    report.initial = input.other_heap(spec);
    let seconds = start.elapsed().as_secs_f64().max(1e-9);
    let events = input.file.meta().rows * u64::from(input.copies);
    report.events_per_second = events as f64 / seconds;
    Ok(report)
}
