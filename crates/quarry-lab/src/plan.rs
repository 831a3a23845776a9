//! The runs of an experiment, and their execution on several threads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use quarry_sim::Config;
use quarry_work::run_all;

use crate::error::LabError;
use crate::replay;
use crate::replay::input::Input;
use crate::replay::report::RunReport;
use crate::replay::timed::report::TimedReport;
use crate::replay::timed::{self, Timing};
use crate::run::{Progress, RunSpec};
use quarry_designs::{DesignSpec, PagePolicy, Setting, Tuning, combinations, nearest, resolve};
use quarry_state::in_force;
use quarry_trace::OutFolder;

pub use quarry_sim::PAGE_BYTES;
pub use quarry_trace::Existing;

/// Axes of a plan: every design with every page size and every CPU count.
#[derive(Clone, Debug)]
pub struct Axes {
    /// Designs with eras.
    pub designs: Vec<DesignSpec>,
    /// Page sizes in bytes.
    pub page_bytes: Vec<u64>,
    /// Numbers of CPUs.
    pub cpus: Vec<u32>,
    /// Boot parameters and sysctls that the recorded kernel ran with: a design heeds those that it has and `settings` does
    /// not name.
    pub booted_with: Vec<Setting>,
    /// Tunables.
    pub settings: Vec<Setting>,
    /// Lists of values of a tunable each: a run for every combination of values, beside the run without.
    pub lists: Vec<Vec<Setting>>,
    /// Policies of the page allocator; without any it has the release's rules, and placement is not accounted.
    pub policies: Vec<PagePolicy>,
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
            booted_with: Vec::new(),
            settings: Vec::new(),
            lists: Vec::new(),
            policies: Vec::new(),
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
    /// All combinations, designs first, then page sizes, CPU counts, and values of listed tunables.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if a value is out of range or a tunable does not exist.
    pub fn new(axes: &Axes) -> Result<Self, LabError> {
        let variants = variants(axes)?;
        let mut runs = Vec::new();
        for (design, variants) in axes.designs.iter().zip(&variants) {
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
                    runs.extend(variants.iter().map(|(set, settings)| RunSpec {
                        design: *design,
                        config,
                        settings: settings.clone(),
                        set: set.clone(),
                        state: 0,
                        missing: BTreeMap::new(),
                        inspect: None,
                    }));
                }
            }
        }
        Ok(Self { runs })
    }

    /// Lets every run leave its heap's files in a folder of `dir`: `slabinfo`, and
    /// `slab/<cache>/<attribute>`. A folder appears when it is complete.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if two runs are the same, [`LabError::Trace`] if a folder has something in it already and
    /// is to be kept, or cannot be made.
    pub fn inspect_into(&mut self, dir: &Path, existing: Existing) -> Result<(), LabError> {
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
            // Refused now, not after the replay.
            OutFolder::create(&path, existing)?;
            run.inspect = Some(path);
        }
        Ok(())
    }

    /// Checks that every name of a `slub_debug` setting means a cache of some run.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] with the nearest name.
    pub fn check_debug(&self, input: &Input) -> Result<(), LabError> {
        let mut names: BTreeSet<String> = input.cache_names().map(str::to_string).collect();
        for run in &self.runs {
            names.extend(run.kmalloc()?.names());
        }
        for debug in self.runs.iter().filter_map(|run| run.settings.debug) {
            let unmatched = debug
                .patterns()
                .find(|pattern| !names.iter().any(|name| debug.matches(pattern, name)));
            if let Some(pattern) = unmatched {
                let bare = pattern.trim_end_matches('*');
                let near = nearest(bare, names.iter().map(String::as_str));
                return Err(LabError::Usage(format!(
                    "--debug: no cache of {} is called {pattern:?}; the nearest is {}",
                    input.name,
                    near.unwrap_or("none, as there are no caches"),
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
        let replay =
            |runs: &[RunSpec]| run_all(runs, jobs, |run| replay::run(run, input, progress));
        let mut reports = replay(&self.runs)?;
        for (run, report) in self.runs.iter().zip(&mut reports) {
            let missing = report.check.as_ref().map(|check| check.missing(input));
            let Some(missing) = missing else { continue };
            let in_state = |state| RunSpec {
                state,
                missing: missing.clone(),
                ..run.clone()
            };
            if !missing.is_empty() {
                let again = replay(&[in_state(0)])?;
                again.into_iter().for_each(|again| *report = again);
            }
            let growth = report.check.as_mut();
            let Some(growth) = growth.and_then(|check| check.growth.as_mut()) else {
                continue;
            };
            let others = (1..input.states).map(|state| RunSpec {
                inspect: None,
                ..in_state(state)
            });
            let others = replay(&others.collect::<Vec<_>>())?;
            growth.add(
                others
                    .iter()
                    .filter_map(|other| other.check.as_ref()?.growth),
            );
        }
        Ok(reports)
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
        timed::check(input, &self.runs)?;
        let runs: Result<Vec<RunSpec>, _> =
            self.runs.iter().map(|run| timing.of_run(run)).collect();
        run_all(&runs?, jobs, |run| timed::run(run, timing, input, progress))
    }
}

/// Tuning of each design: without any listed value, then with each combination of those that it takes. Each has a
/// name, as [`RunSpec::set`].
fn variants(axes: &Axes) -> Result<Vec<Vec<(String, Tuning)>>, LabError> {
    let mut variants: Vec<Vec<(String, Tuning)>> = vec![Vec::new(); axes.designs.len()];
    for listed in combinations(&axes.lists) {
        let all: Vec<Setting> = axes.settings.iter().chain(&listed).cloned().collect();
        // All designs together first: a tunable that none of them has is an error.
        resolve(&all, &axes.designs)?;
        for (design, variants) in axes.designs.iter().zip(&mut variants) {
            let own = all.iter().filter(|setting| setting.is_taken_by(design));
            let own: Vec<Setting> = own.cloned().collect();
            let mut tuning = in_force(*design, &axes.booted_with, &own)?;
            let taken = listed.iter().filter(|setting| setting.is_taken_by(design));
            let names: Vec<String> = taken.map(Setting::short).collect();
            let name = names.join(" ");
            if variants.iter().any(|(known, _)| *known == name) {
                continue;
            }
            if let Some(text) = &axes.debug {
                tuning.set_debug(text, design)?;
            }
            variants.push((name, tuning));
        }
    }
    for variants in &mut variants {
        if let [(first, _), _, ..] = variants.as_mut_slice() {
            *first = "default".to_string();
        }
        *variants = with_policies(std::mem::take(variants), &axes.policies);
    }
    Ok(variants)
}

/// Each variant under each policy.
fn with_policies(
    variants: Vec<(String, Tuning)>,
    policies: &[PagePolicy],
) -> Vec<(String, Tuning)> {
    if policies.is_empty() {
        return variants;
    }
    let under = |policy: &PagePolicy| {
        let (policy, alone) = (*policy, policies.len() == 1);
        variants.iter().map(move |(name, tuning)| {
            let of_policy = match alone {
                true => String::new(),
                false => format!("policy={policy}"),
            };
            let parts = [name.as_str(), &of_policy].map(str::to_string);
            let name = parts.into_iter().filter(|part| !part.is_empty());
            let tuning = Tuning {
                policy: Some(policy),
                ..tuning.clone()
            };
            (name.collect::<Vec<_>>().join(" "), tuning)
        })
    };
    policies.iter().flat_map(under).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(designs: &[&str], lists: &[&str]) -> Vec<String> {
        let designs = designs.iter().map(|text| DesignSpec::parse(text).unwrap());
        let lists = lists.iter().map(|text| Setting::parse_list(text).unwrap());
        let axes = Axes {
            designs: designs.collect(),
            lists: lists.collect(),
            ..Axes::default()
        };
        let runs = Plan::new(&axes).unwrap().runs.into_iter();
        runs.map(|run| RunSpec::title(run.design.design.name, run.design.era.name(), &run.set))
            .collect()
    }

    #[test]
    fn a_list_is_a_run_for_each_value_beside_the_default() {
        assert_eq!(
            sets(&["slub", "slab@6.3"], &["slub.cpu_partial=0,6"]),
            [
                "slub@6.17 (default)",
                "slub@6.17 (cpu_partial=0)",
                "slub@6.17 (cpu_partial=6)",
                "slab@6.3"
            ]
        );
        let two = ["cpu_partial=0,6", "min_partial=1,2"];
        let all = sets(&["slub"], &two);
        assert_eq!(all.len(), 5);
        assert_eq!(all[2], "slub@6.17 (cpu_partial=0 min_partial=2)");
        assert_eq!(sets(&["slub"], &[]), ["slub@6.17"]);
    }

    #[test]
    fn folders_of_runs_differ() {
        let axes = Axes {
            designs: vec![DesignSpec::parse("slub").unwrap()],
            lists: vec![Setting::parse_list("cpu_partial=0,6").unwrap()],
            ..Axes::default()
        };
        let runs = Plan::new(&axes).unwrap().runs;
        let folders: BTreeSet<String> = runs.iter().map(RunSpec::folder).collect();
        assert_eq!(folders.len(), 3);
        assert!(folders.contains("slub@6.17-4k-1-cpu_partial=6"));
    }
}
