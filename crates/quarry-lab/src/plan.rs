//! The runs of an experiment, and their execution on several threads.

use std::collections::BTreeSet;
use std::path::Path;

use quarry_sim::Config;
use quarry_work::run_all;

use crate::error::LabError;
use crate::replay::input::Input;
use crate::replay::report::RunReport;
use crate::replay::timed::report::TimedReport;
use crate::replay::timed::{self, Timing};
use crate::replay::{self, inspect};
use crate::run::{Progress, RunSpec};
use quarry_designs::{DesignSpec, Setting, resolve};

pub use quarry_sim::PAGE_BYTES;

/// Axes of a plan: every design with every page size and every CPU count.
#[derive(Clone, Debug)]
pub struct Axes {
    /// Designs with eras.
    pub designs: Vec<DesignSpec>,
    /// Page sizes in bytes.
    pub page_bytes: Vec<u64>,
    /// Numbers of CPUs.
    pub cpus: Vec<u32>,
    /// Tunables.
    pub settings: Vec<Setting>,
    /// Debugging, as the kernel's `slub_debug` says it.
    pub debug: Option<String>,
    /// Bytes of each machine's memory.
    pub memory_bytes: u64,
    /// Bytes of a cache line.
    pub cache_line: u32,
}

impl Default for Axes {
    /// No design; pages of 4 KiB, one CPU, 16 GiB, cache lines of 64 bytes.
    fn default() -> Self {
        Self {
            designs: Vec::new(),
            page_bytes: vec![4096],
            cpus: vec![1],
            settings: Vec::new(),
            debug: None,
            memory_bytes: 16 << 30,
            cache_line: 64,
        }
    }
}

/// Several runs, in the order in which they are reported.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The runs.
    pub runs: Vec<RunSpec>,
}

impl Plan {
    /// All combinations, designs first, then page sizes, then CPU counts.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if a value is out of range or a tunable does not exist.
    pub fn new(axes: &Axes) -> Result<Self, LabError> {
        let mut settings = resolve(&axes.settings, &axes.designs)?;
        if let Some(text) = &axes.debug {
            for (design, settings) in axes.designs.iter().zip(&mut settings) {
                settings.set_debug(text, design)?;
            }
        }
        let mut runs = Vec::new();
        for (design, settings) in axes.designs.iter().zip(&settings) {
            for page_bytes in &axes.page_bytes {
                for cpus in &axes.cpus {
                    let config = Config {
                        cpus: *cpus,
                        nodes: 1,
                        page_bytes: *page_bytes,
                        memory_bytes: axes.memory_bytes,
                        cache_line: axes.cache_line,
                        faults: None,
                        time: None,
                    };
                    // The machine would refuse it as well, but not before others have run.
                    let checked = config.check();
                    checked.map_err(|error| LabError::Usage(error.to_string()))?;
                    runs.push(RunSpec {
                        design: *design,
                        config,
                        settings: settings.clone(),
                        inspect: None,
                    });
                }
            }
        }
        Ok(Self { runs })
    }

    /// Lets every run leave its heap's files in a folder of `dir`: `slabinfo`, and
    /// `slab/<cache>/<attribute>`. The folders are made at once.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if two runs are the same or a folder has something in it already,
    /// [`LabError::Inspect`] if one cannot be made.
    pub fn inspect_into(&mut self, dir: &Path) -> Result<(), LabError> {
        let mut folders = BTreeSet::new();
        for run in &mut self.runs {
            let folder = run.folder();
            let path = dir.join(&folder);
            if !folders.insert(folder) {
                return Err(LabError::Usage(format!(
                    "two runs would write to {}; name each design, page size and CPU count once",
                    path.display()
                )));
            }
            if inspect::make_folder(&path)? {
                run.inspect = Some(path);
            } else {
                return Err(LabError::Usage(format!(
                    "{} is not empty; remove it or name another folder",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// Replays the trace in every run, on at most `jobs` threads. Reports are in the plan's order.
    ///
    /// # Errors
    ///
    /// The error of the first run, in the plan's order, that has one.
    pub fn execute(
        &self,
        input: &Input,
        jobs: usize,
        progress: Progress<'_>,
    ) -> Result<Vec<RunReport>, LabError> {
        input.check_copies(&self.runs)?;
        run_all(&self.runs, jobs, |run| replay::run(run, input, progress))
    }

    /// Replays the trace in simulated time in every run, as [`Plan::execute`] does. The machine says what nodes and
    /// lines there are.
    ///
    /// # Errors
    ///
    /// Also [`LabError::Usage`] if the machine cannot have a run's CPUs, a run has debugging, or the trace no times.
    pub fn execute_timed(
        &self,
        input: &Input,
        timing: &Timing,
        jobs: usize,
        progress: Progress<'_>,
    ) -> Result<Vec<TimedReport>, LabError> {
        input.check_copies(&self.runs)?;
        timed::check(input)?;
        let runs: Result<Vec<RunSpec>, _> =
            self.runs.iter().map(|run| timing.of_run(run)).collect();
        run_all(&runs?, jobs, |run| timed::run(run, timing, input, progress))
    }
}
